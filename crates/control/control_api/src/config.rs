//! The declarative configuration of a node: what `config show` prints and `config apply` takes.
//!
//! It holds what cannot be found on the disks themselves: which disks and pools this node uses, portals,
//! targets, groups, LUNs, the SMB server and its shares, policies. Volumes, files and data are in the pools; users and
//! groups, which have secrets, are in a database of their own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    Assignment, CacheConfig, GroupConfig, HttpConfig, IscsiConfig, LunConfig, MediaType, Place, Policy,
    PortalConfig, QosSettings, ShareConfig, SmbConfig, TargetConfig, VolumeConfig,
};

/// Version of the configuration's schema that this release writes.
pub const CONFIG_SCHEMA: u32 = 1;

/// The whole configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Version of the schema.
    pub schema: u32,
    /// The node itself.
    #[serde(default)]
    pub node: NodeConfig,
    /// What the node does by itself.
    #[serde(default)]
    pub policy: PolicyConfig,
    /// Caches of the node.
    #[serde(default, skip_serializing_if = "CacheConfig::is_default")]
    pub cache: CacheConfig,
    /// Disks that are files, and overrides.
    #[serde(default, rename = "disk", skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<DiskConfig>,
    /// Pools that this node opens.
    #[serde(default, rename = "pool", skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolConfig>,
    /// How volumes are cached.
    #[serde(default, rename = "volume", skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeConfig>,
    /// What holds for all targets.
    #[serde(default, skip_serializing_if = "IscsiConfig::is_default")]
    pub iscsi: IscsiConfig,
    /// Addresses that targets are served on.
    #[serde(default, rename = "portal", skip_serializing_if = "Vec::is_empty")]
    pub portals: Vec<PortalConfig>,
    /// Who sees what.
    #[serde(default, rename = "initiator_group", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupConfig>,
    /// Targets.
    #[serde(default, rename = "target", skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetConfig>,
    /// LUNs.
    #[serde(default, rename = "lun", skip_serializing_if = "Vec::is_empty")]
    pub luns: Vec<LunConfig>,
    /// What holds for all disks in storage QoS.
    #[serde(default, skip_serializing_if = "QosSettings::is_default")]
    pub qos: QosSettings,
    /// Policies of storage QoS.
    #[serde(default, rename = "qos_policy", skip_serializing_if = "Vec::is_empty")]
    pub qos_policies: Vec<Policy>,
    /// Which LUN has which policy.
    #[serde(default, rename = "qos_assignment", skip_serializing_if = "Vec::is_empty")]
    pub qos_assignments: Vec<Assignment>,
    /// Which files, folders and volumes have which policy of storage QoS.
    #[serde(default, rename = "qos_place", skip_serializing_if = "Vec::is_empty")]
    pub qos_places: Vec<Place>,
    /// The SMB server.
    #[serde(default, skip_serializing_if = "SmbConfig::is_default")]
    pub smb: SmbConfig,
    /// The API over the network.
    #[serde(default, skip_serializing_if = "HttpConfig::is_default")]
    pub http: HttpConfig,
    /// Shares.
    #[serde(default, rename = "share", skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<ShareConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            schema: CONFIG_SCHEMA,
            node: NodeConfig::default(),
            policy: PolicyConfig::default(),
            cache: CacheConfig::default(),
            disks: Vec::new(),
            pools: Vec::new(),
            volumes: Vec::new(),
            iscsi: IscsiConfig::default(),
            portals: Vec::new(),
            groups: Vec::new(),
            targets: Vec::new(),
            luns: Vec::new(),
            qos: QosSettings::default(),
            qos_policies: Vec::new(),
            qos_assignments: Vec::new(),
            qos_places: Vec::new(),
            smb: SmbConfig::default(),
            http: HttpConfig::default(),
            shares: Vec::new(),
        }
    }
}

/// The node itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Its name; empty for the machine's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Threads that serve; 0 for one per core.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub shards: u16,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(value: &u16) -> bool {
    *value == 0
}

/// What the node does by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyConfig {
    /// Seconds that a disk may be missing before a spare takes its place; 0 for never.
    pub spare_after_seconds: u64,
    /// Seconds between looks for disks that came back.
    pub rescan_seconds: u64,
    /// Bytes per second that repair may copy; 0 for no limit.
    pub repair_bytes_per_second: u64,
    /// Milliseconds that clients' small requests may take on the average while copies are restored: repair slows down
    /// for them. 0 for twice what they take without.
    pub repair_latency_ms: u64,
    /// Failed requests and restored blocks after which a disk is emptied and retired; 0 for never.
    pub retire_after_errors: u64,
    /// Seconds of answering far slower than its like after which a disk is emptied and retired; 0 for never.
    pub retire_after_slow_seconds: u64,
    /// Days from the end of a scrub to the start of the next; 0 for only when asked.
    pub scrub_every_days: u32,
    /// Bytes per second that a scrub may read; 0 for no limit.
    pub scrub_bytes_per_second: u64,
    /// Percent points between the fullest and the emptiest disk of a pool above which it is rebalanced, and after disks
    /// have joined; 0 for only when asked.
    pub rebalance_above_percent: u32,
    /// The room of so many disks of each pool, its largest, is kept from new data, so that what a lost disk held can be made
    /// again without a spare; 0 for none.
    pub reserve_disks: u32,
    /// Percent of a pool in use from which on that is a warning; 0 for never.
    pub space_warning_percent: u8,
    /// Percent of a pool in use from which on that is told of once more, in the log too; 0 for never.
    pub space_critical_percent: u8,
    /// Which pools of a cluster move by themselves.
    // Not written while it is as usual: nodes of releases before do not know it.
    #[serde(skip_serializing_if = "PoolMoves::is_usual")]
    pub pool_moves: PoolMoves,
    /// Seconds for which no node has come, gone or been paused before they do.
    #[serde(skip_serializing_if = "is_usual_quiet")]
    pub pool_moves_after_seconds: u64,
}

