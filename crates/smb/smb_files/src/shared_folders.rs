//! Folders that shares serve: no client deletes, renames or replaces one, whichever share it comes through, as the share
//! would be gone with it. Administrators take shares away first.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Which folders are served, by their folded names from the volume's root, and by how many shares.
#[derive(Default)]
pub(crate) struct SharedFolders(Mutex<BTreeMap<Vec<String>, usize>>);

impl SharedFolders {
    /// A share serves a folder until the result is dropped.
    pub(crate) fn share(self: &Arc<Self>, folder: Vec<String>) -> SharedFolder {
        *self.0.lock().entry(folder.clone()).or_default() += 1;
        SharedFolder { folders: Arc::downgrade(self), folder }
    }

    /// Whether this is one of them, or lies above one.
    pub(crate) fn has(&self, folder: &[String]) -> bool {
        let folders = self.0.lock();
        let behind = (Bound::Included(folder), Bound::Unbounded);
        folders.range::<[String], _>(behind).next().is_some_and(|(first, _)| first.starts_with(folder))
    }
}

/// Says that a share serves a folder, until it is dropped.
pub struct SharedFolder {
    folders: Weak<SharedFolders>,
    folder: Vec<String>,
}

impl Drop for SharedFolder {
    fn drop(&mut self) {
        let Some(shared) = self.folders.upgrade() else { return };
        let mut folders = shared.0.lock();
        if let Some(shares) = folders.get_mut(&self.folder) {
            *shares -= 1;
            if *shares == 0 {
                folders.remove(&self.folder);
            }
        }
    }
}
