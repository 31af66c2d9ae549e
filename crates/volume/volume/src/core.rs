//! What all parts of an open volume share, and the task that zeroes freed clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use block_device::Device;
use file_store::{FileId, StoreError};
use parking_lot::Mutex;
use redb::ReadableTable;
use shard_runtime::Clock;
use tokio::sync::Notify;
use volume_format::{CLUSTER, Superblock};

use crate::clusters::StreamKey;
use crate::database::{Metadata, database_error};
use crate::free::Run;
use crate::gate::ReadGate;
use crate::open_file::Opens;
use crate::stream::Stream;
use crate::tables::FREED;

/// Freed runs that are zeroed in one round.
const RUNS_PER_ROUND: usize = 256;

/// The shared part of an open volume.
pub(crate) struct Core {
    pub(crate) device: Device,
    pub(crate) superblock: Superblock,
    pub(crate) metadata: Metadata,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) gate: ReadGate,
    pub(crate) streams: Mutex<BTreeMap<StreamKey, Arc<Stream>>>,
    pub(crate) opens: Mutex<Opens>,
    /// Files whose last open has closed and that have no name any more.
    pub(crate) to_delete: Mutex<Vec<FileId>>,
    /// Freed runs, by their start, that are being filled to replace shared clusters: not to be zeroed now.
    pub(crate) filling: Arc<Mutex<BTreeSet<u64>>>,
    /// Wakes the background task.
    pub(crate) attention: Notify,
    pub(crate) closing: AtomicBool,
    /// The background task has ended.
    pub(crate) ended: Notify,
    /// Clusters there are, for accounting.
    pub(crate) clusters: AtomicU64,
}

impl Core {
    /// Where a byte of the clusters lies on the device.
    pub(crate) fn at(&self, cluster_byte: u64) -> u64 {
        self.superblock.data_start + cluster_byte
    }

    /// Zeroes freed clusters, so that they can be used again. The order is the invariant: no request can reach
    /// them (they left every map, and earlier reads have ended), then they are zero on the disk, then free.
    pub(crate) async fn zero_freed(&self) -> Result<usize, StoreError> {
        let filling = Arc::clone(&self.filling);
        let runs = self.metadata.change(move |session| {
            let filling = filling.lock();
            let table = session.txn.open_table(FREED).map_err(database_error)?;
            let mut runs = Vec::new();
            for row in table.iter().map_err(database_error)? {
                let (start, count) = row.map_err(database_error)?;
                if runs.len() == RUNS_PER_ROUND {
                    break;
                }
                if !filling.contains(&start.value()) {
                    runs.push(Run { start: start.value(), count: count.value() });
                }
            }
            Ok(runs)
        });
        let runs = runs.await?;
        if runs.is_empty() {
            return Ok(0);
        }
        self.gate.drain().await;
        for run in &runs {
            self.device.unmap(self.at(run.start * CLUSTER), run.count * CLUSTER).await?;
        }
        self.device.flush().await?;
        let count = runs.len();
        self.metadata
            .change(move |session| {
                session.changed = true;
                let removed = (|| {
                    let mut table = session.txn.open_table(FREED).map_err(database_error)?;
                    for run in &runs {
                        table.remove(run.start).map_err(database_error)?;
                    }
                    Ok(())
                })();
                session.fatal(removed)?;
                runs.iter().for_each(|run| session.free.add(*run));
                Ok(())
            })
            .await?;
        Ok(count)
    }

    /// The volume's background task.
    pub(crate) async fn run(self: Arc<Self>) {
        while !self.closing.load(Ordering::Acquire) && !self.metadata.is_stopped() {
            let files = std::mem::take(&mut *self.to_delete.lock());
            for file in files {
                if let Err(error) = self.delete_file(file).await {
                    tracing::warn!(
                        "the content of removed file {} stays until the next opening: {error}",
                        file.0
                    );
                }
            }
            match self.zero_freed().await {
                Ok(0) => {
                    shard_runtime::timeout(Duration::from_secs(5), self.attention.notified()).await;
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!("freed space cannot be zeroed: {error}");
                    shard_runtime::timeout(Duration::from_secs(5), self.attention.notified()).await;
                }
            }
        }
        self.ended.notify_one();
    }
}
