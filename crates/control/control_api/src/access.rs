//! Who may ask what of the API: roles, logging in, tokens, and the record of what was changed.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Password;

/// What somebody may do with the API. Each role may do all that those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads metrics, and nothing else: for what scrapes them.
    Metrics,
    /// Sees how everything is. Neither secrets nor what is in files.
    Viewer,
    /// Keeps the storage running: repair, volumes, snapshots, jobs, sessions. It neither reads nor destroys data, nor says
    /// who may.
    Operator,
    /// Everything.
    Administrator,
}

impl Role {
    /// All of them, the least first.
    pub const ALL: [Self; 4] = [Self::Metrics, Self::Viewer, Self::Operator, Self::Administrator];

    /// As it travels.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Administrator => "administrator",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Logs a user in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// Who it is: a user of the node's.
    pub user: String,
    /// What proves it.
    pub password: Password,
}

/// How somebody has proven who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Proof {
    /// It is on the machine, as root or the node's own user.
    Socket,
    /// It has logged in with a password.
    Session,
    /// It has a token.
    Token,
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Me {
    /// The user; of a token its name; `local` for who is on the machine.
    pub user: String,
    /// What it may do.
    pub role: Role,
    /// How it has proven who it is.
    pub proof: Proof,
}

/// A token: what a program shows instead of a password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiToken {
    /// What it is revoked by.
    pub id: String,
    /// What it is for.
    pub name: String,
    /// What whoever shows it may do at most.
    pub role: Role,
    /// The user who made it, and without whom it counts nothing; absent where that was done on the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// When it was made, in seconds since 1970 UTC.
    pub created: u64,
    /// When it ends; absent for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// When it was last shown since the node started; absent for not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<u64>,
    /// Whether it counts now.
    pub valid: bool,
}

/// Makes a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiTokenCreate {
    /// What it is for.
    #[serde(default)]
    pub name: String,
    /// What whoever shows it may do.
    pub role: Role,
    /// Seconds that it counts; absent for as long as nobody revokes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_seconds: Option<u64>,
}

/// A token that was made. The node keeps only a hash of what is shown here: it is told this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiTokenCreated {
    /// What is sent as `Authorization: Bearer`.
    pub secret: String,
    /// The token.
    #[serde(flatten)]
    pub token: ApiToken,
}

/// Secrets are not for logs.
impl fmt::Debug for ApiTokenCreated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiTokenCreated").field("token", &self.token).finish_non_exhaustive()
    }
}

/// Most entries of the record of changes that can be asked for at once.
pub const AUDIT_ENTRIES_MAX: u32 = 100_000;

/// A change that somebody has asked for, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// When it was answered, in seconds since 1970 UTC.
    pub time: u64,
    /// Who: a user, a token's name and id, or the number of a user of the machine.
    pub who: String,
    /// The SID of the user, whatever the user is called later; absent where no user has asked, or another node has told of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// How that was proven; absent where it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// What it may do; absent where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Address and port; `socket` for the machine itself; with `smb` before it for what a client of shares asked for.
    pub from: String,
    /// What was asked: the id of the route.
    pub operation: String,
    /// Method and path, without the query.
    pub request: String,
    /// What it is about: the names that are in the path, and what else the request names, as a path or a disk. Of a user or group with the
    /// SID, as another one may have had the name, or get it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// The HTTP status; 0 where the client went away before it was answered.
    pub status: u16,
    /// `done`, or the code of the problem.
    pub result: String,
    /// Why it was not done; absent when it was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What is otherwise now, field by field; of what was made, what was asked for; of what was deleted, what was there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<AuditChange>,
    /// What is missing in `changes`, and why; absent when nothing is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub left_out: String,
}

/// A field that is otherwise than it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditChange {
    /// Which one, as the thing's JSON names it: `size_bytes`, `auth.mutual`, `map[all].number`.
    pub field: String,
    /// What was there; absent where nothing was. A long value is cut, and ends with `…`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<serde_json::Value>,
    /// What is there now, or was asked for; absent where nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<serde_json::Value>,
    /// It is a secret, which was given or changed: neither value is told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_ordered_and_travel_by_name() {
        assert!(Role::ALL.is_sorted());
        for role in Role::ALL {
            assert_eq!(serde_json::to_value(role).expect("a name"), role.as_str());
        }
    }

    #[test]
    fn secrets_are_not_printed() {
        let token = ApiToken {
            id: "1".into(),
            name: "n".into(),
            role: Role::Viewer,
            owner: None,
            created: 0,
            expires: None,
            last_used: None,
            valid: true,
        };
        let made = ApiTokenCreated { secret: "hunter2".into(), token };
        let login = Login { user: "u".into(), password: Password("hunter2".into()) };
        assert!(!format!("{made:?}{login:?}").contains("hunter2"));
    }
}
