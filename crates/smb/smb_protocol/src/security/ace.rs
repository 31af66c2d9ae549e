//! Access control entries and lists (MS-DTYP 2.4.4, 2.4.5).

use crate::access::AccessMask;
use crate::guid::Guid;
use crate::security::sid::Sid;
use crate::wire::{DecodeError, Reader, Wire};

named_values! {
    /// What an entry does (2.4.4.1).
    pub struct AceType(u8) {
        ACCESS_ALLOWED = 0x00,
        ACCESS_DENIED = 0x01,
        SYSTEM_AUDIT = 0x02,
        SYSTEM_ALARM = 0x03,
        ACCESS_ALLOWED_COMPOUND = 0x04,
        ACCESS_ALLOWED_OBJECT = 0x05,
        ACCESS_DENIED_OBJECT = 0x06,
        SYSTEM_AUDIT_OBJECT = 0x07,
        SYSTEM_ALARM_OBJECT = 0x08,
        ACCESS_ALLOWED_CALLBACK = 0x09,
        ACCESS_DENIED_CALLBACK = 0x0a,
        ACCESS_ALLOWED_CALLBACK_OBJECT = 0x0b,
        ACCESS_DENIED_CALLBACK_OBJECT = 0x0c,
        SYSTEM_AUDIT_CALLBACK = 0x0d,
        SYSTEM_ALARM_CALLBACK = 0x0e,
        SYSTEM_AUDIT_CALLBACK_OBJECT = 0x0f,
        SYSTEM_ALARM_CALLBACK_OBJECT = 0x10,
        SYSTEM_MANDATORY_LABEL = 0x11,
        SYSTEM_RESOURCE_ATTRIBUTE = 0x12,
        SYSTEM_SCOPED_POLICY_ID = 0x13,
    }
}

bit_flags! {
    /// How an entry is inherited, and when it audits (2.4.4.1).
    pub struct AceFlags(u8) {
        OBJECT_INHERIT = 0x01,
        CONTAINER_INHERIT = 0x02,
        NO_PROPAGATE_INHERIT = 0x04,
        INHERIT_ONLY = 0x08,
        INHERITED = 0x10,
        SUCCESSFUL_ACCESS = 0x40,
        FAILED_ACCESS = 0x80,
    }
}

/// What is particular to a kind of entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AceData {
    /// Rights for somebody; callback and attribute entries have data of an application behind it.
    Plain {
        /// Which rights.
        mask: AccessMask,
        /// Whose.
        sid: Sid,
        /// Data of an application.
        application: Vec<u8>,
    },
    /// Rights on a property of an object; files have none, so such entries are kept and not applied.
    Object {
        /// Which rights.
        mask: AccessMask,
        /// On what.
        object_type: Option<Guid>,
        /// For what kind of child.
        inherited_type: Option<Guid>,
        /// Whose.
        sid: Sid,
        /// Data of an application.
        application: Vec<u8>,
    },
    /// A type that is not known: kept as it is.
    Opaque(Vec<u8>),
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ace {
    /// What it does.
    pub kind: AceType,
    /// How it is inherited.
    pub flags: AceFlags,
    /// What the entry says, by its kind.
    pub data: AceData,
}

impl Ace {
    /// Rights for somebody.
    #[must_use]
    pub fn allow(sid: Sid, mask: AccessMask, flags: AceFlags) -> Self {
        Self::plain(AceType::ACCESS_ALLOWED, sid, mask, flags)
    }

    /// Rights taken from somebody.
    #[must_use]
    pub fn deny(sid: Sid, mask: AccessMask, flags: AceFlags) -> Self {
        Self::plain(AceType::ACCESS_DENIED, sid, mask, flags)
    }

    fn plain(kind: AceType, sid: Sid, mask: AccessMask, flags: AceFlags) -> Self {
        Self { kind, flags, data: AceData::Plain { mask, sid, application: Vec::new() } }
    }

    /// The SID that the entry is for, where that is known.
    #[must_use]
    pub fn sid(&self) -> Option<&Sid> {
        match &self.data {
            AceData::Plain { sid, .. } | AceData::Object { sid, .. } => Some(sid),
            AceData::Opaque(_) => None,
        }
    }

