//! What whoever makes torn regions whole asks of the journal, and adds to it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use block_device::BlockError;
use pool_format::{JournalEntry, JournalRecord};

use super::{Journal, room};
use crate::at::At;
use crate::core::{Core, Space};

impl Journal {
    /// Appends what was decided of a torn region, durably. `false`, and nothing written, when another record is on its way: whoever
    /// writes it may wait for [`Journal::steady`], which the caller holds. Where the ring has no room it is not written either, and decided
    /// again after a crash.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub(crate) async fn append_now(
        &self,
        core: &Arc<Core>,
        space: &Space,
        entries: Vec<JournalEntry>,
    ) -> Result<bool, BlockError> {
        let Ok(_turn) = self.turn.try_lock() else { return Ok(false) };
        let record = JournalRecord { secret: [0; 16], seq: 0, entries };
        let start = {
            let state = self.state.lock();
            room(self.blocks, state.head, state.anchor.tail, record.head_blocks())
        };
        if let Some(start) = start {
            // No write waits for it: it is copied forward with the rest as long as the region is torn.
            self.put_record(core, space, (start, record), std::iter::empty(), 0).await?;
            *self.reading.lock().await = None;
        }
        Ok(true)
    }

    /// Stripes of a row that were written as a whole when their disks went, and are written again from memory.
    pub(crate) fn stuck_stripes(&self, at: At<'_>) -> BTreeSet<u64> {
        let interleave = at.space.striping.interleave();
        let mut columns: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
        let state = self.state.lock();
        let writes = state.stuck.iter().filter(|stuck| stuck.row == at.place.row);
        for write in writes.flat_map(|stuck| &stuck.writes) {
            if write.len == interleave && write.offset % interleave == 0 {
                columns.entry(write.offset / interleave).or_default().insert(write.column);
            }
        }
        let all = at.row.columns.len();
        columns.into_iter().filter(|(_, columns)| columns.len() == all).map(|(stripe, _)| stripe).collect()
    }
}