/// Which pools of a cluster move by themselves, when the nodes have been the same for a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PoolMoves {
    /// None: `cluster rebalance` is asked for.
    Manual,
    /// Those that have a home, to it.
    #[default]
    Home,
    /// These, and others from nodes with more to do to nodes with less.
    Balance,
}

impl PoolMoves {
    fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// See `pool_moves_after_seconds`.
const USUAL_QUIET: u64 = 600;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_usual_quiet(seconds: &u64) -> bool {
    *seconds == USUAL_QUIET
}

impl Default for PolicyConfig {
    fn default() -> Self {
        // Five minutes: longer than the restart of an enclosure, shorter than it takes a second disk to die.
        // A disk with so many errors, or slow for so long, does not recover; what it holds is still good to copy from.
        Self {
            spare_after_seconds: 300,
            rescan_seconds: 5,
            repair_bytes_per_second: 0,
            repair_latency_ms: 0,
            retire_after_errors: 64,
            retire_after_slow_seconds: 300,
            scrub_every_days: 14,
            // Leaves a spinning disk to its clients.
            scrub_bytes_per_second: 64 << 20,
            // Less is not worth the traffic.
            rebalance_above_percent: 10,
            reserve_disks: 0,
            space_warning_percent: 70,
            space_critical_percent: 90,
            pool_moves: PoolMoves::Home,
            // Who comes back may go again soon.
            pool_moves_after_seconds: USUAL_QUIET,
        }
    }
}

/// A disk that is a file, or what people know better than a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskConfig {
    /// The disk's stable id; for a file, its absolute path; for a unit of an iSCSI target, `iscsi://HOST:PORT/TARGET/LUN`;
    /// for an image of Ceph, `rbd:POOL/IMAGE` with `?id=USER&conf=PATH&keyring=PATH` as far as needed;
    /// for a disk of a node of the cluster that all nodes use, `NODE:/PATH`.
    pub id: String,
    /// How to log in to its target, for a unit of one that asks for CHAP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<DiskLogin>,
    /// What it is made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media: Option<MediaType>,
    /// Enclosure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enclosure: Option<String>,
    /// Slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// Model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
}

impl DiskConfig {
    /// The disk with this id, nothing overridden.
    #[must_use]
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            login: None,
            media: None,
            enclosure: None,
            slot: None,
            model: None,
            serial: None,
        }
    }
}

/// Who this node is to the target of a disk, and who the target must prove to be (CHAP).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskLogin {
    /// This node's user name there.
    pub user: String,
    /// The user's secret, of 12 to 255 bytes.
    pub secret: String,
    /// The name that the target proves to be; absent where it proves nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_user: Option<String>,
    /// The secret that it proves to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_secret: Option<String>,
}

/// Secrets are not for logs.
impl std::fmt::Debug for DiskLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskLogin")
            .field("user", &self.user)
            .field("target_user", &self.target_user)
            .finish_non_exhaustive()
    }
}

/// What the id of a unit of an iSCSI target begins with.
pub const ISCSI_DISK: &str = "iscsi://";
/// What the id of an image of Ceph begins with.
pub const RBD_DISK: &str = "rbd:";

/// A pool that this node opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// Its name, for people.
    pub name: String,
    /// Its identity.
    pub guid: Uuid,
    /// Where clients reach what is on it, whichever node has it, as `192.0.2.50/24`. Absent: at the addresses of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The interface that gets the address; absent for the one that has another address of its network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Nodes of the cluster where it should be: the first of them that takes pools. Empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub home: Vec<String>,
}

impl PoolConfig {
    /// A pool without an address of its own, and without a home.
    #[must_use]
    pub fn new(name: &str, guid: Uuid) -> Self {
        Self { name: name.to_owned(), guid, address: None, interface: None, home: Vec::new() }
    }
}

/// A configuration to compare with or to put in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigRequest {
    /// What is wanted.
    pub config: Config,
    /// Only say what would change.
    #[serde(default)]
    pub dry_run: bool,
    /// The node that it was made by, if that is known: another one asks before it becomes like that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_node: Option<String>,
    /// What stands for the machine of that node, if that is known ([`Status::machine`](crate::Status::machine)): it counts more than
    /// the name, which several machines may have and which may change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_machine: Option<String>,
    /// Needed when something is taken away, or it is another node's: the word `apply`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// One change between two configurations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigChange {
    /// `+`, `-` or `~`.
    pub sign: char,
    /// What ("lun web1").
    pub subject: String,
    /// How it changes ("state online → offline"); empty when added or removed whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// What applying a configuration changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigDiff {
    /// The changes, removals first.
    pub items: Vec<ConfigChange>,
    /// Whether they have been made.
    pub applied: bool,
    /// What could not be put into effect yet, and why (a volume that is not there).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
