//! The tasks of an open volume: one saves what streams left behind, deletes removed files, has freed clusters zeroed (`freed.rs`);
//! one makes changes durable and commits them; one saves sizes (`saving.rs`). None waits for the work of another, but a commit, as it
//! must, for a flush of data that was begun before it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use block_device::Durability;
use file_store::StoreError;
use parking_lot::Mutex;
use redb::ReadableTable;
use shard_runtime::Monotonic;

use crate::core::Core;
use crate::database_error::database_error;
use crate::lent;
use crate::stopped::stopped;
use crate::tables::ORPHANS;

/// Extents of a removed file that are given up in one transaction, so that others do not wait long for theirs.
pub(crate) const EXTENTS_PER_ROUND: usize = 4096;
/// How long the task lets work come together, so that many small files cost a few commits and flushes.
const GATHER: Duration = Duration::from_millis(50);
/// How long the task sleeps when nobody wakes it; it then tries again what failed.
const PAUSE: Duration = Duration::from_secs(5);

/// How long changes are in the metadata log only: what an opening after a crash has to replay, and how often the database is written
/// when little happens.
const COMMIT_AFTER: Duration = Duration::from_secs(1);
/// How long volatile changes are in memory only: what a crash takes back.
const SETTLE_AFTER: Duration = Duration::from_millis(500);
/// How long sizes that nobody asked to be durable are in memory only, but for the flush of the data that they speak of.
const SIZES_AFTER: Duration = Duration::from_secs(1);

/// Makes volatile changes durable a while after the first of them, and commits what was changed a while after that. Ends soon after
/// the volume is closed, or has stopped.
pub(crate) async fn commit_now_and_then(core: Weak<Core>) {
    loop {
        let Some(strong) = core.upgrade().filter(|core| core.check_open().is_ok()) else { return };
        let shared = Arc::clone(&strong.metadata.shared);
        // The volume can be dropped meanwhile.
        drop(strong);
        if shard_runtime::timeout(PAUSE, shared.waiting.notified()).await.is_none() {
            continue;
        }
        shard_runtime::sleep(SETTLE_AFTER).await;
        let Some(strong) = core.upgrade().filter(|core| core.check_open().is_ok()) else { return };
        // A batch that fails stops the volume, which says so.
        let _ = strong.metadata.settle(strong.metadata.last_change()).await;
        drop(strong);
        shard_runtime::sleep(COMMIT_AFTER - SETTLE_AFTER).await;
        let Some(strong) = core.upgrade().filter(|core| core.check_open().is_ok()) else { return };
        // A commit that fails stops the volume, which says so.
        let _ = strong.metadata.change_committed(|_| Ok(())).await;
    }
}

/// Makes durable what files have grown by a while after the first of them has. A task of its own: settling waits for no flush of
/// data, nor do the sizes of files that were closed wait for the background task, which may be zeroing for minutes. Ends soon after the
/// volume is closed, or has stopped.
pub(crate) async fn save_sizes_now_and_then(core: Weak<Core>) {
    loop {
        let Some(strong) = core.upgrade().filter(|core| core.check_open().is_ok()) else { return };
        let grown = Arc::clone(&strong.grown);
        // The volume can be dropped meanwhile.
        drop(strong);
        if shard_runtime::timeout(PAUSE, grown.notified()).await.is_none() {
            continue;
        }
        shard_runtime::sleep(SIZES_AFTER).await;
        let Some(strong) = core.upgrade().filter(|core| core.check_open().is_ok()) else { return };
        // What fails here is tried again, and told when the file is flushed or closed.
        if strong.save_sizes().await.is_err() {
            grown.notify_one();
        }
    }
}

/// Says at its end that the background task has ended, also when that panicked or never began.
struct Ended(Arc<Core>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::SeqCst);
    }
}

/// Whether something that is done now and then is to be done now; it is taken for done.
pub(crate) fn is_due(last: &Mutex<Option<Monotonic>>, now: Monotonic, every: Duration) -> bool {
    let mut last = last.lock();
    let due = last.is_none_or(|last| now.since(last) >= every);
    if due {
        *last = Some(now);
    }
    due
}

impl Core {
    /// Deletes a file that has lost its name and its last user. What is not done when this returns happens in
    /// the background, or at the next opening: the file is in `orphans`.
    pub(crate) fn delete_later(self: &Arc<Self>, file: u64) {
        self.registry.lock().forget_unsaved(file);
        let core = Arc::clone(self);
        // Queued here and now, so that everything that is asked later finds the file gone.
        self.metadata.submit(move |session| {
            // Somebody may have come for it since its last user left (a clone): then it goes with them. Users come
            // on this thread only, so none comes after this look.
            if core.registry.lock().begin_removal(file) {
                return Ok(());
            }
            let deleted = session.forget_all_ahead(file).and_then(|()| session.delete(file));
            session.fatal(deleted)?;
            core.attention.notify_one();
            Ok(())
        });
    }

