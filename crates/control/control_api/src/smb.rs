//! The SMB server, its shares, and what clients have open.
//!
//! The `…Config` types are what the configuration file holds; `Share`, `SmbStatus` and `SmbOpen` are what is there now.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Listener, ShareKind};

/// Whether something is demanded of clients, or used with those that want it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Demand {
    /// Used where the client or a share wants it.
    Offered,
    /// Clients without it are refused.
    Required,
}

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum SmbDialect {
    /// Windows Vista, Server 2008.
    #[serde(rename = "2.0.2")]
    V202,
    /// Windows 7, Server 2008 R2.
    #[serde(rename = "2.1")]
    V210,
    /// Windows 8, Server 2012.
    #[serde(rename = "3.0")]
    V300,
    /// Windows 8.1, Server 2012 R2.
    #[serde(rename = "3.0.2")]
    V302,
    /// Windows 10, Server 2016 and newer.
    #[serde(rename = "3.1.1")]
    V311,
}

/// Interfaces for some clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SmbConstraint {
    /// Which clients: an address, or `ADDRESS/BITS`.
    pub clients: String,
    /// The interfaces that they are told of, as in [`SmbConfig::interfaces`].
    pub interfaces: Vec<String>,
}

/// The SMB server of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SmbConfig {
    /// Its NetBIOS name, at most 15 characters; empty for the node's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its workgroup.
    pub domain: String,
    /// Addresses that shares are served on, `ADDRESS:PORT`; none for no SMB.
    pub listen: Vec<String>,
    /// Signatures of messages.
    pub signing: Demand,
    /// Encryption of messages. Shares can demand it by themselves.
    pub encryption: Demand,
    /// Whether a session may have several connections.
    pub multichannel: bool,
    /// The oldest version that is spoken.
    pub min_dialect: SmbDialect,
    /// The newest version that is spoken.
    pub max_dialect: SmbDialect,
    /// Interfaces that clients are told of for further connections: names, addresses, `ADDRESS/BITS`; none for all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// Other interfaces for some clients; the first that names the client counts.
    #[serde(rename = "constraint", skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<SmbConstraint>,
}

impl Default for SmbConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            domain: "WORKGROUP".into(),
            listen: Vec::new(),
            signing: Demand::Required,
            encryption: Demand::Offered,
            multichannel: true,
            min_dialect: SmbDialect::V202,
            max_dialect: SmbDialect::V311,
            interfaces: Vec::new(),
            constraints: Vec::new(),
        }
    }
}

impl SmbConfig {
    /// Whether nothing was changed from what a new node has.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Changes the SMB server; fields that are absent stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SmbUpdate {
    /// Its NetBIOS name; empty for the node's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its workgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Addresses that shares are served on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<Vec<String>>,
    /// Signatures of messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signing: Option<Demand>,
    /// Encryption of messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Demand>,
    /// Whether a session may have several connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multichannel: Option<bool>,
    /// The oldest version that is spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_dialect: Option<SmbDialect>,
    /// The newest version that is spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_dialect: Option<SmbDialect>,
    /// Interfaces that clients are told of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interfaces: Option<Vec<String>>,
    /// Other interfaces for some clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub constraints: Option<Vec<SmbConstraint>>,
}

/// An address of the machine, as clients with several connections are told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SmbInterface {
    /// The interface.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// The address.
    pub address: String,
    /// Bits per second.
    pub link_speed: u64,
    /// Whether it spreads connections over several processors.
    pub rss: bool,
}

/// A client that spoke SMB 1, and was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Smb1Attempt {
    /// The client's address.
    pub address: String,
    /// When.
    pub time: u64,
    /// What it offered or wanted.
    pub detail: String,
}

/// The SMB server as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SmbStatus {
    /// What was configured.
    #[serde(flatten)]
    pub config: SmbConfig,
    /// The NetBIOS name in use.
    pub netbios_name: String,
    /// Its identity for clients, the same after a restart.
    pub guid: String,
    /// Where it listens.
    pub listeners: Vec<Listener>,
    /// Addresses that a client of another machine is told of.
    pub offered: Vec<SmbInterface>,
    /// Shares configured.
    pub shares: u64,
    /// Sessions.
    pub sessions: u64,
    /// Opens.
    pub opens: u64,
    /// How often clients spoke SMB 1 since the node started.
    pub smb1_count: u64,
    /// The last of them, newest first.
    pub smb1_attempts: Vec<Smb1Attempt>,
}

/// What somebody may do over a share at most, whatever the files' own permissions allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShareRight {
    /// List and read.
    Read,
    /// Also make, change and delete.
    Change,
    /// Everything, permissions and owners included.
    Full,
}

/// A permission of a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SharePermission {
    /// A user or group: `bob`, `Administrators`, `Everyone`.
    pub who: String,
    /// What it may do.
    pub right: ShareRight,
}

/// What clients may keep of a share on their own disks, to work without the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShareCaching {
    /// Nothing.
    None,
    /// What users choose.
    #[default]
    Manual,
    /// What users open.
    Documents,
    /// What users open, and programs run from there.
    Programs,
}

