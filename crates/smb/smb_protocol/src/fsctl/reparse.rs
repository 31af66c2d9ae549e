//! Reparse points, as far as symbolic links and mount points (MS-FSCC 2.1.2).

use crate::utf16::Utf16;
use crate::wire::{DecodeError, Out, Reader, Wire, part};

named_values! {
    /// What kind of data a reparse point has (MS-FSCC 2.1.2.1).
    pub struct ReparseTag(u32) {
        NONE = 0x0000_0000,
        MOUNT_POINT = 0xa000_0003,
        SYMLINK = 0xa000_000c,
        DEDUP = 0x8000_0013,
        NFS = 0x8000_0014,
        LX_SYMLINK = 0xa000_001d,
        AF_UNIX = 0x8000_0023,
        LX_FIFO = 0x8000_0024,
        LX_CHR = 0x8000_0025,
        LX_BLK = 0x8000_0026,
    }
}

/// The most bytes that a reparse point may have (MS-FSCC 2.1.2.2).
pub const MAX_REPARSE_BYTES: usize = 16 * 1024;

/// A reparse point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reparse<'a> {
    /// A symbolic link (2.1.2.4).
    Symlink {
        /// The target.
        substitute: Utf16<'a>,
        /// The target as people write it.
        print: Utf16<'a>,
        /// Whether the target is relative to the link's folder.
        relative: bool,
    },
    /// A mount point, also called junction (2.1.2.5).
    MountPoint {
        /// The target.
        substitute: Utf16<'a>,
        /// The target as people write it.
        print: Utf16<'a>,
    },
    /// Somebody else's.
    Other(ReparseTag, &'a [u8]),
}

impl<'a> Reparse<'a> {
    /// Decodes it from the buffer of SET_REPARSE_POINT and GET_REPARSE_POINT.
    ///
    /// # Errors
    /// When it is not what the specification says, in particular when its length is not the one announced.
    pub fn decode(buffer: &'a [u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(buffer);
        let tag = ReparseTag::take(&mut r)?;
        let len = usize::from(r.u16()?);
        r.u16()?;
        if len != r.remaining() || buffer.len() > MAX_REPARSE_BYTES {
            return Err(DecodeError::Invalid("reparse data length"));
        }
        let data = r.raw(len)?;
        if tag != ReparseTag::SYMLINK && tag != ReparseTag::MOUNT_POINT {
            return Ok(Self::Other(tag, data));
        }
        let mut r = Reader::new(data);
        let (sub_at, sub_len) = (usize::from(r.u16()?), usize::from(r.u16()?));
        let (print_at, print_len) = (usize::from(r.u16()?), usize::from(r.u16()?));
        let flags = if tag == ReparseTag::SYMLINK { r.u32()? } else { 0 };
        let path = r.raw(r.remaining())?;
        let substitute = Utf16::new(part(path, sub_at, sub_len, 0, "substitute name")?)?;
        let print = Utf16::new(part(path, print_at, print_len, 0, "print name")?)?;
        Ok(match tag {
            ReparseTag::SYMLINK => Self::Symlink { substitute, print, relative: flags & 1 != 0 },
            _ => Self::MountPoint { substitute, print },
        })
    }

    /// Its tag.
    #[must_use]
    pub fn tag(&self) -> ReparseTag {
        match self {
            Self::Symlink { .. } => ReparseTag::SYMLINK,
            Self::MountPoint { .. } => ReparseTag::MOUNT_POINT,
            Self::Other(tag, _) => *tag,
        }
    }

    /// The buffer. A path too long for its length field makes it empty: nobody has such a path.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut out = Out::new(&mut bytes);
        out.put(&self.tag());
        out.u32(0);
        match self {
            Self::Other(_, data) => out.raw(data),
            Self::Symlink { substitute, print, .. } | Self::MountPoint { substitute, print } => {
                let (sub, print) = (substitute.bytes(), print.bytes());
                out.u16(0);
                out.len16(sub.len());
                out.len16(sub.len());
                out.len16(print.len());
                if let Self::Symlink { relative, .. } = self {
                    out.u32(u32::from(*relative));
                }
                out.raw(sub);
                out.raw(print);
            }
        }
        out.set_len16(4, out.position() - 8);
        if out.check().is_err() {
            bytes.clear();
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::utf16::utf16;

    #[test]
    fn links_there_and_back() {
        let (sub, print) = (utf16("\\??\\C:\\x"), utf16("C:\\x"));
        let (substitute, print) = (Utf16::new(&sub).unwrap(), Utf16::new(&print).unwrap());
        for point in [
            Reparse::Symlink { substitute, print, relative: true },
            Reparse::MountPoint { substitute, print },
            Reparse::Other(ReparseTag::NFS, &[1, 2, 3]),
        ] {
            let bytes = point.encode();
            assert_eq!(Reparse::decode(&bytes), Ok(point));
            for cut in 0..bytes.len() {
                assert!(Reparse::decode(&bytes[..cut]).is_err());
            }
        }
    }
}
