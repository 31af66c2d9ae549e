//! Work that takes long.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    /// Restores redundancy of a pool.
    Repair,
    /// Moves everything off a disk.
    Drain,
    /// Gives what a disk held to others, and takes it out.
    Replace,
    /// Makes the disks of a pool equally full.
    Rebalance,
    /// Verifies a pool.
    PoolCheck,
    /// Verifies a volume.
    VolumeCheck,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Under way.
    Running,
    /// Ended well.
    Done,
    /// Ended with an error; `message` says which.
    Failed,
    /// Ended because somebody took back what it was for.
    Cancelled,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// Its number.
    pub id: u64,
    /// What it is.
    pub kind: JobKind,
    /// What it works on.
    pub subject: String,
    /// How far it is.
    pub state: JobState,
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes to do in all, as far as known now.
    pub total_bytes: u64,
    /// Bytes per second now.
    pub bytes_per_second: u64,
    /// Seconds until it ends at this rate, when that can be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_seconds: Option<u64>,
    /// When it started, in seconds since 1970 UTC.
    pub started: u64,
    /// One sentence: what it does now or how it ended.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
