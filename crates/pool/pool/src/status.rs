//! What a pool says of itself: is everything as redundant as promised, and if not, what is missing.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use observe::Inspect;
use pool_format::{DiskId, DiskRecord, DiskUse, Epoch, SpaceId, SpaceRecord};
use serde_json::json;

use crate::core::Core;
use crate::disk::PoolDisk;
use crate::pace::Slowness;
use crate::pool::Pool;
use crate::row::{Purpose, Row};

/// A disk's state.
#[derive(Clone, Debug)]
pub struct DiskStatus {
    /// What the metadata knows of it.
    pub record: DiskRecord,
    /// Whether it is in use now.
    pub online: bool,
    /// Why not.
    pub why_offline: String,
    /// It had gone back in time, and its copies are being made anew from others: how far.
    pub went_back: Option<String>,
    /// It has a vote on the metadata and lacks some of it, so that its vote does not count.
    pub lacks_metadata: bool,
    /// Slabs in use.
    pub used_slabs: u32,
    /// Reads that failed since the opening.
    pub read_errors: u64,
    /// Writes that failed since the opening.
    pub write_errors: u64,
    /// Blocks of 4 KiB that were not what their checksums say, since the opening.
    pub checksum_errors: u64,
    /// Blocks of 4 KiB rewritten from another copy or from parity.
    pub healed_blocks: u64,
    /// Bytes that its copies lack.
    pub stale_bytes: u64,
    /// How fast it answers.
    pub slowness: Slowness,
    /// For how long its file system has been full, if it is: the copies on it lack what was written since.
    pub full_for: Option<Duration>,
}

/// A space's state.
#[derive(Clone, Debug)]
pub struct SpaceStatus {
    /// How it is made.
    pub record: SpaceRecord,
    /// Bytes of address space that have slabs.
    pub allocated_bytes: u64,
    /// Bytes of address space without slabs that disks with room for them are there for.
    pub room_bytes: u64,
    /// Bytes of address space that have none.
    pub unallocated_bytes: u64,
    /// Bytes of disks that those take: copies, parity and the journal counted.
    pub taken_bytes: u64,
    /// The fewest good copies that any of its regions has now; the promised number when nothing is allocated.
    pub copies_now: usize,
    /// Copies promised: one more than disks may be lost.
    pub copies_promised: usize,
    /// Bytes whose copies are fewer than promised.
    pub degraded_bytes: u64,
    /// Bytes of which no good copy is here.
    pub unavailable_bytes: u64,
    /// Bytes to copy until everything is as promised, as far as disks for it are here.
    pub repair_bytes: u64,
    /// Bytes of copies that no disk has room for, whatever moves.
    pub without_room_bytes: u64,
    /// Why it is closed and serves nothing, if so.
    pub closed: Option<String>,
}

/// A pool's state.
#[derive(Clone, Debug)]
pub struct PoolStatus {
    /// Fencing generation of this opening.
    pub epoch: Epoch,
    /// The pool stopped after a failure of durability, or because somebody else has opened it.
    pub stopped: bool,
    /// Somebody else has.
    pub superseded: bool,
    /// It was opened read-only.
    pub read_only: bool,
    /// Disks, by number.
    pub disks: Vec<DiskStatus>,
    /// Spaces, by number.
    pub spaces: Vec<SpaceStatus>,
    /// Bytes of all active disks' slabs.
    pub capacity: u64,
    /// Bytes of free slabs on active disks.
    pub free: u64,
    /// Bytes of those that are kept from new data, for repair: see [`crate::RepairParams::reserve_disks`].
    pub reserved: u64,
    /// Bytes copied by resync and repair since the opening.
    pub copied_bytes: u64,
    /// The part of those that was copied to make disks equally full.
    pub balanced_bytes: u64,
    /// Bytes that scrubs have read since the opening.
    pub scrubbed_bytes: u64,
    /// Bytes in regions whose copies may still differ after a crash.
    pub unsettled_bytes: u64,
}

impl PoolStatus {
    /// Whether all data has all its copies, and settled.
    #[must_use]
    pub fn is_fully_redundant(&self) -> bool {
        !self.stopped
            && self.unsettled_bytes == 0
            && self.spaces.iter().all(|space| space.degraded_bytes == 0 && space.closed.is_none())
    }

    /// Bytes still to copy.
    #[must_use]
    pub fn repair_bytes(&self) -> u64 {
        self.unsettled_bytes + self.spaces.iter().map(|space| space.repair_bytes).sum::<u64>()
    }
}

