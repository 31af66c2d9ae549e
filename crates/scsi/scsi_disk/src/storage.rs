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
//! (`flow`) that is not there, or it would be told too late, and tries would count as work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;
use file_store::{Range, StoreError, StoreErrorKind, StoreFuture};
use scsi_core::{ScsiCommand, ScsiStatus};
use scsi_defs::{Cdb, Op, Sense, SenseKey, asc};

use crate::backing::{Backing, ReservationStore};
use crate::reply::{Failure, Outcome};
use crate::target::Caller;
use crate::unit::LogicalUnit;

/// How often a command that waits is tried again when nobody says that the storage is back.
const TRY_EVERY: Duration = Duration::from_millis(250);
/// How often at most: 20 seconds, less than initiators give a command (Linux 30, Windows 60), as an aborted command is
/// worse for them than one that is not ready.
const TRIES: u32 = 80;

/// How often, and how many times, a unit that is closed looks whether the last step at its storage has ended: for half a minute, which
/// is longer than a disk is given. Whatever takes longer is at a storage that does not answer, and closing that waits for it.
const LAST_STEP: Duration = Duration::from_millis(10);
const LAST_STEPS: u32 = 3000;

/// What a unit keeps its data and its state in.
pub(crate) struct Storage {
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) store: Arc<dyn ReservationStore>,
    /// Both stand in for ones that are to come back.
    pub(crate) away: bool,
}

impl LogicalUnit {
    pub(crate) fn backing(&self) -> Arc<dyn Backing> {
        self.storage.read().backing.clone()
    }

    pub(crate) fn store(&self) -> Arc<dyn ReservationStore> {
        self.storage.read().store.clone()
    }

    pub(crate) fn is_away(&self) -> bool {
        self.storage.read().away
    }

    /// Whether commands find nothing there: it is away, or has stopped as far as is known.
    pub(crate) fn storage_fails(&self) -> bool {
        self.failing.load(Ordering::SeqCst)
    }

