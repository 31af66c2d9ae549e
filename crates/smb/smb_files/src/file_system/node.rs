//! Files that are in use: one node for each, with everything that its opens share.
//!
//! A node is in the table while something pins it: an open, a node below it, or an operation under way. Each pin knows
//! by which name it came (`names_in_use.rs`), so that paths can be told and names removed; the node keeps what the
//! store says about it while it has opens: all changes come through here. What another user of the store does to an open
//! file's attributes (an administrator's verb) is seen when the last open is closed.

mod names_in_use;
mod open;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use file_store::names::fold;
use file_store::{FileId, FileInfo, FileKind, OpenFile};
use parking_lot::Mutex;
use shard_runtime::Monotonic;
use smb_protocol::security::SecurityDescriptor;
use tokio::sync::Notify;

use self::names_in_use::{Name, NamesInUse};
use crate::caching::Caching;
use crate::changes::Changes;
use crate::error::Result;
use crate::file_system::Core;
use crate::locks::LockTable;

pub(crate) use self::names_in_use::Place;
pub(crate) use self::open::NewOpen;
pub use self::open::{DirectoryQuery, Open, OpenLookup, WriteFlags};

/// Most directories above a file: deeper paths cannot be made by clients, whose paths have at most 32,767 units.
pub(crate) const DEPTH_MAX: usize = 16_384;

/// The number that no open has.
const NOBODY: u64 = 0;

/// A time of writing that does not show yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LateTime {
    /// What shows instead.
    pub(crate) shown: u64,
    pub(crate) until: Monotonic,
}

/// What opens of one stream share.
#[derive(Default)]
pub(crate) struct StreamState {
    pub(crate) caching: Caching,
    pub(crate) locks: LockTable,
    /// What it is called now, if it was renamed while it was in use.
    pub(crate) name: Option<String>,
    /// The stream (not the file) goes with its last open.
    pub(crate) delete_pending: bool,
    /// Somebody who asked for that was promised that what they change is durable: so is this, whoever is the last to close.
    pub(crate) delete_durably: bool,
    /// When its caching changed last, and up to when the records of its opens were kept, as numbers that only rise: whoever relies
    /// on what was broken keeps them first, also where the one who broke it was dropped before it could.
    pub(crate) changed: u64,
    pub(crate) recorded: u64,
    /// The store's handle that only reads, shared by opens that need no other.
    pub(crate) reader: Option<Weak<dyn OpenFile>>,
}

/// What opens of a file share.
#[derive(Default)]
pub(crate) struct NodeState {
    /// All opens, of all streams.
    pub(crate) opens: Vec<Arc<Open>>,
    /// The streams by their folded names; the unnamed one, and a directory itself, under the empty one.
    pub(crate) streams: BTreeMap<String, StreamState>,
    /// The time of the last write, while it does not show.
    pub(crate) late_time: Option<LateTime>,
    /// What the store said, and the node's version then.
    info: Option<(u64, FileInfo)>,
    /// The security descriptor, and the version then.
    security: Option<(u64, Arc<SecurityDescriptor>)>,
}

/// A file that is in use.
pub(crate) struct Node {
    pub(crate) file: FileId,
    pub(crate) kind: FileKind,
    /// The names by which it is in use.
    pub(crate) names: NamesInUse,
    pub(crate) state: Mutex<NodeState>,
    /// Told whenever something changed that somebody may wait for: a break ended, an open closed.
    pub(crate) changed: Notify,
    /// Told when byte ranges become free.
    pub(crate) unlocked: Notify,
    /// Changes whose requests were dropped, and emptying it by CREATE: what comes after them waits.
    pub(crate) orphans: Changes,
    /// Appending takes turns.
    pub(crate) append: tokio::sync::Mutex<()>,
    /// Byte ranges locked, of all streams: where there are none, reads and writes need not look.
    pub(crate) locked: AtomicUsize,
    /// The open that wrote last and whose time of writing does not show yet, or 0.
    pub(crate) late_writer: AtomicU64,
    /// Counts changes of what the store says of the file: what was asked before one is not kept after it.
    version: AtomicU64,
    /// Counts changes of data: what tokens stand for is void after one.
    pub(crate) data_version: AtomicU64,
    /// Counts changes of the security descriptor.
    security_version: AtomicU64,
    pins: AtomicUsize,
}

/// Keeps a node in the table, and a name of it in use.
pub(crate) struct Pin {
    core: Weak<Core>,
    node: Arc<Node>,
    pub(crate) name: Arc<Name>,
}

