//! A [`ClusterStore`](cluster_store::ClusterStore) in virtual time, with everything that may happen between a node and its store.
//!
//! ```text
//!   client ── send ──► delay, lost, link cut ──► Tree (one moment) ──► delay, lost, link cut ──► Delivery
//!                           │ stalled: waits          │                      lost after the commit: never told
//!                           └ late: arrives long      └ watches: told later, in order, held back while the link is cut
//!                             after its sender gave up
//! ```
//! [`SimStore`] is for simulations of discrete events: requests go in with the time, deliveries come out of
//! [`SimStore::advance`]. [`SimClient`] is the same store as a trait object whose futures are driven by [`run`], for the conformance
//! suite and for tests of code that waits.
//!
//! Invariants: a request takes effect at one moment or never; what is delivered has happened; what is lost before it arrives has
//! no effect; everything follows from the dice.

mod client;
mod store;
#[cfg(test)]
mod tests;

pub use client::{SimClient, run};
pub use store::{ClientId, Delivery, Reply, Request, RequestId, SimStore, Time, Weather};