    /// Its rights, where they are known.
    #[must_use]
    pub fn mask(&self) -> Option<AccessMask> {
        match &self.data {
            AceData::Plain { mask, .. } | AceData::Object { mask, .. } => Some(*mask),
            AceData::Opaque(_) => None,
        }
    }

    fn take(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = AceType::take(r)?;
        let flags = AceFlags::take(r)?;
        let size = usize::from(r.u16()?);
        // The size counts from the type, is a multiple of four, and stays in the list. Every type has a mask at least; an
        // entry without one would only let a list of 64 KiB become megabytes here.
        let len = size.checked_sub(4).filter(|len| *len >= 4 && len.is_multiple_of(4));
        let body = r.raw(len.ok_or(DecodeError::Invalid("ACE size"))?)?;
        Ok(Self { kind, flags, data: AceData::decode(kind, body)? })
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.kind.put(out);
        self.flags.put(out);
        let size_at = out.len();
        0_u16.put(out);
        match &self.data {
            AceData::Plain { mask, sid, application } => {
                mask.put(out);
                sid.put(out);
                out.extend_from_slice(application);
            }
            AceData::Object { mask, object_type, inherited_type, sid, application } => {
                mask.put(out);
                (u32::from(object_type.is_some()) | u32::from(inherited_type.is_some()) << 1).put(out);
                object_type.iter().chain(inherited_type).for_each(|guid| guid.put(out));
                sid.put(out);
                out.extend_from_slice(application);
            }
            AceData::Opaque(bytes) => out.extend_from_slice(bytes),
        }
        let start = size_at - 2;
        out.resize(start + (out.len() - start).next_multiple_of(4), 0);
        let size = u16::try_from(out.len() - start).unwrap_or(u16::MAX);
        if let Some(field) = out.get_mut(size_at..size_at + 2) {
            field.copy_from_slice(&size.to_le_bytes());
        }
    }
}

impl AceData {
    fn decode(kind: AceType, body: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(body);
        match kind.0 {
            0x00..=0x03 | 0x09 | 0x0a | 0x0d | 0x0e | 0x11..=0x13 => {
                let mask = AccessMask::take(&mut r)?;
                let sid = Sid::take(&mut r)?;
                Ok(Self::Plain { mask, sid, application: r.raw(r.remaining())?.to_vec() })
            }
            0x05..=0x08 | 0x0b | 0x0c | 0x0f | 0x10 => {
                let mask = AccessMask::take(&mut r)?;
                let present = r.u32()?;
                let object_type = if present & 1 != 0 { Some(Guid::take(&mut r)?) } else { None };
                let inherited_type = if present & 2 != 0 { Some(Guid::take(&mut r)?) } else { None };
                let sid = Sid::take(&mut r)?;
                let application = r.raw(r.remaining())?.to_vec();
                Ok(Self::Object { mask, object_type, inherited_type, sid, application })
            }
            _ => Ok(Self::Opaque(body.to_vec())),
        }
    }
}

/// A list of entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acl {
    /// The entries, in the order in which they are applied.
    pub aces: Vec<Ace>,
}

/// Bytes of a list before its entries.
const ACL_HEAD: usize = 8;
/// Revisions that are written: 2 for files, 4 where an entry is about an object.
const REVISION: u8 = 2;
const REVISION_DS: u8 = 4;
/// Those that are read: Windows takes any from MIN_ACL_REVISION to MAX_ACL_REVISION, and Samba's clients write 3. The layout is the same in all.
const REVISIONS: std::ops::RangeInclusive<u8> = REVISION..=REVISION_DS;

