//! The node at a glance.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ClusterStatus, Job, RedundancyState};

/// How bad something is. The order is worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Data cannot be read or is damaged.
    Critical,
    /// Data is less safe than promised, or something is not served.
    Error,
    /// Something needs attention soon.
    Warning,
    /// Good to know.
    Info,
}

/// The answer to "is all data as redundant as promised?".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Yes.
    FullyRedundant,
    /// Yes soon: copies are being restored.
    Restoring,
    /// No, but all data is there, as far as is known: `summary` begins with UNKNOWN where a node does not answer that has pools, or
    /// the node that is asked is cut off, and with REMOVED where the cluster has removed it.
    Reduced,
    /// No: some data is not available.
    Unavailable,
    /// There is no data yet.
    Empty,
}

/// Somebody knows of a finding. It holds until the finding clears or gets worse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Acknowledgement {
    /// Who: a user, a token's name and id, or the number of a user of the machine.
    pub by: String,
    /// When, in seconds since 1970 UTC.
    pub time: u64,
    /// What that one has to say of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Issue {
    /// The rule that says so, by its stable name ("disk-missing"); empty from a node of a release that had none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
    /// The finding's id, by which it is acknowledged; with its node before it where another node has found it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about ("disk wwn-0x5000…", "pool p1").
    pub subject: String,
    /// What is wrong.
    pub detail: String,
    /// What to do.
    pub todo: String,
    /// Since when, in seconds since 1970 UTC; absent while it was never looked at before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// Who knows of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged: Option<Acknowledgement>,
}

/// How many of each there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counts {
    /// Pools.
    pub pools: u64,
    /// Disks of pools.
    pub disks: u64,
    /// Volumes.
    pub volumes: u64,
    /// Targets.
    pub targets: u64,
    /// LUNs.
    pub luns: u64,
    /// LUNs that are served for reading and writing, or for reading when that is what they are for.
    pub luns_online: u64,
    /// Sessions, of iSCSI and SMB.
    pub sessions: u64,
    /// Shares.
    #[serde(default)]
    pub shares: u64,
    /// Shares that are served.
    #[serde(default)]
    pub shares_online: u64,
}

/// A pool that is counted in the totals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CountedPool {
    /// Its name.
    pub pool: String,
    /// The epoch in which it is open.
    pub epoch: u64,
    /// Its disks.
    pub disks: u64,
    /// Its volumes.
    pub volumes: u64,
    /// Bytes that it has.
    pub capacity_bytes: u64,
    /// Bytes of these that are free.
    pub free_bytes: u64,
}

/// A pool that the totals are without, as it cannot be looked into now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UncountedPool {
    /// Its name.
    pub pool: String,
    /// Why, as the end of a sentence about it: "no node serves it now".
    pub why: String,
}

/// Memory for clients' requests that are under way, and their answers: all of them together, iSCSI and SMB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestMemory {
    /// Bytes that they may take, what each connection takes that does nothing included.
    pub limit_bytes: u64,
    /// Bytes that they take now.
    pub used_bytes: u64,
    /// Of these, bytes that images of LUNs hold: sectors of their tables, and logs of their parents.
    #[serde(default)]
    pub images_bytes: u64,
    /// Connections that wait for memory now.
    pub waiting: u64,
    /// How often one has waited since the node started.
    pub waits: u64,
    /// Connections that were ended or refused since then: they held memory and did nothing while others waited, or there were too many.
    pub ended: u64,
}

/// The node at a glance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The node's name.
    pub node: String,
    /// What stands for this node among those of its name, made of the system's machine id, which itself is told nobody, and the data
    /// directory; absent without a machine id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Version of Holdfast.
    pub version: String,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// Whether everything that starts at start has started.
    pub ready: bool,
    /// The cluster that it belongs to; absent on a node of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterStatus>,
    /// Whether all data is as redundant as promised.
    pub verdict: Verdict,
    /// The verdict as a sentence.
    pub summary: String,
    /// What is not as it should be, worst first; what somebody knows of comes last.
    pub issues: Vec<Issue>,
    /// Work under way.
    pub jobs: Vec<Job>,
    /// The worst redundancy of any data in pools that can be looked into; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<RedundancyState>,
    /// How many of each there are; disks and volumes are those of pools in `counted`.
    pub counts: Counts,
    /// Bytes of all pools in `counted`.
    pub capacity_bytes: u64,
    /// Bytes that are free in all pools in `counted`.
    pub free_bytes: u64,
    /// The pools that capacity, free bytes, disks and volumes are the totals of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<CountedPool>,
    /// The pools that these totals are without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_counted: Vec<UncountedPool>,
    /// Memory for clients' requests that are under way.
    #[serde(default)]
    pub request_memory: RequestMemory,
    /// How the node does its disk I/O ("ring" or "blocking").
    pub io_engine: String,
    /// Process id.
    pub pid: u32,
    /// The data directory.
    pub data_dir: String,
}
