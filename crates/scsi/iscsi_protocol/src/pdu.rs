//! The basic header segment of every PDU, and where its parts lie (RFC 7143 11).
//!
//! ```text
//!   0        48          48+ahs      +4?            +data      pad to 4    +4?
//!   ┌────────┬───────────┬───────────┬──────────────┬──────────┬───────────┐
//!   │ Bhs    │ AHS …     │ hdr digest│ data segment │ 0..3 pad │ data digest
//!   └────────┴───────────┴───────────┴──────────────┴──────────┴───────────┘
//! ```
//!
//! [`Bhs`] is the header's 48 bytes with typed access; copying it is cheaper than borrowing it.

use crate::digest::DIGEST_BYTES;

/// Bytes of a basic header segment.
pub const BHS_BYTES: usize = 48;
/// The tag that names no task.
pub const RESERVED_TAG: u32 = 0xffff_ffff;

/// Opcodes (RFC 7143 11.2.1.2), without the immediate bit.
pub mod opcode {
    #![allow(missing_docs, reason = "the names are the RFC's")]
    pub const NOP_OUT: u8 = 0x00;
    pub const SCSI_COMMAND: u8 = 0x01;
    pub const TASK_MANAGEMENT: u8 = 0x02;
    pub const LOGIN: u8 = 0x03;
    pub const TEXT: u8 = 0x04;
    pub const DATA_OUT: u8 = 0x05;
    pub const LOGOUT: u8 = 0x06;
    pub const SNACK: u8 = 0x10;
    pub const NOP_IN: u8 = 0x20;
    pub const SCSI_RESPONSE: u8 = 0x21;
    pub const TASK_MANAGEMENT_RESPONSE: u8 = 0x22;
    pub const LOGIN_RESPONSE: u8 = 0x23;
    pub const TEXT_RESPONSE: u8 = 0x24;
    pub const DATA_IN: u8 = 0x25;
    pub const LOGOUT_RESPONSE: u8 = 0x26;
    pub const R2T: u8 = 0x31;
    pub const ASYNC: u8 = 0x32;
    pub const REJECT: u8 = 0x3f;
}

/// Reasons in a Reject PDU (RFC 7143 11.17.1).
pub mod reject {
    #![allow(missing_docs, reason = "the names are the RFC's")]
    pub const DATA_DIGEST_ERROR: u8 = 0x02;
    pub const SNACK_REJECT: u8 = 0x03;
    pub const PROTOCOL_ERROR: u8 = 0x04;
    pub const COMMAND_NOT_SUPPORTED: u8 = 0x05;
    pub const IMMEDIATE_COMMAND_REJECT: u8 = 0x06;
    pub const TASK_IN_PROGRESS: u8 = 0x07;
    pub const INVALID_PDU_FIELD: u8 = 0x09;
    pub const LONG_OPERATION: u8 = 0x0a;
    pub const WAITING_FOR_LOGOUT: u8 = 0x0c;
}

/// Flags in byte 1 that several PDUs share, and those of single ones.
pub mod flag {
    #![allow(missing_docs, reason = "the names are the RFC's")]
    pub const FINAL: u8 = 0x80;
    pub const READ: u8 = 0x40;
    pub const WRITE: u8 = 0x20;
    pub const CONTINUE: u8 = 0x40;
    pub const TRANSIT: u8 = 0x80;
    /// Data-In: the status is in this PDU.
    pub const STATUS: u8 = 0x01;
    pub const OVERFLOW: u8 = 0x04;
    pub const UNDERFLOW: u8 = 0x02;
}

/// The 48 bytes that start every PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bhs(pub [u8; BHS_BYTES]);

impl Bhs {
    /// An empty header with an opcode and byte-1 flags.
    #[must_use]
    pub fn new(opcode: u8, flags: u8) -> Self {
        let mut bytes = [0; BHS_BYTES];
        bytes[0] = opcode;
        bytes[1] = flags;
        Self(bytes)
    }

    /// The header at the start of `bytes`, if they are enough.
    #[must_use]
    pub fn from_prefix(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk::<BHS_BYTES>().map(|head| Self(*head))
    }

