//! Who asks.

use smb_protocol::security::Sid;

/// Privileges that matter for files (MS-LSAD 3.1.1.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// SeSecurityPrivilege: read and write SACLs.
    pub security: bool,
    /// SeBackupPrivilege: read anything, when the open says that it is for backup.
    pub backup: bool,
    /// SeRestorePrivilege: write anything then, and make anybody the owner.
    pub restore: bool,
    /// SeTakeOwnershipPrivilege: become the owner of anything.
    pub take_ownership: bool,
}

impl Privileges {
    /// What administrators have.
    pub const ADMINISTRATOR: Self =
        Self { security: true, backup: true, restore: true, take_ownership: true };
}

/// A user with groups and privileges, as a session has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The user.
    pub user: Sid,
    /// The primary group: a new file's group.
    pub primary_group: Sid,
    /// All groups, well-known ones (Everyone, Authenticated Users, Network …) included.
    pub groups: Vec<Sid>,
    /// Privileges.
    pub privileges: Privileges,
    /// Whether the user administers this machine.
    pub is_admin: bool,
}

impl Token {
    /// A user with groups, and in Everyone, Network and Authenticated Users; with all privileges and in Administrators
    /// if `is_admin`.
    #[must_use]
    pub fn new(user: Sid, primary_group: Sid, groups: &[Sid], is_admin: bool) -> Self {
        let mut all = vec![primary_group, Sid::EVERYONE, Sid::NETWORK, Sid::AUTHENTICATED_USERS];
        if is_admin {
            all.push(Sid::ADMINISTRATORS);
        }
        all.extend(groups);
        all.sort_unstable();
        all.dedup();
        let privileges = if is_admin { Privileges::ADMINISTRATOR } else { Privileges::default() };
        Self { user, primary_group, groups: all, privileges, is_admin }
    }

    /// The server itself: SYSTEM with all privileges.
    #[must_use]
    pub fn system() -> Self {
        let groups = vec![Sid::EVERYONE, Sid::AUTHENTICATED_USERS, Sid::ADMINISTRATORS];
        Self {
            user: Sid::SYSTEM,
            primary_group: Sid::SYSTEM,
            groups,
            privileges: Privileges::ADMINISTRATOR,
            is_admin: true,
        }
    }

    /// Whether the user is, or is in, `sid` (MS-DTYP 2.5.3.1.1 SidInToken).
    #[must_use]
    pub fn is(&self, sid: &Sid) -> bool {
        self.user == *sid || self.groups.contains(sid)
    }

    /// Whether the user may make `sid` the owner of something (MS-DTYP 2.5.3.4.2): itself, a group that it is in and
    /// that may own (Administrators), or anybody with the restore privilege.
    #[must_use]
    pub fn may_make_owner(&self, sid: &Sid) -> bool {
        *sid == self.user || (*sid == Sid::ADMINISTRATORS && self.is(sid)) || self.privileges.restore
    }
}
