//! Saves what streams know more than the database: how long they are, and when they were written.
//!
//! ```text
//!   sizes now ─► one flush of the device, for all of them ─► their rows, some hundred a change ─► durable together
//! ```
//! A size may be saved only after a flush that began when its data was written. That of a stream in use is saved without its `sizing`,
//! which somebody who goes on writing may never give up for long, and which would hold up those who write while the disk flushes. In its
//! place stands this:
//! * Only the metadata thread saves it, and only if it is longer than the row says: whoever grows the stream and commits that is not
//!   taken back.
//! * Not if the stream has left memory: what it left is saved as that, and another one may have its key.
//! * Not if the stream was cut since it was looked at ([`Stream::cuts`]): what it was grown by again is not what the flush has made
//!   durable.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block_device::Durability;
use file_store::StoreError;

use crate::background::is_due;
use crate::core::Core;
use crate::stream::Stream;

/// Rows of sizes that are saved in one change, so that others do not wait long for theirs; fewer where they are long ones.
const SIZES_PER_CHANGE: usize = 512;
/// How often the times of writes to streams in use are committed: a crash makes them older by that at most, also those of a disk that
/// is never closed.
const TIMES: Duration = Duration::from_secs(60);

/// A stream that is longer than the database knows, as it was before a flush.
pub(crate) struct Grown {
    stream: Arc<Stream>,
    size: u64,
    cuts: u64,
}

impl Core {
    /// At the end, nobody works with the streams any more: what they and those before them know is committed.
    pub(crate) async fn save_everything(self: &Arc<Self>) -> Result<(), StoreError> {
        self.save_unsaved().await?;
        let streams = self.registry.lock().streams();
        let mut all: Vec<_> =
            streams.iter().filter_map(|stream| Some((stream.key, stream.unsaved()?))).collect();
        if all.iter().any(|(_, unsaved)| unsaved.size > unsaved.durable_size) {
            self.device.flush().await?;
        }
        while !all.is_empty() {
            let some = all.split_off(all.len().saturating_sub(SIZES_PER_CHANGE));
            let rest = self.metadata.change(move |session| {
                let mut some = some;
                while !session.is_long()
                    && let Some((key, unsaved)) = some.pop()
                {
                    let saved = session.save_stream(key, unsaved.size, unsaved.written);
                    session.fatal(saved)?;
                }
                Ok(some)
            });
            all.extend(rest.await?);
        }
        self.give_back_everything().await
    }

    /// Commits sizes and times that streams had when their last user left them.
    pub(crate) async fn save_unsaved(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut all = self.registry.lock().all_unsaved();
        if all.is_empty() {
            return Ok(());
        }
        if all.iter().any(|(_, unsaved)| unsaved.size > unsaved.durable_size) {
            // The size may only become durable with the data it speaks of.
            self.device.flush().await?;
        }
        while !all.is_empty() {
            let some = all.split_off(all.len().saturating_sub(SIZES_PER_CHANGE));
            let core = Arc::clone(self);
            let saved = self.metadata.change_as(Durability::Volatile, move |session| {
                let (mut some, mut saved) = (some, Vec::new());
                while !session.is_long()
                    && let Some((key, known)) = some.pop()
                {
                    // A stream that was opened again saves its own, and what it left behind is not what the flush has made durable,
                    // though it may have the same size. A time that was set meanwhile counts.
                    let now = core.registry.lock().unsaved(key).filter(|now| now.is_still(&known));
                    let Some(now) = now else { continue };
                    let stored = session.save_stream(key, now.size, now.written);
                    session.fatal(stored)?;
                    saved.push((key, now));
                }
                Ok((saved, some))
            });
            let (saved, rest) = saved.await?;
            for (key, now) in saved {
                self.registry.lock().take_unsaved(key, now);
            }
            all.extend(rest);
        }
        Ok(())
    }

