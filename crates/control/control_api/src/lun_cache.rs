//! Writes to a LUN that never reach its file: where they are kept meanwhile, and until when.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Least memory that a write cache may have, in bytes: less would be written to the overflow file and read from there all the time.
pub const WRITE_CACHE_MIN_BYTES: u64 = 16 << 20;
/// Memory of a write cache of which nothing else was said, in bytes.
pub const WRITE_CACHE_BYTES: u64 = 256 << 20;
/// Memory of one that keeps writes on disks: what gathers them to large ones, in bytes.
const OWN_DISK_BYTES: u64 = WRITE_CACHE_MIN_BYTES;

/// Where what is written to a LUN is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WriteCachePlace {
    /// In memory. When that is full, writes fail.
    Ram,
    /// In memory; what was used least recently goes to a file of the LUN's volume when memory is short.
    RamOverflow,
    /// In a file of the LUN's volume; a little memory gathers writes to large ones.
    OwnDisk,
}

/// When what is kept is given up, and the LUN is what its file says again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WriteCacheDiscard {
    /// When the node that serves the LUN, or the volume, is stopped, fails or is moved, or the LUN is made of another file.
    #[default]
    Restart,
}

/// A cache for writes to a LUN, which never reach its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LunWriteCache {
    /// Where they are kept.
    pub place: WriteCachePlace,
    /// Bytes of memory that it may have, of the node's `cache.write_bytes`; absent for 256 MiB. Not to be said of one that keeps writes on
    /// disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ram_bytes: Option<u64>,
    /// The folder of the LUN's volume that has its overflow file; nothing for one in memory only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflow: Option<String>,
    /// Bytes that the overflow file may have; absent for as many as the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflow_bytes: Option<u64>,
    /// When they are given up.
    #[serde(default)]
    pub discard: WriteCacheDiscard,
}

impl LunWriteCache {
    /// Bytes of memory that it may have.
    #[must_use]
    pub fn memory(&self) -> u64 {
        match self.place {
            WriteCachePlace::OwnDisk => OWN_DISK_BYTES,
            _ => self.ram_bytes.unwrap_or(WRITE_CACHE_BYTES),
        }
    }

    /// # Errors
    /// What cannot be.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let on_disk = self.place != WriteCachePlace::Ram;
        match &self.overflow {
            None if on_disk => return Err("its write cache needs the folder of an overflow file"),
            Some(_) if !on_disk => return Err("a write cache in memory only has no overflow file"),
            Some(folder) if !folder.starts_with('/') => {
                return Err("the folder of the overflow file must start with '/'");
            }
            _ => {}
        }
        if !on_disk && self.overflow_bytes.is_some() {
            return Err("a write cache in memory only has no overflow file");
        }
        if self.overflow_bytes.is_some_and(|bytes| bytes < WRITE_CACHE_MIN_BYTES) {
            return Err("an overflow file has 16 MiB at least");
        }
        if self.place == WriteCachePlace::OwnDisk && self.ram_bytes.is_some() {
            return Err("the memory of a write cache that keeps writes on disks is fixed");
        }
        if self.memory() < WRITE_CACHE_MIN_BYTES {
            return Err("a write cache has 16 MiB of memory at least");
        }
        Ok(())
    }
}

/// What the write cache of a LUN has and has done since the LUN was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LunWriteCacheNow {
    /// Bytes of memory that it has, with what it knows of them.
    pub ram_bytes: u64,
    /// The most that it has had.
    pub ram_high_bytes: u64,
    /// Bytes of memory that it may have.
    pub ram_limit_bytes: u64,
    /// Bytes in its overflow file.
    pub overflow_bytes: u64,
    /// Bytes that were written to the overflow file: all that has reached disks.
    pub overflow_written_bytes: u64,
    /// Writes to the overflow file.
    pub overflow_writes: u64,
    /// Writes of initiators that it took.
    pub absorbed_writes: u64,
    /// Bytes of them.
    pub absorbed_bytes: u64,
    /// Bytes that were read from it without a disk.
    pub read_ram_bytes: u64,
    /// Bytes that were read from the overflow file.
    pub read_overflow_bytes: u64,
    /// Bytes that were read from the LUN's file.
    pub read_base_bytes: u64,
    /// Bytes that initiators have discarded or zeroed.
    pub discarded_bytes: u64,
    /// Writes that waited for room.
    pub waited: u64,
    /// Writes that failed because there was no room.
    pub refused: u64,
    /// Why nothing goes to its overflow file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// That is because the overflow file is as large as it may be.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overflow_is_full: bool,
    /// Initiators that have written to it: they lose that when it is given up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrote: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_caches_have_what_their_kind_needs() {
        let check = |text: &str| {
            let cache: LunWriteCache = serde_json::from_str(text).expect("a cache");
            cache.check()
        };
        for good in [
            r#"{"place":"ram"}"#,
            r#"{"place":"ram","ram_bytes":16777216,"discard":"restart"}"#,
            r#"{"place":"ram-overflow","overflow":"/cache","overflow_bytes":1073741824}"#,
            r#"{"place":"own-disk","overflow":"/"}"#,
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            (r#"{"place":"ram-overflow"}"#, "needs the folder"),
            (r#"{"place":"own-disk","overflow":"cache"}"#, "must start with '/'"),
            (r#"{"place":"ram","overflow":"/cache"}"#, "no overflow file"),
            (r#"{"place":"ram","overflow_bytes":1073741824}"#, "no overflow file"),
            (r#"{"place":"ram","ram_bytes":1048576}"#, "16 MiB of memory"),
            (r#"{"place":"own-disk","overflow":"/c","ram_bytes":33554432}"#, "is fixed"),
            (r#"{"place":"ram-overflow","overflow":"/c","overflow_bytes":1}"#, "16 MiB at least"),
        ] {
            assert!(check(bad).is_err_and(|detail| detail.contains(why)), "{bad}: {:?}", check(bad));
        }
        // Modes that are not there are refused, not taken for another.
        for absent in [r#"{"place":"server-disk"}"#, r#"{"place":"ram","discard":"never"}"#] {
            assert!(serde_json::from_str::<LunWriteCache>(absent).is_err(), "{absent}");
        }
    }
}
