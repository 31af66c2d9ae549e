//! Rows of slabs while the pool is open: which copies there are, and what is owed to them.
//!
//! # Masks
//! One bit per region of a column. `*_durable` masks say what the metadata on disk says (or will say before
//! anything that depends on it); the others are ahead of it. A single copy has nothing to be made equal with, so
//! its dirty regions are kept in memory only (`volatile`): enough to tell a flush that its disk took data along.
//!
//! | mask | set | cleared |
//! |---|---|---|
//! | `dirty_durable` | before the first write to a region, after the commit of `Dirty` | by the cleaner, before `Clean` is submitted |
//! | `volatile` | of a column with one copy, before a volatile write; at opening | by the cleaner, after a flush |
//! | `unsettled` | at opening, from the dirty regions, and by a write that failed: copies may differ | when the copies have been made equal |
//! | copy `stale` | before `MarkStale` is submitted | when the copy has caught up |
//! | copy `stale_durable` | after the commit of `MarkStale` | when `ClearStale` is submitted |
//!
//! **Order rule.** Whoever decides on a mask and submits the change does both under `Column::order`, so that
//! the log has the changes in the order of the decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use pool_format::{ColumnRecord, CopyRecord, DiskId, RowRecord, SpaceId};
use shard_runtime::RangeLocks;

use crate::disk::PoolDisk;

/// Where a column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) space: SpaceId,
    pub(crate) row: u32,
    pub(crate) column: u8,
}

/// The copies of a column at one moment. In-flight I/O holds the list it started with, so a list that nobody
/// holds any more has no I/O under way.
pub(crate) type Copies = Arc<[Arc<CopyState>]>;

/// One slab that holds a copy.
pub(crate) struct CopyState {
    pub(crate) disk: Arc<PoolDisk>,
    pub(crate) slab: u32,
    /// Where the slab starts on the disk, in bytes.
    pub(crate) start: u64,
    pub(crate) stale: AtomicU64,
    pub(crate) stale_durable: AtomicU64,
}

impl CopyState {
    pub(crate) fn new(record: &CopyRecord, disk: Arc<PoolDisk>) -> Self {
        let start = disk.layout.read().slab_offset(record.slab);
        Self {
            disk,
            slab: record.slab,
            start,
            stale: AtomicU64::new(record.stale),
            stale_durable: AtomicU64::new(record.stale),
        }
    }

    pub(crate) fn id(&self) -> DiskId {
        self.disk.id
    }

    /// Whether the copy holds the newest data of these regions and can be reached.
    pub(crate) fn is_good(&self, mask: u64) -> bool {
        self.disk.is_online() && self.stale.load(Ordering::Acquire) & mask == 0
    }
}

/// One column of a row.
pub(crate) struct Column {
    pub(crate) copies: RwLock<Copies>,
    pub(crate) locks: RangeLocks,
    pub(crate) dirty_durable: AtomicU64,
    pub(crate) volatile: AtomicU64,
    pub(crate) touched: AtomicU64,
    pub(crate) unsettled: AtomicU64,
    /// Writes under way: counted before they look at `dirty_durable`.
    pub(crate) writing: AtomicU32,
    pub(crate) order: Mutex<Order>,
}

/// What is decided under [`Column::order`].
#[derive(Default)]
pub(crate) struct Order {
    /// Regions that the cleaner has taken out of `dirty_durable` but not yet submitted as clean: a write takes
    /// them back without a commit.
    pub(crate) cleaning: u64,
    /// Regions that the cleaner has taken out of `volatile` and whose flush is under way.
    pub(crate) cleaning_volatile: u64,
}

impl Column {
    fn new(record: &ColumnRecord, disk: &impl Fn(DiskId) -> Option<Arc<PoolDisk>>, crashed: bool) -> Self {
        let copies =
            record.copies.iter().filter_map(|copy| Some(Arc::new(CopyState::new(copy, disk(copy.disk)?))));
        let copies: Copies = copies.collect();
        let alone = copies.len() == 1;
        let unsettled = if crashed && !alone { record.dirty } else { 0 };
        // What an earlier process wrote to a single copy may be in the disk's cache still.
        let volatile = if crashed && alone { u64::MAX } else { 0 };
        Self {
            copies: RwLock::new(copies),
            locks: RangeLocks::default(),
            dirty_durable: AtomicU64::new(record.dirty),
            volatile: AtomicU64::new(volatile),
            touched: AtomicU64::new(0),
            unsettled: AtomicU64::new(unsettled),
            writing: AtomicU32::new(0),
            order: Mutex::new(Order::default()),
        }
    }

    pub(crate) fn copies(&self) -> Copies {
        Arc::clone(&self.copies.read())
    }

    /// Regions that may hold acknowledged writes which are not durable.
    pub(crate) fn unflushed(&self, order: &Order) -> u64 {
        let marked = self.dirty_durable.load(Ordering::SeqCst) | self.volatile.load(Ordering::SeqCst);
        marked | order.cleaning | order.cleaning_volatile
    }

    /// Remembers a volatile write to a column with a single copy. Usually one load.
    pub(crate) fn mark_volatile(&self, mask: u64) {
        if self.volatile.load(Ordering::SeqCst) & mask != mask {
            self.volatile.fetch_or(mask, Ordering::SeqCst);
        }
    }

    /// Counts a write for as long as the guard lives.
    pub(crate) fn begin_write(&self) -> WriteCount<'_> {
        self.writing.fetch_add(1, Ordering::SeqCst);
        WriteCount(self)
    }
}

/// See [`Column::begin_write`].
pub(crate) struct WriteCount<'a>(&'a Column);

impl Drop for WriteCount<'_> {
    fn drop(&mut self) {
        self.0.writing.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A row.
pub(crate) struct Row {
    pub(crate) columns: Box<[Column]>,
}

impl Row {
    /// `crashed`: dirty regions are from an earlier opening, so their copies may differ.
    pub(crate) fn new(
        record: &RowRecord,
        disk: &impl Fn(DiskId) -> Option<Arc<PoolDisk>>,
        crashed: bool,
    ) -> Self {
        Self { columns: record.columns.iter().map(|column| Column::new(column, disk, crashed)).collect() }
    }
}
