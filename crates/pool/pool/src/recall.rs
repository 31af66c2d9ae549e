//! Checksums that are lost of one column of a row with parity, while its data and the others are as they should be: a
//! page on a disk is damaged. (A page of a mirror is on all its copies.)
//!
//! What the column holds need not be believed: the others, which their checksums prove, say what it must be. So a rotten
//! block beside a damaged page is found, and not taken for the truth.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use block_device::BlockError;
use pool_format::BLOCK;
use shard_runtime::finish_anyway;

use crate::at::At;
use crate::careful::{self, Content, from_copies, learn_sums};
use crate::dirty::ensure_dirty;
use crate::row::bits;
use crate::sums::page_at;

/// Regions of a row whose checksums are lost, of these: looks at the pages of all columns that are here.
pub(crate) async fn forgotten(at: At<'_>, regions: u64) -> u64 {
    let size = at.space.striping.region_size();
    for region in bits(regions) {
        load_pages(at, (u64::from(region) * size, size), 1 << region).await;
    }
    at.group().forgotten.load(Ordering::Acquire) & regions
}

/// The columns of the row that are here, with their pages of a region in memory.
async fn load_pages(at: At<'_>, (offset, size): (u64, u64), mask: u64) -> Vec<At<'_>> {
    let columns = (0..at.row.columns.len()).map(|column| at.other(column));
    let here: Vec<At<'_>> = columns.filter(|column| column.column().good() & mask != 0).collect();
    for column in &here {
        for part in (offset..offset + size).step_by(careful::step(at.space) as usize) {
            page_at(*column, part).await;
        }
    }
    here
}

/// Learns the checksums that were lost in regions of a row. The regions where that has to wait: a disk has lost writes, and too
/// much of the rest is not here to tell which.
pub(crate) async fn recall(at: At<'_>, regions: u64) -> Result<u64, BlockError> {
    if regions == 0 {
        return Ok(0);
    }
    let (core, space, row, place) = (Arc::clone(at.core), at.space.this()?, Arc::clone(at.row), at.place);
    // What corrects a block must not be left half-way by a client that goes: the lock would be free while the block is on
    // its way to the disk, and a newer one could come before it.
    finish_anyway(async move {
        let at = At::new(&core, &space, &row, place);
        let mut waiting = 0;
        for region in bits(regions) {
            if !recall_region(at, region).await? {
                waiting |= 1 << region;
            }
        }
        Ok(waiting)
    })
    .await
}

/// Recalls a region; `false` when that has to wait.
///
/// It is not dirty before its data is right, durably: if the power goes then, what its columns hold is believed.
async fn recall_region(at: At<'_>, region: u32) -> Result<bool, BlockError> {
    at.core.check_writable()?;
    let size = at.space.striping.region_size();
    let (offset, mask) = (u64::from(region) * size, 1u64 << region);
    let group = at.group();
    let _range = group.locks.lock(offset, size).await;
    // What is learnt of a region is learnt while the metadata calls it dirty: the cleaner must not come in between.
    let _count = group.begin_write();
    if group.is_unsettled(mask) {
        // A crash or a loss since: what the region holds is made right as a whole.
        group.forgotten.fetch_and(!mask, Ordering::AcqRel);
        return Ok(true);
    }
    let pages = |at: At<'_>| {
        let pages = at.column().sums.iter().flat_map(|sums| sums.loaded(offset, size));
        pages.map(|(_, page)| page).collect::<Vec<_>>()
    };
    let unknown = |at: At<'_>| pages(at).iter().any(|page| page.unknown.load(Ordering::Acquire) & mask != 0);
    let lacks = |at: At<'_>| pages(at).iter().any(|page| page.lacks(mask));
    // All of them, as what proves nothing itself must not be asked for a proof.
    let mut lost = load_pages(at, (offset, size), mask).await;
    let here = lost.len();
    lost.retain(|column| unknown(*column));
    let torn = group.torn.load(Ordering::Acquire) & mask != 0;
    let provable = !torn && at.row.columns.len() - here + lost.len() <= at.row.shape.parity;
    if !provable {
        // Columns that are in doubt prove nothing to each other: what their own pages say is believed.
        lost.retain(|column| !believe_hints(*column, (offset, size), mask));
        if lost.iter().any(|column| lacks(*column))
            && (torn || at.row.columns.len() - here + lost.len() > at.row.shape.parity)
        {
            return Ok(false);
        }
    }
    let mut known = Vec::with_capacity(lost.len());
    for column in &lost {
        // What the others cannot tell must be what its own page says, or where it says nothing, what is there.
        let told = careful::from_others(*column, offset, size).await;
        let mut own = if lacks(*column) {
            as_told(*column, (offset, size), &told).await
        } else {
            from_copies(*column, offset, size, &[], &mut Vec::new()).await
        };
        if !correct(*column, offset, &mut own, &told).await {
            return Ok(false);
        }
        known.push((*column, told, own));
    }
    if known.iter().any(|(column, _, own)| lacks(*column) && !own.is_complete()) {
        return Ok(false);
    }
    if !known.is_empty() {
        // What is learnt must be told of, at the next cleaning.
        ensure_dirty(at, mask).await?;
    }
    for (column, told, own) in known {
        if is_hinted(column, (offset, size), mask) {
            learn_told(column, offset, &told).await;
            believe_hints(column, (offset, size), mask);
        } else if own.is_complete() {
            learn_sums(column, offset, &own.data).await;
        } else {
            // Nobody has it all: as after a crash, when what is missing comes back.
            group.unsettled.fetch_or(mask, Ordering::AcqRel);
        }
    }
    group.forgotten.fetch_and(!mask, Ordering::AcqRel);
    Ok(true)
}

