//! Create contexts: what a CREATE asks for besides, and what it is told (MS-SMB2 2.2.13.2, 2.2.14.2).
//!
//! ```text
//!   0 Next   4 NameOffset  6 NameLength  8 Reserved  10 DataOffset  12 DataLength   16 name …  data …
//! ```
//! A list is checked once, in [`CreateContexts::new`]; walking it afterwards cannot fail, and cannot be endless, as
//! each step goes forward by at least a context's head.

use crate::access::AccessMask;
use crate::create::handles::{
    AppInstanceId, AppInstanceVersion, DurableReconnect, DurableReconnectV2, DurableReply, DurableReplyV2,
    DurableRequest, DurableRequestV2,
};
use crate::create::lease::{LeaseV1, LeaseV2, V1_BYTES, V2_BYTES};
use crate::status::NtStatus;
use crate::time::FileTime;
use crate::wire::{DecodeError, Out, Reader, Reserved, Wire, part};

/// Names of contexts.
pub mod tag {
    #![allow(missing_docs, reason = "the names are the specification's")]
    pub const EA_BUFFER: &[u8] = b"ExtA";
    pub const SD_BUFFER: &[u8] = b"SecD";
    pub const DURABLE_REQUEST: &[u8] = b"DHnQ";
    pub const DURABLE_RECONNECT: &[u8] = b"DHnC";
    pub const ALLOCATION_SIZE: &[u8] = b"AlSi";
    pub const MAXIMAL_ACCESS: &[u8] = b"MxAc";
    pub const TIMEWARP: &[u8] = b"TWrp";
    pub const ON_DISK_ID: &[u8] = b"QFid";
    pub const LEASE: &[u8] = b"RqLs";
    pub const DURABLE_REQUEST_V2: &[u8] = b"DH2Q";
    pub const DURABLE_RECONNECT_V2: &[u8] = b"DH2C";
    pub const APP_INSTANCE_ID: &[u8] = b"\x45\xbc\xa6\x6a\xef\xa7\xf7\x4a\x90\x08\xfa\x46\x2e\x14\x4d\x74";
    pub const APP_INSTANCE_VERSION: &[u8] =
        b"\xb9\x82\xd0\xb7\x3b\x56\x07\x4f\xa0\x7b\x52\x4a\x81\x16\xa0\x10";
    /// Opens a shared virtual disk (MS-RSVD 2.2.4.12); its data are not decoded here.
    pub const SVHDX_OPEN_DEVICE: &[u8] = b"\x9c\xcb\xcf\x9e\x04\xc1\xe6\x43\x98\x0e\x15\x8d\xa1\xf6\xec\x83";
    /// The POSIX extensions of Samba and the Linux kernel.
    pub const POSIX: &[u8] = b"\x93\xad\x25\x50\x9c\xb4\x11\xe7\xb4\x23\x83\xde\x96\x8b\xcd\x7c";
    /// Apple's extensions.
    pub const AAPL: &[u8] = b"AAPL";
}

/// Bytes of a context before its name.
const HEAD: usize = 16;
/// Most contexts in a list: fourteen kinds are known, and each of ours may come once.
pub const MAX_CONTEXTS: usize = 64;

