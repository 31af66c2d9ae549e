//! What all parts of an open pool share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockError, BlockErrorKind};
use parking_lot::{Mutex, RwLock};
use pool_format::{
    Change, ColumnRecord, CopyRecord, DiskId, DiskUse, Guid, JOURNAL_ROW, PoolState, RowRecord, SpaceId,
    SpaceRecord,
};
use pool_layout::{Candidate, choose_copy, choose_disks, choose_parity, reserve};
use shard_runtime::Clock;
use tokio::sync::Notify;

use crate::balance::Balancer;
use crate::disk::PoolDisk;
use crate::exchange::Exchanges;
use crate::governor::Governor;
use crate::meta::{CommitFailed, DiskMap, Meta};
use crate::row::{CopyState, Place, Row, Shape};
use crate::scrub::ScrubParams;
use crate::slabs::Slabs;
use crate::space::Space;
use crate::spaces::Closed;
use crate::sums::{SumsCache, fresh_pages};

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
    pub(crate) copied_bytes: AtomicU64,
    pub(crate) faults: Faults,
    /// Changes by the administrator, one at a time: what is checked stays true until it is committed.
    pub(crate) administering: tokio::sync::Mutex<()>,
    /// Cleaning of dirty regions, one at a time: what one has taken, only that one calls clean.
    pub(crate) cleaning: tokio::sync::Mutex<()>,
    /// Further copies of columns, one at a time. Taken by nobody who holds one of the others: a deletion waits, under
    /// `allocating`, for whoever works on its rows.
    pub(crate) adding: tokio::sync::Mutex<()>,
    /// Allocation of rows, one at a time. Taken after `administering`.
    pub(crate) allocating: tokio::sync::Mutex<()>,
}

/// Deliberate defects, for the proof that the crash tests find them. Never set outside tests.
#[derive(Default)]
pub struct Faults {
    /// `flush` succeeds without flushing.
    pub skip_flush: AtomicBool,
    /// A write whose copy failed is acknowledged without marking the copy stale.
    pub skip_stale_mark: AtomicBool,
    /// Regions are written without being marked dirty first.
    pub skip_dirty_mark: AtomicBool,
    /// Stripes are written in place without being in the journal first.
    pub skip_journal: AtomicBool,
    /// What is read is not compared with its checksums.
    pub skip_verify: AtomicBool,
}

/// How repair may use the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairParams {
    /// Bytes copied per second at most; 0 for no limit.
    pub bytes_per_second: u64,
    /// Columns worked on at the same time.
    pub parallel: usize,
    /// No new copying while set.
    pub paused: bool,
    /// What clients' small requests may take on the average while copies are made; zero for twice what they take without.
    pub client_latency: Duration,
    /// Percent points between the fullest and the emptiest disk above which slabs are moved; 0 for only when asked.
    pub balance_above_percent: u32,
    /// The room of so many disks, the largest, is kept from new rows: what lost disks held is made again there. 0 for none.
    pub reserve_disks: u32,
}

