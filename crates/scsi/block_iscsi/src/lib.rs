//! A unit of somebody's iSCSI target as a [`BlockDevice`](block_device::BlockDevice): no kernel is needed, and it carries reservations.
//!
//! ```text
//!   read, write, flush …      IscsiDisk ──► the lane with the least to do
//!                                              │ queue of jobs (a job owns its buffer)
//!                             lane task ◄──────┘   one for each session, on the shard that opened the disk
//!                               ├─ serve        jobs become commands, answers become verdicts: done · again · busy · failed
//!                               ├─ Connection   socket, iscsi_client's Frames, Login and State
//!                               └─ reconnect    same ISID ─► greet: unit attentions, is it the same unit, are we still registered
//! ```
//! A *lane* is one session with one connection; it is an initiator port of its own, so a registration is made on every lane.
//!
//! Invariants:
//! * A command is sent again only over the session that it was sent over before, after that session was replaced by one of the same
//!   name and ISID: the target has ended the old one's commands then (RFC 7143 6.3.5), so the first sending cannot land behind the
//!   second. What must not be done twice (RESERVE, PREEMPT) is never sent again.
//! * What another initiator ends (PREEMPT AND ABORT, a reset) is not waited for: the unit answers it where it can (TAS, which is turned
//!   on when the disk is taken; who only looks at one changes nothing of it), and where it cannot we learn of it by its unit attention,
//!   which a question brings when no other command does. All that runs in that session is ended then (ABORT TASK SET) and begun again,
//!   which a fenced disk refuses at once. What was cut short has been carried out or not, nobody knows: a write that is refused after
//!   that says so, and what must not be done twice fails.
//! * A command ends with success only when the target said so. What is read is as long as was asked for.
//! * A target that has started anew may have lost its write cache: when writes were in it that no flush had covered, the disk fails stop
//!   ([`Poisoned`](block_device::BlockErrorKind::Poisoned)).
//! * A registration that the target no longer has after a reconnect counts as taken away: writes end with
//!   [`Fenced`](block_device::BlockErrorKind::Fenced) until the disk is registered again.
//! * A target that stays away for [`Times::away`] is gone: everything ends with [`Gone`](block_device::BlockErrorKind::Gone), for good.
//!   Whoever wants it back opens it anew.
//! * Nothing that a target sends makes us panic, write beyond a buffer, or hold more than the frames' bounds and the jobs' own buffers.
//!
//! Deliberately absent: several connections of one session (few targets have them), error recovery levels 1 and 2, discovery of targets,
//! and where the disk's secrets come from.

mod connection;
mod disk;
mod greeting;
mod lane;
mod reservations;
mod serve;
mod settings;
mod shared;
mod verdict;
mod writes;

pub use disk::IscsiDisk;
pub use settings::{Settings, Times};
