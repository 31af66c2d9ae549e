//! Disks of the machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What a disk is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MediaType {
    /// Flash.
    Ssd,
    /// Spinning.
    Hdd,
    /// The disk doesn't say.
    #[default]
    Unspecified,
}

/// What a disk is to this node. The order is by how much it hurts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiskState {
    /// A member of a pool that is not there.
    Missing,
    /// A member of a pool that failed and is not used any more.
    Failed,
    /// A member of a pool that is being emptied or has been retired.
    Retiring,
    /// A member of a pool in good order.
    Online,
    /// A member of a pool that waits to replace another.
    Spare,
    /// Carries superblocks of a pool that this node has not imported.
    OtherPool,
    /// Carries data that is not ours.
    Foreign,
    /// Mounted, or held by something else of the machine.
    InUse,
    /// Empty; may be added to a pool.
    Free,
}

/// What went through a device since the node started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IoCounters {
    /// Completed reads.
    pub reads: u64,
    /// Completed writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Operations that ended with an error.
    pub errors: u64,
    /// Mean latency in microseconds.
    pub mean_latency_us: f64,
}

/// A disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Disk {
    /// Stable identity: WWN, serial number, or the path of a file.
    pub id: String,
    /// Where it is now; absent while it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What it is to this node.
    pub state: DiskState,
    /// Why, in a sentence, where the state needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// What it is made of, after overrides.
    pub media: MediaType,
    /// Model, after overrides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Serial number, after overrides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Vendor, as the disk says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Bus ("nvme", "sas", "file").
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// The node of the cluster that has it, where all nodes use it by node and path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Enclosure, after overrides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enclosure: Option<String>,
    /// Slot in the enclosure, after overrides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// The pool it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Its identity in the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guid: Option<Uuid>,
    /// Counters, when the node has it open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<IoCounters>,
    /// Faults that were switched on for tests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
}

/// What people know better than the disk. Fields that are absent stay; empty strings remove an override.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskUpdate {
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

/// What a rescan found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RescanReport {
    /// Disks that were not known before.
    pub found: Vec<String>,
    /// Disks of pools that are back.
    pub returned: Vec<String>,
    /// Disks of pools that are gone.
    pub missing: Vec<String>,
}
