//! One thread per core, each with its own event loop and I/O engine; clock and entropy as arguments.
//!
//! A *shard* is an OS thread with a tokio `current_thread` runtime and an I/O engine on the same thread. What
//! is started on a shard stays there: crossing a thread for an I/O costs more than the I/O. Code that runs on
//! shards uses only what this crate offers for time and tasks ([`Clock`], [`Entropy`], [`sleep`],
//! [`spawn_local`]), so that the simulator can run it with virtual time and a seed.
//!
//! A task that panics ends alone: the shard and its other tasks go on.

mod clock;
mod detached;
mod entropy;
mod range_lock;
mod shards;
mod task;
#[cfg(test)]
mod tests;
mod threads;

pub use clock::{Clock, Monotonic, SystemClock, WallTime};
pub use detached::{FinishAnyway, adopt_detached_work, can_detach, detach, finish_anyway};
pub use entropy::{Entropy, SeededEntropy, SystemEntropy};
pub use io_engine::flush as flush_engine;
pub use range_lock::{Locking, RangeGuard, RangeLocks};
pub use shards::{Shard, ShardGone, Shards};
pub use task::{JoinHandle, sleep, spawn_local, timeout, yield_now};
pub use threads::{Thread, block_on, spawn_thread, take_turns, takes_turns, threads_alive};
