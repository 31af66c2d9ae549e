//! Destaging: what waits goes to the back in address order, in runs as long as they come; then the tail moves.

use std::sync::{Arc, Weak};
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockError, Durability};
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use write_log_format::{Label, Side, State};

use crate::core::{Core, poisoned, range};
use crate::labels::write_label;
use crate::pieces::{Content, Piece};
use crate::status::LogMode;
#[cfg(test)]
use crate::tests::Sabotage;

/// Windows under way at once: enough to keep several disks busy.
const DEPTH: usize = 8;
/// Length of a window at the least, in bytes; whole stripes of the back.
const WINDOW: u64 = 1 << 20;
/// How long the first wait is after the back has failed, and the longest when nobody needs room. A writer who does has a
/// round begun as soon as the first wait has passed.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What is on the back, though not durable: a range and the change that it was of.
type Written = (u64, u64, u64);

impl Core {
    /// Bytes of a window: whole stripes.
    fn window(&self) -> u64 {
        let stripe = u64::from(self.geometry.optimal_io_size).max(u64::from(self.geometry.block_size));
        WINDOW.next_multiple_of(stripe)
    }

    /// Brings all that waits now to the back, durably.
    async fn destage(&self) -> Result<(), BlockError> {
        let size = self.window();
        let windows = {
            let inner = self.inner.lock();
            if inner.mode == LogMode::Poisoned {
                return Err(poisoned(&inner));
            }
            inner.pieces.windows(size)
        };
        if windows.is_empty() {
            return Ok(());
        }
        self.counters.rounds.add(1);
        let mut under_way = stream::iter(windows)
            .map(|window| self.destage_window(window * size, size))
            .buffer_unordered(DEPTH);
        let mut written: Vec<Written> = Vec::new();
        let mut failed = None;
        while let Some(result) = under_way.next().await {
            match result {
                Ok(more) => written.extend(more),
                Err(error) => failed = Some(error),
            }
        }
        #[cfg(test)]
        let flushes = !self.is_broken(Sabotage::SkipFlush);
        #[cfg(not(test))]
        let flushes = true;
        if flushes && !written.is_empty() {
            self.flush_back().await?;
        }
        let mut inner = self.inner.lock();
        for (offset, len, ticket) in written {
            inner.pieces.destaged(&range(offset, len), ticket);
        }
        match failed {
            Some(error) => {
                inner.back_error = Some(error.to_string());
                Err(error)
            }
            None => {
                inner.back_error = None;
                Ok(())
            }
        }
    }

