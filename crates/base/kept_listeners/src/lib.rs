//! Sockets that outlive the process that serves them: those that listen, and for a moment connections.
//!
//! ```text
//!   supervisor: Keeper ──── socket pair (SOCK_SEQPACKET), the child's standard input ────► node: Listeners ask here
//!      │ has each socket that was ever asked for        "listen 10.0.0.1:3260" ◄── listen()
//!      │                                                "ok" + the socket      ──►
//!      └ a child that died: connects of clients wait in the backlog until the next child asks for the same address
//! ```
//! A client that connects while nobody listens is refused, and some wait for seconds before they try again. So the sockets belong to a
//! small parent that does nothing else. Whoever serves asks for an address as if it bound it itself; a process without such a parent
//! does bind it itself.
//!
//! Invariants:
//! * A socket is served by one child at a time: the keeper hands each out once to each child, by the address that was asked for. Port 0
//!   asked for twice is two sockets, and a later child gets them in the same order, with the ports that they have.
//! * What a child closes on purpose is closed here, too: the address is free again. So is what a child has not asked for when
//!   it says that all is in place.
//! * Neither side waits for the other for long ([`PATIENCE`]); a child whose parent is gone binds by itself.
//!
//! A parent may do something else for its child, too ([`Helper`]): what outlives the child as well, and is asked for over the same way.
//!
//! A child can see that its parent has died ([`is_orphaned`]); what it does then is its own affair.
//!
//! Connections end with the child, but not by a reset ([`KeptConnection`], `connections`).
//!
//! Deliberately absent: starting and restarting the child.

mod child;
mod connections;
mod keeper;
mod message;

use std::time::Duration;

pub use child::{KeptConnection, ask_beside, close, is_kept, is_orphaned, listen, settled, start_over};
pub use keeper::{Helper, Keeper};

/// How long an answer of the other side is waited for. It binds a socket at most.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Set for a child whose standard input leads to its keeper.
pub const VARIABLE: &str = "HOLDFAST_KEPT_LISTENERS";

#[cfg(test)]
mod tests;
