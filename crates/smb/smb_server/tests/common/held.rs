//! A store whose writes can be held up: what a slow disk does to one that is under way.

#![allow(unreachable_pub, dead_code, reason = "each test uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;
use file_store::*;
use tokio::sync::watch;

/// Holds up writes that come while it is closed.
pub struct Gate {
    closed: AtomicBool,
    /// Counts how often those that wait were let go.
    releases: watch::Sender<u64>,
    waiting: AtomicUsize,
    passed: AtomicUsize,
}

impl Gate {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            closed: AtomicBool::new(false),
            releases: watch::Sender::new(0),
            waiting: AtomicUsize::new(0),
            passed: AtomicUsize::new(0),
        })
    }

    /// Holds up what comes from now on.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Lets pass what comes from now on; what waits waits on.
    pub fn let_pass(&self) {
        self.closed.store(false, Ordering::SeqCst);
    }

    /// Lets everything pass.
    pub fn release(&self) {
        self.let_pass();
        self.releases.send_modify(|count| *count += 1);
    }

    /// How many writes wait.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// How many writes have passed.
    pub fn passed(&self) -> usize {
        self.passed.load(Ordering::SeqCst)
    }

    async fn pass(&self) {
        let mut releases = self.releases.subscribe();
        if self.closed.load(Ordering::SeqCst) {
            let before = *releases.borrow();
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let _ = releases.wait_for(|count| *count != before).await;
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        self.passed.fetch_add(1, Ordering::SeqCst);
    }
}

/// A store with a gate before its writes.
pub struct Held {
    pub store: Arc<MemoryStore>,
    pub gate: Arc<Gate>,
}

struct HeldFile {
    file: Arc<dyn OpenFile>,
    gate: Arc<Gate>,
}

impl FileStore for Held {
    fn root(&self) -> FileId {
        self.store.root()
    }
    fn lookup<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, DirectoryEntry> {
        self.store.lookup(directory, name)
    }
    fn create<'a>(&'a self, directory: FileId, name: &'a str, new: NewFile) -> StoreFuture<'a, FileId> {
        self.store.create(directory, name, new)
    }
    fn remove<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, ()> {
        self.store.remove(directory, name)
    }
    fn rename<'a>(
        &'a self,
        from: (FileId, &'a str),
        to: (FileId, &'a str),
        replace: bool,
    ) -> StoreFuture<'a, ()> {
        self.store.rename(from, to, replace)
    }
    fn read_directory(
        &self,
        directory: FileId,
        cursor: DirectoryCursor,
        limit: usize,
    ) -> StoreFuture<'_, DirectoryPage> {
        self.store.read_directory(directory, cursor, limit)
    }
    fn info(&self, file: FileId) -> StoreFuture<'_, FileInfo> {
        self.store.info(file)
    }
    fn set_info(&self, file: FileId, change: InfoChange) -> StoreFuture<'_, ()> {
        self.store.set_info(file, change)
    }
    fn security(&self, file: FileId) -> StoreFuture<'_, Vec<u8>> {
        self.store.security(file)
    }
    fn set_security(&self, file: FileId, descriptor: Vec<u8>) -> StoreFuture<'_, ()> {
        self.store.set_security(file, descriptor)
    }
    fn streams(&self, file: FileId) -> StoreFuture<'_, Vec<StreamInfo>> {
        self.store.streams(file)
    }
    fn remove_stream<'a>(&'a self, file: FileId, stream: &'a str) -> StoreFuture<'a, ()> {
        self.store.remove_stream(file, stream)
    }
    fn open(&self, file: FileId, options: OpenOptions) -> StoreFuture<'_, Arc<dyn OpenFile>> {
        Box::pin(async move {
            let (file, gate) = (self.store.open(file, options).await?, Arc::clone(&self.gate));
            Ok(Arc::new(HeldFile { file, gate }) as Arc<dyn OpenFile>)
        })
    }
    fn clone_range(&self, source: (FileId, u64), target: (FileId, u64), len: u64) -> StoreFuture<'_, ()> {
        self.store.clone_range(source, target, len)
    }
    fn usage(&self) -> StoreFuture<'_, StoreUsage> {
        self.store.usage()
    }
    fn state_get<'a>(&'a self, table: &'a str, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>> {
        self.store.state_get(table, key)
    }
    fn state_scan<'a>(&'a self, table: &'a str, prefix: &'a [u8]) -> StoreFuture<'a, Vec<StateRow>> {
        self.store.state_scan(table, prefix)
    }
    fn state_write(&self, changes: Vec<StateChange>) -> StoreFuture<'_, ()> {
        self.store.state_write(changes)
    }
}

impl OpenFile for HeldFile {
    fn file(&self) -> FileId {
        self.file.file()
    }
    fn size(&self) -> u64 {
        self.file.size()
    }
    fn read(&self, offset: u64, buf: IoBuf) -> StoreFuture<'_, IoBuf> {
        self.file.read(offset, buf)
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.gate.pass().await;
            self.file.write(offset, data, durability).await
        })
    }
    fn flush(&self) -> StoreFuture<'_, ()> {
        self.file.flush()
    }
    fn compare_and_write(
        &self,
        offset: u64,
        expected: SharedBuf,
        data: SharedBuf,
    ) -> StoreFuture<'_, Option<u64>> {
        self.file.compare_and_write(offset, expected, data)
    }
    fn allocate(&self, offset: u64, len: u64, grow: bool) -> StoreFuture<'_, ()> {
        self.file.allocate(offset, len, grow)
    }
    fn punch_hole(&self, offset: u64, len: u64) -> StoreFuture<'_, ()> {
        self.file.punch_hole(offset, len)
    }
    fn zero_range(&self, offset: u64, len: u64, durability: Durability) -> StoreFuture<'_, ()> {
        self.file.zero_range(offset, len, durability)
    }
    fn set_size(&self, size: u64) -> StoreFuture<'_, ()> {
        self.file.set_size(size)
    }
    fn allocated_ranges(&self, offset: u64, len: u64, limit: usize) -> StoreFuture<'_, Vec<Range>> {
        self.file.allocated_ranges(offset, len, limit)
    }
    fn wait_resize(&self, known: u64) -> StoreFuture<'_, u64> {
        self.file.wait_resize(known)
    }
}
