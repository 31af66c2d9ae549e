//! A durable write-back log: small writes go to a fast device first, and to the slow one in long runs later.
//!
//! ```text
//!   write ≤ limit ──► queue ──► batch ──► front (ring, durable) ──► acknowledged
//!                       │                    │ replayed after a crash
//!                       ▼                    ▼
//!                     pieces in memory (by address): reads look here first
//!                       │ in address order, a window at a time, then one flush
//!                       ▼
//!   write > limit ───► back ──► batch "forget the range" ──► acknowledged
//! ```
//! Vocabulary: the *front* is the fast device, the *back* the slow one; a *batch* is what is committed together; the *ring*
//! is where batches lie; a *piece* is a range whose newest data is in the log and not surely on the back; a *ticket*
//! numbers changes in the order in which they take effect; a *window* is what is destaged together, whole stripes of the back;
//! the *tail* is where replay begins.
//!
//! # Invariants
//!
//! * **L1** The newest acknowledged data of a block is in its piece if it has one, else on the back. Pieces leave only
//!   when the back has them durably, or something newer.
//! * **L2** Batches are committed one after another. A change is acknowledged as durable when its batch, and so each before,
//!   is durable on the front.
//! * **L3** A change that goes straight to the back while pieces of its range wait is durable there before they are dropped,
//!   and is acknowledged only when the batch that voids older entries of its range is durable. So a replay brings nothing
//!   acknowledged back to an older state. (Voiding them first would lose them if the power went before the change is on the
//!   back.)
//! * **L4** The tail moves beyond a batch when no piece is of it and everything that took pieces' place is committed.
//! * **L5** When the front fails, everything in memory is made durable on the back, then the back's label says that the log is
//!   void, then what waited is acknowledged. Until then nothing is.
//! * **L6** After a failed flush of the back nothing is acknowledged any more (poisoned); the log keeps what it has, and the
//!   next opening replays it. A failed write to the back is tried again: its data is still in the log.
//! * **L7** Whoever takes a range of `changes` orders changes; a range of `back` is taken by whoever writes it there, after
//!   `changes` and never while waiting for room in the ring.
//!
//! Memory: pieces hold their batches' buffers; what the ring may hold is bounded by [`Options::memory`], and so are they.
//!
//! Deliberately absent: redundancy (the front is a mirrored space for that), compression, growing of the ring.

mod commit;
mod core;
mod destage;
mod device;
mod direct;
mod labels;
mod open;
mod optional;
mod options;
mod pieces;
mod status;
#[cfg(test)]
mod tests;

pub use device::WriteLog;
pub use optional::{NotAttached, OptionalLog};
pub use options::Options;
pub use status::{LogMode, LogStatus};