    /// Deletes what was removed, but in use when the volume was last open. Before anything else is asked of it.
    pub(crate) fn delete_orphans(&self) {
        self.metadata.submit(|session| {
            let files: Vec<u64> = {
                let orphans = session.txn.open_table(ORPHANS).map_err(database_error)?;
                let rows = orphans.iter().map_err(database_error)?;
                rows.map(|row| Ok(row.map_err(database_error)?.0.value()))
                    .collect::<Result<_, StoreError>>()?
            };
            for file in files {
                // Never what a name still leads to: that this file is listed is damage, which a check explains.
                let named = session.is_named(file);
                if !named.as_ref().is_ok_and(|named| !named) {
                    tracing::warn!(
                        file,
                        ?named,
                        "a file in the list of removed ones is kept: check the volume"
                    );
                    continue;
                }
                let deleted = session.delete(file);
                session.fatal(deleted)?;
            }
            Ok(())
        });
    }

    /// Gives up the extents of deleted files; whether there may be more.
    async fn purge_orphans(&self) -> Result<bool, StoreError> {
        let purged = self.metadata.change_as(Durability::Volatile, |session| {
            let found = {
                let orphans = session.txn.open_table(ORPHANS).map_err(database_error)?;
                let mut found = None;
                for row in orphans.iter().map_err(database_error)? {
                    let file = row.map_err(database_error)?.0.value();
                    // One that still has its record waits for its last user.
                    if !session.has_inode(file)? {
                        found = Some(file);
                        break;
                    }
                }
                found
            };
            let Some(file) = found else { return Ok(false) };
            let purged = session.purge(file, EXTENTS_PER_ROUND);
            session.fatal(purged)?;
            Ok(true)
        });
        purged.await
    }

    /// One round of everything; whether there is more to do.
    async fn round(self: &Arc<Self>) -> Result<bool, StoreError> {
        self.save_unsaved().await?;
        self.save_times().await?;
        let shrunk = self.shrink_snapshots().await?;
        let purged = self.purge_orphans().await?;
        // One that fails, as on a lost disk or for want of room, does not keep the others from giving space back.
        let zeroed = self.zero_freed().await;
        let given = self.give_back_resting().await;
        let given_before = self.give_back_of_last_time().await;
        given?;
        Ok(shrunk || purged || zeroed? || given_before?)
    }

    /// See [`Volume::close`](crate::Volume::close).
    pub(crate) async fn close(self: &Arc<Self>) -> Result<(), StoreError> {
        self.closing.store(true, Ordering::SeqCst);
        let mut closed = self.closed.lock().await;
        if *closed {
            return Ok(());
        }
        self.attention.notify_one();
        while self.operations.load(Ordering::SeqCst) > 0 || !self.ended.load(Ordering::SeqCst) {
            shard_runtime::sleep(Duration::from_millis(1)).await;
        }
        let saved = match self.is_stopped() {
            true => Err(stopped()),
            // No file has grown, and there is no space for the times of writes.
            false if self.full => {
                if self.registry.lock().streams().iter().any(|stream| stream.unsaved().is_some()) {
                    tracing::warn!(
                        "a full volume is closed: the times of the last writes to its files are not saved"
                    );
                }
                Ok(())
            }
            false => self.save_everything().await,
        };
        let ended = self.metadata.close().await;
        let saved = saved.and(ended);
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let shared = &self.metadata.shared;
        tracing::debug!(
            groups = count(&shared.groups),
            commits = count(&shared.commits),
            "a volume is closed"
        );
        let flushed = match &saved {
            Ok(()) => self.device.flush().await,
            // What has stopped is left as it is.
            Err(_) => Ok(()),
        };
        *closed = true;
        saved.and(flushed.map_err(StoreError::from))
    }

    /// The volume's background task. Whoever closes the volume waits for its end, which comes with the future's.
    pub(crate) fn in_background(self: Arc<Self>) -> impl Future<Output = ()> {
        let ended = Ended(Arc::clone(&self));
        async move {
            let _ended = ended;
            self.run().await;
        }
    }

    async fn run(self: Arc<Self>) {
        let mut said = None;
        while self.check_open().is_ok() {
            let more = self.round().await.unwrap_or_else(|error| {
                let why = error.to_string();
                // Once, not at every try; and of a volume that has stopped, that is told.
                if said.as_ref() != Some(&why) && self.check_open().is_ok() {
                    tracing::warn!("background work of a volume is tried again later: {why}");
                    said = Some(why);
                }
                false
            });
            if !more {
                let pause = if self.is_lending.load(Ordering::Relaxed) { lent::REST } else { PAUSE };
                let woken = shard_runtime::timeout(pause, self.attention.notified()).await;
                if woken.is_some() && !self.closing.load(Ordering::SeqCst) {
                    shard_runtime::sleep(GATHER).await;
                }
            }
        }
    }
}
