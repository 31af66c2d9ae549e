//! Pools and their members.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{DiskState, MediaType, PoolAddress, RedundancyState, Resiliency, Selector, human_bytes};

/// What a pool is to this node. The order is by how much it hurts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PoolState {
    /// It cannot be opened; the reason says why.
    Closed,
    /// It serves reads only; the reason says why.
    ReadOnly,
    /// It is being opened.
    Opening,
    /// It serves, with some of its disks missing.
    Degraded,
    /// It serves.
    Online,
    /// Another node of the cluster has it; the reason says which.
    Elsewhere,
}

/// How a pool fills up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolForecast {
    /// Bytes by which it grows in a day; below zero when it empties. The median over the time that was looked at, so that one large copy does not count.
    pub growth_bytes_per_day: i64,
    /// Hours that were looked at: a day at least, a week at most.
    pub over_hours: u64,
    /// Days until it is full when it goes on like that; absent when it does not fill up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_in_days: Option<u64>,
}

/// A pool in a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub guid: Uuid,
    /// What it is to this node.
    pub state: PoolState,
    /// Why, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether its data is as redundant as promised.
    pub redundancy: RedundancyState,
    /// Bytes of all members that slabs can take: whole slabs, so that a large slab leaves a rest on each disk that is not counted.
    pub capacity_bytes: u64,
    /// Bytes that slabs take.
    pub allocated_bytes: u64,
    /// Bytes free for new slabs, without those that are kept for repair.
    pub free_bytes: u64,
    /// Bytes that are free, and kept from new data so that what a lost disk held finds room (`reserve_disks`).
    #[serde(default)]
    pub reserved_bytes: u64,
    /// Members.
    pub disks: u64,
    /// Members that are missing or failed.
    pub disks_missing: u64,
    /// Volumes.
    pub volumes: u64,
    /// Bytes to copy until everything is as redundant as promised.
    pub repair_bytes: u64,
    /// Bytes copied since the pool was opened, to restore copies and to bring returned disks up to date.
    #[serde(default)]
    pub copied_bytes: u64,
    /// Bytes in a slab.
    pub slab_bytes: u64,
    /// Ownership epoch.
    pub epoch: u64,
    /// Where clients reach what is on it, whichever node has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<PoolAddress>,
    /// Nodes of the cluster where it should be, the preferred one first; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub home: Vec<String>,
    /// What its volumes do, in normalised I/Os (of 8 KiB) a second, averaged over ten minutes. Absent while it has not been open here for a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<u64>,
    /// Why it stays with its node whatever that has to do, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stays: Option<String>,
    /// What hosts lose that they have written to LUNs with `write_cache_in` when it goes to another node, a sentence for each LUN: while there
    /// is any it does not move by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub discards: Vec<String>,
    /// When it will be full. Absent while this node has seen less than a day of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<PoolForecast>,
}

/// A disk as a pool sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolMember {
    /// Its identity in the pool.
    pub guid: Uuid,
    /// The disk's stable id, when it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// What it is.
    pub state: DiskState,
    /// Why, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes of these that slabs can take in all: whole slabs, without what the pool keeps for itself.
    #[serde(default)]
    pub usable_bytes: u64,
    /// Bytes that slabs take.
    pub allocated_bytes: u64,
    /// Reads and writes that failed since the pool was opened.
    #[serde(default)]
    pub io_errors: u64,
    /// Blocks of 4 KiB that were not what was written, since the pool was opened.
    #[serde(default)]
    pub checksum_errors: u64,
    /// Blocks of 4 KiB restored from another copy or from parity, since the pool was opened.
    #[serde(default)]
    pub healed_blocks: u64,
    /// For how many seconds it has answered far slower than the others of its kind; 0 when it does not.
    #[serde(default)]
    pub slow_seconds: u64,
    /// For how many seconds its file system has been full, so that it lacks what was written since; 0 when it is not.
    #[serde(default)]
    pub full_seconds: u64,
    /// What it is made of.
    pub media: MediaType,
    /// The node of the cluster that has it, in a pool of disks of several nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Enclosure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enclosure: Option<String>,
    /// Slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
}

/// The space under a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SpaceState {
    /// The volume's name.
    pub name: String,
    /// What was promised.
    pub resiliency: Resiliency,
    /// Whether the promise is kept now.
    pub redundancy: RedundancyState,
    /// Bytes to copy until it is.
    pub repair_bytes: u64,
    /// Why it isn't, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Where the scrub of a pool stands: reading everything and comparing it with its checksums.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Scrub {
    /// Whether one is under way.
    pub running: bool,
    /// When it began, or the last one did, in milliseconds since 1970; 0 for never.
    pub started_unix_ms: u64,
    /// When the last one ended, in milliseconds since 1970; 0 for never.
    pub finished_unix_ms: u64,
    /// Rows of slabs that it has read.
    pub rows_done: u64,
    /// Rows there are.
    pub rows: u64,
    /// Bytes read from disks.
    pub read_bytes: u64,
    /// Blocks of 4 KiB that were not what was written.
    pub damaged_blocks: u64,
    /// Those of them that could not be restored.
    pub lost_blocks: u64,
}

/// How evenly the disks of a pool are used, and how far making that so is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Balance {
    /// Percent points between the fullest and the emptiest disk that are here.
    pub uneven_percent: u32,
    /// Somebody has asked for it, and it waits for repairs to end.
    pub waiting: bool,
    /// Bytes to move; 0 when nothing is being moved.
    pub bytes_left: u64,
    /// Bytes moved since the pool was opened.
    pub moved_bytes: u64,
}

