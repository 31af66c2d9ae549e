//! A write cache in memory: [`WriteCache`] is a [`BlockDevice`](block_device::BlockDevice) over a base that is read and never written.
//! What is written lies in memory, and in an overflow file where there is one, and is gone when the cache is.
//!
//! ```text
//!   write ──► slab in memory ◄── Budget: one for the node, shared by all caches
//!               │ the least recently used 2 MiB blocks, when memory is short
//!               ▼ one sequential write for up to 2 MiB of slabs
//!             overflow file: slots of 64 KiB, found by an index in memory
//!   read  ◄── memory, else overflow, else zeros (discarded), else base; merged for each 4 KiB page
//! ```
//! Words: a *page* is 4 KiB, and is in memory, in the overflow file, discarded, or the base's. A *slab* is 64 KiB of the disk: the unit in
//! which memory is taken, so that a write here and there does not take 2 MiB each; its price is that the first page written of 64 KiB takes the memory
//! of sixteen. A *block* is 2 MiB: what is used or not used, and leaves memory together.
//!
//! Invariants:
//! * **A page is at one place.** What is written or discarded while its block is being written to the overflow file stays what the later
//!   operation made of it.
//! * **A slot is not used again while somebody may read it** ([`overflow`]), nor while a write to it is under way.
//! * **Data leaves memory only when the overflow file has it.** Where that fails it stays; writers wait, and then get
//!   [`NoSpace`](block_device::BlockErrorKind::NoSpace). What a page holds is never guessed.
//! * **The budget is never exceeded**, the index included: 24 bytes for each slab and 160 for each block, which is 0.04 % of
//!   memory that is filled and 0.28 % at worst, where each block has one slab only. What is known of slabs in the overflow file counts as well. Not counted are
//!   2 MiB for each batch on its way there, and 32 bytes for each run of whole discarded blocks.
//!
//! * **Once it has ended nothing is answered as done** ([`WriteCache::end`]), nor is anything begun at its overflow file.
//!
//! Nothing is durable, and flushes have nothing to do: who uses a cache has been told that its writes end with it.
//!
//! Costs, uncontended: a write to memory that is there takes the locks of its range, of the index and of its block once each, and one copy.
//!
//! Deliberately absent: writing back to the base, and finding an overflow file again after a crash.

mod base;
mod block;
mod budget;
mod cache;
mod end;
mod evict;
mod overflow;
mod runs;
mod status;
#[cfg(test)]
mod tests;
mod write;

pub use base::FileBase;
pub use block::{BLOCK, PAGE, SLAB, index_bytes};
pub use budget::{Budget, NoRoom};
pub use cache::{Options, WriteCache, least_ram};
pub use status::CacheStatus;
