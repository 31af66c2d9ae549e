//! Generates load and measures it.
//!
//! ```text
//!   Profile ──► run ──┬── prepare   files are made (-c), sizes and alignment checked, nothing foreign is overwritten
//!                     ├── Backend   opens the targets: local (files, devices), or another kind
//!                     │     └─ lane()  one thread's own way to its targets: nothing is shared
//!                     ├── worker × threads    pick an offset ─► queue ─► wait ─► record
//!                     └── the caller's thread: the clock's windows, progress, processors, the end
//!                                                            └──► SpanOutcome (spd_report)
//! ```
//!
//! **Words.** A *lane* carries the operations of one thread. A *slot* is one request that may be outstanding; it has its
//! buffers for life. The *window* is the measured time: what ends inside it is counted. A *closed loop* begins an
//! operation when another has ended (`-o`); an *open loop* begins it when its time has come (`--rate`), and its latency
//! counts from that time also when all slots were taken, so that a slow target cannot hide its own queue.
//!
//! **Invariants.**
//! * Between warm-up and end a worker allocates nothing and takes no lock; it writes its own counters and histograms,
//!   which are merged when it has ended.
//! * The clock is read at most twice for a batch of operations: before they enter the kernel, and after they came out.
//!   Unbuffered operations enter it one by one, each with a look at the clock, and come out in batches.
//! * What was measured is never lost: interruption, a target that disappears and errors end in an outcome that says so.
//! * A failed operation is counted as a failure and as nothing else.

mod backend;
mod control;
mod copy;
mod cpu;
mod ends;
mod error;
mod gate;
mod joined;
mod local;
mod offsets;
mod pacing;
mod prepare;
mod random;
mod remote;
mod replay;
mod run;
mod shared;
mod system;
mod verify;
mod worker;

#[cfg(test)]
mod tests;

pub use backend::{Backend, Data, Done, Lane, LaneFailure, LanePlan, Op, SlotPlan, aligned, fits};
pub use control::{Control, Progress};
pub use error::EngineError;
pub use io_engine::readiness::Awaited;
pub use joined::Joined;
pub use local::LocalBackend;
pub use prepare::{Confirm, Preparation, may_lose, prepare};
pub use remote::{Login, Outage};
pub use replay::{TraceSummary, prepare_replay};
pub use run::run_span;
pub use system::system;
