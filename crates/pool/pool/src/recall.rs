//! Checksums that are lost of one column of a row with parity, while its data and the others are as they should be: a
//! page on a disk is damaged. (A page of a mirror is on all its copies.)
//!
//! What the column holds need not be believed: the others, which their checksums prove, say what it must be. So a rotten
//! block beside a damaged page is found, and not taken for the truth.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use block_device::BlockError;
use pool_format::BLOCK;
use shard_runtime::finish_anyway;

use crate::at::At;
use crate::careful::{self, Content, from_copies};
use crate::resync::{bits, learn_sums};
use crate::sums::page_at;
use crate::write::ensure_dirty;

/// Learns the checksums that were lost in regions of a row.
pub(crate) async fn recall(at: At<'_>, regions: u64) -> Result<(), BlockError> {
    if regions == 0 {
        return Ok(());
    }
    let (core, space, row, place) = (Arc::clone(at.core), at.space.this()?, Arc::clone(at.row), at.place);
    // What corrects a block must not be left half-way by a client that goes: the lock would be free while the block is on
    // its way to the disk, and a newer one could come before it.
    finish_anyway(async move {
        let at = At::new(&core, &space, &row, place);
        for region in bits(regions) {
            recall_region(at, region).await?;
        }
        Ok(())
    })
    .await
}

async fn recall_region(at: At<'_>, region: u32) -> Result<(), BlockError> {
    at.core.check_writable()?;
    let size = at.space.striping.region_size();
    let (offset, mask) = (u64::from(region) * size, 1u64 << region);
    let group = at.group();
    let _range = group.locks.lock(offset, size).await;
    if group.is_unsettled(mask) {
        // A crash or a loss since: what the region holds is made right as a whole.
        group.forgotten.fetch_and(!mask, Ordering::AcqRel);
        return Ok(());
    }
    // What is learnt must be told of, at the next cleaning.
    ensure_dirty(at, mask).await?;
    let unknown = |at: At<'_>| {
        let pages = at.column().sums.iter().flat_map(|sums| sums.loaded(offset, size)).collect::<Vec<_>>();
        pages.iter().any(|(_, page)| page.unknown.load(Ordering::Acquire) & mask != 0)
    };
    let columns = || (0..at.row.columns.len()).map(|column| at.other(column));
    let here = |at: &At<'_>| at.column().good() & mask != 0;
    // All of them, as what proves nothing itself must not be asked for a proof.
    for column in columns().filter(here) {
        for part in (offset..offset + size).step_by(careful::step(at.space) as usize) {
            page_at(column, part).await;
        }
    }
    let mut lost: Vec<At<'_>> = columns().filter(here).filter(|column| unknown(*column)).collect();
    let torn = group.torn.load(Ordering::Acquire) & mask != 0;
    if lost.len() > 1 || torn {
        // Columns that are in doubt prove nothing to each other: what their own pages say is believed.
        lost.retain(|column| !believe_hints(*column, (offset, size), mask));
    }
    if let [only] = lost[..]
        && is_hinted(only, (offset, size), mask)
    {
        // What the others cannot tell must be what its own page says.
        let told = careful::from_others(only, offset, size).await;
        let mut own = from_copies(only, offset, size, None, &mut Vec::new()).await;
        correct(only, offset, &mut own, &told).await;
        learn_told(only, offset, &told).await;
        believe_hints(only, (offset, size), mask);
        lost.clear();
    }
    for column in &lost {
        let mut own = from_copies(*column, offset, size, None, &mut Vec::new()).await;
        let told = careful::from_others(*column, offset, size).await;
        // Two columns without checksums prove nothing to each other.
        if lost.len() == 1 && !torn {
            correct(*column, offset, &mut own, &told).await;
        } else if !own.is_complete() && told.is_complete() {
            own = told;
        }
        if own.is_complete() {
            learn_sums(*column, offset, &own.data).await;
        } else {
            // Nobody has it all: as after a crash, when what is missing comes back.
            group.unsettled.fetch_or(mask, Ordering::AcqRel);
        }
    }
    group.forgotten.fetch_and(!mask, Ordering::AcqRel);
    Ok(())
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

/// Puts what the other columns say into what a column holds, on its disk too.
async fn correct(at: At<'_>, offset: u64, own: &mut Content, told: &Content) {
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
            careful::rewrite(copy, start, &right).await;
        }
        own.put(index, &right);
    }
}
