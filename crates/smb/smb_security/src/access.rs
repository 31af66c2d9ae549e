//! The access check (MS-DTYP 2.5.3.2).

use smb_protocol::access::AccessMask;
use smb_protocol::security::ace::{AceData, AceFlags, AceType};
use smb_protocol::security::{Ace, SecurityDescriptor, Sid};

use crate::token::Token;

/// What an open asks for besides its rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The rights, generic ones and MAXIMUM_ALLOWED included.
    pub desired: AccessMask,
    /// FILE_OPEN_FOR_BACKUP_INTENT: the backup and restore privileges count.
    pub backup_intent: bool,
    /// What the parent directory grants anyway (MS-FSA 2.1.5.1.2.1): DELETE with its DELETE_CHILD, READ_ATTRIBUTES with
    /// its LIST_DIRECTORY.
    pub from_parent: AccessMask,
}

/// Access was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// These rights are not granted.
    Rights(AccessMask),
    /// ACCESS_SYSTEM_SECURITY needs the security privilege.
    Privilege,
}

/// Rights that SeBackupPrivilege gives to an open for backup.
const BACKUP: AccessMask = AccessMask(
    AccessMask::FILE_READ.0
        | AccessMask::FILE_EXECUTE.0
        | AccessMask::READ_CONTROL.0
        | AccessMask::SYNCHRONIZE.0,
);
/// Rights that SeRestorePrivilege gives to an open for backup.
const RESTORE: AccessMask = AccessMask(
    AccessMask::FILE_WRITE.0 | AccessMask::DELETE.0 | AccessMask::WRITE_DAC.0 | AccessMask::WRITE_OWNER.0,
);

/// The rights that an open gets: those asked for, with MAXIMUM_ALLOWED replaced by everything that may be had.
///
/// # Errors
/// When one of those asked for by name is not granted.
pub fn check(sd: &SecurityDescriptor, token: &Token, request: &Request) -> Result<AccessMask, Denied> {
    let desired = request.desired.map_generic();
    if desired.contains(AccessMask::ACCESS_SYSTEM_SECURITY) && !token.privileges.security {
        return Err(Denied::Privilege);
    }
    let maximum = desired.contains(AccessMask::MAXIMUM_ALLOWED);
    let wanted = desired.without(AccessMask::MAXIMUM_ALLOWED | AccessMask::ACCESS_SYSTEM_SECURITY);
    let allowed = granted(sd, token) | by_privilege(token, request) | request.from_parent;
    let missing = wanted.without(allowed);
    if !missing.is_empty() {
        return Err(Denied::Rights(missing));
    }
    let mut result = if maximum { wanted | allowed } else { wanted };
    result |= desired & AccessMask::ACCESS_SYSTEM_SECURITY;
    Ok(result)
}

/// Everything that the token may do by this descriptor and its privileges.
#[must_use]
pub fn maximal(sd: &SecurityDescriptor, token: &Token) -> AccessMask {
    granted(sd, token) | by_privilege(token, &Request::default())
}

fn by_privilege(token: &Token, request: &Request) -> AccessMask {
    let mut rights = AccessMask::NONE;
    if token.privileges.take_ownership {
        rights |= AccessMask::WRITE_OWNER;
    }
    if request.backup_intent {
        if token.privileges.backup {
            rights |= BACKUP;
        }
        if token.privileges.restore {
            rights |= RESTORE;
        }
    }
    rights
}

/// What the descriptor alone grants: each right is decided by the first entry that speaks of it.
fn granted(sd: &SecurityDescriptor, token: &Token) -> AccessMask {
    let owner = sd.owner.as_ref().is_some_and(|owner| token.is(owner));
    let Some(dacl) = &sd.dacl else {
        // A null DACL grants all; so does a descriptor that never had one, as on Windows.
        return AccessMask::FILE_ALL;
    };
    let mut allowed = AccessMask::NONE;
    let mut denied = AccessMask::NONE;
    if owner && !dacl.aces.iter().any(|ace| applies(ace) && ace.sid() == Some(&Sid::OWNER_RIGHTS)) {
        // Implied, and decided before the list is looked at, unless it speaks of OWNER RIGHTS itself.
        allowed |= AccessMask::READ_CONTROL | AccessMask::WRITE_DAC;
    }
    for ace in dacl.aces.iter().filter(|ace| applies(ace)) {
        let AceData::Plain { mask, sid, .. } = &ace.data else { continue };
        let mine = if *sid == Sid::OWNER_RIGHTS { owner } else { token.is(sid) };
        if !mine {
            continue;
        }
        let mask = mask.map_generic() & AccessMask::FILE_ALL;
        match ace.kind {
            AceType::ACCESS_ALLOWED => allowed |= mask.without(denied),
            // A conditional entry whose condition we cannot evaluate: unknown counts as true for denial, and as
            // false for a grant (MS-DTYP 2.5.3.1.5).
            AceType::ACCESS_DENIED | AceType::ACCESS_DENIED_CALLBACK => denied |= mask.without(allowed),
            _ => {}
        }
    }
    allowed
}

