//! Names of files that are in use. A file has one node, whatever it is called by; each name by which it was opened has a place
//! of its own there, so that a path, a deletion and a rename mean the name that the client came by (MS-FSA 2.1.1.5, Link).
//!
//! ```text
//!   Pin ──► Node (one for each file)    Pin ──► Name ──► directory's Pin and name there · going · gone
//!             └── names (weak) ────────────────► Name
//! ```
//! A directory has one name. Whether a name goes is changed and looked at under the lock of the node's state, as it decides who
//! is let in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use file_store::names::fold;
use file_store::{DirectoryEntry, FileId, FileKind};
use parking_lot::Mutex;
use smb_protocol::NtStatus;

use super::{DEPTH_MAX, Node, Pin};
use crate::error::{Result, refuse};
use crate::file_system::Core;

/// Where a file is by one of its names.
pub(crate) struct Place {
    /// Its directory; `None` for the volume's root.
    pub(crate) parent: Option<Pin>,
    /// Its name there.
    pub(crate) name: String,
}

/// A name by which a file is in use.
pub(crate) struct Name {
    pub(crate) place: Mutex<Place>,
    /// The name, and with the last one the file, goes with the last open that came by it.
    going: AtomicBool,
    /// Somebody who asked for that was promised that what they change is durable: so is this, whoever is the last to close.
    durably: AtomicBool,
    /// It is gone.
    gone: AtomicBool,
}

impl Name {
    fn new(place: Place) -> Self {
        let [going, durably, gone] = Default::default();
        Self { place: Mutex::new(place), going, durably, gone }
    }

    fn is_at(&self, parent: FileId, name: &str) -> bool {
        let place = self.place.lock();
        place.parent.as_ref().is_some_and(|pin| pin.file == parent) && fold(&place.name) == fold(name)
    }

    /// Whether it goes with the last open that came by it.
    pub(crate) fn is_going(&self) -> bool {
        self.going.load(Ordering::Acquire)
    }

    /// From now on it goes with the last open that came by it; that is durable if this asks for it, or somebody has before.
    pub(crate) fn goes(&self, durably: bool) {
        self.durably.fetch_or(durably, Ordering::AcqRel);
        self.going.store(true, Ordering::Release);
    }

    /// It stays.
    pub(crate) fn stays(&self) {
        self.going.store(false, Ordering::Release);
        self.durably.store(false, Ordering::Release);
    }

    /// Whether its going was promised to be durable.
    pub(crate) fn goes_durably(&self) -> bool {
        self.durably.load(Ordering::Acquire)
    }

    /// Whether it is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }
}

/// The names by which a node is in use.
#[derive(Default)]
pub(crate) struct NamesInUse(Mutex<Vec<Weak<Name>>>);

impl NamesInUse {
    /// Those there are; to be dropped without the table's lock, as a name may hold the last pin of its directory.
    pub(crate) fn all(&self) -> Vec<Arc<Name>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// How many are going.
    pub(crate) fn going(&self) -> u32 {
        self.all().iter().filter(|name| name.is_going() && !name.is_gone()).count() as u32
    }

    /// The name in use at a place, made if there is none. A directory's is the one that it has. What else comes back is to be
    /// dropped without the table's lock.
    pub(crate) fn at(&self, place: Place, directory: bool) -> (Arc<Name>, Vec<Arc<Name>>, Option<Place>) {
        let mut names = self.0.lock();
        names.retain(|name| name.strong_count() > 0);
        let there: Vec<Arc<Name>> = names.iter().filter_map(Weak::upgrade).collect();
        let same = |name: &&Arc<Name>| match &place.parent {
            Some(parent) if !directory => !name.is_gone() && name.is_at(parent.file, &place.name),
            _ => true,
        };
        if let Some(name) = there.iter().find(same).cloned() {
            return (name, there, Some(place));
        }
        let name = Arc::new(Name::new(place));
        names.push(Arc::downgrade(&name));
        (name, there, None)
    }
}

impl Pin {
    /// Its directory and its name there; `None` for the root.
    pub(crate) fn place(&self) -> Option<(Pin, String)> {
        let place = self.name.place.lock();
        Some((place.parent.clone()?, place.name.clone()))
    }

    /// The names from below `root` (the volume's root, if it is not above) down to here, with backslashes.
    pub(crate) fn path_below(&self, root: FileId) -> String {
        crate::path::to_client(&self.names_below(root).join("\\"))
    }

    /// The names from below `root` (the volume's root, if it is not above) down to here.
    pub(crate) fn names_below(&self, root: FileId) -> Vec<String> {
        let mut names = Vec::new();
        let mut at = Some(self.clone()).filter(|node| node.file != root);
        while let Some((parent, name)) = at.as_ref().and_then(Self::place) {
            if names.len() >= DEPTH_MAX {
                break;
            }
            names.push(name);
            at = Some(parent).filter(|node| node.file != root);
        }
        names.reverse();
        names
    }

    /// This node's directories, from the nearest to the root.
    pub(crate) fn above(&self) -> Vec<Pin> {
        let mut all: Vec<Pin> = Vec::new();
        let mut step = self.place();
        while let Some((parent, _)) = step {
            if all.len() >= DEPTH_MAX {
                break;
            }
            step = parent.place();
            all.push(parent);
        }
        all
    }

    /// Whether it is `root` or below that.
    pub(crate) fn is_within(&self, root: FileId) -> bool {
        self.file == root || self.above().iter().any(|directory| directory.file == root)
    }
}

impl Core {
    /// The node of what was found in a directory. `None`: the name was moved while the store was asked.
    pub(crate) async fn pin_entry(
        self: &Arc<Self>,
        directory: &Pin,
        entry: &DirectoryEntry,
    ) -> Result<Option<Pin>> {
        if entry.kind == FileKind::File && self.is_used_elsewhere(entry.file, directory, &entry.name) {
            // It has several names, or this one was its name when the store was asked.
            let again = self.store.lookup(directory.file, &entry.name).await;
            if !again.is_ok_and(|again| again.file == entry.file) {
                return Ok(None);
            }
        }
        Ok(Some(self.pin(entry.file, entry.kind, directory, &entry.name)))
    }

    /// Whether a file is in use, and not by this name.
    fn is_used_elsewhere(&self, file: FileId, directory: &Node, name: &str) -> bool {
        let node = self.nodes.lock().get(&file).cloned();
        let Some(node) = node else { return false };
        let names = node.names.all();
        !names.is_empty() && !names.iter().any(|known| known.is_at(directory.file, name))
    }

    /// The node of a file known by its number only, by a name in the tree of `root`.
    ///
    /// # Errors
    /// OBJECT_NAME_NOT_FOUND when there is no such file in the tree; when the store fails.
    pub(crate) async fn pin_within(self: &Arc<Self>, file: FileId, root: FileId) -> Result<Pin> {
        let node = self.pin_by_id(file).await?;
        if node.is_within(root) {
            return Ok(node);
        }
        if !node.is_directory() {
            for (parent, name) in self.store.names(file).await? {
                let directory = self.pin_by_id(parent).await?;
                if directory.is_within(root) {
                    return Ok(self.pin(file, FileKind::File, &directory, &name));
                }
            }
        }
        refuse(NtStatus::OBJECT_NAME_NOT_FOUND, "the file is not in the share")
    }
}
