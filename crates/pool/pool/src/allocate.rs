//! Rows get their slabs: which disks a new row is on, that its slabs are clear before it is committed, and what of the free
//! room is kept for repair.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use block_device::{BlockError, BlockErrorKind, check_range};
use pool_format::{
    BLOCK, Change, ColumnRecord, CopyRecord, DiskId, DiskUse, JOURNAL_ROW, PoolState, RowRecord, SpaceRecord,
};
use pool_layout::{Candidate, choose_copy, choose_disks, choose_parity, reserve, rows_that_fit};

use crate::core::{Core, Space};
use crate::generations;
use crate::pages::fresh_pages;
use crate::row::Shape;
use crate::slabs::Slabs;
use crate::votes::row_bytes;

impl Space {
    /// Whether there is room for the rows of ranges that are not allocated yet.
    pub(crate) fn has_rows_for(&self, ranges: &[(u64, u64)]) -> Result<bool, BlockError> {
        let core = self.core()?;
        let row_size = self.striping.row_size();
        let (mut lacking, mut ranges) = (0, ranges.to_vec());
        ranges.sort_unstable();
        // Each row is counted once, though several ranges lie in it.
        let mut counted = 0;
        for (offset, len) in ranges {
            check_range(offset, len, BLOCK as u32, self.bytes())?;
            let end = (offset + len).div_ceil(row_size);
            let from = (offset / row_size).max(counted);
            lacking += (from..end).filter(|number| self.row(*number as u32).is_none()).count() as u64;
            counted = counted.max(end);
        }
        Ok(lacking * row_size <= core.room(self))
    }

    /// Bytes that it can hold: those that have slabs, and those that its pool has room for. Not more than its size.
    #[must_use]
    pub fn can_hold(&self) -> u64 {
        let (rows, _) = self.allocation();
        let room = self.core().map_or(0, |core| core.room(self));
        (rows * self.striping.row_size() + room).min(self.bytes())
    }

    /// The same of what lies behind its first `from` bytes. What the pool has room for may still be needed before them.
    #[must_use]
    pub fn can_hold_behind(&self, from: u64) -> u64 {
        let size = self.striping.row_size();
        let rows = self.rows().into_iter().map(|(number, _)| number).filter(|number| *number != JOURNAL_ROW);
        let held: u64 =
            rows.map(|number| ((u64::from(number) + 1) * size).saturating_sub(from).min(size)).sum();
        let room = self.core().map_or(0, |core| core.room(self));
        (held + room).min(self.bytes().saturating_sub(from))
    }

    /// Allocates the rows of a range that are not yet. Where that fails, those that came before stay: somebody may have written to
    /// them since.
    pub(crate) async fn allocate_range(self: Arc<Self>, offset: u64, len: u64) -> Result<(), BlockError> {
        let core = self.core()?;
        core.check_writable()?;
        check_range(offset, len, BLOCK as u32, self.bytes())?;
        let row_size = self.striping.row_size();
        let allocating = async {
            for number in offset / row_size..(offset + len).div_ceil(row_size) {
                self.row_for_write(&core, number as u32).await?;
            }
            Ok(())
        };
        core.meta.ownership().guard(allocating).await
    }
}

impl Core {
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

    /// Bytes of new data that a space finds disks for, as far as its size and what is kept for repair let it.
    pub(crate) fn room(&self, space: &Space) -> u64 {
        let record = space.record();
        let width = usize::from(record.columns) * record.resiliency.copies();
        let free: Vec<u32> =
            self.candidates(record.checksum.is_some()).iter().map(|disk| disk.free).collect();
        let mut rows = rows_that_fit(&free, width);
        if self.params.read().reserve_disks > 0 {
            let (data, limit, _) = self.data_limit_and_all();
            rows = rows.min(limit.saturating_sub(data) / (width as u64).max(1));
        }
        let (allocated, all) = space.allocation();
        rows.min(all.saturating_sub(allocated)) * space.striping.row_size()
    }

    fn candidate(&self, state: &PoolState, slabs: &Slabs, id: DiskId) -> Candidate {
        let (mut free, total) = slabs.count(id);
        if self.faults.overfill_disks.load(Ordering::Relaxed) {
            free += 1;
        }
        let record = state.disks.get(&id);
        Candidate {
            disk: id,
            online: self.has_room(id),
            free,
            total,
            node: record.map(|disk| disk.node.clone()).unwrap_or_default(),
            enclosure: record.map(|disk| disk.enclosure.clone()).unwrap_or_default(),
        }
    }

