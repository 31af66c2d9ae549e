//! CREATE: opening files, directories and pipes (MS-SMB2 2.2.13, 2.2.14).

pub mod contexts;
pub mod handles;
pub mod lease;

use crate::access::{
    AccessMask, CreateAction, CreateDisposition, CreateOptions, FileAttributes, ImpersonationLevel,
    OplockLevel, ShareAccess,
};
use crate::file::FileId;
use crate::header::{HEADER_BYTES, body};
use crate::time::FileTime;
use crate::utf16::Utf16;
use crate::wire::{DecodeError, Out, Reserved, StructureSize, Wire, part};

pub use contexts::{ContextWriter, CreateContext, CreateContexts, CreateReply};

bit_flags! {
    /// Flags of a CREATE response (3.x).
    pub struct CreateResponseFlags(u8) {
        REPARSEPOINT = 0x01,
    }
}

/// Bytes of a request before its buffer.
const REQUEST_FIXED: usize = 56;
/// Bytes of a response before its buffer.
const RESPONSE_FIXED: usize = 88;

/// A CREATE request (MS-SMB2 2.2.13).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreateRequest<'a> {
    /// The oplock asked for; LEASE when a context says which lease.
    pub oplock: OplockLevel,
    /// How far the server may act as the client.
    pub impersonation: ImpersonationLevel,
    /// Rights asked for.
    pub desired_access: AccessMask,
    /// Attributes of a new file.
    pub attributes: FileAttributes,
    /// What others may do meanwhile.
    pub share_access: ShareAccess,
    /// What to do when it exists, and when not.
    pub disposition: CreateDisposition,
    /// Options.
    pub options: CreateOptions,
    /// The path in the share, without a backslash before it; empty for the share's root.
    pub name: Utf16<'a>,
    /// Contexts.
    pub contexts: CreateContexts<'a>,
}

impl<'a> CreateRequest<'a> {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says, including the structure of the context list.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        StructureSize::<57>::take(&mut r)?;
        let _security_flags: Reserved<1> = Reserved::take(&mut r)?;
        let oplock = OplockLevel::take(&mut r)?;
        let impersonation = ImpersonationLevel::take(&mut r)?;
        let _create_flags: Reserved<16> = Reserved::take(&mut r)?;
        let desired_access = AccessMask::take(&mut r)?;
        let attributes = FileAttributes::take(&mut r)?;
        let share_access = ShareAccess::take(&mut r)?;
        let disposition = CreateDisposition::take(&mut r)?;
        let options = CreateOptions::take(&mut r)?;
        let (name_offset, name_len) = (usize::from(r.u16()?), usize::from(r.u16()?));
        let (contexts_offset, contexts_len) = (r.u32()? as usize, r.u32()? as usize);
        let least = HEADER_BYTES + REQUEST_FIXED;
        let name = Utf16::new(part(message, name_offset, name_len, least, "name")?)?;
        let contexts = part(message, contexts_offset, contexts_len, least, "create contexts")?;
        Ok(Self {
            oplock,
            impersonation,
            desired_access,
            attributes,
            share_access,
            disposition,
            options,
            name,
            contexts: CreateContexts::new(contexts)?,
        })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Out<'_>) {
        out.put(&StructureSize::<57>);
        out.u8(0);
        out.put(&self.oplock);
        out.put(&self.impersonation);
        out.put(&Reserved::<16>);
        out.put(&self.desired_access);
        out.put(&self.attributes);
        out.put(&self.share_access);
        out.put(&self.disposition);
        out.put(&self.options);
        out.len16(HEADER_BYTES + REQUEST_FIXED);
        out.len16(self.name.bytes().len());
        let contexts_at = out.position();
        out.u64(0);
        out.raw(self.name.bytes());
        self.contexts.encode(out, contexts_at);
        out.pad_to(HEADER_BYTES + REQUEST_FIXED + 1);
    }
}

/// A CREATE response (MS-SMB2 2.2.14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreateResponse<'a> {
    /// The oplock granted.
    pub oplock: OplockLevel,
    /// Flags.
    pub flags: CreateResponseFlags,
    /// What was done.
    pub action: CreateAction,
    /// Created.
    pub creation_time: FileTime,
    /// Last read.
    pub last_access_time: FileTime,
    /// Last written.
    pub last_write_time: FileTime,
    /// Last changed in any way.
    pub change_time: FileTime,
    /// Bytes that it takes.
    pub allocation_size: u64,
    /// Bytes that it has.
    pub end_of_file: u64,
    /// Attributes.
    pub attributes: FileAttributes,
    /// The open.
    pub file_id: FileId,
    /// Contexts, decoded with [`CreateContexts::replies`].
    pub contexts: CreateContexts<'a>,
}

impl<'a> CreateResponse<'a> {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        StructureSize::<89>::take(&mut r)?;
        let oplock = OplockLevel::take(&mut r)?;
        let flags = CreateResponseFlags::take(&mut r)?;
        let action = CreateAction::take(&mut r)?;
        let creation_time = FileTime::take(&mut r)?;
        let last_access_time = FileTime::take(&mut r)?;
        let last_write_time = FileTime::take(&mut r)?;
        let change_time = FileTime::take(&mut r)?;
        let (allocation_size, end_of_file) = (r.u64()?, r.u64()?);
        let attributes = FileAttributes::take(&mut r)?;
        let _: Reserved<4> = Reserved::take(&mut r)?;
        let file_id = FileId::take(&mut r)?;
        let (offset, len) = (r.u32()? as usize, r.u32()? as usize);
        let contexts = part(message, offset, len, HEADER_BYTES + RESPONSE_FIXED, "create contexts")?;
        Ok(Self {
            oplock,
            flags,
            action,
            creation_time,
            last_access_time,
            last_write_time,
            change_time,
            allocation_size,
            end_of_file,
            attributes,
            file_id,
            contexts: CreateContexts::new(contexts)?,
        })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Out<'_>) {
        out.put(&StructureSize::<89>);
        out.put(&self.oplock);
        out.put(&self.flags);
        out.put(&self.action);
        out.put(&self.creation_time);
        out.put(&self.last_access_time);
        out.put(&self.last_write_time);
        out.put(&self.change_time);
        out.u64(self.allocation_size);
        out.u64(self.end_of_file);
        out.put(&self.attributes);
        out.put(&Reserved::<4>);
        out.put(&self.file_id);
        let contexts_at = out.position();
        out.u64(0);
        self.contexts.encode(out, contexts_at);
    }
}
