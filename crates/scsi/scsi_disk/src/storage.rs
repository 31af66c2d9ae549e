//! What a unit keeps its data and its state in, and which writes to it are cached.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::backing::{Backing, ReservationStore};

/// What a unit keeps its data and its state in.
pub(crate) struct Storage {
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) store: Arc<dyn ReservationStore>,
    /// Both stand in for ones that are to come back.
    pub(crate) away: bool,
}

/// Writes that were answered, or may be, before they are durable.
#[derive(Default)]
pub(crate) struct Cached {
    /// Counted when one begins and again when it ends: a flush in between may not have had it.
    written: AtomicU64,
    /// So many of them are durable, or were told of as lost.
    settled: AtomicU64,
    /// Commands that cache what they write and have not ended.
    under_way: AtomicUsize,
}

/// A command that caches what it writes, until this is dropped.
pub(crate) struct Caching<'a> {
    cached: &'a Cached,
    /// Which of the storages that the unit has had it began with.
    pub(crate) storage: u64,
}

impl Drop for Caching<'_> {
    fn drop(&mut self) {
        self.cached.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Cached {
    /// One begins with this storage.
    pub(crate) fn begin(&self, storage: u64) -> Caching<'_> {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        self.note();
        Caching { cached: self, storage }
    }

    /// Whether one has begun and not ended.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }

    /// One begins, or has ended and is about to be answered.
    pub(crate) fn note(&self) {
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether a flush has something to do.
    pub(crate) fn is_any(&self) -> bool {
        self.written() > self.settled.load(Ordering::Acquire)
    }

    /// How many were counted.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Those up to `written` are durable, or are told of as lost now. Whether there were any.
    pub(crate) fn forget(&self, written: u64) -> bool {
        self.settled.fetch_max(written, Ordering::AcqRel) < written
    }
}
