//! A store whose writes can be held up: what a slow disk does to one that is under way.

#![allow(unreachable_pub, dead_code, reason = "each test uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use aligned_buffer::SharedBuf;
use block_device::Durability;
use file_store::{FileId, FileStore, MemoryStore, OpenFile, OpenOptions, StoreFuture};
use test_layers::{FileLayer, Layered, StoreLayer};
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

    /// Waits while it is closed.
    pub async fn pass(&self) {
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
pub fn held(store: Arc<MemoryStore>, gate: Arc<Gate>) -> Arc<impl FileStore> {
    Arc::new(Layered(Held { store, gate }))
}

struct Held {
    store: Arc<MemoryStore>,
    gate: Arc<Gate>,
}

struct HeldFile {
    file: Arc<dyn OpenFile>,
    gate: Arc<Gate>,
}

impl StoreLayer for Held {
    fn below(&self) -> &dyn FileStore {
        &*self.store
    }
    fn open(&self, file: FileId, options: OpenOptions) -> StoreFuture<'_, Arc<dyn OpenFile>> {
        Box::pin(async move {
            let (file, gate) = (self.store.open(file, options).await?, Arc::clone(&self.gate));
            Ok(Arc::new(Layered(HeldFile { file, gate })) as Arc<dyn OpenFile>)
        })
    }
}

impl FileLayer for HeldFile {
    fn below(&self) -> &dyn OpenFile {
        &*self.file
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.gate.pass().await;
            self.file.write(offset, data, durability).await
        })
    }
}
