//! What a write log keeps on its two devices: labels and batches. Pure: bytes in, bytes out. `docs/formats/write_log.md` has
//! the pictures and the crash argument.
//!
//! ```text
//!   front:  | label A | label B | ring: batch n, batch n+1, … batch n+k, older ones … |
//!   back:   | label A | label B | … to the shift | the device's content              |
//!   or, of a log that was put before a back with content:
//!   back:   | content | label A | label B | content goes on                            |
//! ```
//! A *label* says which log this is and where it begins; the one with the higher generation counts. The *front*'s label
//! has the tail; the *back*'s says whether a log stands before it, so that neither is used without the other by mistake.
//! A *batch* is what was committed together: one block with a head and up to [`MAX_ENTRIES`] entries, then the data of the
//! entries, one after another.
//!
//! Invariants: decoders read nothing beyond what they were given, and take memory for at most [`MAX_ENTRIES`] entries;
//! what a decoder accepts, it accepts again after encoding.

mod batch;
pub mod fuzz;
mod label;
#[cfg(test)]
mod tests;

pub use batch::{Batch, BatchHead, Entry, EntryKind, MAX_BATCH, MAX_DATA, MAX_ENTRIES};
pub use byte_codec::Checksum;
pub use label::{Label, NO_LOG, Side, State};

/// Unit of the log on its devices, in bytes: batches begin at multiples of it, labels have one each.
pub const BLOCK: u64 = 4096;
/// Where the labels lie on a back whose content begins at its first byte (its shift is 0), in bytes. The content leaves these
/// two blocks alone: a volume has nothing between the two copies of its superblock.
pub const LABELS_INSIDE: u64 = 16 << 10;
/// Where the ring begins on the front, in bytes: behind both labels.
pub const RING_START: u64 = 2 * BLOCK;