/// A context of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateContext<'a> {
    /// ExtA: extended attributes of a new file, as [`EaList`](crate::fscc::ea::EaList).
    EaBuffer(&'a [u8]),
    /// SecD: a new file's security descriptor.
    SecurityDescriptor(&'a [u8]),
    /// DHnQ.
    Durable(DurableRequest),
    /// DHnC.
    Reconnect(DurableReconnect),
    /// AlSi: bytes to allocate for a new file.
    AllocationSize(u64),
    /// MxAc: what may the user do? With a time, only if the file changed since.
    MaximalAccess(Option<FileTime>),
    /// TWrp: the file as it was at that time.
    Timewarp(FileTime),
    /// QFid: the file's number on its volume, please.
    OnDiskId,
    /// RqLs, version 1.
    Lease(LeaseV1),
    /// RqLs, version 2.
    LeaseV2(LeaseV2),
    /// DH2Q.
    DurableV2(DurableRequestV2),
    /// DH2C.
    ReconnectV2(DurableReconnectV2),
    /// AppInstanceId.
    AppInstanceId(AppInstanceId),
    /// AppInstanceVersion.
    AppInstanceVersion(AppInstanceVersion),
    /// Something else: its name and data. A server ignores what it does not know.
    Other(&'a [u8], &'a [u8]),
}

/// Data of a fixed size: a length that is too short is an error, one that is too long is not looked at.
fn fixed<T: Wire>(data: &[u8]) -> Result<T, DecodeError> {
    T::decode(data).map_err(|_| DecodeError::Invalid("create context"))
}

impl<'a> CreateContext<'a> {
    fn decode(name: &'a [u8], data: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(match name {
            tag::EA_BUFFER => Self::EaBuffer(data),
            tag::SD_BUFFER => Self::SecurityDescriptor(data),
            tag::DURABLE_REQUEST => Self::Durable(fixed(data)?),
            tag::DURABLE_RECONNECT => Self::Reconnect(fixed(data)?),
            tag::ALLOCATION_SIZE => Self::AllocationSize(fixed(data)?),
            tag::MAXIMAL_ACCESS if data.is_empty() => Self::MaximalAccess(None),
            tag::MAXIMAL_ACCESS => Self::MaximalAccess(Some(fixed(data)?)),
            tag::TIMEWARP => Self::Timewarp(fixed(data)?),
            tag::ON_DISK_ID => Self::OnDiskId,
            tag::LEASE if data.len() == V1_BYTES => Self::Lease(fixed(data)?),
            tag::LEASE if data.len() == V2_BYTES => Self::LeaseV2(fixed(data)?),
            tag::LEASE => return Err(DecodeError::Invalid("create context")),
            tag::DURABLE_REQUEST_V2 => Self::DurableV2(fixed(data)?),
            tag::DURABLE_RECONNECT_V2 => Self::ReconnectV2(fixed(data)?),
            tag::APP_INSTANCE_ID => Self::AppInstanceId(fixed(data)?),
            tag::APP_INSTANCE_VERSION => Self::AppInstanceVersion(fixed(data)?),
            _ => Self::Other(name, data),
        })
    }
}

wire_struct! {
    /// The answer to MxAc (2.2.14.2.5).
    pub struct MaximalAccessReply [8] {
        /// Whether it could be found out.
        status: NtStatus,
        /// What the user may do.
        access: AccessMask,
    }
}

wire_struct! {
    /// The answer to QFid (2.2.14.2.9).
    pub struct OnDiskIdReply [32] {
        /// The file's number on its volume.
        file_id: u64,
        /// The volume.
        volume_id: u64,
        _: Reserved<16>,
    }
}

/// A context of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateReply<'a> {
    /// To DHnQ: granted.
    Durable(DurableReply),
    /// To MxAc.
    MaximalAccess(MaximalAccessReply),
    /// To QFid.
    OnDiskId(OnDiskIdReply),
    /// To RqLs of version 1.
    Lease(LeaseV1),
    /// To RqLs of version 2.
    LeaseV2(LeaseV2),
    /// To DH2Q: granted.
    DurableV2(DurableReplyV2),
    /// Something else: its name and data.
    Other(&'a [u8], &'a [u8]),
}

impl<'a> CreateReply<'a> {
    fn decode(name: &'a [u8], data: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(match name {
            tag::DURABLE_REQUEST => Self::Durable(fixed(data)?),
            tag::MAXIMAL_ACCESS => Self::MaximalAccess(fixed(data)?),
            tag::ON_DISK_ID => Self::OnDiskId(fixed(data)?),
            tag::LEASE if data.len() == V1_BYTES => Self::Lease(fixed(data)?),
            tag::LEASE if data.len() == V2_BYTES => Self::LeaseV2(fixed(data)?),
            tag::LEASE => return Err(DecodeError::Invalid("create context")),
            tag::DURABLE_REQUEST_V2 => Self::DurableV2(fixed(data)?),
            _ => Self::Other(name, data),
        })
    }
}

/// A list of contexts, borrowed as on the wire; where each begins and ends has been checked.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CreateContexts<'a>(&'a [u8]);

