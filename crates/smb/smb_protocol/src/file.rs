//! Files that are open: their identifiers, CLOSE and FLUSH (MS-SMB2 2.2.14.1, 2.2.15 to 2.2.18).

use crate::access::FileAttributes;
use crate::header::body;
use crate::time::FileTime;
use crate::wire::{DecodeError, Reserved, StructureSize, Wire};

wire_struct! {
    /// An open, as a client names it.
    pub struct FileId [16] {
        /// Stays the same when a durable handle is reconnected.
        persistent: u64,
        /// Changes then.
        volatile: u64,
    }
}

impl FileId {
    /// In related compounds: "the file of the request before" (MS-SMB2 3.3.5.2.7.2).
    pub const RELATED: Self = Self { persistent: u64::MAX, volatile: u64::MAX };
}

bit_flags! {
    /// Flags of CLOSE.
    pub struct CloseFlags(u16) {
        /// The response tells times, sizes and attributes.
        POSTQUERY_ATTRIB = 0x0001,
    }
}

wire_struct! {
    /// A CLOSE request (MS-SMB2 2.2.15).
    pub struct CloseRequest [24] {
        _: StructureSize<24>,
        /// Flags.
        flags: CloseFlags,
        _: Reserved<4>,
        /// What to close.
        file_id: FileId,
    }
}

wire_struct! {
    /// A CLOSE response (MS-SMB2 2.2.16); all zero where no attributes were asked for.
    pub struct CloseResponse [60] {
        _: StructureSize<60>,
        /// The flags of the request, if what follows is valid.
        flags: CloseFlags,
        _: Reserved<4>,
        /// Created.
        creation_time: FileTime,
        /// Last read.
        last_access_time: FileTime,
        /// Last written.
        last_write_time: FileTime,
        /// Last changed in any way.
        change_time: FileTime,
        /// Bytes that it takes.
        allocation_size: u64,
        /// Bytes that it has.
        end_of_file: u64,
        /// Attributes.
        attributes: FileAttributes,
    }
}

wire_struct! {
    /// A FLUSH request (MS-SMB2 2.2.17). Its answer is [`Empty`](crate::session::Empty).
    pub struct FlushRequest [24] {
        _: StructureSize<24>,
        _: Reserved<6>,
        /// What to flush.
        file_id: FileId,
    }
}

impl CloseRequest {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn from_message(message: &[u8]) -> Result<Self, DecodeError> {
        Self::take(&mut body(message)?)
    }
}

impl CloseResponse {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn from_message(message: &[u8]) -> Result<Self, DecodeError> {
        Self::take(&mut body(message)?)
    }
}

impl FlushRequest {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn from_message(message: &[u8]) -> Result<Self, DecodeError> {
        Self::take(&mut body(message)?)
    }
}
