//! The journal of a parity space while it is open: group commit, and giving its blocks free again.
//!
//! ```text
//!  append ─► queue ─► whoever gets the turn writes all that waits as one record ─► each goes on with its write in place
//!  done   ─► the oldest records whose writes have all come to their place
//!              ─► flush of the disks ─► anchor with the new tail ─► their blocks are free
//! ```
//! Format: `pool_format::journal`. The ring's blocks are used again only when an anchor that lies behind them is
//! durable, so a reader that starts at the anchor always finds the chain whole.
//! What is needed for longer, as disks are away, is copied forward: `journal/forward.rs`; what whoever makes them whole asks and adds: `journal/mending.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockError, BlockErrorKind, Durability};
use futures_util::future::{Either, select};
use parking_lot::Mutex;
use pool_format::{
    BLOCK, JOURNAL_ANCHORS, JOURNAL_ROW, JournalAnchor, JournalEntry, JournalKind, JournalRecord,
};
use pool_layout::Striping;
use tokio::sync::{Notify, oneshot};

use crate::at::At;
use crate::core::Core;
use crate::row::Place;
use crate::space::Space;
use crate::stripe::ColumnWrite;
use crate::write::{Edit, change_piece, flush_disks};

mod forward;
mod mending;

/// A record gathers writes up to this share of the ring, so that several fit.
const GATHER_SHARE: u64 = 8;
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

/// The journal of one space.
pub(crate) struct Journal {
    /// Blocks of the slab that it lies in.
    blocks: u64,
    state: Mutex<State>,
    /// Who writes the next record.
    turn: tokio::sync::Mutex<()>,
    /// A record has come to its end.
    ended: Notify,
    /// Held by whoever mends a torn region, and for writing while it is decided whether such need the journal, and what of it.
    pub(crate) steady: tokio::sync::RwLock<()>,
    /// What the records say of torn regions, as it was last read.
    reading: tokio::sync::Mutex<Option<forward::Reading>>,
}

struct State {
    anchor: JournalAnchor,
    /// Where the next record goes.
    head: u64,
    next_seq: u64,
    /// Records since the durable anchor, oldest first.
    records: VecDeque<Live>,
    waiting: Vec<Waiting>,
    stuck: Vec<Stuck>,
    /// How many writes have failed half-way.
    stuck_ever: u64,
    /// What has been copied forward for torn regions.
    forward: Option<forward::Copied>,
    /// At which anchor, and with which regions torn, there was no room to copy anything: the ring is not read again for that.
    no_room: Option<(u64, BTreeMap<u32, u64>)>,
    /// Where a record lies that failed and may be there all the same.
    failed: Option<u64>,
}

struct Live {
    seq: u64,
    start: u64,
    /// Writes whose place has not been reached.
    open: usize,
    /// Those of them that failed, and are made again when their disks are back.
    stuck: usize,
}

struct Waiting {
    entries: Vec<JournalEntry>,
    payload: Vec<SharedBuf>,
    told: oneshot::Sender<Result<u64, BlockError>>,
}

/// A write that failed: made again when its disks are back.
pub(crate) struct Stuck {
    seq: u64,
    pub(crate) row: u32,
    pub(crate) writes: Vec<ColumnWrite>,
}

/// A write that is in the journal. Must come to [`Ticket::done`] or [`Ticket::stuck`]; one that is dropped
/// keeps its record for ever, which is safe.
#[must_use]
pub(crate) struct Ticket {
    journal: Arc<Journal>,
    seq: u64,
}

impl Ticket {
    /// Everything has been written in place (durable or not).
    pub(crate) fn done(self) {
        self.journal.end(self.seq);
    }

    /// It has not been; the record stays until it has.
    pub(crate) fn stuck(self, row: u32, writes: Vec<ColumnWrite>) {
        let mut state = self.journal.state.lock();
        if let Some(record) = state.records.iter_mut().find(|record| record.seq == self.seq) {
            record.stuck += 1;
        }
        state.stuck_ever += 1;
        state.stuck.push(Stuck { seq: self.seq, row, writes });
        drop(state);
        self.journal.ended.notify_waiters();
    }
}

/// A place in the ring for so many blocks: from `head` on, or at the beginning when they do not fit before the end.
/// `tail` is where the oldest block in use lies; the ring is never filled to the last block, so that head = tail
/// means that it is empty.
pub(crate) fn room(blocks: u64, head: u64, tail: u64, len: u64) -> Option<u64> {
    if head >= tail {
        if head + len <= blocks {
            return Some(head);
        }
        return (JOURNAL_ANCHORS + len < tail).then_some(JOURNAL_ANCHORS);
    }
    (head + len < tail).then_some(head)
}

