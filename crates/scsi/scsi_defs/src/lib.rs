//! What SCSI looks like on the wire: command descriptor blocks, sense data, parameter lists. Pure.
//!
//! Vocabulary: a *CDB* is a command of 6 to 16 bytes; *sense data* says why a command failed; a *parameter list*
//! is the data that goes with a command. Everything here is computed from bytes and gives bytes: no state, no
//! I/O, no time. SPC-4 and SBC-3 name the structures.
//!
//! ```text
//! bytes --Cdb::parse--> Cdb { op, fields } --(scsi_disk)--> data / Sense --encode--> bytes
//!            |
//!            +-- one table (cdb.rs) says for each command: length, meaningful bits, what it does to the medium.
//!                REPORT SUPPORTED OPERATION CODES prints the same table, so the two cannot disagree.
//! ```
//!
//! For initiators: `request` builds CDBs, `answer` reads what a disk says of itself, `sense::Reported` why it failed.
//!
//! Invariants: no input makes a function panic; a set bit that a command does not define is refused with a
//! pointer to it, never ignored; counts found in parameter lists are bounded before anything is allocated.
//!
//! What it does not do: decide. Reservations, attentions and data live in `scsi_disk`.

pub mod answer;
pub mod cdb;
pub mod copy;
pub mod fuzz;
pub mod request;
pub mod reservation;
pub mod sense;

pub use cdb::{Cdb, Effect, Entry, Op};
pub use sense::{Reported, Sense, SenseKey, asc};

/// The big-endian number of up to 8 bytes at `at`; bytes beyond the end count as zeros.
#[must_use]
pub fn be(bytes: &[u8], at: usize, len: usize) -> u64 {
    (at..at.saturating_add(len))
        .fold(0, |value, i| value << 8 | u64::from(bytes.get(i).copied().unwrap_or(0)))
}
