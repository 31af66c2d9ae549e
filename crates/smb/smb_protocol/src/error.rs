//! Error responses and what they carry (MS-SMB2 2.2.2).

use crate::command::Dialect;
use crate::header::{HEADER_BYTES, body};
use crate::utf16::Utf16;
use crate::wire::{DecodeError, Out, Reader, Reserved, StructureSize, Wire, part};

named_values! {
    /// What an error context is about (3.1.1).
    pub struct ErrorId(u32) {
        DEFAULT = 0x0000_0000,
        SHARE_REDIRECT = 0x7264_5253,
    }
}

/// Bytes of a response before its data.
const FIXED: usize = 8;
/// Most contexts that are looked at.
const MAX_CONTEXTS: u8 = 16;

/// An error response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorResponse<'a> {
    /// How many contexts the data are made of; 0 means that they are bare, as all are before 3.1.1.
    pub context_count: u8,
    /// Data.
    pub data: &'a [u8],
}

impl<'a> ErrorResponse<'a> {
    /// Decodes it from a whole message.
    ///
    /// # Errors
    /// When it is not what the specification says.
    pub fn decode(message: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = body(message)?;
        StructureSize::<9>::take(&mut r)?;
        let context_count = r.u8()?;
        let _: Reserved<1> = Reserved::take(&mut r)?;
        let len = r.u32()? as usize;
        let data = part(message, HEADER_BYTES + FIXED, len, HEADER_BYTES + FIXED, "error data")?;
        Ok(Self { context_count, data })
    }

    /// Appends the body. An empty error still has one byte of data.
    pub fn encode(&self, out: &mut Out<'_>) {
        out.put(&StructureSize::<9>);
        out.u8(self.context_count);
        out.u8(0);
        out.len32(self.data.len());
        out.raw(self.data);
        out.pad_to(HEADER_BYTES + FIXED + 1);
    }

    /// The contexts; bare data count as one of [`ErrorId::DEFAULT`].
    pub fn contexts(&self) -> impl Iterator<Item = (ErrorId, &'a [u8])> + use<'a> {
        let bare =
            (self.context_count == 0 && !self.data.is_empty()).then_some((ErrorId::DEFAULT, self.data));
        let (count, data) = (self.context_count.min(MAX_CONTEXTS), self.data);
        let mut at = 0_usize;
        bare.into_iter().chain((0..count).map_while(move |_| {
            let (id, bytes) = error_context(data.get(at..)?).ok()?;
            at = (at + 8 + bytes.len()).next_multiple_of(8);
            Some((id, bytes))
        }))
    }
}

fn error_context(bytes: &[u8]) -> Result<(ErrorId, &[u8]), DecodeError> {
    let mut r = Reader::new(bytes);
    let len = r.u32()? as usize;
    let id = ErrorId::take(&mut r)?;
    Ok((id, r.raw(len)?))
}

/// Data for an error response: in a context with 3.1.1, bare before. Returns the number of contexts to say.
#[must_use]
pub fn error_data(dialect: Dialect, id: ErrorId, data: &[u8]) -> (u8, Vec<u8>) {
    if dialect != Dialect::SMB_3_1_1 {
        return (0, data.to_vec());
    }
    let mut bytes = Vec::with_capacity(8 + data.len());
    (data.len() as u32).put(&mut bytes);
    id.put(&mut bytes);
    bytes.extend_from_slice(data);
    (1, bytes)
}

/// The tag of symbolic link errors, "SYML" read backwards.
const SYMLINK_TAG: u32 = 0x4c4d_5953;
/// The reparse tag of symbolic links.
const REPARSE_SYMLINK: u32 = 0xa000_000c;

/// Where a path leads on when a symbolic link was met: data of STOPPED_ON_SYMLINK (2.2.2.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymlinkError<'a> {
    /// Bytes of the path behind the link, which the client appends to the target.
    pub unparsed_len: u16,
    /// The target.
    pub substitute: Utf16<'a>,
    /// The target as people write it.
    pub print: Utf16<'a>,
    /// Whether the target is relative to the link's folder.
    pub relative: bool,
}

impl<'a> SymlinkError<'a> {
    /// Decodes it from the data of an error.
    ///
    /// # Errors
    /// When they are not what the specification says.
    pub fn decode(data: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(data);
        let len = r.u32()? as usize;
        if r.u32()? != SYMLINK_TAG || r.u32()? != REPARSE_SYMLINK || len > data.len() {
            return Err(DecodeError::Invalid("symbolic link error"));
        }
        let _reparse_len = r.u16()?;
        let unparsed_len = r.u16()?;
        let (sub_at, sub_len) = (usize::from(r.u16()?), usize::from(r.u16()?));
        let (print_at, print_len) = (usize::from(r.u16()?), usize::from(r.u16()?));
        let relative = r.u32()? & 1 != 0;
        let path = r.raw(r.remaining())?;
        Ok(Self {
            unparsed_len,
            substitute: Utf16::new(part(path, sub_at, sub_len, 0, "substitute name")?)?,
            print: Utf16::new(part(path, print_at, print_len, 0, "print name")?)?,
            relative,
        })
    }

