//! Folders that shares serve: no client deletes, renames or replaces one, whichever share it comes through, as the share
//! would be gone with it. Administrators take shares away first.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Weak};

use file_store::names::fold;
use parking_lot::Mutex;
use smb_protocol::NtStatus;

use crate::FileSystem;
use crate::api::Caller;
use crate::error::{Result, refuse};
use crate::file_system::Core;
use crate::node::Pin;

/// Which folders are served, by their folded names from the volume's root, and by how many shares.
#[derive(Default)]
pub(crate) struct SharedFolders(Mutex<BTreeMap<Vec<String>, usize>>);

impl SharedFolders {
    /// Whether this is one of them, or lies above one.
    fn has(&self, folder: &[String]) -> bool {
        let folders = self.0.lock();
        let behind = (Bound::Included(folder), Bound::Unbounded);
        folders.range::<[String], _>(behind).next().is_some_and(|(first, _)| first.starts_with(folder))
    }
}

/// Says that a share serves a folder, until it is dropped.
pub struct SharedFolder {
    core: Weak<Core>,
    folder: Vec<String>,
}

impl Drop for SharedFolder {
    fn drop(&mut self) {
        let Some(core) = self.core.upgrade() else { return };
        let mut folders = core.shared.0.lock();
        if let Some(shares) = folders.get_mut(&self.folder) {
            *shares -= 1;
            if *shares == 0 {
                folders.remove(&self.folder);
            }
        }
    }
}

impl FileSystem {
    /// A share serves a folder, named from the volume's root with `\` or `/` between names, until the result is dropped.
    #[must_use]
    pub fn share_folder(&self, folder: &str) -> SharedFolder {
        let names = folder.split(['\\', '/']).filter(|name| !name.is_empty());
        let folder: Vec<String> = names.map(fold).collect();
        *self.core.shared.0.lock().entry(folder.clone()).or_default() += 1;
        SharedFolder { core: Arc::downgrade(&self.core), folder }
    }
}

impl Core {
    /// Whether a share is gone when this is.
    pub(crate) fn is_shared(&self, node: &Pin) -> bool {
        if !node.is_directory() {
            return false;
        }
        let root = self.store.root();
        let folder: Vec<String> = node.names_below(root).iter().map(|name| fold(name)).collect();
        node.file == root || self.shared.has(&folder)
    }

    /// Refuses to delete or rename what a share serves.
    ///
    /// # Errors
    /// `status`.
    pub(crate) fn keep_shared(&self, node: &Pin, caller: &Caller, status: NtStatus) -> Result<()> {
        if node.file == caller.share.root || self.is_shared(node) {
            return refuse(
                status,
                "a share serves the folder, or one in it: its administrator takes it away",
            );
        }
        Ok(())
    }
}
