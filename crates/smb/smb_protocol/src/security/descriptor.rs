//! Security descriptors in self-relative form (MS-DTYP 2.4.6).

use crate::info::SecurityInformation;
use crate::security::ace::Acl;
use crate::security::sid::Sid;
use crate::wire::{DecodeError, Reader, Wire};

bit_flags! {
    /// Control bits.
    pub struct Control(u16) {
        OWNER_DEFAULTED = 0x0001,
        GROUP_DEFAULTED = 0x0002,
        DACL_PRESENT = 0x0004,
        DACL_DEFAULTED = 0x0008,
        SACL_PRESENT = 0x0010,
        SACL_DEFAULTED = 0x0020,
        DACL_TRUSTED = 0x0040,
        SERVER_SECURITY = 0x0080,
        DACL_AUTO_INHERIT_REQ = 0x0100,
        SACL_AUTO_INHERIT_REQ = 0x0200,
        DACL_AUTO_INHERITED = 0x0400,
        SACL_AUTO_INHERITED = 0x0800,
        DACL_PROTECTED = 0x1000,
        SACL_PROTECTED = 0x2000,
        RM_CONTROL_VALID = 0x4000,
        SELF_RELATIVE = 0x8000,
    }
}

/// The longest descriptor: what a file store keeps. Lists alone could not be longer.
pub const MAX_DESCRIPTOR_BYTES: usize = 64 * 1024;
/// Bytes before the parts.
const HEAD: usize = 20;

/// Owner, group and lists. A list that is present and `None` is a null list: as DACL it lets everyone do everything,
/// where an absent one says nothing and an empty one lets nobody do anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecurityDescriptor {
    /// Control bits; those that say what is present are made from the parts when the descriptor is written, except for
    /// null lists.
    pub control: Control,
    /// Who owns it.
    pub owner: Option<Sid>,
    /// Its primary group.
    pub group: Option<Sid>,
    /// What is audited.
    pub sacl: Option<Acl>,
    /// Who may do what.
    pub dacl: Option<Acl>,
}

impl SecurityDescriptor {
    /// Decodes it from self-relative bytes.
    ///
    /// # Errors
    /// When a part is not whole or overlaps the head, the revision is not 1, or it is too long.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > MAX_DESCRIPTOR_BYTES {
            return Err(DecodeError::Invalid("descriptor length"));
        }
        let mut r = Reader::new(bytes);
        if r.u8()? != 1 {
            return Err(DecodeError::Invalid("descriptor revision"));
        }
        r.u8()?;
        let control = Control::take(&mut r)?;
        if !control.contains(Control::SELF_RELATIVE) {
            return Err(DecodeError::Invalid("descriptor control"));
        }
        let (owner, group, sacl, dacl) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        Ok(Self {
            control,
            owner: at(bytes, owner)?.map(Sid::decode).transpose()?,
            group: at(bytes, group)?.map(Sid::decode).transpose()?,
            sacl: list(bytes, control.contains(Control::SACL_PRESENT), sacl)?,
            dacl: list(bytes, control.contains(Control::DACL_PRESENT), dacl)?,
        })
    }

    /// The self-relative bytes: owner, group, SACL, DACL, as MS-DTYP 2.4.6 draws them. The head says where they lie, but
    /// there are clients that read on in this order.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut control = self.control | Control::SELF_RELATIVE;
        if self.sacl.is_some() {
            control |= Control::SACL_PRESENT;
        }
        if self.dacl.is_some() {
            control |= Control::DACL_PRESENT;
        }
        let mut out = vec![1, 0];
        control.put(&mut out);
        out.resize(HEAD, 0);
        let mut offsets = [0_u32; 4];
        let [owner, group, sacl, dacl] = &mut offsets;
        for (sid, offset) in [(&self.owner, owner), (&self.group, group)] {
            if let Some(sid) = sid {
                *offset = out.len() as u32;
                sid.put(&mut out);
            }
        }
        for (list, offset) in [(&self.sacl, sacl), (&self.dacl, dacl)] {
            if let Some(list) = list {
                *offset = out.len() as u32;
                list.put(&mut out);
            }
        }
        for (field, offset) in out.iter_mut().skip(4).zip(offsets.iter().flat_map(|o| o.to_le_bytes())) {
            *field = offset;
        }
        out
    }

    /// The parts that were asked for.
    #[must_use]
    pub fn select(&self, wanted: SecurityInformation) -> Self {
        let mut part = Self { control: self.control, ..Self::default() };
        if wanted.contains(SecurityInformation::OWNER) {
            part.owner = self.owner;
        }
        if wanted.contains(SecurityInformation::GROUP) {
            part.group = self.group;
        }
        if wanted.contains(SecurityInformation::DACL) {
            part.dacl.clone_from(&self.dacl);
        } else {
            part.control = part.control.without(DACL_BITS);
        }
        if wanted.contains(SecurityInformation::SACL) {
            part.sacl.clone_from(&self.sacl);
        } else {
            part.control = part.control.without(SACL_BITS);
        }
        part
    }

    /// Whether there is a null DACL: everyone may do everything.
    #[must_use]
    pub fn has_null_dacl(&self) -> bool {
        self.dacl.is_none() && self.control.contains(Control::DACL_PRESENT)
    }
}

