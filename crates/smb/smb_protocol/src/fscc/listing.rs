//! Entries of directories in every form that clients ask for (MS-FSCC 2.4.10, 2.4.14, 2.4.8, 2.4.17 to 2.4.20, 2.4.33).
//!
//! All forms but one begin with the same 64 bytes; [`tail`] is the table of what follows before the name.

use crate::access::FileAttributes;
use crate::fscc::FileClass;
use crate::fscc::entries::{EntryWriter, entries};
use crate::time::FileTime;
use crate::utf16::{Utf16, put_utf16, take_name};
use crate::wire::{DecodeError, Reader, Wire};

/// Most units of a short name.
const SHORT_NAME_UNITS: usize = 12;

/// What is between the common part of an entry and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Bytes that the extended attributes take; in a reparse point, its tag.
    EaSize,
    /// Nothing.
    Pad(u8),
    /// Tag of the reparse point, or 0.
    ReparseTag,
    /// The 8.3 name.
    ShortName,
    /// The file's number, 8 bytes.
    Id64,
    /// The file's number, 16 bytes.
    Id128,
}

/// The table of forms; `None` for what is no class of directories.
fn tail(class: FileClass) -> Option<&'static [Part]> {
    use Part::{EaSize, Id64, Id128, Pad, ReparseTag, ShortName};
    Some(match class {
        FileClass::DIRECTORY | FileClass::NAMES => &[],
        FileClass::FULL_DIRECTORY => &[EaSize],
        FileClass::ID_FULL_DIRECTORY => &[EaSize, Pad(4), Id64],
        FileClass::BOTH_DIRECTORY => &[EaSize, ShortName],
        FileClass::ID_BOTH_DIRECTORY => &[EaSize, ShortName, Pad(2), Id64],
        FileClass::ID_EXTD_DIRECTORY => &[EaSize, ReparseTag, Id128],
        FileClass::ID_64_EXTD_DIRECTORY => &[EaSize, ReparseTag, Id64],
        FileClass::ID_64_EXTD_BOTH_DIRECTORY => &[EaSize, ReparseTag, Id64, ShortName],
        FileClass::ID_ALL_EXTD_DIRECTORY => &[EaSize, ReparseTag, Id64, Id128],
        FileClass::ID_ALL_EXTD_BOTH_DIRECTORY => &[EaSize, ReparseTag, Id64, Id128, ShortName],
        _ => return None,
    })
}

/// What an entry tells besides its names. A form that lacks a field leaves it out; decoded, it is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Where to go on behind this entry; 0 where that is not offered.
    pub file_index: u32,
    /// Created.
    pub creation_time: FileTime,
    /// Last read.
    pub last_access_time: FileTime,
    /// Last written.
    pub last_write_time: FileTime,
    /// Last changed in any way.
    pub change_time: FileTime,
    /// Bytes that it has.
    pub end_of_file: u64,
    /// Bytes that it takes.
    pub allocation_size: u64,
    /// Attributes.
    pub attributes: FileAttributes,
    /// Bytes that the extended attributes take.
    pub ea_size: u32,
    /// Tag of the reparse point, or 0. It stands in the field of `ea_size` in forms that have none of its own.
    pub reparse_tag: u32,
    /// The file's number on its volume; longer forms continue it with zeros.
    pub file_id: u64,
}

/// Whether entries can be asked for in this form.
#[must_use]
pub fn is_directory_class(class: FileClass) -> bool {
    tail(class).is_some()
}

/// Writes entries in one form.
#[derive(Debug)]
pub struct DirectoryWriter<'a> {
    class: FileClass,
    tail: &'static [Part],
    list: EntryWriter<'a>,
}

impl<'a> DirectoryWriter<'a> {
    /// A listing of at most `limit` bytes at the end of `out`; `None` for what is no class of directories.
    #[must_use]
    pub fn new(class: FileClass, out: &'a mut Vec<u8>, limit: usize) -> Option<Self> {
        Some(Self { class, tail: tail(class)?, list: EntryWriter::new(out, limit, 8) })
    }