    /// The opcode without the immediate bit.
    #[must_use]
    pub fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// Whether the command asks for immediate delivery.
    #[must_use]
    pub fn immediate(&self) -> bool {
        self.0[0] & 0x40 != 0
    }

    /// Byte 1.
    #[must_use]
    pub fn flags(&self) -> u8 {
        self.0[1]
    }

    /// The F (or T) bit.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.0[1] & flag::FINAL != 0
    }

    /// Bytes of additional header segments, from 0 to 1020.
    #[must_use]
    pub fn ahs_len(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Bytes of the data segment without padding.
    #[must_use]
    pub fn data_len(&self) -> usize {
        u32::from_be_bytes([0, self.0[5], self.0[6], self.0[7]]) as usize
    }

    /// Sets the data segment's length; callers keep it below 2^24.
    pub fn set_data_len(&mut self, len: usize) {
        let [_, a, b, c] = (len as u32).to_be_bytes();
        self.0[5..8].copy_from_slice(&[a, b, c]);
    }

    /// The logical unit number as on the wire.
    #[must_use]
    pub fn lun(&self) -> [u8; 8] {
        let mut lun = [0; 8];
        lun.copy_from_slice(&self.0[8..16]);
        lun
    }

    /// Sets the logical unit number.
    pub fn set_lun(&mut self, lun: [u8; 8]) {
        self.0[8..16].copy_from_slice(&lun);
    }

    /// A big-endian 32-bit field at byte `at` (0..=44).
    #[must_use]
    pub fn u32_at(&self, at: usize) -> u32 {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_be_bytes(*word))
    }

    /// Sets a big-endian 32-bit field at byte `at` (0..=44).
    pub fn set_u32(&mut self, at: usize, value: u32) {
        if let Some(word) = self.0.get_mut(at..at + 4) {
            word.copy_from_slice(&value.to_be_bytes());
        }
    }

    /// A big-endian 16-bit field at byte `at`.
    #[must_use]
    pub fn u16_at(&self, at: usize) -> u16 {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u16::from_be_bytes(*word))
    }

    /// Sets a big-endian 16-bit field at byte `at`.
    pub fn set_u16(&mut self, at: usize, value: u16) {
        if let Some(word) = self.0.get_mut(at..at + 2) {
            word.copy_from_slice(&value.to_be_bytes());
        }
    }

    /// Initiator task tag.
    #[must_use]
    pub fn itt(&self) -> u32 {
        self.u32_at(16)
    }

    /// Target transfer tag (Data-Out, NOP, R2T, text); expected data length in SCSI commands.
    #[must_use]
    pub fn ttt(&self) -> u32 {
        self.u32_at(20)
    }

    /// CmdSN of requests.
    #[must_use]
    pub fn cmd_sn(&self) -> u32 {
        self.u32_at(24)
    }

    /// ExpStatSN of requests.
    #[must_use]
    pub fn exp_stat_sn(&self) -> u32 {
        self.u32_at(28)
    }

    /// Sets StatSN, ExpCmdSN and MaxCmdSN of a response.
    pub fn set_sequence(&mut self, stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32) {
        self.set_u32(24, stat_sn);
        self.set_u32(28, exp_cmd_sn);
        self.set_u32(32, max_cmd_sn);
    }

    /// The CDB's first 16 bytes in a SCSI command.
    #[must_use]
    pub fn cdb(&self) -> [u8; 16] {
        let mut cdb = [0; 16];
        cdb.copy_from_slice(&self.0[32..48]);
        cdb
    }

    /// ISID of a login request.
    #[must_use]
    pub fn isid(&self) -> [u8; 6] {
        let mut isid = [0; 6];
        isid.copy_from_slice(&self.0[8..14]);
        isid
    }

    /// TSIH of a login request or response.
    #[must_use]
    pub fn tsih(&self) -> u16 {
        self.u16_at(14)
    }
}