/// What a column's disk has of a region that it has lost writes of: only as far as it is what the others tell.
async fn as_told(at: At<'_>, (offset, size): (u64, u64), told: &Content) -> Content {
    let mut right = Content::nothing(size);
    let copies = at.column().copies();
    let mut found = Vec::new();
    for copy in copies.iter().filter(|copy| copy.is_good(at.regions(offset, size))) {
        match copy.disk.read(copy.start + offset, IoBuf::new(size as usize)).await {
            Ok(data) => found.push(data),
            Err(_) => return right,
        }
    }
    for index in 0..told.have.len() {
        let Some(block) = told.block(index) else { continue };
        let at = index * BLOCK as usize;
        if found.iter().all(|data| data.get(at..at + BLOCK as usize) == Some(block)) {
            right.put(index, block);
        }
    }
    right
}

/// Whether the column's own pages say something of a region whose checksums are not known.
fn is_hinted(at: At<'_>, (offset, size): (u64, u64), mask: u64) -> bool {
    let Some(sums) = &at.column().sums else { return false };
    let pages = sums.loaded(offset, size);
    pages.iter().all(|(_, page)| {
        let unknown = page.unknown.load(Ordering::Acquire) & mask;
        page.hinted.load(Ordering::Acquire) & unknown == unknown
    })
}

/// Takes what the column's own pages say of a region as right; `false` where they say nothing.
fn believe_hints(at: At<'_>, (offset, size): (u64, u64), mask: u64) -> bool {
    let hinted = is_hinted(at, (offset, size), mask);
    if hinted {
        for (_, page) in at.column().sums.iter().flat_map(|sums| sums.loaded(offset, size)) {
            page.unknown.fetch_and(!mask, Ordering::AcqRel);
        }
    }
    hinted
}

/// Learns the checksums of the blocks that the other columns tell of.
async fn learn_told(at: At<'_>, offset: u64, told: &Content) {
    for (index, number) in (0..told.have.len()).zip(offset / BLOCK..) {
        if let (Some(block), Some(page)) = (told.block(index), page_at(at, number * BLOCK).await) {
            page.learn(number, block);
        }
    }
}

/// Puts what the other columns say into what a column holds, on its disk too; `false` when that fails.
async fn correct(at: At<'_>, offset: u64, own: &mut Content, told: &Content) -> bool {
    for index in 0..own.have.len() {
        let Some(right) = told.block(index).filter(|right| own.block(index) != Some(*right)) else {
            continue;
        };
        let right = right.to_vec();
        let start = offset + index as u64 * BLOCK;
        let copies = at.column().copies();
        let mask = at.regions(start, BLOCK);
        for copy in copies.iter().filter(|copy| copy.is_good(mask)) {
            copy.disk.checksum_errors.fetch_add(1, Ordering::Relaxed);
            if !careful::rewrite(copy, start, &right).await {
                return false;
            }
        }
        own.put(index, &right);
    }
    true
}
