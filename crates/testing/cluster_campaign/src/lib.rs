//! Nodes that own pools, in simulated time: everything that may go wrong between nodes, store, disks and clients, and every promise
//! checked at each moment.
//!
//! ```text
//!   clients ──► nodes: pool_ownership::Node (the code that ships) + a small pool ──► disks with persistent reservations
//!                 │  ▲                                                                
//!                 │  └── messages between nodes (promises)
//!                 └────► SimStore: delays, stalls, answers lost after the commit
//! ```
//! One queue of events, one seed: what a seed does follows from it alone. A seed has a few kinds of faults, for 15 to 60 seconds
//! of virtual time: nodes that stand still for up to 90 s (and machines that sleep), ways that are cut one way or both (node and
//! store, node and node, node and disk, node and clients), isolated nodes, flapping, stalls of the store, lost and late
//! requests and answers, crashes at any time and at each step of a claim, supervisors, planned moves, pausing and draining,
//! nodes that join late, clocks that are up to 5 % wrong. Then everything heals.
//!
//! Promises checked:
//! * A node answers only while the store says that the pool is its own, in this life and epoch ([`driver`]).
//! * A disk that an epoch has to itself takes no write of a lower one, and is never without a reservation again ([`disk`]).
//! * Each block is linearizable over all epochs; so no acknowledged write is lost ([`clients`]).
//! * At the end all copies that count as sound have what was acknowledged.
//! * 40 s after everything has healed every client of every pool is served.
//!
//! Deliberately absent: what a pool is in full (`crash_campaign`), real stores and networks.

mod case;
mod chaos;
mod clients;
mod disk;
mod driver;
mod fault;
mod fence;
mod life;
mod node;
mod pool;
mod traffic;
mod world;

pub use case::{Case, Outcome, Sabotage, Stats};

/// Runs one case to its end or to the first broken promise; a panic is one.
#[must_use]
pub fn run(case: &Case) -> Outcome {
    let run = std::panic::catch_unwind(|| world::World::new(*case).run());
    run.unwrap_or_else(|_| Outcome { broken: Some("a panic".into()), ..Outcome::default() })
}
