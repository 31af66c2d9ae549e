//! Policies of storage QoS: what disks are promised and allowed, and what is wrong with that.
//!
//! A *policy* has an identity (a GUID, which may be given, so that it stays the same when virtual machines move to another
//! node), a name, and any of minimum IOPS, maximum IOPS and maximum bandwidth. A *dedicated* one holds for each disk by itself,
//! an *aggregated* one for all its disks together, which share it by demand. An *assignment* gives a LUN its policy, a [`Place`] all
//! files at or below a path of a volume: each of them is a disk. The nearest place counts, and for a LUN its own assignment first.
//!
//! IOPS are normalised: a request counts as many as it has units ([`DEFAULT_UNIT_BYTES`] unless configured) begun. Whichever
//! maximum is reached first limits. Names of types and words for states are those of Windows Server's Storage QoS.
//!
//! Invariants:
//! * [`Policy::check`] passes only what the scheduler can keep: a minimum is never above the maximum.
//! * An assignment may name a policy that is not there (any more): its disk has no limits then, and says
//!   [`FlowStatus::UnknownPolicyId`].
//!
//! Not done here: names that must be there or unique on the node (`control_api`), keeping to policies (`qos_scheduler`).

mod check;
mod place;
mod status;
mod table;

pub use check::{
    PolicyError, check_assignments, check_changed, check_places, check_policies, check_settings,
};
pub use place::{Place, PlaceKind, Places};
pub use status::{FlowStatus, Measured};
pub use table::{Effective, Policies};

use qos_scheduler::Terms;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Most policies on a node: what Windows Server allows for a cluster.
pub const MAX_POLICIES: usize = 10_000;
/// Most assignments on a node: as many as it may have LUNs.
pub const MAX_ASSIGNMENTS: usize = 65_536;
/// Highest minimum and maximum, in normalised I/Os per second: what MS-SQOS can say to hosts.
pub const MAX_IOPS: u64 = 1_000_000_000;
/// Lowest maximum bandwidth, in bytes per second: 64 KiB. With less, a single request of the size that systems send at
/// start takes longer than they wait for a disk.
pub const MIN_BANDWIDTH: u64 = 64 << 10;
/// Highest maximum bandwidth, in bytes per second: 10^9 KiB, what MS-SQOS can say to hosts.
pub const MAX_BANDWIDTH: u64 = MAX_IOPS << 10;
/// Longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 64;
/// Bytes that count as one I/O unless configured.
pub const DEFAULT_UNIT_BYTES: u32 = 8192;
/// Requests at a volume at once unless configured: enough to keep an array of flash busy; what is more waits where minimums and
/// shares count, and not in the queues of disks.
pub const DEFAULT_VOLUME_DEPTH: u32 = 128;

/// Whom the numbers of a policy hold for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum PolicyKind {
    /// For each disk by itself (`MultiInstance` in the previews of Windows Server 2016).
    #[default]
    #[serde(alias = "Dedicated", alias = "MultiInstance", alias = "multiinstance")]
    Dedicated,
    /// For all its disks together, which share it by demand (`SingleInstance`).
    #[serde(alias = "Aggregated", alias = "SingleInstance", alias = "singleinstance")]
    Aggregated,
}

impl std::fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Dedicated => "dedicated",
            Self::Aggregated => "aggregated",
        })
    }
}

impl std::str::FromStr for PolicyKind {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        match text.to_ascii_lowercase().as_str() {
            "dedicated" | "multiinstance" => Ok(Self::Dedicated),
            "aggregated" | "singleinstance" => Ok(Self::Aggregated),
            _ => Err(PolicyError::Kind(text.chars().take(MAX_NAME_BYTES).collect())),
        }
    }
}

/// What disks are promised and allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Its identity; never changes.
    pub guid: Uuid,
    /// Its name, unique on the node.
    pub name: String,
    /// Whom its numbers hold for; never changes.
    #[serde(default)]
    pub kind: PolicyKind,
    /// Normalised I/Os per second that are promised; absent for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_iops: Option<u64>,
    /// Normalised I/Os per second that are allowed; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iops: Option<u64>,
    /// Bytes per second that are allowed; absent for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bandwidth: Option<u64>,
}

impl Policy {
    /// For the scheduler.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms {
            min_iops: self.min_iops,
            max_iops: self.max_iops,
            max_bandwidth: self.max_bandwidth,
            ..Terms::default()
        }
    }
}

/// A disk and its policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Assignment {
    /// The disk: a LUN.
    pub lun: String,
    /// The policy's identity.
    pub policy: Uuid,
}

/// What holds for all disks of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QosSettings {
    /// Bytes that count as one I/O.
    pub unit_bytes: u32,
    /// Requests at a volume at once; others wait where minimums and shares count.
    pub volume_depth: u32,
    /// How long a volume may take for a request, in microseconds, while somebody with a minimum would suffer by its being longer:
    /// fewer requests are let to it then. 0: twice as long as when it is quiet, which is learnt.
    #[serde(skip_serializing_if = "is_zero")]
    pub latency_target_us: u32,
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

impl Default for QosSettings {
    fn default() -> Self {
        Self { unit_bytes: DEFAULT_UNIT_BYTES, volume_depth: DEFAULT_VOLUME_DEPTH, latency_target_us: 0 }
    }
}

impl QosSettings {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests;
