//! Making copies equal again: after a crash, when a disk returns, and when a block could not be read.
//!
//! All of it works region by region under the region's range lock, so that clients wait for one region at the
//! most, and goes on where it stopped: what is left to do is in the masks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockError, BlockErrorKind, Durability};
use pool_format::{Change, REGIONS};
use pool_layout::Piece;

use crate::core::Core;
use crate::row::{Column, CopyState, Place};
use crate::space::Space;
use crate::write::flush_disks;

/// Bits of a mask, lowest first.
fn bits(mask: u64) -> impl Iterator<Item = u32> {
    (0..REGIONS).filter(move |bit| mask & (1 << bit) != 0)
}

/// Brings a column as far as the disks that are here allow. Returns the bytes copied.
pub(crate) async fn bring_up_to_date(
    core: &Core,
    space: &Space,
    place: Place,
    column: &Column,
) -> Result<u64, BlockError> {
    let mut copied = 0;
    for region in bits(column.unsettled.load(Ordering::Acquire)) {
        copied += settle(core, space, place, column, region).await?;
    }
    let copies = column.copies();
    for copy in copies.iter().filter(|copy| copy.disk.is_online()) {
        let stale = copy.stale.load(Ordering::Acquire);
        let mut caught_up = 0;
        for region in bits(stale) {
            if core.params.read().paused || !copy.disk.is_online() {
                break;
            }
            if catch_up(core, space, column, copy, region).await? {
                caught_up |= 1 << region;
                copied += space.striping.region_size();
                throttle(core, space.striping.region_size()).await;
            }
        }
        if caught_up != 0 {
            clear_stale(core, place, column, copy, caught_up).await?;
        }
    }
    Ok(copied)
}

/// After a crash the copies of a dirty region may differ: takes the first good one as the truth.
async fn settle(
    core: &Core,
    space: &Space,
    place: Place,
    column: &Column,
    region: u32,
) -> Result<u64, BlockError> {
    let size = space.striping.region_size();
    let (offset, mask) = (u64::from(region) * size, 1u64 << region);
    let _range = column.locks.lock(offset, size).await;
    let copies = column.copies();
    let Some((source, data)) = read_good(&copies, offset, size, mask, None).await else { return Ok(0) };
    let others = copies.iter().filter(|copy| !Arc::ptr_eq(copy, &source));
    let mut copied = 0;
    let mut equal = true;
    for copy in others {
        if copy.stale.load(Ordering::Acquire) & mask != 0 {
            continue;
        }
        match copy.disk.write(copy.start + offset, data.clone(), Durability::Durable).await {
            Ok(()) => copied += size,
            // Missing or failing: what it holds in this region is not what clients have been shown.
            Err(_) => equal &= core.mark_stale(place, column, copy, mask).await?,
        }
    }
    if equal {
        column.unsettled.fetch_and(!mask, Ordering::AcqRel);
    }
    core.copied_bytes.fetch_add(copied, Ordering::Relaxed);
    throttle(core, copied).await;
    Ok(copied)
}

/// Copies a region to a copy that is behind. Writes go to it again as soon as the lock is free.
async fn catch_up(
    core: &Core,
    space: &Space,
    column: &Column,
    copy: &Arc<CopyState>,
    region: u32,
) -> Result<bool, BlockError> {
    let size = space.striping.region_size();
    let (offset, mask) = (u64::from(region) * size, 1u64 << region);
    let _range = column.locks.lock(offset, size).await;
    let copies = column.copies();
    let Some((_, data)) = read_good(&copies, offset, size, mask, Some(copy)).await else { return Ok(false) };
    if copy.disk.write(copy.start + offset, data, Durability::Durable).await.is_err() {
        return Ok(false);
    }
    copy.stale.fetch_and(!mask, Ordering::AcqRel);
    core.copied_bytes.fetch_add(size, Ordering::Relaxed);
    Ok(true)
}

/// Tells the metadata that a copy has caught up, except where a write has failed on it since.
async fn clear_stale(
    core: &Core,
    place: Place,
    column: &Column,
    copy: &CopyState,
    mask: u64,
) -> Result<(), BlockError> {
    let commit = {
        let _order = column.order.lock();
        let mask = mask & !copy.stale.load(Ordering::Acquire);
        copy.stale_durable.fetch_and(!mask, Ordering::AcqRel);
        let Place { space, row, column } = place;
        core.meta.submit(vec![Change::ClearStale { space, row, column, disk: copy.id(), mask }])
    };
    Ok(commit.done().await?)
}

