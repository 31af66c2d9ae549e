//! Reading and replacing parts of a descriptor (MS-FSA 2.1.5.13, 2.1.5.16).

use smb_protocol::access::AccessMask;
use smb_protocol::info::SecurityInformation;
use smb_protocol::security::descriptor::{DACL_BITS, SACL_BITS};
use smb_protocol::security::{Control, SecurityDescriptor};

use crate::inherit::generic_mapped;
use crate::token::Token;

/// A change was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// The user may not make that SID the owner: INVALID_OWNER.
    Owner,
    /// An owner or group is to be set, and there is none: INVALID_SECURITY_DESCR.
    Missing,
}

/// Parts that need the right to read or write the owner and group.
const OWNERSHIP: SecurityInformation =
    SecurityInformation(SecurityInformation::OWNER.0 | SecurityInformation::GROUP.0);

/// Parts of a descriptor that can be replaced; the others are not kept.
const KEPT: SecurityInformation =
    SecurityInformation(OWNERSHIP.0 | SecurityInformation::DACL.0 | SecurityInformation::SACL.0);

/// The rights that an open needs to read these parts (MS-SMB2 3.3.5.20.3), those that there never are included: nobody learns
/// without a right that there are none.
#[must_use]
pub fn required_to_query(parts: SecurityInformation) -> AccessMask {
    let described = OWNERSHIP
        | SecurityInformation::DACL
        | SecurityInformation::LABEL
        | SecurityInformation::ATTRIBUTE
        | SecurityInformation::SCOPE
        | SecurityInformation::BACKUP;
    let mut rights = AccessMask::NONE;
    if parts.intersects(described) {
        rights |= AccessMask::READ_CONTROL;
    }
    if parts.intersects(SecurityInformation::SACL | SecurityInformation::BACKUP) {
        rights |= AccessMask::ACCESS_SYSTEM_SECURITY;
    }
    rights
}

/// The rights that an open needs to replace these parts (MS-SMB2 3.3.5.21.3).
#[must_use]
pub fn required_to_set(parts: SecurityInformation) -> AccessMask {
    let backup = SecurityInformation::BACKUP;
    let mut rights = AccessMask::NONE;
    if parts.intersects(OWNERSHIP | SecurityInformation::LABEL | backup) {
        rights |= AccessMask::WRITE_OWNER;
    }
    if parts.intersects(SecurityInformation::DACL | SecurityInformation::ATTRIBUTE | backup) {
        rights |= AccessMask::WRITE_DAC;
    }
    if parts.intersects(SecurityInformation::SACL | SecurityInformation::SCOPE | backup) {
        rights |= AccessMask::ACCESS_SYSTEM_SECURITY;
    }
    rights
}

/// Whether any of these parts can be replaced; if none can, there is nothing to write.
#[must_use]
pub fn replaces(parts: SecurityInformation) -> bool {
    parts.intersects(KEPT)
}

/// `old` with the parts of `new` that `parts` names.
///
/// # Errors
/// [`ChangeError`]; the old descriptor stays.
pub fn merge(
    old: &SecurityDescriptor,
    new: &SecurityDescriptor,
    parts: SecurityInformation,
    token: &Token,
) -> Result<SecurityDescriptor, ChangeError> {
    let mut merged = old.clone();
    if parts.contains(SecurityInformation::OWNER) {
        let owner = new.owner.ok_or(ChangeError::Missing)?;
        if old.owner != Some(owner) && !token.may_make_owner(&owner) {
            return Err(ChangeError::Owner);
        }
        merged.owner = Some(owner);
    }
    if parts.contains(SecurityInformation::GROUP) {
        merged.group = Some(new.group.ok_or(ChangeError::Missing)?);
    }
    if parts.contains(SecurityInformation::DACL) {
        merged.dacl = new.dacl.as_ref().map(generic_mapped);
        let bits = list_bits(new, DACL_BITS, Control::DACL_AUTO_INHERIT_REQ, Control::DACL_AUTO_INHERITED);
        merged.control = merged.control.without(DACL_BITS) | bits | Control::DACL_PRESENT;
    }
    if parts.contains(SecurityInformation::SACL) {
        merged.sacl = new.sacl.as_ref().map(generic_mapped);
        let bits = list_bits(new, SACL_BITS, Control::SACL_AUTO_INHERIT_REQ, Control::SACL_AUTO_INHERITED);
        merged.control = merged.control.without(SACL_BITS) | bits;
    }
    Ok(merged)
}

/// The control bits about a list. AUTO_INHERIT_REQ is a request to compute inheritance and is not kept; AUTO_INHERITED is
/// kept only together with it, as NTFS does (MS-DTYP 2.5.3.4.2).
fn list_bits(new: &SecurityDescriptor, all: Control, request: Control, inherited: Control) -> Control {
    let bits = new.control & all;
    let both = bits.contains(request | inherited);
    let kept = bits.without(request | inherited);
    if both { kept | inherited } else { kept }
}

