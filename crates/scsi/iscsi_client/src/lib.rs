//! An iSCSI initiator: its parts, and a session for clients that own their thread, with one connection and many commands under way.
//!
//! ```text
//!   Disk      a unit that has been asked what it is        READ CAPACITY, identity, limits
//!     └─ Session   start(tag, command) … turn(timeout) ──► ended: tag, status, sense
//!          ├─ Login    LoginClient over frames, CHAP both ways; moved targets are followed
//!          ├─ State    Data-In, R2T, NOP, Reject, Async: what a PDU means to the commands that run
//!          └─ wire     the socket ── Frames: PDUs with their digests, what is still to be sent
//! ```
//! [`Login`], [`State`] and [`Frames`] know no socket and no clock: `block_iscsi` runs them on a shard.
//!
//! A *tag* is the caller's number of a command, below the depth that it asked for; its data lies in the caller's
//! [`Buffers`]. Error recovery is level 0: what goes wrong ends the session, and the caller opens a new one.
//!
//! **Invariants.**
//! * Nothing that a target sends makes us panic, write beyond a buffer, or hold more than the inbox, the outbox's bound
//!   and the R2Ts that were agreed on. Data comes in order or the session ends.
//! * A session that is opened with the same initiator name and ISID takes the place of the old one: the target ends the
//!   old one's commands *before* it lets the new one in (RFC 7143 6.3.5). So a write that was sent again cannot be
//!   overtaken by its first sending.
//! * The clock is read only when nothing came.
//!
//! Deliberately absent: several connections of a session, error recovery levels 1 and 2, task management beyond [`State::abort_all`], discovery.

mod disk;
mod error;
mod frames;
mod login;
mod session;
mod state;
mod wire;

pub use disk::{Disk, Facts};
pub use error::{ClientError, answer, status};
pub use frames::Frames;
pub use login::{LoggedIn, Login, Options};
pub use session::{Answer, Session};
pub use state::{Buffers, Command, CommandEnd, Ended, LOGOUT, PING, State, Transfer};
