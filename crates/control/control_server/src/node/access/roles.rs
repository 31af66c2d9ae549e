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
    let (detail, todo) = match directory.user(name) {
        Some(user) => (
            format!("{} is a user, and roles of the API are given to groups of users.", user.name),
            "`holdfast group list` shows what there is; `holdfast group create` makes one.",
        ),
        // Whatever is made now has a SID of its own.
        None if name.parse::<Sid>().is_ok() => (
            format!("There is no group of users with the SID {name} to have a role of the API."),
            "It was deleted, or is one of another node's, and no new group gets its SID: name another group. `holdfast group list` shows what there is.",
        ),
        None => (
            format!("There is no group of users {name} to have a role of the API."),
            "`holdfast group list` shows what there is; `holdfast group create` makes one.",
        ),
    };
    Err(Problem::new(Code::NotFound, detail).todo(todo))
}

/// Whether a group has the role already. Names, which earlier releases kept, give nothing, and have to become the groups that have them.
fn is_kept(name: &String, kept: &[String]) -> bool {
    kept.contains(name) && name.parse::<Sid>().is_ok()
}

fn roles(http: &HttpConfig) -> [&Vec<String>; 2] {
    [&http.operators, &http.viewers]
}

fn roles_mut(http: &mut HttpConfig) -> [(Role, &mut Vec<String>); 2] {
    [(Role::Operator, &mut http.operators), (Role::Viewer, &mut http.viewers)]
}

/// Makes wanted roles those of groups that there are. What stays as it is nobody has asked for now: a group that is gone gives nothing, and
/// keeps no other change away.
fn settle_wanted(directory: &Directory, have: &HttpConfig, want: &mut HttpConfig) -> Result<(), Problem> {
    let (mut wrong, mut todo) = (Vec::new(), Vec::new());
    for ((role, names), kept) in roles_mut(want).into_iter().zip(roles(have)) {
        let line = match role {
            Role::Operator => "http.operators",
            _ => "http.viewers",
        };
        for name in names.iter_mut().filter(|name| !is_kept(name, kept)) {
            match group(directory, name) {
                Ok(sid) => *name = sid.to_string(),
                Err(problem) => {
                    wrong.push(format!("{line}: {}", problem.detail));
                    let makes = name.parse::<Sid>().is_err() && directory.find_name(name, "").is_none();
                    todo.push(match makes {
                        true => format!("make the group (`holdfast group create {name}`), or take {name:?} out of `{line}`"),
                        false => format!("take {name:?} out of `{line}`, or put the name of a group there"),
                    });
                }
            }
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Problem::new(Code::NotFound, wrong.join(" "))
        .todo(format!("In the file {}. Nothing was changed.", todo.join("; "))))
}

impl Node {
    /// The groups with these names as the configuration keeps them. Those of `kept` have the role already, and may be gone.
    ///
    /// # Errors
    /// When one is not there, or is no group.
    pub(in crate::node) fn role_groups(
        &self,
        names: &[String],
        kept: &[String],
    ) -> Result<Vec<String>, Problem> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let directory = self.users()?.snapshot();
        let of = |name: &String| match is_kept(name, kept) {
            true => Ok(name.clone()),
            false => Ok(group(&directory, name)?.to_string()),
        };
        names.iter().map(of).collect()
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
        settle_wanted(&self.users()?.snapshot(), &have.http, &mut want.http)
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

    /// The roles of the API that a group gives its members.
    pub(in crate::node) fn roles_of(&self, sid: &str) -> Vec<Role> {
        let mut http = self.config.with(|config| config.http.clone());
        let of =
            roles_mut(&mut http).into_iter().filter(|(_, groups)| groups.iter().any(|group| group == sid));
        of.map(|(role, _)| role).collect()
    }

    /// The roles of the API that go with a group, in words.
    pub(in crate::node) fn roles_lost(&self, sid: &str) -> Vec<String> {
        let lost = |role| format!("The role {role} of the API, which it gives its members, goes with it.");
        self.roles_of(sid).into_iter().map(lost).collect()
    }
}

/// Takes the roles of a group away.
pub(in crate::node) fn drop_roles(http: &mut HttpConfig, sid: &str) {
    for (_, groups) in roles_mut(http) {
        groups.retain(|group| group != sid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_gone_keeps_no_change_of_another_role_away() {
        let mut directory = Directory::new([7, 8, 9]);
        let crew = directory.add_group("crew", "").expect("made").sid.to_string();
        let gone = directory.add_group("gone", "").expect("made").sid.to_string();
        directory.remove_group("gone").expect("removed");
        let have = HttpConfig { operators: vec![gone.clone()], ..HttpConfig::default() };
        let mut want = HttpConfig { viewers: vec!["crew".into()], ..have.clone() };
        settle_wanted(&directory, &have, &mut want).expect("crew is there");
        assert_eq!((&want.operators, &want.viewers), (&vec![gone.clone()], &vec![crew]));
        // One that is put there now has to be there.
        let mut want = HttpConfig { viewers: vec![gone.clone()], ..have.clone() };
        let problem = settle_wanted(&directory, &have, &mut want).expect_err("it is gone");
        assert!(
            problem.detail.contains("http.viewers") && !problem.detail.contains("http.operators"),
            "{problem}"
        );
    }
}
