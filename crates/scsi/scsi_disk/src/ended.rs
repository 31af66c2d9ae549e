//! How third-party copies and operations with tokens ended: what is kept for their nexus until it asks.

use std::collections::VecDeque;

use scsi_defs::copy::ListId;

/// Ended copies of a nexus that can be asked about; the oldest gives way.
const MAX_ENDED_COPIES: usize = 16;
/// Ended operations of a nexus that can be asked about; the oldest gives way.
const MAX_ENDED_TOKENS: usize = 16;

/// How a copy ended.
#[derive(Clone, Copy)]
pub(crate) struct EndedCopy {
    pub(crate) list_id: ListId,
    pub(crate) good: bool,
    pub(crate) segments: u16,
    pub(crate) bytes: u64,
}

impl EndedCopy {
    /// Takes its place among the ended copies of a nexus: a list identifier stands for the latest that had it.
    pub(crate) fn remember(self, ended: &mut VecDeque<Self>) {
        ended.retain(|other| other.list_id != self.list_id);
        if ended.len() >= MAX_ENDED_COPIES {
            ended.pop_front();
        }
        ended.push_back(self);
    }

    /// The data of RECEIVE COPY STATUS(LID1).
    pub(crate) fn status(self) -> Vec<u8> {
        let [high, low] = self.segments.to_be_bytes();
        // The count is in bytes, or in KiB if it does not fit.
        let (unit, count) = match u32::try_from(self.bytes) {
            Ok(bytes) => (0, bytes),
            Err(_) => (1, u32::try_from(self.bytes >> 10).unwrap_or(u32::MAX)),
        };
        let mut out = vec![0, 0, 0, 8, if self.good { 1 } else { 2 }, high, low, unit];
        out.extend_from_slice(&count.to_be_bytes());
        out
    }

    /// The data of RECEIVE COPY STATUS(LID4) (SPC-4 6.24): no sense data is kept, the command itself returned it.
    pub(crate) fn status_lid4(self) -> Vec<u8> {
        const EXTENDED_COPY_LID4: u8 = 1;
        let status = if self.good { 1 } else { 2 };
        let mut out = vec![0, 0, 0, 28, EXTENDED_COPY_LID4, status, 0, 0];
        // No further change is to be waited for.
        out.extend_from_slice(&[0xff, 0xff, 0xff, 0xfe, if self.good { 0 } else { 2 }, 0, 0, 0]);
        out.extend_from_slice(&self.bytes.to_be_bytes());
        out.extend_from_slice(&self.segments.to_be_bytes());
        out.resize(32, 0);
        out
    }
}

/// How an operation with a token ended.
pub(crate) struct EndedToken {
    pub(crate) list_id: u32,
    pub(crate) action: u8,
    pub(crate) blocks: u64,
    pub(crate) sense: Vec<u8>,
    pub(crate) token: Option<Vec<u8>>,
}

impl EndedToken {
    /// The data of RECEIVE ROD TOKEN INFORMATION.
    pub(crate) fn information(&self) -> Vec<u8> {
        let status = if self.sense.is_empty() { 1 } else { 2 };
        let mut out = vec![0, 0, 0, 0, self.action, status, 0, 1, 0xff, 0xff, 0xff, 0xfe];
        let (len, check) = (self.sense.len() as u8, if self.sense.is_empty() { 0 } else { 2 });
        out.extend_from_slice(&[check, len, len, 0xf1]); // counted in blocks
        out.extend_from_slice(&self.blocks.to_be_bytes());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&self.sense);
        match &self.token {
            Some(token) => {
                out.extend_from_slice(&(token.len() as u32 + 2).to_be_bytes());
                out.extend_from_slice(&[0, 0]);
                out.extend_from_slice(token);
            }
            None => out.extend_from_slice(&[0; 4]),
        }
        let available = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&available.to_be_bytes());
        out
    }

    /// Takes its place among the ended operations of a nexus: a list identifier stands for the latest that had it.
    pub(crate) fn remember(self, ended: &mut VecDeque<Self>) {
        ended.retain(|other| other.list_id != self.list_id);
        if ended.len() >= MAX_ENDED_TOKENS {
            ended.pop_front();
        }
        ended.push_back(self);
    }
}
