//! Disks that go back in time: a virtual disk that was rolled back, an image that was restored, an old disk plugged in again.
//!
//! ```text
//!   superblock of the disk:  mark (epoch, change) ──── written first, durably
//!   metadata of the pool:    the mark that the disk must carry at least ──── after that
//! ```
//! A disk that was merely away carries its mark, and the metadata knows what it missed. One that carries less than the metadata
//! says has been written since, and lacks that: it has gone back. Its metadata has no vote, all its copies are marked stale before
//! anything is read from them, and they are made anew from the others. Where nothing else has what they hold, the loss has to be accepted.
//!
//! Marks are renewed at each opening and at a clean close, when a disk joins or returns, when the pool has become clean after
//! writes, and every minute while there are any. So what goes unnoticed is a copy of a disk that is younger than the last of these.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block_device::BlockError;
use pool_format::{Change, DiskId, Epoch, Guid, JOURNAL_ROW, Mark, PoolState, REGIONS};
use shard_runtime::Monotonic;

use crate::core::{Core, caught_up};
use crate::disk::PoolDisk;
use crate::error::{PoolError, PoolErrorKind};
use crate::open::{self, Member, Probe};
use crate::ownership::Ownership;
use crate::row::{Place, Row};
use crate::went_back::WentBack;

/// How often marks are renewed while the pool is written to.
const RENEW_EVERY: Duration = Duration::from_secs(60);
/// Ranges that a message names.
const TOLD: usize = 4;

/// A part of a space that nothing but disks that have gone back holds.
pub(crate) struct Loss {
    space: String,
    place: Place,
    regions: u64,
}

/// Calls everything stale on disks that have gone back, as far as something else has it. What is left they are believed in:
/// the youngest of them, and as after a crash.
pub(crate) fn distrust(state: &mut PoolState, back: &BTreeMap<DiskId, WentBack>) -> Vec<Loss> {
    let mut losses = Vec::new();
    let PoolState { rows, spaces, .. } = state;
    for ((id, number), row) in rows.iter_mut() {
        let space = spaces.get(id);
        let parity = space.filter(|_| *number != JOURNAL_ROW).map_or(0, |space| space.resiliency.parity());
        let trusted = |column: &pool_format::ColumnRecord| {
            let copies = column.copies.iter().filter(|copy| !back.contains_key(&copy.disk));
            copies.fold(0, |good, copy| good | !copy.stale)
        };
        let kept: Vec<u64> = row.columns.iter().map(trusted).collect();
        let made_up = if parity > 0 { recoverable(kept.iter().copied(), usize::from(parity)) } else { 0 };
        let mut doubtful = 0;
        for (index, column) in row.columns.iter_mut().enumerate() {
            let gone = !(kept[index] | made_up);
            let mut believed = 0;
            let mut copies: Vec<_> =
                column.copies.iter_mut().filter_map(|copy| Some((back.get(&copy.disk)?.has, copy))).collect();
            copies.sort_by_key(|(has, _)| std::cmp::Reverse(*has));
            for (_, copy) in copies {
                let only_here = gone & !copy.stale & !believed;
                believed |= only_here;
                copy.stale |= !only_here;
            }
            if believed != 0 {
                let place = Place { space: *id, row: *number, column: index as u8 };
                let space = space.map_or_else(|| id.to_string(), |space| space.name.clone());
                losses.push(Loss { space, place, regions: believed });
            }
            if parity == 0 {
                column.dirty |= believed;
            }
            doubtful |= believed;
        }
        // Of a row with parity the first column's mark is that of all.
        if parity > 0
            && let Some(lead) = row.columns.first_mut()
        {
            lead.dirty |= doubtful;
        }
    }
    losses
}

/// Regions in which no more columns than `parity` lack what they should hold.
fn recoverable(columns: impl Iterator<Item = u64>, parity: usize) -> u64 {
    let mut lost = [0usize; REGIONS as usize];
    for good in columns {
        lost.iter_mut().enumerate().for_each(|(bit, lost)| *lost += usize::from(good & (1 << bit) == 0));
    }
    lost.iter().enumerate().fold(0, |mask, (bit, lost)| mask | u64::from(*lost <= parity) << bit)
}

/// The refusal to give up what only disks that have gone back hold.
pub(crate) fn refused(pool: &str, back: &BTreeMap<DiskId, WentBack>, losses: &[Loss]) -> PoolError {
    let disks: Vec<String> = back.iter().map(|(disk, back)| format!("disk {disk}: {back}")).collect();
    let told = losses.iter().take(TOLD).map(|loss| {
        let Place { row, column, .. } = loss.place;
        format!("space {} row {row} column {column} regions {:#x}", loss.space, loss.regions)
    });
    let mut told: Vec<String> = told.collect();
    if losses.len() > TOLD {
        told.push(format!("and {} more", losses.len() - TOLD));
    }
    let detail = format!(
        "pool {pool}: nothing else holds what was written later to {} ({}); attach the disks that do, or accept that it is lost",
        told.join(", "),
        disks.join("; ")
    );
    PoolError::new(PoolErrorKind::NoQuorum, detail)
}

/// Writes the superblocks of the disks that are believed: from now on whoever had the pool open before can see that it is no
/// longer the owner. Which disks carry which mark now.
pub(crate) async fn claim(
    probes: &mut [Probe],
    members: &BTreeMap<DiskId, Member>,
    back: &BTreeMap<DiskId, WentBack>,
    mark: Mark,
    ownership: &Ownership,
) -> BTreeMap<DiskId, Mark> {
    let mut claimed = BTreeMap::new();
    for (id, member) in members.iter().filter(|(id, _)| !back.contains_key(id)) {
        let is = |probe: &&mut Probe| probe.is_same(&member.probe);
        let Some(probe) = probes.iter_mut().find(is) else { continue };
        if sign(probe, mark, ownership).await {
            claimed.insert(*id, mark);
        }
    }
    claimed
}