#[cfg(test)]
mod tests {
    use smb_protocol::security::{Ace, AceFlags, Acl, Sid};

    use super::*;

    fn sid(rid: u32) -> Sid {
        Sid::new(5, &[21, 1, 2, 3, rid]).unwrap()
    }

    fn full(rid: u32) -> SecurityDescriptor {
        let ace = Ace::allow(sid(rid), AccessMask::FILE_ALL, AceFlags::NONE);
        SecurityDescriptor {
            control: Control::DACL_PRESENT | Control::SACL_PRESENT,
            owner: Some(sid(rid)),
            group: Some(sid(rid + 1)),
            sacl: Some(Acl::default()),
            dacl: Some(Acl { aces: vec![ace] }),
        }
    }

    #[test]
    fn only_what_is_named_changes() {
        let (old, new, user) = (full(1), full(10), Token::new(sid(10), Sid::USERS, &[], false));
        let owner = merge(&old, &new, SecurityInformation::OWNER, &user).unwrap();
        assert_eq!(owner, SecurityDescriptor { owner: Some(sid(10)), ..old.clone() });
        let dacl = merge(&old, &new, SecurityInformation::DACL, &user).unwrap();
        assert_eq!((dacl.owner, dacl.dacl), (old.owner, new.dacl.clone()));
        let null = SecurityDescriptor { control: Control::DACL_PRESENT, ..SecurityDescriptor::default() };
        assert!(merge(&old, &null, SecurityInformation::DACL, &user).unwrap().has_null_dacl());
        let generic = Ace::allow(sid(10), AccessMask::GENERIC_READ, AceFlags::NONE);
        let generic = SecurityDescriptor { dacl: Some(Acl { aces: vec![generic] }), ..new.clone() };
        let dacl = merge(&old, &generic, SecurityInformation::DACL, &user).unwrap().dacl.unwrap();
        assert_eq!(dacl.aces[0].mask(), Some(AccessMask::FILE_READ), "generic rights are mapped");
        let group = merge(&old, &null, SecurityInformation::GROUP, &user);
        assert_eq!(group, Err(ChangeError::Missing));
    }

    #[test]
    fn who_may_be_made_the_owner() {
        let (old, new) = (full(1), full(10));
        let owner = SecurityInformation::OWNER;
        let stranger = Token::new(sid(3), Sid::USERS, &[], false);
        assert_eq!(merge(&old, &new, owner, &stranger), Err(ChangeError::Owner));
        let admin = Token::new(sid(3), Sid::USERS, &[], true);
        assert!(merge(&old, &new, owner, &admin).is_ok(), "the restore privilege");
        assert!(merge(&old, &old, owner, &stranger).is_ok(), "no change");
    }

    #[test]
    fn inheritance_bits_are_kept_together_only() {
        let user = Token::new(sid(1), Sid::USERS, &[], false);
        let (asked, inherited) = (Control::DACL_AUTO_INHERIT_REQ, Control::DACL_AUTO_INHERITED);
        for (given, kept) in [
            (asked, Control::NONE),
            (inherited, Control::NONE),
            (asked | inherited, inherited),
            (asked | inherited | Control::DACL_PROTECTED, inherited | Control::DACL_PROTECTED),
        ] {
            let new = SecurityDescriptor { control: given | Control::DACL_PRESENT, ..full(1) };
            let merged = merge(&full(1), &new, SecurityInformation::DACL, &user).unwrap();
            let about = inherited | asked | Control::DACL_PROTECTED;
            assert_eq!(merged.control & about, kept, "{given:?}");
        }
    }

    #[test]
    fn rights_that_parts_need() {
        let (owner, sacl) = (SecurityInformation::OWNER, SecurityInformation::SACL);
        assert_eq!(required_to_query(owner), AccessMask::READ_CONTROL);
        assert_eq!(required_to_query(sacl), AccessMask::ACCESS_SYSTEM_SECURITY);
        assert_eq!(
            required_to_set(owner | sacl),
            AccessMask::WRITE_OWNER | AccessMask::ACCESS_SYSTEM_SECURITY
        );
        assert_eq!(required_to_set(SecurityInformation::DACL), AccessMask::WRITE_DAC);
        let all = AccessMask::WRITE_OWNER | AccessMask::WRITE_DAC | AccessMask::ACCESS_SYSTEM_SECURITY;
        assert_eq!(required_to_set(SecurityInformation::BACKUP), all);
        assert_eq!(required_to_query(SecurityInformation::SCOPE), AccessMask::READ_CONTROL);
        assert!(
            !replaces(SecurityInformation::LABEL | SecurityInformation::PROTECTED_DACL) && replaces(sacl)
        );
    }
}
