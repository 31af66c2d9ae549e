//! Users and groups: who may use shares. Changes are durable in the user database when they are answered.

use std::sync::Arc;

use control_api::{
    Code, Config, Done, Password, PasswordChange, Problem, User, UserCreate, UserGroup, UserGroupCreate,
    UserGroupUpdate, UserUpdate, many,
};
use smb_protocol::security::Sid;
use smb_users::names::upper;
use smb_users::{Directory, GroupChange, NewUser, Principal, Secret, UserChange, Users, UsersError};

use super::{Node, confirm};

/// An error of the user database as a problem.
fn problem(error: &UsersError) -> Problem {
    let code = match error {
        UsersError::Name { .. } | UsersError::TooLong(_) | UsersError::Password(_) => Code::InvalidRequest,
        UsersError::Exists(_) | UsersError::Member { .. } => Code::AlreadyExists,
        UsersError::NoUser(_)
        | UsersError::NoGroup(_)
        | UsersError::NoPrincipal(_)
        | UsersError::NotMember { .. } => Code::NotFound,
        UsersError::BuiltIn(_) => Code::Unsupported,
        UsersError::Refused => Code::Forbidden,
        UsersError::Full(_) => Code::NoSpace,
        UsersError::Key { .. } | UsersError::Damaged { .. } => Code::Damaged,
        UsersError::Io { .. } => Code::Io,
        UsersError::Stopped | UsersError::Shared(_) => Code::Unavailable,
    };
    let text = error.to_string();
    let mut letters = text.chars();
    // A sentence, as all of the API.
    let detail = match letters.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
        None => text,
    };
    let problem = Problem::new(code, detail);
    match error {
        UsersError::Exists(_) => {
            problem.todo("Choose another name: users and groups share one set of names.")
        }
        UsersError::NoUser(_) => problem.todo("`holdfast user list` shows what there is."),
        UsersError::NoGroup(_) => problem.todo("`holdfast group list` shows what there is."),
        UsersError::NoPrincipal(_) => {
            problem.todo("`holdfast user list` and `holdfast group list` show who there is.")
        }
        UsersError::Password(_) => problem.todo("Choose one with at least 8 characters."),
        _ => problem,
    }
}

fn wrong(error: UsersError) -> Problem {
    problem(&error)
}

impl Node {
    pub(super) fn users(&self) -> Result<&Arc<Users>, Problem> {
        self.backends.users.as_ref().map_err(Problem::clone)
    }

    /// Whom a name means: a user, a group, a well-known principal, a SID.
    pub(super) fn principal(&self, name: &str) -> Result<Principal, Problem> {
        let machine = self.backends.smb.info().netbios_name;
        let found = self.users()?.snapshot().find_name(name, &machine);
        found.ok_or_else(|| wrong(UsersError::NoPrincipal(name.to_owned())))
    }

    /// What somebody with this SID is called.
    pub(super) fn name_of(&self, sid: Sid) -> Option<String> {
        self.users().ok()?.snapshot().find_sid(sid).map(|found| found.name)
    }

    fn describe_user(&self, users: &Users, directory: &Directory, user: &smb_users::User) -> User {
        let sessions = self.backends.smb.sessions().into_iter();
        let is_its = |name: &str| upper(name) == upper(&user.name);
        User {
            name: user.name.clone(),
            sid: user.sid.to_string(),
            full_name: user.full_name.clone(),
            comment: user.comment.clone(),
            disabled: user.disabled,
            // The last second counts as one.
            locked_seconds: users.locked_for(user.sid).map(|left| left.as_secs().max(1)),
            password_set: user.password_set / 1_000_000_000,
            groups: directory.groups_of(user.sid).map(|group| group.name.clone()).collect(),
            sessions: sessions.filter(|each| each.smb.as_ref().is_some_and(|smb| is_its(&smb.user))).count()
                as u64,
        }
    }

    /// Users, by name.
    pub fn user_list(&self) -> Result<Vec<User>, Problem> {
        let users = self.users()?;
        let directory = users.snapshot();
        let mut list: Vec<User> =
            directory.users().map(|user| self.describe_user(users, &directory, user)).collect();
        list.sort_by_key(|user| upper(&user.name));
        Ok(list)
    }

    /// A user.
    pub fn user_show(&self, name: &str) -> Result<User, Problem> {
        let users = self.users()?;
        let directory = users.snapshot();
        let user = directory.user(name).ok_or_else(|| wrong(UsersError::NoUser(name.to_owned())))?;
        Ok(self.describe_user(users, &directory, user))
    }

