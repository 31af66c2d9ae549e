//! What a replay decides about blocks that are on no disk that is here: it goes to the journal before it is acted on.
//!
//! That a write was torn by the power cut shows in what had not been written of its stripe, parity among it. Once parity has been made
//! anew that sign is gone, and if the power goes then, the next opening would take the stripe for one that was acknowledged and is
//! damaged. With the decision in the chain it comes to the same one.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::BlockError;
use pool_format::{BLOCK, JournalAnchor, JournalEntry, JournalKind, JournalRecord};

use crate::at::At;
use crate::journal::{Journal, room};
use crate::journal_slab::put;

/// Where decisions go.
pub(crate) enum Decisions {
    /// To the end of the chain that an opening follows.
    Chain(ChainEnd),
    /// To the journal of a space in use.
    Journal(Arc<Journal>),
}

impl Decisions {
    /// Blocks of these columns are zeros, as before the write. Durably so when this returns `true`; `false` when that cannot be
    /// written now.
    pub(crate) async fn are_zeros(
        &mut self,
        at: At<'_>,
        block: u64,
        columns: &[usize],
    ) -> Result<bool, BlockError> {
        let entries = columns.iter().map(|column| JournalEntry {
            row: at.place.row,
            column: *column as u8,
            kind: JournalKind::Zeroes,
            first: block as u32,
            sums: vec![at.space.checksum.of_zeros()],
        });
        let entries = entries.collect();
        match self {
            Self::Chain(end) => end.add(at, entries).await.map(|()| true),
            Self::Journal(journal) => journal.append_now(at.core, at.space, entries).await,
        }
    }
}

/// The end of a chain of records, which can be added to.
pub(crate) struct ChainEnd {
    pub(crate) anchor: JournalAnchor,
    /// Where the next record goes.
    pub(crate) head: u64,
    /// Its number.
    pub(crate) seq: u64,
}

impl ChainEnd {
    /// Adds a record. Where the ring has no room, what it says is decided again after a crash.
    async fn add(&mut self, at: At<'_>, entries: Vec<JournalEntry>) -> Result<(), BlockError> {
        let record = JournalRecord { secret: self.anchor.secret, seq: self.seq, entries };
        let blocks = at.core.slab_size / BLOCK;
        let Some(start) = room(blocks, self.head, self.anchor.tail, record.head_blocks()) else {
            return Ok(());
        };
        if start != self.head && self.head < blocks {
            // Half of a record of this number may lie there.
            put(at.core, at.space, self.head * BLOCK, IoBuf::zeroed(BLOCK as usize).freeze()).await?;
        }
        put(at.core, at.space, start * BLOCK, IoBuf::copy_from(&record.encode()).freeze()).await?;
        (self.head, self.seq) = (start + record.head_blocks(), self.seq + 1);
        Ok(())
    }
}
