//! Commands for units that another node serves, brought there over a connection between the two nodes.
//!
//! ```text
//!   initiator ──► iscsi_target ──► scsi_disk ──► Sender ─┐  the node that the initiator has reached
//!                                                        │  one connection for each shard and owner (Dial), TLS below
//!                 scsi_disk::TargetDevice ◄── Owner ◄────┘  the node that owns the pool
//! ```
//! The owner carries a command out as one of the *nexus* that it came over: initiator port, target and target port are those at the other
//! node, so reservations, unit attentions and task management are the same whichever node an initiator is at. What the initiator sees the
//! owner decides by its own configuration; the unit's identity goes with each command, as numbers may be given anew.
//!
//! # Old commands
//! A command must not reach the medium when the initiator has long given it up and written something else over another path. The owner's
//! clock decides: all that it says has its time (a *tick*), and a command has the last tick that was heard before it came from the initiator,
//! or how long it waited for one. The owner does not begin what is older than [`MAX_AGE`], whatever became of it on the way: a buffer, a
//! network, a process that was stopped. Nor does it begin what a node sends that is no member in that life any more; and a node sends only what
//! came in its present life, while it has a permit to answer, and nothing for a while after its shard stood still.
//!
//! # When a connection breaks
//! What was not sent yet waits for the next one, until a second after it came from the initiator, who may have had it held before. What was sent may have been done or not: whoever sent it is told so. The
//! owner drops what it had from that connection before it takes anything from the next one, so nothing old overtakes what is new.
//! A command that was dropped here is *unsettled* until the owner has dropped it too; no new command is sent before that, and no task
//! management function ends.
//!
//! # Memory
//! The sender holds what its initiators' connections are charged with. The owner takes the data of commands up to a bound for each
//! connection, and does not read on beyond it. Lengths are compared before memory is taken.
//!
//! Deliberately absent: sockets and certificates ([`Dial`] and whoever calls [`Owner::serve`] have them), who owns what.

mod frames;
pub mod fuzz;
mod owner;
mod sender;
#[cfg(test)]
mod tests;
mod wire;

use std::time::Duration;

pub use owner::{Host, Owner};
pub use sender::{Dial, Sender, Stream, Streaming};

/// A command that has been under way for longer is not begun by the owner.
pub const MAX_AGE: Duration = Duration::from_secs(1);
