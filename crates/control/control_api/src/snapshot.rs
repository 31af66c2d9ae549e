//! Snapshots of volumes, clones of trees, schedules, and what files take.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::FileKind;

/// A snapshot of a file, a directory or a whole volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// Its name, unique in the volume.
    pub name: String,
    /// The volume.
    pub volume: String,
    /// The path of its source when it was taken; `/` is the whole volume.
    pub path: String,
    /// Where its files are: what file verbs take as a path. Below it everything is read-only.
    pub view: String,
    /// What it is of.
    pub kind: FileKind,
    /// When it was taken, in seconds since 1970 UTC.
    pub created: u64,
    /// Whether volatile data was made durable before writes were held up. (All of it is durable in any case.)
    pub quiesced: bool,
    /// The schedule that took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// What it takes, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<SpaceUse>,
}

/// What a file or tree takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpaceUse {
    /// Files and directories.
    pub files: u64,
    /// Sum of the sizes, in bytes.
    pub logical_bytes: u64,
    /// Space of all streams, in bytes; shared space counts for each of them.
    pub allocated_bytes: u64,
    /// The part of it that other files have, too, in bytes.
    pub shared_bytes: u64,
    /// The part of it that no other file has, in bytes.
    pub unique_bytes: u64,
}

/// Takes a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotCreate {
    /// Its name; made of the time when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A file, or a directory with all that is in it.
    #[serde(default = "root")]
    pub path: String,
    /// Make volatile data durable first, so that writes are held up for less, and images of LUNs whole, with no log to be replayed.
    #[serde(default)]
    pub quiesce: bool,
}

fn root() -> String {
    "/".into()
}

/// When snapshots are taken, and how many of them stay. Times are UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotSchedule {
    /// Its name, unique in the volume; its snapshots are called after it and the time.
    pub name: String,
    /// The source: what a snapshot is taken of.
    #[serde(default = "root")]
    pub path: String,
    /// The first of each of the last so many hours stays.
    #[serde(default)]
    pub hourly: u32,
    /// The first of each of the last so many days stays.
    #[serde(default)]
    pub daily: u32,
    /// The first of each of the last so many weeks (from Monday) stays.
    #[serde(default)]
    pub weekly: u32,
    /// The first of each of the last so many months stays.
    #[serde(default)]
    pub monthly: u32,
    /// The same as [`SnapshotCreate::quiesce`].
    #[serde(default)]
    pub quiesce: bool,
}

impl SnapshotSchedule {
    /// Snapshots of one schedule that may stay at once.
    pub const KEEP_MAX: u32 = 10_000;
}
