//! LUNs: what the configuration file holds of them, what is there now, and what is asked for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Code, LunReservations, LunWriteCache, LunWriteCacheNow, Problem};

/// Whether a LUN is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LunState {
    /// The LUN is not served: commands that reach the medium end with NOT READY.
    Offline,
    /// Served for reading.
    ReadOnly,
    /// Served.
    #[default]
    Online,
}

impl LunState {
    fn is_online(&self) -> bool {
        *self == Self::Online
    }
}

/// What the file of a LUN holds. Never taken from what is in it: who writes to a raw disk could make it look like an image with a
/// parent of his choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LunFormat {
    /// The disk's bytes one behind the other.
    #[default]
    Raw,
    /// A VHDX image: the LUN is the disk in it.
    Vhdx,
}

impl LunFormat {
    /// Whether it is the bytes themselves.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        *self == Self::Raw
    }
}

/// A LUN under a number of a target, for an initiator group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MapConfig {
    /// The target.
    pub target: String,
    /// The number, 0 to 16383.
    pub number: u16,
    /// Who sees it.
    pub group: String,
    /// This group may only read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// A LUN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LunConfig {
    /// Its name, unique on the node.
    pub name: String,
    /// Its identity for initiators (VPD page 83); never changes. Given by the node when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guid: Option<uuid::Uuid>,
    /// The volume that holds its file.
    pub volume: String,
    /// Which volume of that name: the identity of its space. Given by the node when absent, as soon as one alone can be meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_guid: Option<uuid::Uuid>,
    /// The file.
    pub path: String,
    /// What the file holds.
    #[serde(default, skip_serializing_if = "LunFormat::is_raw")]
    pub format: LunFormat,
    /// The parents of its image are opened wherever in the volume the image says; else only in the folder of the image and those
    /// in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parents_anywhere: bool,
    /// Bytes in a logical block: 512 or 4096.
    #[serde(default = "default_block", skip_serializing_if = "is_default_block")]
    pub block_size: u32,
    /// Whether it is served.
    #[serde(default, skip_serializing_if = "LunState::is_online")]
    pub state: LunState,
    /// Why it is in this state.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Writes may be acknowledged before they are durable, until the initiator flushes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub write_cache: bool,
    /// Initiators with a mapping that is not read-only may turn the write cache on and off, for all (MODE SELECT).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub initiator_write_cache: bool,
    /// What is written is kept elsewhere and never reaches the file: it is lost, flushed or not, when that is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache_in: Option<LunWriteCache>,
    /// Where it is seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub map: Vec<MapConfig>,
}

impl LunConfig {
    /// A LUN of the file at `path` of a volume: raw, online, seen by nobody yet.
    #[must_use]
    pub fn new(name: impl Into<String>, volume: impl Into<String>, path: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            guid: None,
            volume: volume.into(),
            volume_guid: None,
            path: path.into(),
            format: LunFormat::Raw,
            parents_anywhere: false,
            block_size: default_block(),
            state: LunState::Online,
            reason: String::new(),
            write_cache: false,
            initiator_write_cache: false,
            write_cache_in: None,
            map: Vec::new(),
        }
    }

    /// # Errors
    /// When what it says of its write cache cannot be.
    pub(crate) fn check_write_cache(&self) -> Result<(), Problem> {
        let Some(cache) = &self.write_cache_in else { return Ok(()) };
        let wrong = |why: &str| {
            Problem::new(Code::InvalidRequest, format!("lun {}: {why}.", self.name))
                .todo("`holdfast lun create --help` has all kinds of write caches.")
        };
        if self.write_cache || self.initiator_write_cache {
            return Err(wrong(
                "its writes are cached until they are given up, so that nobody turns `write_cache` on or off",
            ));
        }
        cache.check().map_err(wrong)
    }

    /// # Errors
    /// When it says of parents what only an image can have.
    pub(crate) fn check_parents(&self) -> Result<(), Problem> {
        if self.parents_anywhere && self.format.is_raw() {
            let detail = format!("lun {}: only an image has parents (`parents_anywhere`).", self.name);
            return Err(
                Problem::new(Code::InvalidRequest, detail).todo("Say its `format`, or leave them out.")
            );
        }
        Ok(())
    }
}

