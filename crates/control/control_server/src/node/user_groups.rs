//! Groups of users. Changes are durable in the user database when they are answered.

use control_api::{AccountRename, Done, Problem, UserGroup, UserGroupCreate, UserGroupUpdate, many};
use smb_protocol::security::Sid;
use smb_users::names::upper;
use smb_users::{Directory, GroupChange, Principal, UsersError};

use super::accounts::wrong;
use super::{Node, confirm};

impl Node {
    /// Groups of users: the node's own first, then built-in ones, by name.
    pub fn user_group_list(&self) -> Result<Vec<UserGroup>, Problem> {
        let directory = self.users()?.snapshot();
        let mut list: Vec<UserGroup> =
            directory.groups().map(|group| self.describe_group(&directory, group)).collect();
        list.sort_by_key(|group| (group.built_in, upper(&group.name)));
        Ok(list)
    }

    /// A group of users.
    pub fn user_group_show(&self, name: &str) -> Result<UserGroup, Problem> {
        let directory = self.users()?.snapshot();
        let group = directory.group(name).ok_or_else(|| wrong(UsersError::NoGroup(name.to_owned())))?;
        Ok(self.describe_group(&directory, group))
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
        // All of it on a copy first, for the same reason, and to know who loses what.
        let mut after = Directory::clone(&users.snapshot());
        let comment = update.comment.as_deref();
        let group = after.change_group(name, None, comment).map_err(wrong)?.name.clone();
        add.iter().try_for_each(|member| after.add_member(name, member.sid)).map_err(wrong)?;
        remove.iter().try_for_each(|member| after.remove_member(name, member.sid)).map_err(wrong)?;
        let http = self.config.with(|config| config.http.clone());
        let told = self.api_sessions_ending(&after, &http);
        if !told.is_empty() {
            confirm(&group, update.confirm.as_deref(), || told)?;
        }
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

    /// Gives a group of users another name. It stays what it is: its members, permissions and roles go on.
    ///
    /// # Errors
    /// When there is no such group, it is built in, or the name is taken or cannot be one.
    pub async fn user_group_rename(&self, name: &str, request: AccountRename) -> Result<UserGroup, Problem> {
        let _changing = self.changes.lock().await;
        let change = GroupChange { name: Some(request.name), comment: None };
        let group = self.users()?.change_group(name, &change).map_err(wrong)?;
        self.user_group_show(&group.name)
    }

    /// Takes a group of users away, from other groups and permissions too.
    pub async fn user_group_delete(&self, name: &str, confirmed: Option<String>) -> Result<Done, Problem> {
        let _changing = self.changes.lock().await;
        let group = self.user_group_show(name)?;
        if group.built_in {
            return Err(wrong(UsersError::BuiltIn(group.name)));
        }
        let mut after = Directory::clone(&self.users()?.snapshot());
        after.remove_group(&group.name).map_err(wrong)?;
        let mut http = self.config.with(|config| config.http.clone());
        super::access::roles::drop_roles(&mut http, &group.sid);
        confirm(&group.name, confirmed.as_deref(), || {
            let members = many(group.members.len() as u64, "member");
            let mut lost = vec![format!("Group {} disappears; what it has stays ({members}).", group.name)];
            lost.extend(self.permissions_lost(&group.sid));
            lost.extend(self.roles_lost(&group.sid));
            lost.extend(self.api_sessions_ending(&after, &http));
            lost
        })?;
        let removed = self.users()?.remove_group(&group.name).map_err(wrong)?;
        if !self.roles_lost(&group.sid).is_empty() {
            self.change(|config| {
                super::access::roles::drop_roles(&mut config.http, &group.sid);
                Ok(())
            })
            .await?;
        }
        self.drop_permissions(&removed.sid.to_string()).await?;
        Ok(Done::new(format!("Group {} is gone.", removed.name)))
    }

    fn describe_group(&self, directory: &Directory, group: &smb_users::Group) -> UserGroup {
        let member = |sid: &Sid| directory.find_sid(*sid).map_or_else(|| sid.to_string(), |found| found.name);
        let sid = group.sid.to_string();
        UserGroup {
            name: group.name.clone(),
            comment: group.comment.clone(),
            built_in: group.is_built_in(),
            members: group.members.iter().map(member).collect(),
            groups: directory.groups_of(group.sid).map(|group| group.name.clone()).collect(),
            permissions: self.permissions_of(&sid),
            roles: self.roles_of(&sid),
            sid,
        }
    }
}
