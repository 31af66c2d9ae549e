//! What a device's part of the cache did.

use observe::{Counter, Inspect};
use serde_json::{Value, json};

use crate::PAGE;

/// Counters of one device; only ever grow.
#[derive(Default)]
pub struct DeviceStats {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) hit_bytes: Counter,
    pub(crate) miss_bytes: Counter,
    pub(crate) inserted: Counter,
    pub(crate) evicted: Counter,
    pub(crate) invalidated: Counter,
    pub(crate) ahead: Counter,
    pub(crate) ahead_used: Counter,
    pub(crate) ahead_wasted: Counter,
}

/// Counters of a device, or of all together, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// Reads answered from memory alone.
    pub hits: u64,
    /// Reads that needed the device.
    pub misses: u64,
    /// Bytes answered from memory.
    pub hit_bytes: u64,
    /// Bytes read from the device for readers.
    pub miss_bytes: u64,
    /// Pages that were put into the cache.
    pub inserted_pages: u64,
    /// Pages that gave way to others.
    pub evicted_pages: u64,
    /// Pages that were forgotten because the device's content changed, or the cache was switched off.
    pub invalidated_pages: u64,
    /// Bytes held in memory now.
    pub resident_bytes: u64,
    /// Bytes that were read ahead.
    pub ahead_bytes: u64,
    /// Bytes of these that a client has read since.
    pub ahead_used_bytes: u64,
    /// Bytes of these that left the cache without having been read.
    pub ahead_wasted_bytes: u64,
}

impl DeviceStats {
    /// The counters now.
    #[must_use]
    pub fn counters(&self) -> CacheCounters {
        // What left is looked at first, so that what is left is never below zero.
        let (evicted, invalidated) = (self.evicted.get(), self.invalidated.get());
        let inserted = self.inserted.get();
        CacheCounters {
            hits: self.hits.get(),
            misses: self.misses.get(),
            hit_bytes: self.hit_bytes.get(),
            miss_bytes: self.miss_bytes.get(),
            inserted_pages: inserted,
            evicted_pages: evicted,
            invalidated_pages: invalidated,
            resident_bytes: inserted.saturating_sub(evicted + invalidated) * PAGE,
            ahead_bytes: self.ahead.get() * PAGE,
            ahead_used_bytes: self.ahead_used.get() * PAGE,
            ahead_wasted_bytes: self.ahead_wasted.get() * PAGE,
        }
    }
}

impl CacheCounters {
    /// Adds another device's.
    pub fn add(&mut self, other: &Self) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.hit_bytes += other.hit_bytes;
        self.miss_bytes += other.miss_bytes;
        self.inserted_pages += other.inserted_pages;
        self.evicted_pages += other.evicted_pages;
        self.invalidated_pages += other.invalidated_pages;
        self.resident_bytes += other.resident_bytes;
        self.ahead_bytes += other.ahead_bytes;
        self.ahead_used_bytes += other.ahead_used_bytes;
        self.ahead_wasted_bytes += other.ahead_wasted_bytes;
    }
}

impl Inspect for CacheCounters {
    fn inspect(&self) -> Value {
        json!({
            "hits": self.hits, "misses": self.misses,
            "hit_bytes": self.hit_bytes, "miss_bytes": self.miss_bytes,
            "inserted_pages": self.inserted_pages, "evicted_pages": self.evicted_pages,
            "invalidated_pages": self.invalidated_pages, "resident_bytes": self.resident_bytes,
            "ahead_bytes": self.ahead_bytes, "ahead_used_bytes": self.ahead_used_bytes,
            "ahead_wasted_bytes": self.ahead_wasted_bytes,
        })
    }
}

impl Inspect for DeviceStats {
    fn inspect(&self) -> Value {
        self.counters().inspect()
    }
}