impl Deref for Pin {
    type Target = Node;
    fn deref(&self) -> &Node {
        &self.node
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        // Not the first pin, so the table has the node: no lock is needed.
        self.node.pins.fetch_add(1, Ordering::Relaxed);
        Self { core: Weak::clone(&self.core), node: Arc::clone(&self.node), name: Arc::clone(&self.name) }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if self.node.pins.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let Some(core) = self.core.upgrade() else { return };
        let mut nodes = core.nodes.lock();
        // Somebody may have found it in the table meanwhile.
        if self.node.pins.load(Ordering::Acquire) == 0
            && nodes.get(&self.node.file).is_some_and(|node| Arc::ptr_eq(node, &self.node))
        {
            nodes.remove(&self.node.file);
        }
        drop(nodes);
        // Only now, without the table's lock: it may be the last pin of the directory above.
    }
}

impl Node {
    fn new(file: FileId, kind: FileKind) -> Self {
        Self {
            file,
            kind,
            names: NamesInUse::default(),
            state: Mutex::default(),
            changed: Notify::new(),
            unlocked: Notify::new(),
            orphans: Changes::default(),
            append: tokio::sync::Mutex::new(()),
            locked: AtomicUsize::new(0),
            late_writer: AtomicU64::new(0),
            version: AtomicU64::new(0),
            data_version: AtomicU64::new(0),
            security_version: AtomicU64::new(0),
            pins: AtomicUsize::new(0),
        }
    }

    /// Whether it is a directory.
    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    /// Forgets what the store said: something changed it.
    pub(crate) fn touched(&self) {
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The time of the last write shows from now on.
    pub(crate) fn show_write_time(&self) {
        if self.late_writer.load(Ordering::Acquire) != NOBODY {
            let mut state = self.state.lock();
            state.late_time = None;
            self.late_writer.store(NOBODY, Ordering::Release);
        }
    }

    /// Lets the records of opens be kept soon, without waiting for it: something that is in them has changed.
    pub(crate) fn record_soon(&self, which: impl Fn(&Open) -> bool) {
        let recorders: Vec<_> = {
            let state = self.state.lock();
            let opens = state.opens.iter().filter(|open| which(open));
            opens.filter_map(|open| Some((open.id, open.recorder()?))).collect()
        };
        for (open, recorder) in recorders {
            recorder.record_changed(open);
        }
    }

    /// Data change, or have changed. Said before and after: a token made in between stands for neither the old data nor the new.
    pub(crate) fn data_changes(&self) {
        self.data_version.fetch_add(1, Ordering::AcqRel);
    }

    /// Forgets the security descriptor too.
    pub(crate) fn forget(&self) {
        self.touched();
        self.security_version.fetch_add(1, Ordering::Release);
    }
}

impl NodeState {
    /// The stream's state, made if there is none.
    pub(crate) fn stream(&mut self, folded: &str) -> &mut StreamState {
        // The unnamed one, which is nearly always meant, costs no allocation.
        self.streams.entry(folded.to_owned()).or_default()
    }

    /// Takes note that the caching of a stream has changed, if it has; whether that, or an earlier change, is still to be recorded.
    pub(crate) fn changes_caching(&mut self, folded: &str, changed: bool) -> bool {
        let Some(stream) = self.streams.get_mut(folded) else { return changed };
        if changed {
            // One row of numbers for all streams: what was kept of an earlier one of that name says nothing of this one.
            static LAST: AtomicU64 = AtomicU64::new(0);
            stream.changed = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        }
        stream.changed > stream.recorded
    }

    /// The opens of a stream.
    pub(crate) fn opens_of<'a>(&'a self, folded: &'a str) -> impl Iterator<Item = &'a Arc<Open>> + Clone {
        self.opens.iter().filter(move |open| open.stream == folded)
    }
}

impl Core {
    /// The node of a file in a directory.
    pub(crate) fn pin(self: &Arc<Self>, file: FileId, kind: FileKind, parent: &Pin, name: &str) -> Pin {
        self.pin_at(file, kind, Place { parent: Some(parent.clone()), name: name.to_owned() })
    }

    /// The node of the volume's root.
    pub(crate) fn pin_root(self: &Arc<Self>) -> Pin {
        let place = Place { parent: None, name: String::new() };
        self.pin_at(self.store.root(), FileKind::Directory, place)
    }

    /// The node of what a snapshot has: under no directory, since its root is its own parent.
    pub(crate) fn pin_snapshot(self: &Arc<Self>, snapshot: &file_store::Snapshot) -> Pin {
        let place = Place { parent: None, name: String::new() };
        self.pin_at(snapshot.root, snapshot.kind, place)
    }

    fn pin_at(self: &Arc<Self>, file: FileId, kind: FileKind, place: Place) -> Pin {
        let (pin, spare) = {
            let mut nodes = self.nodes.lock();
            let node = nodes.entry(file).or_insert_with(|| Arc::new(Node::new(file, kind)));
            node.pins.fetch_add(1, Ordering::AcqRel);
            let (name, others, place) = node.names.at(place, kind == FileKind::Directory);
            (Pin { core: Arc::downgrade(self), node: Arc::clone(node), name }, (others, place))
        };
        // Without the table's lock: each may hold the last pin of a directory.
        drop(spare);
        pin
    }

