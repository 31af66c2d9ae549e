//! IOCTL: controls of files and of the server (MS-SMB2 2.2.31, 2.2.32). What is inside is in [`crate::fsctl`].

use crate::file::FileId;
use crate::fsctl::FsctlCode;
use crate::header::{HEADER_BYTES, body};
use crate::wire::{DecodeError, Out, Reserved, StructureSize, Wire, part};

bit_flags! {
    /// Flags of an IOCTL request.
    pub struct IoctlFlags(u32) {
        /// A file system control; without it the request is refused (MS-SMB2 3.3.5.15).
        IS_FSCTL = 0x0000_0001,
    }
}

/// Bytes of a request before its buffer.
const REQUEST_FIXED: usize = 56;
/// Bytes of a response before its buffer.
const RESPONSE_FIXED: usize = 48;
/// Where the input of a request that we write begins, and the output of a response, counted from the header.
const REQUEST_BUFFER_AT: usize = HEADER_BYTES + REQUEST_FIXED;
const RESPONSE_BUFFER_AT: usize = HEADER_BYTES + RESPONSE_FIXED;

/// An IOCTL request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoctlRequest<'a> {
    /// What to do.
    pub code: FsctlCode,
    /// To which file; [`FileId::RELATED`] where it is about the connection.
    pub file_id: FileId,
    /// What goes in.
    pub input: &'a [u8],
    /// Most bytes of input that the response may return; 0 for all controls that are in use.
    pub max_input_response: u32,
    /// Most bytes of output that the response may return.
    pub max_output_response: u32,
    /// Flags.
    pub flags: IoctlFlags,
}

impl<'a> IoctlRequest<'a> {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        StructureSize::<57>::take(&mut r)?;
        let _: Reserved<2> = Reserved::take(&mut r)?;
        let code = FsctlCode::take(&mut r)?;
        let file_id = FileId::take(&mut r)?;
        let (input_at, input_len) = (r.u32()? as usize, r.u32()? as usize);
        let max_input_response = r.u32()?;
        let (output_at, output_len) = (r.u32()? as usize, r.u32()? as usize);
        let max_output_response = r.u32()?;
        let flags = IoctlFlags::take(&mut r)?;
        let _: Reserved<4> = Reserved::take(&mut r)?;
        let input = part(message, input_at, input_len, REQUEST_BUFFER_AT, "input")?;
        // Nothing in use has output in the request, but its range is checked all the same (MS-SMB2 3.3.5.15).
        part(message, output_at, output_len, REQUEST_BUFFER_AT, "output")?;
        Ok(Self { code, file_id, input, max_input_response, max_output_response, flags })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Out<'_>) {
        out.put(&StructureSize::<57>);
        out.put(&Reserved::<2>);
        out.put(&self.code);
        out.put(&self.file_id);
        out.len32(REQUEST_BUFFER_AT);
        out.len32(self.input.len());
        out.u32(self.max_input_response);
        out.u64(0);
        out.u32(self.max_output_response);
        out.put(&self.flags);
        out.put(&Reserved::<4>);
        out.raw(self.input);
        out.pad_to(REQUEST_BUFFER_AT + 1);
    }
}

/// An IOCTL response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoctlResponse<'a> {
    /// What was done.
    pub code: FsctlCode,
    /// The file that the control is for.
    pub file_id: FileId,
    /// What comes out.
    pub output: &'a [u8],
}

impl<'a> IoctlResponse<'a> {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        StructureSize::<49>::take(&mut r)?;
        let _: Reserved<2> = Reserved::take(&mut r)?;
        let code = FsctlCode::take(&mut r)?;
        let file_id = FileId::take(&mut r)?;
        let (_input_at, _input_len) = (r.u32()?, r.u32()?);
        let (at, len) = (r.u32()? as usize, r.u32()? as usize);
        let _: Reserved<8> = Reserved::take(&mut r)?;
        Ok(Self { code, file_id, output: part(message, at, len, RESPONSE_BUFFER_AT, "output")? })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Out<'_>) {
        Self::encode_with(self.code, self.file_id, out, |buffer| buffer.extend_from_slice(self.output));
    }

    /// Appends the body with output that `fill` appends.
    pub fn encode_with(code: FsctlCode, file_id: FileId, out: &mut Out<'_>, fill: impl FnOnce(&mut Vec<u8>)) {
        out.put(&StructureSize::<49>);
        out.put(&Reserved::<2>);
        out.put(&code);
        out.put(&file_id);
        out.len32(RESPONSE_BUFFER_AT);
        out.u32(0);
        out.len32(RESPONSE_BUFFER_AT);
        let len_at = out.position();
        out.u32(0);
        out.u64(0);
        let start = out.position();
        fill(out.buffer());
        out.set_len32(len_at, out.position() - start);
    }
}
