//! Several clients that generate load at once: each runs an agent, one coordinator starts them together and makes one
//! report of what they measured.
//!
//! ```text
//!   coordinator                                     agent (one at a time has the coordinator's attention)
//!       │ ◄──────────────── challenge ─────────────── │   `secret`: who does not prove the secret first learns nothing
//!       │ ── proof, challenge ──────────────────────► │
//!       │ ◄──────────────── proof ─────────────────── │   from here on each message carries a MAC (`channel`)
//!       │ ── Job: the profile as XML ───────────────► │
//!       │ ◄──────────────── Accepted ──────────────── │   or why not
//!       │ ── Prepare, when all have accepted ───────► │   until here nothing was made, and nothing destroyed
//!       │ ◄──────────────── Ready ─────────────────── │   files made, threads set up
//!       │ ── Ping, again and again ─────────────────► │   the shortest round trip tells how the two clocks differ
//!       │ ── Start, by the agent's own clock ───────► │   the barrier: all begin at one moment
//!       │ ◄──────────────── Progress, Alive ───────── │   who is silent for too long has vanished
//!       │ ◄──────────────── Part ..., End ─────────── │   histograms bucket by bucket: merging them loses nothing
//! ```
//!
//! **Words.** An *agent* generates load for whoever proves the secret. The *coordinator* measures nothing itself. To
//! *vanish* is to close the connection, or to say nothing for [`SILENCE`].
//!
//! **Invariants.**
//! * No wall clock is asked: times of another machine are moved to one's own by what was learned from round trips, and the
//!   report says by how much each beginning may be wrong.
//! * What vanishes does not hold the others up. An agent whose coordinator vanished ends its load.
//! * A message is bounded before memory is taken, and used only when its MAC is right. Messages are not encrypted:
//!   passwords are never in them.

mod agent;
mod channel;
mod coordinator;
mod error;
pub mod fuzz;
mod member;
mod merge;
mod message;
mod outcome;
mod secret;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use agent::{Runner, serve};
pub use coordinator::{Watch, run};
pub use error::FleetError;
pub use message::Job;
pub use secret::Secret;

/// The port that agents listen on when none is given; in the range that is assigned to nobody.
pub const PORT: u16 = 9733;
/// A peer that has said nothing for this long has vanished.
pub const SILENCE: Duration = Duration::from_secs(5);
/// How often each side says that it is there.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Most agents of one run: their coordinator has a thread for each.
pub const AGENTS: usize = 256;
/// Where a target's path has the number of the agent (from 1): `smb://server/share/vm{agent}.dat`.
pub const PLACEHOLDER: &str = "{agent}";
