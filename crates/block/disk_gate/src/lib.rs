//! The gate before a disk of this machine that other nodes use, too: everybody passes through it, the node's own pool as well.
//!
//! ```text
//!   the node's own pool ──► GatedDisk "own" ─┐
//!   a session of node 2 ──► GatedDisk port ──┼─► Gate ──► the disk
//!   a session of node 3 ──► GatedDisk port ──┘    │
//!                                                 ├─ Table    registrations, the holder, the highest epoch that was accepted
//!                                                 ├─ Port     for each initiator: barred or not, and what it has under way
//!                                                 └─ Records  the table on stable storage, under the disk's identity
//! ```
//! It is the persistent reservations of [`block_device::Reservations`], kept by the node that has the hardware instead of by the disk's
//! firmware. The key of a registration is `epoch << 16 | node`.
//!
//! Invariants:
//! * While the disk is reserved, only those who are registered change it.
//! * A registration below the highest epoch that was ever accepted is refused: an owner that is late does not even begin.
//! * **No ghosts.** A change that takes the right to write away from somebody is answered after everything has ended that they had under
//!   way. What has begun at the disk ends there, whether anybody waits for it or not.
//! * A change is on stable storage before it is answered, and before it permits anything. What takes rights away takes effect
//!   at once: a crash between leaves the state of before, of which nobody was told otherwise.
//! * When the record is damaged, or cannot be written, nobody may write: the gate never takes a loss of memory for "no reservation".
//! * What could not be written or read is tried again ([`Gate::mend`], and by whoever asks for a change): a state of which somebody was told comes
//!   back, or the disk stays shut. A damaged record says nothing, however often it is read.
//!
//! What a write costs: one look at, and one change of, the port's own word when it begins, and one when it ends (together two atomic
//! operations on a word that only this initiator uses), and a count of references, as what has begun outlives whoever waits for it.
//!
//! Deliberately absent: the way over the network (`disk_bus`), and what a pool is.

mod disk;
pub mod fuzz;
mod gate;
mod port;
mod record;
mod records;
mod table;

pub use disk::GatedDisk;
pub use gate::{Gate, GateError, Identify, Settings};
pub use record::DiskIdentity;
pub use records::{FileRecords, Records};
pub use table::{MAX_PORT_NAME_BYTES, MAX_REGISTRATIONS, Registration};
