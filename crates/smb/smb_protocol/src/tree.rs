//! TREE_CONNECT, its extension, and TREE_DISCONNECT (MS-SMB2 2.2.9 to 2.2.12).

use crate::access::AccessMask;
use crate::header::{HEADER_BYTES, body};
use crate::utf16::Utf16;
use crate::wire::{DecodeError, Out, Reader, Reserved, StructureSize, Wire, part};

bit_flags! {
    /// Flags of a TREE_CONNECT request (3.1.1).
    pub struct TreeConnectFlags(u16) {
        CLUSTER_RECONNECT = 0x0001,
        REDIRECT_TO_OWNER = 0x0002,
        EXTENSION_PRESENT = 0x0004,
    }
}

named_values! {
    /// What is shared.
    pub struct ShareType(u8) {
        DISK = 0x01,
        PIPE = 0x02,
        PRINT = 0x03,
    }
}

bit_flags! {
    /// How a share wants to be used (MS-SMB2 2.2.10). The caching mode is a number in two bits, see [`CachingMode`].
    pub struct ShareFlags(u32) {
        DFS = 0x0000_0001,
        DFS_ROOT = 0x0000_0002,
        RESTRICT_EXCLUSIVE_OPENS = 0x0000_0100,
        FORCE_SHARED_DELETE = 0x0000_0200,
        ALLOW_NAMESPACE_CACHING = 0x0000_0400,
        ACCESS_BASED_DIRECTORY_ENUM = 0x0000_0800,
        FORCE_LEVELII_OPLOCK = 0x0000_1000,
        ENABLE_HASH_V1 = 0x0000_2000,
        ENABLE_HASH_V2 = 0x0000_4000,
        ENCRYPT_DATA = 0x0000_8000,
        IDENTITY_REMOTING = 0x0004_0000,
        COMPRESS_DATA = 0x0010_0000,
        ISOLATED_TRANSPORT = 0x0020_0000,
    }
}

/// Offline caching that a share allows; bits of [`ShareFlags`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CachingMode {
    /// Clients cache what users choose.
    #[default]
    Manual,
    /// Clients cache what users open.
    Auto,
    /// The same as `Auto`, and programs run from the cache.
    Vdo,
    /// No caching.
    None,
}

impl CachingMode {
    /// The policy as bits of the flags.
    #[must_use]
    pub fn flags(self) -> ShareFlags {
        ShareFlags(match self {
            Self::Manual => 0x00,
            Self::Auto => 0x10,
            Self::Vdo => 0x20,
            Self::None => 0x30,
        })
    }
}

bit_flags! {
    /// What a share can do (MS-SMB2 2.2.10).
    pub struct ShareCapabilities(u32) {
        DFS = 0x0000_0008,
        CONTINUOUS_AVAILABILITY = 0x0000_0010,
        SCALEOUT = 0x0000_0020,
        CLUSTER = 0x0000_0040,
        ASYMMETRIC = 0x0000_0080,
        REDIRECT_TO_OWNER = 0x0000_0100,
    }
}

named_values! {
    /// Kind of a tree connect context (MS-SMB2 2.2.9.2).
    pub struct TreeContextType(u16) {
        /// An identity that acts at the server, from a trusted client (2.2.9.2.1).
        REMOTED_IDENTITY = 0x0001,
    }
}

/// Bytes of a request before its buffer.
const REQUEST_FIXED: usize = 8;
/// Bytes of the extension before the path.
const EXTENSION_FIXED: usize = 16;
/// Most contexts that are looked at; one kind is defined.
const MAX_CONTEXTS: u16 = 16;

/// A TREE_CONNECT request (MS-SMB2 2.2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeConnectRequest<'a> {
    /// Flags; without a meaning before 3.1.1, where some clients leave rubbish.
    pub flags: TreeConnectFlags,
    /// `\\server\share`.
    pub path: Utf16<'a>,
    /// Contexts of the extension.
    pub contexts: TreeContexts<'a>,
}

