//! What all parts of an open pool share.

mod space;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use block_device::{BlockError, BlockErrorKind};
use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use pool_format::{Change, DiskId, Guid, SpaceId};
use shard_runtime::Clock;
use tokio::sync::Notify;

use crate::balancer::Balancer;
use crate::commit::CommitFailed;
use crate::disk::PoolDisk;
use crate::exchanges::Exchanges;
use crate::faults::Faults;
use crate::governor::Governor;
use crate::meta::{DiskMap, Meta};
use crate::params::{RepairParams, ScrubParams};
use crate::row::{CopyState, Place, Row};
use crate::slabs::Slabs;
use crate::sums_cache::SumsCache;

pub use self::space::Space;

/// The shared part of an open pool.
pub(crate) struct Core {
    pub(crate) guid: Guid,
    pub(crate) name: String,
    pub(crate) slab_size: u64,
    pub(crate) read_only: bool,
    pub(crate) disks: Arc<DiskMap>,
    pub(crate) meta: Arc<Meta>,
    pub(crate) spaces: RwLock<BTreeMap<SpaceId, Arc<Space>>>,
    /// Those that could not be opened; in neither are those being deleted.
    pub(crate) closed: RwLock<BTreeMap<SpaceId, Closed>>,
    pub(crate) slabs: Mutex<Slabs>,
    pub(crate) sums: SumsCache,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) params: RwLock<RepairParams>,
    pub(crate) governor: Governor,
    pub(crate) balancer: Balancer,
    pub(crate) exchanges: Exchanges,
    /// Wakes the repair.
    pub(crate) attention: Notify,
    /// What is most in danger may be something else than a moment ago: the repair looks at everything again before it goes on.
    pub(crate) urgent: AtomicBool,
    /// Wakes the upkeep.
    pub(crate) upkeep_attention: Notify,
    pub(crate) scrub_params: RwLock<ScrubParams>,
    /// Wakes the scrub.
    pub(crate) scrub_attention: Notify,
    pub(crate) closing: AtomicBool,
    /// Ends the rests of background work when the pool closes.
    pub(crate) ending: Notify,
    pub(crate) copied_bytes: AtomicU64,
    /// The part of `copied_bytes` that makes disks equally full.
    pub(crate) balanced_bytes: AtomicU64,
    pub(crate) scrubbed_bytes: AtomicU64,
    pub(crate) faults: Faults,
    /// Changes by the administrator, one at a time: what is checked stays true until it is committed.
    pub(crate) administering: tokio::sync::Mutex<()>,
    /// Renewals of the disks' marks, one at a time: a later one must not be overtaken.
    pub(crate) marking: tokio::sync::Mutex<()>,
    /// Cleaning of dirty regions, one at a time: what one has taken, only that one calls clean.
    pub(crate) cleaning: tokio::sync::Mutex<()>,
    /// Further copies of columns, one at a time. Taken by nobody who holds one of the others.
    pub(crate) adding: tokio::sync::Mutex<()>,
    /// Allocation of rows, one at a time. Taken after `administering`.
    pub(crate) allocating: tokio::sync::Mutex<()>,
    /// Changes of disks' records, their votes among them, one at a time. Taken last, by whoever holds any of the others.
    pub(crate) voting: tokio::sync::Mutex<()>,
}

/// A space that is closed.
pub(crate) struct Closed {
    pub(crate) space: Arc<Space>,
    /// Why, for people.
    pub(crate) why: String,
}

impl Core {
    pub(crate) fn disk(&self, id: DiskId) -> Option<Arc<PoolDisk>> {
        self.disks.read().get(&id).cloned()
    }

    pub(crate) fn all_disks(&self) -> Vec<Arc<PoolDisk>> {
        self.disks.read().values().cloned().collect()
    }

    pub(crate) fn all_spaces(&self) -> Vec<Arc<Space>> {
        self.spaces.read().values().cloned().collect()
    }