impl Acl {
    /// The list at the beginning of `bytes`.
    ///
    /// # Errors
    /// When an entry is not whole, the revision is not from 2 to 4, or fewer entries are there than announced. As each
    /// entry has at least eight bytes, the list's size bounds their number.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let revision = r.u8()?;
        r.u8()?;
        let size = usize::from(r.u16()?);
        let count = usize::from(r.u16()?);
        r.u16()?;
        if !REVISIONS.contains(&revision) {
            return Err(DecodeError::Invalid("ACL revision"));
        }
        let body = size.checked_sub(ACL_HEAD).ok_or(DecodeError::Invalid("ACL size"))?;
        let mut r = Reader::new(r.raw(body)?);
        if count > body / 8 {
            return Err(DecodeError::Invalid("ACE count"));
        }
        Ok(Self { aces: (0..count).map(|_| Ace::take(&mut r)).collect::<Result<_, _>>()? })
    }

    /// Appends it. Entries beyond 64 KiB are left out: a descriptor as a whole has no more.
    pub fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let objects = self.aces.iter().any(|ace| matches!(ace.data, AceData::Object { .. }));
        out.extend_from_slice(&[if objects { REVISION_DS } else { REVISION }, 0, 0, 0, 0, 0, 0, 0]);
        let mut count = 0_u16;
        for ace in &self.aces {
            let before = out.len();
            ace.put(out);
            if out.len() - start > usize::from(u16::MAX) {
                out.truncate(before);
                break;
            }
            count += 1;
        }
        let size = (out.len() - start) as u16;
        if let Some(field) = out.get_mut(start + 2..start + 6) {
            let ([a, b], [c, d]) = (size.to_le_bytes(), count.to_le_bytes());
            field.copy_from_slice(&[a, b, c, d]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Acl {
        let inherit = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT;
        Acl {
            aces: vec![
                Ace::deny(Sid::GUESTS, AccessMask::FILE_ALL, AceFlags::NONE),
                Ace::allow(Sid::ADMINISTRATORS, AccessMask::FILE_ALL, inherit),
                Ace {
                    kind: AceType::ACCESS_ALLOWED_OBJECT,
                    flags: AceFlags::INHERITED,
                    data: AceData::Object {
                        mask: AccessMask::READ_DATA,
                        object_type: Some(Guid([1; 16])),
                        inherited_type: None,
                        sid: Sid::USERS,
                        application: vec![],
                    },
                },
                Ace {
                    kind: AceType::ACCESS_ALLOWED_CALLBACK,
                    flags: AceFlags::NONE,
                    data: AceData::Plain {
                        mask: AccessMask::READ_DATA,
                        sid: Sid::EVERYONE,
                        application: b"artx".to_vec(),
                    },
                },
                Ace { kind: AceType(0x77), flags: AceFlags::NONE, data: AceData::Opaque(vec![1, 2, 3, 4]) },
            ],
        }
    }

    #[test]
    fn lists_there_and_back() {
        let mut bytes = Vec::new();
        list().put(&mut bytes);
        assert_eq!(bytes[0], REVISION_DS);
        assert_eq!(Acl::decode(&bytes), Ok(list()));
        for cut in 0..bytes.len() {
            assert!(Acl::decode(&bytes[..cut]).is_err(), "{cut}");
        }
        // More entries than there is place for, and an entry that is longer than its list.
        for (at, value) in [(4, 200), (10, 0xfc), (10, 3), (10, 22), (0, 1), (0, 5)] {
            let mut bad = bytes.clone();
            bad[at] = value;
            assert!(Acl::decode(&bad).is_err(), "{at}");
        }
    }

    #[test]
    fn a_list_ends_where_its_size_field_does() {
        let acl = Acl { aces: vec![Ace::allow(Sid::USERS, AccessMask::FILE_ALL, AceFlags::NONE); 4000] };
        let mut bytes = Vec::new();
        acl.put(&mut bytes);
        let back = Acl::decode(&bytes).unwrap();
        assert_eq!(back.aces.len(), (65535 - 8) / 24);
    }

    #[test]
    fn lists_of_samba_are_read_and_stored_as_windows_does() {
        for aces in [list().aces, list().aces[..2].to_vec()] {
            let list = Acl { aces };
            let mut bytes = Vec::new();
            list.put(&mut bytes);
            for revision in 0..=6 {
                let as_sent = [&[revision][..], &bytes[1..]].concat();
                let read = Acl::decode(&as_sent).ok();
                assert_eq!(read.is_some(), (2..=4).contains(&revision), "{revision}");
                let Some(read) = read else { continue };
                let mut stored = Vec::new();
                read.put(&mut stored);
                assert_eq!(stored, bytes, "what is kept has one of the two revisions");
            }
        }
    }
}
