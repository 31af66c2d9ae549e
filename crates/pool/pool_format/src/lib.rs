//! The pool's on-disk structures: superblock, checkpoint, log. Pure: bytes in, bytes out.
//!
//! The page `docs/formats/pool.md` has the pictures and the argument why a crash at any point is safe. The
//! layouts are written here once, in the `encode`/`decode` pairs; every decoder takes hostile bytes.
//!
//! * [`Superblock`]: who a disk is, at both ends of it.
//! * [`Change`]: one change of the pool's metadata; [`LogBatch`]: changes that become durable together.
//! * [`SumsPage`]: checksums of data; [`JournalRecord`]: writes to parity stripes under way.
//! * [`PoolState`]: the metadata, changed only by [`PoolState::apply`]; encoded whole in a checkpoint.

mod change;
mod envelope;
pub mod foreign;
pub mod fuzz;
mod ids;
mod journal;
mod records;
mod released;
mod state;
mod sums;
mod superblock;
#[cfg(test)]
mod tests;

pub use byte_codec::{Checksum, DecodeError, Reader, Writer};
pub use change::Change;
pub use envelope::{Checkpoint, LogBatch, MAX_BATCH_BYTES, Origin};
pub use ids::{DiskId, Epoch, Guid, Mark, Seq, SpaceId};
pub use journal::{JOURNAL_ANCHORS, JournalAnchor, JournalEntry, JournalKind, JournalRecord};
pub use records::{
    ColumnRecord, CopyRecord, DiskRecord, DiskUse, JOURNAL_ROW, MAX_COPIES, Owner, Provisioning, REGIONS,
    ROWS_MAX, Resiliency, RowRecord, ScrubRecord, SpaceRecord, next_generation,
};
pub use released::Released;
pub use state::PoolState;
pub use sums::{SLAB_BYTES_MAX, SUMS_PER_PAGE, SumsPage, sums_pages};
pub use superblock::{Announced, SUPERBLOCK_BYTES, Superblock, checkpoint_room, layout_for};

/// Unit of everything on disk, in bytes.
pub const BLOCK: u64 = 4096;
