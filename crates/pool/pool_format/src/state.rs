//! The pool's metadata: disks, spaces, and where every slab lies.
//!
//! Changed only by [`PoolState::apply`], which is the same when a change is made and when it is replayed.

use std::collections::{BTreeMap, BTreeSet};

use crate::records::{
    ColumnRecord, CopyRecord, DiskRecord, JOURNAL_ROW, MAX_COPIES, Owner, REGIONS, ROWS_MAX, RowRecord,
    ScrubRecord, SpaceRecord, len_of,
};
use crate::{Change, DecodeError, DiskId, Epoch, Guid, Mark, Reader, Seq, SpaceId, Writer, sums_pages};

/// Parts of a state that not every pool has, each behind its number.
const PART_MARKS: u8 = 1;
const PART_OWNER: u8 = 2;

/// All metadata of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolState {
    /// The pool's identity.
    pub guid: Guid,
    /// Its name.
    pub name: String,
    /// Size of a slab, in bytes.
    pub slab_size: u64,
    /// Disks.
    pub disks: BTreeMap<DiskId, DiskRecord>,
    /// Spaces.
    pub spaces: BTreeMap<SpaceId, SpaceRecord>,
    /// Rows of the spaces that have been allocated.
    pub rows: BTreeMap<(SpaceId, u32), RowRecord>,
    /// The scrub under way, or the last one.
    pub scrub: ScrubRecord,
    /// What the superblock of each disk must carry at least: one that carries less has gone back in time. A disk that no
    /// release has marked yet is not in it.
    pub marks: BTreeMap<DiskId, Mark>,
    /// The node that has the pool, if one has said so.
    pub owner: Option<Owner>,
    /// The next disk's number.
    pub next_disk: u32,
    /// The next space's number.
    pub next_space: u32,
}

impl PoolState {
    /// The disks that carry metadata.
    pub fn metadata_disks(&self) -> impl Iterator<Item = &DiskRecord> {
        self.disks.values().filter(|disk| disk.metadata)
    }