    /// The data.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (sub, print) = (self.substitute.bytes(), self.print.bytes());
        let mut bytes = Vec::with_capacity(28 + sub.len() + print.len());
        let mut out = Out::new(&mut bytes);
        out.len32(24 + sub.len() + print.len());
        out.u32(SYMLINK_TAG);
        out.u32(REPARSE_SYMLINK);
        out.len16(12 + sub.len() + print.len());
        out.u16(self.unparsed_len);
        out.u16(0);
        out.len16(sub.len());
        out.len16(sub.len());
        out.len16(print.len());
        out.u32(u32::from(self.relative));
        out.raw(sub);
        out.raw(print);
        bytes
    }
}

wire_struct! {
    /// An address in a share redirect (2.2.2.2.2.1).
    pub struct MoveAddress [24] {
        /// 1 for IPv4, whose address is the first four bytes; 2 for IPv6.
        kind: u32,
        _: Reserved<4>,
        /// The address.
        address: [u8; 16],
    }
}

/// Where a share is better reached: data of [`ErrorId::SHARE_REDIRECT`] (2.2.2.2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareRedirect<'a> {
    /// Addresses of the owner.
    pub addresses: Vec<MoveAddress>,
    /// The share.
    pub resource: Utf16<'a>,
}

/// Bytes of a redirect before its addresses.
const REDIRECT_FIXED: usize = 24;
/// Its only notification type.
const REDIRECT_TYPE: u32 = 3;

impl<'a> ShareRedirect<'a> {
    /// Decodes it from the data of an error context.
    ///
    /// # Errors
    /// When they are not what the specification says.
    pub fn decode(data: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(data);
        let size = r.u32()? as usize;
        let kind = r.u32()?;
        let (at, len) = (r.u32()? as usize, r.u32()? as usize);
        let _flags_and_target: Reserved<4> = Reserved::take(&mut r)?;
        let count = r.u32()? as usize;
        if size > data.len() || kind != REDIRECT_TYPE || count > r.remaining() / MoveAddress::SIZE {
            return Err(DecodeError::Invalid("share redirect"));
        }
        let addresses = (0..count).map(|_| MoveAddress::take(&mut r)).collect::<Result<_, _>>()?;
        let resource = Utf16::new(part(data, at, len, REDIRECT_FIXED, "resource name")?)?;
        Ok(Self { addresses, resource })
    }

    /// The data.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let name_at = REDIRECT_FIXED + self.addresses.len() * MoveAddress::SIZE;
        let name = self.resource.bytes();
        let mut bytes = Vec::with_capacity(name_at + name.len());
        let mut out = Out::new(&mut bytes);
        out.len32(name_at + name.len());
        out.u32(REDIRECT_TYPE);
        out.len32(name_at);
        out.len32(name.len());
        out.u32(0);
        out.len32(self.addresses.len());
        self.addresses.iter().for_each(|address| out.put(address));
        out.raw(name);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::utf16::utf16;

    #[test]
    fn an_empty_error_has_one_byte() {
        let mut message = vec![0; HEADER_BYTES];
        ErrorResponse::default().encode(&mut Out::at(&mut message, 0));
        assert_eq!(message.len(), HEADER_BYTES + 9);
        assert_eq!(ErrorResponse::decode(&message), Ok(ErrorResponse::default()));
    }

    #[test]
    fn a_redirect_in_its_context() {
        let name = utf16("vmstore");
        let address = MoveAddress { kind: 1, address: [10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] };
        let redirect = ShareRedirect { addresses: vec![address; 2], resource: Utf16::new(&name).unwrap() };
        let data = redirect.encode();
        assert_eq!(data[0] as usize, data.len());
        let (count, bytes) = error_data(Dialect::SMB_3_1_1, ErrorId::SHARE_REDIRECT, &data);
        assert_eq!(bytes[4..8], *b"SRdr");
        let response = ErrorResponse { context_count: count, data: &bytes };
        let (id, inner) = response.contexts().next().unwrap();
        assert_eq!(id, ErrorId::SHARE_REDIRECT);
        assert_eq!(ShareRedirect::decode(inner), Ok(redirect));
        for cut in 0..data.len() {
            assert!(ShareRedirect::decode(&data[..cut]).is_err());
        }
    }

    #[test]
    fn a_symlink_bare_and_in_its_context() {
        let (sub, print) = (utf16("..\\target"), utf16("target"));
        let link = SymlinkError {
            unparsed_len: 8,
            substitute: Utf16::new(&sub).unwrap(),
            print: Utf16::new(&print).unwrap(),
            relative: true,
        };
        let data = link.encode();
        for dialect in [Dialect::SMB_3_0, Dialect::SMB_3_1_1] {
            let (count, bytes) = error_data(dialect, ErrorId::DEFAULT, &data);
            let response = ErrorResponse { context_count: count, data: &bytes };
            let (id, inner) = response.contexts().next().unwrap();
            assert_eq!((id, SymlinkError::decode(inner)), (ErrorId::DEFAULT, Ok(link)));
        }
        for cut in 0..data.len() {
            assert!(SymlinkError::decode(&data[..cut]).is_err());
        }
    }
}
