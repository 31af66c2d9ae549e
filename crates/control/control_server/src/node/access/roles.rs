//! Roles of the API that groups of users give. They hang on a group's SID: a group that is made later under the name of one that is
//! gone is another one, and gives nothing.

use control_api::{Code, Config, HttpConfig, Problem, Role};
use smb_protocol::security::Sid;
use smb_users::Directory;

use super::Node;

/// The group that is meant by a name or a SID.
fn group(directory: &Directory, name: &str) -> Result<Sid, Problem> {
    let by_sid = name.parse::<Sid>().ok().and_then(|sid| directory.group_by_sid(sid));
    if let Some(group) = by_sid.or_else(|| directory.group(name)) {
        return Ok(group.sid);
    }
    let detail = match directory.user(name) {
        Some(user) => {
            format!("{} is a user, and roles of the API are given to groups of users.", user.name)
        }
        None => format!("There is no group of users {name} to have a role of the API."),
    };
    Err(Problem::new(Code::NotFound, detail)
        .todo("`holdfast group list` shows what there is; `holdfast group create` makes one."))
}

fn roles(http: &HttpConfig) -> [&Vec<String>; 2] {
    [&http.operators, &http.viewers]
}

fn roles_mut(http: &mut HttpConfig) -> [(Role, &mut Vec<String>); 2] {
    [(Role::Operator, &mut http.operators), (Role::Viewer, &mut http.viewers)]
}

impl Node {
    /// The groups with these names as the configuration keeps them.
    ///
    /// # Errors
    /// When one is not there, or is no group.
    pub(in crate::node) fn role_groups(&self, names: &[String]) -> Result<Vec<String>, Problem> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let directory = self.users()?.snapshot();
        names.iter().map(|name| Ok(group(&directory, name)?.to_string())).collect()
    }

    /// Makes the roles of a wanted configuration those of groups that there are.
    ///
    /// # Errors
    /// As [`Self::role_groups`].
    pub(in crate::node) fn settle_wanted_roles(
        &self,
        have: &Config,
        want: &mut Config,
    ) -> Result<(), Problem> {
        if roles(&have.http) == roles(&want.http) {
            // Also where the users cannot be read now.
            return Ok(());
        }
        for (_, names) in roles_mut(&mut want.http) {
            *names = self.role_groups(names)?;
        }
        Ok(())
    }

    /// Earlier releases kept names: they become the groups that have them now, and what no group has gives nothing, now or later.
    pub(in crate::node) fn settle_roles(&self) {
        let named = |config: &Config| {
            roles(&config.http).into_iter().flatten().any(|name| name.parse::<Sid>().is_err())
        };
        let Ok(users) = self.users() else { return };
        // A group that this node does not know yet may be there all the same.
        if !self.config.with(named) || users.catch_up().is_err() || users.is_behind() {
            return;
        }
        let directory = users.snapshot();
        let settled = self.config.change(|config| {
            for (role, names) in roles_mut(&mut config.http) {
                let mut settled: Vec<String> = Vec::new();
                for name in names.iter() {
                    match group(&directory, name).map(|sid| sid.to_string()) {
                        Ok(sid) if !settled.contains(&sid) => settled.push(sid),
                        Ok(_) => {}
                        Err(_) => tracing::warn!(group = name, %role, "a role of the API was a group's that is not there, and is taken away"),
                    }
                }
                *names = settled;
            }
            Ok(())
        });
        if let Err(problem) = settled {
            tracing::warn!(%problem, "roles of the API are named by groups' names, and give nothing until the node starts again");
        }
    }

    /// What roles are given by, as people read it.
    pub(in crate::node) fn with_group_names(&self, mut http: HttpConfig) -> HttpConfig {
        for (_, names) in roles_mut(&mut http) {
            for name in names.iter_mut() {
                if let Some(known) = name.parse().ok().and_then(|sid| self.name_of(sid)) {
                    *name = known;
                }
            }
        }
        http
    }

    /// The roles of the API that go with a group, in words.
    pub(in crate::node) fn roles_lost(&self, sid: &str) -> Vec<String> {
        let mut http = self.config.with(|config| config.http.clone());
        let of =
            roles_mut(&mut http).into_iter().filter(|(_, groups)| groups.iter().any(|group| group == sid));
        of.map(|(role, _)| format!("The role {role} of the API, which it gives its members, goes with it."))
            .collect()
    }
}

/// Takes the roles of a group away.
pub(in crate::node) fn drop_roles(config: &mut Config, sid: &str) {
    for (_, groups) in roles_mut(&mut config.http) {
        groups.retain(|group| group != sid);
    }
}