/// Entries that are only there to be inherited do not apply.
fn applies(ace: &Ace) -> bool {
    !ace.flags.contains(AceFlags::INHERIT_ONLY)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use smb_protocol::security::{Acl, Control};

    use super::*;

    fn user(rid: u32) -> Sid {
        Sid::new(5, &[21, 1, 2, 3, rid]).unwrap()
    }

    fn token(rid: u32) -> Token {
        Token::new(user(rid), Sid::USERS, &[], false)
    }

    fn sd(owner: u32, aces: Vec<Ace>) -> SecurityDescriptor {
        SecurityDescriptor {
            owner: Some(user(owner)),
            dacl: Some(Acl { aces }),
            ..SecurityDescriptor::default()
        }
    }

    fn ask(desired: AccessMask) -> Request {
        Request { desired, ..Request::default() }
    }

    fn allow(sid: Sid, mask: AccessMask) -> Ace {
        Ace::allow(sid, mask, AceFlags::NONE)
    }

    #[test]
    fn the_first_entry_that_speaks_of_a_right_decides() {
        let both = sd(
            1,
            vec![
                Ace::deny(user(2), AccessMask::WRITE_DATA, AceFlags::NONE),
                allow(Sid::EVERYONE, AccessMask::FILE_ALL),
            ],
        );
        assert!(check(&both, &token(3), &ask(AccessMask::GENERIC_ALL)).is_ok());
        assert_eq!(
            check(&both, &token(2), &ask(AccessMask::GENERIC_WRITE)),
            Err(Denied::Rights(AccessMask::WRITE_DATA))
        );
        let reversed = SecurityDescriptor {
            dacl: Some(Acl { aces: both.dacl.clone().unwrap().aces.into_iter().rev().collect() }),
            ..both.clone()
        };
        assert!(check(&reversed, &token(2), &ask(AccessMask::GENERIC_WRITE)).is_ok());
        let got = check(&both, &token(2), &ask(AccessMask::MAXIMUM_ALLOWED)).unwrap();
        assert_eq!(got, AccessMask::FILE_ALL.without(AccessMask::WRITE_DATA));
    }

    #[test]
    fn owners_can_always_repair_their_lists_unless_owner_rights_say_otherwise() {
        let empty = sd(1, vec![]);
        let dac = AccessMask::READ_CONTROL | AccessMask::WRITE_DAC;
        assert_eq!(check(&empty, &token(1), &ask(dac)), Ok(dac));
        assert!(check(&empty, &token(2), &ask(AccessMask::READ_CONTROL)).is_err());
        let limited = sd(1, vec![allow(Sid::OWNER_RIGHTS, AccessMask::READ_DATA)]);
        assert!(check(&limited, &token(1), &ask(AccessMask::WRITE_DAC)).is_err());
        assert!(check(&limited, &token(1), &ask(AccessMask::READ_DATA)).is_ok());
        assert!(check(&limited, &token(2), &ask(AccessMask::READ_DATA)).is_err());
        // Implied rights come before a denial (MS-DTYP 2.5.3.2 grants them first).
        let denied = sd(1, vec![Ace::deny(user(1), AccessMask::FILE_ALL, AceFlags::NONE)]);
        assert_eq!(check(&denied, &token(1), &ask(AccessMask::MAXIMUM_ALLOWED)), Ok(dac));
    }

    #[test]
    fn absent_and_null_lists_grant_all_and_an_empty_one_nothing() {
        let null = SecurityDescriptor { control: Control::DACL_PRESENT, ..SecurityDescriptor::default() };
        assert!(check(&null, &token(1), &ask(AccessMask::FILE_ALL)).is_ok());
        assert!(check(&SecurityDescriptor::default(), &token(1), &ask(AccessMask::FILE_ALL)).is_ok());
        assert!(check(&sd(1, vec![]), &token(2), &ask(AccessMask::READ_DATA)).is_err());
    }

    #[test]
    fn privileges() {
        let (empty, mut powerful) = (sd(1, vec![]), token(2));
        let system = ask(AccessMask::ACCESS_SYSTEM_SECURITY);
        assert_eq!(check(&empty, &powerful, &system), Err(Denied::Privilege));
        powerful.privileges = crate::Privileges::ADMINISTRATOR;
        assert_eq!(check(&empty, &powerful, &system), Ok(AccessMask::ACCESS_SYSTEM_SECURITY));
        assert!(check(&empty, &powerful, &ask(AccessMask::WRITE_OWNER)).is_ok());
        assert!(check(&empty, &powerful, &ask(AccessMask::READ_DATA)).is_err());
        let backup = Request { backup_intent: true, ..ask(AccessMask::READ_DATA | AccessMask::WRITE_DATA) };
        assert!(check(&empty, &powerful, &backup).is_ok());
    }

    #[test]
    fn the_parent_can_give_deletion() {
        let empty = sd(1, vec![]);
        let request = Request { from_parent: AccessMask::DELETE, ..ask(AccessMask::DELETE) };
        assert_eq!(check(&empty, &token(2), &request), Ok(AccessMask::DELETE));
    }

    #[test]
    fn inherit_only_and_unknown_entries_grant_nothing() {
        let kinds = [AceType::ACCESS_ALLOWED_CALLBACK, AceType::SYSTEM_AUDIT, AceType(0x77)];
        for kind in kinds {
            let ace = Ace { kind, ..allow(Sid::EVERYONE, AccessMask::FILE_ALL) };
            assert!(check(&sd(1, vec![ace]), &token(2), &ask(AccessMask::READ_DATA)).is_err(), "{kind:?}");
        }
        let only = Ace::allow(Sid::EVERYONE, AccessMask::FILE_ALL, AceFlags::INHERIT_ONLY);
        assert!(check(&sd(1, vec![only]), &token(2), &ask(AccessMask::READ_DATA)).is_err());
        let conditional = Ace {
            kind: AceType::ACCESS_DENIED_CALLBACK,
            ..Ace::deny(Sid::EVERYONE, AccessMask::READ_DATA, AceFlags::NONE)
        };
        let list = vec![conditional, allow(Sid::EVERYONE, AccessMask::FILE_ALL)];
        assert!(check(&sd(1, list), &token(2), &ask(AccessMask::READ_DATA)).is_err());
    }

    /// The check, right by right, as the specification's loop reads.
    fn model(sd: &SecurityDescriptor, token: &Token, right: AccessMask) -> bool {
        let owner = sd.owner == Some(token.user);
        if owner && AccessMask(0x0006_0000).contains(right) {
            return true;
        }
        for ace in &sd.dacl.as_ref().unwrap().aces {
            let (sid, mask) = (ace.sid().unwrap(), ace.mask().unwrap());
            if token.is(sid) && mask.contains(right) && !ace.flags.contains(AceFlags::INHERIT_ONLY) {
                return ace.kind == AceType::ACCESS_ALLOWED;
            }
        }
        false
    }

    proptest! {
        #[test]
        fn each_right_is_decided_as_the_model_says(
            entries in prop::collection::vec((any::<bool>(), 1_u32..4, any::<u32>(), any::<bool>()), 0..8),
            owner in 1_u32..4,
            rights in any::<u32>(),
        ) {
            let aces = entries.iter().map(|(grant, who, mask, only)| {
                let mask = AccessMask(*mask) & AccessMask::FILE_ALL;
                let flags = if *only { AceFlags::INHERIT_ONLY } else { AceFlags::NONE };
                if *grant { Ace::allow(user(*who), mask, flags) } else { Ace::deny(user(*who), mask, flags) }
            }).collect();
            let (sd, token) = (sd(owner, aces), token(1));
            let all = check(&sd, &token, &ask(AccessMask::MAXIMUM_ALLOWED)).unwrap();
            for bit in (0..21).map(|bit| AccessMask(1 << bit)).filter(|bit| AccessMask::FILE_ALL.contains(*bit)) {
                prop_assert_eq!(all.contains(bit), model(&sd, &token, bit), "{:?}", bit);
            }
            let wanted = AccessMask(rights) & AccessMask::FILE_ALL;
            prop_assert_eq!(check(&sd, &token, &ask(wanted)).is_ok(), all.contains(wanted));
        }
    }
}
