//! A file that others change in the middle, or that fails at a chosen call: what an image does then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, Durability};
use file_store::{FileId, MemoryStore, OpenFile, Range, StoreError, StoreErrorKind, StoreFuture};
use parking_lot::Mutex;
use shard_runtime::SeededEntropy;
use vhdx_format::LogEntry;

use super::{MIB, dynamic, holds, memory_file, open, put, run, sound};
use crate::{CreateOptions, Kind, Mode, create};

/// A file in memory, and what happens to it.
pub(super) struct Meddled {
    file: Arc<dyn OpenFile>,
    /// Somebody makes it longer by so many bytes while it is flushed.
    grows_in_flush: AtomicU64,
    /// Reservations that succeed before one fails.
    reserves: AtomicU64,
    /// It does not get shorter.
    keeps_size: AtomicBool,
    /// Bytes that were read of it.
    pub(super) read: AtomicU64,
    /// What is durable of its size.
    durable: AtomicU64,
    /// Entries of the log that were written, with what was durable then, and what it was long.
    entries: Mutex<Vec<(LogEntry, u64, u64)>>,
}

impl Meddled {
    pub(super) fn new(file: Arc<dyn OpenFile>) -> Arc<Self> {
        Arc::new(Self {
            file,
            grows_in_flush: AtomicU64::new(0),
            reserves: AtomicU64::new(u64::MAX),
            keeps_size: AtomicBool::new(false),
            read: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            entries: Mutex::default(),
        })
    }

    async fn image(options: &CreateOptions) -> (Arc<Self>, Arc<dyn OpenFile>) {
        let file = memory_file(&MemoryStore::new(1 << 50), "image").await;
        create(&file, options, &SeededEntropy::new(3)).await.expect("made");
        let meddled = Self::new(file);
        (Arc::clone(&meddled), meddled)
    }
}

impl OpenFile for Meddled {
    fn file(&self) -> FileId {
        self.file.file()
    }

    fn size(&self) -> u64 {
        self.file.size()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> StoreFuture<'_, IoBuf> {
        self.read.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.file.read(offset, buf)
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> StoreFuture<'_, ()> {
        if (MIB..2 * MIB).contains(&offset)
            && let Ok(entry) = LogEntry::decode(&data, MIB as usize)
        {
            self.entries.lock().push((entry, self.durable.load(Ordering::Relaxed), self.size()));
        }
        self.file.write(offset, data, durability)
    }

    fn flush(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let size = self.size();
            self.file.flush().await?;
            self.durable.store(size, Ordering::Relaxed);
            match self.grows_in_flush.load(Ordering::Relaxed) {
                0 => Ok(()),
                more => self.file.set_size(size + more).await,
            }
        })
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
        let left =
            self.reserves.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if left.is_err() {
            return Box::pin(async { Err(StoreError::new(StoreErrorKind::NoSpace, "there is no space")) });
        }
        assert!(!grow || offset + len <= self.size(), "images say themselves how long their file is");
        Box::pin(async { Ok(()) })
    }

    fn punch_hole(&self, offset: u64, len: u64) -> StoreFuture<'_, ()> {
        self.file.punch_hole(offset, len)
    }

    fn zero_range(&self, offset: u64, len: u64, durability: Durability) -> StoreFuture<'_, ()> {
        self.file.zero_range(offset, len, durability)
    }

    fn set_size(&self, size: u64) -> StoreFuture<'_, ()> {
        if size < self.size() && self.keeps_size.load(Ordering::Relaxed) {
            return Box::pin(async { Err(StoreError::new(StoreErrorKind::Io, "it does not get shorter")) });
        }
        self.file.set_size(size)
    }

    fn allocated_ranges(&self, offset: u64, len: u64, limit: usize) -> StoreFuture<'_, Vec<Range>> {
        self.file.allocated_ranges(offset, len, limit)
    }

    fn wait_resize(&self, known: u64) -> StoreFuture<'_, u64> {
        self.file.wait_resize(known)
    }
}

/// Another writer makes the file longer while it is flushed: the entry may not say that this is durable.
#[test]
fn an_entry_of_the_log_says_only_of_what_was_flushed_that_it_was() {
    run(async {
        let (meddled, file) = Meddled::image(&dynamic(64 * MIB, MIB)).await;
        let disk = open(&file, Mode::Write).await.expect("opened");
        meddled.grows_in_flush.store(MIB / 2, Ordering::Relaxed);
        for block in 0..3 {
            put(&disk, block * MIB, 4096, 1).await;
            disk.flush().await.expect("flushed");
        }
        let entries = std::mem::take(&mut *meddled.entries.lock());
        assert_eq!(entries.len(), 3);
        for (entry, durable, size) in entries {
            assert!(entry.flushed_file_offset <= durable, "{entry:?}, and {durable} was durable");
            assert!(entry.last_file_offset >= size, "{entry:?}, and the file had {size}");
            assert!(
                entry.flushed_file_offset.is_multiple_of(MIB) && entry.last_file_offset.is_multiple_of(MIB)
            );
        }
    });
}

#[test]
fn a_fixed_disk_that_could_not_grow_gives_back_what_it_took() {
    run(async {
        let options = CreateOptions { kind: Kind::Fixed, ..dynamic(10 * MIB, MIB) };
        let (meddled, file) = Meddled::image(&options).await;
        let disk = open(&file, Mode::Write).await.expect("opened");
        put(&disk, 9 * MIB, MIB, 1).await;
        let before = file.size();
        // More entries than are kept in memory before they are committed, so that the log knows of a longer file.
        meddled.reserves.store(40_000, Ordering::Relaxed);
        disk.resize(50_000 * MIB).await.expect_err("no space");
        assert_eq!((file.size(), disk.size()), (before, 10 * MIB));
        meddled.reserves.store(u64::MAX, Ordering::Relaxed);
        disk.resize(12 * MIB).await.expect("grown");
        assert_eq!(file.size(), before + 2 * MIB);
        holds(&disk, 9 * MIB, MIB, 1).await;
        holds(&disk, 10 * MIB, 2 * MIB, 0).await;
        drop(disk);
        let disk = open(&file, Mode::Write).await.expect("opened");
        holds(&disk, 9 * MIB, MIB, 1).await;
        disk.close().await.expect("closed");
        sound(&file).await;
    });
}

#[test]
fn space_whose_cut_failed_is_not_taken_for_new() {
    run(async {
        let (meddled, file) = Meddled::image(&dynamic(64 * MIB, MIB)).await;
        let disk = open(&file, Mode::Write).await.expect("opened");
        put(&disk, 0, 4 * MIB, 7).await;
        disk.unmap(0, 4 * MIB).await.expect("unmapped");
        meddled.keeps_size.store(true, Ordering::Relaxed);
        disk.compact(Box::new(|_, _| {})).await.expect_err("it cannot be cut");
        for block in 10..14 {
            put(&disk, block * MIB + 4096, 4096, 1).await;
            holds(&disk, block * MIB, 4096, 0).await;
            holds(&disk, block * MIB + 8192, MIB - 8192, 0).await;
        }
    });
}
