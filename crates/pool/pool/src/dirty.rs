//! Regions are called dirty in the metadata before they are written.

use std::sync::atomic::Ordering;

use block_device::BlockError;
use pool_format::Change;

use crate::at::At;
use crate::row::Place;

/// Regions that one commit calls dirty before a sequential write comes to them: it would wait for one at each.
const REGIONS_AHEAD: u64 = 7;

/// Where a sequential write from `offset` of the column will come to next. It is taken for one when it begins a region, and the
/// one before is dirty or about to be. A crash or a lost disk costs that many regions more at the most: they are settled, with new
/// checksums, or copied, although nothing of them was written.
fn regions_ahead(at: At<'_>, offset: u64) -> u64 {
    let size = at.space.striping.region_size();
    let (region, begins) = (offset / size, offset.is_multiple_of(size));
    let before = region.checked_sub(1).map_or(0, |before| 1 << before);
    let group = at.group();
    let marked = group.dirty_durable.load(Ordering::SeqCst) | group.marking.load(Ordering::Relaxed);
    if !begins || marked & before == 0 {
        return 0;
    }
    ((1 << REGIONS_AHEAD) - 1u64).checked_shl(region as u32 + 1).unwrap_or(0)
}

/// Makes sure that the metadata calls the regions dirty before a client's write from `offset`.
pub(crate) async fn ensure_dirty_for_write(at: At<'_>, offset: u64, mask: u64) -> Result<(), BlockError> {
    if at.group().dirty_durable.load(Ordering::SeqCst) & mask == mask {
        return Ok(());
    }
    ensure_dirty_and_ahead(at, mask, regions_ahead(at, offset)).await
}

/// Makes sure that the metadata calls the regions dirty before they are written.
pub(crate) async fn ensure_dirty(at: At<'_>, mask: u64) -> Result<(), BlockError> {
    ensure_dirty_and_ahead(at, mask, 0).await
}

/// Calls `mask` dirty, and if that takes a commit, `ahead` with it. The caller is counted as a write of the group, so that
/// nothing of it is cleaned meanwhile.
async fn ensure_dirty_and_ahead(at: At<'_>, mask: u64, ahead: u64) -> Result<(), BlockError> {
    let (core, group) = (at.core, at.group());
    if group.dirty_durable.load(Ordering::SeqCst) & mask == mask
        || core.faults.skip_dirty_mark.load(Ordering::Relaxed)
    {
        return Ok(());
    }
    let (mask, commit) = {
        let mut order = group.order.lock();
        let back = order.cleaning & mask;
        order.cleaning &= !mask;
        group.dirty_durable.fetch_or(back, Ordering::SeqCst);
        if group.dirty_durable.load(Ordering::SeqCst) & mask == mask {
            return Ok(());
        }
        let Place { space, row, column } = at.lead();
        // What is being cleaned is no business of ours, as long as nobody writes to it.
        let mask = mask | (ahead & !order.cleaning);
        group.marking.fetch_or(mask, Ordering::Relaxed);
        (mask, core.meta.submit(vec![Change::Dirty { space, row, column, mask }]))
    };
    let done = commit.done().await;
    group.marking.fetch_and(!mask, Ordering::Relaxed);
    done?;
    group.dirty_durable.fetch_or(mask, Ordering::SeqCst);
    Ok(())
}
