//! Which files of a volume are parents of images, known while none of their children is open, after a restart, and on the node that
//! has the volume next.
//!
//! ```text
//!   a child is made, or is opened as a LUN ──► its parent is held ──► a row says so, durably
//!   the volume is opened ──► all parents with a child that is there are held, before anybody uses the volume
//!   the last child is gone, or is no child any more ──► its row goes ──► the parent is anybody's
//! ```
//! What holds a parent is an open that does nothing and shares reading alone. So every protocol refuses what children would not
//! survive (writing, another size, removing, replacing, moving it or a folder above it) by its share modes, with no rule of its own.
//! The rows are in `docs/formats/image_parents.md`. All of this runs on the shard of the volume.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use control_api::{Code, Problem};
use file_store::{
    Access, FileId, FileKind, FileStore, OpenFile, OpenOptions, StateChange, StoreError, StoreErrorKind,
};
use parking_lot::Mutex;
use shard_runtime::{Entropy, SystemEntropy};
use vhdx::{ImageErrorKind, Mode, Opening, Uuid};

use super::PARENT;
use crate::files;

/// The table of durable state. Key: the parent's file and the child's, each 8 bytes, big-endian. Value: nothing.
const TABLE: &str = "image parent";
/// How often it is looked whether children are gone that somebody removed over a share.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Directories above a file that are looked at: more than any path that can be said has.
const DEPTH_MAX: usize = 4096;

/// The parents of a volume.
pub struct Parentage {
    store: Arc<dyn FileStore>,
    held: Mutex<Held>,
    /// What is held may not be all that the rows say.
    unsure: AtomicBool,
    /// One at a time changes rows or what is held.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Held {
    closed: bool,
    parents: BTreeMap<FileId, Arc<dyn OpenFile>>,
}

/// A child, and the parent that it needs as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) parent: FileId,
    pub(crate) child: FileId,
}

impl Link {
    fn key(self) -> Vec<u8> {
        [self.parent.0.to_be_bytes(), self.child.0.to_be_bytes()].concat()
    }

    fn of(key: &[u8]) -> Option<Self> {
        let (parent, rest) = key.split_first_chunk()?;
        let child = <[u8; 8]>::try_from(rest).ok()?;
        Some(Self { parent: FileId(u64::from_be_bytes(*parent)), child: FileId(u64::from_be_bytes(child)) })
    }

    fn row(self, value: Option<Vec<u8>>) -> StateChange {
        StateChange { table: TABLE.into(), key: self.key(), value }
    }
}

impl Parentage {
    /// Of a volume of which nothing is held yet.
    pub(crate) fn new(store: Arc<dyn FileStore>) -> Arc<Self> {
        Arc::new(Self {
            store,
            held: Mutex::default(),
            unsure: AtomicBool::new(true),
            turn: tokio::sync::Mutex::default(),
        })
    }

