//! Reading and replacing parts of a descriptor (MS-FSA 2.1.5.13, 2.1.5.16).

use smb_protocol::access::AccessMask;
use smb_protocol::info::SecurityInformation;
use smb_protocol::security::descriptor::{DACL_BITS, SACL_BITS};
use smb_protocol::security::{Control, SecurityDescriptor};

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

/// The rights that an open needs to read these parts.
#[must_use]
pub fn required_to_query(parts: SecurityInformation) -> AccessMask {
    let mut rights = AccessMask::NONE;
    let readable = OWNERSHIP | SecurityInformation::DACL | SecurityInformation::LABEL;
    if parts.intersects(readable) {
        rights |= AccessMask::READ_CONTROL;
    }
    if parts.contains(SecurityInformation::SACL) {
        rights |= AccessMask::ACCESS_SYSTEM_SECURITY;
    }
    rights
}

/// The rights that an open needs to replace these parts.
#[must_use]
pub fn required_to_set(parts: SecurityInformation) -> AccessMask {
    let mut rights = AccessMask::NONE;
    if parts.intersects(OWNERSHIP | SecurityInformation::LABEL) {
        rights |= AccessMask::WRITE_OWNER;
    }
    if parts.contains(SecurityInformation::DACL) {
        rights |= AccessMask::WRITE_DAC;
    }
    if parts.contains(SecurityInformation::SACL) {
        rights |= AccessMask::ACCESS_SYSTEM_SECURITY;
    }
    rights
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
        merged.dacl.clone_from(&new.dacl);
        let bits = list_bits(new, DACL_BITS, Control::DACL_AUTO_INHERIT_REQ, Control::DACL_AUTO_INHERITED);
        merged.control = merged.control.without(DACL_BITS) | bits | Control::DACL_PRESENT;
    }
    if parts.contains(SecurityInformation::SACL) {
        merged.sacl.clone_from(&new.sacl);
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
