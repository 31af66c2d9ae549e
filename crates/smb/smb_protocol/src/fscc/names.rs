//! Information about a file that has names in it (MS-FSCC 2.4): name, all, streams, links, rename.

use crate::fscc::entries::{EntryWriter, entries};
use crate::fscc::file::AllInformation;
use crate::utf16::{Utf16, put_utf16, take_name};
use crate::wire::{DecodeError, Reader, Wire};

/// FileNameInformation, FileAlternateNameInformation, FileNormalizedNameInformation, FileShortNameInformation (2.4.5,
/// 2.4.32, 2.4.36, 2.4.46): a name after its length.
pub fn put_name(name: &str, out: &mut Vec<u8>) {
    ((name.encode_utf16().count() * 2) as u32).put(out);
    put_utf16(name, out);
}

/// The name of such an information.
///
/// # Errors
/// When it is not whole.
pub fn name(bytes: &[u8]) -> Result<Utf16<'_>, DecodeError> {
    let mut r = Reader::new(bytes);
    let len = r.u32()? as usize;
    take_name(&mut r, len)
}

/// FileAllInformation (2.4.2).
pub fn put_all(info: &AllInformation, name: &str, out: &mut Vec<u8>) {
    info.put(out);
    put_name(name, out);
}

/// FileAllInformation with its name.
///
/// # Errors
/// When it is not whole.
pub fn all(bytes: &[u8]) -> Result<(AllInformation, Utf16<'_>), DecodeError> {
    let info = AllInformation::decode(bytes)?;
    Ok((info, name(bytes.get(AllInformation::SIZE..).unwrap_or_default())?))
}

/// A stream of a file (2.4.50): `::$DATA`, `:name:$DATA`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream<'a> {
    /// Bytes that it has.
    pub size: u64,
    /// Bytes that it takes.
    pub allocation_size: u64,
    /// Its name with colons and type.
    pub name: Utf16<'a>,
}

/// A list for FileStreamInformation.
pub fn stream_writer(out: &mut Vec<u8>, limit: usize) -> EntryWriter<'_> {
    EntryWriter::new(out, limit, 8)
}

/// Appends a stream; says whether it fitted.
pub fn push_stream(list: &mut EntryWriter<'_>, name: &str, size: u64, allocation_size: u64) -> bool {
    list.push(|out| {
        ((name.encode_utf16().count() * 2) as u32).put(out);
        size.put(out);
        allocation_size.put(out);
        put_utf16(name, out);
    })
}

/// The streams in FileStreamInformation.
pub fn streams(bytes: &[u8]) -> impl Iterator<Item = Result<Stream<'_>, DecodeError>> {
    entries(bytes).map(|entry| {
        let mut r = Reader::new(entry?);
        r.u32()?;
        let len = r.u32()? as usize;
        Ok(Stream { size: r.u64()?, allocation_size: r.u64()?, name: take_name(&mut r, len)? })
    })
}

bit_flags! {
    /// Flags of FileRenameInformationEx and FileLinkInformationEx.
    pub struct RenameFlags(u32) {
        REPLACE_IF_EXISTS = 0x0000_0001,
        POSIX_SEMANTICS = 0x0000_0002,
        SUPPRESS_PIN_STATE_INHERITANCE = 0x0000_0004,
        SUPPRESS_STORAGE_RESERVE_INHERITANCE = 0x0000_0008,
        NO_INCREASE_AVAILABLE_SPACE = 0x0000_0010,
        NO_DECREASE_AVAILABLE_SPACE = 0x0000_0020,
        IGNORE_READONLY_ATTRIBUTE = 0x0000_0040,
    }
}

/// FileRenameInformation and FileLinkInformation for SMB 2, with and without Ex (2.4.28.2, 2.4.42.2, 2.4.43).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenameInformation<'a> {
    /// Flags; without Ex only REPLACE_IF_EXISTS.
    pub flags: RenameFlags,
    /// Must be 0 over SMB.
    pub root_directory: u64,
    /// The new path in the share, or `:name` for a stream.
    pub name: Utf16<'a>,
}

impl<'a> RenameInformation<'a> {
    /// Decodes it from the buffer of SET_INFO; `ex` for the classes with Ex.
    ///
    /// # Errors
    /// When it is not whole.
    pub fn decode(bytes: &'a [u8], ex: bool) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let flags = if ex { RenameFlags(r.u32()?) } else { RenameFlags(u32::from(r.u8()? != 0)) };
        r.raw(if ex { 4 } else { 7 })?;
        let root_directory = r.u64()?;
        let len = r.u32()? as usize;
        Ok(Self { flags, root_directory, name: take_name(&mut r, len)? })
    }

