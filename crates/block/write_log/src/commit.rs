//! Committing: what waits in the queue goes to the front, a batch at a time.
//!
//! Whoever finds nobody leading leads: as a task of his shard, so that nobody waits for others' batches. While a batch is
//! under way the next one gathers.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{BlockError, BlockErrorKind, Durability};
use byte_codec::Checksum;
use shard_runtime::{can_detach, detach};
use write_log_format::{BLOCK, Batch, Entry, MAX_ENTRIES, RING_START};

use crate::core::{Core, Pending, Placed, range};
use crate::pieces::Content;
use crate::status::LogMode;

/// A leader that is dropped with a batch under way leaves nobody who knows what became of it.
struct Leading {
    core: Arc<Core>,
    ended: bool,
}

impl Drop for Leading {
    fn drop(&mut self) {
        if !self.ended {
            self.core.poison("its shard stopped while a batch was being committed");
        }
    }
}

/// A batch taken from the queue.
struct Taken {
    batch: Batch,
    checksum: Checksum,
    changes: Vec<Pending>,
    start: u64,
    len: u64,
    cost: u64,
}

impl Core {
    /// Makes sure that somebody commits what is in the queue; true when the caller must do it himself.
    pub(crate) fn start_committing(self: &Arc<Self>) -> bool {
        {
            let mut inner = self.inner.lock();
            if inner.leading || inner.queue.is_empty() || inner.mode != LogMode::Logging {
                return false;
            }
            inner.leading = true;
        }
        if !can_detach() {
            return true;
        }
        let core = Arc::clone(self);
        detach(async move { core.commit().await });
        false
    }

    /// Commits batches until the queue is empty. The caller has set `leading`.
    pub(crate) async fn commit(self: &Arc<Self>) {
        let mut leading = Leading { core: Arc::clone(self), ended: false };
        let failed = loop {
            let Some(taken) = self.take_batch() else { break None };
            if let Err(error) = self.commit_batch(taken).await {
                break Some(error);
            }
        };
        leading.ended = true;
        if let Some(error) = failed {
            self.inner.lock().leading = false;
            self.progress.notify_waiters();
            if self.leave_front(&format!("the log cannot be written: {error}")) {
                self.fall_back().await;
            }
        }
    }

    /// The next batch; none when there is nothing to commit: then nobody leads any more.
    fn take_batch(&self) -> Option<Taken> {
        let mut inner = self.inner.lock();
        let ring = inner.front_label.ring;
        let most = self.largest_data(ring);
        let (mut data, mut cost, mut count) = (0, 0, 0);
        for pending in inner.queue.iter().take(MAX_ENTRIES) {
            let more = data + pending.entry.data_len();
            if more > most && count > 0 {
                break;
            }
            data = more;
            cost += Pending::cost(&pending.entry);
            count += 1;
        }
        let entries: Vec<Entry> = inner.queue.iter().take(count).map(|pending| pending.entry).collect();
        let batch = (inner.mode == LogMode::Logging && count > 0)
            .then(|| Batch::lay_out(inner.front_label.log, inner.next_batch, &entries).ok())
            .flatten();
        let Some(batch) = batch else {
            inner.leading = false;
            drop(inner);
            self.progress.notify_waiters();
            return None;
        };
        let changes: Vec<Pending> = inner.queue.drain(..count).collect();
        let len = batch.head.batch_len();
        // A batch never wraps: one that does not fit before the ring's end begins at its beginning.
        let left = ring - inner.head % ring;
        let start = if len > left { inner.head + left } else { inner.head };
        Some(Taken { batch, checksum: inner.front_label.checksum, changes, start, len, cost })
    }

    async fn commit_batch(&self, mut taken: Taken) -> Result<(), BlockError> {
        let Some(front) = &self.front else {
            return Err(BlockError::new(BlockErrorKind::Gone, "write to the log"));
        };
        let mut buf = IoBuf::new(taken.len as usize);
        for (pending, place) in taken.changes.iter().zip(&taken.batch.places) {
            if let Some(data) = &pending.data {
                buf[place.clone()].copy_from_slice(data);
            }
        }
        let end = taken.batch.places.last().map_or(BLOCK as usize, |place| place.end);
        buf[end..].fill(0);
        taken.batch.seal(taken.checksum, &mut buf);
        let buf = buf.freeze();
        let ring = self.inner.lock().front_label.ring;
        front.write(RING_START + taken.start % ring, buf.clone(), Durability::Durable).await?;
        self.counters.batches.add(1);
        let mut inner = self.inner.lock();
        let number = taken.batch.head.number;
        inner.batches.push_back(Placed { number, start: taken.start });
        inner.head = taken.start + taken.len;
        inner.next_batch = number + 1;
        inner.reserved = inner.reserved.saturating_sub(taken.cost);
        for (pending, place) in taken.changes.iter().zip(&taken.batch.places) {
            let Entry { offset, len, .. } = pending.entry;
            let content = match &pending.data {
                Some(_) => Content::Data(buf.slice(place.clone())),
                None => Content::Zeroes,
            };
            inner.pieces.committed(&range(offset, len), pending.ticket, number, &content);
            inner.done = pending.ticket;
        }
        drop(inner);
        self.progress.notify_waiters();
        Ok(())
    }
}
