//! Users of the node: who may use its shares. Groups of users are in `account_groups`.
//!
//! They are not in the configuration file, which people copy and keep, but in a sealed database of the node's.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ShareRight;

/// A password on its way in. Never comes out.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Password(pub String);

/// Secrets are not for logs.
impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(hidden)")
    }
}

/// A user as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct User {
    /// What it is called.
    pub name: String,
    /// Its identity, which no other user will ever have.
    pub sid: String,
    /// The person's name.
    pub full_name: String,
    /// What it is for.
    pub comment: String,
    /// Whether it may not be used.
    pub disabled: bool,
    /// Seconds that it stays locked out after wrong passwords; absent when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_seconds: Option<u64>,
    /// When the password was set.
    pub password_set: u64,
    /// The groups that name it as a member.
    pub groups: Vec<String>,
    /// Sessions that it has.
    pub sessions: u64,
    /// The permissions for shares that are its own, not those of its groups; they go when the user is deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<HeldPermission>,
}

/// What a share lets a user or group do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldPermission {
    /// The share.
    pub share: String,
    /// What may be done there.
    pub right: ShareRight,
}

/// Gives a user or a group another name. It stays who it is: the SID is the same, and so permissions, memberships and sessions go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AccountRename {
    /// The new name, by which a user logs in from now on; no other user or group has it.
    pub name: String,
}

/// Makes a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserCreate {
    /// What it is called: at most 20 characters; case does not count.
    pub name: String,
    /// The person's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub full_name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
    /// It may not be used yet.
    #[serde(default)]
    pub disabled: bool,
    /// Groups that it becomes a member of.
    #[serde(default)]
    pub groups: Vec<String>,
    /// What proves it.
    pub password: Password,
}

/// Changes a user; fields that are absent stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UserUpdate {
    /// The person's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_name: Option<String>,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Whether it may not be used; its sessions end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// Confirms that sessions end: the name that the node has asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// Sets a user's password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PasswordChange {
    /// The new one.
    pub password: Password,
    /// Whether the sessions end that were opened with the old one, at once; by default they go on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub end_sessions: bool,
}
