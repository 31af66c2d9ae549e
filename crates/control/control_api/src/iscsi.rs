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

/// Whether a LUN is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LunState {
    /// The LUN is not served: commands that reach the medium end with NOT READY.
    Offline,
    /// Served for reading.
    ReadOnly,
    /// Served.
    #[default]
    Online,
}

impl LunState {
    fn is_online(&self) -> bool {
        *self == Self::Online
    }
}

/// What the file of a LUN holds. Never taken from what is in it: who writes to a raw disk could make it look like an image with a
/// parent of his choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LunFormat {
    /// The disk's bytes one behind the other.
    #[default]
    Raw,
    /// A VHDX image: the LUN is the disk in it.
    Vhdx,
}

impl LunFormat {
    /// Whether it is the bytes themselves.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        *self == Self::Raw
    }
}

/// A LUN under a number of a target, for an initiator group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MapConfig {
    /// The target.
    pub target: String,
    /// The number, 0 to 16383.
    pub number: u16,
    /// Who sees it.
    pub group: String,
    /// This group may only read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// A LUN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LunConfig {
    /// Its name, unique on the node.
    pub name: String,
    /// Its identity for initiators (VPD page 83); never changes. Given by the node when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guid: Option<uuid::Uuid>,
    /// The volume that holds its file.
    pub volume: String,
    /// Which volume of that name: the identity of its space. Given by the node when absent, as soon as one alone can be meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_guid: Option<uuid::Uuid>,
    /// The file.
    pub path: String,
    /// What the file holds.
    #[serde(default, skip_serializing_if = "LunFormat::is_raw")]
    pub format: LunFormat,
    /// The parents of its image are opened wherever in the volume the image says; else only in the folder of the image and those
    /// in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parents_anywhere: bool,
    /// Bytes in a logical block: 512 or 4096.
    #[serde(default = "default_block", skip_serializing_if = "is_default_block")]
    pub block_size: u32,
    /// Whether it is served.
    #[serde(default, skip_serializing_if = "LunState::is_online")]
    pub state: LunState,
    /// Why it is in this state.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Writes may be acknowledged before they are durable, until the initiator flushes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub write_cache: bool,
    /// Initiators with a mapping that is not read-only may turn the write cache on and off, for all (MODE SELECT).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub initiator_write_cache: bool,
    /// Where it is seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub map: Vec<MapConfig>,
}

fn default_block() -> u32 {
    512
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_default_block(size: &u32) -> bool {
    *size == default_block()
}

/// A LUN as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lun {
    /// What was configured.
    #[serde(flatten)]
    pub config: LunConfig,
    /// Size of the disk in bytes; 0 while its volume is not there, or its image is not open.
    pub size_bytes: u64,
    /// Space that its file takes, in bytes.
    pub allocated_bytes: u64,
    /// Whether it serves now, after everything below was looked at.
    pub serving: LunState,
    /// Whether writes are acknowledged now before they are durable, whoever turned that on.
    #[serde(default)]
    pub caching: bool,
    /// Why it doesn't serve as configured, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Makes a LUN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LunCreate {
    /// Its name.
    pub name: String,
    /// The volume; may be absent when the node has one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The file; absent for `/luns/NAME`. A file that is there is used as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What the file holds. An image has to be there, with nobody else who has it open.
    #[serde(default, skip_serializing_if = "LunFormat::is_raw")]
    pub format: LunFormat,
    /// Open the parents of the image wherever in the volume it says; else only in its folder and those in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parents_anywhere: bool,
    /// Size in bytes; absent to use a file that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Bytes in a logical block: 512 or 4096; absent for 512, or what the image has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u32>,
    /// Reserve the space now, in the volume and in its pool, also of a file that is there: writes do not fail for want of it later,
    /// until snapshots or clones share it. What the LUN grows by is reserved if that is asked for then.
    #[serde(default)]
    pub reserve: bool,
    /// Writes may be acknowledged before they are durable, until the initiator flushes.
    #[serde(default)]
    pub write_cache: bool,
    /// Where it is seen at once.
    #[serde(default)]
    pub map: Vec<LunMap>,
}

/// Maps a LUN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LunMap {
    /// The target; may be absent when the node has one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The number, 0 to 16383; absent for the lowest free one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
    /// Who sees it: an initiator group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Every initiator sees it: the group that has them all, which is made if there is none. In place of `group`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub everyone: bool,
    /// This group may only read.
    #[serde(default)]
    pub read_only: bool,
}

/// Changes a LUN; fields that are absent stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LunUpdate {
    /// New size in bytes; smaller needs `confirm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Reserve all of it that is not, at its new size: writes do not fail for want of space later, until snapshots or clones share it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reserve: bool,
    /// Whether it is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<LunState>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Writes may be acknowledged before they are durable, until the initiator flushes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<bool>,
    /// Whether initiators may turn the write cache on and off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator_write_cache: Option<bool>,
    /// The volume that its file is in from now on. Nothing is copied: the file must be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The file that it is made of from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Made of another file it stays the disk that initiators know, by its designators and its serial number; else it becomes a new
    /// one. The bytes must be the same then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_identity: bool,
    /// The LUN's name, repeated; needed when the new size is smaller, or initiators are connected to a LUN that gets another file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
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