    /// Every allocated column of the pool.
    pub(crate) fn for_each_column(&self, mut visit: impl FnMut(&Arc<Space>, Place, &Arc<Row>)) {
        for space in self.all_spaces() {
            for (number, row) in space.rows() {
                for index in 0..row.columns.len() {
                    visit(&space, Place { space: space.id(), row: number, column: index as u8 }, &row);
                }
            }
        }
    }

    /// Ends the background work: none of it begins anything from now on.
    pub(crate) fn stop(&self) {
        self.closing.store(true, Ordering::Release);
        for task in [&self.attention, &self.upkeep_attention, &self.scrub_attention] {
            task.notify_one();
        }
        self.ending.notify_waiters();
    }

    /// Lets background work rest; not longer than the pool is open.
    pub(crate) async fn rest(&self, time: Duration) {
        let ending = self.ending.notified();
        if !self.is_over() {
            shard_runtime::timeout(time, ending).await;
        }
    }

    /// Waits for requests that nobody waits for any more. None begins after [`Core::stop`].
    pub(crate) async fn requests_end(&self) {
        for space in self.all_spaces() {
            for (_, row) in space.rows() {
                for column in (0..row.columns.len() as u8).filter(|column| row.lead(*column) == *column) {
                    drop(row.group(column).locks.lock(0, self.slab_size).await);
                }
            }
        }
    }

    /// What is to be repaired has changed.
    pub(crate) fn call_repair(&self) {
        self.urgent.store(true, Ordering::Release);
        self.attention.notify_one();
    }

    /// Whether the pool is closing or has stopped: background work ends, and its failing is no news.
    pub(crate) fn is_over(&self) -> bool {
        self.meta.is_poisoned() || self.closing.load(Ordering::Acquire)
    }

    /// Refuses writes to a pool that may not be written.
    pub(crate) fn check_writable(&self) -> Result<(), BlockError> {
        if self.read_only {
            return Err(BlockError::new(BlockErrorKind::ReadOnly, "write to a pool opened read-only"));
        }
        self.meta.ownership().check("write to a pool")?;
        if self.is_over() {
            return Err(BlockError::new(BlockErrorKind::Poisoned, "write to a stopped pool"));
        }
        Ok(())
    }

    /// Marks a copy stale in these regions and waits until that is durable. `Ok(false)`, and nothing marked,
    /// when neither another copy nor parity has what it holds: the last of it is never given up.
    pub(crate) async fn mark_stale(
        &self,
        place: Place,
        row: &Row,
        copy: &CopyState,
        mask: u64,
    ) -> Result<bool, CommitFailed> {
        // Both: a region that has caught up is stale in the metadata until that is told, and good already.
        let known = copy.stale.load(Ordering::Acquire) & copy.stale_durable.load(Ordering::Acquire);
        if known & mask == mask {
            return Ok(true);
        }
        self.mark(place, row, copy, mask, false).await
    }

    /// The same where nothing else may have what it holds: its loss is accepted.
    pub(crate) async fn mark_lacking(
        &self,
        place: Place,
        row: &Row,
        copy: &CopyState,
        mask: u64,
    ) -> Result<bool, CommitFailed> {
        self.mark(place, row, copy, mask, true).await
    }

    async fn mark(
        &self,
        place: Place,
        row: &Row,
        copy: &CopyState,
        mask: u64,
        anyway: bool,
    ) -> Result<bool, CommitFailed> {
        let commit = {
            let _order = row.group(place.column).order.lock();
            let unmarked = mask & !copy.stale.load(Ordering::Acquire);
            if !anyway && row.covered_without(place.column, copy.id(), unmarked) != unmarked {
                return Ok(false);
            }
            copy.stale.fetch_or(mask, Ordering::AcqRel);
            let mut changes = caught_up(place, row);
            changes.push(stale_change(place, copy.id(), mask));
            self.meta.submit(changes)
        };
        commit.done().await?;
        copy.stale_durable.fetch_or(mask, Ordering::AcqRel);
        Ok(true)
    }

