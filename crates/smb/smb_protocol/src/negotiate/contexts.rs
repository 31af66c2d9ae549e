//! Negotiate contexts of 3.1.1 (MS-SMB2 2.2.3.1, 2.2.4.1).

use crate::utf16::{Utf16, take_name};
use crate::wire::{DecodeError, Out, Reader, Wire, part};

named_values! {
    /// Kind of a context.
    pub struct ContextType(u16) {
        PREAUTH_INTEGRITY = 0x0001,
        ENCRYPTION = 0x0002,
        COMPRESSION = 0x0003,
        NETNAME = 0x0005,
        TRANSPORT = 0x0006,
        RDMA_TRANSFORM = 0x0007,
        SIGNING = 0x0008,
        /// The POSIX extensions of Samba and the Linux kernel.
        POSIX_EXTENSIONS = 0x0100,
    }
}

named_values! {
    /// Hash of the pre-authentication integrity value (MS-SMB2 2.2.3.1.1).
    pub struct HashAlgorithm(u16) {
        SHA_512 = 0x0001,
    }
}

named_values! {
    /// Cipher of the transform (MS-SMB2 2.2.3.1.2).
    pub struct Cipher(u16) {
        AES_128_CCM = 0x0001,
        AES_128_GCM = 0x0002,
        AES_256_CCM = 0x0003,
        AES_256_GCM = 0x0004,
    }
}

named_values! {
    /// Signing algorithm (MS-SMB2 2.2.3.1.7).
    pub struct SigningAlgorithm(u16) {
        HMAC_SHA256 = 0x0000,
        AES_CMAC = 0x0001,
        AES_GMAC = 0x0002,
    }
}

/// Bytes of a context before its data.
const CONTEXT_HEAD: usize = 8;
/// Most contexts that are looked at: there are eight kinds, and a list of 65535 empty ones would only cost time.
pub const MAX_CONTEXTS: u16 = 64;

/// Numbers of two bytes, borrowed from a message.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct U16List<'a>(&'a [u8]);

impl<'a> U16List<'a> {
    /// The numbers in these little-endian bytes; an odd byte at the end is not seen.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes.get(..bytes.len() & !1).unwrap_or_default())
    }

    /// How many there are.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.len() / 2
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The numbers.
    pub fn iter(self) -> impl Iterator<Item = u16> + 'a {
        self.0.as_chunks::<2>().0.iter().map(|pair| u16::from_le_bytes(*pair))
    }

    /// Whether `value` is among them.
    #[must_use]
    pub fn contains(self, value: u16) -> bool {
        self.iter().any(|each| each == value)
    }

    /// The identifiers as they are on the wire.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

