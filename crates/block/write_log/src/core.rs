//! What all parts of a log share: its devices, its state behind one lock, and how operations wait for each other.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aligned_buffer::SharedBuf;
use block_device::{BlockError, BlockErrorKind, Device, Geometry};
use parking_lot::Mutex;
use shard_runtime::RangeLocks;
use tokio::sync::Notify;
use write_log_format::{BLOCK, Entry, EntryKind, Label};

use crate::options::Options;
use crate::pieces::{Content, Piece, Pieces};
use crate::status::{Counters, LogMode};

/// A change that waits for its batch.
pub(crate) struct Pending {
    pub(crate) ticket: u64,
    pub(crate) entry: Entry,
    pub(crate) data: Option<SharedBuf>,
}

impl Pending {
    /// What it may take of the ring: as if it were alone in its batch.
    pub(crate) fn cost(entry: &Entry) -> u64 {
        BLOCK + entry.data_len().next_multiple_of(BLOCK)
    }
}

/// A batch in the ring. Positions count bytes from the first batch ever.
pub(crate) struct Placed {
    pub(crate) number: u64,
    pub(crate) start: u64,
}

/// Invariants: `done <= given`; everything in `queue` has a ticket above `done`, in order; `batches` are those from
/// the tail to the head, in order.
pub(crate) struct Inner {
    pub(crate) mode: LogMode,
    pub(crate) pieces: Pieces,
    pub(crate) queue: VecDeque<Pending>,
    /// The last ticket given.
    pub(crate) given: u64,
    /// Every ticket up to this is durable.
    pub(crate) done: u64,
    /// Somebody commits batches.
    pub(crate) leading: bool,
    pub(crate) head: u64,
    pub(crate) tail: u64,
    pub(crate) next_batch: u64,
    pub(crate) batches: VecDeque<Placed>,
    /// Bytes of the ring promised to what is in the queue or being committed.
    pub(crate) reserved: u64,
    /// The labels last written.
    pub(crate) front_label: Label,
    pub(crate) back_label: Label,
    /// Why the back took nothing the last time.
    pub(crate) back_error: Option<String>,
    /// Rounds of destaging that have begun, and the number of the last one that the back took less than all of.
    pub(crate) rounds_begun: u64,
    pub(crate) round_failed: u64,
    /// Why there is no log any more, or nothing at all.
    pub(crate) reason: Option<String>,
}

/// A log and its devices.
pub(crate) struct Core {
    /// None when the log was opened without.
    pub(crate) front: Option<Device>,
    pub(crate) back: Device,
    pub(crate) geometry: Geometry,
    pub(crate) options: Options,
    pub(crate) shift: u64,
    pub(crate) changes: RangeLocks,
    pub(crate) writing_back: RangeLocks,
    /// One round of destaging at a time.
    pub(crate) rounds: tokio::sync::Mutex<()>,
    /// One flush of the back at a time.
    pub(crate) flushes: tokio::sync::Mutex<()>,
    /// One change of the front's label at a time.
    pub(crate) labels: tokio::sync::Mutex<()>,
    pub(crate) inner: Mutex<Inner>,
    /// `done`, `mode` or `leading` has changed.
    pub(crate) progress: Notify,
    /// There is more room in the ring.
    pub(crate) room: Notify,
    /// There is something to destage.
    pub(crate) work: Arc<Notify>,
    /// Changes on the back that a flush of it must cover, and how many the last one did.
    pub(crate) unflushed: AtomicU64,
    pub(crate) flushed: AtomicU64,
    pub(crate) counters: Counters,
}

/// What became of a change that asked for a place in the log.
pub(crate) enum Admission {
    /// It is in the queue, with this ticket.
    Queued(u64),
    /// There is no log: it goes straight to the back.
    Through,
}

/// An error that names what was going on.
pub(crate) fn error(kind: BlockErrorKind, doing: &'static str, why: &str) -> BlockError {
    BlockError::new(kind, doing).because(why)
}

impl Core {
    /// What the ring may hold, in bytes: less than all of it, so that a batch that does not fit before its end can
    /// begin at its beginning.
    pub(crate) fn capacity(&self, inner: &Inner) -> u64 {
        let ring = inner.front_label.ring;
        ring.min(self.options.memory).saturating_sub(2 * self.largest_batch(ring))
    }

    /// Bytes of data in a batch at most: little of the ring and of what may wait, so that there is room for several.
    pub(crate) fn largest_data(&self, ring: u64) -> u64 {
        (ring.min(self.options.memory) / 16).min(write_log_format::MAX_DATA) / BLOCK * BLOCK
    }

    fn largest_batch(&self, ring: u64) -> u64 {
        BLOCK + self.largest_data(ring)
    }

    #[cfg(test)]
    pub(crate) fn is_broken(&self, sabotage: crate::tests::Sabotage) -> bool {
        self.options.sabotage == sabotage
    }

    /// Bytes of the ring in use or promised.
    pub(crate) fn used(inner: &Inner) -> u64 {
        inner.head - inner.tail + inner.reserved
    }