    /// Whether a disk is here and takes something new.
    pub(crate) fn has_room(&self, id: DiskId) -> bool {
        self.disk(id).is_some_and(|disk| disk.has_room())
    }

    /// Takes slabs for a new row, clears them and commits it. A disk that fails meanwhile is offline then, or known to be
    /// full, and the next attempt does without it.
    pub(crate) async fn allocate_row(&self, space: &SpaceRecord, row: u32) -> Result<RowRecord, BlockError> {
        let mut attempts = self.disks.read().len();
        loop {
            match self.try_allocate_row(space, row, attempts == 0).await {
                // Not for want of space, nor because the pool has stopped: a disk failed.
                Err(error)
                    if attempts > 0
                        && !matches!(
                            error.kind(),
                            BlockErrorKind::NoSpace | BlockErrorKind::Poisoned | BlockErrorKind::Fenced
                        ) =>
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
        let lost = chosen.iter().filter(|disks| !disks.iter().any(|id| self.has_room(*id))).count();
        let here = |id: &DiskId| self.disk(*id).is_some_and(|disk| disk.is_online());
        if lost > shape.parity && chosen.iter().flatten().any(here) {
            return Err(no_space().because("the file systems of the disks that it would be on are full"));
        }
        self.check_metadata_room(row_bytes(columns, shape)).await?;
        let needed = chosen.iter().map(|disks| disks.len() as u64).sum();
        if !self.leaves_reserve(needed) {
            return Err(no_space().because("what is free is kept for repair (reserve_disks)"));
        }
        let mut record = RowRecord::default();
        let first = generations::first(self.meta.seq());
        {
            let mut slabs = self.slabs.lock();
            for disks in &chosen {
                let taken = disks.iter().filter_map(|disk| {
                    // A copy on a disk that is missing or full lacks everything until it is here and has room.
                    let stale = if self.has_room(*disk) { 0 } else { u64::MAX };
                    let overfull = self.faults.overfill_disks.load(Ordering::Relaxed);
                    let beyond = overfull.then(|| slabs.count(*disk).1);
                    slabs.take(*disk).or(beyond).map(|slab| CopyRecord { disk: *disk, slab, stale })
                });
                let copies = taken.collect();
                // There from the beginning, so that the state does not grow with every page that is written later.
                let generations = vec![first; shape.sums_pages.min(usize::from(u16::MAX))];
                record.columns.push(ColumnRecord { copies, dirty: 0, generations });
            }
        }
        let complete = record.columns.iter().all(|column| column.copies.len() == shape.copies);
        let done = match complete {
            true => {
                self.begin_generations(space, (row, shape), &mut record).await;
                match self.clear_and_commit(space, (row, shape), &record).await {
                    Ok(()) => self.keep_or_free(space, (row, shape), &record, last).await,
                    Err(error) => Err(error),
                }
            }
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
        // What is free here is not when somebody else has opened the pool.
        self.meta.look_for_newer_owner().await;
        self.check_writable()?;
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
                let generations = &record.columns[column].generations;
                let zeros = space.checksum.unwrap_or_default().of_zeros();
                let whose = (space.guid, row, column as u8);
                let pages = fresh_pages(self, whose, zeros, shape.sums_pages, generations);
                let pages = IoBuf::copy_from(&pages).freeze();
                disk.write(at, pages, block_device::Durability::Durable).await?;
            }
            // A slab may hold what another space once wrote: it must read as zeros before it is anyone's.
            disk.zero(start, self.slab_size, true, block_device::Durability::Durable).await
        });
        for cleared in futures_util::future::join_all(clear).await {
            cleared.map_err(|error| match error.kind() {
                // That disk has none; the pool may have.
                BlockErrorKind::NoSpace => {
                    BlockError::new(BlockErrorKind::Gone, "clear a slab of a full disk")
                }
                _ => error,
            })?;
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
        let here = |copy: &CopyRecord| self.has_room(copy.disk);
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
        if !self.has_metadata_room_for_a_copy() {
            return None;
        }
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