impl<'a> TreeConnectRequest<'a> {
    /// Decodes it from a whole message. Only with `extended` (dialect 3.1.1) may there be an extension.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(message: &'a [u8], extended: bool) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        StructureSize::<9>::take(&mut r)?;
        let flags = TreeConnectFlags::take(&mut r)?;
        let (offset, len) = (usize::from(r.u16()?), usize::from(r.u16()?));
        let mut least = HEADER_BYTES + REQUEST_FIXED;
        let mut contexts = TreeContexts::default();
        if extended && flags.contains(TreeConnectFlags::EXTENSION_PRESENT) {
            // "From the start of the TREE_CONNECT request" (2.2.9.1) is taken by its word: from the body.
            let at = (r.u32()? as usize).saturating_add(HEADER_BYTES);
            let count = r.u16()?;
            let _: Reserved<10> = Reserved::take(&mut r)?;
            least += EXTENSION_FIXED;
            contexts = TreeContexts::decode(message, at, count, least)?;
        }
        let path = Utf16::new(part(message, offset, len, least, "path")?)?;
        Ok(Self { flags, path, contexts })
    }

    /// Appends the body, with an extension where the flags say so.
    pub fn encode(&self, out: &mut Out<'_>) {
        out.put(&StructureSize::<9>);
        out.put(&self.flags);
        let extended = self.flags.contains(TreeConnectFlags::EXTENSION_PRESENT);
        out.len16(HEADER_BYTES + REQUEST_FIXED + if extended { EXTENSION_FIXED } else { 0 });
        out.len16(self.path.bytes().len());
        let offset_at = out.position();
        if extended {
            out.u32(0);
            out.u16(self.contexts.count);
            out.put(&Reserved::<10>);
        }
        out.raw(self.path.bytes());
        if extended && self.contexts.count > 0 {
            out.align(8);
            out.set_len32(offset_at, out.position() - HEADER_BYTES);
            out.raw(self.contexts.bytes);
        }
        out.pad_to(HEADER_BYTES + REQUEST_FIXED + 1);
    }
}

/// Contexts of the extension, borrowed as on the wire and checked (MS-SMB2 2.2.9.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeContexts<'a> {
    count: u16,
    bytes: &'a [u8],
}

impl<'a> TreeContexts<'a> {
    fn decode(message: &'a [u8], offset: usize, count: u16, least: usize) -> Result<Self, DecodeError> {
        if count == 0 {
            return Ok(Self::default());
        }
        if count > MAX_CONTEXTS || offset < least {
            return Err(DecodeError::Invalid("tree connect contexts"));
        }
        let bytes = message.get(offset..).ok_or(DecodeError::Truncated)?;
        let mut end = 0;
        for _ in 0..count {
            end = tree_context(bytes, usize::next_multiple_of(end, 8))?.1;
        }
        Ok(Self { count, bytes: bytes.get(..end).ok_or(DecodeError::Truncated)? })
    }

    /// The contexts: their kinds and data.
    pub fn iter(&self) -> impl Iterator<Item = (TreeContextType, &'a [u8])> + use<'a> {
        let (count, bytes) = (self.count, self.bytes);
        let mut at = 0;
        (0..count).map_while(move |_| {
            let (context, end) = tree_context(bytes, usize::next_multiple_of(at, 8)).ok()?;
            at = end;
            Some(context)
        })
    }
}

fn tree_context(bytes: &[u8], at: usize) -> Result<((TreeContextType, &[u8]), usize), DecodeError> {
    let mut r = Reader::new(bytes.get(at..).ok_or(DecodeError::Truncated)?);
    let kind = TreeContextType::take(&mut r)?;
    let len = usize::from(r.u16()?);
    r.u32()?;
    Ok(((kind, r.raw(len)?), at + 8 + len))
}

wire_struct! {
    /// A TREE_CONNECT response (MS-SMB2 2.2.10).
    pub struct TreeConnectResponse [16] {
        _: StructureSize<16>,
        /// What is shared.
        share_type: ShareType,
        _: Reserved<1>,
        /// How it wants to be used.
        share_flags: ShareFlags,
        /// What it can do.
        capabilities: ShareCapabilities,
        /// What the user may do at most, by the share's permissions.
        maximal_access: AccessMask,
    }
}

impl TreeConnectResponse {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn from_message(message: &[u8]) -> Result<Self, DecodeError> {
        Self::take(&mut body(message)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_is_read_only_where_it_may_be() {
        let path = crate::utf16::utf16("\\\\s\\share");
        let context = [1, 0, 3, 0, 0, 0, 0, 0, 7, 8, 9];
        let request = TreeConnectRequest {
            flags: TreeConnectFlags::EXTENSION_PRESENT,
            path: Utf16::new(&path).unwrap(),
            contexts: TreeContexts { count: 1, bytes: &context },
        };
        let mut message = vec![0; HEADER_BYTES];
        request.encode(&mut Out::at(&mut message, 0));
        let back = TreeConnectRequest::decode(&message, true).unwrap();
        assert_eq!(back, request);
        assert_eq!(
            back.contexts.iter().collect::<Vec<_>>(),
            [(TreeContextType::REMOTED_IDENTITY, &[7, 8, 9][..])]
        );
        let plain = TreeConnectRequest::decode(&message, false).unwrap();
        assert_eq!(plain.path.bytes(), path);
        assert_eq!(plain.contexts.iter().count(), 0);
    }
}
