//! What the journal has for torn regions, while their disks are away: it is copied to the ring's head, so that the ring can go on.
//!
//! ```text
//!   tail                                    head                              tail                       head
//!    ├ a │ B │ c │ D │ e │ f │ G ────────────┤ … free …      ─►      … free …  ├ B D G ────────────────────┤
//! ```
//! (Capitals: of torn regions.) The copies are records like others, and follow them in number. That is their right place: nobody
//! writes to a torn region, and whoever mends one and writes then gets a later number. Of each block only what a replay would
//! look at is copied. What is said of a stripe goes into one record: half of it would be another history.
//!
//! Writes leave a share of the ring free for this. Where what is to be kept needs more than is free, nothing is given up: writes
//! to the space fail until disks are back, or the loss is accepted at an opening.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use block_device::{BlockError, BlockErrorKind};
use pool_format::{JOURNAL_ROW, JournalEntry, JournalKind, JournalRecord};

use super::{Copied, Journal, Reading, Stripes, Told, room};
use crate::core::{Core, Space};
use crate::journal_reader::Reader;
use crate::row::Row;

/// Blocks of a record of copies, unless what is said of one stripe takes more.
const RECORD_BLOCKS: u64 = 256;

fn gone() -> BlockError {
    BlockError::new(BlockErrorKind::Gone, "read the journal of a space")
}

impl Journal {
    /// What the records say of torn regions. The caller holds [`Journal::steady`].
    ///
    /// # Errors
    /// When the journal cannot be read to its end.
    pub(crate) async fn read_torn(
        &self,
        core: &Arc<Core>,
        space: &Space,
    ) -> Result<Arc<Stripes>, BlockError> {
        let mut reading = self.reading.lock().await;
        let of = {
            let state = self.state.lock();
            (state.anchor.number, space.torn_losses(), state.stuck_ever)
        };
        if let Some(known) = reading.as_ref().filter(|known| known.of == of) {
            return Ok(Arc::clone(&known.stripes));
        }
        let row = space.row(JOURNAL_ROW).ok_or_else(gone)?;
        let stripes = Arc::new(self.torn_stripes(core, space, &row).await?);
        *reading = Some(Reading { of, stripes: Arc::clone(&stripes) });
        Ok(stripes)
    }

    /// Reads what the records say of torn regions.
    async fn torn_stripes(
        &self,
        core: &Arc<Core>,
        space: &Space,
        row: &Arc<Row>,
    ) -> Result<Stripes, BlockError> {
        let torn = space.torn_rows();
        // All before the next number have been written, or are being written.
        let (anchor, written) = {
            let state = self.state.lock();
            (state.anchor, state.next_seq)
        };
        let (mut stripes, last) = Reader { core, space, row }.walk(&anchor).await;
        if last.map_or(anchor.seq, |(_, record)| record.seq + 1) < written {
            // What cannot be read now is not the end of the chain.
            return Err(gone());
        }
        let interleave = space.striping.interleave();
        stripes.retain(|(row, stripe), _| {
            let mask = space.striping.regions(stripe * interleave, interleave);
            torn.get(row).is_some_and(|torn| torn & mask != 0)
        });
        Ok(stripes)
    }

    /// Copies what the records say of torn regions to the head. `false`, and nothing written, when there is no room. Under the turn,
    /// and with [`Journal::steady`] taken for writing.
    pub(super) async fn copy_forward(&self, core: &Arc<Core>, space: &Space) -> Result<bool, BlockError> {
        let (losses, torn) = (space.torn_losses(), space.torn_rows());
        {
            let state = self.state.lock();
            if state
                .no_room
                .as_ref()
                .is_some_and(|(anchor, of)| *anchor == state.anchor.number && *of == torn)
            {
                return Ok(false);
            }
        }
        let row = space.row(JOURNAL_ROW).ok_or_else(gone)?;
        let reader = Reader { core, space, row: &row };
        let records = gather(self.torn_stripes(core, space, &row).await?);
        let (mut head, tail, first) = {
            let state = self.state.lock();
            (state.head, state.anchor.tail, state.next_seq)
        };
        let mut starts = Vec::with_capacity(records.len());
        let mut taken = 0;
        for record in &records {
            let blocks = blocks_of(record);
            let Some(start) = room(self.blocks, head, tail, blocks) else {
                let mut state = self.state.lock();
                state.no_room = Some((state.anchor.number, torn));
                return Ok(false);
            };
            starts.push(start);
            taken += self.used(start + blocks, head);
            head = start + blocks;
        }
        for (start, told) in starts.into_iter().zip(records) {
            let mut payload = Vec::new();
            for told in told.iter().filter(|told| told.entry.kind == JournalKind::Payload) {
                for (block, sum) in (told.payload..).zip(&told.entry.sums) {
                    payload.push(reader.payload(block, *sum).await.ok_or_else(gone)?);
                }
            }
            let record = record_of(&told);
            self.put_record(core, space, (start, record), payload.iter().map(Vec::as_slice), 0).await?;
        }
        let mut state = self.state.lock();
        state.forward = Some(Copied { first, end: state.next_seq, blocks: taken, losses });
        Ok(true)
    }
}

fn record_of(told: &[Told]) -> JournalRecord {
    JournalRecord { secret: [0; 16], seq: 0, entries: told.iter().map(|told| told.entry.clone()).collect() }
}

fn blocks_of(told: &[Told]) -> u64 {
    let record = record_of(told);
    record.head_blocks() + record.payload_blocks()
}

/// What is to be copied, by record.
fn gather(stripes: Stripes) -> Vec<Vec<Told>> {
    let mut records: Vec<Vec<Told>> = Vec::new();
    let mut room = 0;
    for told in stripes.into_values().map(|told| needed(&told)) {
        let blocks = blocks_of(&told);
        match records.last_mut().filter(|_| blocks <= room) {
            Some(record) => {
                record.extend(told);
                room -= blocks;
            }
            None => {
                records.push(told);
                room = RECORD_BLOCKS.saturating_sub(blocks);
            }
        }
    }
    records
}

/// What newer records say of a block.
#[derive(Default)]
struct Known {
    /// All of it: nothing older counts.
    content: bool,
    /// Checksums only.
    sums: Vec<u32>,
}

/// Of what records say of a stripe, oldest first, that which a replay looks at, in the same order.
fn needed(told: &[Told]) -> Vec<Told> {
    let mut known: BTreeMap<(u8, u32), Known> = BTreeMap::new();
    let mut needed = Vec::new();
    for told in told.iter().rev() {
        let entry = &told.entry;
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (index, sum) in entry.sums.iter().enumerate() {
            let known = known.entry((entry.column, entry.first + index as u32)).or_default();
            let content = matches!(entry.kind, JournalKind::Payload | JournalKind::Zeroes);
            if known.content || !content && known.sums.contains(sum) {
                continue;
            }
            known.content = content;
            known.sums.push(*sum);
            match runs.last_mut().filter(|run| run.end == index) {
                Some(run) => run.end += 1,
                None => runs.push(index..index + 1),
            }
        }
        needed.extend(runs.into_iter().map(|run| Told {
            payload: told.payload + run.start as u64,
            entry: JournalEntry {
                first: entry.first + run.start as u32,
                sums: entry.sums[run].to_vec(),
                ..*entry
            },
        }));
    }
    needed.reverse();
    needed
}