impl<'a> CreateContexts<'a> {
    /// Checks a list; empty bytes are an empty one.
    ///
    /// # Errors
    /// When a context is not wholly inside, does not begin where it must, or there are too many.
    pub fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut rest = bytes;
        for _ in 0..MAX_CONTEXTS {
            if rest.is_empty() {
                return Ok(Self(bytes));
            }
            rest = split(rest)?.2;
        }
        if rest.is_empty() { Ok(Self(bytes)) } else { Err(DecodeError::Invalid("number of create contexts")) }
    }

    /// Names and data.
    pub fn raw(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let (name, data, after) = split(rest).ok()?;
            rest = after;
            Some((name, data))
        })
    }

    /// The contexts of a request. A context whose data are not what its name says is an error; the list goes on.
    pub fn requests(&self) -> impl Iterator<Item = Result<CreateContext<'a>, DecodeError>> + use<'a> {
        self.raw().map(|(name, data)| CreateContext::decode(name, data))
    }

    /// The contexts of a response.
    pub fn replies(&self) -> impl Iterator<Item = Result<CreateReply<'a>, DecodeError>> + use<'a> {
        self.raw().map(|(name, data)| CreateReply::decode(name, data))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the list, 8-aligned, with its offset and length at `at`.
    pub(crate) fn encode(&self, out: &mut Out<'_>, at: usize) {
        if !self.0.is_empty() {
            out.align(8);
            out.set_len32(at, out.position());
            out.set_len32(at + 4, self.0.len());
            out.raw(self.0);
        }
    }
}

impl std::fmt::Debug for CreateContexts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.raw().map(|(name, data)| (name.escape_ascii().to_string(), data))).finish()
    }
}

/// A context's name and data, and what follows it.
type Split<'a> = (&'a [u8], &'a [u8], &'a [u8]);

fn split(bytes: &[u8]) -> Result<Split<'_>, DecodeError> {
    let mut r = Reader::new(bytes);
    let next = r.u32()? as usize;
    let (name_offset, name_len) = (usize::from(r.u16()?), usize::from(r.u16()?));
    r.u16()?;
    let data_offset = usize::from(r.u16()?);
    let data_len = r.u32()? as usize;
    let invalid = DecodeError::Invalid("create context");
    let (context, rest) = match next {
        0 => (bytes, &[][..]),
        _ if next < HEAD || !next.is_multiple_of(8) => return Err(invalid),
        // A list that ends exactly where another context is announced has no more.
        _ => match bytes.split_at_checked(next) {
            Some((_, [])) | None => return Err(invalid),
            Some(parts) => parts,
        },
    };
    // Names are four or sixteen bytes; less is nobody's (MS-SMB2 3.3.5.9).
    if name_len < 4 {
        return Err(invalid);
    }
    let name = part(context, name_offset, name_len, HEAD, "create context name")?;
    let data = part(context, data_offset, data_len, HEAD, "create context data")?;
    Ok((name, data, rest))
}

/// Writes a list of contexts.
#[derive(Debug, Default)]
pub struct ContextWriter {
    bytes: Vec<u8>,
    last: usize,
}

impl ContextWriter {
    /// An empty list that uses `buffer`'s memory.
    #[must_use]
    pub fn new(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        Self { bytes: buffer, last: 0 }
    }

    /// Appends a context with a name (at most 16 bytes) and data.
    pub fn push(&mut self, name: &[u8], data: &[u8]) {
        self.push_with(name, |out| out.extend_from_slice(data));
    }

    /// Appends a context whose data are a structure.
    pub fn push_value(&mut self, name: &[u8], value: &impl Wire) {
        self.push_with(name, |out| value.put(out));
    }

    fn push_with(&mut self, name: &[u8], data: impl FnOnce(&mut Vec<u8>)) {
        if !self.bytes.is_empty() {
            self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
            let next = (self.bytes.len() - self.last) as u32;
            if let Some(field) = self.bytes.get_mut(self.last..self.last + 4) {
                field.copy_from_slice(&next.to_le_bytes());
            }
        }
        self.last = self.bytes.len();
        let name = name.get(..16).unwrap_or(name);
        let data_offset = (HEAD + name.len()).next_multiple_of(8);
        0_u32.put(&mut self.bytes);
        (HEAD as u16).put(&mut self.bytes);
        (name.len() as u16).put(&mut self.bytes);
        0_u16.put(&mut self.bytes);
        (data_offset as u16).put(&mut self.bytes);
        let len_at = self.bytes.len();
        0_u32.put(&mut self.bytes);
        self.bytes.extend_from_slice(name);
        self.bytes.resize(self.last + data_offset, 0);
        let start = self.bytes.len();
        data(&mut self.bytes);
        let len = (self.bytes.len() - start) as u32;
        if let Some(field) = self.bytes.get_mut(len_at..len_at + 4) {
            field.copy_from_slice(&len.to_le_bytes());
        }
    }

    /// The list.
    #[must_use]
    pub fn as_contexts(&self) -> CreateContexts<'_> {
        CreateContexts(&self.bytes)
    }

    /// The buffer, to be used again.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests;