/// Where the parts of a PDU lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// End of BHS and AHS: where the header digest is, if any.
    pub header_end: usize,
    /// Start of the data segment.
    pub data_start: usize,
    /// Bytes of data without padding.
    pub data_len: usize,
    /// End of the PDU.
    pub end: usize,
}

/// Why a header cannot start a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The data segment is longer than we declared.
    #[error("data segment of {got} bytes, MaxRecvDataSegmentLength is {limit}")]
    DataTooLong {
        /// Its length.
        got: usize,
        /// What we declared.
        limit: usize,
    },
}

impl Frame {
    /// The layout that `bhs` announces.
    ///
    /// # Errors
    /// When the data segment is longer than `limit`.
    pub fn of(bhs: &Bhs, header_digest: bool, data_digest: bool, limit: usize) -> Result<Self, FrameError> {
        let data_len = bhs.data_len();
        if data_len > limit {
            return Err(FrameError::DataTooLong { got: data_len, limit });
        }
        let header_end = BHS_BYTES + bhs.ahs_len();
        let data_start = header_end + if header_digest { DIGEST_BYTES } else { 0 };
        let trailer = if data_digest && data_len > 0 { DIGEST_BYTES } else { 0 };
        Ok(Self { header_end, data_start, data_len, end: data_start + padded(data_len) + trailer })
    }
}

/// `len` rounded up to the PDU padding of 4.
#[must_use]
pub fn padded(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// An additional header segment (RFC 7143 11.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahs<'a> {
    /// CDB bytes beyond the 16th.
    ExtendedCdb(&'a [u8]),
    /// Expected read length of a bidirectional command.
    BidirectionalReadLength(u32),
    /// Something else, to be ignored.
    Other(u8),
}

/// Walks the additional header segments; stops at the first malformed one.
pub fn parse_ahs(mut bytes: &[u8]) -> impl Iterator<Item = Ahs<'_>> {
    std::iter::from_fn(move || {
        let [a, b, kind, ..] = *bytes else { return None };
        let len = usize::from(u16::from_be_bytes([a, b]));
        // AHSLength counts what follows the type byte; the first of these is reserved.
        let body = bytes.get(3..3 + len)?;
        bytes = bytes.get(padded(3 + len)..).unwrap_or_default();
        Some(match (kind, body) {
            (1, [_, cdb @ ..]) => Ahs::ExtendedCdb(cdb),
            (2, [_, a, b, c, d, ..]) => Ahs::BidirectionalReadLength(u32::from_be_bytes([*a, *b, *c, *d])),
            _ => Ahs::Other(kind),
        })
    })
}

/// Whether serial number `a` is before `b` (RFC 1982).
#[must_use]
pub fn sn_lt(a: u32, b: u32) -> bool {
    a != b && b.wrapping_sub(a) < 0x8000_0000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames() {
        let mut bhs = Bhs::new(opcode::SCSI_COMMAND | 0x40, flag::FINAL);
        bhs.set_data_len(5);
        bhs.0[4] = 2;
        assert!(bhs.immediate());
        assert_eq!(bhs.opcode(), opcode::SCSI_COMMAND);
        let frame = Frame::of(&bhs, true, true, 8192).unwrap();
        assert_eq!(frame, Frame { header_end: 56, data_start: 60, data_len: 5, end: 72 });
        assert!(Frame::of(&bhs, true, true, 4).is_err());
    }

    #[test]
    fn serial_numbers_wrap() {
        assert!(sn_lt(0xffff_ffff, 0));
        assert!(!sn_lt(0, 0xffff_ffff));
        assert!(!sn_lt(7, 7));
    }

    #[test]
    fn ahs() {
        let bytes = [0, 5, 2, 0, 0, 0, 2, 0, 0, 3, 1, 0, 0xaa, 0xbb, 0, 0];
        let all: Vec<_> = parse_ahs(&bytes).collect();
        assert_eq!(all, [Ahs::BidirectionalReadLength(512), Ahs::ExtendedCdb(&[0xaa, 0xbb])]);
        assert_eq!(parse_ahs(&[0xff, 0xff, 1, 0]).count(), 0);
    }
}