    /// The buffer of SET_INFO.
    #[must_use]
    pub fn encode(&self, ex: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(20 + self.name.bytes().len());
        if ex {
            self.flags.put(&mut out);
        } else {
            u32::from(self.flags.contains(RenameFlags::REPLACE_IF_EXISTS)).put(&mut out);
        }
        0_u32.put(&mut out);
        self.root_directory.put(&mut out);
        (self.name.bytes().len() as u32).put(&mut out);
        out.extend_from_slice(self.name.bytes());
        // Servers want at least 24 bytes (2.4.42.2).
        out.resize(out.len().max(24), 0);
        out
    }
}

/// A name of a file with several: an entry of FileHardLinkInformation (2.4.22).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardLink<'a> {
    /// The number of the directory that it is in.
    pub parent: u64,
    /// The name there.
    pub name: Utf16<'a>,
}

/// FileHardLinkInformation (2.4.21): as many names, each with its directory's number, as fit into `limit` bytes. Says
/// whether all did.
pub fn put_hard_links(links: &[(u64, &str)], limit: usize, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let needed = links
        .iter()
        .fold(8_usize, |sum, (_, name)| sum.next_multiple_of(8) + 16 + name.encode_utf16().count() * 2);
    (needed as u32).put(out);
    0_u32.put(out);
    let mut written = 0_u32;
    let mut list = EntryWriter::new(out, limit.saturating_sub(8), 8);
    for (parent, name) in links {
        let fits = list.push(|out| {
            parent.put(out);
            (name.encode_utf16().count() as u32).put(out);
            put_utf16(name, out);
        });
        if !fits {
            break;
        }
        written += 1;
    }
    if let Some(field) = out.get_mut(start + 4..start + 8) {
        field.copy_from_slice(&written.to_le_bytes());
    }
    written as usize == links.len()
}

/// The names in FileHardLinkInformation.
pub fn hard_links(bytes: &[u8]) -> impl Iterator<Item = Result<HardLink<'_>, DecodeError>> {
    entries(bytes.get(8..).unwrap_or_default()).map(|entry| {
        let mut r = Reader::new(entry?);
        r.u32()?;
        let parent = r.u64()?;
        let units = r.u32()? as usize;
        Ok(HardLink { parent, name: take_name(&mut r, units.saturating_mul(2))? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::utf16::utf16;

    #[test]
    fn names_and_all() {
        let mut out = Vec::new();
        put_all(&AllInformation::default(), "\\x\\y", &mut out);
        assert_eq!(out.len(), 100 + 8);
        assert_eq!(all(&out).unwrap().1.to_string().unwrap(), "\\x\\y");
        for cut in 0..out.len() {
            assert!(all(&out[..cut]).is_err());
        }
    }

    #[test]
    fn streams_there_and_back() {
        let mut out = Vec::new();
        let mut list = stream_writer(&mut out, 200);
        assert!(push_stream(&mut list, "::$DATA", 5, 65536));
        assert!(push_stream(&mut list, ":b:$DATA", 6, 65536));
        let found: Vec<_> = streams(&out).map(Result::unwrap).collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[1].size, found[1].name.to_string().unwrap().as_str()), (6, ":b:$DATA"));
    }

    #[test]
    fn renames_there_and_back() {
        let name = utf16("dir\\new");
        for ex in [false, true] {
            let info = RenameInformation {
                flags: RenameFlags::REPLACE_IF_EXISTS,
                root_directory: 0,
                name: Utf16::new(&name).unwrap(),
            };
            let bytes = info.encode(ex);
            assert_eq!(RenameInformation::decode(&bytes, ex), Ok(info));
            for cut in 0..bytes.len() {
                assert!(RenameInformation::decode(&bytes[..cut], ex).is_err());
            }
        }
    }

    #[test]
    fn links_there_and_back() {
        let mut out = Vec::new();
        assert!(put_hard_links(&[(5, "a"), (6, "second")], 200, &mut out));
        assert_eq!(out[0] as usize, out.len());
        let found: Vec<_> = hard_links(&out).map(Result::unwrap).collect();
        assert_eq!((found[1].parent, found[1].name.to_string().unwrap().as_str()), (6, "second"));
        let mut short = Vec::new();
        assert!(!put_hard_links(&[(5, "a"), (6, "second")], 30, &mut short));
        assert_eq!((hard_links(&short).count(), short[0]), (1, out[0]));
    }
}