impl Default for RepairParams {
    fn default() -> Self {
        // Four columns keep several disks busy; more only lengthens the queues that clients wait in.
        Self {
            bytes_per_second: 0,
            parallel: 4,
            paused: false,
            client_latency: Duration::ZERO,
            balance_above_percent: 0,
            reserve_disks: 0,
        }
    }
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
        let commit = {
            let _order = row.group(place.column).order.lock();
            let unmarked = mask & !copy.stale.load(Ordering::Acquire);
            if row.covered_without(place.column, copy.id(), unmarked) != unmarked {
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
            let covered = row.covered_without(place.column, disk.id, dirty);
            let lost = dirty & !covered & !copy.stale.load(Ordering::Acquire);
            if unflushed && lost != 0 {
                space.tell_loss();
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

    /// Disks that could take a slab, with their free space. One for a space with checksums must have room for those.
    pub(crate) fn candidates(&self, integrity: bool) -> Vec<Candidate> {
        let slabs = self.slabs.lock();
        let has_room = |id| self.disk(id).is_some_and(|disk| disk.layout.read().sums_start > 0);
        self.meta.with_state(|state| {
            let usable = state.disks.values().filter(|disk| disk.usage == DiskUse::Active);
            let usable = usable.filter(|disk| !integrity || has_room(disk.id));
            usable.map(|disk| self.candidate(state, &slabs, disk.id)).collect()
        })
    }

    /// Slabs that everything allocated has when it is whole, that it may have, and of all disks in use, here or not.
    pub(crate) fn data_limit_and_all(&self) -> (u64, u64, u64) {
        let of = |space: &Space| {
            let (record, (rows, _)) = (space.record(), space.allocation());
            let parity = u64::from(record.resiliency.parity());
            let journal = if parity > 0 { parity + 1 } else { 0 };
            rows * u64::from(record.columns) * record.resiliency.copies() as u64 + journal
        };
        let open: u64 = self.all_spaces().iter().map(|space| of(space)).sum();
        let closed: u64 = self.closed.read().values().map(|closed| of(&closed.space)).sum();
        let data = open + closed;
        let totals: Vec<u32> = self.meta.with_state(|state| {
            let in_use = state.disks.values().filter(|disk| disk.usage == DiskUse::Active);
            in_use.map(|disk| disk.slab_count).collect()
        });
        let all = totals.iter().map(|total| u64::from(*total)).sum();
        let wanted = self.params.read().reserve_disks as usize;
        (data, reserve::limit(&totals, data, wanted), all)
    }

    /// Whether a new row of so many slabs leaves what is kept for repair. Under [`Core::allocating`].
    fn leaves_reserve(&self, needed: u64) -> bool {
        if self.params.read().reserve_disks == 0 {
            return true;
        }
        let (data, limit, _) = self.data_limit_and_all();
        data + needed <= limit
    }

    fn candidate(&self, state: &PoolState, slabs: &Slabs, id: DiskId) -> Candidate {
        let (free, total) = slabs.count(id);
        let record = state.disks.get(&id);
        Candidate {
            disk: id,
            online: self.disk(id).is_some_and(|disk| disk.is_online()),
            free,
            total,
            node: record.map(|disk| disk.node.clone()).unwrap_or_default(),
            enclosure: record.map(|disk| disk.enclosure.clone()).unwrap_or_default(),
        }
    }

    /// Takes slabs for a new row, clears them and commits it. A disk that fails meanwhile is offline then, and
    /// the next attempt does without it.
    pub(crate) async fn allocate_row(&self, space: &SpaceRecord, row: u32) -> Result<RowRecord, BlockError> {
        let mut attempts = self.disks.read().len();
        loop {
            match self.try_allocate_row(space, row, attempts == 0).await {
                // Not for want of space, nor because the pool has stopped: a disk failed.
                Err(error)
                    if attempts > 0
                        && !matches!(error.kind(), BlockErrorKind::NoSpace | BlockErrorKind::Poisoned) =>
                {
                    attempts -= 1;
                }
                other => return other,
            }
        }
    }

    async fn try_allocate_row(
        &self,
        space: &SpaceRecord,
        row: u32,
        last: bool,
    ) -> Result<RowRecord, BlockError> {
        let shape = Shape::of(space, row, self.slab_size);
        let columns = if row == JOURNAL_ROW { 1 } else { usize::from(space.columns) };
        let candidates = self.candidates(shape.sums_pages > 0);
        let chosen = match shape.parity {
            0 => choose_disks(&candidates, columns, shape.copies),
            parity => choose_parity(&candidates, columns, parity),
        };
        let no_space = || BlockError::new(BlockErrorKind::NoSpace, "allocate a row of slabs").on(&space.name);
        let chosen = chosen.ok_or_else(no_space)?;
        let needed = chosen.iter().map(|disks| disks.len() as u64).sum();
        if !self.leaves_reserve(needed) {
            return Err(no_space().because("what is free is kept for repair (reserve_disks)"));
        }
        let mut record = RowRecord::default();
        {
            let mut slabs = self.slabs.lock();
            for disks in &chosen {
                let taken = disks.iter().filter_map(|disk| {
                    // A copy on a missing disk lacks everything until the disk is back.
                    let here = self.disk(*disk).is_some_and(|disk| disk.is_online());
                    let stale = if here { 0 } else { u64::MAX };
                    slabs.take(*disk).map(|slab| CopyRecord { disk: *disk, slab, stale })
                });
                record.columns.push(ColumnRecord { copies: taken.collect(), dirty: 0 });
            }
        }
        let complete = record.columns.iter().all(|column| column.copies.len() == shape.copies);
        let done = match complete {
            true => match self.clear_and_commit(space, (row, shape), &record).await {
                Ok(()) => self.keep_or_free(space, (row, shape), &record, last).await,
                Err(error) => Err(error),
            },
            false => Err(no_space()),
        };
        if let Err(error) = done {
            self.give_back(&record);
            return Err(error);
        }
        Ok(record)
    }

    async fn clear_and_commit(
        &self,
        space: &SpaceRecord,
        (row, shape): (u32, Shape),
        record: &RowRecord,
    ) -> Result<(), BlockError> {
        let copies = record.columns.iter().enumerate();
        let copies = copies.flat_map(|(index, column)| column.copies.iter().map(move |copy| (index, copy)));
        let clear = copies.filter(|(_, copy)| copy.stale == 0).map(|(column, copy)| async move {
            let disk =
                self.disk(copy.disk).ok_or_else(|| BlockError::new(BlockErrorKind::Gone, "clear a slab"))?;
            let (start, sums) = {
                let layout = disk.layout.read();
                (layout.slab_offset(copy.slab), layout.sums_offset(copy.slab))
            };
            if let Some(at) = sums.filter(|_| shape.sums_pages > 0) {
                let pages = fresh_pages(self, (space.guid, row, column as u8), shape.sums_pages);
                let pages = IoBuf::copy_from(&pages).freeze();
                disk.write(at, pages, block_device::Durability::Durable).await?;
            }
            // A slab may hold what another space once wrote: it must read as zeros before it is anyone's.
            disk.zero(start, self.slab_size, true, block_device::Durability::Durable).await
        });
        for cleared in futures_util::future::join_all(clear).await {
            cleared?;
        }
        let change = Change::PutRow { space: space.id, row, record: record.clone() };
        Ok(self.meta.commit(vec![change]).await?)
    }

    /// Frees a row that was committed, and that nobody has seen yet, if a copy was away and lacks everything, and came back
    /// meanwhile: the row would be less redundant than its disks allow. `last` keeps such a one, but none of which every copy
    /// that was good has been lost: it could never be written.
    async fn keep_or_free(
        &self,
        space: &SpaceRecord,
        (row, shape): (u32, Shape),
        record: &RowRecord,
        last: bool,
    ) -> Result<(), BlockError> {
        let here = |copy: &CopyRecord| self.disk(copy.disk).is_some_and(|disk| disk.is_online());
        let good = |copy: &CopyRecord| copy.stale == 0 && here(copy);
        let lost = record.columns.iter().filter(|column| !column.copies.iter().any(good)).count();
        let mut copies = record.columns.iter().flat_map(|column| &column.copies);
        let came_back = copies.any(|copy| copy.stale != 0 && here(copy));
        if lost <= shape.parity && (last || !came_back) {
            return Ok(());
        }
        self.meta.commit(vec![Change::FreeRow { space: space.id, row }]).await?;
        Err(BlockError::new(BlockErrorKind::Gone, "allocate a row of slabs: disks went or came meanwhile")
            .on(&space.name))
    }

    pub(crate) fn give_back(&self, record: &RowRecord) {
        let mut slabs = self.slabs.lock();
        for copy in record.columns.iter().flat_map(|column| &column.copies) {
            slabs.give_back(copy.disk, copy.slab);
        }
    }

    /// A slab for a further copy of a column, on a disk that its row does not use.
    pub(crate) fn take_copy_slab(
        &self,
        integrity: bool,
        row: &[DiskId],
        peers: &[DiskId],
    ) -> Option<CopyRecord> {
        let mut candidates = self.candidates(integrity);
        candidates.retain(|candidate| candidate.online);
        let peers: Vec<Candidate> = {
            let slabs = self.slabs.lock();
            self.meta.with_state(|state| peers.iter().map(|id| self.candidate(state, &slabs, *id)).collect())
        };
        let disk = choose_copy(&candidates, &peers, row)?;
        let slab = self.slabs.lock().take(disk)?;
        Some(CopyRecord { disk, slab, stale: u64::MAX })
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