/// Makes the disks of a pool equally full, and uses its fault domains.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Rebalance {
    /// Only says what would be moved.
    pub dry_run: bool,
}

/// What a rebalancing moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RebalanceReport {
    /// Bytes to move.
    pub bytes: u64,
    /// Disks, those that change most first.
    pub disks: Vec<RebalancedDisk>,
    /// The job that follows it; absent after a dry run, and when there is nothing to move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// The node whose job that is, where it is not the one that was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// A disk before and after a rebalancing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RebalancedDisk {
    /// The disk's name in this node, or its GUID in the pool.
    pub disk: String,
    /// Its enclosure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enclosure: Option<String>,
    /// Its size in bytes.
    pub capacity_bytes: u64,
    /// Bytes in use now.
    pub used_bytes: u64,
    /// Bytes in use then.
    pub used_then_bytes: u64,
}

/// A pool with its parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolDetail {
    /// The pool.
    #[serde(flatten)]
    pub pool: Pool,
    /// The node that has it; absent on a node that belongs to no cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Its disks, sorted by what hurts most.
    pub members: Vec<PoolMember>,
    /// Its spaces, sorted by what hurts most.
    pub spaces: Vec<SpaceState>,
    /// Its scrub.
    #[serde(default)]
    pub scrub: Scrub,
    /// How evenly its disks are used.
    #[serde(default)]
    pub balance: Balance,
}

/// Bytes in the smallest slab that a pool can have.
pub const SLAB_BYTES_MIN: u64 = 256 << 10;
/// Bytes in the largest slab that a pool can have: what the metadata can count the checksums of.
pub const SLAB_BYTES_MAX: u64 = 64 << 30;

/// Whether a pool can have slabs of so many bytes.
///
/// # Errors
/// Says which it can have.
pub fn check_slab_bytes(bytes: u64) -> Result<(), String> {
    let (least, most) = (human_bytes(SLAB_BYTES_MIN), human_bytes(SLAB_BYTES_MAX));
    if bytes > SLAB_BYTES_MAX {
        return Err(format!("{} is too large for a slab: the largest has {most}", human_bytes(bytes)));
    }
    if bytes < SLAB_BYTES_MIN {
        return Err(format!("{} is too small for a slab: the smallest has {least}", human_bytes(bytes)));
    }
    if !bytes.is_power_of_two() {
        return Err(format!("{bytes} bytes are no slab: its size is a power of two from {least} to {most}"));
    }
    Ok(())
}

/// Makes a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolCreate {
    /// Its name.
    pub name: String,
    /// Ids or paths of disks.
    #[serde(default)]
    pub disks: Vec<String>,
    /// Further disks, by what they are: each selector chooses of the free disks that are not named here and that the
    /// selectors before it left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub select: Vec<Selector>,
    /// Ids or paths of disks that wait to replace others.
    #[serde(default)]
    pub spares: Vec<String>,
    /// Bytes in a slab: a power of two from 256 KiB to 64 GiB; absent for 64 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slab_bytes: Option<u64>,
    /// Destroy data of others that is on the disks. Needs `confirm` too.
    #[serde(default)]
    pub overwrite_foreign: bool,
    /// The pool's name, repeated: the disks are taken over entirely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// Takes over a pool that is on disks of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolImport {
    /// Name or GUID of the pool.
    pub pool: String,
    /// What this node calls it, where its name is taken here; its disks keep the name that they have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Paths of file disks to look at in addition.
    #[serde(default)]
    pub disks: Vec<String>,
    /// Open it although newer changes may be on disks that are not there.
    #[serde(default)]
    pub accept_loss: bool,
    /// The pool's name, repeated; needed with `accept_loss`, and in a cluster for a pool on disks that its last owner cannot be kept from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// Adds disks to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddDisk {
    /// Id or path; absent with `select`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// Free disks, by what they are: each selector chooses of what those before it left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub select: Vec<Selector>,
    /// Keep them to replace others.
    #[serde(default)]
    pub spare: bool,
    /// Destroy data of others that is on the disk that is named. Needs `confirm` too.
    #[serde(default)]
    pub overwrite_foreign: bool,
    /// The disk, repeated; with `select`, the pool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// Empties a disk and takes it out of its pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveDisk {
    /// The disk, repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// Gives what a lost or retired disk held to another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplaceDisk {
    /// Id or path of the new disk; absent to use a spare or the free space of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
    /// Destroy data of others that is on it. Needs `confirm` too.
    #[serde(default)]
    pub overwrite_foreign: bool,
    /// The disk that is replaced, repeated: what is on it is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// How to check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckRequest {
    /// Read and compare data too, not only structures.
    #[serde(default)]
    pub deep: bool,
    /// Repair what can be repaired.
    #[serde(default)]
    pub repair: bool,
    /// The name, repeated; needed with `repair`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// Something that a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckFinding {
    /// How bad it is.
    pub severity: crate::Severity,
    /// Which structure.
    pub structure: String,
    /// Where.
    pub place: String,
    /// What.
    pub detail: String,
    /// What was or can be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckReport {
    /// What was checked.
    pub subject: String,
    /// Nothing worse than a remark was found.
    pub clean: bool,
    /// One sentence.
    pub summary: String,
    /// What was found, worst first.
    pub items: Vec<CheckFinding>,
}