async fn read_good(
    copies: &[Arc<CopyState>],
    offset: u64,
    len: u64,
    mask: u64,
    except: Option<&Arc<CopyState>>,
) -> Option<(Arc<CopyState>, SharedBuf)> {
    for copy in copies {
        if !copy.is_good(mask) || except.is_some_and(|except| Arc::ptr_eq(copy, except)) {
            continue;
        }
        if let Ok(data) = copy.disk.read(copy.start + offset, IoBuf::new(len as usize)).await {
            return Some((Arc::clone(copy), data.freeze()));
        }
    }
    None
}

/// Rewrites a piece on good copies that cannot read it, from one that can.
pub(crate) async fn heal(space: &Space, column: &Column, piece: Piece) {
    let mask = space.striping.regions(piece.offset, piece.len);
    let _range = column.locks.lock(piece.offset, piece.len).await;
    let copies = column.copies();
    let mut good: Option<SharedBuf> = None;
    let mut bad = Vec::new();
    for copy in copies.iter().filter(|copy| copy.is_good(mask)) {
        match copy.disk.read(copy.start + piece.offset, IoBuf::new(piece.len as usize)).await {
            Ok(data) => good = Some(data.freeze()),
            Err(error) if error.kind() == BlockErrorKind::Gone => {}
            Err(_) => bad.push(copy),
        }
    }
    let Some(data) = good else { return };
    for copy in bad {
        // On failure the disk goes offline, and its copy is known to lack what is written next.
        if copy.disk.write(copy.start + piece.offset, data.clone(), Durability::Durable).await.is_ok() {
            copy.disk.healed.fetch_add(piece.len / pool_format::BLOCK, Ordering::Relaxed);
        }
    }
}

/// Sleeps as long as `bytes` may take at the permitted rate.
async fn throttle(core: &Core, bytes: u64) {
    let rate = core.params.read().bytes_per_second;
    if rate > 0 && bytes > 0 {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        shard_runtime::sleep(std::time::Duration::from_nanos(nanos.min(u128::from(u64::MAX)) as u64)).await;
    }
}

/// Calls regions clean that have not been written for a while and whose copies are durably equal.
///
/// The steps and why a write in between is safe: the regions leave `dirty_durable` (a later write finds them
/// missing), writes that had looked before are counted in `writing` (then the regions go back), the disks are
/// flushed, and what no write has taken back is submitted as clean, before any later `Dirty` of it.
pub(crate) async fn clean(core: &Arc<Core>, everything: bool) -> Result<(), BlockError> {
    let mut places = Vec::new();
    core.for_each_column(|space, place, column| {
        let touched = column.touched.swap(0, Ordering::AcqRel);
        let recent = if everything { 0 } else { touched };
        let quiet = !recent & !column.unsettled.load(Ordering::Acquire);
        let mut order = column.order.lock();
        let dirty = column.dirty_durable.load(Ordering::SeqCst) & quiet;
        let volatile = column.volatile.load(Ordering::SeqCst) & !recent;
        if dirty | volatile == 0 {
            return;
        }
        column.dirty_durable.fetch_and(!dirty, Ordering::SeqCst);
        column.volatile.fetch_and(!volatile, Ordering::SeqCst);
        if column.writing.load(Ordering::SeqCst) > 0 {
            column.dirty_durable.fetch_or(dirty, Ordering::SeqCst);
            column.volatile.fetch_or(volatile, Ordering::SeqCst);
            return;
        }
        order.cleaning |= dirty;
        order.cleaning_volatile |= volatile;
        places.push((Arc::clone(space), place));
    });
    if places.is_empty() {
        return Ok(());
    }
    let flushed = flush_disks(core).await;
    let mut commits = Vec::new();
    for (space, place) in places {
        let Some(row) = space.row(place.row) else { continue };
        let column = &row.columns[usize::from(place.column)];
        let mut order = column.order.lock();
        let taken = std::mem::take(&mut order.cleaning);
        let volatile = std::mem::take(&mut order.cleaning_volatile);
        if flushed.is_err() || column.copies().iter().any(|copy| !copy.disk.is_online()) {
            column.volatile.fetch_or(volatile, Ordering::SeqCst);
        }
        let equal = column.copies().iter().fold(taken, |mask, copy| {
            let known = copy.stale_durable.load(Ordering::Acquire);
            if copy.disk.is_online() { mask } else { mask & known }
        });
        let equal = if flushed.is_ok() { equal } else { 0 };
        column.dirty_durable.fetch_or(taken & !equal, Ordering::SeqCst);
        if equal != 0 {
            let Place { space, row, column } = place;
            commits.push(core.meta.submit(vec![Change::Clean { space, row, column, mask: equal }]));
        }
    }
    for commit in commits {
        commit.done().await?;
    }
    flushed
}
