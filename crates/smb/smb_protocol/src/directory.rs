//! QUERY_DIRECTORY and CHANGE_NOTIFY (MS-SMB2 2.2.33 to 2.2.36), and the answer's shape that QUERY_INFO shares.

use crate::file::FileId;
use crate::fscc::FileClass;
use crate::header::{HEADER_BYTES, body};
use crate::utf16::Utf16;
use crate::wire::{DecodeError, Out, Reserved, StructureSize, Wire, part};

bit_flags! {
    /// Flags of QUERY_DIRECTORY.
    pub struct QueryDirectoryFlags(u8) {
        RESTART_SCANS = 0x01,
        RETURN_SINGLE_ENTRY = 0x02,
        INDEX_SPECIFIED = 0x04,
        REOPEN = 0x10,
    }
}

/// Bytes of a QUERY_DIRECTORY request before its buffer.
const REQUEST_FIXED: usize = 32;
/// Bytes of an answer before its buffer.
const OUTPUT_FIXED: usize = 8;
/// Where an answer's buffer begins, counted from the header.
pub const OUTPUT_AT: usize = HEADER_BYTES + OUTPUT_FIXED;

/// A QUERY_DIRECTORY request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryDirectoryRequest<'a> {
    /// The form in which entries are wanted.
    pub class: FileClass,
    /// Flags.
    pub flags: QueryDirectoryFlags,
    /// Where to go on, if the flags say so.
    pub file_index: u32,
    /// The directory.
    pub file_id: FileId,
    /// Which names; may have wildcards.
    pub pattern: Utf16<'a>,
    /// Most bytes of the answer.
    pub output_length: u32,
}

impl<'a> QueryDirectoryRequest<'a> {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        StructureSize::<33>::take(&mut r)?;
        let class = FileClass::take(&mut r)?;
        let flags = QueryDirectoryFlags::take(&mut r)?;
        let file_index = r.u32()?;
        let file_id = FileId::take(&mut r)?;
        let (at, len) = (usize::from(r.u16()?), usize::from(r.u16()?));
        let output_length = r.u32()?;
        let pattern = Utf16::new(part(message, at, len, HEADER_BYTES + REQUEST_FIXED, "pattern")?)?;
        Ok(Self { class, flags, file_index, file_id, pattern, output_length })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Out<'_>) {
        out.put(&StructureSize::<33>);
        out.put(&self.class);
        out.put(&self.flags);
        out.u32(self.file_index);
        out.put(&self.file_id);
        out.len16(HEADER_BYTES + REQUEST_FIXED);
        out.len16(self.pattern.bytes().len());
        out.u32(self.output_length);
        out.raw(self.pattern.bytes());
        out.pad_to(HEADER_BYTES + REQUEST_FIXED + 1);
    }
}

bit_flags! {
    /// Flags of CHANGE_NOTIFY.
    pub struct ChangeNotifyFlags(u16) {
        WATCH_TREE = 0x0001,
    }
}

bit_flags! {
    /// Which changes are told.
    pub struct CompletionFilter(u32) {
        FILE_NAME = 0x0000_0001,
        DIR_NAME = 0x0000_0002,
        ATTRIBUTES = 0x0000_0004,
        SIZE = 0x0000_0008,
        LAST_WRITE = 0x0000_0010,
        LAST_ACCESS = 0x0000_0020,
        CREATION = 0x0000_0040,
        EA = 0x0000_0080,
        SECURITY = 0x0000_0100,
        STREAM_NAME = 0x0000_0200,
        STREAM_SIZE = 0x0000_0400,
        STREAM_WRITE = 0x0000_0800,
    }
}

wire_struct! {
    /// A CHANGE_NOTIFY request. Its answer's buffer is made with [`crate::fscc::notify`].
    pub struct ChangeNotifyRequest [32] {
        _: StructureSize<32>,
        /// Flags.
        flags: ChangeNotifyFlags,
        /// Most bytes of the answer.
        output_length: u32,
        /// The directory.
        file_id: FileId,
        /// Which changes.
        filter: CompletionFilter,
        _: Reserved<4>,
    }
}

impl ChangeNotifyRequest {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn from_message(message: &[u8]) -> Result<Self, DecodeError> {
        Self::take(&mut body(message)?)
    }
}

/// The answer to QUERY_DIRECTORY, CHANGE_NOTIFY and QUERY_INFO: a buffer (MS-SMB2 2.2.34, 2.2.36, 2.2.38).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputResponse<'a> {
    /// What was asked for.
    pub output: &'a [u8],
}

impl<'a> OutputResponse<'a> {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        StructureSize::<9>::take(&mut r)?;
        let (at, len) = (usize::from(r.u16()?), r.u32()? as usize);
        Ok(Self { output: part(message, at, len, OUTPUT_AT, "output")? })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Out<'_>) {
        Self::encode_with(out, |buffer| buffer.extend_from_slice(self.output));
    }

    /// Appends the body with output that `fill` appends.
    pub fn encode_with<T>(out: &mut Out<'_>, fill: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        out.put(&StructureSize::<9>);
        out.len16(OUTPUT_AT);
        let len_at = out.position();
        out.u32(0);
        let start = out.position();
        let result = fill(out.buffer());
        out.set_len32(len_at, out.position() - start);
        result
    }
}
