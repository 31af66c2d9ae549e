//! PDUs in bytes that came, and bytes that are to go: with their digests, without a socket.

use std::ops::Range;

use iscsi_protocol::digest::digest_of;
use iscsi_protocol::pdu::padded;
use iscsi_protocol::{BHS_BYTES, Bhs, ConnectionParams, Frame};

use crate::error::ClientError;

/// Longest data segment that we declare to take.
pub(crate) const MAX_RECV: u32 = 256 << 10;
/// Bytes of the inbox: room for one PDU of [`MAX_RECV`] with header segments and digests, and as much again for what
/// comes behind it in the same read.
const INBOX: usize = 2 * (MAX_RECV as usize + 4096);
/// More than this waiting to be sent, and no further data is put behind it.
pub(crate) const OUTBOX_FULL: usize = 1 << 20;
/// A target that makes us answer and takes nothing ends here.
const OUTBOX_BOUND: usize = 64 << 20;
/// When there is less room than this behind the bytes that are there, these are moved to the front before the next read.
const LEAST_READ: usize = 64 << 10;

/// What has come and is not yet taken, and what is to go.
pub struct Frames {
    /// What was negotiated for the connection.
    pub params: ConnectionParams,
    inbox: Box<[u8]>,
    start: usize,
    end: usize,
    out: Vec<u8>,
    sent: usize,
}

impl Default for Frames {
    fn default() -> Self {
        let inbox = vec![0; INBOX].into_boxed_slice();
        Self { params: ConnectionParams::default(), inbox, start: 0, end: 0, out: Vec::new(), sent: 0 }
    }
}

impl Frames {
    /// How many bytes wait to be sent.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.out.len() - self.sent
    }

    /// The bytes that wait to be sent.
    #[must_use]
    pub fn unsent(&self) -> &[u8] {
        self.out.get(self.sent..).unwrap_or_default()
    }

    /// So many of them have been sent.
    pub fn sent(&mut self, count: usize) {
        self.sent = (self.sent + count).min(self.out.len());
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
    }

    /// Puts a PDU behind what waits to be sent.
    ///
    /// # Errors
    /// When the target takes nothing, and far too much waits already.
    pub fn push(&mut self, mut bhs: Bhs, data: &[u8]) -> Result<(), ClientError> {
        if self.waiting() > OUTBOX_BOUND {
            return Err(ClientError::Protocol("it asks and asks and takes no answer"));
        }
        bhs.set_data_len(data.len());
        self.out.extend_from_slice(&bhs.0);
        if self.params.header_digest {
            self.out.extend_from_slice(&digest_of(&bhs.0));
        }
        let begin = self.out.len();
        self.out.extend_from_slice(data);
        self.out.resize(begin + padded(data.len()), 0);
        if self.params.data_digest && !data.is_empty() {
            let digest = digest_of(self.out.get(begin..).unwrap_or_default());
            self.out.extend_from_slice(&digest);
        }
        Ok(())
    }

    /// Where the next bytes that come are to go. Never empty while every whole PDU has been taken.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.inbox.len() - self.end < LEAST_READ {
            self.inbox.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.inbox.get_mut(self.end..).unwrap_or_default()
    }

    /// So many bytes have come into [`Frames::room`].
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.inbox.len());
    }

    /// The next whole PDU of what came: its header, and where its data is.
    ///
    /// # Errors
    /// When a digest is wrong, or a segment is longer than was agreed on.
    #[allow(clippy::should_implement_trait, reason = "no iterator: it fails")]
    pub fn next(&mut self) -> Result<Option<(Bhs, Range<usize>)>, ClientError> {
        let here = self.inbox.get(self.start..self.end).unwrap_or_default();
        let Some(bhs) = Bhs::from_prefix(here) else { return Ok(None) };
        let (with_header, with_data) = (self.params.header_digest, self.params.data_digest);
        // With a header digest, nothing in the header is believed before it is checked.
        if with_header {
            let header_end = BHS_BYTES + bhs.ahs_len();
            let Some(digest) = here.get(header_end..header_end + 4) else { return Ok(None) };
            if digest != digest_of(here.get(..header_end).unwrap_or_default()) {
                return Err(ClientError::Digest("header"));
            }
        }
        let frame = Frame::of(&bhs, with_header, with_data, self.params.max_recv as usize)?;
        let Some(whole) = here.get(..frame.end) else { return Ok(None) };
        let data_end = frame.data_start + padded(frame.data_len);
        if with_data && frame.data_len > 0 {
            let data = whole.get(frame.data_start..data_end).unwrap_or_default();
            if whole.get(data_end..) != Some(&digest_of(data)[..]) {
                return Err(ClientError::Digest("data"));
            }
        }
        let begin = self.start + frame.data_start;
        self.start += frame.end;
        Ok(Some((bhs, begin..begin + frame.data_len)))
    }

    /// Data of the PDU that [`Frames::next`] found, until the next bytes come.
    #[must_use]
    pub fn data(&self, range: Range<usize>) -> &[u8] {
        self.inbox.get(range).unwrap_or_default()
    }
}
