//! Files and directories of a volume.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a name stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// Data.
    #[default]
    File,
    /// Names.
    Directory,
}

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileEntry {
    /// Its name in the directory.
    pub name: String,
    /// Its whole path in the volume.
    pub path: String,
    /// What it is.
    pub kind: FileKind,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Space that it takes, in bytes.
    pub allocated_bytes: u64,
    /// Made, in seconds since 1970 UTC.
    pub created: u64,
    /// Last written, in seconds since 1970 UTC.
    pub written: u64,
    /// Its number in the volume.
    pub file_id: u64,
    /// How many names it has (hard links): 1 unless it was linked.
    pub names: u32,
}

/// Makes a file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileCreate {
    /// Where.
    pub path: String,
    /// What.
    #[serde(default)]
    pub kind: FileKind,
    /// Size of a file, in bytes; it reads as zeros.
    #[serde(default)]
    pub size_bytes: u64,
    /// Reserve the space now, in the volume and in its pool: writes do not fail for want of it later, until snapshots or clones
    /// share it.
    #[serde(default)]
    pub reserve: bool,
    /// Make the directories above it that are not there.
    #[serde(default)]
    pub parents: bool,
}

/// Moves a name within the volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileRename {
    /// What is there.
    pub from: String,
    /// Where it goes.
    pub to: String,
    /// Replace the file that is there.
    #[serde(default)]
    pub replace: bool,
    /// `to`, repeated; needed with `replace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// Makes a new file that shares the storage of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileClone {
    /// What is there.
    pub from: String,
    /// The new file.
    pub to: String,
}