fn default_block() -> u32 {
    512
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_default_block(size: &u32) -> bool {
    *size == default_block()
}

/// A LUN as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Lun {
    /// What was configured.
    #[serde(flatten)]
    pub config: LunConfig,
    /// Size of the disk in bytes; 0 while its volume is not there, or its image is not open.
    pub size_bytes: u64,
    /// Space that its file takes, in bytes.
    pub allocated_bytes: u64,
    /// Whether it serves now, after everything below was looked at.
    pub serving: LunState,
    /// Whether writes are acknowledged now before they are durable, whoever turned that on.
    #[serde(default)]
    pub caching: bool,
    /// What its write cache has and does, where it has one that gives up what is written; absent where another node serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache_now: Option<LunWriteCacheNow>,
    /// What initiators have reserved of it; absent where nobody has, or another node serves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservations: Option<LunReservations>,
    /// Initiators that had writes cached which may be lost, and have not been told yet: each one's next flush fails, once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_writes: Vec<String>,
    /// Why it doesn't serve as configured, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Makes a LUN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LunCreate {
    /// Its name.
    pub name: String,
    /// The volume; may be absent when the node has one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The file; absent for `/luns/NAME`. A file that is there is used as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// What the file holds. An image has to be there, with nobody else who has it open.
    #[serde(default, skip_serializing_if = "LunFormat::is_raw")]
    pub format: LunFormat,
    /// Open the parents of the image wherever in the volume it says; else only in its folder and those in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parents_anywhere: bool,
    /// Size in bytes; absent to use a file that is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Bytes in a logical block: 512 or 4096; absent for 512, or what the image has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u32>,
    /// Reserve the space now, in the volume and in its pool, also of a file that is there: writes do not fail for want of it later,
    /// until snapshots or clones share it. What the LUN grows by is reserved if that is asked for then.
    #[serde(default)]
    pub reserve: bool,
    /// Writes may be acknowledged before they are durable, until the initiator flushes.
    #[serde(default)]
    pub write_cache: bool,
    /// Keep what is written elsewhere, and give it up in the end: the file is read and never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache_in: Option<LunWriteCache>,
    /// Where it is seen at once.
    #[serde(default)]
    pub map: Vec<LunMap>,
}

/// Whom of a LUN's hosts nobody waits for any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LunForget {
    /// This one; without it all that are not connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The LUN's name, repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// Maps a LUN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LunMap {
    /// The target; may be absent when the node has one only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The number, 0 to 16383; absent for the lowest free one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
    /// Who sees it: an initiator group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Every initiator sees it: the group that has them all, which is made if there is none. In place of `group`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub everyone: bool,
    /// This group may only read.
    #[serde(default)]
    pub read_only: bool,
    /// The LUN's name, repeated; needed when it is hidden from an initiator that is connected to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// Changes a LUN; fields that are absent stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LunUpdate {
    /// New size in bytes; smaller needs `confirm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Reserve all of it that is not, at its new size: writes do not fail for want of space later, until snapshots or clones share it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reserve: bool,
    /// Whether it is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<LunState>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Writes may be acknowledged before they are durable, until the initiator flushes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<bool>,
    /// Whether initiators may turn the write cache on and off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator_write_cache: Option<bool>,
    /// The volume that its file is in from now on. Nothing is copied: the file must be there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<String>,
    /// The file that it is made of from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Made of another file it stays the disk that initiators know, by its designators and its serial number; else it becomes a new
    /// one. The bytes must be the same then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_identity: bool,
    /// The LUN's name, repeated; needed when the new size is smaller, or initiators are connected to a LUN that gets another file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_that_are_given_up_are_always_cached() {
        let mut lun = LunConfig::new("l", "v", "/l");
        lun.write_cache_in = serde_json::from_str(r#"{"place":"ram"}"#).expect("a cache");
        assert_eq!(lun.check_write_cache(), Ok(()));
        lun.write_cache = true;
        assert!(lun.check_write_cache().is_err());
        lun.write_cache = false;
        lun.write_cache_in = serde_json::from_str(r#"{"place":"own-disk"}"#).expect("a cache");
        assert!(
            lun.check_write_cache()
                .is_err_and(|problem| problem.detail.contains("lun l: its write cache needs"))
        );
    }
}
