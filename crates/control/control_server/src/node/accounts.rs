//! Users: who may use shares. Groups are in `user_groups`. Changes are durable in the user database when they are answered.

use std::sync::Arc;

use control_api::{
    AccountRename, Code, Done, EventKind, HeldPermission, Password, PasswordChange, Problem, SmbOpen, User,
    UserCreate, UserUpdate,
};
use smb_protocol::security::Sid;
use smb_users::names::upper;
use smb_users::{Directory, NewUser, Principal, Secret, UserChange, Users, UsersError};

use super::all_sessions::{AllSessions, OfAll, is_session_of};
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
        UsersError::Circle { .. } => Code::InvalidRequest,
        UsersError::Refused => Code::Forbidden,
        UsersError::Full(_) => Code::NoSpace,
        UsersError::Key { .. } | UsersError::Damaged { .. } => Code::Damaged,
        UsersError::Io { .. } => Code::Io,
        UsersError::Stopped | UsersError::Shared(_) => Code::Unavailable,
    };
    let text = error.to_string();
    let mut letters = text.chars();
    // A sentence, as all of the API; a name that it begins with stays as it is.
    let is_name = matches!(error, UsersError::Member { .. } | UsersError::NotMember { .. });
    let detail = match letters.next() {
        Some(_) if is_name => format!("{text}."),
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
        UsersError::Circle { chain, .. } if chain.len() < 2 => problem.todo("Nothing was changed. Name another member."),
        UsersError::Circle { .. } => problem.todo(
            "Take one of these memberships away first: `holdfast group list` shows them, `holdfast group remove` ends one.",
        ),
        _ => problem,
    }
}