impl std::fmt::Debug for U16List<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// One context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NegotiateContext<'a> {
    /// Hash functions and a salt (2.2.3.1.1).
    Preauth {
        /// [`HashAlgorithm`]s.
        algorithms: U16List<'a>,
        /// Makes each negotiation's hash another.
        salt: &'a [u8],
    },
    /// [`Cipher`]s, best first (2.2.3.1.2).
    Encryption(U16List<'a>),
    /// Compression (2.2.3.1.3).
    Compression {
        /// 1: chained payloads.
        flags: u32,
        /// Algorithms.
        algorithms: U16List<'a>,
    },
    /// The name by which the client reached the server (2.2.3.1.4).
    NetName(Utf16<'a>),
    /// Flags of the transport (2.2.3.1.5); 1: its own security replaces SMB's.
    Transport(u32),
    /// RDMA transforms (2.2.3.1.6).
    RdmaTransforms(U16List<'a>),
    /// [`SigningAlgorithm`]s, best first (2.2.3.1.7).
    Signing(U16List<'a>),
    /// Something else, to be ignored.
    Other(ContextType, &'a [u8]),
}

impl<'a> NegotiateContext<'a> {
    fn decode(kind: ContextType, data: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(data);
        let list = |r: &mut Reader<'a>, count: u16| {
            if count == 0 {
                return Err(DecodeError::Invalid("negotiate context"));
            }
            r.raw(usize::from(count) * 2).map(U16List)
        };
        Ok(match kind {
            ContextType::PREAUTH_INTEGRITY => {
                let count = r.u16()?;
                let salt_len = usize::from(r.u16()?);
                Self::Preauth { algorithms: list(&mut r, count)?, salt: r.raw(salt_len)? }
            }
            ContextType::ENCRYPTION => {
                let count = r.u16()?;
                Self::Encryption(list(&mut r, count)?)
            }
            ContextType::COMPRESSION => {
                let count = r.u16()?;
                r.u16()?;
                let flags = r.u32()?;
                Self::Compression { flags, algorithms: list(&mut r, count)? }
            }
            ContextType::NETNAME => Self::NetName(take_name(&mut r, data.len())?),
            ContextType::TRANSPORT => Self::Transport(r.u32()?),
            ContextType::RDMA_TRANSFORM => {
                let count = r.u16()?;
                r.raw(6)?;
                Self::RdmaTransforms(list(&mut r, count)?)
            }
            ContextType::SIGNING => {
                let count = r.u16()?;
                Self::Signing(list(&mut r, count)?)
            }
            other => Self::Other(other, data),
        })
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ContextType {
        match self {
            Self::Preauth { .. } => ContextType::PREAUTH_INTEGRITY,
            Self::Encryption(_) => ContextType::ENCRYPTION,
            Self::Compression { .. } => ContextType::COMPRESSION,
            Self::NetName(_) => ContextType::NETNAME,
            Self::Transport(_) => ContextType::TRANSPORT,
            Self::RdmaTransforms(_) => ContextType::RDMA_TRANSFORM,
            Self::Signing(_) => ContextType::SIGNING,
            Self::Other(kind, _) => *kind,
        }
    }

    fn put_data(&self, out: &mut Out<'_>) {
        match self {
            Self::Preauth { algorithms, salt } => {
                out.len16(algorithms.len());
                out.len16(salt.len());
                out.raw(algorithms.0);
                out.raw(salt);
            }
            Self::Encryption(list) | Self::Signing(list) => {
                out.len16(list.len());
                out.raw(list.0);
            }
            Self::Compression { flags, algorithms } => {
                out.len16(algorithms.len());
                out.u16(0);
                out.u32(*flags);
                out.raw(algorithms.0);
            }
            Self::NetName(name) => out.raw(name.bytes()),
            Self::Transport(flags) => out.u32(*flags),
            Self::RdmaTransforms(list) => {
                out.len16(list.len());
                out.raw(&[0; 6]);
                out.raw(list.0);
            }
            Self::Other(_, data) => out.raw(data),
        }
    }
}

/// A list of contexts, borrowed as on the wire and checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NegotiateContexts<'a> {
    count: u16,
    bytes: &'a [u8],
}

impl<'a> NegotiateContexts<'a> {
    /// The list at `offset` of a message, behind `least`.
    pub(crate) fn decode(
        message: &'a [u8],
        offset: usize,
        count: u16,
        least: usize,
    ) -> Result<Self, DecodeError> {
        if count == 0 {
            return Ok(Self::default());
        }
        if count > MAX_CONTEXTS || !offset.is_multiple_of(8) {
            return Err(DecodeError::Invalid("negotiate contexts"));
        }
        let len = message.len().saturating_sub(offset);
        if len == 0 {
            return Err(DecodeError::Truncated);
        }
        Self::of(count, part(message, offset, len, least, "negotiate contexts")?)
    }

    /// `count` contexts at the beginning of `bytes`.
    ///
    /// # Errors
    /// When one of them is not whole or not what its kind says.
    pub fn of(count: u16, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut at = 0;
        for _ in 0..count {
            at = usize::next_multiple_of(at, 8);
            at = next(bytes, at)?.1;
        }
        Ok(Self { count, bytes: bytes.get(..at).ok_or(DecodeError::Truncated)? })
    }

    /// How many contexts there are.
    #[must_use]
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The contexts.
    pub fn iter(&self) -> impl Iterator<Item = NegotiateContext<'a>> + use<'a> {
        let (count, bytes) = (self.count, self.bytes);
        let mut at = 0;
        (0..count).map_while(move |_| {
            at = usize::next_multiple_of(at, 8);
            let (context, end) = next(bytes, at).ok()?;
            at = end;
            Some(context)
        })
    }

    /// Appends the list, 8-aligned, and writes where it begins to `offset_at`.
    pub(crate) fn encode(&self, out: &mut Out<'_>, offset_at: usize) {
        if self.count > 0 {
            out.align(8);
            out.set_len32(offset_at, out.position());
            out.raw(self.bytes);
        }
    }
}

fn next(bytes: &[u8], at: usize) -> Result<(NegotiateContext<'_>, usize), DecodeError> {
    let mut r = Reader::new(bytes.get(at..).ok_or(DecodeError::Truncated)?);
    let kind = ContextType::take(&mut r)?;
    let len = usize::from(r.u16()?);
    r.u32()?;
    let context = NegotiateContext::decode(kind, r.raw(len)?)?;
    Ok((context, at + CONTEXT_HEAD + len))
}

/// The contexts as a list that a request or response can carry: their number, and their bytes for
/// [`NegotiateContexts::of`].
#[must_use]
pub fn list(contexts: &[NegotiateContext<'_>]) -> (u16, Vec<u8>) {
    let mut bytes = Vec::new();
    let mut out = Out::new(&mut bytes);
    let mut count = 0;
    for context in contexts.iter().take(usize::from(MAX_CONTEXTS)) {
        out.align(8);
        out.put(&context.kind());
        let len_at = out.position();
        out.u16(0);
        out.u32(0);
        let start = out.position();
        context.put_data(&mut out);
        out.set_len16(len_at, out.position() - start);
        count += 1;
    }
    (count, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_there_and_back() {
        let name = crate::utf16::utf16("server");
        let all = [
            NegotiateContext::Preauth { algorithms: U16List::new(&[1, 0]), salt: &[7; 32] },
            NegotiateContext::Encryption(U16List::new(&[2, 0, 1, 0, 4, 0])),
            NegotiateContext::Compression { flags: 1, algorithms: U16List::new(&[1, 0]) },
            NegotiateContext::NetName(Utf16::new(&name).unwrap()),
            NegotiateContext::Transport(1),
            NegotiateContext::RdmaTransforms(U16List::new(&[1, 0, 2, 0])),
            NegotiateContext::Signing(U16List::new(&[2, 0, 1, 0, 0, 0])),
            NegotiateContext::Other(ContextType::POSIX_EXTENSIONS, &[9; 16]),
        ];
        let (count, bytes) = list(&all);
        let back = NegotiateContexts::of(count, &bytes).unwrap();
        assert_eq!(back.iter().collect::<Vec<_>>(), all);
        for cut in 0..bytes.len() {
            assert!(NegotiateContexts::of(count, &bytes[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn lists_without_an_entry_are_refused() {
        for kind in [1_u8, 2, 3, 7, 8] {
            let bytes = [kind, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            assert!(NegotiateContexts::of(1, &bytes).is_err(), "{kind}");
        }
    }
}
