//! Targets, LUNs, initiator groups, portals, sessions.
//!
//! The `…Config` types are what the configuration file holds; `Lun`, `Target`, `PortalInfo` and `Session` are
//! what is there now.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{OperationCounters, SmbSession};

/// A user name and a secret of CHAP.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChapUser {
    /// The name.
    pub user: String,
    /// The secret: 12 to 255 bytes.
    pub secret: String,
    /// Initiator groups: the user may log in as a member of one of them, and nobody else of this target may log in as
    /// one. None: as any initiator that no other user is bound to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}

/// Secrets are not for logs.
impl std::fmt::Debug for ChapUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ChapUser({}, secret hidden)", self.user)
    }
}

/// Who may log in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthConfig {
    /// Initiators must prove to be one of these; none for no CHAP.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chap: Vec<ChapUser>,
    /// What the target proves to be to initiators that ask (mutual CHAP).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual: Option<ChapUser>,
    /// Nobody is asked for CHAP now; the users are kept for when it is turned on again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chap_off: bool,
}

impl AuthConfig {
    /// The CHAP users that initiators must prove to be one of; none when they need not.
    #[must_use]
    pub fn asked_for(&self) -> &[ChapUser] {
        if self.chap_off { &[] } else { &self.chap }
    }

    /// Whether nobody has to prove anything.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.chap.is_empty() && self.mutual.is_none()
    }
}

/// What holds for all targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IscsiConfig {
    /// Discovery asks for CHAP: initiators prove to be a user of some target, and are told of the targets that would let
    /// them in. Otherwise they are told of those that have a LUN for the name that they give.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub discovery_chap: bool,
}

impl IscsiConfig {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Changes what holds for all targets; fields that are absent stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IscsiUpdate {
    /// Whether discovery asks for CHAP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery_chap: Option<bool>,
    /// Confirms that initiators which are logged in are told of no target any more: `discovery`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetConfig {
    /// Its iSCSI name: `iqn.…`, `eui.…` or `naa.…`.
    pub name: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub alias: String,
    /// The portal groups it is served on; none for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub portal_groups: Vec<u16>,
    /// Who may log in.
    #[serde(default, skip_serializing_if = "AuthConfig::is_open")]
    pub auth: AuthConfig,
}

/// Changes a target; fields that are absent stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TargetUpdate {
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alias: Option<String>,
    /// The portal groups it is served on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portal_groups: Option<Vec<u16>>,
    /// Who may log in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthConfig>,
    /// Whether initiators are asked for CHAP; the users stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<bool>,
    /// Makes a CHAP user, or changes the one of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_user: Option<ChapUserUpdate>,
    /// What the target proves to be from now on (mutual CHAP); its CHAP users stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_mutual: Option<ChapUser>,
    /// Takes the CHAP user of this name away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remove_user: Option<String>,
    /// The target's name, repeated; needed when sessions end because they would not be let in any more, and when CHAP is turned
    /// off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// Makes or changes a CHAP user; fields that are absent stay.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChapUserUpdate {
    /// The name.
    pub user: String,
    /// The secret: 12 to 255 bytes; needed for a new user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Initiator groups that it may log in as; an empty list for any initiator. Needed for a new user beside others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
}

/// Secrets are not for logs.
impl std::fmt::Debug for ChapUserUpdate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ChapUserUpdate({}, groups {:?}, secret hidden)", self.user, self.groups)
    }
}

/// A CHAP user of a target, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetUser {
    /// The name.
    pub user: String,
    /// Initiator groups that it may log in as; none for any initiator.
    pub groups: Vec<String>,
}

/// A target as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// Its iSCSI name.
    pub name: String,
    /// A name for people.
    pub alias: String,
    /// The portal groups it is served on; none for all.
    pub portal_groups: Vec<u16>,
    /// CHAP users; none when nobody has to prove anything.
    pub chap_users: Vec<TargetUser>,
    /// Nobody is asked for CHAP now; the users are kept for when it is turned on again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chap_off: bool,
    /// Whether the target proves itself too.
    pub mutual_chap: bool,
    /// LUNs mapped.
    pub luns: u64,
    /// Sessions.
    pub sessions: u64,
}

/// Initiators that see the same LUNs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupConfig {
    /// Its name.
    pub name: String,
    /// Names of initiators.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initiators: Vec<String>,
    /// Every initiator belongs to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any: bool,
}

/// Changes a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupUpdate {
    /// Initiators to add.
    #[serde(default)]
    pub add: Vec<String>,
    /// Initiators to take out.
    #[serde(default)]
    pub remove: Vec<String>,
    /// Whether every initiator belongs to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub any: Option<bool>,
    /// The group's name, repeated; needed when an initiator loses a LUN that it is connected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// An address that targets are served on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortalConfig {
    /// `ADDRESS:PORT`, `[v6]:PORT`.
    pub address: String,
    /// Its target portal group tag, 1 to 65535.
    #[serde(default = "one")]
    pub group: u16,
}

fn one() -> u16 {
    1
}

/// A portal as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortalInfo {
    /// As configured.
    pub address: String,
    /// Where it listens, with the port that was chosen for port 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listening: Option<String>,
    /// Its target portal group tag.
    pub group: u16,
    /// Why it doesn't listen, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What a session speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// iSCSI.
    #[default]
    Iscsi,
    /// SMB.
    Smb,
}

/// A session: of an initiator with a target, or of a user with the SMB server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// Its number in this run of the node.
    pub id: u64,
    /// What it speaks.
    #[serde(default)]
    pub protocol: Protocol,
    /// The initiator's name; empty for SMB.
    pub initiator: String,
    /// The CHAP user that the initiator proved to be, if it had to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap_user: Option<String>,
    /// Where it comes from.
    pub address: String,
    /// The target; empty for discovery and SMB.
    pub target: String,
    /// The initiator's session id; empty for SMB.
    pub isid: String,
    /// The target's session handle; 0 for SMB.
    pub tsih: u16,
    /// Connections.
    pub connections: u64,
    /// Commands or requests that ended.
    pub commands: u64,
    /// Bytes read by the client.
    pub read_bytes: u64,
    /// Bytes written by the client.
    pub written_bytes: u64,
    /// Reads of files or LUNs, with how long the node took for them.
    #[serde(default)]
    pub read: OperationCounters,
    /// Writes to them.
    #[serde(default)]
    pub write: OperationCounters,
    /// Digests in use ("header", "data").
    pub digests: Vec<String>,
    /// What there is more of a session of SMB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smb: Option<SmbSession>,
}
