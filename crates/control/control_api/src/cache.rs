//! Caches: the node's read cache, and how each volume uses it.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Longest window of a fixed read-ahead, in bytes.
pub const MAX_READ_AHEAD_BYTES: u64 = 8 << 20;

/// How far ahead of sequential readers a volume is read: `none`, `adaptive`, or `fixed:` and a size in bytes, as
/// `fixed:1048576`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum ReadAhead {
    /// Nothing is read ahead.
    None,
    /// The window of each stream grows while what was read ahead is used.
    #[default]
    Adaptive,
    /// This many bytes are read ahead, at most [`MAX_READ_AHEAD_BYTES`].
    Fixed(u64),
}

impl fmt::Display for ReadAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Adaptive => f.write_str("adaptive"),
            Self::Fixed(bytes) => write!(f, "fixed:{bytes}"),
        }
    }
}

impl From<ReadAhead> for String {
    fn from(value: ReadAhead) -> Self {
        value.to_string()
    }
}

impl TryFrom<String> for ReadAhead {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for ReadAhead {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a read-ahead: use none, adaptive or fixed:BYTES");
        match text {
            "none" => Ok(Self::None),
            "adaptive" => Ok(Self::Adaptive),
            other => {
                let bytes = other.strip_prefix("fixed:").ok_or_else(wrong)?.parse().map_err(|_| wrong())?;
                if (4096..=MAX_READ_AHEAD_BYTES).contains(&bytes) {
                    Ok(Self::Fixed(bytes))
                } else {
                    Err(format!("a fixed read-ahead has 4096 to {MAX_READ_AHEAD_BYTES} bytes, not {bytes}"))
                }
            }
        }
    }
}

/// The node's caches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheConfig {
    /// Bytes of memory for reads of all volumes; absent for an eighth of the machine's, 0 for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    /// Bytes of memory for the requests of all clients that are under way, and their answers; absent for an eighth of the
    /// machine's, at least 64 MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_bytes: Option<u64>,
    /// Bytes of memory for the write caches of LUNs that keep writes from their files; absent for an eighth of the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bytes: Option<u64>,
}

impl CacheConfig {
    /// Whether nothing was said.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How a volume is cached on this node. A volume that is not named is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeConfig {
    /// The volume.
    pub name: String,
    /// Which of that name: the identity of its space, given when the node knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_guid: Option<Uuid>,
    /// Whether reads are kept in the node's read cache.
    #[serde(default)]
    pub read_cache: bool,
    /// How far ahead of sequential readers it is read, if it is cached.
    #[serde(default)]
    pub read_ahead: ReadAhead,
}

impl VolumeConfig {
    /// What holds for a volume of which nothing was said.
    #[must_use]
    pub fn unsaid(name: &str) -> Self {
        Self { name: name.into(), volume_guid: None, read_cache: false, read_ahead: ReadAhead::default() }
    }
}

/// Changes how a volume is cached; what is absent stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CachePolicyUpdate {
    /// Whether reads are kept in the node's read cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_cache: Option<bool>,
    /// How far ahead of sequential readers it is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ahead: Option<ReadAhead>,
}

/// What the read cache did for a volume, or for all, since they were opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReadCacheCounters {
    /// Reads answered from memory alone.
    pub hits: u64,
    /// Reads that needed disks.
    pub misses: u64,
    /// Bytes answered from memory.
    pub hit_bytes: u64,
    /// Bytes read from disks for readers.
    pub miss_bytes: u64,
    /// Pages of 4 KiB that gave way to others.
    pub evicted_pages: u64,
    /// Bytes held in memory now.
    pub resident_bytes: u64,
    /// Bytes that were read ahead.
    pub ahead_bytes: u64,
    /// Bytes of these that a client has read since.
    pub ahead_used_bytes: u64,
    /// Bytes of these that were given up unread.
    pub ahead_wasted_bytes: u64,
}

/// How a volume is cached, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeCache {
    /// Whether reads are kept in the node's read cache.
    pub read_cache: bool,
    /// How far ahead of sequential readers it is read.
    pub read_ahead: ReadAhead,
    /// What came of it; absent while the volume is not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<ReadCacheCounters>,
}

/// A log for the writes of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogCreate {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The pool that it lies in, of faster disks; absent for the volume's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
}

/// What a volume's log does with writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogMode {
    /// Small ones go to the log first.
    Logging,
    /// The log's space has failed: everything is being brought to the volume's own.
    Draining,
    /// There is no log any more: all of them go to the volume's own space.
    Through,
    /// Stopped after a failure; what is in the log is brought to the volume when it is opened again.
    Stopped,
}

/// The log before a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeLog {
    /// What it does with writes.
    pub mode: LogMode,
    /// Why it does not log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why the volume's own space took nothing the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_error: Option<String>,
    /// Bytes that it may hold.
    pub capacity_bytes: u64,
    /// Bytes that it holds.
    pub used_bytes: u64,
    /// Bytes that wait to be brought to the volume's own space.
    pub waiting_bytes: u64,
    /// Writes that went to it.
    pub logged_writes: u64,
    /// Writes that did not.
    pub direct_writes: u64,
    /// Batches in which writes were committed together.
    pub batches: u64,
    /// Bytes that were brought to the volume's own space.
    pub destaged_bytes: u64,
}

/// The node's read cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheStatus {
    /// Bytes that reads of all volumes may take.
    pub limit_bytes: u64,
    /// Bytes of these that they may take now: less while the machine is short of memory.
    pub limit_in_force_bytes: u64,
    /// Bytes of memory held.
    pub held_bytes: u64,
    /// What it did for all volumes that are open.
    pub counters: ReadCacheCounters,
}

/// Changes the node's read cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CacheUpdate {
    /// Bytes that reads of all volumes may take; absent for an eighth of the machine's memory, 0 for none.
    #[serde(default)]
    pub read_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_aheads_come_back_from_text() {
        for value in [ReadAhead::None, ReadAhead::Adaptive, ReadAhead::Fixed(1 << 20)] {
            assert_eq!(value.to_string().parse(), Ok(value));
            let json = serde_json::to_string(&value).expect("json");
            assert_eq!(serde_json::from_str::<ReadAhead>(&json).expect("value"), value);
        }
        for bad in ["", "some", "fixed", "fixed:", "fixed:0", "fixed:4095", "fixed:8388609", "fixed:-1"] {
            assert!(bad.parse::<ReadAhead>().is_err(), "{bad}");
        }
    }
}
