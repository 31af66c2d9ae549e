//! Groups of users. Changes are durable in the user database when they are answered.

use control_api::{AccountRename, Done, Problem, UserGroup, UserGroupCreate, UserGroupUpdate, many};
use smb_protocol::security::Sid;
use smb_users::names::upper;
use smb_users::{Directory, UsersError};

use super::accounts::wrong;
use super::{Node, confirm};

impl Node {
    /// The group that has this name now. Whatever follows is about it by its SID, whoever else has the name by then.
    pub(super) fn group_sid(&self, name: &str) -> Result<Sid, Problem> {
        let of = |directory: &Directory| directory.group(name).map(|group| group.sid);
        self.sid_of(of)?.ok_or_else(|| wrong(UsersError::NoGroup(name.to_owned())))
    }

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
        let members = self.sids(&request.members)?;
        let make = |directory: &mut Directory| {
            let name = directory.add_group(&request.name, &request.comment)?.name.clone();
            members.iter().try_for_each(|member| directory.add_member(&name, *member))?;
            Ok(name)
        };
        let name = self.users()?.change(make).map_err(wrong)?;
        self.user_group_show(&name)
    }

    /// Changes a group of users.
    pub async fn user_group_update(&self, name: &str, update: UserGroupUpdate) -> Result<UserGroup, Problem> {
        let _changing = self.changes.lock().await;
        let users = self.users()?;
        let sid = self.group_sid(name)?;
        let mut after = Directory::clone(&users.snapshot());
        let (add, remove) = (self.sids(&update.add)?, self.sids(&update.remove)?);
        let change = |directory: &mut Directory| {
            let name = directory.name_of(sid)?;
            directory.change_group(&name, None, update.comment.as_deref())?;
            add.iter().try_for_each(|member| directory.add_member(&name, *member))?;
            remove.iter().try_for_each(|member| directory.remove_member(&name, *member))?;
            Ok(name)
        };
        // On a copy first, to know who loses what.
        let group = change(&mut after).map_err(wrong)?;
        let http = self.config.with(|config| config.http.clone());
        let told = self.api_sessions_ending(&after, &http);
        if !told.is_empty() {
            confirm(&group, update.confirm.as_deref(), || told)?;
        }
        let name = users.change(change).map_err(wrong)?;
        self.user_group_show(&name)
    }

    /// Gives a group of users another name. It stays what it is: its members, permissions and roles go on.
    ///
    /// # Errors
    /// When there is no such group, it is built in, or the name is taken or cannot be one.
    pub async fn user_group_rename(&self, name: &str, request: AccountRename) -> Result<UserGroup, Problem> {
        let _changing = self.changes.lock().await;
        let sid = self.group_sid(name)?;
        let rename = |directory: &mut Directory| {
            let name = directory.name_of(sid)?;
            directory.change_group(&name, Some(&request.name), None).map(|group| group.name.clone())
        };
        let name = self.users()?.change(rename).map_err(wrong)?;
        self.user_group_show(&name)
    }

    /// Takes a group of users away, from other groups and permissions too.
    pub async fn user_group_delete(&self, name: &str, confirmed: Option<String>) -> Result<Done, Problem> {
        let _changing = self.changes.lock().await;
        let users = self.users()?;
        let sid = self.group_sid(name)?;
        let mut after = Directory::clone(&users.snapshot());
        let remove = |directory: &mut Directory| {
            let name = directory.name_of(sid)?;
            directory.remove_group(&name)
        };
        let group = remove(&mut after).map_err(wrong)?;
        let sid = sid.to_string();
        let mut http = self.config.with(|config| config.http.clone());
        super::access::roles::drop_roles(&mut http, &sid);
        confirm(&group.name, confirmed.as_deref(), || {
            let members = many(group.members.len() as u64, "member");
            let mut lost = vec![format!("Group {} disappears; what it has stays ({members}).", group.name)];
            lost.extend(self.permissions_lost(&sid));
            lost.extend(self.roles_lost(&sid));
            lost.extend(self.api_sessions_ending(&after, &http));
            lost
        })?;
        let removed = users.change(remove).map_err(wrong)?;
        if !self.roles_lost(&sid).is_empty() {
            self.change(|config| {
                super::access::roles::drop_roles(&mut config.http, &sid);
                Ok(())
            })
            .await?;
        }
        self.drop_permissions(&sid).await?;
        Ok(Done::new(format!("Group {} is gone.", removed.name)))
    }

    /// Whom these names mean. A wrong one is told before anything changes.
    fn sids(&self, names: &[String]) -> Result<Vec<Sid>, Problem> {
        names.iter().map(|name| Ok(self.principal(name)?.sid)).collect()
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
