//! The parts of a write to a space (its life is told in [`crate::space`]): dirty marks, copies, acknowledgement.

use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::SharedBuf;
use block_device::{BlockError, BlockErrorKind, Durability};
use futures_util::future::join_all;
use pool_format::{Change, Checksum, REGIONS};
use pool_layout::Piece;

use crate::at::At;
use crate::core::Core;
use crate::dirty;
use crate::row::{Copies, Place};
use crate::sums::{Page, page_at, renew};

/// What a write does to its range.
#[derive(Clone)]
pub(crate) enum Edit {
    Data(SharedBuf),
    Zero { unmap: bool },
}

impl Edit {
    /// What it does to a part of its range.
    pub(crate) fn part(&self, at: u64, len: u64) -> Self {
        match self {
            Self::Data(data) => Self::Data(data.slice(at as usize..(at + len) as usize)),
            Self::Zero { unmap } => Self::Zero { unmap: *unmap },
        }
    }

    /// The bytes that it writes, unless they are zeros.
    pub(crate) fn data(&self) -> Option<&SharedBuf> {
        match self {
            Self::Data(data) => Some(data),
            Self::Zero { .. } => None,
        }
    }

    /// Whether it and `next` can be one request where they follow each other.
    pub(crate) fn goes_with(&self, next: &Self) -> bool {
        match (self, next) {
            (Self::Data(_), Self::Data(_)) => true,
            (Self::Zero { unmap }, Self::Zero { unmap: next }) => unmap == next,
            _ => false,
        }
    }

    /// The checksums of `blocks` blocks of it.
    pub(crate) fn sums(&self, checksum: Checksum, blocks: u64) -> Vec<u32> {
        match self {
            Self::Data(data) => checksum.of_each(data),
            Self::Zero { .. } => vec![checksum.of_zeros(); blocks as usize],
        }
    }

    fn tell(&self, page: &Page, offset: u64, len: u64) {
        match self {
            Self::Data(data) => page.learn_all(offset, data),
            Self::Zero { .. } => page.learn_zeros(offset, len),
        }
    }
}

/// Changes a part of a column that no parity depends on, on all its copies.
pub(crate) async fn change_piece(
    at: At<'_>,
    piece: Piece,
    change: Edit,
    durability: Durability,
) -> Result<(), BlockError> {
    let group = at.group();
    let mask = at.regions(piece.offset, piece.len);
    let _range = group.locks.lock(piece.offset, piece.len).await;
    let _count = group.begin_write();
    // Looked at under the lock: whoever changes the list takes the whole group's lock afterwards.
    let copies = at.column().copies();
    let page = page_at(at, piece.offset).await;
    if group.marks || copies.len() > 1 {
        ensure_dirty_for_write(at, piece.offset, mask).await?;
    } else if durability == Durability::Volatile {
        group.mark_volatile(mask);
    }
    group.touched.fetch_or(mask, Ordering::AcqRel);
    let written = write_copies(&copies, (piece.offset, piece.len), mask, from_ref(&change), durability).await;
    acknowledge(at, &copies, mask, written).await?;
    if let Some(page) = page {
        renew(at, &page, piece.offset, piece.len).await;
        change.tell(&page, piece.offset, piece.len);
    }
    Ok(())
}

/// Regions that one commit calls dirty before a sequential write comes to them: it would wait for one at each.
pub(crate) const REGIONS_AHEAD: u32 = 7;

/// Where a sequential write to a region will come to next. It is taken for one when it begins a region, and the one before is among
/// those that are `marked`. When as many regions as one commit marks are marked before it, it is likely to go on to the end of the slab.
fn regions_ahead(region: u32, marked: u64) -> u64 {
    let before = if region == 0 { 0 } else { (marked << (REGIONS - region)).leading_ones() };
    match before {
        0 => 0,
        1..=REGIONS_AHEAD => ((1 << REGIONS_AHEAD) - 1) << region << 1,
        _ => u64::MAX << region << 1,
    }
}

/// Makes sure that the metadata calls the regions dirty before a client's write from `offset`.
pub(crate) async fn ensure_dirty_for_write(at: At<'_>, offset: u64, mask: u64) -> Result<(), BlockError> {
    if at.group().dirty_durable.load(Ordering::SeqCst) & mask == mask {
        return Ok(());
    }
    let size = at.space.striping.region_size();
    let (region, begins) = ((offset / size) as u32, offset.is_multiple_of(size));
    let ahead = |marked: u64| {
        let in_order = if begins { regions_ahead(region, marked) } else { 0 };
        in_order & dirty::ahead(at.core, region) | dirty::neighbours(at.core, mask, marked)
    };
    // What is marked ahead has as long to be written as what is written.
    let marked = mark(at, mask, ahead).await?;
    at.group().touched.fetch_or(marked, Ordering::AcqRel);
    Ok(())
}

/// Makes sure that the metadata calls the regions dirty before they are written, other than by a client: they become clean soon.
pub(crate) async fn ensure_dirty(at: At<'_>, mask: u64) -> Result<(), BlockError> {
    let marked = mark(at, mask, |_| 0).await;
    at.group().soon.fetch_or(mask, Ordering::AcqRel);
    marked.map(|_| ())
}

