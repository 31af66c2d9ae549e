//! What all parts of an open volume share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use block_device::Device;
use file_store::StoreError;
use observe::{IoKind, IoTally};
use parking_lot::Mutex;
use shard_runtime::{Clock, Monotonic};
use tokio::sync::Notify;
use volume_format::Superblock;

use crate::database::Metadata;
use crate::fail_stop::Flushes;
use crate::gate::ReadGate;
use crate::leftovers::Leftovers;
use crate::quota_tally::ModeSeen;
use crate::registry::Registry;
use crate::stopped::stopped;

/// The shared part of an open volume.
pub(crate) struct Core {
    pub(crate) device: Device,
    /// Those of the device.
    pub(crate) flushes: Arc<Flushes>,
    /// As it was opened; what features it has now is in `features`.
    pub(crate) superblock: Superblock,
    /// The features that the superblocks say. Held by whoever writes superblocks.
    pub(crate) features: tokio::sync::Mutex<u32>,
    pub(crate) metadata: Metadata,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) gate: ReadGate,
    /// Held by whatever changes data, from before it looks where that lies until it is there; exclusively by whoever
    /// takes a snapshot, so that it sees each change whole or not at all.
    pub(crate) pause: tokio::sync::RwLock<()>,
    pub(crate) registry: Mutex<Registry>,
    /// Freed runs, by their start, that are being filled to replace shared clusters: not to be zeroed now.
    pub(crate) filling: Arc<Mutex<BTreeSet<u64>>>,
    /// Some freed clusters are ready to take the place of shared ones, and may be given up soon.
    pub(crate) is_lending: AtomicBool,
    /// Where the list of freed clusters is looked at next.
    pub(crate) zero_from: AtomicU64,
    /// Space that may have been mapped ahead, of which nobody knows any more whether it was used.
    pub(crate) leftovers: Mutex<Leftovers>,
    /// When streams were last looked through for what rests unused.
    pub(crate) looked_for_resting: Mutex<Option<Monotonic>>,
    /// When the times of writes to streams in use were last committed.
    pub(crate) saved_times: Mutex<Option<Monotonic>>,
    /// Whether quotas are on.
    pub(crate) quota_mode: ModeSeen,
    /// Wakes the task that counts for them.
    pub(crate) count_quotas: Arc<Notify>,
    /// A stream is longer than the database knows, in use or left: wakes the task that saves sizes.
    pub(crate) grown: Arc<Notify>,
    /// Wakes the background task.
    pub(crate) attention: Notify,
    /// No operation begins any more.
    pub(crate) closing: AtomicBool,
    /// Operations that change something and have begun.
    pub(crate) operations: AtomicUsize,
    /// The background task has ended.
    pub(crate) ended: AtomicBool,
    /// Closing has come to its end; held by whoever closes.
    pub(crate) closed: tokio::sync::Mutex<bool>,
    /// Clusters there are, for accounting.
    pub(crate) clusters: AtomicU64,
    /// There was no space for its metadata at the opening: no change of it is taken.
    pub(crate) full: bool,
    /// Reads, writes and flushes of all files.
    pub(crate) tally: IoTally,
}

/// An operation under way, until dropped: the volume is not closed before its end.
pub(crate) struct Operation<'a>(&'a Core);

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.0.operations.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Core {
    /// Runs an operation that came at `since`, counted. What it waited for before it could begin is part of its latency.
    pub(crate) async fn counted<T>(
        &self,
        kind: IoKind,
        bytes: u64,
        since: Monotonic,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let _under_way = self.tally.begin();
        let result = work.await;
        self.tally.record(kind, bytes, self.clock.now().since(since), result.is_ok());
        result
    }

    /// Begins an operation that changes something; refused once the volume is closing or has stopped. After
    /// [`Volume::close`](crate::Volume::close) nothing of this volume is written any more, since the device may
    /// have another owner then.
    pub(crate) fn begin(&self) -> Result<Operation<'_>, StoreError> {
        self.operations.fetch_add(1, Ordering::SeqCst);
        let operation = Operation(self);
        // Counted first: whoever closes sees either the count, or has set the flag that is seen here.
        self.check_open()?;
        Ok(operation)
    }

    /// Refused once the volume is closing, since what the device holds may be another owner's, or has stopped, since what is
    /// read may be gone when it is opened again.
    pub(crate) fn check_open(&self) -> Result<(), StoreError> {
        if self.closing.load(Ordering::SeqCst) || self.is_stopped() { Err(stopped()) } else { Ok(()) }
    }

    /// Whether its metadata or a flush has failed: nothing more is promised, so nothing more is done until it is opened again.
    pub(crate) fn is_stopped(&self) -> bool {
        self.metadata.is_stopped() || self.flushes.have_failed()
    }

    /// Where a byte of the clusters lies on the device.
    pub(crate) fn at(&self, cluster_byte: u64) -> u64 {
        self.superblock.data_start + cluster_byte
    }
}
