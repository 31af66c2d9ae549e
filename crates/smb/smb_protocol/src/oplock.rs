//! OPLOCK_BREAK: taking oplocks and leases back (MS-SMB2 2.2.23 to 2.2.25).
//!
//! The command's number is shared; the structure size tells oplock (24) and lease (36, or 44 in notifications) apart.

use crate::access::OplockLevel;
use crate::create::lease::{LeaseKey, LeaseState};
use crate::file::FileId;
use crate::header::{HEADER_BYTES, body};
use crate::wire::{DecodeError, Reader, Reserved, StructureSize, Wire};

wire_struct! {
    /// An oplock break: the notification, its acknowledgement and the answer to that (2.2.23.1, 2.2.24.1, 2.2.25.1).
    pub struct OplockBreak [24] {
        _: StructureSize<24>,
        /// The level that remains.
        level: OplockLevel,
        _: Reserved<5>,
        /// The open.
        file_id: FileId,
    }
}

bit_flags! {
    /// Flags of a lease break notification.
    pub struct LeaseBreakFlags(u32) {
        ACK_REQUIRED = 0x0000_0001,
    }
}

wire_struct! {
    /// A lease break notification (2.2.23.2).
    pub struct LeaseBreakNotification [44] {
        _: StructureSize<44>,
        /// The lease's epoch after the break; 0 for a lease of version 1.
        new_epoch: u16,
        /// Whether the client must acknowledge.
        flags: LeaseBreakFlags,
        /// Which lease.
        key: LeaseKey,
        /// What it allows until now.
        current: LeaseState,
        /// What it allows then.
        new: LeaseState,
        _: Reserved<12>,
    }
}

wire_struct! {
    /// A lease break acknowledgement, and the answer to it (2.2.24.2, 2.2.25.2).
    pub struct LeaseBreakAck [36] {
        _: StructureSize<36>,
        _: Reserved<2>,
        /// Reserved.
        flags: u32,
        /// Which lease.
        key: LeaseKey,
        /// What it allows from now on.
        state: LeaseState,
        _: Reserved<8>,
    }
}

/// What an OPLOCK_BREAK of a client says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakAck {
    /// About an oplock.
    Oplock(OplockBreak),
    /// About a lease.
    Lease(LeaseBreakAck),
}

impl BreakAck {
    /// Decodes it from a whole message: a request, or the answer to one.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn from_message(message: &[u8]) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        match structure_size(message)? {
            36 => LeaseBreakAck::take(&mut r).map(Self::Lease),
            _ => OplockBreak::take(&mut r).map(Self::Oplock),
        }
    }
}

/// What the server tells unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakNotification {
    /// About an oplock.
    Oplock(OplockBreak),
    /// About a lease.
    Lease(LeaseBreakNotification),
}

impl BreakNotification {
    /// Decodes it from a whole message with the message number [`UNSOLICITED`](crate::header::UNSOLICITED).
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn from_message(message: &[u8]) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        match structure_size(message)? {
            44 => LeaseBreakNotification::take(&mut r).map(Self::Lease),
            _ => OplockBreak::take(&mut r).map(Self::Oplock),
        }
    }
}

fn structure_size(message: &[u8]) -> Result<u16, DecodeError> {
    message.get(HEADER_BYTES..).map(Reader::new).ok_or(DecodeError::Truncated)?.u16()
}
