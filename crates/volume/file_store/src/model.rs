//! A file store in memory: the oracle of tests.
//!
//! It is meant to be obviously right, not fast: one mutex around everything, every operation under it from
//! beginning to end, nothing deferred. Content is a map of units behind counted references, so that
//! clones share and the accounting is a count of references.
//!
//! ```text
//!   MemoryStore ─► Mutex<State> ─► nodes: FileId ─► names of a directory, streams ─► Content: size, blocks
//!   OpenHandle  ─┘                 opens: number ─► file, stream, access, share
//! ```
//! Time is the number of changes so far, so that "later" is certain.

mod content;
mod handle;
mod kept;
mod names;
mod snapshots;
mod space;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    DirectoryCursor, DirectoryEntry, DirectoryPage, FileId, FileInfo, FileStore, InfoChange, NewFile,
    OpenFile, OpenOptions, SnapshotStore, StateChange, StateRow, StoreError, StoreFuture, StoreUsage,
    StreamInfo,
};
use handle::OpenHandle;
use state::State;

const UNIT: u64 = MemoryStore::UNIT;

/// A file store whose files live in memory. Everything is durable at once, as long as the store lives.
pub struct MemoryStore {
    state: Shared,
}

type Shared = Arc<Mutex<State>>;

/// A failure of one operation leaves the state as it was, so a panic elsewhere leaves it usable.
fn lock(state: &Shared) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn at_once<'a, T: 'a>(result: Result<T, StoreError>) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(result))
}

impl MemoryStore {
    /// Its unit of allocation in bytes: that of a volume.
    pub const UNIT: u64 = 64 << 10;

    /// An empty store that holds up to `capacity` bytes of data.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(capacity))) }
    }

    /// The same, with times in nanoseconds since 1970 from `clock`. Otherwise times only say what came before what.
    #[must_use]
    pub fn with_clock(capacity: u64, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        let store = Self::new(capacity);
        lock(&store.state).clock = Some(Box::new(clock));
        store
    }
}

impl FileStore for MemoryStore {
    fn root(&self) -> FileId {
        state::ROOT
    }

    fn lookup<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, DirectoryEntry> {
        at_once(lock(&self.state).lookup(directory, name))
    }

    fn create<'a>(&'a self, directory: FileId, name: &'a str, new: NewFile) -> StoreFuture<'a, FileId> {
        at_once(lock(&self.state).create(directory, name, new))
    }

    fn remove<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, ()> {
        at_once(lock(&self.state).remove(directory, name))
    }

    fn link<'a>(&'a self, file: FileId, to: (FileId, &'a str), replace: bool) -> StoreFuture<'a, ()> {
        at_once(lock(&self.state).link(file, to, replace))
    }

    fn names(&self, file: FileId) -> StoreFuture<'_, Vec<(FileId, String)>> {
        at_once(lock(&self.state).names_of(file))
    }

    fn rename<'a>(
        &'a self,
        from: (FileId, &'a str),
        to: (FileId, &'a str),
        replace: bool,
    ) -> StoreFuture<'a, ()> {
        at_once(lock(&self.state).rename(from, to, replace))
    }

    fn read_directory(
        &self,
        directory: FileId,
        cursor: DirectoryCursor,
        limit: usize,
    ) -> StoreFuture<'_, DirectoryPage> {
        at_once(lock(&self.state).read_directory(directory, &cursor, limit))
    }

    fn info(&self, file: FileId) -> StoreFuture<'_, FileInfo> {
        at_once(lock(&self.state).info(file))
    }

    fn set_info(&self, file: FileId, change: InfoChange) -> StoreFuture<'_, ()> {
        at_once(lock(&self.state).set_info(file, change))
    }

    fn security(&self, file: FileId) -> StoreFuture<'_, Vec<u8>> {
        at_once(lock(&self.state).node(file).map(|node| node.security.clone()))
    }

    fn set_security(&self, file: FileId, descriptor: Vec<u8>) -> StoreFuture<'_, ()> {
        at_once(lock(&self.state).set_security(file, descriptor))
    }

    fn streams(&self, file: FileId) -> StoreFuture<'_, Vec<StreamInfo>> {
        at_once(lock(&self.state).streams(file))
    }

    fn remove_stream<'a>(&'a self, file: FileId, stream: &'a str) -> StoreFuture<'a, ()> {
        at_once(lock(&self.state).remove_stream(file, stream))
    }

    fn rename_stream<'a>(
        &'a self,
        file: FileId,
        from: &'a str,
        to: &'a str,
        replace: bool,
    ) -> StoreFuture<'a, ()> {
        at_once(lock(&self.state).rename_stream(file, from, to, replace))
    }

    fn open(&self, file: FileId, options: OpenOptions) -> StoreFuture<'_, Arc<dyn OpenFile>> {
        let opened = lock(&self.state).open(file, &options);
        at_once(opened.map(|id| {
            let handle: Arc<dyn OpenFile> =
                Arc::new(OpenHandle::new(Arc::clone(&self.state), id, file, options.access));
            handle
        }))
    }

    fn clone_range(&self, source: (FileId, u64), target: (FileId, u64), len: u64) -> StoreFuture<'_, ()> {
        at_once(lock(&self.state).clone_range(source, target, len))
    }

    /// As durable as its other changes are, sizes too: it outlives no crash, so that there is nothing for a sync to do.
    fn volatile(&self) -> Option<Arc<dyn FileStore>> {
        Some(Arc::new(Self { state: Arc::clone(&self.state) }))
    }

    fn snapshot_store(&self) -> Option<&dyn SnapshotStore> {
        Some(self)
    }

    fn usage(&self) -> StoreFuture<'_, StoreUsage> {
        at_once(Ok(lock(&self.state).usage()))
    }

    fn state_get<'a>(&'a self, table: &'a str, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>> {
        let rows = &lock(&self.state).rows;
        at_once(Ok(rows.get(&(table.to_owned(), key.to_vec())).cloned()))
    }

    fn state_scan<'a>(&'a self, table: &'a str, prefix: &'a [u8]) -> StoreFuture<'a, Vec<StateRow>> {
        let state = lock(&self.state);
        let wanted = state.rows.iter().filter(|((of, key), _)| of == table && key.starts_with(prefix));
        let rows = wanted.map(|((_, key), value)| StateRow { key: key.clone(), value: value.clone() });
        at_once(Ok(rows.collect()))
    }

    fn state_write(&self, changes: Vec<StateChange>) -> StoreFuture<'_, ()> {
        at_once(lock(&self.state).state_write(changes))
    }
}
