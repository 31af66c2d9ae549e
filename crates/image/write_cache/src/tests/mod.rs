//! What a write cache promises: the contract of block devices over whatever it has where, the base untouched, the budget kept, and no
//! wrong byte when its overflow file fails.

mod budgets;
mod conforms;
mod ends;
mod faults;
mod model;
mod places;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockErrorKind, Device, Durability, MemoryDisk};
use file_store::{
    Access, Attributes, FileKind, FileStore, MemoryStore, NewFile, OpenFile, OpenOptions, StoreError,
    StoreErrorKind, StoreFuture,
};
use test_layers::{FileLayer, Layered};

use crate::{Budget, Options, WriteCache};

const MIB: u64 = 1 << 20;

/// Runs as on a shard, in virtual time.
fn run<T>(future: impl Future<Output = T>) -> T {
    sim::on_shard(future).expect("an event loop")
}

/// What the base has at an offset: no page is like another, and none is zeros.
fn of_base(offset: u64) -> u8 {
    (offset / 512 % 251 + 1) as u8
}

/// A base that nobody may write to from now on.
async fn base(size: u64) -> Device {
    let disk = MemoryDisk::new(size as usize, 512);
    let bytes: Vec<u8> = (0..size).map(of_base).collect();
    disk.write(0, IoBuf::copy_from(&bytes).freeze(), Durability::Durable).await.expect("written");
    Arc::new(disk)
}

async fn is_untouched(base: &Device) {
    let read = base.read(0, IoBuf::new(base.size() as usize)).await.expect("read");
    let changed = read.iter().enumerate().find(|(at, byte)| **byte != of_base(*at as u64));
    assert_eq!(changed, None, "the base was written to");
}

/// A file whose operations take a moment, and that fails as it is told.
struct Frail {
    file: Arc<dyn OpenFile>,
    no_space: AtomicBool,
    gone: AtomicBool,
    slow: AtomicBool,
    hangs: AtomicBool,
    writes: AtomicU64,
    punched: AtomicU64,
}

impl Frail {
    async fn step(&self) -> Result<(), StoreError> {
        let wait = match (self.hangs.load(Ordering::SeqCst), self.slow.load(Ordering::SeqCst)) {
            (true, _) => 3_600_000,
            (false, true) => 5_000,
            (false, false) => 3,
        };
        shard_runtime::sleep(Duration::from_millis(wait)).await;
        if self.gone.load(Ordering::SeqCst) {
            return Err(StoreError::new(StoreErrorKind::Stopped, "the volume is gone"));
        }
        Ok(())
    }
}

impl FileLayer for Frail {
    fn below(&self) -> &dyn OpenFile {
        &*self.file
    }

    fn read(&self, offset: u64, buf: IoBuf) -> StoreFuture<'_, IoBuf> {
        Box::pin(async move {
            self.step().await?;
            self.file.read(offset, buf).await
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.writes.fetch_add(1, Ordering::SeqCst);
            if self.no_space.load(Ordering::SeqCst) {
                // A part of it was written all the same.
                let part = data.slice(0..data.len() / 2);
                self.file.write(offset, part, durability).await?;
                return Err(StoreError::new(StoreErrorKind::NoSpace, "the volume is full"));
            }
            // In two halves, so that whoever reads meanwhile sees a part of it.
            let half = data.len() / 2;
            self.file.write(offset, data.slice(0..half), durability).await?;
            self.step().await?;
            self.file.write(offset + half as u64, data.slice(half..data.len()), durability).await
        })
    }

    fn punch_hole(&self, offset: u64, len: u64) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.step().await?;
            self.punched.fetch_add(len, Ordering::SeqCst);
            self.file.punch_hole(offset, len).await
        })
    }
}

async fn file() -> Arc<Layered<Frail>> {
    let store = MemoryStore::new(1 << 40);
    let new = NewFile { kind: FileKind::File, attributes: Attributes::default(), security: Vec::new() };
    let id = store.create(store.root(), "overflow", new).await.expect("made");
    let file = store.open(id, OpenOptions::shared(Access::READ_WRITE)).await.expect("opened");
    Arc::new(Layered(Frail {
        file,
        no_space: AtomicBool::new(false),
        gone: AtomicBool::new(false),
        slow: AtomicBool::new(false),
        hangs: AtomicBool::new(false),
        writes: AtomicU64::new(0),
        punched: AtomicU64::new(0),
    }))
}

/// A cache over a base, with the file that it overflows to.
struct Rig {
    base: Device,
    budget: Budget,
    cache: WriteCache,
    file: Arc<Layered<Frail>>,
}

impl Rig {
    async fn new(size: u64, ram: u64, overflow: u64) -> Self {
        let (base, budget, file) = (base(size).await, Budget::new(ram), file().await);
        let options = Options::overflowing(ram, file.clone(), overflow);
        let cache = WriteCache::new(base.clone(), &budget, options).expect("room");
        Self { base, budget, cache, file }
    }
}

async fn put(cache: &WriteCache, offset: u64, len: u64, fill: u8) {
    try_put(cache, offset, len, fill).await.expect("written");
}

async fn try_put(cache: &WriteCache, offset: u64, len: u64, fill: u8) -> Result<(), BlockErrorKind> {
    let data = IoBuf::copy_from(&vec![fill; len as usize]).freeze();
    cache.write(offset, data, Durability::Durable).await.map_err(|error| error.kind())
}

async fn holds(cache: &WriteCache, offset: u64, len: u64, wanted: impl Fn(u64) -> u8) {
    let read = cache.read(offset, IoBuf::new(len as usize)).await.expect("read");
    let wrong = read.iter().zip(offset..).find(|(byte, at)| **byte != wanted(*at));
    assert_eq!(wrong.map(|(byte, at)| (at, *byte, wanted(at))), None, "{offset}+{len}");
}
