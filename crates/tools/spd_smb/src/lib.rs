//! Files of SMB servers as targets of the load generator: `\\server\share\file`, `smb://[user@]server[:port]/share/file`.
//!
//! ```text
//!   SmbBackend ──► one connection, session and open for each thread (lane)
//!                    queue: READ or WRITE goes out at once, as long as there are credits
//!                    wait:  answers by message number; a lost connection is made anew and what was outstanding is sent again
//! ```
//!
//! **Invariants.**
//! * Messages are signed or encrypted as the server asks; where they are, an answer that does not prove itself ends the run, it
//!   is not data. Where they need not be, data go from the socket straight to the slot that awaits them.
//! * What is sent again after a reconnect is the same operation with the same bytes, and it was not answered: a write that
//!   was answered is never sent again. A caller that has one operation on a block at a time may hold the content against it.
//! * No more credits are used than were granted; what waits for credits counts as outstanding.

mod address;
mod backend;
mod lane;
mod open;

pub use address::Address;
pub use backend::SmbBackend;