/// Writes a mark to a disk. One that fails is found offline at its next use.
pub(crate) async fn sign(probe: &mut Probe, mark: Mark, ownership: &Ownership) -> bool {
    let mut superblock = probe.superblock.clone();
    (superblock.epoch, superblock.seq) = (mark.epoch, mark.seq);
    let written = open::write_superblock(&probe.device, &superblock).await;
    ownership.hear(superblock.disk_id, &written);
    match written {
        Ok(()) => {
            probe.superblock = superblock;
            true
        }
        Err(error) => {
            tracing::warn!("the superblock of disk {} cannot be written: {error}", superblock.disk_id);
            false
        }
    }
}

/// Every column of the pool, also of spaces that are closed.
fn for_each_column_of_all(core: &Core, mut visit: impl FnMut(&str, Place, &Arc<Row>)) {
    let mut spaces = core.all_spaces();
    spaces.extend(core.closed.read().values().map(|closed| Arc::clone(&closed.space)));
    for space in spaces {
        let name = space.name();
        for (number, row) in space.rows() {
            for column in 0..row.columns.len() as u8 {
                visit(&name, Place { space: space.id(), row: number, column }, &row);
            }
        }
    }
}

/// Calls everything stale on a disk that comes back to an open pool and has gone back in time, durably. Nothing of it may be
/// read yet.
pub(crate) async fn distrust_returning(
    core: &Core,
    disk: &PoolDisk,
    back: WentBack,
) -> Result<(), PoolError> {
    let mut losses = Vec::new();
    let mut commits = Vec::new();
    let mut marked = Vec::new();
    for marking in [false, true] {
        for_each_column_of_all(core, |name, place, row| {
            let copies = row.column(place.column).copies();
            let Some(copy) = copies.iter().find(|copy| copy.id() == disk.id) else { return };
            let _order = row.group(place.column).order.lock();
            let only_here =
                !copy.stale.load(Ordering::Acquire) & !row.recorded_without(place.column, disk.id);
            if only_here != 0 {
                losses.push(Loss { space: name.to_owned(), place, regions: only_here });
            } else if marking {
                copy.stale.store(u64::MAX, Ordering::Release);
                let mut changes = caught_up(place, row);
                let Place { space, row, column } = place;
                changes.push(Change::MarkStale { space, row, column, disk: disk.id, mask: u64::MAX });
                commits.push(core.meta.submit(changes));
                marked.push(Arc::clone(copy));
            }
        });
        if !losses.is_empty() {
            break;
        }
    }
    for commit in commits {
        commit.done().await?;
    }
    for copy in marked {
        copy.stale_durable.store(u64::MAX, Ordering::Release);
    }
    if losses.is_empty() {
        return Ok(());
    }
    Err(refused(&core.name, &BTreeMap::from([(disk.id, back)]), &losses))
}

/// Renews the marks of all disks that are here.
pub(crate) async fn renew(core: &Core) -> Result<(), BlockError> {
    let _one = core.marking.lock().await;
    let mark = Mark { epoch: core.meta.epoch(), seq: core.meta.seq() };
    let mut changes = Vec::new();
    for disk in core.all_disks().iter().filter(|disk| disk.is_online()) {
        disk.changed.store(false, Ordering::Release);
        let mut superblock = disk.layout.read().clone();
        (superblock.epoch, superblock.seq) = (mark.epoch, mark.seq);
        // A disk that fails here is offline now, or full and tried again.
        if disk.write_superblock(&superblock).await.is_ok() {
            *disk.layout.write() = superblock;
            changes.push(Change::Mark { disk: disk.id, mark });
        }
    }
    Ok(core.meta.commit(changes).await?)
}

/// When marks were renewed last.
pub(crate) struct Renewals {
    at: Monotonic,
    commits: u64,
}

impl Renewals {
    pub(crate) fn new(core: &Core) -> Self {
        Self { at: core.clock.now(), commits: core.meta.commits() }
    }

    /// Renews the marks if it is time to.
    pub(crate) async fn go_on(&mut self, core: &Core) -> Result<(), BlockError> {
        let disks = core.all_disks();
        let changed = |disk: &Arc<PoolDisk>| disk.is_online() && disk.changed.load(Ordering::Acquire);
        // A disk that was full may have one of its superblocks torn.
        let unsigned = |disk: &Arc<PoolDisk>| disk.has_room() && disk.unsigned.load(Ordering::Acquire);
        let now = core.clock.now();
        if !disks.iter().any(unsigned) {
            if core.meta.commits() == self.commits && !disks.iter().any(changed) {
                return Ok(());
            }
            if now.since(self.at) < RENEW_EVERY && !is_clean(core) {
                return Ok(());
            }
        }
        renew(core).await?;
        *self = Self { at: now, commits: core.meta.commits() };
        Ok(())
    }
}

/// Whether no write is waiting to be called clean.
fn is_clean(core: &Core) -> bool {
    let mut clean = true;
    core.for_each_column(|_, place, row| {
        clean &= row.group(place.column).dirty_durable.load(Ordering::SeqCst) == 0;
    });
    clean
}

/// The epoch of an opening: above all that any disk has seen, also one whose opening was cut short.
pub(crate) fn next_epoch(pool: Guid, known: Epoch, probes: &[Probe]) -> Epoch {
    let members = probes.iter().filter(|probe| probe.superblock.pool == pool);
    let seen = members.map(|probe| probe.superblock.epoch).max().unwrap_or_default();
    Epoch(known.max(seen).0.saturating_add(1))
}
