//! Writing the journal of a parity space while it is open: group commit, and giving its blocks free again.
//!
//! ```text
//!  append ─► queue ─► whoever gets the turn writes all that waits as one record ─► each goes on with its write in place
//!  done   ─► the oldest records whose writes have all come to their place
//!              ─► flush of the disks ─► anchor with the new tail ─► their blocks are free
//! ```

use std::pin::pin;
use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockError, BlockErrorKind};
use futures_util::future::{Either, select};
use pool_format::{BLOCK, JOURNAL_ANCHORS, JournalAnchor, JournalEntry, JournalKind, JournalRecord};
use tokio::sync::oneshot;

use super::{Journal, Live, Ticket, Waiting, room};
use crate::core::{Core, Space};
use crate::journal_slab::{put, write_anchor};

/// This share of the ring is left free by writes: what torn regions need is copied there ([`forward`]).
const RESERVE_SHARE: u64 = 4;

/// What became of records that were to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retired {
    Freed,
    /// None has come to its end.
    Nothing,
    /// What is left is needed for stripes that wait for disks, or there is no room to copy that forward.
    Kept,
}

impl Journal {
    /// Makes a write durable in the journal: its entries, and the new blocks of those that carry them.
    pub(crate) async fn append(
        self: &Arc<Self>,
        core: &Arc<Core>,
        space: &Space,
        entries: Vec<JournalEntry>,
        payload: Vec<SharedBuf>,
    ) -> Result<Ticket, BlockError> {
        let (told, mut answer) = oneshot::channel();
        self.state.lock().waiting.push(Waiting { entries, payload, told });
        // Whoever has the turn writes until its own write is told of, and no further: those that it told go on with
        // theirs meanwhile, and it must too before the ring can have room again.
        let seq = loop {
            let turn = match select(&mut answer, pin!(self.turn.lock())).await {
                Either::Left((told, _)) => break told.unwrap_or_else(|_| Err(lost()))?,
                Either::Right((turn, _)) => turn,
            };
            match answer.try_recv() {
                Ok(told) => break told?,
                Err(_) => self.write_next(core, space).await,
            }
            drop(turn);
        };
        Ok(Ticket { journal: Arc::clone(self), seq })
    }

    /// Writes what waits as one record, as far as it fits.
    async fn write_next(&self, core: &Arc<Core>, space: &Space) {
        let group = self.gather();
        if group.is_empty() {
            return;
        }
        let written = self.write_record(core, space, &group).await;
        if let Err(error) = &written {
            tracing::warn!("the journal of space {} cannot be written: {error}", space.name());
        }
        for waiting in group {
            let told = match &written {
                Ok(seq) => Ok(*seq),
                Err(error) => Err(BlockError::new(error.kind(), "write to the journal")),
            };
            let _ = waiting.told.send(told);
        }
    }

    async fn write_record(
        &self,
        core: &Arc<Core>,
        space: &Space,
        group: &[Waiting],
    ) -> Result<u64, BlockError> {
        let entries = group.iter().flat_map(|waiting| waiting.entries.iter().cloned()).collect();
        let record = JournalRecord { secret: [0; 16], seq: 0, entries };
        let start = self.make_room(core, space, record.head_blocks() + record.payload_blocks()).await?;
        let payload = group.iter().flat_map(|waiting| &waiting.payload);
        self.put_record(core, space, (start, record), payload.map(|data| &**data), group.len()).await
    }

