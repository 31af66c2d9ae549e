//! What a cache counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a cache has, and what it has done since it was begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheStatus {
    /// Bytes of the budget that it has, the index included.
    pub ram_bytes: u64,
    /// The most that it has had.
    pub ram_high_bytes: u64,
    /// Bytes that it may have.
    pub ram_limit_bytes: u64,
    /// Bytes of the overflow file that are in use.
    pub overflow_bytes: u64,
    /// Bytes that were written to the overflow file.
    pub overflow_written_bytes: u64,
    /// Writes to the overflow file.
    pub overflow_writes: u64,
    /// Writes that were answered from memory.
    pub absorbed_writes: u64,
    /// Bytes of them.
    pub absorbed_bytes: u64,
    /// Bytes that were read from memory, discarded ones among them.
    pub read_ram_bytes: u64,
    /// Bytes that were read from the overflow file.
    pub read_overflow_bytes: u64,
    /// Bytes that were read from the base.
    pub read_base_bytes: u64,
    /// Bytes that were discarded or zeroed.
    pub discarded_bytes: u64,
    /// Writes that had to wait for memory.
    pub waited: u64,
    /// Writes that found no room in memory nor in the overflow file.
    pub refused: u64,
    /// Why nothing goes to the overflow file now, as far as was tried.
    pub problem: Option<String>,
    /// That is because the overflow file is as large as it may be.
    pub overflow_is_full: bool,
}

/// The same, being counted.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) ram_high: AtomicU64,
    pub(crate) overflow_written: AtomicU64,
    pub(crate) overflow_writes: AtomicU64,
    pub(crate) absorbed_writes: AtomicU64,
    pub(crate) absorbed: AtomicU64,
    pub(crate) read_ram: AtomicU64,
    pub(crate) read_overflow: AtomicU64,
    pub(crate) read_base: AtomicU64,
    pub(crate) discarded: AtomicU64,
    pub(crate) waited: AtomicU64,
    pub(crate) refused: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Counts {
    /// All but what is asked for elsewhere.
    pub(crate) fn status(&self) -> CacheStatus {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheStatus {
            ram_high_bytes: of(&self.ram_high),
            overflow_written_bytes: of(&self.overflow_written),
            overflow_writes: of(&self.overflow_writes),
            absorbed_writes: of(&self.absorbed_writes),
            absorbed_bytes: of(&self.absorbed),
            read_ram_bytes: of(&self.read_ram),
            read_overflow_bytes: of(&self.read_overflow),
            read_base_bytes: of(&self.read_base),
            discarded_bytes: of(&self.discarded),
            waited: of(&self.waited),
            refused: of(&self.refused),
            ..CacheStatus::default()
        }
    }
}
