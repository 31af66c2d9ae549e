//! The queue between a protocol and a volume: requests wait in it for what policies and shares give them.
//!
//! ```text
//!   command of an initiator ──► Flow::enter ──► Permit, at once ────────► volume ──► the permit is dropped
//!                                   └─► Turn (a future) ──► Permit ───────►            └─► others have their turn
//!                                        └ dropped: as if it had never come
//! ```
//!
//! A [`Gate`] is one volume's, a [`Disk`] is what policies are given to, a [`Flow`] is one client's use of one disk, which is
//! there as long as somebody holds it. What goes next is decided by `qos_scheduler`; here are the clock, the lock, the waking
//! and one timer for each gate ([`keep_time`]), however many flows there are.
//!
//! Cost of a request that nothing holds back: two short locks, no allocation, and two looks at the clock, which are most of it and
//! the second of which [`Permit::leave`] spares. One that waits has a one-shot channel.
//!
//! Invariants:
//! * A permit that was given out counts as one request at the volume until it is dropped, wherever that happens.
//! * Nothing is called and nothing is dropped with the lock held that could take it again.
//! * Queues are bounded ([`qos_scheduler::Settings`]): who finds one full is told, and says so to its client.
//!
//! Not done here: what the disks of a node are, and which volume they are on (`control_server`); how many requests a volume
//! should have at once (`qos_scheduler`, which is told of each answer).

mod gate;
mod report;
mod rules;
mod window;

pub use gate::{Disk, Entry, Flow, Gate, Permit, Refused, Turn, keep_time};
pub use report::{FlowReport, FlowTotals, SharedDemand, Standing, VolumeReport};
pub use rules::{Asked, DiskName, Rule, Rules};

pub use qos_scheduler::{FlowCounters, Kind, KindCounters, Terms};

#[cfg(test)]
mod tests;