    async fn destage_window(&self, offset: u64, len: u64) -> Result<Vec<Written>, BlockError> {
        // Nobody else writes here on the back meanwhile: what is there after this is what the pieces say now.
        let _writing = self.writing_back.lock(offset, len).await;
        let pieces = self.inner.lock().pieces.within(&range(offset, len));
        // All at once, in address order: a disk with an arm passes over them in one go.
        let mut runs = Vec::new();
        for run in pieces.chunk_by(|one, next| one.end() == next.offset && is_zero(one) == is_zero(next)) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let (start, bytes) = (first.offset, last.end() - first.offset);
            self.counters.destaged_runs.add(1);
            self.counters.destaged_bytes.add(bytes);
            if is_zero(first) {
                runs.push(self.back.write_zeroes(self.shift + start, bytes, Durability::Volatile));
            } else {
                let mut buf = IoBuf::new(bytes as usize);
                for piece in run {
                    piece
                        .content
                        .copy_to(&mut buf[(piece.offset - start) as usize..(piece.end() - start) as usize]);
                }
                runs.push(self.back.write(self.shift + start, buf.freeze(), Durability::Volatile));
            }
        }
        // Each comes to its end before the range is given free, also when one fails.
        for result in join_all(runs).await {
            result?;
        }
        Ok(pieces.iter().map(|piece| (piece.offset, piece.len, piece.ticket)).collect())
    }

    /// Moves the tail beyond batches that no piece is of (L4).
    async fn advance(self: &Arc<Self>) -> Result<(), BlockError> {
        let _label = self.labels.lock().await;
        let (tail, number, given) = {
            let inner = self.inner.lock();
            let oldest = inner.pieces.oldest_batch();
            let placed = oldest.and_then(|oldest| inner.batches.iter().find(|batch| batch.number == oldest));
            match (oldest, placed) {
                (Some(_), Some(placed)) => (placed.start, placed.number, inner.given),
                // A batch that is not in the ring: nothing may be given up then.
                (Some(_), None) => return Ok(()),
                (None, _) => (inner.head, inner.next_batch, inner.given),
            }
        };
        // What has taken the place of pieces of the batches that go.
        #[cfg(test)]
        let given = if self.is_broken(Sabotage::AdvanceEarly) { 0 } else { given };
        self.wait_for(given).await?;
        let label = {
            let inner = self.inner.lock();
            if inner.mode != LogMode::Logging || inner.tail == tail {
                return Ok(());
            }
            let generation = inner.front_label.generation + 1;
            Label { generation, tail, tail_batch: number, reached: inner.next_batch, ..inner.front_label }
        };
        let Some(front) = &self.front else { return Ok(()) };
        if let Err(error) = write_label(front, Side::Front, &label).await {
            if self.leave_front(&format!("the log cannot be written: {error}")) {
                self.fall_back().await;
            }
            return Ok(());
        }
        {
            let mut inner = self.inner.lock();
            inner.front_label = label;
            inner.tail = tail;
            while inner.batches.front().is_some_and(|batch| batch.number < number) {
                inner.batches.pop_front();
            }
        }
        self.room.notify_waiters();
        Ok(())
    }

    /// One sweep over all that waits.
    pub(crate) async fn round(self: &Arc<Self>) -> Result<(), BlockError> {
        let (number, destaged) = {
            let _round = self.rounds.lock().await;
            let number = {
                let mut inner = self.inner.lock();
                inner.rounds_begun += 1;
                inner.rounds_begun
            };
            (number, self.destage().await)
        };
        // What did get there makes room even when something did not.
        let ended = self.advance().await.and(destaged);
        if ended.is_err() {
            {
                let mut inner = self.inner.lock();
                inner.round_failed = inner.round_failed.max(number);
            }
            // Writers that wait for room are told.
            self.room.notify_waiters();
        }
        ended
    }

    /// Ends logging; false when somebody else already has.
    pub(crate) fn leave_front(&self, why: &str) -> bool {
        {
            let mut inner = self.inner.lock();
            if inner.mode != LogMode::Logging {
                return false;
            }
            inner.mode = LogMode::Draining;
            inner.reason = Some(why.to_owned());
        }
        tracing::error!(
            "write log: {why}: what it holds is being written to its back, which is used directly from then on"
        );
        self.room.notify_waiters();
        self.progress.notify_waiters();
        true
    }

    /// Makes everything durable on the back, and the log void (L5). For who has left the front.
    pub(crate) async fn fall_back(&self) {
        loop {
            let progress = self.progress.notified();
            if !self.inner.lock().leading {
                break;
            }
            progress.await;
        }
        let _round = self.rounds.lock().await;
        if let Err(error) = self.empty().await {
            self.poison(&format!("neither the log nor what it stands before can be written: {error}"));
        }
    }

    async fn empty(&self) -> Result<(), BlockError> {
        while !self.inner.lock().pieces.is_empty() {
            self.destage().await?;
        }
        self.flush_back().await?;
        let label = {
            let label = self.inner.lock().back_label;
            Label { generation: label.generation + 1, state: State::Void, ..label }
        };
        write_label(&self.back, Side::Back, &label).await?;
        {
            let mut inner = self.inner.lock();
            inner.back_label = label;
            inner.mode = LogMode::Through;
            inner.queue.clear();
            inner.batches.clear();
            inner.done = inner.given;
            inner.tail = inner.head;
            inner.reserved = 0;
        }
        self.progress.notify_waiters();
        self.room.notify_waiters();
        Ok(())
    }
}

fn is_zero(piece: &Piece) -> bool {
    matches!(piece.content, Content::Zeroes)
}

/// Destages for as long as the log is used: at once when a quarter of the ring is, else when it has been quiet for a moment.
pub(crate) async fn keep_destaging(core: Weak<Core>, quiet: Duration) {
    let mut wait = FIRST_WAIT;
    let mut seen = 0;
    loop {
        let Some(log) = core.upgrade() else { return };
        let (full, idle, waiting, mode) = {
            let inner = log.inner.lock();
            let full = Core::used(&inner) > log.capacity(&inner) / 4;
            (full, inner.given == seen, !inner.pieces.is_empty() || inner.tail != inner.head, inner.mode)
        };
        if matches!(mode, LogMode::Poisoned | LogMode::Through) {
            return;
        }
        seen = log.inner.lock().given;
        // Who drains has no use for help.
        let busy = mode == LogMode::Draining;
        if !busy && (full || (idle && waiting)) {
            match log.round().await {
                Ok(()) => wait = FIRST_WAIT,
                Err(error) => {
                    tracing::warn!("write log: its back cannot be written, the log keeps the data: {error}");
                    let work = Arc::clone(&log.work);
                    drop(log);
                    shard_runtime::sleep(FIRST_WAIT).await;
                    let _ = shard_runtime::timeout(wait - FIRST_WAIT, work.notified()).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                    continue;
                }
            }
            if full {
                continue;
            }
        }
        // Not held while waiting: the last user's leaving ends this.
        let work = Arc::clone(&log.work);
        drop(log);
        let _ = shard_runtime::timeout(quiet, work.notified()).await;
    }
}