impl Pool {
    /// The pool's state now.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        let core = &self.core;
        let records: BTreeMap<DiskId, DiskRecord> = core.meta.with_state(|state| state.disks.clone());
        let mut spaces = spaces(core);
        let (stale, unsettled_bytes) = look_at_columns(core, &records, &mut spaces);
        let (mut capacity, mut free) = (0, 0);
        for record in records.values().filter(|record| record.usage == DiskUse::Active) {
            let (free_slabs, slabs) = core.slabs.lock().count(record.id);
            capacity += u64::from(slabs) * core.slab_size;
            free += u64::from(free_slabs) * core.slab_size;
        }
        let (_, limit, all) = core.data_limit_and_all();
        PoolStatus {
            epoch: core.meta.epoch(),
            stopped: core.meta.is_poisoned(),
            superseded: core.meta.is_superseded(),
            read_only: core.read_only,
            disks: records.into_values().map(|record| disk_status(core, record, &stale)).collect(),
            spaces: spaces.into_values().collect(),
            capacity,
            free,
            reserved: (all - limit) * core.slab_size,
            copied_bytes: core.copied_bytes.load(Ordering::Relaxed),
            balanced_bytes: core.balanced_bytes.load(Ordering::Relaxed),
            scrubbed_bytes: core.scrubbed_bytes.load(Ordering::Relaxed),
            unsettled_bytes,
        }
    }
}

/// What the spaces have, with nothing lacking yet: [`look_at_columns`] has that; and those that are closed, which lack everything.
fn spaces(core: &Core) -> BTreeMap<SpaceId, SpaceStatus> {
    let mut spaces: BTreeMap<_, SpaceStatus> = BTreeMap::new();
    for space in core.all_spaces() {
        let record = space.record();
        let (rows, all) = space.allocation();
        let promised = record.resiliency.failures() + 1;
        let status = SpaceStatus {
            allocated_bytes: rows * space.striping.row_size(),
            room_bytes: core.room(&space),
            unallocated_bytes: all.saturating_sub(rows) * space.striping.row_size(),
            taken_bytes: 0,
            copies_now: promised,
            copies_promised: promised,
            degraded_bytes: 0,
            unavailable_bytes: 0,
            repair_bytes: 0,
            without_room_bytes: 0,
            closed: None,
            record,
        };
        spaces.insert(space.id(), status);
    }
    for (id, closed) in &*core.closed.read() {
        let record = closed.space.record();
        let allocated = closed.space.allocation().0 * closed.space.striping.row_size();
        let status = SpaceStatus {
            allocated_bytes: allocated,
            room_bytes: 0,
            unallocated_bytes: 0,
            taken_bytes: 0,
            copies_now: 0,
            copies_promised: record.resiliency.failures() + 1,
            degraded_bytes: allocated,
            unavailable_bytes: allocated,
            repair_bytes: 0,
            without_room_bytes: 0,
            closed: Some(closed.why.clone()),
            record,
        };
        spaces.insert(*id, status);
    }
    spaces
}

/// Takes from what the spaces have what their columns lack. The bytes that each disk lacks, and those that are not settled.
fn look_at_columns(
    core: &Core,
    disks: &BTreeMap<DiskId, DiskRecord>,
    spaces: &mut BTreeMap<SpaceId, SpaceStatus>,
) -> (BTreeMap<DiskId, u64>, u64) {
    let mut stale: BTreeMap<DiskId, u64> = BTreeMap::new();
    let mut unsettled_bytes = 0;
    let without_room = core.exchanges.without_room.lock().clone();
    core.for_each_column(|space, place, row| {
        let region = space.striping.region_size();
        let Some(status) = spaces.get_mut(&place.space) else { return };
        let group = row.group(place.column);
        // Of a single copy nothing can differ; its checksums are made anew when its disk is here.
        if row.lead(place.column) == place.column && row.shape.failures() > 0 {
            unsettled_bytes += u64::from(group.unsettled.load(Ordering::Acquire).count_ones()) * region;
        }
        let copies = row.column(place.column).copies();
        status.taken_bytes += copies.len() as u64 * core.slab_size;
        let balances = copies.iter().any(|copy| copy.moves_for() == Some(Purpose::Balance));
        let mut good_per_region = [0usize; 64];
        for copy in copies.iter() {
            let lacks = copy.stale.load(Ordering::Acquire);
            *stale.entry(copy.id()).or_default() += u64::from(lacks.count_ones()) * region;
            let leaving = disks.get(&copy.id()).is_none_or(|disk| disk.usage == DiskUse::Retired);
            if copy.disk.is_online() {
                // A copy that is made for balance is no repair, and to a disk that is full nothing can be copied.
                let owed = if balances || copy.disk.full_for().is_some() { 0 } else { lacks };
                status.repair_bytes += u64::from(owed.count_ones()) * region;
                for (bit, good) in good_per_region.iter_mut().enumerate() {
                    *good += usize::from(lacks & (1 << bit) == 0 && !leaving);
                }
            }
            if leaving && copies.len() <= row.shape.copies {
                let waits = without_room.contains(&place);
                *(if waits { &mut status.without_room_bytes } else { &mut status.repair_bytes }) +=
                    64 * region;
            }
        }
        // What parity makes up for counts as so many copies: promised are one more than disks may be lost.
        let made_up = others_lost(row, place.column);
        for (bit, good) in good_per_region.into_iter().enumerate() {
            let spare = row.shape.parity.saturating_sub(made_up[bit]);
            let copies = if row.shape.parity > 0 { good.min(1) + spare } else { good };
            // The journal's copies are not the space's, but its writes need one of them.
            let promised = row.shape.failures() + 1;
            status.copies_now = status.copies_now.min(copies);
            status.degraded_bytes += if copies < promised { region } else { 0 };
            status.unavailable_bytes += if copies == 0 { region } else { 0 };
        }
    });
    (stale, unsettled_bytes)
}

