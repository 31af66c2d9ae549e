//! What a unit keeps its data in may go away for a while and come back: its volume has stopped, or disks are missing.
//!
//! ```text
//!   read, write, …  ──► the storage is away ──► waits in the task set, tried again ──► goes on
//!                                                        │ aborted: ends    │ too long: NOT READY, becoming ready
//!   flush, nothing cached since the last one ──► likewise
//!   flush of cached writes ──► they may be lost: WRITE ERROR, which initiators do not try again
//! ```
//! A command that waits has done nothing, or something that doing it again makes no different; whoever aborts it or
//! fences its sender off does not wait for it, and it is admitted anew before it goes on. It does not wait for its turn at a volume
//! (`turn`) that is not there, or it would be told too late, and tries would count as work.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use file_store::{StoreError, StoreErrorKind};
use scsi_defs::{Sense, SenseKey, asc};

use crate::absent::{AbsentBacking, AbsentStore};
use crate::backing::{Backing, ReservationStore};
use crate::reply::Failure;
use crate::unit::LogicalUnit;

/// How often, and how many times, a unit that is closed looks whether the last step at its storage has ended: for half a minute, which
/// is longer than a disk is given. Whatever takes longer is at a storage that does not answer, and closing that waits for it.
const LAST_STEP: Duration = Duration::from_millis(10);
const LAST_STEPS: u32 = 3000;

impl LogicalUnit {
    /// What a command, or who lets go of it, has found there.
    pub(crate) fn heard(&self, fails: bool) {
        if self.storage_fails() == fails {
            return;
        }
        let changes = {
            // Whoever takes it away meanwhile has the last word.
            let storage = self.storage.read();
            let fails = fails || storage.away;
            self.failing.swap(fails, Ordering::SeqCst) != fails
        };
        if changes {
            // What waits for its turn there does not wait any more.
            self.tasks.wake();
        }
    }

    /// The state in which the storage has stopped and nobody has let go of it yet.
    #[cfg(test)]
    pub(crate) fn has_stopped(&self) {
        self.storage.write().away = false;
        self.heard(false);
    }

    /// Ends its service for good, on the shard of its storage: what waits ends at once, what runs is waited for, what still comes is
    /// told that there is no such unit, and what it kept its data in is let go of. Whoever removes a unit's file calls this first.
    ///
    /// Those come back who are to be told that writes which they had cached may be lost, where that could not be kept with the data:
    /// the unit that is opened with it next is to tell them ([`LogicalUnit::tell_lost_writes`]).
    #[must_use]
    pub async fn close(&self) -> Vec<String> {
        self.inner.lock().closed = true;
        self.abort(|_| true, None).await;
        if self.cached.is_any() {
            // Before it is let go of, which loses what is cached there. When that fails, or takes too long, it is noted as lost.
            tokio::select! {
                _ = self.flush_cached(None) => {}
                () = shard_runtime::sleep(LAST_STEP * LAST_STEPS) => {}
            }
            if self.cached.forget(self.cached.written()) {
                self.lost_writes(None);
            }
        }
        let kept = async {
            tokio::select! {
                left = self.keep_losses() => left,
                () = shard_runtime::sleep(LAST_STEP * LAST_STEPS) => self.not_told().0.into_iter().collect(),
            }
        };
        let left = kept.await;
        let backing = Arc::downgrade(&self.backing());
        self.detach();
        // A step of a SANITIZE, or of another unit's copy from here, may be at it still; there is none after that.
        for _ in 0..LAST_STEPS {
            if backing.strong_count() == 0 {
                break;
            }
            shard_runtime::sleep(LAST_STEP).await;
        }
        left
    }

    /// Lets go of what it keeps its data in, until [`LogicalUnit::attach`]. Everything else that it knows stays.
    pub fn detach(&self) {
        let before = {
            // In one step for who begins to change something: it does so here, and is told of the loss, or in what comes next.
            let mut inner = self.inner.lock();
            inner.storages += 1;
            let before = {
                let mut storage = self.storage.write();
                storage.away = true;
                let absent: Arc<dyn Backing> = Arc::new(AbsentBacking::like(&*storage.backing));
                let none: Arc<dyn ReservationStore> = Arc::new(AbsentStore);
                (std::mem::replace(&mut storage.backing, absent), std::mem::replace(&mut storage.store, none))
            };
            if self.cached.forget(self.cached.written()) {
                inner.lose_writes(None, self.config.discards_writes);
            }
            before
        };
        // Much may go with it.
        drop(before);
        self.heard(true);
    }

    /// Keeps its data in these from now on: what it had before, as it is after what kept it away.
    pub fn attach(&self, backing: Arc<dyn Backing>, store: Arc<dyn ReservationStore>) {
        {
            let mut storage = self.storage.write();
            (storage.backing, storage.store) = (backing, store);
            storage.away = false;
        }
        self.heard(false);
        self.notice_capacity();
        self.storage_changed.notify_waiters();
    }

    /// Makes cached writes durable, or tells the nexus that it cannot be relied on that they are.
    pub(crate) async fn flush(&self, nexus: u64) -> Result<(), Failure> {
        let (cached, flushed) = self.flush_cached(Some(nexus)).await;
        let lost = self.inner.lock().take_lost_writes(nexus);
        if lost {
            self.was_told(nexus).await;
        } else if cached && flushed.is_err() {
            // Of what was lost just now its host hears by this answer.
            self.inner.lock().host_is_told(nexus);
        }
        let write_error = || Err(Sense::new(SenseKey::HardwareError, asc::WRITE_ERROR).into());
        match flushed {
            _ if lost => write_error(),
            Ok(()) => Ok(()),
            Err(error) if cached && error.kind() == StoreErrorKind::Stopped => write_error(),
            Err(error) => Err(error.into()),
        }
    }

    /// Flushes; the first part says whether anything was cached. When that may be lost, every nexus but `teller`, which is
    /// told by whoever calls, is to learn of it.
    pub(crate) async fn flush_cached(&self, teller: Option<u64>) -> (bool, Result<(), StoreError>) {
        if self.config.discards_writes {
            // What was cached may be lost still, flushed or not.
            return (false, self.backing().flush().await);
        }
        // Not forgotten before the flush has ended: who waits for it may go, and it may fail then.
        let written = self.cached.written();
        let flushed = self.backing().flush().await;
        if flushed.as_ref().is_err_and(|error| error.kind() == StoreErrorKind::NoSpace) {
            // Nothing is lost: what is to be written with it waits for room, and so does who asks.
            return (false, flushed);
        }
        let cached = self.cached.forget(written);
        if flushed.is_err() && cached {
            self.lost_writes(teller);
        }
        (cached, flushed)
    }

    /// Every nexus but one is to learn at its next flush that cached writes may be lost.
    fn lost_writes(&self, except: Option<u64>) {
        self.inner.lock().lose_writes(except, self.config.discards_writes);
    }
}
