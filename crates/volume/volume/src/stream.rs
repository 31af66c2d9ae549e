//! A stream in memory: its size, where it lies, and the locks of those who change it.
//!
//! # Locks
//! Taken in this order, those of two streams in the order of their keys:
//!
//! | lock | unit | who holds it |
//! |---|---|---|
//! | `reserving` | stream | whoever reserves space below the volume: also while the device takes it |
//! | `sizing` | stream | whoever changes the size, or makes it durable |
//! | `blocks` | range of 4 KiB blocks | whoever changes what they hold |
//! | `clusters` | range of clusters | whoever changes where they lie, from looking at the map to changing it |
//!
//! Reads take none. The map changes after the transaction that says so is committed; whoever changes it is a
//! reader of the gate from before the transaction until the map is changed, so that clusters are not zeroed while
//! the map still leads to them.

use std::sync::atomic::{AtomicU64, Ordering};

use file_store::{FILE_SIZE_MAX, FileId, StoreError, StoreErrorKind};
use parking_lot::RwLock;
use shard_runtime::RangeLocks;
use tokio::sync::Notify;
use volume_format::BLOCK;

use crate::ahead::Ahead;
use crate::extents::{Extent, ExtentMap};
use crate::tables::StreamKey;

/// A stream in memory, shared by all its users.
pub(crate) struct Stream {
    pub(crate) key: StreamKey,
    pub(crate) size: AtomicU64,
    /// The size that the database has.
    pub(crate) durable_size: AtomicU64,
    /// When data was last written, if the database does not know; else 0.
    pub(crate) written: AtomicU64,
    /// The number of the last volatile change that what is in the file stands on: that it is there, where its clusters lie, how long
    /// the database says that it is. Nothing of the file is durable before that is.
    pub(crate) stands_on: AtomicU64,
    pub(crate) map: RwLock<ExtentMap>,
    pub(crate) blocks: RangeLocks,
    pub(crate) clusters: RangeLocks,
    pub(crate) sizing: tokio::sync::Mutex<()>,
    /// Begins and ends of cuts; odd while one is under way.
    pub(crate) cuts: AtomicU64,
    pub(crate) resized: Notify,
    pub(crate) ahead: Ahead,
    /// Held by whoever reserves space below; before all other locks.
    pub(crate) reserving: tokio::sync::Mutex<()>,
}

/// What a stream knew more than the database when its last user left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsaved {
    pub(crate) size: u64,
    /// The size that the database has.
    pub(crate) durable_size: u64,
    /// When data was last written, if later than the database knows; else 0.
    pub(crate) written: u64,
}

impl Unsaved {
    /// Whether nobody has written since it was `known`; when it was last written may have been set.
    pub(crate) fn is_still(&self, known: &Self) -> bool {
        let same = (self.size, self.durable_size) == (known.size, known.durable_size);
        same && (self.written == known.written || self.written == 0)
    }
}

impl Stream {
    pub(crate) fn new(key: StreamKey, size: u64, extents: Vec<Extent>) -> Self {
        let mut map = ExtentMap::default();
        extents.into_iter().for_each(|extent| map.insert(extent));
        Self {
            key,
            size: AtomicU64::new(size),
            durable_size: AtomicU64::new(size),
            written: AtomicU64::new(0),
            stands_on: AtomicU64::new(0),
            map: RwLock::new(map),
            blocks: RangeLocks::default(),
            clusters: RangeLocks::default(),
            sizing: tokio::sync::Mutex::new(()),
            cuts: AtomicU64::new(0),
            resized: Notify::new(),
            ahead: Ahead::default(),
            reserving: tokio::sync::Mutex::new(()),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    pub(crate) fn durable_size(&self) -> u64 {
        self.durable_size.load(Ordering::Acquire)
    }

    pub(crate) fn file(&self) -> FileId {
        FileId(self.key.0)
    }

    /// What the database does not know yet.
    pub(crate) fn unsaved(&self) -> Option<Unsaved> {
        let (size, durable_size) = (self.size(), self.durable_size());
        let written = self.written.load(Ordering::Acquire);
        (size != durable_size || written > 0).then_some(Unsaved { size, durable_size, written })
    }

    pub(crate) async fn lock_blocks(&self, offset: u64, end: u64) -> shard_runtime::RangeGuard<'_> {
        let first = offset / BLOCK * BLOCK;
        self.blocks.lock(first, end.next_multiple_of(BLOCK) - first).await
    }

    pub(crate) fn put_extents(&self, extents: &[Extent]) {
        let mut map = self.map.write();
        extents.iter().for_each(|extent| map.insert(*extent));
    }
}

/// The end of a range.
pub(crate) fn check_range(offset: u64, len: u64) -> Result<u64, StoreError> {
    match offset.checked_add(len) {
        Some(end) if end <= FILE_SIZE_MAX => Ok(end),
        _ => Err(StoreError::new(
            StoreErrorKind::InvalidArgument,
            format!("a file cannot reach to {offset}+{len}"),
        )),
    }
}