    /// Appends an entry if it fits; says whether it did. Of a short name, 12 units are kept.
    pub fn push(&mut self, entry: &DirectoryEntry, name: &str, short_name: &str) -> bool {
        let (class, tail) = (self.class, self.tail);
        self.list.push(|out| {
            entry.file_index.put(out);
            if class != FileClass::NAMES {
                entry.creation_time.put(out);
                entry.last_access_time.put(out);
                entry.last_write_time.put(out);
                entry.change_time.put(out);
                entry.end_of_file.put(out);
                entry.allocation_size.put(out);
                entry.attributes.put(out);
            }
            ((name.encode_utf16().count() * 2) as u32).put(out);
            let own_tag = tail.contains(&Part::ReparseTag);
            for part in tail {
                match part {
                    Part::EaSize if !own_tag && entry.attributes.contains(FileAttributes::REPARSE_POINT) => {
                        entry.reparse_tag.put(out);
                    }
                    Part::EaSize => entry.ea_size.put(out),
                    Part::Pad(bytes) => out.resize(out.len() + usize::from(*bytes), 0),
                    Part::ReparseTag => entry.reparse_tag.put(out),
                    Part::ShortName => put_short(short_name, out),
                    Part::Id64 => entry.file_id.put(out),
                    Part::Id128 => {
                        entry.file_id.put(out);
                        0_u64.put(out);
                    }
                }
            }
            put_utf16(name, out);
        })
    }

    /// Whether no entry fitted yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

fn put_short(name: &str, out: &mut Vec<u8>) {
    let units = name.encode_utf16().take(SHORT_NAME_UNITS);
    out.push((units.clone().count() * 2) as u8);
    out.push(0);
    let end = out.len() + SHORT_NAME_UNITS * 2;
    units.for_each(|unit| unit.put(out));
    out.resize(end, 0);
}

/// An entry of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// What it tells.
    pub entry: DirectoryEntry,
    /// Its name.
    pub name: Utf16<'a>,
    /// Its 8.3 name; empty for none.
    pub short_name: Utf16<'a>,
}

/// The entries of a listing in a form; nothing for what is no class of directories.
pub fn listing(class: FileClass, bytes: &[u8]) -> impl Iterator<Item = Result<Listed<'_>, DecodeError>> {
    let tail = tail(class);
    entries(if tail.is_some() { bytes } else { &[] })
        .map(move |entry| listed(class, tail.unwrap_or_default(), entry?))
}

