//! Users and groups as a value: every change is checked here, and nothing is written.

use std::collections::BTreeMap;

use smb_auth::NtHash;
use smb_protocol::security::sid::Sid;

use crate::error::UsersError;
use crate::names::{self, upper};
use crate::well_known::{self, Authority, BUILT_IN, NONE_NAME, Principal, PrincipalKind, RID_NONE, built_in};

/// The number of the first account; those below are kept for accounts that Windows defines.
pub const FIRST_RID: u32 = 1000;
/// Most users and most groups: the file is written as a whole, and stays below some tens of megabytes.
pub const ACCOUNTS_MAX: usize = 65_536;
/// Most members of a group.
pub const MEMBERS_MAX: usize = ACCOUNTS_MAX;

/// A user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Who it is.
    pub sid: Sid,
    /// What it is called.
    pub name: String,
    /// The person's name.
    pub full_name: String,
    /// What it is for.
    pub comment: String,
    /// Whether it may not be used.
    pub disabled: bool,
    /// When the password was set, in nanoseconds since 1970.
    pub password_set: u64,
    /// The password's hash.
    pub nt_hash: NtHash,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Who it is.
    pub sid: Sid,
    /// What it is called.
    pub name: String,
    /// What it is for.
    pub comment: String,
    /// Its members: users and groups of this machine, well-known principals, or principals of a directory service; in
    /// order.
    pub members: Vec<Sid>,
}

impl Group {
    /// Whether the system made it.
    #[must_use]
    pub fn is_built_in(&self) -> bool {
        self.sid.sub_authorities().first() == Some(&32)
    }
}

/// What proves a user.
#[derive(Clone, Debug)]
pub enum Secret {
    /// A password; only its hash is kept, and the text is the caller's to wipe.
    Password(String),
    /// The hash of one, from another server's database.
    Hash(NtHash),
}

/// All of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    machine: Sid,
    next_rid: u32,
    users: BTreeMap<u32, User>,
    groups: BTreeMap<Sid, Group>,
    /// The entries by the upper case of their names.
    names: BTreeMap<String, Sid>,
}

impl Directory {
    /// A machine with the built-in groups and no users. `machine` are random numbers, which make its SIDs its own.
    #[must_use]
    pub fn new(machine: [u32; 3]) -> Self {
        let [a, b, c] = machine;
        let machine = Sid::new(5, &[21, a, b, c]).unwrap_or(Sid::ANONYMOUS);
        let mut new = Self {
            machine,
            next_rid: FIRST_RID,
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            names: BTreeMap::new(),
        };
        for (rid, name, comment) in BUILT_IN {
            let sid = built_in(rid);
            let members = if sid == Sid::USERS { vec![Sid::AUTHENTICATED_USERS] } else { Vec::new() };
            new.names.insert(upper(name), sid);
            let (name, comment) = (name.to_owned(), comment.to_owned());
            new.groups.insert(sid, Group { sid, name, comment, members });
        }
        new
    }

    /// The machine's SID.
    #[must_use]
    pub fn machine(&self) -> Sid {
        self.machine
    }

    /// The number that the next account gets.
    #[must_use]
    pub fn next_rid(&self) -> u32 {
        self.next_rid
    }

    /// All users, oldest first.
    pub fn users(&self) -> impl Iterator<Item = &User> {
        self.users.values()
    }