/// Calls `mask` dirty, and if that takes a commit, with it what `ahead` says of the regions that are marked already. Which regions it
/// has marked. A region whose mark is on its way is waited for, and not marked again.
async fn mark(at: At<'_>, mask: u64, ahead: impl FnOnce(u64) -> u64) -> Result<u64, BlockError> {
    let (core, group) = (at.core, at.group());
    if group.dirty_durable.load(Ordering::SeqCst) & mask == mask
        || core.faults.skip_dirty_mark.load(Ordering::Relaxed)
    {
        return Ok(0);
    }
    // Nothing of it is cleaned before what is durable is noted in `dirty_durable`.
    let _count = group.begin_write();
    let (mine, commit) = {
        let mut order = group.order.lock();
        let back = order.cleaning & mask;
        order.cleaning &= !mask;
        group.dirty_durable.fetch_or(back, Ordering::SeqCst);
        let marked = group.dirty_durable.load(Ordering::SeqCst) | order.marking;
        let need = mask & !group.dirty_durable.load(Ordering::SeqCst);
        if need == 0 {
            return Ok(0);
        }
        let asked = need & !order.marking;
        // What is being cleaned is no business of ours, as long as nobody writes to it.
        let mine = if asked == 0 { 0 } else { asked | (ahead(marked) & !marked & !order.cleaning) };
        order.marking |= mine;
        let Place { space, row, column } = at.lead();
        let dirty = (mine != 0).then_some(Change::Dirty { space, row, column, mask: mine });
        // Without a change of its own it is told when those before it are durable, the other's mark among them.
        (mine, core.meta.submit(dirty.into_iter().collect()))
    };
    if mine != 0 {
        dirty::count_mark(at, mine);
    }
    if !core.faults.skip_mark_wait.load(Ordering::Relaxed) {
        commit.done().await?;
    }
    let mut order = group.order.lock();
    let durable = order.marking & (mine | mask);
    order.marking &= !durable;
    group.dirty_durable.fetch_or(durable, Ordering::SeqCst);
    Ok(mine)
}

/// The result of each copy, `None` for those that were left out.
pub(crate) type Written = Vec<Option<Result<(), BlockError>>>;

/// Writes `(offset, length)` of every good copy: one edit, or several of one kind that follow each other there.
pub(crate) async fn write_copies(
    copies: &Copies,
    (offset, len): (u64, u64),
    mask: u64,
    edits: &[Edit],
    durability: Durability,
) -> Written {
    let writes = copies.iter().map(|copy| async {
        if !copy.is_good(mask) {
            return None;
        }
        let at = copy.start + offset;
        Some(match edits {
            [Edit::Data(data)] => copy.disk.write(at, data.clone(), durability).await,
            [Edit::Zero { unmap }, ..] => copy.disk.zero(at, len, *unmap, durability).await,
            parts => {
                let parts = parts.iter().filter_map(Edit::data).cloned();
                copy.disk.write_vectored(at, parts.collect(), durability).await
            }
        })
    });
    join_all(writes).await
}

/// Decides what a write came to: at least one copy has it, and the others are known to lack it.
async fn acknowledge(at: At<'_>, copies: &Copies, mask: u64, written: Written) -> Result<(), BlockError> {
    if written.iter().all(|result| matches!(result, Some(Ok(())))) {
        return Ok(());
    }
    let faults = &at.core.faults;
    if faults.skip_stale_mark.load(Ordering::Relaxed) || faults.pass_for_written(written.iter().flatten()) {
        return Ok(());
    }
    let mut kept = written.iter().any(|result| matches!(result, Some(Ok(()))));
    for (copy, result) in copies.iter().zip(&written) {
        if kept && !matches!(result, Some(Ok(()))) {
            // Not, when the copies that were written have been lost meanwhile.
            kept = at.core.mark_stale(at.place, at.row, copy, mask).await?;
        }
    }
    if !kept && at.group().marks {
        // The write is not acknowledged, but some copies may have it and others not.
        at.group().unsettled.fetch_or(mask, Ordering::AcqRel);
    }
    at.core.attention.notify_one();
    if kept || faults.acknowledge_without_copy.load(Ordering::Relaxed) {
        return Ok(());
    }
    let gone = || BlockError::new(BlockErrorKind::Gone, "write: no good copy is left");
    Err(match written.into_iter().flatten().find_map(Result::err) {
        Some(cause) if cause.kind() == BlockErrorKind::NoSpace => cause,
        // Whatever it says, its disk is not used any more until it comes back.
        Some(cause) => gone().because(cause),
        None => gone(),
    })
}

/// Makes everything that was written to the pool's disks durable, and marks what disks may have lost.
pub(crate) async fn flush_disks(core: &Arc<Core>) -> Result<(), BlockError> {
    if core.faults.skip_flush.load(Ordering::Relaxed) {
        return Ok(());
    }
    let disks = core.all_disks();
    let online = disks.iter().filter(|disk| disk.is_online());
    // A disk that fails to flush goes offline; the marks below and the caller's look at the copies deal with it.
    join_all(online.map(|disk| async move { disk.flush().await })).await;
    for disk in disks.iter().filter(|disk| !disk.is_online()) {
        core.mark_losses(disk).await?;
    }
    Ok(())
}