fn listed<'a>(class: FileClass, tail: &[Part], bytes: &'a [u8]) -> Result<Listed<'a>, DecodeError> {
    let mut r = Reader::new(bytes);
    r.u32()?;
    let mut entry = DirectoryEntry { file_index: r.u32()?, ..DirectoryEntry::default() };
    if class != FileClass::NAMES {
        entry.creation_time = FileTime(r.u64()?);
        entry.last_access_time = FileTime(r.u64()?);
        entry.last_write_time = FileTime(r.u64()?);
        entry.change_time = FileTime(r.u64()?);
        entry.end_of_file = r.u64()?;
        entry.allocation_size = r.u64()?;
        entry.attributes = FileAttributes(r.u32()?);
    }
    let len = r.u32()? as usize;
    let mut short_name = Utf16::default();
    let own_tag = tail.contains(&Part::ReparseTag);
    for part in tail {
        match part {
            Part::EaSize if !own_tag && entry.attributes.contains(FileAttributes::REPARSE_POINT) => {
                entry.reparse_tag = r.u32()?;
            }
            Part::EaSize => entry.ea_size = r.u32()?,
            Part::Pad(bytes) => {
                r.raw(usize::from(*bytes))?;
            }
            Part::ReparseTag => entry.reparse_tag = r.u32()?,
            Part::ShortName => {
                let len = usize::from(r.u8()?);
                r.u8()?;
                let place = r.raw(SHORT_NAME_UNITS * 2)?;
                short_name = Utf16::new(place.get(..len).ok_or(DecodeError::Invalid("short name"))?)?;
            }
            Part::Id64 => entry.file_id = r.u64()?,
            Part::Id128 => {
                entry.file_id = r.u64()?;
                r.u64()?;
            }
        }
    }
    Ok(Listed { entry, name: take_name(&mut r, len)?, short_name })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASSES: [(FileClass, usize); 11] = [
        (FileClass::DIRECTORY, 64),
        (FileClass::FULL_DIRECTORY, 68),
        (FileClass::ID_FULL_DIRECTORY, 80),
        (FileClass::BOTH_DIRECTORY, 94),
        (FileClass::ID_BOTH_DIRECTORY, 104),
        (FileClass::NAMES, 12),
        (FileClass::ID_EXTD_DIRECTORY, 88),
        (FileClass::ID_64_EXTD_DIRECTORY, 80),
        (FileClass::ID_64_EXTD_BOTH_DIRECTORY, 106),
        (FileClass::ID_ALL_EXTD_DIRECTORY, 96),
        (FileClass::ID_ALL_EXTD_BOTH_DIRECTORY, 122),
    ];

    fn entry() -> DirectoryEntry {
        DirectoryEntry {
            file_index: 1,
            creation_time: FileTime(2),
            last_access_time: FileTime(3),
            last_write_time: FileTime(4),
            change_time: FileTime(5),
            end_of_file: 6,
            allocation_size: 7,
            attributes: FileAttributes::ARCHIVE,
            ea_size: 8,
            reparse_tag: 0,
            file_id: 9,
        }
    }

    #[test]
    fn every_form_has_the_size_of_the_specification_and_comes_back() {
        for (class, size) in CLASSES {
            let mut out = Vec::new();
            let mut writer = DirectoryWriter::new(class, &mut out, 4096).unwrap();
            assert!(writer.push(&entry(), "Grüße.txt", "GRE~1.TXT"));
            assert!(writer.push(&entry(), "b", ""));
            let second = (size + 18_usize).next_multiple_of(8);
            assert_eq!(out.len(), second + size + 2, "{class:?}");
            let found: Vec<_> = listing(class, &out).map(Result::unwrap).collect();
            assert_eq!(found[0].name.to_string().unwrap(), "Grüße.txt");
            assert_eq!(found[1].name.to_string().unwrap(), "b");
            if matches!(class, FileClass::ID_BOTH_DIRECTORY | FileClass::ID_ALL_EXTD_BOTH_DIRECTORY) {
                assert_eq!(found[0].entry, entry());
                assert_eq!(found[0].short_name.to_string().unwrap(), "GRE~1.TXT");
            }
            for cut in 1..out.len() {
                assert!(listing(class, &out[..cut]).any(|entry| entry.is_err()), "{class:?} {cut}");
            }
        }
        assert!(DirectoryWriter::new(FileClass::BASIC, &mut Vec::new(), 100).is_none());
    }

    #[test]
    fn a_reparse_point_has_its_tag_where_the_form_puts_it() {
        let link = DirectoryEntry {
            attributes: FileAttributes::REPARSE_POINT,
            reparse_tag: 0xa000_000c,
            ea_size: 0,
            ..entry()
        };
        for class in [FileClass::FULL_DIRECTORY, FileClass::ID_EXTD_DIRECTORY] {
            let mut out = Vec::new();
            assert!(DirectoryWriter::new(class, &mut out, 200).unwrap().push(&link, "l", ""));
            let at = if class == FileClass::FULL_DIRECTORY { 64 } else { 68 };
            assert_eq!(out[at..at + 4], 0xa000_000c_u32.to_le_bytes());
            assert_eq!(listing(class, &out).next().unwrap().unwrap().entry.reparse_tag, 0xa000_000c);
        }
    }
}
