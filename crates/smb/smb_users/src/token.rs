//! Who somebody is to an access check (MS-DTYP 2.5.2).

use std::collections::BTreeSet;

use smb_protocol::security::sid::Sid;

use crate::directory::Directory;
use crate::well_known::{RID_NONE, local_account, local_administrator, ntlm_authentication};

/// The SIDs that access checks compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The user: the owner of what it creates.
    pub user: Sid,
    /// The group of what it creates.
    pub primary_group: Sid,
    /// All groups, the primary one among them, in order and without repetition.
    pub groups: Vec<Sid>,
}

impl Token {
    /// The token of a user: its groups, the groups of these, and what everybody is who came over the network with a password.
    #[must_use]
    pub fn of_user(directory: &Directory, user: Sid) -> Self {
        let primary = directory.machine().child(RID_NONE).unwrap_or(Sid::USERS);
        let who = [
            Sid::EVERYONE,
            Sid::NETWORK,
            Sid::AUTHENTICATED_USERS,
            ntlm_authentication(),
            local_account(),
            primary,
        ];
        let mut token = Self::expand(directory, user, primary, &who);
        if token.is_administrator() {
            token.add(local_administrator());
        }
        token
    }

    /// The token of an anonymous client. It is not even part of Everyone, as on Windows since XP.
    #[must_use]
    pub fn anonymous() -> Self {
        Self { user: Sid::ANONYMOUS, primary_group: Sid::ANONYMOUS, groups: vec![Sid::NETWORK] }
    }

    /// The token of a user whom a directory service knows: `groups` are those that it named. What the machine knows of them, such
    /// as that they are administrators here, comes to it.
    #[must_use]
    pub fn of_foreigner(directory: &Directory, user: Sid, primary_group: Sid, groups: &[Sid]) -> Self {
        let everybody = [Sid::EVERYONE, Sid::NETWORK, Sid::AUTHENTICATED_USERS, primary_group];
        Self::expand(directory, user, primary_group, &[&everybody, groups].concat())
    }

    fn expand(directory: &Directory, user: Sid, primary_group: Sid, groups: &[Sid]) -> Self {
        let mut known: BTreeSet<Sid> = groups.iter().copied().collect();
        known.insert(user);
        // Groups may have groups as members. Each turn finds at least one more, so this ends, in a circle too.
        loop {
            let more: Vec<Sid> = directory
                .groups()
                .filter(|group| !known.contains(&group.sid))
                .filter(|group| group.members.iter().any(|member| known.contains(member)))
                .map(|group| group.sid)
                .collect();
            if more.is_empty() {
                break;
            }
            known.extend(more);
        }
        known.remove(&user);
        Self { user, primary_group, groups: known.into_iter().collect() }
    }

    fn add(&mut self, group: Sid) {
        if let Err(at) = self.groups.binary_search(&group) {
            self.groups.insert(at, group);
        }
    }

    /// Whether this is the user or one of the groups.
    #[must_use]
    pub fn is(&self, sid: Sid) -> bool {
        self.user == sid || self.groups.binary_search(&sid).is_ok()
    }

    /// Whether it belongs to an administrator of the machine.
    #[must_use]
    pub fn is_administrator(&self) -> bool {
        self.is(Sid::ADMINISTRATORS)
    }

    /// Whether it may pass over permissions to back up and restore files.
    #[must_use]
    pub fn is_backup_operator(&self) -> bool {
        self.is(Sid::BACKUP_OPERATORS)
    }

    /// Whether nobody in particular has it.
    #[must_use]
    pub fn is_anonymous(&self) -> bool {
        self.user == Sid::ANONYMOUS
    }
}
