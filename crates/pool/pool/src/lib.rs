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
//! Its files lie on each other; what is known is at the bottom, and imports nothing from above:
//!
//! ```text
//!   the pool        opening, closing, members, spaces; which state counts: find, votes, marks
//!   upkeep          repair ─► balance, exchange ─► moves ─► column_repair ─► resync (read asks it, too); check, scrub, clean
//!   after a crash   replay ─► given_up, awaited, decisions
//!   requests        core/space/requests ─► stripe ─► write; the journal: journal/writer, journal_reader
//!   checksums       examine, recall ─► careful ─► sums ─► pages ─► generations; dirty
//!   books           core with its spaces, row, disk, meta, journal, page, slabs; what upkeep remembers: balancer, exchanges, governor
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
mod balancer;
mod careful;
mod check;
mod clean;
mod closing;
mod column_repair;
mod commit;
mod core;
mod cut_short;
mod decisions;
mod dirty;
mod disk;
mod earlier_life;
mod edit;
mod error;
mod examine;
mod exchange;
mod exchanges;
mod faults;
mod find;
mod finding;
mod fullness;
mod generations;
mod given_up;
mod governor;
mod health;
mod journal;
mod journal_reader;
mod journal_slab;
mod leaving;
mod marks;
mod members;
mod meta;
mod moves;
mod open;
mod opening;
mod ownership;
mod pace;
mod page;
mod pages;
mod params;
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
mod spaces;
mod status;
mod stripe;
mod sums;
mod sums_cache;
#[cfg(test)]
mod tests;
mod upkeep;
mod voters;
mod votes;
mod went_back;
mod witness;
mod write;

pub use balance::{BalancePlan, BalanceStatus};
pub use core::Space;
pub use error::{PoolError, PoolErrorKind};
pub use faults::Faults;
pub use find::owner_of;
pub use finding::{Finding, Severity};
pub use governor::FLOOR as REPAIR_FLOOR;
pub use open::{
    CreateOptions, DiskDescription, NewDisk, OpenOptions, Probe, foreign_data, probe, release_disk,
};
pub use pace::Slowness;
pub use params::{RepairParams, ScrubParams};
pub use places::SlabInUse;
pub use pool::{Pool, Surroundings};
pub use pool_format::{
    Checksum, DiskId, DiskUse, Epoch, Guid, Provisioning, Resiliency, ScrubRecord, Seq, SpaceId,
};
pub use scrub::ScrubStatus;
pub use spaces::SpaceSpec;
pub use status::{DiskStatus, PoolStatus, SpaceStatus};
pub use voters::voters_needed;
pub use witness::{MemoryWitness, Node, QuorumWitness, Vote, WitnessFuture};
