//! QUERY_INFO and SET_INFO (MS-SMB2 2.2.37 to 2.2.40). The structures inside are in [`crate::fscc`] and
//! [`crate::security`]; the answer to QUERY_INFO is an [`OutputResponse`](crate::directory::OutputResponse).

use crate::file::FileId;
use crate::header::{HEADER_BYTES, body};
use crate::wire::{DecodeError, Out, Reserved, StructureSize, Wire, part};

named_values! {
    /// About what.
    pub struct InfoType(u8) {
        FILE = 1,
        FILESYSTEM = 2,
        SECURITY = 3,
        QUOTA = 4,
    }
}

bit_flags! {
    /// Parts of a security descriptor: AdditionalInformation of requests about security.
    pub struct SecurityInformation(u32) {
        OWNER = 0x0000_0001,
        GROUP = 0x0000_0002,
        DACL = 0x0000_0004,
        SACL = 0x0000_0008,
        LABEL = 0x0000_0010,
        ATTRIBUTE = 0x0000_0020,
        SCOPE = 0x0000_0040,
        BACKUP = 0x0001_0000,
        UNPROTECTED_SACL = 0x1000_0000,
        UNPROTECTED_DACL = 0x2000_0000,
        PROTECTED_SACL = 0x4000_0000,
        PROTECTED_DACL = 0x8000_0000,
    }
}

bit_flags! {
    /// Flags of QUERY_INFO about extended attributes.
    pub struct QueryInfoFlags(u32) {
        RESTART_SCAN = 0x0000_0001,
        RETURN_SINGLE_ENTRY = 0x0000_0002,
        INDEX_SPECIFIED = 0x0000_0004,
    }
}

/// Bytes of a QUERY_INFO request before its buffer.
const QUERY_FIXED: usize = 40;
/// Bytes of a SET_INFO request before its buffer.
const SET_FIXED: usize = 32;

/// A QUERY_INFO request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryInfoRequest<'a> {
    /// About what.
    pub info_type: InfoType,
    /// The form that is wanted: a [`FileClass`](crate::fscc::FileClass) or [`VolumeClass`](crate::fscc::VolumeClass).
    pub class: u8,
    /// Most bytes of the answer.
    pub output_length: u32,
    /// Names of extended attributes, or users of quotas.
    pub input: &'a [u8],
    /// Parts of the security descriptor, or an index of extended attributes.
    pub additional: u32,
    /// Flags.
    pub flags: QueryInfoFlags,
    /// The file.
    pub file_id: FileId,
}

impl<'a> QueryInfoRequest<'a> {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        StructureSize::<41>::take(&mut r)?;
        let info_type = InfoType::take(&mut r)?;
        let class = r.u8()?;
        let output_length = r.u32()?;
        let at = usize::from(r.u16()?);
        let _: Reserved<2> = Reserved::take(&mut r)?;
        let len = r.u32()? as usize;
        let additional = r.u32()?;
        let flags = QueryInfoFlags::take(&mut r)?;
        let file_id = FileId::take(&mut r)?;
        let input = part(message, at, len, HEADER_BYTES + QUERY_FIXED, "input")?;
        Ok(Self { info_type, class, output_length, input, additional, flags, file_id })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Out<'_>) {
        out.put(&StructureSize::<41>);
        out.put(&self.info_type);
        out.u8(self.class);
        out.u32(self.output_length);
        out.len16(if self.input.is_empty() { 0 } else { HEADER_BYTES + QUERY_FIXED });
        out.put(&Reserved::<2>);
        out.len32(self.input.len());
        out.u32(self.additional);
        out.put(&self.flags);
        out.put(&self.file_id);
        out.raw(self.input);
        out.pad_to(HEADER_BYTES + QUERY_FIXED + 1);
    }

    /// The parts of the security descriptor that are asked for.
    #[must_use]
    pub fn security(&self) -> SecurityInformation {
        SecurityInformation(self.additional)
    }
}

/// A SET_INFO request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetInfoRequest<'a> {
    /// About what.
    pub info_type: InfoType,
    /// The form that is wanted: a [`FileClass`](crate::fscc::FileClass) or [`VolumeClass`](crate::fscc::VolumeClass).
    pub class: u8,
    /// What to set.
    pub buffer: &'a [u8],
    /// Parts of the security descriptor.
    pub additional: u32,
    /// The file.
    pub file_id: FileId,
}

impl<'a> SetInfoRequest<'a> {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        StructureSize::<33>::take(&mut r)?;
        let info_type = InfoType::take(&mut r)?;
        let class = r.u8()?;
        let len = r.u32()? as usize;
        let at = usize::from(r.u16()?);
        let _: Reserved<2> = Reserved::take(&mut r)?;
        let additional = r.u32()?;
        let file_id = FileId::take(&mut r)?;
        let buffer = part(message, at, len, HEADER_BYTES + SET_FIXED, "buffer")?;
        Ok(Self { info_type, class, buffer, additional, file_id })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Out<'_>) {
        out.put(&StructureSize::<33>);
        out.put(&self.info_type);
        out.u8(self.class);
        out.len32(self.buffer.len());
        out.len16(HEADER_BYTES + SET_FIXED);
        out.put(&Reserved::<2>);
        out.u32(self.additional);
        out.put(&self.file_id);
        out.raw(self.buffer);
        out.pad_to(HEADER_BYTES + SET_FIXED + 1);
    }

    /// The parts of the security descriptor that are set.
    #[must_use]
    pub fn security(&self) -> SecurityInformation {
        SecurityInformation(self.additional)
    }
}

wire_struct! {
    /// A SET_INFO response.
    pub struct SetInfoResponse [2] {
        _: StructureSize<2>,
    }
}

impl SetInfoResponse {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn from_message(message: &[u8]) -> Result<Self, DecodeError> {
        Self::take(&mut body(message)?)
    }
}