    /// Applies one change. Applying a change twice is the same as once. A change that names what is not there
    /// (any more) does nothing: the caller checks before it commits.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::PutDisk(disk) => {
                self.next_disk = self.next_disk.max(disk.id.0.saturating_add(1));
                self.disks.insert(disk.id, disk.clone());
            }
            Change::RemoveDisk(id) => {
                self.disks.remove(id);
                self.marks.remove(id);
            }
            Change::PutSpace(space) => {
                self.next_space = self.next_space.max(space.id.0.saturating_add(1));
                self.spaces.insert(space.id, space.clone());
            }
            Change::DeleteSpace(id) => {
                self.spaces.remove(id);
                self.rows.retain(|(space, _), _| space != id);
            }
            Change::PutRow { space, row, record } => {
                if self.spaces.contains_key(space) {
                    self.rows.insert((*space, *row), record.clone());
                }
            }
            Change::FreeRow { space, row } => {
                self.rows.remove(&(*space, *row));
            }
            Change::Dirty { space, row, column, mask } => {
                if let Some(column) = self.column(*space, *row, *column) {
                    column.dirty |= mask;
                }
            }
            Change::Clean { space, row, column, mask } => {
                if let Some(column) = self.column(*space, *row, *column) {
                    column.dirty &= !mask;
                }
            }
            Change::MarkStale { space, row, column, disk, mask } => {
                if let Some(copy) = self.copy(*space, *row, *column, *disk) {
                    copy.stale |= mask;
                }
            }
            Change::ClearStale { space, row, column, disk, mask } => {
                if let Some(copy) = self.copy(*space, *row, *column, *disk) {
                    copy.stale &= !mask;
                }
            }
            Change::Scrub(record) => self.scrub = *record,
            Change::Mark { disk, mark } => {
                if self.disks.contains_key(disk) {
                    self.marks.insert(*disk, *mark);
                }
            }
            Change::Generations { space, row, column, pages } => {
                // A record counts them in 16 bits: further pages, of slabs above [`crate::SLAB_BYTES_MAX`], have none. An
                // earlier release made pools with such slabs.
                let most = (sums_pages(self.slab_size) as usize).min(usize::from(u16::MAX));
                if let Some(column) = self.column(*space, *row, *column) {
                    for (page, generation) in pages.iter().filter(|(page, _)| usize::from(*page) < most) {
                        let page = usize::from(*page);
                        if column.generations.len() <= page {
                            column.generations.resize(page + 1, 0);
                        }
                        column.generations[page] = *generation;
                    }
                }
            }
            Change::Owner(owner) => self.owner = Some(owner.clone()),
            Change::AddCopy { space, row, column, copy } => {
                if let Some(column) = self.column(*space, *row, *column)
                    && column.copies.len() < MAX_COPIES
                    && column.copies.iter().all(|present| present.disk != copy.disk)
                {
                    column.copies.push(*copy);
                }
            }
            Change::RemoveCopy { space, row, column, disk } => {
                if let Some(column) = self.column(*space, *row, *column) {
                    column.copies.retain(|copy| copy.disk != *disk);
                }
            }
        }
    }

    fn column(&mut self, space: SpaceId, row: u32, column: u8) -> Option<&mut ColumnRecord> {
        self.rows.get_mut(&(space, row))?.columns.get_mut(usize::from(column))
    }

    fn copy(&mut self, space: SpaceId, row: u32, column: u8, disk: DiskId) -> Option<&mut CopyRecord> {
        self.column(space, row, column)?.copies.iter_mut().find(|copy| copy.disk == disk)
    }

    /// Bytes of those parts of [`PoolState::encode`] that a change can make longer or shorter. The difference before and
    /// after [`PoolState::apply`] is what the change adds to the state.
    #[must_use]
    pub fn bytes_touched(&self, change: &Change) -> usize {
        match change {
            // Masks are as long as before.
            Change::Dirty { .. }
            | Change::Clean { .. }
            | Change::MarkStale { .. }
            | Change::ClearStale { .. } => 0,
            Change::PutDisk(DiskRecord { id, .. }) => self.disks.get(id).map_or(0, DiskRecord::encoded_len),
            Change::RemoveDisk(id) => {
                self.disks.get(id).map_or(0, DiskRecord::encoded_len) + len_of(|w| self.encode_parts(w))
            }
            Change::PutSpace(space) => self.spaces.get(&space.id).map_or(0, SpaceRecord::encoded_len),
            Change::DeleteSpace(id) => {
                let rows = self.rows.range((*id, 0)..=(*id, u32::MAX));
                let rows: usize = rows.map(|(_, row)| row.encoded_len()).sum();
                rows + self.spaces.get(id).map_or(0, SpaceRecord::encoded_len)
            }
            Change::PutRow { space, row, .. }
            | Change::FreeRow { space, row }
            | Change::AddCopy { space, row, .. }
            | Change::RemoveCopy { space, row, .. }
            | Change::Generations { space, row, .. } => {
                self.rows.get(&(*space, *row)).map_or(0, RowRecord::encoded_len)
            }
            Change::Scrub(_) | Change::Mark { .. } | Change::Owner(_) => len_of(|w| self.encode_parts(w)),
        }
    }

    /// The whole state, for a checkpoint.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(&self.guid.0);
        w.text(&self.name);
        w.u64(self.slab_size);
        w.u32(self.next_disk);
        w.u32(self.next_space);
        w.u32(self.disks.len() as u32);
        self.disks.values().for_each(|disk| disk.encode(&mut w));
        w.u32(self.spaces.len() as u32);
        self.spaces.values().for_each(|space| space.encode(&mut w));
        w.u32(self.rows.len() as u32);
        for ((space, row), record) in &self.rows {
            w.u32(space.0);
            w.u32(*row);
            record.encode(&mut w);
        }
        self.encode_parts(&mut w);
        w.finish()
    }

    /// What follows the rows: the scrub, and parts that not every pool has.
    fn encode_parts(&self, w: &mut Writer) {
        let parts = !self.marks.is_empty() || self.owner.is_some();
        if parts || self.scrub != ScrubRecord::default() {
            self.scrub.encode(w);
        }
        if !self.marks.is_empty() {
            w.u8(PART_MARKS);
            w.u32(self.marks.len() as u32);
            for (disk, mark) in &self.marks {
                w.u32(disk.0);
                w.u64(mark.epoch.0);
                w.u64(mark.seq.0);
            }
        }
        if let Some(owner) = &self.owner {
            w.u8(PART_OWNER);
            owner.encode(w);
        }
    }

    /// The state in a checkpoint.
    ///
    /// # Errors
    /// When the bytes are not a state that [`PoolState::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let mut state = Self {
            guid: Guid(r.guid()?),
            name: r.text()?,
            slab_size: r.u64()?,
            next_disk: r.u32()?,
            next_space: r.u32()?,
            ..Self::default()
        };
        if !state.slab_size.is_power_of_two() {
            return Err(DecodeError::Invalid("slab size"));
        }
        for _ in 0..r.u32()? {
            let disk = DiskRecord::decode(&mut r)?;
            state.disks.insert(disk.id, disk);
        }
        for _ in 0..r.u32()? {
            let space = SpaceRecord::decode(&mut r)?;
            state.spaces.insert(space.id, space);
        }
        for _ in 0..r.u32()? {
            let key = (SpaceId(r.u32()?), r.u32()?);
            state.rows.insert(key, RowRecord::decode(&mut r)?);
        }
        // A pool that was never scrubbed has none.
        if r.remaining() > 0 {
            state.scrub = ScrubRecord::decode(&mut r)?;
        }
        while r.remaining() > 0 {
            match r.u8()? {
                PART_MARKS => {
                    for _ in 0..r.u32()? {
                        let disk = DiskId(r.u32()?);
                        state.marks.insert(disk, Mark { epoch: Epoch(r.u64()?), seq: Seq(r.u64()?) });
                    }
                }
                PART_OWNER => state.owner = Some(Owner::decode(&mut r)?),
                newer => return Err(DecodeError::Unsupported(u32::from(newer))),
            }
        }
        Ok(state)
    }

    /// What is wrong in the state itself: slabs used twice or out of bounds, copies on the same disk, rows
    /// without a space, spaces of an impossible shape. Empty when it is sound.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for space in self.spaces.values() {
            let region = self.slab_size / u64::from(REGIONS);
            if space.columns > 1 && u64::from(space.interleave) > region {
                problems.push(format!("the interleave of space {} does not fit a region", space.id));
            }
            if space.size.div_ceil(self.slab_size.saturating_mul(u64::from(space.columns)).max(1)) > ROWS_MAX
            {
                problems.push(format!("space {} is larger than its rows can be numbered", space.id));
            }
        }
        let mut used = BTreeSet::new();
        for ((space, row), record) in &self.rows {
            let place = format!("row {row} of space {space}");
            let Some(owner) = self.spaces.get(space) else {
                problems.push(format!("{place} belongs to no space"));
                continue;
            };
            let journal = *row == JOURNAL_ROW && owner.resiliency.parity() > 0;
            let columns = if journal { 1 } else { usize::from(owner.columns) };
            if record.columns.len() != columns {
                problems.push(format!("{place} has {} columns, not {columns}", record.columns.len()));
            }
            let mut in_row = BTreeSet::new();
            for copy in record.columns.iter().flat_map(|column| &column.copies) {
                let slab = copy.slab;
                match self.disks.get(&copy.disk) {
                    None => {
                        problems.push(format!("{place} lies on disk {}, which is not in the pool", copy.disk))
                    }
                    Some(disk) if slab >= disk.slab_count => {
                        problems
                            .push(format!("{place} uses slab {slab} of disk {}, beyond its end", copy.disk));
                    }
                    Some(_) => {}
                }
                if !used.insert((copy.disk, slab)) {
                    problems
                        .push(format!("slab {slab} of disk {} is used twice, also by {place}", copy.disk));
                }
                if !in_row.insert(copy.disk) {
                    problems.push(format!("{place} uses disk {} twice", copy.disk));
                }
            }
        }
        problems
    }
}