    /// Waits for room in the ring and queues a change; it takes effect for readers then and there.
    ///
    /// # Errors
    /// When there is no room after a round of destaging that began later than this: nobody knows when there will be any.
    /// That the back failed before says nothing about now.
    pub(crate) async fn admit(&self, entry: Entry, data: Option<SharedBuf>) -> Result<Admission, BlockError> {
        let cost = Pending::cost(&entry);
        let mut rounds_before = None;
        loop {
            // Made before the look: what changes in between is not missed.
            let room = self.room.notified();
            {
                let mut inner = self.inner.lock();
                match inner.mode {
                    LogMode::Logging => {}
                    LogMode::Draining | LogMode::Through => return Ok(Admission::Through),
                    LogMode::Poisoned => return Err(poisoned(&inner)),
                }
                if Self::used(&inner) + cost <= self.capacity(&inner) {
                    inner.reserved += cost;
                    return Ok(Admission::Queued(inner.enqueue(entry, data)));
                }
                let before = *rounds_before.get_or_insert(inner.rounds_begun);
                if inner.round_failed > before {
                    let why = inner.back_error.as_deref().unwrap_or("it did not take all that waits");
                    return Err(error(BlockErrorKind::Io, "write: the log is full and its back fails", why));
                }
            }
            self.work.notify_one();
            room.await;
        }
    }

    /// Waits until a ticket is durable.
    pub(crate) async fn wait_for(self: &Arc<Self>, ticket: u64) -> Result<(), BlockError> {
        loop {
            let progress = self.progress.notified();
            {
                let inner = self.inner.lock();
                if inner.done >= ticket {
                    return Ok(());
                }
                if inner.mode == LogMode::Poisoned {
                    return Err(poisoned(&inner));
                }
            }
            if self.start_committing() {
                // Nobody else can: this thread has no place for tasks.
                self.commit().await;
            } else {
                progress.await;
            }
        }
    }

    /// Waits until a failed front has been dealt with.
    pub(crate) async fn settled(&self) -> Result<(), BlockError> {
        loop {
            let progress = self.progress.notified();
            {
                let inner = self.inner.lock();
                match inner.mode {
                    LogMode::Draining => {}
                    LogMode::Poisoned => return Err(poisoned(&inner)),
                    LogMode::Logging | LogMode::Through => return Ok(()),
                }
            }
            progress.await;
        }
    }

    /// Nothing is promised any more.
    pub(crate) fn poison(&self, why: &str) {
        if self.end(why) {
            tracing::error!(
                "write log: stopped: {why}: what it holds stays on its front and is replayed when it is opened again"
            );
        }
    }

    /// Takes nothing any more; false when it did not anyhow.
    pub(crate) fn end(&self, why: &str) -> bool {
        {
            let mut inner = self.inner.lock();
            if inner.mode == LogMode::Poisoned {
                return false;
            }
            inner.mode = LogMode::Poisoned;
            inner.reason = Some(why.to_owned());
        }
        self.progress.notify_waiters();
        self.room.notify_waiters();
        self.work.notify_one();
        true
    }

    /// Flushes the back; after a failure nothing is promised any more (L6). One at a time: a device tells of what it lost
    /// once, and who flushes beside him who is told would take it for safe.
    pub(crate) async fn flush_back(&self) -> Result<(), BlockError> {
        let _flush = self.flushes.lock().await;
        {
            let inner = self.inner.lock();
            if inner.mode == LogMode::Poisoned {
                return Err(poisoned(&inner));
            }
        }
        let covered = self.unflushed.load(Ordering::Acquire);
        match self.back.flush().await {
            Ok(()) => {
                self.flushed.fetch_max(covered, Ordering::AcqRel);
                Ok(())
            }
            Err(error) => {
                self.poison(&format!("its back cannot flush: {error}"));
                Err(error)
            }
        }
    }
}

impl Inner {
    /// Gives a change its ticket; its piece takes the place of what is there.
    pub(crate) fn enqueue(&mut self, entry: Entry, data: Option<SharedBuf>) -> u64 {
        self.given += 1;
        let ticket = self.given;
        let content = match (entry.kind, &data) {
            (EntryKind::Data, Some(data)) => Some(Content::Data(data.clone())),
            (EntryKind::Zeroes, _) => Some(Content::Zeroes),
            _ => None,
        };
        if let Some(content) = content {
            let Entry { offset, len, .. } = entry;
            self.pieces.insert(Piece { offset, len, ticket, batch: None, content });
        }
        self.queue.push_back(Pending { ticket, entry, data });
        ticket
    }

    /// Whether a replay could find entries: then a change on the back must void them.
    pub(crate) fn could_replay(&self) -> bool {
        self.leading || !self.queue.is_empty() || self.tail != self.head
    }
}

pub(crate) fn poisoned(inner: &Inner) -> BlockError {
    error(BlockErrorKind::Poisoned, "write log", inner.reason.as_deref().unwrap_or("an earlier failure"))
}

/// A range of bytes from offset and length.
pub(crate) fn range(offset: u64, len: u64) -> Range<u64> {
    offset..offset.saturating_add(len)
}
