//! Groups of users.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{HeldPermission, Role};

/// A group of users as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UserGroup {
    /// What it is called.
    pub name: String,
    /// Its identity.
    pub sid: String,
    /// What it is for.
    pub comment: String,
    /// Whether every node has it.
    pub built_in: bool,
    /// Its members, by name; by SID where nobody here has it.
    pub members: Vec<String>,
    /// The groups that name it as a member.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The permissions for shares that are its own; they go when the group is deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub permissions: Vec<HeldPermission>,
    /// The roles of the API that it gives its members; they go with it, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
}

/// Makes a group of users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UserGroupCreate {
    /// What it is called.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
    /// Its members: users and groups.
    #[serde(default)]
    pub members: Vec<String>,
}

/// Changes a group of users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UserGroupUpdate {
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Members to add: users and groups.
    pub add: Vec<String>,
    /// Members to take out.
    pub remove: Vec<String>,
    /// Confirms that sessions end: the name that the node has asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}
