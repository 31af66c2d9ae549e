//! One thread per core, each with its own event loop and I/O engine; clock and entropy as arguments.
//!
//! A *shard* is an OS thread with a tokio `current_thread` runtime and an I/O engine on the same thread. What
//! is started on a shard stays there. Code that runs on shards uses only what this crate offers for time and
//! tasks ([`Clock`], [`sleep`], [`spawn_local`]), so that the simulator can run it with virtual time.

mod clock;
mod task;

pub use clock::{Clock, Monotonic, SystemClock, WallTime};
pub use task::{JoinHandle, sleep, spawn_local, yield_now};