    /// Makes a user.
    pub async fn user_create(&self, request: UserCreate) -> Result<User, Problem> {
        let _changing = self.changes.lock().await;
        let users = self.users()?;
        let UserCreate { name, full_name, comment, disabled, groups, password: Password(password) } = request;
        // Groups first, so that a refused request leaves nothing behind.
        let directory = users.snapshot();
        for group in &groups {
            directory.group(group).ok_or_else(|| wrong(UsersError::NoGroup(group.clone())))?;
        }
        let new = NewUser { name, full_name, comment, disabled, secret: Secret::Password(password) };
        let user = users.create_user(new).map_err(wrong)?;
        for group in &groups {
            users.add_member(group, user.sid).map_err(wrong)?;
        }
        self.user_show(&user.name)
    }

    /// Changes a user; the sessions of one that may no longer be used end.
    pub async fn user_update(&self, name: &str, update: UserUpdate) -> Result<User, Problem> {
        let _changing = self.changes.lock().await;
        let UserUpdate { full_name, comment, disabled } = update;
        let change = UserChange { name: None, full_name, comment, disabled };
        let user = self.users()?.change_user(name, change).map_err(wrong)?;
        if user.disabled {
            self.end_sessions(&user.name, user.sid, "it is disabled");
        }
        self.user_show(&user.name)
    }

    /// Ends the sessions of users that another node has disabled or taken away, and logins of theirs that are under way, and
    /// closes what waits for their clients. `before` are those that there were. A user is who it is by its SID: another one may have been made under the name meanwhile.
    pub(super) fn end_sessions_of_strangers(&self, before: &Directory) {
        let Ok(users) = self.users() else { return };
        let directory = users.snapshot();
        let mut known = self.backends.smb.session_users();
        known.extend(before.users().filter(|user| !user.disabled).map(|user| user.sid));
        for sid in known {
            if directory.user_by_sid(sid).is_some_and(|user| !user.disabled) {
                continue;
            }
            let name = before.user_by_sid(sid).map_or_else(|| sid.to_string(), |user| user.name.clone());
            self.end_sessions(&name, sid, "another node has disabled it or taken it away");
        }
        let closed = self.backends.smb.close_opens_of_gone_users();
        if closed > 0 {
            tracing::info!(
                closed,
                "opens that waited for clients of users who may not log in any more are closed"
            );
        }
    }

    fn end_sessions(&self, name: &str, user: Sid, why: &str) {
        let ended = self.backends.smb.end_sessions_of(user);
        if ended > 0 {
            tracing::info!(user = name, ended, why, "sessions of a user have ended");
        }
    }

    /// Sets a user's password. Sessions that were opened with the old one go on, unless they are to end.
    pub async fn user_password(&self, name: &str, change: PasswordChange) -> Result<User, Problem> {
        let _changing = self.changes.lock().await;
        let users = self.users()?;
        let PasswordChange { password: Password(password), end_sessions } = change;
        users.set_password(name, &Secret::Password(password)).map_err(wrong)?;
        if end_sessions {
            let directory = users.snapshot();
            let user = directory.user(name).ok_or_else(|| wrong(UsersError::NoUser(name.to_owned())))?;
            self.end_sessions(&user.name, user.sid, "its password is another one");
        }
        self.user_show(name)
    }

    /// Lets a user in again that wrong passwords have locked out.
    pub fn user_unlock(&self, name: &str) -> Result<User, Problem> {
        self.users()?.unlock(name).map_err(wrong)?;
        self.user_show(name)
    }

    /// Takes a user away, from groups and permissions too.
    pub async fn user_delete(&self, name: &str, confirmed: Option<String>) -> Result<Done, Problem> {
        let _changing = self.changes.lock().await;
        let user = self.user_show(name)?;
        confirm(&user.name, confirmed.as_deref(), || {
            let opens = self.backends.smb.opens().into_iter();
            let away = opens.filter(|open| open.session.is_none() && is(&open.user, &user.name)).count();
            let with_it = match away {
                0 => many(user.sessions, "session"),
                away => format!(
                    "{} and {} whose clients are away",
                    many(user.sessions, "session"),
                    many(away as u64, "open")
                ),
            };
            let mut lost = vec![format!(
                "User {} disappears, and {} of its own with it. What it owns stays, and no user will ever be the same one again.",
                user.name, with_it
            )];
            lost.extend(self.permissions_lost(&user.sid));
            lost
        })?;
        let removed = self.users()?.remove_user(&user.name).map_err(wrong)?;
        self.end_sessions(&removed.name, removed.sid, "it is deleted");
        self.drop_permissions(&removed.sid.to_string()).await?;
        Ok(Done::new(format!("User {} is gone.", removed.name)))
    }