impl Journal {
    /// A journal of which everything before `anchor` is in its place, and that goes on with record `next_seq` at `head`. The anchor is
    /// durable.
    pub(crate) fn new(slab_size: u64, anchor: JournalAnchor, head: u64, next_seq: u64) -> Arc<Self> {
        let blocks = slab_size / BLOCK;
        let state = State {
            anchor,
            head,
            next_seq,
            records: VecDeque::new(),
            waiting: Vec::new(),
            stuck: Vec::new(),
            stuck_ever: 0,
            forward: None,
            no_room: None,
            // The power may have gone while the record of that number was written there.
            failed: (next_seq > anchor.seq && head < blocks).then_some(head),
        };
        Arc::new(Self {
            blocks,
            state: Mutex::new(state),
            turn: tokio::sync::Mutex::default(),
            ended: Notify::new(),
            steady: tokio::sync::RwLock::default(),
            reading: tokio::sync::Mutex::default(),
        })
    }

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

    /// The writes of the next record, in order.
    fn gather(&self) -> Vec<Waiting> {
        let mut state = self.state.lock();
        let most = self.blocks / GATHER_SHARE;
        let mut blocks = 0;
        let size =
            |waiting: &Waiting| 1 + waiting.payload.iter().map(|data| data.len() as u64 / BLOCK).sum::<u64>();
        let fits = |waiting: &&Waiting| {
            blocks += size(waiting);
            blocks <= most
        };
        let count = state.waiting.iter().take_while(fits).count().max(1).min(state.waiting.len());
        state.waiting.drain(..count).collect()
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
    async fn put_record<'a>(
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

    /// Blocks between the oldest record and `head`.
    fn used(&self, head: u64, tail: u64) -> u64 {
        if head >= tail { head - tail } else { self.blocks - tail + head }
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
        flush_disks(core).await?;
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

    fn end(&self, seq: u64) {
        let mut state = self.state.lock();
        if let Some(record) = state.records.iter_mut().find(|record| record.seq == seq) {
            record.open = record.open.saturating_sub(1);
        }
        drop(state);
        self.ended.notify_waiters();
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

    /// Takes the failed writes to a region of a row.
    pub(crate) fn take_stuck(&self, row: u32, touches: impl Fn(&ColumnWrite) -> bool) -> Vec<Stuck> {
        let mut state = self.state.lock();
        let (taken, rest) = std::mem::take(&mut state.stuck)
            .into_iter()
            .partition(|stuck| stuck.row == row && stuck.writes.iter().any(&touches));
        state.stuck = rest;
        taken
    }

    /// Puts a failed write back: it still waits.
    pub(crate) fn put_back(&self, stuck: Stuck) {
        self.state.lock().stuck.push(stuck);
    }

    /// A failed write has come to its place, or is of no concern any more.
    pub(crate) fn unstick(&self, stuck: &Stuck) {
        {
            let mut state = self.state.lock();
            if let Some(record) = state.records.iter_mut().find(|record| record.seq == stuck.seq) {
                record.stuck = record.stuck.saturating_sub(1);
            }
        }
        self.end(stuck.seq);
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

/// Writes an anchor to its block.
pub(crate) async fn write_anchor(
    core: &Arc<Core>,
    space: &Space,
    anchor: &JournalAnchor,
) -> Result<(), BlockError> {
    let block = IoBuf::copy_from(&anchor.encode()).freeze();
    put(core, space, anchor.number % JOURNAL_ANCHORS * BLOCK, block).await
}

/// Writes to the journal's slab, durably, on all its copies.
pub(crate) async fn put(
    core: &Arc<Core>,
    space: &Space,
    offset: u64,
    data: SharedBuf,
) -> Result<(), BlockError> {
    let gone = || BlockError::new(BlockErrorKind::Gone, "write to the journal");
    let row = space.row(JOURNAL_ROW).ok_or_else(gone)?;
    let striping = Striping::new(1, 0, BLOCK as u32, core.slab_size).ok_or_else(gone)?;
    let place = Place { space: space.id(), row: JOURNAL_ROW, column: 0 };
    let mut at = 0;
    let writes = striping.pieces(offset, data.len() as u64).map(|piece| {
        let part = data.slice(at..at + piece.len as usize);
        at += piece.len as usize;
        change_piece(At::new(core, space, &row, place), piece, Edit::Data(part), Durability::Durable)
    });
    futures_util::future::join_all(writes).await.into_iter().collect()
}