    /// Makes everything that was written to the pool's disks durable, and marks what disks may have lost.
    pub(crate) async fn flush_disks(&self) -> Result<(), BlockError> {
        if self.faults.skip_flush.load(Ordering::Relaxed) {
            return Ok(());
        }
        let disks = self.all_disks();
        let online = disks.iter().filter(|disk| disk.is_online());
        // A disk that fails to flush goes offline; the marks below and the caller's look at the copies deal with it.
        join_all(online.map(|disk| async move { disk.flush().await })).await;
        for disk in disks.iter().filter(|disk| !disk.is_online()) {
            self.mark_losses(disk).await?;
        }
        Ok(())
    }

    /// Marks stale, on a disk that went offline, every region that was dirty: acknowledged writes that were
    /// not yet flushed there may be lost. The last good copy of a region is never marked; its space is told
    /// instead, so that the next flush fails.
    pub(crate) async fn mark_losses(&self, disk: &Arc<PoolDisk>) -> Result<(), CommitFailed> {
        let _one = disk.marking.lock().await;
        if disk.loss_marked.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut commits = Vec::new();
        let mut marked: Vec<(Arc<CopyState>, u64)> = Vec::new();
        let unflushed = disk.has_unflushed();
        self.for_each_column(|space, place, row| {
            let copies = row.column(place.column).copies();
            let Some(copy) = copies.iter().find(|copy| copy.id() == disk.id) else { return };
            let group = row.group(place.column);
            let order = group.order.lock();
            let dirty = group.unflushed(&order);
            let stale = copy.stale.load(Ordering::Acquire);
            // Said of them already, but not durably: who flushes must not go on before it is, or learns that it cannot be.
            let pending = dirty & stale & !copy.stale_durable.load(Ordering::Acquire);
            let covered = row.covered_without(place.column, disk.id, dirty) | pending;
            let lost = dirty & !covered & !stale;
            if unflushed && lost != 0 {
                space.tell_loss();
                // What was missing at the opening had its part in the journal's replay.
                if row.shape.parity > 0 && disk.was_away() {
                    // Nothing is calculated from parity that the journal has, and the disk perhaps not.
                    space.tear(group, lost);
                }
                if group.marks {
                    // What the disk brings back may be older than the checksums.
                    group.unsettled.fetch_or(lost, Ordering::AcqRel);
                }
            }
            if covered != 0 {
                copy.stale.fetch_or(covered, Ordering::AcqRel);
                // Submitted under the group's order, as the rule asks.
                let mut changes = caught_up(place, row);
                changes.push(stale_change(place, disk.id, covered));
                commits.push(self.meta.submit(changes));
                marked.push((Arc::clone(copy), covered));
            }
            drop(order);
        });
        for commit in commits {
            commit.done().await?;
        }
        for (copy, mask) in marked {
            copy.stale_durable.fetch_or(mask, Ordering::AcqRel);
        }
        disk.loss_marked.store(true, Ordering::Release);
        self.call_repair();
        Ok(())
    }
}

/// What the copies that stand in for each other have caught up with and the metadata does not know of yet: to be told with
/// whatever relies on it, or a crash would find every copy of a region stale. To be submitted under the group's order.
pub(crate) fn caught_up(place: Place, row: &Row) -> Vec<Change> {
    let (lead, Place { space, row: number, .. }) = (row.lead(place.column), place);
    let mut changes = Vec::new();
    for index in (0..row.columns.len() as u8).filter(|index| row.lead(*index) == lead) {
        for copy in row.column(index).copies().iter() {
            let mask = copy.stale_durable.load(Ordering::Acquire) & !copy.stale.load(Ordering::Acquire);
            if mask != 0 {
                copy.stale_durable.fetch_and(!mask, Ordering::AcqRel);
                changes.push(Change::ClearStale { space, row: number, column: index, disk: copy.id(), mask });
            }
        }
    }
    changes
}

fn stale_change(place: Place, disk: DiskId, mask: u64) -> Change {
    Change::MarkStale { space: place.space, row: place.row, column: place.column, disk, mask }
}
