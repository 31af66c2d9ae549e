//! LUNs of iSCSI targets as targets of the load generator: `iscsi://[user@]host[:port]/target/LUN`.
//!
//! ```text
//!   IscsiBackend ──► one session for each thread (lane), each with an initiator port (ISID) of its own
//!                      queue: READ (16) or WRITE (16) goes out at once, as long as the target's window is open
//!                      wait:  ends by tag; a lost session is opened anew and what was outstanding is sent again
//! ```
//!
//! **Invariants.**
//! * What is sent again after a reconnect is the same operation with the same bytes, and it was not answered. The new
//!   session has the old one's port, so the target has ended the old one's commands before: a write that was sent again
//!   is never overtaken by its first sending. A caller that has one operation on a block at a time may hold the content
//!   against it.
//! * Behind a new session must be the same disk: the same identity, and no smaller. Another one ends the run.
//! * A command that the unit did not carry out (UNIT ATTENTION, BUSY, TASK SET FULL, NOT READY, aborted) is sent again for
//!   as long as a server may be away; any other refusal is an error of the operation.

mod backend;
mod lane;
mod open;

pub use backend::IscsiBackend;
pub use iscsi_protocol::url::{is_url, without_secrets};
