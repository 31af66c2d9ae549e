//! Restoring the redundancy of one column: a further copy, filled, and then the one that it replaces given up.
//!
//! A new copy begins as a further copy of its column, stale everywhere; resync fills it; then the copy it
//! replaces is given up. Until then the old copy counts: a lost disk that returns in the meantime can still
//! serve what only it has.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block_device::BlockError;
use pool_format::{Change, CopyRecord, DiskId, DiskUse, MAX_COPIES};

use crate::at::At;
use crate::core::{Core, Space, caught_up};
use crate::resync;
use crate::row::{Column, Copies, CopyState, Place};

fn usage(core: &Core, disk: DiskId) -> Option<DiskUse> {
    core.meta.with_state(|state| state.disks.get(&disk).map(|record| record.usage))
}

/// Whether a copy is to be given up when there is another in its place.
pub(crate) fn is_leaving(core: &Core, copy: &CopyState) -> bool {
    copy.moves_for().is_some() || !matches!(usage(core, copy.id()), Some(DiskUse::Active | DiskUse::Spare))
}

/// What came of the work on a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All that could be done is.
    Done,
    /// It lacks a copy, or has one that leaves, and no disk that may take another has room.
    WaitsForRoom,
}

pub(crate) async fn work_on(core: &Arc<Core>, space: &Space, place: Place) -> Result<Outcome, BlockError> {
    let Some(row) = space.row(place.row).filter(|row| !row.is_given_up()) else { return Ok(Outcome::Done) };
    let at = At::new(core, space, &row, place);
    let column = at.column();
    let wanted = row.shape.copies;
    let copies = column.copies();
    if copies.iter().any(|copy| !copy.disk.is_online()) {
        // No time for balance.
        copies.iter().for_each(|copy| copy.set_moving(None));
    }
    drop(copies);
    // What a crash has left of a move is not worth catching up.
    give_up_surplus(at).await?;
    let mut outcome = Outcome::Done;
    let copies = column.copies();
    let staying = copies.iter().filter(|copy| !is_leaving(core, copy)).count();
    if !core.params.read().paused && staying < wanted && copies.len() < MAX_COPIES {
        // Other columns of the row look for disks too: what is free for one is not for the next.
        let _one = core.adding.lock().await;
        let in_row: Vec<DiskId> = row
            .columns
            .iter()
            .flat_map(|column| column.copies().iter().map(|copy| copy.id()).collect::<Vec<_>>())
            .collect();
        let here = |copies: &Copies| -> Vec<DiskId> {
            copies.iter().filter(|copy| !is_leaving(core, copy)).map(|copy| copy.id()).collect()
        };
        // Those that stand in for it: with parity, the whole row.
        let peers = match row.shape.parity {
            0 => here(&copies),
            _ => row.columns.iter().flat_map(|column| here(&column.copies())).collect(),
        };
        match core.take_copy_slab(row.shape.sums_pages > 0, &in_row, &peers) {
            Some(record) => add_copy(core, place, column, record).await?,
            None => {
                tracing::debug!("no disk has room for a new copy of row {} of {}", place.row, space.name());
                outcome = Outcome::WaitsForRoom;
            }
        }
    }
    // Held on, it would keep `remove_copy` waiting for ever.
    drop(copies);
    resync::bring_up_to_date(at).await?;
    give_up_surplus(at).await?;
    Ok(outcome)
}