/// Control bits that are about the DACL.
pub const DACL_BITS: Control = Control(0x154c);
/// Control bits that are about the SACL.
pub const SACL_BITS: Control = Control(0x2a30);

fn at(bytes: &[u8], offset: u32) -> Result<Option<&[u8]>, DecodeError> {
    match offset as usize {
        0 => Ok(None),
        offset if offset < HEAD => Err(DecodeError::Invalid("descriptor offset")),
        offset => bytes.get(offset..).map(Some).ok_or(DecodeError::Truncated),
    }
}

fn list(bytes: &[u8], present: bool, offset: u32) -> Result<Option<Acl>, DecodeError> {
    // Where the bit is not set the offset has no meaning, and clients leave rubbish there.
    if !present {
        return Ok(None);
    }
    at(bytes, offset)?.map(Acl::decode).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::AccessMask;
    use crate::security::ace::{Ace, AceFlags};

    fn full() -> SecurityDescriptor {
        let everyone = Ace::allow(Sid::EVERYONE, AccessMask::FILE_READ, AceFlags::INHERITED);
        SecurityDescriptor {
            control: Control::SELF_RELATIVE
                | Control::DACL_PRESENT
                | Control::SACL_PRESENT
                | Control::DACL_AUTO_INHERITED,
            owner: Some(Sid::ADMINISTRATORS),
            group: Some(Sid::USERS),
            sacl: Some(Acl::default()),
            dacl: Some(Acl { aces: vec![everyone] }),
        }
    }

    #[test]
    fn there_and_back_and_in_part() {
        let bytes = full().encode();
        assert_eq!(SecurityDescriptor::decode(&bytes), Ok(full()));
        let part = full().select(SecurityInformation::OWNER | SecurityInformation::DACL);
        assert_eq!((part.group, part.sacl.clone()), (None, None));
        assert!(!part.control.intersects(Control::SACL_PRESENT));
        assert_eq!(SecurityDescriptor::decode(&part.encode()), Ok(part));
        for cut in 0..bytes.len() {
            assert!(SecurityDescriptor::decode(&bytes[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn absent_null_and_empty_lists_differ() {
        let null = SecurityDescriptor { control: Control::DACL_PRESENT, ..SecurityDescriptor::default() };
        let back = SecurityDescriptor::decode(&null.encode()).unwrap();
        assert!(back.has_null_dacl());
        let absent = SecurityDescriptor::decode(&SecurityDescriptor::default().encode()).unwrap();
        assert!(absent.dacl.is_none() && !absent.has_null_dacl());
        let empty = SecurityDescriptor { dacl: Some(Acl::default()), ..SecurityDescriptor::default() };
        let back = SecurityDescriptor::decode(&empty.encode()).unwrap();
        assert!(back.dacl.is_some() && !back.has_null_dacl());
    }

    #[test]
    fn a_part_does_not_overlap_the_head() {
        let mut bytes = full().encode();
        bytes[4] = 8;
        assert!(SecurityDescriptor::decode(&bytes).is_err());
    }
}