/// A share: a folder of a volume under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShareConfig {
    /// Its name, at most 80 characters; case does not count.
    pub name: String,
    /// The volume.
    pub volume: String,
    /// Which volume of that name: the identity of its space. Given by the node when absent, as soon as one alone can be meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_guid: Option<uuid::Uuid>,
    /// The folder in it; `/` for all of the volume.
    pub folder: String,
    /// What people read about it.
    #[serde(default)]
    pub comment: String,
    /// What it promises its clients, and what they may cache for it.
    #[serde(default, alias = "ca")]
    pub kind: ShareKind,
    /// Everything over it must be encrypted.
    #[serde(default)]
    pub encrypt: bool,
    /// What clients may keep.
    #[serde(default)]
    pub caching: ShareCaching,
    /// Listings leave out what the user could not open.
    #[serde(default)]
    pub access_based_enumeration: bool,
    /// It is left out of listings.
    #[serde(default)]
    pub hidden: bool,
    /// Nothing may be changed over it.
    #[serde(default)]
    pub read_only: bool,
    /// Who may do what; nobody else may connect.
    #[serde(default, rename = "permission")]
    pub permissions: Vec<SharePermission>,
}

/// Makes a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShareCreate {
    /// Its name.
    pub name: String,
    /// The volume; may be absent when the node has one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The folder; absent for `/shares/NAME`. It is made if it isn't there, with permissions like the share's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// What people read about it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub comment: String,
    /// What it promises its clients, and what they may cache for it.
    #[serde(default, alias = "ca")]
    pub kind: ShareKind,
    /// Everything over it must be encrypted.
    #[serde(default)]
    pub encrypt: bool,
    /// What clients may keep.
    #[serde(default)]
    pub caching: ShareCaching,
    /// Listings leave out what the user could not open.
    #[serde(default)]
    pub access_based_enumeration: bool,
    /// It is left out of listings.
    #[serde(default)]
    pub hidden: bool,
    /// Nothing may be changed over it.
    #[serde(default)]
    pub read_only: bool,
    /// Who may do what.
    #[serde(default)]
    pub permissions: Vec<SharePermission>,
    /// Give a folder that is there already permissions like the share's, too. What lies in it keeps its own.
    #[serde(default)]
    pub preset_folder: bool,
}

/// Changes a share; fields that are absent stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShareUpdate {
    /// What people read about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// What it promises its clients; what they have open keeps what it was given.
    #[serde(skip_serializing_if = "Option::is_none", alias = "ca")]
    pub kind: Option<ShareKind>,
    /// Everything over it must be encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypt: Option<bool>,
    /// What clients may keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caching: Option<ShareCaching>,
    /// Listings leave out what the user could not open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_based_enumeration: Option<bool>,
    /// It is left out of listings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<bool>,
    /// Nothing may be changed over it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Permissions to give, in place of what the same names had.
    pub grant: Vec<SharePermission>,
    /// Names whose permissions are taken away.
    pub revoke: Vec<String>,
    /// Give the folder permissions like the share's; what lies in it keeps its own.
    pub preset_folder: bool,
    /// The volume that its folder is in from now on. Nothing is copied: the folder must be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The folder that it shows from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The share's name, repeated; needed when clients are connected to one that gets another folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// What has passed over a share since it was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShareTraffic {
    /// Reads that succeeded.
    pub reads: u64,
    /// Bytes that they gave.
    pub read_bytes: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Bytes that they took.
    pub written_bytes: u64,
    /// All other requests.
    pub metadata: u64,
    /// Opens that were refused.
    pub refused: u64,
    /// Changes of what is kept of persistent opens that could not be made durable, as when the volume is full: requests that were
    /// refused for that, and opens that come back after a restart although they were closed.
    #[serde(default)]
    pub unsaved: u64,
}

/// A share as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Share {
    /// What was configured.
    #[serde(flatten)]
    pub config: ShareConfig,
    /// Whether it is served.
    pub online: bool,
    /// Why not, or what is wrong with it, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Sessions that are connected to it.
    pub sessions: u64,
    /// Opens over it.
    pub opens: u64,
    /// What has passed over it.
    pub traffic: ShareTraffic,
}

/// What a client has open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SmbOpen {
    /// Its number, which outlives connections.
    pub id: u64,
    /// The session; absent while it waits for its client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// The user, also while it waits; by the SID, where it has no name any more.
    pub user: String,
    /// The client's address; empty while it waits.
    pub address: String,
    /// The share; `IPC$` for pipes.
    pub share: String,
    /// The path in the share, with the stream.
    pub path: String,
    /// Whether it is a directory.
    pub directory: bool,
    /// Rights, in hexadecimal as MS-SMB2 2.2.13.1 has them.
    pub access: String,
    /// The same in words: "read, write, delete"; "attributes" where it can do nothing else.
    #[serde(default)]
    pub rights: String,
    /// What of it the client may cache: "none", "oplock …", "lease RWH".
    pub caching: String,
    /// How it outlives its connection: "no", "durable", "persistent", "resilient".
    pub lasting: String,
}

/// What a session has more when it is one of SMB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SmbSession {
    /// The user, by the name that it had when the session began.
    pub user: String,
    /// The user's SID, which stays when it gets another name; empty where nobody has said who it is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sid: String,
    /// What the client calls its machine; not proven.
    pub workstation: String,
    /// The version of the protocol.
    pub dialect: String,
    /// How messages are signed.
    pub signing: String,
    /// The cipher, if the client can encrypt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cipher: Option<String>,
    /// Whether everything is encrypted.
    pub encrypted: bool,
    /// When it began.
    pub since: u64,
    /// How many opens it has.
    pub opens: u64,
    /// The shares that it is connected to.
    pub shares: Vec<String>,
    /// Where its connections come from.
    pub addresses: Vec<String>,
}