    /// All groups, by SID.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    /// A user by name.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&User> {
        self.user_by_sid(*self.names.get(&upper(name))?)
    }

    /// A user by SID.
    #[must_use]
    pub fn user_by_sid(&self, sid: Sid) -> Option<&User> {
        self.users.get(&sid.rid()?).filter(|user| user.sid == sid)
    }

    /// A group by name.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(self.names.get(&upper(name))?)
    }

    /// A group by SID.
    #[must_use]
    pub fn group_by_sid(&self, sid: Sid) -> Option<&Group> {
        self.groups.get(&sid)
    }

    /// What a user or group with this SID is called now.
    ///
    /// # Errors
    /// When there is none (any more).
    pub fn name_of(&self, sid: Sid) -> Result<String, UsersError> {
        let name = self.user_by_sid(sid).map(|user| &user.name);
        let name = name.or_else(|| self.group_by_sid(sid).map(|group| &group.name));
        name.cloned().ok_or_else(|| UsersError::NoPrincipal(sid.to_string()))
    }

    /// The groups that have this member, not those that have these groups.
    pub fn groups_of(&self, member: Sid) -> impl Iterator<Item = &Group> {
        self.groups().filter(move |group| group.members.binary_search(&member).is_ok())
    }

    /// Whom a name means: `bob`, `BUILTIN\Users`, `server\bob` where the machine is called so, or a SID that is known
    /// here.
    #[must_use]
    pub fn find_name(&self, name: &str, machine: &str) -> Option<Principal> {
        if let Ok(sid) = name.parse() {
            return self.find_sid(sid);
        }
        let (domain, name) =
            name.split_once('\\').map_or((None, name), |(domain, name)| (Some(domain), name));
        let wanted = upper(name);
        let ours = self.names.get(&wanted).and_then(|sid| self.find_sid(*sid));
        let everywhere = || {
            let (sid, _, _) = well_known::principals().into_iter().find(|known| upper(known.2) == wanted)?;
            self.find_sid(sid)
        };
        let none = || self.find_sid(self.machine.child(RID_NONE)?).filter(|_| wanted == upper(NONE_NAME));
        let found = ours.or_else(everywhere).or_else(none)?;
        let right = |domain: &str| domain == "." || upper(domain) == upper(found.authority.name(machine));
        if domain.is_none_or(right) { Some(found) } else { None }
    }

    /// Whom a SID means.
    #[must_use]
    pub fn find_sid(&self, sid: Sid) -> Option<Principal> {
        let named = |authority, name: &str, kind| Principal { sid, authority, name: name.to_owned(), kind };
        if let Some(user) = self.user_by_sid(sid) {
            return Some(named(Authority::Machine, &user.name, PrincipalKind::User));
        }
        if let Some(group) = self.group_by_sid(sid) {
            let authority = if group.is_built_in() { Authority::Builtin } else { Authority::Machine };
            return Some(named(authority, &group.name, PrincipalKind::Alias));
        }
        if sid == self.machine {
            return Some(named(Authority::Machine, "", PrincipalKind::Domain));
        }
        if self.machine.child(RID_NONE) == Some(sid) {
            return Some(named(Authority::Machine, NONE_NAME, PrincipalKind::Group));
        }
        well_known::principals()
            .into_iter()
            .find(|known| known.0 == sid)
            .map(|(_, authority, name)| named(authority, name, PrincipalKind::WellKnown))
    }

    /// Somebody's name with the SID, or the SID of whom nobody here knows.
    #[must_use]
    pub fn called(&self, sid: Sid) -> String {
        let name = self.find_sid(sid).map(|found| found.name).filter(|name| !name.is_empty());
        name.map_or_else(|| sid.to_string(), |name| format!("{name} ({sid})"))
    }

    fn free_name(&self, name: &str) -> Result<(), UsersError> {
        let wanted = upper(name);
        let taken = self.names.contains_key(&wanted)
            || wanted == upper(NONE_NAME)
            || well_known::principals().iter().any(|known| upper(known.2) == wanted);
        if taken { Err(UsersError::Exists(name.to_owned())) } else { Ok(()) }
    }

    /// A number that no account has had.
    fn take_rid(&mut self) -> Result<(u32, Sid), UsersError> {
        let rid = self.next_rid;
        let sid = self.machine.child(rid).ok_or(UsersError::Full("accounts"))?;
        self.next_rid = rid.checked_add(1).ok_or(UsersError::Full("accounts"))?;
        Ok((rid, sid))
    }

    /// Adds a user; its SID and the rest of its fields but the name are as given, the SID excepted, which is new.
    ///
    /// # Errors
    /// When the name cannot be one or is taken, a text is too long, or there are too many.
    pub fn add_user(&mut self, mut user: User) -> Result<&User, UsersError> {
        names::check_user(&user.name)?;
        names::check_text(&user.full_name, "full name")?;
        names::check_text(&user.comment, "comment")?;
        self.free_name(&user.name)?;
        if self.users.len() >= ACCOUNTS_MAX {
            return Err(UsersError::Full("users"));
        }
        let (rid, sid) = self.take_rid()?;
        user.sid = sid;
        self.names.insert(upper(&user.name), sid);
        Ok(self.users.entry(rid).or_insert(user))
    }

    /// Changes fields of a user; the SID stays whatever `change` does.
    ///
    /// # Errors
    /// The same as those of [`Directory::add_user`], and when there is no such user.
    pub fn change_user(&mut self, name: &str, change: impl FnOnce(&mut User)) -> Result<&User, UsersError> {
        let old = self.user(name).ok_or_else(|| UsersError::NoUser(name.to_owned()))?;
        let mut new = old.clone();
        change(&mut new);
        new.sid = old.sid;
        let (before, after) = (upper(&old.name), upper(&new.name));
        names::check_user(&new.name)?;
        names::check_text(&new.full_name, "full name")?;
        names::check_text(&new.comment, "comment")?;
        if before != after {
            self.free_name(&new.name)?;
            self.names.remove(&before);
            self.names.insert(after, new.sid);
        }
        let rid = new.sid.rid().unwrap_or_default();
        self.users.insert(rid, new);
        self.users.get(&rid).ok_or_else(|| UsersError::NoUser(name.to_owned()))
    }

    /// Removes a user, from groups too.
    ///
    /// # Errors
    /// When there is none.
    pub fn remove_user(&mut self, name: &str) -> Result<User, UsersError> {
        let sid = self.user(name).ok_or_else(|| UsersError::NoUser(name.to_owned()))?.sid;
        let user = sid.rid().and_then(|rid| self.users.remove(&rid));
        self.forget(sid, name);
        user.ok_or_else(|| UsersError::NoUser(name.to_owned()))
    }

    /// Adds a group without members.
    ///
    /// # Errors
    /// When the name cannot be one or is taken, the comment is too long, or there are too many.
    pub fn add_group(&mut self, name: &str, comment: &str) -> Result<&Group, UsersError> {
        names::check_group(name)?;
        names::check_text(comment, "comment")?;
        self.free_name(name)?;
        if self.groups.len() >= ACCOUNTS_MAX {
            return Err(UsersError::Full("groups"));
        }
        let (_, sid) = self.take_rid()?;
        self.names.insert(upper(name), sid);
        let (name, comment) = (name.to_owned(), comment.to_owned());
        Ok(self.groups.entry(sid).or_insert(Group { sid, name, comment, members: Vec::new() }))
    }

    fn group_mut(&mut self, name: &str) -> Result<&mut Group, UsersError> {
        let sid = self.names.get(&upper(name));
        sid.and_then(|sid| self.groups.get_mut(sid)).ok_or_else(|| UsersError::NoGroup(name.to_owned()))
    }

    /// Renames a group or changes its comment.
    ///
    /// # Errors
    /// The same as those of [`Directory::add_group`], when there is none, or a built-in one would be renamed.
    pub fn change_group(
        &mut self,
        name: &str,
        new_name: Option<&str>,
        comment: Option<&str>,
    ) -> Result<&Group, UsersError> {
        let (sid, built_in, before) = {
            let group = self.group_mut(name)?;
            (group.sid, group.is_built_in(), upper(&group.name))
        };
        if let Some(comment) = comment {
            names::check_text(comment, "comment")?;
        }
        if let Some(new_name) = new_name {
            if built_in {
                return Err(UsersError::BuiltIn(name.to_owned()));
            }
            names::check_group(new_name)?;
            if upper(new_name) != before {
                self.free_name(new_name)?;
                self.names.remove(&before);
                self.names.insert(upper(new_name), sid);
            }
        }
        let group = self.groups.get_mut(&sid).ok_or_else(|| UsersError::NoGroup(name.to_owned()))?;
        if let Some(new_name) = new_name {
            new_name.clone_into(&mut group.name);
        }
        if let Some(comment) = comment {
            comment.clone_into(&mut group.comment);
        }
        Ok(group)
    }

    /// Removes a group, from other groups too.
    ///
    /// # Errors
    /// When there is none, or it is built in.
    pub fn remove_group(&mut self, name: &str) -> Result<Group, UsersError> {
        let group = self.group_mut(name)?;
        if group.is_built_in() {
            return Err(UsersError::BuiltIn(name.to_owned()));
        }
        let sid = group.sid;
        let group = self.groups.remove(&sid);
        self.forget(sid, name);
        group.ok_or_else(|| UsersError::NoGroup(name.to_owned()))
    }

    fn forget(&mut self, sid: Sid, name: &str) {
        self.names.remove(&upper(name));
        self.groups.values_mut().for_each(|group| group.members.retain(|member| *member != sid));
    }

    /// Puts somebody into a group. A SID of this machine must exist; others may be a directory service's.
    ///
    /// # Errors
    /// When there is no such group or member, it is a member already, it is the group, or there are too many.
    pub fn add_member(&mut self, group: &str, member: Sid) -> Result<(), UsersError> {
        let foreign = member.domain() != Some(self.machine) && member != self.machine;
        if !(foreign || self.find_sid(member).is_some()) {
            return Err(UsersError::NoPrincipal(member.to_string()));
        }
        let into = self.group_mut(group)?.sid;
        if let Some(chain) = self.chain(member, into) {
            return Err(UsersError::Circle { group: group.to_owned(), chain });
        }
        let found = self.group_mut(group)?;
        if found.members.len() >= MEMBERS_MAX {
            return Err(UsersError::Full("members of this group"));
        }
        match found.members.binary_search(&member) {
            Err(at) => found.members.insert(at, member),
            Ok(_) => {
                return Err(UsersError::Member { group: group.to_owned(), member: self.called(member) });
            }
        }
        Ok(())
    }

    /// The names of the groups that lead from `outer`, by way of members that are groups, to `inner`, both among them; `None` where `inner` is
    /// not in `outer`. A group is in itself.
    fn chain(&self, outer: Sid, inner: Sid) -> Option<Vec<String>> {
        // Each group by the one that it was found in. What was found is not looked at again, so this ends in a circle, too.
        let mut found: BTreeMap<Sid, Option<Sid>> = BTreeMap::from([(outer, None)]);
        let mut waiting = vec![outer];
        while let Some(sid) = waiting.pop().filter(|sid| *sid != inner) {
            for member in self.groups.get(&sid).iter().flat_map(|group| &group.members) {
                if self.groups.contains_key(member) && !found.contains_key(member) {
                    found.insert(*member, Some(sid));
                    waiting.push(*member);
                }
            }
            if found.contains_key(&inner) {
                break;
            }
        }
        let mut at = found.contains_key(&inner).then_some(inner);
        at?;
        let mut chain = Vec::new();
        while let Some(sid) = at {
            chain.push(self.groups.get(&sid).map_or_else(|| sid.to_string(), |group| group.name.clone()));
            at = found.get(&sid).copied().flatten();
        }
        chain.reverse();
        Some(chain)
    }

    /// Takes somebody out of a group.
    ///
    /// # Errors
    /// When there is no such group, or it is no member.
    pub fn remove_member(&mut self, group: &str, member: Sid) -> Result<(), UsersError> {
        let called = self.called(member);
        let found = self.group_mut(group)?;
        let at = found
            .members
            .binary_search(&member)
            .map_err(|_| UsersError::NotMember { group: group.to_owned(), member: called })?;
        found.members.remove(at);
        Ok(())
    }

    /// Puts back what was written: `None` where no directory could have been so.
    pub(crate) fn restore(
        machine: [u32; 3],
        next_rid: u32,
        users: Vec<(u32, User)>,
        groups: Vec<(u32, Group)>,
    ) -> Option<Self> {
        let mut all = Self::new(machine);
        for (rid, mut user) in users {
            names::check_user(&user.name).ok()?;
            all.free_name(&user.name).ok()?;
            user.sid = all.machine.child(rid)?;
            all.names.insert(upper(&user.name), user.sid);
            if !(FIRST_RID..next_rid).contains(&rid) || all.users.insert(rid, user).is_some() {
                return None;
            }
        }
        for (rid, mut group) in groups {
            if !group.members.is_sorted_by(|a, b| a < b) {
                return None;
            }
            if let Some(built_in) = all.groups.get_mut(&built_in(rid)) {
                built_in.members = group.members;
                built_in.comment = group.comment;
                continue;
            }
            names::check_group(&group.name).ok()?;
            all.free_name(&group.name).ok()?;
            group.sid = all.machine.child(rid)?;
            all.names.insert(upper(&group.name), group.sid);
            let known = all.users.contains_key(&rid) || !(FIRST_RID..next_rid).contains(&rid);
            if known || all.groups.insert(group.sid, group).is_some() {
                return None;
            }
        }
        all.next_rid = next_rid.max(FIRST_RID);
        Some(all)
    }
}

#[cfg(test)]
mod tests;