    /// The node of a file known by its number only: finds out where it is.
    ///
    /// # Errors
    /// When there is no such file, or the store fails.
    pub(crate) async fn pin_by_id(self: &Arc<Self>, file: FileId) -> Result<Pin> {
        // From the file up to what is pinned already, then down again.
        let mut missing: Vec<(FileId, FileKind, String)> = Vec::new();
        let mut at = file;
        let mut pin = loop {
            if at == self.store.root() {
                break self.pin_root();
            }
            if let Some(node) = self.find_pinned(at) {
                break node;
            }
            let info = self.store.info(at).await?;
            if info.parent == at {
                return crate::error::refuse(
                    smb_protocol::NtStatus::OBJECT_NAME_NOT_FOUND,
                    "the file belongs to a snapshot, where no number leads",
                );
            }
            if missing.len() > DEPTH_MAX {
                return crate::error::refuse(
                    smb_protocol::NtStatus::FILE_CORRUPT_ERROR,
                    "directories that contain themselves",
                );
            }
            let Some((parent, name)) = self.store.names(at).await?.into_iter().next() else {
                return crate::error::refuse(
                    smb_protocol::NtStatus::OBJECT_NAME_NOT_FOUND,
                    "the file has no name any more",
                );
            };
            missing.push((at, info.kind, name));
            at = parent;
        };
        while let Some((file, kind, name)) = missing.pop() {
            pin = self.pin(file, kind, &pin, &name);
        }
        Ok(pin)
    }

    pub(crate) fn find_pinned(self: &Arc<Self>, file: FileId) -> Option<Pin> {
        let mut names;
        let pin = {
            let nodes = self.nodes.lock();
            let node = nodes.get(&file)?;
            names = node.names.all();
            // One that is gone only where there is no other.
            let at = names.iter().position(|name| !name.is_gone()).unwrap_or(0);
            let name = (at < names.len()).then(|| names.swap_remove(at));
            name.map(|name| {
                node.pins.fetch_add(1, Ordering::AcqRel);
                Pin { core: Arc::downgrade(self), node: Arc::clone(node), name }
            })
        };
        // Without the table's lock: each may hold the last pin of a directory.
        drop(names);
        pin
    }

    /// What the store says about a file. Kept while the file has opens.
    ///
    /// # Errors
    /// When the file is gone, or the store fails.
    pub(crate) async fn info(&self, node: &Node) -> Result<FileInfo> {
        let version = node.version.load(Ordering::Acquire);
        {
            let mut state = node.state.lock();
            let known = state.info.as_ref().filter(|(then, _)| *then == version);
            if let Some(mut info) = known.map(|(_, info)| info.clone()) {
                self.mask_write_time(node, &mut state, &mut info);
                return Ok(info);
            }
        }
        let mut info = self.store.info(node.file).await?;
        let mut state = node.state.lock();
        state.info = (!state.opens.is_empty()).then(|| (version, info.clone()));
        self.mask_write_time(node, &mut state, &mut info);
        Ok(info)
    }

    /// Puts the time that shows in place of the store's.
    fn mask_write_time(&self, node: &Node, state: &mut NodeState, info: &mut FileInfo) {
        let Some(late) = state.late_time else { return };
        if late.until > self.clock.now() {
            info.times.written = late.shown;
            return;
        }
        state.late_time = None;
        node.late_writer.store(NOBODY, Ordering::Release);
    }

    /// A file's security descriptor; the default one where none was ever set, or what is stored cannot be read.
    ///
    /// # Errors
    /// When the file is gone, or the store fails.
    pub(crate) async fn security(&self, node: &Node) -> Result<Arc<SecurityDescriptor>> {
        let version = node.security_version.load(Ordering::Acquire);
        if let Some((then, security)) = &node.state.lock().security
            && *then == version
        {
            return Ok(Arc::clone(security));
        }
        let security = Arc::new(decode_security(&self.store.security(node.file).await?));
        let mut state = node.state.lock();
        state.security = (!state.opens.is_empty()).then(|| (version, Arc::clone(&security)));
        Ok(security)
    }
}

/// A stored descriptor. One that cannot be read grants administrators alone: the file can be repaired, and nobody gets in.
pub(crate) fn decode_security(bytes: &[u8]) -> SecurityDescriptor {
    if bytes.is_empty() {
        return smb_security::default_descriptor();
    }
    SecurityDescriptor::decode(bytes).unwrap_or_else(|error| {
        tracing::warn!("a stored security descriptor cannot be read ({error}): administrators only");
        smb_security::default_descriptor()
    })
}

/// The key of a stream's state.
pub(crate) fn stream_key(name: &str) -> String {
    fold(name)
}