    /// What a command, or who lets go of it, has found there.
    fn heard(&self, fails: bool) {
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
            self.tasks_changed.notify_waiters();
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
    pub async fn close(&self) {
        self.inner.lock().closed = true;
        self.abort(|_| true, None).await;
        let backing = Arc::downgrade(&self.backing());
        self.detach();
        // A step of a SANITIZE, or of another unit's copy from here, may be at it still; there is none after that.
        for _ in 0..LAST_STEPS {
            if backing.strong_count() == 0 {
                return;
            }
            shard_runtime::sleep(LAST_STEP).await;
        }
    }

    /// Lets go of what it keeps its data in, until [`LogicalUnit::attach`]. Everything else that it knows stays.
    pub fn detach(&self) {
        {
            let mut storage = self.storage.write();
            storage.backing = Arc::new(AbsentBacking::like(&*storage.backing));
            storage.store = Arc::new(AbsentStore);
            storage.away = true;
        }
        self.heard(true);
        if self.cached.forget(self.cached.written()) {
            self.lost_writes(None);
        }
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

    /// Carries an admitted command out, again and again while the storage is away and that changes nothing.
    pub(crate) async fn carry_out(
        self: &Arc<Self>,
        caller: &Caller<'_>,
        task: u64,
        cdb: &Cdb,
        command: &ScsiCommand,
    ) -> Outcome {
        let mut tries = 0;
        loop {
            let outcome = match self.admit(caller, cdb) {
                Ok(()) => match self.hold(caller, task, cdb).await {
                    Ok(permit) => self.dispatch(caller, task, cdb, command, permit).await,
                    Err(failure) => Err(failure),
                },
                Err(failure) => Err(failure),
            };
            // Others may say something of another unit's storage, or nothing of any.
            let tells = can_wait(cdb.op);
            match &outcome {
                Err(Failure::Away) if tells => self.heard(true),
                Ok(_) if tells => self.heard(false),
                _ => {}
            }
            if !matches!(outcome, Err(Failure::Away)) || !tells || tries == TRIES {
                return outcome;
            }
            let back = self.storage_changed.notified();
            if !self.rests(task, true) {
                return Err(Failure::Status(ScsiStatus::TaskAborted));
            }
            tries += u32::from(shard_runtime::timeout(TRY_EVERY, back).await.is_none());
            if !self.rests(task, false) {
                return Err(Failure::Status(ScsiStatus::TaskAborted));
            }
        }
    }

    /// Makes cached writes durable, or tells the nexus that it cannot be relied on that they are.
    pub(crate) async fn flush(&self, nexus: u64) -> Result<(), Failure> {
        let (cached, flushed) = self.flush_cached(Some(nexus)).await;
        let lost = self.inner.lock().take_lost_writes(nexus);
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
        // Not forgotten before the flush has ended: who waits for it may go, and it may fail then.
        let written = self.cached.written();
        let flushed = self.backing().flush().await;
        let cached = self.cached.forget(written);
        if flushed.is_err() && cached {
            self.lost_writes(teller);
        }
        (cached, flushed)
    }

    /// Every nexus but one is to learn at its next flush that cached writes may be lost.
    fn lost_writes(&self, except: Option<u64>) {
        let mut inner = self.inner.lock();
        let others = inner.nexuses.iter_mut().filter(|(id, _)| Some(**id) != except);
        others.for_each(|(_, entry)| entry.lost_writes = true);
        // Those that have gone may have cached some, and come back.
        inner.departed.lose_writes();
    }
}

/// Writes that were answered, or may be, before they are durable.
#[derive(Default)]
pub(crate) struct Cached {
    /// Counted when one begins and again when it ends: a flush in between may not have had it.
    written: AtomicU64,
    /// So many of them are durable, or were told of as lost.
    settled: AtomicU64,
}

impl Cached {
    /// One begins, or has ended and is about to be answered.
    pub(crate) fn note(&self) {
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether a flush has something to do.
    #[cfg(test)]
    pub(crate) fn is_any(&self) -> bool {
        self.written() > self.settled.load(Ordering::Acquire)
    }

    fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Those up to `written` are durable, or are told of as lost now. Whether there were any.
    fn forget(&self, written: u64) -> bool {
        self.settled.fetch_max(written, Ordering::AcqRel) < written
    }
}

/// Whether a command whose storage was away may be carried out once more: one that may have done a part of its work, and gives
/// another answer then, may not.
fn can_wait(op: Op) -> bool {
    matches!(
        op,
        Op::Read6
            | Op::Read10
            | Op::Read12
            | Op::Read16
            | Op::Write6
            | Op::Write10
            | Op::Write12
            | Op::Write16
            | Op::WriteVerify10
            | Op::WriteVerify12
            | Op::WriteVerify16
            | Op::WriteSame10
            | Op::WriteSame16
            | Op::Unmap
            | Op::Verify10
            | Op::Verify12
            | Op::Verify16
            | Op::GetLbaStatus
            | Op::SyncCache10
            | Op::SyncCache16
    )
}

/// Storage that is not there. What is said of it stays what it was.
#[derive(Default)]
pub struct AbsentBacking {
    size: u64,
    physical_block_size: u32,
    unmap_zeroes: bool,
    rotational: bool,
    read_only: bool,
}

impl AbsentBacking {
    fn like(other: &dyn Backing) -> Self {
        Self {
            size: other.size(),
            physical_block_size: other.physical_block_size(),
            unmap_zeroes: other.unmap_zeroes(),
            rotational: other.rotational(),
            read_only: other.read_only(),
        }
    }
}

fn absent<'a, T: 'a>() -> StoreFuture<'a, T> {
    Box::pin(async { Err(StoreError::new(StoreErrorKind::Stopped, "what the LUN lies in is not open")) })
}

impl Backing for AbsentBacking {
    fn size(&self) -> u64 {
        self.size
    }
    fn physical_block_size(&self) -> u32 {
        self.physical_block_size.max(512)
    }
    fn unmap_zeroes(&self) -> bool {
        self.unmap_zeroes
    }
    fn rotational(&self) -> bool {
        self.rotational
    }
    fn read_only(&self) -> bool {
        self.read_only
    }
    fn read(&self, _offset: u64, _buf: IoBuf) -> StoreFuture<'_, IoBuf> {
        absent()
    }
    fn write(&self, _offset: u64, _data: SharedBuf, _durability: Durability) -> StoreFuture<'_, ()> {
        absent()
    }
    fn flush(&self) -> StoreFuture<'_, ()> {
        absent()
    }
    fn unmap(&self, _offset: u64, _len: u64) -> StoreFuture<'_, ()> {
        absent()
    }
    fn write_zeroes(&self, _offset: u64, _len: u64, _durability: Durability) -> StoreFuture<'_, ()> {
        absent()
    }
    fn compare_and_write(
        &self,
        _offset: u64,
        _expected: SharedBuf,
        _data: SharedBuf,
    ) -> StoreFuture<'_, Option<u64>> {
        absent()
    }
    fn allocated(&self, _offset: u64, _len: u64, _limit: usize) -> StoreFuture<'_, Vec<Range>> {
        absent()
    }
    fn wait_resize(&self, _known: u64) -> StoreFuture<'_, u64> {
        Box::pin(std::future::pending())
    }
}

/// State that cannot be changed now.
struct AbsentStore;

impl ReservationStore for AbsentStore {
    fn load<'a>(&'a self, _key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>> {
        absent()
    }
    fn save<'a>(&'a self, _key: &'a [u8], _value: Option<Vec<u8>>) -> StoreFuture<'a, ()> {
        absent()
    }
}
