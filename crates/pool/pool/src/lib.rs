//! Pools of disks and the resilient spaces in them.
//!
//! ```text
//!   Pool ── Meta (log, checkpoints, votes) ───────────────► metadata areas of up to five disks
//!     │
//!     ├── Space: BlockDevice ── Row ── Group ── Column ── copies ──► slabs of disks
//!     │        write: range lock → dirty mark → all good copies → stale marks → checksums → acknowledged
//!     │        with parity: range lock of the row → new parity → journal → columns in place (`stripe`)
//!     │        read: one copy → checksum?  no: all copies, parity, healing (`careful`)
//!     └── background: settle after a crash, catch copies up, restore redundancy, exchange, rebalance, clean dirty marks, scrub
//! ```
//! Vocabulary: `pool_format` has the records; a *copy* is *good* when its disk is here and it has all
//! acknowledged writes, *stale* in the regions where it lacks some. A region is *dirty* while its copies may
//! differ after a crash, *unsettled* after a crash until they have been made equal.
//!
//! Invariants:
//! * An acknowledged write is on every copy that the metadata calls up to date, or the others are durably
//!   marked stale first.
//! * Of each region at least one copy is never marked stale.
//! * Metadata changes only by committed [`pool_format::Change`]s; after a failed commit the pool stops.
//! * A slab is reused only when the change that freed it is durable and no request can touch it.
//!
//! * What is read is what was written, or an error: every block that has a checksum is compared with it.
//! * A disk that carries an older mark than the metadata knows of it has gone back in time: nothing on it is believed (`marks`).
//! * A disk that is smaller than it was is as good as missing (`cut_short`).
//! * A page of checksums that has not the generation the metadata knows of it has lost writes (`generations`).
//! * Whoever has the pool open and finds a newer epoch on a disk, or is told of one by the witness, stops (`meta`); whoever is told by
//!   a disk that it belongs to another owner stops at once and altogether (`ownership`).
//! * An opening writes nothing before it has an epoch above all that its disks and the witness know.
//! * Nothing of a stripe is written in place before the journal can make it whole.
//!
//! Deliberately absent: files, the choice of when to replace a lost disk (the node's policy).

mod allocate;
mod at;
mod awaited;
mod balance;
mod careful;
mod check;
mod clean;
mod commit;
mod core;
mod cut_short;
mod decisions;
mod disk;
mod earlier_life;
mod error;
mod exchange;
mod find;
mod fullness;
mod generations;
mod given_up;
mod governor;
mod health;
mod journal;
mod journal_reader;
mod leaving;
mod marks;
mod members;
mod meta;
mod moves;
mod open;
mod ownership;
mod pages;
mod places;
mod pool;
mod read;
mod recall;
mod repair;
mod replay;
mod resync;
mod row;
mod scrub;
mod slabs;
mod space;
mod spaces;
mod status;
mod stripe;
mod sums;
#[cfg(test)]
mod tests;
mod upkeep;
mod votes;
mod witness;
mod write;

pub use balance::{BalancePlan, BalanceStatus};
pub use check::{Finding, Severity};
pub use core::{Faults, RepairParams};
pub use error::{PoolError, PoolErrorKind};
pub use find::owner_of;
pub use health::Slowness;
pub use open::{
    CreateOptions, DiskDescription, NewDisk, OpenOptions, Probe, foreign_data, probe, release_disk,
};
pub use places::SlabInUse;
pub use pool::{Pool, Surroundings};
pub use pool_format::{
    Checksum, DiskId, DiskUse, Epoch, Guid, Provisioning, Resiliency, ScrubRecord, Seq, SpaceId,
};
pub use scrub::{ScrubParams, ScrubStatus};
pub use space::Space;
pub use spaces::SpaceSpec;
pub use status::{DiskStatus, PoolStatus, SpaceStatus};
pub use witness::{MemoryWitness, Node, QuorumWitness, Vote, WitnessFuture};
