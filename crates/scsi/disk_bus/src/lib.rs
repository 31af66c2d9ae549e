//! A disk of this machine as a unit for other nodes of the cluster: what `block_iscsi` asks for, carried to the disk's gate.
//!
//! ```text
//!   node 2: block_iscsi ──► iscsi_target (an instance of its own) ──► BusUnit ──► GatedDisk of that session's port ──► Gate ──► disk
//!                                                                     │ unit      nexuses, news, who waits for whom
//!                                                                     │ inform    what the unit says of itself
//!                                                                     │ medium    reads, writes, zeroes, unmapping, flushes
//!                                                                     └ reserve   PERSISTENT RESERVE, of the one kind that fencing needs
//! ```
//! Its only initiators are nodes of Holdfast, so it knows the commands that they use and refuses all others. Whose disk it is, and in
//! which epoch, decides the gate: this is the way there.
//!
//! Invariants:
//! * A port that has begun anew (a session that takes the place of one before) begins nothing before everything has ended that the one before
//!   had under way: a write that is sent again never lands before its first sending.
//! * The disk has a write cache as far as initiators know: GOOD for a write with FUA, or for a flush, means durable; a process that begins
//!   anew says so (POWER ON), as writes that no flush has covered may be lost with the machine.
//! * Nothing that is sent makes us panic, or take more memory than the transport's data and one answer of [`MAX_TRANSFER_BYTES`].

pub mod fuzz;
mod inform;
mod medium;
mod reply;
mod reserve;
mod unit;

pub use medium::MAX_TRANSFER_BYTES;
pub use unit::BusUnit;