    /// Says durably whose children files are, and holds the parents from now on. When the rows cannot be written, the parents are held
    /// nevertheless until it is looked again.
    ///
    /// # Errors
    /// When a parent is open by somebody who may change it, or the store fails.
    pub(crate) async fn record(&self, links: &[Link]) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        let mut rows = Vec::new();
        for link in links {
            self.hold(link.parent).await?;
            if self.store.state_get(TABLE, &link.key()).await?.is_none() {
                rows.push(link.row(Some(Vec::new())));
            }
        }
        if rows.is_empty() { Ok(()) } else { self.store.state_write(rows).await }
    }

    /// A file has become a copy of another one: if that is a child, it has the same parents.
    ///
    /// # Errors
    /// As [`Parentage::record`].
    pub(crate) async fn cloned(&self, child: FileId, clone: FileId) -> Result<(), StoreError> {
        if self.held.lock().parents.is_empty() {
            return Ok(());
        }
        let rows = self.store.state_scan(TABLE, &[]).await?;
        let links = rows.iter().filter_map(|row| Link::of(&row.key)).filter(|link| link.child == child);
        let links: Vec<Link> = links.map(|link| Link { child: clone, ..link }).collect();
        self.record(&links).await
    }

    async fn hold(&self, parent: FileId) -> Result<(), StoreError> {
        if self.held.lock().parents.contains_key(&parent) {
            return Ok(());
        }
        let access = Access { read: false, write: false, delete: false };
        let options = OpenOptions { share: PARENT, ..OpenOptions::shared(access) };
        let open = self.store.open(parent, options).await?;
        let mut held = self.held.lock();
        if !held.closed {
            held.parents.insert(parent, open);
        }
        Ok(())
    }

    /// Holds the parents that have a child, and no others: what the rows say, without those whose child is gone.
    ///
    /// # Errors
    /// When the store fails; then what was held is held on.
    pub(crate) async fn look(&self) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        self.unsure.store(true, Ordering::Relaxed);
        let (mut gone, mut held_all) = (Vec::new(), true);
        let mut parents: BTreeMap<FileId, bool> = BTreeMap::new();
        for row in self.store.state_scan(TABLE, &[]).await? {
            let Some(link) = Link::of(&row.key) else { continue };
            let known = parents.entry(link.parent).or_default();
            // One child is enough.
            if *known {
                continue;
            }
            match self.is_there(link.child).await {
                true => *known = true,
                false => gone.push(link.row(None)),
            }
        }
        for (parent, _) in parents.iter().filter(|(_, has_child)| **has_child) {
            match self.hold(*parent).await {
                Ok(()) => {}
                Err(error) if error.kind() == StoreErrorKind::NotFound => {}
                Err(error) => {
                    held_all = false;
                    tracing::warn!(file = parent.0, %error, "the parent of an image is not kept from others yet");
                }
            }
        }
        let unneeded: Vec<Arc<dyn OpenFile>> = {
            let mut held = self.held.lock();
            let is_idle = |parent: &FileId| parents.get(parent).copied() != Some(true);
            let idle: Vec<FileId> = held.parents.keys().copied().filter(is_idle).collect();
            idle.iter().filter_map(|parent| held.parents.remove(parent)).collect()
        };
        drop(unneeded);
        self.unsure.store(!held_all, Ordering::Relaxed);
        if gone.is_empty() { Ok(()) } else { self.store.state_write(gone).await }
    }

    /// Looks again now and then, until nobody has the volume open.
    pub(crate) fn keep_looking(self: &Arc<Self>) {
        let this: Weak<Self> = Arc::downgrade(self);
        shard_runtime::spawn_local(async move {
            loop {
                shard_runtime::sleep(LOOK_AGAIN).await;
                let Some(this) = this.upgrade() else { return };
                let nothing_held = {
                    let held = this.held.lock();
                    if held.closed {
                        return;
                    }
                    held.parents.is_empty()
                };
                // A volume without images is not asked for them.
                if nothing_held && !this.unsure.load(Ordering::Relaxed) {
                    continue;
                }
                // A store that has stopped is opened again, which looks anew.
                let _ = this.look().await;
            }
        });
    }

    /// Lets go of all: the volume is about to be closed.
    pub(crate) fn let_go(&self) {
        let parents = {
            let mut held = self.held.lock();
            held.closed = true;
            std::mem::take(&mut held.parents)
        };
        drop(parents);
    }

    /// Whether a file is there, by any name. What cannot be said is taken for yes.
    async fn is_there(&self, file: FileId) -> bool {
        match self.store.info(file).await {
            Ok(info) => info.names > 0,
            Err(error) => error.kind() != StoreErrorKind::NotFound,
        }
    }

    /// Refuses what children of the file at a path would not survive, or of files below a folder there.
    ///
    /// # Errors
    /// When there is a child, which is named ([`Code::InUse`]).
    pub(crate) async fn refuse(&self, path: &str) -> Result<(), Problem> {
        let held: Vec<FileId> = self.held.lock().parents.keys().copied().collect();
        if held.is_empty() || path.starts_with('@') {
            return Ok(());
        }
        // What is not there has no children, and whoever asks says the rest.
        let Ok((file, kind)) = files::resolve(&*self.store, path).await else { return Ok(()) };
        for parent in held {
            let meant = parent == file || kind == FileKind::Directory && self.lies_in(parent, file).await;
            if !meant {
                continue;
            }
            let children = self.children(parent).await.map_err(|error| files::problem(&error))?;
            let Some(child) = children.first() else { continue };
            let (child, parent_path) = (self.path_of(*child).await, self.path_of(parent).await);
            let more = match children.len() - 1 {
                0 => String::new(),
                1 => " and of another image".to_owned(),
                more => format!(" and of {more} other images"),
            };
            let detail = format!(
                "{parent_path} is the parent of {child}{more}: their disks cannot be read without it as it is."
            );
            let todo = "Remove the children first, or make disks of them that stand alone (`holdfast disk-image convert`), and remove them then.";
            return Err(Problem::new(Code::InUse, detail).todo(todo));
        }
        Ok(())
    }

    /// The children of a file that are there and are its children still. Rows of others go, and with the last one what holds it.
    async fn children(&self, parent: FileId) -> Result<Vec<FileId>, StoreError> {
        let _turn = self.turn.lock().await;
        let id = self.data_id(parent).await;
        let (mut children, mut gone) = (Vec::new(), Vec::new());
        for row in self.store.state_scan(TABLE, &parent.0.to_be_bytes()).await? {
            let Some(link) = Link::of(&row.key) else { continue };
            // One that is a child is enough to know of; the others are counted as the rows have them.
            let is_child = match children.is_empty() {
                true => self.is_there(link.child).await && self.is_child(link.child, id).await,
                false => true,
            };
            if is_child { children.push(link.child) } else { gone.push(link.row(None)) }
        }
        if !gone.is_empty() {
            self.store.state_write(gone).await?;
        }
        if children.is_empty() {
            let unneeded = self.held.lock().parents.remove(&parent);
            drop(unneeded);
        }
        Ok(children)
    }

    /// The id that the children of an image know it by, if it can be read.
    async fn data_id(&self, parent: FileId) -> Option<Uuid> {
        let options = OpenOptions { share: PARENT, ..OpenOptions::shared(Access::READ) };
        let file = self.store.open(parent, options).await.ok()?;
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        Some(Opening::read(file, Mode::Read, &entropy).await.ok()?.info().header.data_write_guid)
    }

    /// Whether a file is an image whose parent has this id. What cannot be read now, as an image that is a LUN, is taken for one.
    async fn is_child(&self, child: FileId, id: Option<Uuid>) -> bool {
        let Ok(file) = self.store.open(child, OpenOptions::shared(Access::READ)).await else { return true };
        let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
        match Opening::read(file, Mode::Read, &entropy).await {
            Ok(opening) => match (opening.parent_locator(), id) {
                (Some(locator), Some(id)) => locator.is_parent(id),
                (locator, _) => locator.is_some(),
            },
            Err(error) => error.kind() != ImageErrorKind::NotAnImage,
        }
    }

    /// Whether a file lies in a directory or one below it.
    async fn lies_in(&self, file: FileId, directory: FileId) -> bool {
        let mut here = file;
        for _ in 0..DEPTH_MAX {
            let Ok(info) = self.store.info(here).await else { return false };
            if info.parent == directory {
                return true;
            }
            if info.parent == here {
                return false;
            }
            here = info.parent;
        }
        false
    }

    /// A path that leads to a file, for people.
    async fn path_of(&self, file: FileId) -> String {
        let (mut here, mut names) = (file, Vec::new());
        while here != self.store.root() && names.len() < DEPTH_MAX {
            match self.store.names(here).await.ok().and_then(|names| names.into_iter().next()) {
                Some((directory, name)) => {
                    names.push(name);
                    here = directory;
                }
                None => return format!("file {}", file.0),
            }
        }
        names.reverse();
        format!("/{}", names.join("/"))
    }
}

#[cfg(test)]
mod tests;
