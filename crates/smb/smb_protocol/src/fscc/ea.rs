//! Extended attributes (MS-FSCC 2.4.15, 2.4.16; MS-FSA 2.1.5.15.6).

use crate::fscc::entries::{EntryWriter, entries};
use crate::wire::{DecodeError, Reader, Wire};

/// Most attributes in a list; all attributes of a file have 64 KiB together.
pub const MAX_EAS: usize = 4096;

/// One attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ea<'a> {
    /// 0, or 0x80: programs that do not know it must not touch the file.
    pub flags: u8,
    /// Its name, compared without regard to case; not empty and without zeros.
    pub name: &'a [u8],
    /// Its value; empty removes it.
    pub value: &'a [u8],
}

/// A list of attributes as FILE_FULL_EA_INFORMATION: in SET_INFO, in a CREATE context, and as an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EaList<'a>(&'a [u8]);

impl<'a> EaList<'a> {
    /// Checks a list.
    ///
    /// # Errors
    /// When an entry is not whole, its name is empty, has a zero, or no zero behind it, or there are too many. A server
    /// answers with EA_LIST_INCONSISTENT.
    pub fn new(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut count = 0;
        for entry in entries(bytes) {
            ea(entry?)?;
            count += 1;
            if count > MAX_EAS {
                return Err(DecodeError::Invalid("number of attributes"));
            }
        }
        Ok(Self(bytes))
    }

    /// The attributes.
    pub fn iter(&self) -> impl Iterator<Item = Ea<'a>> + use<'a> {
        entries(self.0).map_while(|entry| ea(entry.ok()?).ok())
    }
}

fn ea(entry: &[u8]) -> Result<Ea<'_>, DecodeError> {
    let mut r = Reader::new(entry);
    r.u32()?;
    let flags = r.u8()?;
    let name_len = usize::from(r.u8()?);
    let value_len = usize::from(r.u16()?);
    let name = name_with_zero(&mut r, name_len)?;
    Ok(Ea { flags, name, value: r.raw(value_len)? })
}

fn name_with_zero<'a>(r: &mut Reader<'a>, len: usize) -> Result<&'a [u8], DecodeError> {
    let name = r.raw(len)?;
    if r.u8()? != 0 || name.is_empty() || name.contains(&0) {
        return Err(DecodeError::Invalid("attribute name"));
    }
    Ok(name)
}

/// A list of attributes in `out`, of at most `limit` bytes.
pub fn ea_writer(out: &mut Vec<u8>, limit: usize) -> EntryWriter<'_> {
    EntryWriter::new(out, limit, 4)
}

/// Appends an attribute; says whether it fitted. A name of more than 255 bytes or a value of more than 65535 does not.
pub fn push_ea(list: &mut EntryWriter<'_>, ea: &Ea<'_>) -> bool {
    let (Ok(name_len), Ok(value_len)) = (u8::try_from(ea.name.len()), u16::try_from(ea.value.len())) else {
        return false;
    };
    list.push(|out| {
        out.push(ea.flags);
        out.push(name_len);
        value_len.put(out);
        out.extend_from_slice(ea.name);
        out.push(0);
        out.extend_from_slice(ea.value);
    })
}

/// The names in FILE_GET_EA_INFORMATION (2.4.15.1): which attributes a query wants.
///
/// # Errors
/// The same as those of [`EaList::new`].
pub fn wanted_names(bytes: &[u8]) -> Result<Vec<&[u8]>, DecodeError> {
    let mut names = Vec::new();
    for entry in entries(bytes) {
        let mut r = Reader::new(entry?);
        r.u32()?;
        let len = usize::from(r.u8()?);
        names.push(name_with_zero(&mut r, len)?);
        if names.len() > MAX_EAS {
            return Err(DecodeError::Invalid("number of attributes"));
        }
    }
    Ok(names)
}

/// FILE_GET_EA_INFORMATION for these names, each of at most 255 bytes; longer ones are left out.
#[must_use]
pub fn want_names(names: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut list = EntryWriter::new(&mut out, usize::MAX >> 1, 4);
    for name in names {
        let Ok(len) = u8::try_from(name.len()) else { continue };
        list.push(|out| {
            out.push(len);
            out.extend_from_slice(name);
            out.push(0);
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_there_and_back() {
        let all =
            [Ea { flags: 0, name: b"USER.A", value: b"1" }, Ea { flags: 0x80, name: b"B", value: &[7; 300] }];
        let mut out = Vec::new();
        let mut list = ea_writer(&mut out, 1000);
        all.iter().for_each(|ea| assert!(push_ea(&mut list, ea)));
        assert!(!push_ea(&mut list, &Ea { flags: 0, name: &[b'x'; 256], value: b"" }));
        assert_eq!(EaList::new(&out).unwrap().iter().collect::<Vec<_>>(), all);
        for cut in 1..out.len() {
            assert!(EaList::new(&out[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn names_without_a_name_are_refused() {
        for bad in [&b"\0\0\0\0\0\0\0\0\0"[..], b"\0\0\0\0\0\x02\0\0a\0\0", b"\0\0\0\0\0\x01\0\0ab"] {
            assert!(EaList::new(bad).is_err());
        }
        assert_eq!(EaList::new(&[]).unwrap().iter().count(), 0);
        let bytes = want_names(&[b"one", b"two"]);
        assert_eq!(wanted_names(&bytes), Ok(vec![&b"one"[..], b"two"]));
        assert!(wanted_names(&bytes[..bytes.len() - 1]).is_err());
    }
}