    /// What somebody with this SID loses who disappears, in words.
    fn permissions_lost(&self, sid: &str) -> Option<String> {
        let has_one = |config: &Config| -> Vec<String> {
            let of =
                config.shares.iter().filter(|share| share.permissions.iter().any(|each| each.who == sid));
            of.map(|share| share.name.clone()).collect()
        };
        let shares = self.config.with(has_one);
        (!shares.is_empty()).then(|| format!("Its permissions for shares {} go with it.", shares.join(", ")))
    }

    /// Takes somebody who has disappeared out of all permissions.
    async fn drop_permissions(&self, sid: &str) -> Result<(), Problem> {
        if self.permissions_lost(sid).is_none() {
            return Ok(());
        }
        self.change(|config| {
            for share in &mut config.shares {
                share.permissions.retain(|each| each.who != sid);
            }
            Ok(())
        })
        .await
    }

    /// Groups of users: the node's own first, then built-in ones, by name.
    pub fn user_group_list(&self) -> Result<Vec<UserGroup>, Problem> {
        let directory = self.users()?.snapshot();
        let mut list: Vec<UserGroup> =
            directory.groups().map(|group| describe_group(&directory, group)).collect();
        list.sort_by_key(|group| (group.built_in, upper(&group.name)));
        Ok(list)
    }

    /// A group of users.
    pub fn user_group_show(&self, name: &str) -> Result<UserGroup, Problem> {
        let directory = self.users()?.snapshot();
        let group = directory.group(name).ok_or_else(|| wrong(UsersError::NoGroup(name.to_owned())))?;
        Ok(describe_group(&directory, group))
    }

    /// Makes a group of users.
    pub async fn user_group_create(&self, request: UserGroupCreate) -> Result<UserGroup, Problem> {
        let _changing = self.changes.lock().await;
        let users = self.users()?;
        let members: Vec<Principal> =
            request.members.iter().map(|name| self.principal(name)).collect::<Result<_, _>>()?;
        let group = users.create_group(&request.name, &request.comment).map_err(wrong)?;
        for member in members {
            users.add_member(&group.name, member.sid).map_err(wrong)?;
        }
        self.user_group_show(&group.name)
    }

    /// Changes a group of users.
    pub async fn user_group_update(&self, name: &str, update: UserGroupUpdate) -> Result<UserGroup, Problem> {
        let _changing = self.changes.lock().await;
        let users = self.users()?;
        let find =
            |names: &[String]| names.iter().map(|name| self.principal(name)).collect::<Result<Vec<_>, _>>();
        // Names first, so that a wrong one changes nothing.
        let (add, remove) = (find(&update.add)?, find(&update.remove)?);
        if update.comment.is_some() {
            let change = GroupChange { name: None, comment: update.comment };
            users.change_group(name, &change).map_err(wrong)?;
        }
        for member in add {
            users.add_member(name, member.sid).map_err(wrong)?;
        }
        for member in remove {
            users.remove_member(name, member.sid).map_err(wrong)?;
        }
        self.user_group_show(name)
    }

    /// Takes a group of users away, from other groups and permissions too.
    pub async fn user_group_delete(&self, name: &str, confirmed: Option<String>) -> Result<Done, Problem> {
        let _changing = self.changes.lock().await;
        let group = self.user_group_show(name)?;
        if group.built_in {
            return Err(wrong(UsersError::BuiltIn(group.name)));
        }
        confirm(&group.name, confirmed.as_deref(), || {
            let mut lost =
                vec![format!("Group {} disappears; its {} members stay.", group.name, group.members.len())];
            lost.extend(self.permissions_lost(&group.sid));
            lost.extend(self.roles_lost(&group.sid));
            lost
        })?;
        let removed = self.users()?.remove_group(&group.name).map_err(wrong)?;
        if !self.roles_lost(&group.sid).is_empty() {
            self.change(|config| {
                super::access::roles::drop_roles(config, &group.sid);
                Ok(())
            })
            .await?;
        }
        self.drop_permissions(&removed.sid.to_string()).await?;
        Ok(Done::new(format!("Group {} is gone.", removed.name)))
    }
}

fn is(who: &str, name: &str) -> bool {
    upper(who) == upper(name)
}

fn describe_group(directory: &Directory, group: &smb_users::Group) -> UserGroup {
    let member = |sid: &Sid| directory.find_sid(*sid).map_or_else(|| sid.to_string(), |found| found.name);
    UserGroup {
        name: group.name.clone(),
        sid: group.sid.to_string(),
        comment: group.comment.clone(),
        built_in: group.is_built_in(),
        members: group.members.iter().map(member).collect(),
    }
}
