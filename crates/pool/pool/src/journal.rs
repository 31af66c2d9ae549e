//! The journal of a parity space while it is open: what is known of its ring. `journal/writer.rs` writes it, what is needed for longer,
//! as disks are away, is copied forward by `journal/forward.rs`, and what whoever makes them whole asks and adds is in `journal/mending.rs`.
//!
//! Format: `pool_format::journal`. The ring's blocks are used again only when an anchor that lies behind them is
//! durable, so a reader that starts at the anchor always finds the chain whole.

mod forward;
mod mending;
mod writer;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use aligned_buffer::SharedBuf;
use block_device::BlockError;
use parking_lot::Mutex;
use pool_format::{BLOCK, JOURNAL_ANCHORS, JournalAnchor, JournalEntry};
use tokio::sync::{Notify, oneshot};

use crate::edit::ColumnWrite;

/// A record gathers writes up to this share of the ring, so that several fit.
const GATHER_SHARE: u64 = 8;

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
    reading: tokio::sync::Mutex<Option<Reading>>,
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
    forward: Option<Copied>,
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

/// Records that say again what is known of torn regions.
#[derive(Clone, Copy, Debug)]
struct Copied {
    /// Number of the first.
    first: u64,
    /// That of the record behind the last.
    end: u64,
    /// Blocks of the ring that they take.
    blocks: u64,
    /// How many losses of disks they take into account: see [`Space::torn_losses`](crate::Space::torn_losses).
    losses: u64,
}

/// What the records say of torn regions. Nothing of it changes while these are torn, except where it lies.
struct Reading {
    /// What it was read at: the anchor's number, losses of disks, and writes that had failed half-way.
    of: (u64, u64, u64),
    stripes: Arc<Stripes>,
}

/// What a record says of blocks of a column.
pub(crate) struct Told {
    pub(crate) entry: JournalEntry,
    /// Block of the journal at which its payload begins.
    pub(crate) payload: u64,
}

/// What the journal says, oldest first, by row and stripe.
pub(crate) type Stripes = BTreeMap<(u32, u64), Vec<Told>>;

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

    /// Blocks between the oldest record and `head`.
    fn used(&self, head: u64, tail: u64) -> u64 {
        if head >= tail { head - tail } else { self.blocks - tail + head }
    }

    fn end(&self, seq: u64) {
        let mut state = self.state.lock();
        if let Some(record) = state.records.iter_mut().find(|record| record.seq == seq) {
            record.open = record.open.saturating_sub(1);
        }
        drop(state);
        self.ended.notify_waiters();
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
}
