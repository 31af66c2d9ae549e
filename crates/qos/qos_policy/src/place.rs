//! Policies of files by where they are: a file, or all files below a folder or in a volume.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What of a volume has a policy: each file there is a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The volume.
    pub volume: String,
    /// Which volume of that name: the identity of its space. Given by the node when absent, as soon as one alone can be meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_guid: Option<Uuid>,
    /// The path in it, with `/` between names, whose case does not count; `/` for all of the volume.
    pub path: String,
    /// What is at that path.
    pub kind: PlaceKind,
    /// The policy's identity.
    pub policy: Uuid,
}

/// What is at the path of a [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PlaceKind {
    /// A file.
    File,
    /// A folder: all files below it.
    Folder,
}

impl Place {
    /// Whether it is a folder.
    #[must_use]
    pub fn is_folder(&self) -> bool {
        self.kind == PlaceKind::Folder
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.kind, self.path.as_str()) {
            (PlaceKind::Folder, "/") => write!(f, "volume {}", self.volume),
            (PlaceKind::Folder, path) => write!(f, "folder {}:{path}", self.volume),
            (PlaceKind::File, path) => write!(f, "file {}:{path}", self.volume),
        }
    }
}

/// Something for files and folders of one volume, to be looked up by paths. The nearest one counts.
#[derive(Clone, Debug)]
pub struct Places<T> {
    files: BTreeMap<String, T>,
    folders: BTreeMap<String, T>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { files: BTreeMap::new(), folders: BTreeMap::new() }
    }
}

/// Paths are compared as the file systems of Windows do it; a folder's has no slash at its end, the volume's is empty.
fn folded(path: &str) -> String {
    upcase::upper(path.trim_end_matches('/'))
}

impl<T> Places<T> {
    /// Puts something in for a file or folder.
    pub fn insert(&mut self, kind: PlaceKind, path: &str, value: T) {
        match kind {
            PlaceKind::File => self.files.insert(folded(path), value),
            PlaceKind::Folder => self.folders.insert(folded(path), value),
        };
    }

    /// What holds for the file at this path, which begins with a slash.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<&T> {
        if self.files.is_empty() && self.folders.is_empty() {
            return None;
        }
        let path = folded(path);
        let mut above = path.as_str();
        let mut found = self.files.get(above);
        while found.is_none() {
            let (folder, _) = above.rsplit_once('/')?;
            above = folder;
            found = self.folders.get(above);
        }
        found
    }

    /// The same places with what `change` makes of what they have.
    #[must_use]
    pub fn map<U>(&self, change: impl Fn(&T) -> U) -> Places<U> {
        let of = |all: &BTreeMap<String, T>| {
            all.iter().map(|(path, value)| (path.clone(), change(value))).collect()
        };
        Places { files: of(&self.files), folders: of(&self.folders) }
    }

    /// What they have, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.files.values_mut().chain(self.folders.values_mut())
    }

    /// What they have.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.files.values().chain(self.folders.values())
    }
}