    /// Writes a record at a place that is free; `open`: how many writes it is of. Its number. Under the turn.
    pub(super) async fn put_record<'a>(
        &self,
        core: &Arc<Core>,
        space: &Space,
        (start, mut record): (u64, JournalRecord),
        payload: impl Iterator<Item = &'a [u8]>,
        open: usize,
    ) -> Result<u64, BlockError> {
        let blocks = record.head_blocks() + record.payload_blocks();
        let failed = self.state.lock().failed;
        if let Some(at) = failed.filter(|at| *at != start) {
            // The next record has its number: a reader must not take the old one for it.
            put(core, space, at * BLOCK, IoBuf::zeroed(BLOCK as usize).freeze()).await?;
        }
        let head = {
            let mut state = self.state.lock();
            (record.secret, record.seq) = (state.anchor.secret, state.next_seq);
            state.next_seq += 1;
            state.records.push_back(Live { seq: record.seq, start, open, stuck: 0 });
            std::mem::replace(&mut state.head, start + blocks)
        };
        let mut data = IoBuf::new((blocks * BLOCK) as usize);
        let encoded = record.encode();
        data[..encoded.len()].copy_from_slice(&encoded);
        let mut at = encoded.len();
        for payload in payload {
            data[at..at + payload.len()].copy_from_slice(payload);
            at += payload.len();
        }
        let skipped = core.faults.skip_journal.load(std::sync::atomic::Ordering::Relaxed);
        let written = if skipped { Ok(()) } else { put(core, space, start * BLOCK, data.freeze()).await };
        let mut state = self.state.lock();
        if written.is_err() {
            // It may be there or not; nothing has been written in place for it. The next record takes its place and its
            // number, so that none lies behind a gap.
            state.records.pop_back();
            (state.head, state.next_seq) = (head, record.seq);
            state.failed = Some(start);
        } else {
            state.failed = None;
        }
        written.map(|()| record.seq)
    }

    /// Waits until the ring has room, freeing what has come to its place.
    async fn make_room(&self, core: &Arc<Core>, space: &Space, blocks: u64) -> Result<u64, BlockError> {
        let reserve = self.blocks / RESERVE_SHARE;
        if blocks + reserve + JOURNAL_ANCHORS >= self.blocks {
            return Err(BlockError::new(BlockErrorKind::NoSpace, "write more to the journal than it holds"));
        }
        loop {
            let ended = self.ended.notified();
            let empty = {
                let state = self.state.lock();
                let empty = state.records.is_empty() && state.head == state.anchor.tail;
                if let Some(start) = room(self.blocks, state.head, state.anchor.tail, blocks)
                    && (empty || self.used(start + blocks, state.anchor.tail) + reserve <= self.blocks)
                {
                    return Ok(start);
                }
                empty
            };
            if empty {
                // Used from its beginning again, whatever fits at all fits.
                self.put_anchor(core, space, |anchor| anchor.tail = JOURNAL_ANCHORS).await?;
                self.state.lock().head = JOURNAL_ANCHORS;
            } else {
                match self.retire(core, space).await? {
                    Retired::Freed => {}
                    Retired::Nothing => ended.await,
                    Retired::Kept => {
                        let what =
                            "write to the journal: it is full of what stripes must be that wait for disks";
                        let disks = space.awaited_disks();
                        let missing = format!("it must be kept until these are back; missing: {disks}");
                        return Err(BlockError::new(BlockErrorKind::Gone, what).because(missing));
                    }
                }
            }
        }
    }

    /// Frees the records whose writes are all in place, once they are durably so, and those of torn regions, once they have been
    /// copied forward.
    async fn retire(&self, core: &Arc<Core>, space: &Space) -> Result<Retired, BlockError> {
        let losses = space.torn_losses();
        let (tail, seq, stuck, copied) = {
            let state = self.state.lock();
            let over = state.records.iter().take_while(|record| record.open == record.stuck);
            let (over, stuck) =
                over.fold((0, false), |(count, stuck), record| (count + 1, stuck || record.stuck > 0));
            let (tail, seq) =
                state.records.get(over).map_or((state.head, state.next_seq), |next| (next.start, next.seq));
            if seq == state.anchor.seq {
                return Ok(Retired::Nothing);
            }
            let copied = state.forward.filter(|copied| copied.losses == losses);
            let only_copies =
                copied.is_some_and(|copied| state.anchor.seq >= copied.first && seq <= copied.end);
            if only_copies && (stuck || space.needs_journal()) {
                return Ok(if seq < state.next_seq { Retired::Nothing } else { Retired::Kept });
            }
            (tail, seq, stuck, copied)
        };
        core.flush_disks().await?;
        // Nobody mends one meanwhile: a region that is being made whole does not look torn, and may be torn again; and between a
        // write that is made again and its region's being whole it would not be found.
        let steady = self.steady.write().await;
        // Looked at after the flush, which may have been what found a disk gone.
        if !stuck && !space.needs_journal() {
            self.state.lock().forward = None;
        } else if !copied.is_some_and(|copied| copied.losses == space.torn_losses() && seq <= copied.first)
            && !self.copy_forward(core, space).await?
        {
            return Ok(Retired::Kept);
        }
        drop(steady);
        self.put_anchor(core, space, |anchor| (anchor.tail, anchor.seq) = (tail, seq)).await?;
        self.state.lock().records.retain(|record| record.seq >= seq);
        Ok(Retired::Freed)
    }

    async fn put_anchor(
        &self,
        core: &Arc<Core>,
        space: &Space,
        change: impl FnOnce(&mut JournalAnchor),
    ) -> Result<(), BlockError> {
        let mut anchor = self.state.lock().anchor;
        change(&mut anchor);
        anchor.number += 1;
        anchor.epoch = core.meta.epoch();
        write_anchor(core, space, &anchor).await?;
        self.state.lock().anchor = anchor;
        Ok(())
    }

    /// Frees what can be freed, when there is a share of the ring in use; `all` also when there is less.
    pub(crate) async fn tidy(&self, core: &Arc<Core>, space: &Space, all: bool) -> Result<(), BlockError> {
        let (used, copied) = {
            let state = self.state.lock();
            let copied = state.forward.map_or(0, |copied| copied.blocks);
            (self.used(state.head, state.anchor.tail), copied)
        };
        if used > 0 && (all || used > self.blocks / 4 + copied) {
            let _turn = self.turn.lock().await;
            self.retire(core, space).await?;
        }
        Ok(())
    }

    /// Makes void what the journal says of a row that is given up.
    pub(crate) async fn void(
        self: &Arc<Self>,
        core: &Arc<Core>,
        space: &Space,
        row: u32,
    ) -> Result<(), BlockError> {
        let entry = JournalEntry { row, column: 0, kind: JournalKind::Void, first: 0, sums: Vec::new() };
        self.append(core, space, vec![entry], Vec::new()).await?.done();
        Ok(())
    }
}

fn lost() -> BlockError {
    BlockError::new(BlockErrorKind::Poisoned, "write to the journal")
}
