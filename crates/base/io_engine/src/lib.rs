//! Descriptive I/O requests and the engines that carry them out.
//!
//! A caller says *what* is to be done ([`IoRequest`]); the engine of the calling thread does it and gives the
//! request's buffers back with the result ([`IoCompletion`]). Nothing here knows about disks, pools or sockets.
//!
//! ```text
//!   submit(IoRequest) ──► this thread's engine ──► IoFuture ──► IoCompletion { result, op (buffers) }
//!                          ring      io_uring on this thread; queued entries enter the kernel once per turn
//!                          blocking  small thread pool; chosen when io_uring is refused (feature test)
//!                          neither   a file in memory (tmpfs): done at once, a call costs less than any queue
//!                          simulated for tests: any other `Engine`, over `IoTarget::Simulated` files
//! ```
//!
//! Beside them stands [`FixedRing`], for load generators: registered files and buffers, no futures; and [`readiness`], for
//! clients that own their thread and wait for sockets and rings.
//!
//! One engine per thread, installed with [`install`]. Futures are polled on the thread that submitted them
//! (they are `!Send`). Dropping a future does not stop the request: the engine owns the buffers until the
//! kernel is done with them.
//!
//! Contract for every engine:
//! * completions come in any order; requests in flight together are not ordered, whatever their ranges;
//! * a short read or write is retried by the engine until done, end of file, or error;
//! * a write or sync that reported an error is never retried by the engine (the page state is unknown);
//! * [`IoOp::Write`] with `durable` has reached stable storage when it completes, and so have, at the
//!   completion of [`IoOp::Sync`], all writes *completed* before it was submitted.

mod block_on;
mod blocking;
mod carry_out;
mod detect;
pub mod device_info;
mod fixed_ring;
pub mod image_locks;
pub mod persistent_reservation;
pub mod placement;
pub mod plain_file;
pub mod readiness;
mod request;
mod ring;
mod slots;
mod thread;
mod zeroing;

pub use block_on::block_on;
pub use blocking::BlockingEngine;
pub use detect::{Detected, detect};
pub use fixed_ring::{FixedData, FixedDone, FixedOp, FixedRing, SlotBuffers};
pub use request::{IoCompletion, IoOp, IoRequest, IoTarget};
pub use ring::RingEngine;
pub use thread::{Engine, EngineGuard, IoFuture, SubmitToken, flush, install, kind, reap, submit};
pub use zeroing::Zeroing;

#[cfg(test)]
mod tests;