/// What a disk is and does; `stale`: the bytes that each lacks.
fn disk_status(core: &Core, record: DiskRecord, stale: &BTreeMap<DiskId, u64>) -> DiskStatus {
    let (free_slabs, slabs) = core.slabs.lock().count(record.id);
    let disk = core.disk(record.id);
    let stale_bytes = stale.get(&record.id).copied().unwrap_or(0);
    let count = |counter: fn(&PoolDisk) -> u64| disk.as_deref().map_or(0, counter);
    DiskStatus {
        online: disk.as_ref().is_some_and(|disk| disk.is_online()),
        why_offline: disk.as_ref().map(|disk| disk.why_offline()).unwrap_or_default(),
        went_back: disk.as_ref().and_then(|disk| {
            let back = *disk.went_back.lock();
            back.filter(|_| stale_bytes > 0).map(|back| back.to_string())
        }),
        lacks_metadata: record.metadata
            && disk.as_ref().is_none_or(|disk| !disk.log_whole.load(Ordering::Relaxed)),
        used_slabs: slabs - free_slabs,
        read_errors: count(|disk| disk.read_errors.load(Ordering::Relaxed)),
        write_errors: count(|disk| disk.write_errors.load(Ordering::Relaxed)),
        checksum_errors: count(|disk| disk.checksum_errors.load(Ordering::Relaxed)),
        healed_blocks: count(|disk| disk.healed.load(Ordering::Relaxed)),
        stale_bytes,
        slowness: disk.as_ref().map(|disk| disk.window.lock().slowness).unwrap_or_default(),
        full_for: disk.as_ref().and_then(|disk| disk.full_for()),
        record,
    }
}

/// For each region how many of the other columns of a row with parity cannot be read.
fn others_lost(row: &Row, column: u8) -> [usize; 64] {
    let mut lost = [0; 64];
    if row.shape.parity > 0 {
        let others = row.columns.iter().enumerate().filter(|(index, _)| *index != usize::from(column));
        for good in others.map(|(_, other)| other.good()) {
            lost.iter_mut().enumerate().for_each(|(bit, lost)| *lost += usize::from(good & (1 << bit) == 0));
        }
    }
    lost
}

impl Inspect for Pool {
    fn inspect(&self) -> serde_json::Value {
        let status = self.status();
        let (metadata_bytes, metadata_room) = self.core.metadata_use();
        json!({
            "name": self.name(), "guid": self.guid().to_string(), "epoch": status.epoch.0,
            "stopped": status.stopped, "slab_size_bytes": self.slab_size(),
            "capacity_bytes": status.capacity, "free_bytes": status.free,
            "reserved_bytes": status.reserved,
            "metadata_bytes": metadata_bytes, "metadata_room_bytes": metadata_room,
            "metadata_commits": self.core.meta.commits(), "copied_bytes": status.copied_bytes,
            "disks": status.disks.iter().map(|disk| json!({
                "id": disk.record.id.0, "online": disk.online, "why_offline": disk.why_offline,
                "used_slabs": disk.used_slabs, "stale_bytes": disk.stale_bytes, "went_back": disk.went_back,
                "read_errors": disk.read_errors, "write_errors": disk.write_errors,
                "checksum_errors": disk.checksum_errors, "healed_blocks": disk.healed_blocks,
            })).collect::<Vec<_>>(),
            "spaces": self.spaces().iter().map(|space| json!({
                "name": space.name(), "io": space.stats().inspect(),
            })).collect::<Vec<_>>(),
        })
    }
}