    /// Makes durable how long files have become without having been flushed, in use or not: a size that nobody has asked to be
    /// durable is so soon.
    pub(crate) async fn save_sizes(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.full {
            return Ok(());
        }
        // Closing waits for it.
        let _operation = self.begin()?;
        let (left, in_use) = (self.save_unsaved().await, self.save_grown().await);
        let settled = self.metadata.settle(self.metadata.last_change()).await;
        left.and(in_use).and(settled)
    }

    /// Saves how long the streams in use have become.
    pub(crate) async fn save_grown(self: &Arc<Self>) -> Result<(), StoreError> {
        let grown = self.look_at_grown();
        if grown.is_empty() {
            return Ok(());
        }
        self.device.flush().await?;
        self.save_those(grown).await
    }

    /// The streams in use that are longer than the database knows.
    pub(crate) fn look_at_grown(&self) -> Vec<Grown> {
        self.registry.lock().streams_grown().into_iter().filter_map(look).collect()
    }

    /// Saves what a flush has made durable since it was looked at.
    pub(crate) async fn save_those(self: &Arc<Self>, mut grown: Vec<Grown>) -> Result<(), StoreError> {
        while !grown.is_empty() {
            let some = grown.split_off(grown.len().saturating_sub(SIZES_PER_CHANGE));
            let core = Arc::clone(self);
            let saved = self.metadata.change_as(Durability::Volatile, move |session| {
                let (mut some, mut saved) = (some, Vec::new());
                while !session.is_long()
                    && let Some(Grown { stream, size, cuts }) = some.pop()
                {
                    // Streams enter on this thread only: this one is the one that others change until this change is made.
                    let is_it = |now: &Arc<Stream>| Arc::ptr_eq(now, &stream);
                    let in_use = core.registry.lock().stream(stream.key).is_some_and(is_it);
                    if !in_use || stream.cuts() != Some(cuts) {
                        continue;
                    }
                    // A time that is set meanwhile is set on this thread, and counts.
                    let written = stream.written.load(Ordering::Acquire);
                    let stored = session.save_growth(stream.key, size, written);
                    if session.fatal(stored)? {
                        // Nobody takes the size for durable before the change that says so is.
                        stream.stands_on.fetch_max(session.last_change(), Ordering::AcqRel);
                        stream.durable_size.fetch_max(size, Ordering::AcqRel);
                        saved.push((stream, written));
                    }
                }
                Ok((saved, some))
            });
            let (saved, rest) = saved.await?;
            forget_times(saved);
            grown.extend(rest);
        }
        Ok(())
    }

    /// Commits when streams in use were last written, now and then.
    pub(crate) async fn save_times(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.full || !is_due(&self.saved_times, self.clock.now(), TIMES) {
            return Ok(());
        }
        if self.registry.lock().streams_written().is_empty() {
            return Ok(());
        }
        let core = Arc::clone(self);
        let saved = self.metadata.change_as(Durability::Volatile, move |session| {
            // Looked up here: a time that somebody sets is set on this thread, and counts.
            let streams = core.registry.lock().streams_written();
            let mut saved = Vec::with_capacity(streams.len());
            for stream in streams {
                if session.is_long() {
                    // The others keep theirs until the next time.
                    break;
                }
                let written = stream.written.load(Ordering::Acquire);
                let stored = session.save_written(stream.key.0, written);
                session.fatal(stored)?;
                saved.push((stream, written));
            }
            Ok(saved)
        });
        forget_times(saved.await?);
        Ok(())
    }
}

/// What is to be saved of a stream; nothing while it is being cut.
fn look(stream: Arc<Stream>) -> Option<Grown> {
    let cuts = stream.cuts()?;
    let size = stream.size();
    Some(Grown { stream, size, cuts })
}

/// The database knows when the streams were written last.
fn forget_times(saved: Vec<(Arc<Stream>, u64)>) {
    for (stream, written) in saved {
        // A later write keeps its later time.
        let _ = stream.written.compare_exchange(written, 0, Ordering::AcqRel, Ordering::Acquire);
    }
}
