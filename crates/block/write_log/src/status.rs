//! How a log is doing.

use observe::{Counter, Inspect};
use serde_json::{Value, json};

/// What a log does with writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogMode {
    /// Small writes go to the front first.
    Logging,
    /// The front has failed, or is being detached: everything is being made durable on the back.
    Draining,
    /// There is no log: everything goes straight to the back.
    Through,
    /// Stopped after a failure of durability on the back.
    Poisoned,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) logged_writes: Counter,
    pub(crate) logged_bytes: Counter,
    pub(crate) direct_writes: Counter,
    pub(crate) direct_bytes: Counter,
    pub(crate) batches: Counter,
    pub(crate) destaged_runs: Counter,
    pub(crate) destaged_bytes: Counter,
    pub(crate) rounds: Counter,
    pub(crate) memory_reads: Counter,
    pub(crate) replayed_batches: Counter,
}

/// A log at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogStatus {
    /// What it does with writes.
    pub mode: LogMode,
    /// Why it is not logging; none while it is.
    pub reason: Option<String>,
    /// Why the back took nothing the last time it was written to; none when it did.
    pub back_error: Option<String>,
    /// Bytes of the ring that may be in use.
    pub capacity_bytes: u64,
    /// Bytes of the ring in use.
    pub used_bytes: u64,
    /// Bytes whose newest content is not surely on the back.
    pub waiting_bytes: u64,
    /// Writes that went to the log.
    pub logged_writes: u64,
    /// Their bytes.
    pub logged_bytes: u64,
    /// Changes that went straight to the back.
    pub direct_writes: u64,
    /// Their bytes.
    pub direct_bytes: u64,
    /// Batches committed: the writes of a batch shared one write to the front.
    pub batches: u64,
    /// Writes to the back that destaging took.
    pub destaged_runs: u64,
    /// Their bytes.
    pub destaged_bytes: u64,
    /// Sweeps over the waiting ranges.
    pub rounds: u64,
    /// Reads that the log answered without the back.
    pub memory_reads: u64,
    /// Batches found at opening.
    pub replayed_batches: u64,
}

impl Inspect for LogStatus {
    fn inspect(&self) -> Value {
        let mode = match self.mode {
            LogMode::Logging => "logging",
            LogMode::Draining => "draining",
            LogMode::Through => "through",
            LogMode::Poisoned => "poisoned",
        };
        json!({
            "mode": mode, "reason": self.reason, "back_error": self.back_error,
            "capacity_bytes": self.capacity_bytes, "used_bytes": self.used_bytes, "waiting_bytes": self.waiting_bytes,
            "logged_writes": self.logged_writes, "logged_bytes": self.logged_bytes,
            "direct_writes": self.direct_writes, "direct_bytes": self.direct_bytes, "batches": self.batches,
            "destaged_runs": self.destaged_runs, "destaged_bytes": self.destaged_bytes, "rounds": self.rounds,
            "memory_reads": self.memory_reads, "replayed_batches": self.replayed_batches,
        })
    }
}
