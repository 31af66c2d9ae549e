//! The descriptor of a share's folder, made from the share's permissions.

use smb_protocol::access::AccessMask;
use smb_protocol::security::{Ace, AceFlags, Acl, Control, SecurityDescriptor, Sid};

/// What somebody may do through a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// List and read.
    Read,
    /// Also make, change and delete.
    Change,
    /// Also change permissions and take ownership.
    Full,
}

impl Level {
    /// The rights.
    #[must_use]
    pub fn rights(self) -> AccessMask {
        match self {
            // As Windows' share permissions and its own words for NTFS rights: "Read & execute", "Modify", "Full control".
            Self::Read => AccessMask::FILE_READ | AccessMask::FILE_EXECUTE,
            Self::Change => {
                AccessMask::FILE_READ | AccessMask::FILE_WRITE | AccessMask::FILE_EXECUTE | AccessMask::DELETE
            }
            Self::Full => AccessMask::FILE_ALL,
        }
    }
}

/// Somebody's permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Who.
    pub sid: Sid,
    /// What.
    pub level: Level,
}

/// The descriptor of a folder that grants, there and below, what the permissions say; SYSTEM and Administrators may do
/// everything, and who makes a file may change its permissions. Protected: nothing comes from above.
#[must_use]
pub fn folder(permissions: &[Permission]) -> SecurityDescriptor {
    let down = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT;
    let mut aces = vec![
        Ace::allow(Sid::SYSTEM, AccessMask::FILE_ALL, down),
        Ace::allow(Sid::ADMINISTRATORS, AccessMask::FILE_ALL, down),
    ];
    let others = permissions.iter().filter(|p| p.sid != Sid::SYSTEM && p.sid != Sid::ADMINISTRATORS);
    aces.extend(others.map(|p| Ace::allow(p.sid, p.level.rights(), down)));
    SecurityDescriptor {
        // AUTO_INHERITED: what is made below is marked as inherited, so that Windows hands changes of it down.
        control: Control::SELF_RELATIVE
            | Control::DACL_PRESENT
            | Control::DACL_PROTECTED
            | Control::DACL_AUTO_INHERITED,
        owner: Some(Sid::ADMINISTRATORS),
        group: Some(Sid::SYSTEM),
        sacl: None,
        dacl: Some(Acl { aces }),
    }
}

/// What a user may do through a share with these permissions: the union of those that speak of the user or its groups.
#[must_use]
pub fn share_access(permissions: &[Permission], token: &crate::Token) -> AccessMask {
    let mine = permissions.iter().filter(|p| token.is(&p.sid));
    mine.fold(AccessMask::NONE, |sum, p| sum | p.level.rights())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Request, Token, check};

    #[test]
    fn folders_grant_what_shares_do() {
        let sid: Sid = "S-1-5-21-1-2-3-1001".parse().unwrap();
        let other: Sid = "S-1-5-21-1-2-3-1002".parse().unwrap();
        let permissions =
            [Permission { sid, level: Level::Change }, Permission { sid: Sid::EVERYONE, level: Level::Read }];
        let sd = folder(&permissions);
        let ask = |token: &Token, desired| check(&sd, token, &Request { desired, ..Request::default() });
        let (mine, theirs) =
            (Token::new(sid, Sid::USERS, &[], false), Token::new(other, Sid::USERS, &[], false));
        assert!(ask(&mine, AccessMask::WRITE_DATA | AccessMask::DELETE).is_ok());
        assert!(ask(&mine, AccessMask::WRITE_DAC).is_err());
        assert!(ask(&theirs, AccessMask::READ_DATA).is_ok());
        assert!(ask(&theirs, AccessMask::WRITE_DATA).is_err());
        assert!(ask(&Token::new(other, Sid::USERS, &[], true), AccessMask::FILE_ALL).is_ok());
        assert_eq!(share_access(&permissions, &theirs), Level::Read.rights());
        assert!(share_access(&permissions, &mine).contains(Level::Change.rights()));
        assert_eq!(share_access(&[], &mine), AccessMask::NONE);
    }
}