/// Gives up a copy that is not needed any more, if there is one.
async fn give_up_surplus(at: At<'_>) -> Result<(), BlockError> {
    let (core, wanted) = (at.core, at.row.shape.copies);
    let copies = at.column().copies();
    let staying = copies.iter().filter(|copy| !is_leaving(core, copy)).count();
    let good = copies.iter().filter(|copy| !is_leaving(core, copy) && copy.is_good(u64::MAX)).count();
    // Two leaving copies of a three-way mirror leave room for one new copy: when that is good, one of them makes
    // room for the other, although there are not as many as wanted yet.
    let crowded = copies.len() >= MAX_COPIES && staying < wanted && good == staying;
    let settled = at.group().unsettled.load(Ordering::Acquire) == 0
        && at.group().forgotten.load(Ordering::Acquire) == 0;
    let mut given_up = None;
    if (good >= wanted && copies.len() > wanted || crowded) && settled {
        given_up = copies
            .iter()
            .find(|copy| is_leaving(core, copy) && !copy.is_good(u64::MAX))
            .or_else(|| copies.iter().find(|copy| is_leaving(core, copy)))
            .or_else(|| copies.iter().rev().find(|copy| !copy.is_good(u64::MAX)).or(copies.last()));
    } else if copies.len() > wanted {
        given_up = copies.iter().find(|copy| has_nothing(core, copy));
        if given_up.is_none() && settled {
            given_up = copies.iter().find(|copy| is_made_up_for(at, &copies, copy));
        }
    }
    if let Some(copy) = given_up.cloned() {
        drop(copies);
        remove_copy(at, &copy).await?;
    }
    Ok(())
}

/// Whether a copy that is one too many has nothing, and nothing is on its way to it: a move to a disk that has gone, or is to leave.
fn has_nothing(core: &Core, copy: &CopyState) -> bool {
    let gone = !copy.disk.is_online() || is_leaving(core, copy);
    gone && copy.stale.load(Ordering::Acquire) == u64::MAX
}

/// Whether a copy that is one too many is on a disk that is away and is not to come back, and all it has can be read without it. As long
/// as another copy that is here is being filled it may yet be needed. A further disk that is away, and may come back, does not
/// count: the one that is replaced would have to wait for it.
fn is_made_up_for(at: At<'_>, copies: &Copies, copy: &CopyState) -> bool {
    let filling = |copy: &Arc<CopyState>| copy.disk.is_online() && !copy.is_good(u64::MAX);
    if copy.disk.is_online() || !is_leaving(at.core, copy) || copies.iter().any(filling) {
        return false;
    }
    let held = !copy.stale.load(Ordering::Acquire);
    at.row.covered_without(at.place.column, copy.id(), held) == held
}

pub(crate) async fn add_copy(
    core: &Arc<Core>,
    place: Place,
    column: &Column,
    record: CopyRecord,
) -> Result<(), BlockError> {
    let Some(disk) = core.disk(record.disk) else { return Ok(()) };
    let Place { space, row, column: index } = place;
    let change = Change::AddCopy { space, row, column: index, copy: record };
    if let Err(failed) = core.meta.commit(vec![change]).await {
        core.slabs.lock().give_back(record.disk, record.slab);
        return Err(failed.into());
    }
    let mut copies = column.copies.write();
    *copies = copies.iter().cloned().chain([Arc::new(CopyState::new(&record, disk))]).collect();
    Ok(())
}

/// Gives a copy up. Durable first: a crash in between must not bring the old copy back as a good one. Its slab
/// is free only when no request can touch it any more.
async fn remove_copy(at: At<'_>, copy: &Arc<CopyState>) -> Result<(), BlockError> {
    let (core, column) = (at.core, at.column());
    let Place { space, row, column: index } = at.place;
    let commit = {
        let _order = at.group().order.lock();
        // What the others have must be known before this one is not.
        let mut changes = caught_up(at.place, at.row);
        changes.push(Change::RemoveCopy { space, row, column: index, disk: copy.id() });
        core.meta.submit(changes)
    };
    commit.done().await?;
    let old = {
        let mut copies = column.copies.write();
        let rest: Copies = copies.iter().filter(|present| !Arc::ptr_eq(present, copy)).cloned().collect();
        std::mem::replace(&mut *copies, rest)
    };
    // Writes hold the group's ranges, reads hold the old list.
    drop(at.group().locks.lock(0, core.slab_size).await);
    while Arc::strong_count(&old) > 1 {
        shard_runtime::sleep(Duration::from_millis(1)).await;
    }
    core.slabs.lock().give_back(copy.id(), copy.slab);
    Ok(())
}