pub(super) fn wrong(error: UsersError) -> Problem {
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

    /// The user who has this name now. Whatever follows is about it by its SID, whoever else has the name by then.
    fn user_sid(&self, name: &str) -> Result<Sid, Problem> {
        let of = |directory: &Directory| directory.user(name).map(|user| user.sid);
        self.sid_of(of)?.ok_or_else(|| wrong(UsersError::NoUser(name.to_owned())))
    }

    /// Whom this finds among users and groups; where it finds nobody, also among those that another node has just made.
    pub(super) fn sid_of(&self, find: impl Fn(&Directory) -> Option<Sid>) -> Result<Option<Sid>, Problem> {
        let users = self.users()?;
        let found = find(&users.snapshot());
        if found.is_some() || self.catch_up_users().is_err() {
            return Ok(found);
        }
        Ok(find(&users.snapshot()))
    }

    /// What somebody with this SID is called.
    pub(super) fn name_of(&self, sid: Sid) -> Option<String> {
        self.users().ok()?.snapshot().find_sid(sid).map(|found| found.name)
    }

    fn describe_user(&self, users: &Users, directory: &Directory, user: &smb_users::User) -> User {
        let sid = user.sid.to_string();
        let sessions = self.backends.smb.sessions().into_iter().filter_map(|session| session.smb);
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
            sessions: sessions.filter(|smb| is_session_of(smb, &user.name, &sid)).count() as u64,
            permissions: self.permissions_of(&sid),
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
        let groups = groups.iter().map(|group| self.group_sid(group));
        let groups = groups.collect::<Result<_, _>>()?;
        let secret = Secret::Password(password);
        let new = NewUser { name, full_name, comment, disabled, groups, secret };
        let user = users.create_user(new).map_err(wrong)?;
        self.user_show(&user.name)
    }

    /// Changes a user; the sessions of one that may no longer be used end, of which is asked first.
    pub async fn user_update(&self, name: &str, update: UserUpdate) -> Result<User, Problem> {
        let connected = match update.disabled {
            Some(true) => Some((self.sessions_elsewhere().await, self.opens_elsewhere().await)),
            _ => None,
        };
        let _changing = self.changes.lock().await;
        let UserUpdate { full_name, comment, disabled, confirm: confirmed } = update;
        let users = self.users()?;
        let sid = self.user_sid(name)?;
        let mut after = Directory::clone(&users.snapshot());
        if let Some((sessions, opens)) = connected {
            let connected = (self.all_sessions(sessions), self.all_opens(opens));
            let name = after.name_of(sid).map_err(wrong)?;
            let user = after.change_user(&name, |user| user.disabled = true).map_err(wrong)?.clone();
            let told = self.ending_with(&user, &after, &connected);
            if !told.is_empty() {
                confirm(&user.name, confirmed.as_deref(), || told)?;
            }
        }
        let change = UserChange { name: None, full_name, comment, disabled };
        let user = users.change_user(sid, &change).map_err(wrong)?;
        if user.disabled {
            self.end_sessions(&user.name, user.sid, "it is disabled");
        }
        self.user_show(&user.name)
    }

    /// What ends of a user's where users and groups are those of `after`, in sentences.
    fn ending_with(
        &self,
        user: &smb_users::User,
        after: &Directory,
        connected: &(AllSessions, OfAll<SmbOpen>),
    ) -> Vec<String> {
        let mut told = Self::share_sessions_ending(&user.name, user.sid, connected);
        let http = self.config.with(|config| config.http.clone());
        told.extend(self.api_sessions_ending(after, &http));
        told
    }

    /// Gives a user another name. It stays who it is: its groups, permissions, files and sessions go on.
    ///
    /// # Errors
    /// When there is no such user, or the name is taken or cannot be one.
    pub async fn user_rename(&self, name: &str, request: AccountRename) -> Result<User, Problem> {
        let _changing = self.changes.lock().await;
        let change = UserChange { name: Some(request.name), ..UserChange::default() };
        let sid = self.user_sid(name)?;
        let user = self.users()?.change_user(sid, &change).map_err(wrong)?;
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
        let changing = self.changes.lock().await;
        let users = self.users()?;
        let PasswordChange { password: Password(password), end_sessions } = change;
        let sid = self.user_sid(name)?;
        users.set_password(sid, &Secret::Password(password)).map_err(wrong)?;
        // None whom another node has taken away by now; its sessions end by that.
        let now = users.snapshot();
        let user = now.user_by_sid(sid).ok_or_else(|| wrong(UsersError::NoUser(name.to_owned())))?;
        let set = user.password_set / 1_000_000_000;
        drop(changing);
        if end_sessions {
            self.end_sessions(name, sid, "its password is another one");
            let left = self.end_sessions_elsewhere(name, sid, set).await;
            if !left.is_empty() {
                self.events().tell(EventKind::Changed, "/users");
                let left = left.join(", ");
                let detail = format!(
                    "The password of {name} is another one now, and sessions of {name} with {left} may go on: they could not be ended."
                );
                return Err(Problem::new(Code::Unavailable, detail).todo(
                    "`holdfast session list` shows them when those nodes answer, and `holdfast session end` ends one; or disable the user.",
                ));
            }
        }
        self.user_show(&users.snapshot().name_of(sid).map_err(wrong)?)
    }

    /// Lets a user in again that wrong passwords have locked out.
    pub fn user_unlock(&self, name: &str) -> Result<User, Problem> {
        self.users()?.unlock(name).map_err(wrong)?;
        self.user_show(name)
    }

    /// Takes a user away, from groups and permissions too.
    pub async fn user_delete(&self, name: &str, confirmed: Option<String>) -> Result<Done, Problem> {
        let (sessions, opens) = (self.sessions_elsewhere().await, self.opens_elsewhere().await);
        let _changing = self.changes.lock().await;
        self.user_sid(name)?;
        let connected = (self.all_sessions(sessions), self.all_opens(opens));
        let users = self.users()?;
        let mut after = Directory::clone(&users.snapshot());
        let user = after.remove_user(name).map_err(wrong)?;
        let sid = user.sid.to_string();
        let ending = self.ending_with(&user, &after, &connected);
        confirm(&user.name, confirmed.as_deref(), || {
            let mut lost = vec![format!(
                "User {} disappears. What it owns stays, and no user will ever be the same one again.",
                user.name
            )];
            lost.extend(ending);
            lost.extend(self.permissions_lost(&sid));
            lost
        })?;
        let removed = users.remove_user(user.sid).map_err(wrong)?;
        self.end_sessions(&removed.name, removed.sid, "it is deleted");
        self.drop_permissions(&removed.sid.to_string()).await?;
        Ok(Done::new(format!("User {} is gone.", removed.name)))
    }

    /// The permissions for shares that are for this SID itself.
    pub(super) fn permissions_of(&self, sid: &str) -> Vec<HeldPermission> {
        self.config.with(|config| {
            let of = |share: &control_api::ShareConfig| {
                let held = share.permissions.iter().find(|each| each.who == sid)?;
                Some(HeldPermission { share: share.name.clone(), right: held.right })
            };
            config.shares.iter().filter_map(of).collect()
        })
    }

    /// What somebody with this SID loses who disappears, in words.
    pub(super) fn permissions_lost(&self, sid: &str) -> Option<String> {
        let shares: Vec<String> = self.permissions_of(sid).into_iter().map(|held| held.share).collect();
        (!shares.is_empty()).then(|| format!("Its permissions for shares {} go with it.", shares.join(", ")))
    }

    /// Takes somebody who has disappeared out of all permissions.
    pub(super) async fn drop_permissions(&self, sid: &str) -> Result<(), Problem> {
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
}
