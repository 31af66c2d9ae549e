//! A read cache in memory that a node shares over any number of devices, and read-ahead into it.
//!
//! ```text
//!   volume A        volume B            ReadCache: one size limit, one policy
//!      │               │                ┌──────────────────────────────────────────┐
//!   CachedDevice    CachedDevice ─────► │ shard 0 … shard 63, each behind one lock │
//!      │  hit: copied     │             │  index: (device, page) ──► slot ──► frame│
//!      │  miss ▼          ▼             │  small FIFO 10 % ─► main FIFO  (ghosts)  │
//!   BlockDevice     BlockDevice         │  stripes: who writes where now           │
//!                                       └──────────────────────────────────────────┘
//! ```
//! Vocabulary: a *page* is 4 KiB, what most guests read at the least and what is cached and evicted; a *run* is the 16
//! pages (64 KiB, a cluster of a volume) that lie in one shard, so that a read of a run takes one lock; a *frame* is the
//! memory of a page, a *slot* what is known about it; a *chunk* is 32 frames, what is taken from and given back to the
//! system. A *fill* puts what was read from the device into frames.
//!
//! Policy: S3-FIFO (Yang, Zhang, Qiu, Yue, Rashmi: "FIFO queues are all you need for cache eviction", SOSP 2023). New
//! pages go through a small queue and must be asked for again to reach the main one, so that a scan passes by; pages that
//! come back soon after they left the small queue (their keys are kept as ghosts) go to the main one at once. A hit
//! changes two bits and no list.
//!
//! Cost of a hit: one lock per run, one copy per page, nothing else: no system call, no allocation beyond the boxed future
//! that every device answers with. Indexes cost about 2 % of the limit on top of it.
//!
//! # Invariants
//!
//! * **R1** No operation that starts after a write, unmap or write_zeroes has ended finds a page in the cache from before
//!   it. Before the device sees a change, its pages are hidden and its *stripe* (which stands for the run and some others)
//!   counts a writer. A fill notes the stripe's count of writers before the device is asked, and is dropped unless there
//!   is no writer then and the count is the same when it has the lock again. So what is in the cache was read while nobody
//!   wrote, or was written by a writer that nobody overlapped.
//! * **R2** What a failed change leaves on the device is not known: its pages are forgotten. A change whose future is
//!   dropped goes on to its end on its shard ([`shard_runtime::finish_anyway`]); until then its stripe takes no fills.
//! * **R3** A failed flush may have taken data back: the whole device is forgotten.
//! * **R4** Frames never exceed the limit in force by more than what one shard needs to shrink a chunk; the limit in force
//!   is the configured one or less, while the machine is short of memory ([`ReadCache::balance`]).
//!
//! Deliberately absent: dirty pages (see the crate `write_log`), caching of parts of pages at the end of a device whose size is
//! not a multiple of a page.

mod ahead;
mod cache;
mod device;
mod fifo;
mod fills;
mod memory;
mod shard;
mod stats;
#[cfg(test)]
mod tests;

pub use ahead::{MAX_WINDOW, ReadAhead};
pub use cache::ReadCache;
pub use device::CachedDevice;
pub use memory::{CacheUse, MemorySample};
pub use stats::{CacheCounters, DeviceStats};

/// What is cached and evicted, in bytes.
pub const PAGE: u64 = 4096;
/// What lies in one shard, in bytes: a cluster of a volume.
pub const RUN: u64 = 16 * PAGE;
