//! Volumes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CachePolicyUpdate, LogCreate, RedundancyState, Resiliency, VolumeCache, VolumeLog};

/// When space is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Provisioning {
    /// At the first write.
    #[default]
    Thin,
    /// At creation.
    Fixed,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Volume {
    /// Its name, unique in its pool. Of several of one name the node serves one.
    pub name: String,
    /// Its identity (of its space): what LUNs and shares on it have as `volume_guid`.
    #[serde(default)]
    pub guid: uuid::Uuid,
    /// The pool it lies in.
    pub pool: String,
    /// Whether it serves.
    pub online: bool,
    /// Why not, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How data survives the loss of disks.
    pub resiliency: Resiliency,
    /// Whether that promise is kept now.
    pub redundancy: RedundancyState,
    /// When space is taken.
    pub provisioning: Provisioning,
    /// Columns that data is striped over, those with parity among them.
    pub columns: u16,
    /// Bytes on one column before the next.
    pub interleave_bytes: u64,
    /// Whether every block has a checksum.
    #[serde(default)]
    pub integrity: bool,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes that files take.
    pub used_bytes: u64,
    /// Bytes that files can still take: of a thin volume not more than its pool has room for. 0 while it is not open.
    #[serde(default)]
    pub free_bytes: u64,
    /// Bytes that it takes in the pool, all copies counted.
    pub allocated_bytes: u64,
    /// How reads of it are cached on this node.
    #[serde(default)]
    pub cache: VolumeCache,
    /// The log before it, if it has one and is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<VolumeLog>,
    /// Where its log lies, if it has one, open or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_place: Option<LogPlace>,
}

/// Where the log of a volume lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogPlace {
    /// The pool; absent when the log is missing and this node has never seen it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The size of its space there, in bytes, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Whether its pool is open and has it.
    pub there: bool,
}

/// Makes a space and a volume on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeCreate {
    /// Its name.
    pub name: String,
    /// The pool; may be absent when the node has one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// How data survives the loss of disks.
    #[serde(default)]
    pub resiliency: Resiliency,
    /// When space is taken.
    #[serde(default)]
    pub provisioning: Provisioning,
    /// Columns; absent for as many as the pool's disks allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<u16>,
    /// Bytes on one column before the next; absent for 256 KiB, with parity for 64 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleave_bytes: Option<u64>,
    /// Whether every block gets a checksum; absent for yes. Parity needs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integrity: Option<bool>,
    /// How reads of it are cached on this node; what is absent is as for volumes of which nothing was said.
    #[serde(default)]
    pub cache: CachePolicyUpdate,
    /// A log for its writes; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogCreate>,
}

/// Gives a volume another name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeRename {
    /// The new name.
    pub name: String,
}

/// Changes a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeUpdate {
    /// New size in bytes; not smaller than it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// How reads of it are cached on this node.
    #[serde(default)]
    pub cache: CachePolicyUpdate,
}
