//! A cluster at a glance, as one of its nodes sees it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A pool and who has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterPool {
    /// Its name in the configuration; its GUID when no pool of the configuration has that.
    pub name: String,
    /// Its identity.
    pub guid: Uuid,
    /// The node that owns it; none while none does.
    pub owner: Option<String>,
    /// Rises with each change of the owner.
    pub epoch: u64,
    /// How far it is.
    pub state: ClusterPoolState,
    /// Where clients reach what is on it, whichever node has it, as `192.0.2.50/24`; absent when it has no address of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Why it is not served, as far as the node that answers knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The node that served it last, as far as the node that answers has seen; absent while it is served, and where that is its owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// For how many seconds no node has served it, as far as the node that answers has seen; absent while one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_seconds: Option<u64>,
    /// The nodes that give signs of life and see enough of its disks to serve it, also those that take no pools; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub can_serve: Option<Vec<String>>,
    /// Where no node can serve it: the nodes that give no sign of life, and have disks of it that no other node sees.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with_away: Vec<String>,
    /// The nodes that have disks of it, in a pool of disks of several nodes; as the node says that has it open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disk_nodes: Vec<String>,
    /// Its volumes, as far as they are known; none while it is served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
}

impl ClusterPool {
    /// Whether it is known that no node lets clients in to it now.
    #[must_use]
    pub fn is_unserved(&self) -> bool {
        self.state < ClusterPoolState::Unknown
    }
}

/// How far a pool is on its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterPoolState {
    /// No node owns it.
    Unowned,
    /// Its owner is not heard of, or the process that owned it has ended.
    Silent,
    /// Its owner opens it, or lets go of it.
    Moving,
    /// It is not known: its owner does not answer, or the shared state cannot be read.
    Unknown,
    /// It is served.
    Online,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterMember {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u16,
    /// How it is.
    pub state: ClusterMemberState,
    /// Milliseconds since its last beat was received; none when none was.
    pub beat_age_ms: Option<u64>,
    /// Pools that it owns.
    pub pools: u64,
    /// Where other nodes reach it.
    pub addresses: Vec<String>,
    /// Where it answers requests of other nodes.
    #[serde(default)]
    pub api: String,
    /// Its release.
    #[serde(default)]
    pub release: String,
    /// Why the node that answers cannot speak to it directly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// How a node of a cluster is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterMemberState {
    /// It does not take part: others have taken its place.
    Away,
    /// It takes part, and is not heard of.
    Silent,
    /// It gives its pools away, or has: it takes none until it is resumed. One without `pools` is drained.
    Draining,
    /// It takes no pools.
    Paused,
    /// It takes part.
    Up,
}

/// How a member of etcd is, the worst first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EtcdMemberState {
    /// It does not answer.
    #[default]
    Away,
    /// Its database is not what those of others are.
    Damaged,
    /// It answers, and knows of no leader.
    NoLeader,
    /// Its database has reached its quota.
    Full,
    /// It answers.
    Serving,
}

/// An alarm of etcd: while it is in force no member takes changes, also when the one with which something is wrong is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EtcdAlarm {
    /// What is the matter.
    pub kind: EtcdAlarmKind,
    /// Where clients reach the members with which it is; none where that is not known, or they are gone or away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
}

/// What is the matter with an etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EtcdAlarmKind {
    /// A database has reached its quota.
    Full,
    /// A database is not what those of other members are: nothing is answered either.
    Damaged,
}

/// A member of the cluster's etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EtcdMemberStatus {
    /// Where clients reach it.
    pub url: String,
    /// The size of its database's file in bytes; none when it does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// At so many bytes it takes no changes any more; none where somebody else runs it, and it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// How it is.
    pub state: EtcdMemberState,
    /// Why it does not answer, or what it complains of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// The cluster at a glance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterStatus {
    /// Its name.
    pub cluster: String,
    /// The node that answers.
    pub node: String,
    /// Whether that node takes part now.
    pub takes_part: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The shared state has gone back in time (etcd was restored from a backup), as the node that answers has noticed since it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_went_back: Option<String>,
    /// The shared state (etcd) cannot be read by the node that answers: it does not know what other nodes serve.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub store_unreadable: bool,
    /// The cluster has removed the node that answers: it takes no part any more, and has nothing of the cluster. `holdfast cluster leave`
    /// makes it one on its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// The other nodes, where the node that answers reaches none of them and not the shared state either: it is cut off itself, and what they serve it
    /// does not know. Empty otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut_off: Vec<String>,
    /// Members of etcd, as the node that answers has found them within the last seconds; none before it has looked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub etcd: Vec<EtcdMemberStatus>,
    /// How many members of etcd have a vote, where the nodes run it; absent while that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_voters: Option<u64>,
    /// Alarms of etcd that are in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub etcd_alarms: Vec<EtcdAlarm>,
    /// Who owns what, who is away, and what a further loss would do, in sentences.
    pub summary: Vec<String>,
    /// Pools, by name.
    pub pools: Vec<ClusterPool>,
    /// Nodes, by number.
    pub nodes: Vec<ClusterMember>,
}

/// How a node is paused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodePause {
    /// It gives away the pools that it has, too.
    #[serde(default)]
    pub drain: bool,
    /// The node's name, repeated; needed when it gives pools away and hosts lose by that what they have written to LUNs with
    /// `write_cache_in`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// Where a pool is to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolMove {
    /// The node.
    pub node: String,
    /// The pool's name, repeated; needed when hosts lose by the move what they have written to LUNs with `write_cache_in`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}
