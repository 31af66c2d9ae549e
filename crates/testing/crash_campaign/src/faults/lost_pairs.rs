//! A disk acknowledges writes of data and of the page of checksums that vouches for it, and keeps neither: what it shows
//! then fits its own checksums.
//!
//! It begins where everything is at rest, and counts as a disk that has failed until all that it lacks has been made up for.
//! Regions that were under way when the power went get what they lack at the opening: `rot.rs` says why.

use std::time::Duration;

use pool::Pool;

use crate::rig::{REGIONS, Rig, Standing, has_losses};
use crate::rot;

/// Blocks that one page of checksums is of.
const PAGE_BLOCKS: u64 = 512;

/// Loses what is written to some regions of a slab, and their pages of checksums, for a while.
pub(super) async fn for_a_while(rig: &Rig, pool: &Pool, millis: u64) {
    let dice = &rig.troubles.dice;
    if !rig.spoiled.borrow().is_empty() || has_losses(&rig.slots.borrow()) {
        return;
    }
    let slabs = pool.slabs_in_use();
    // Most is written to the beginnings of spaces.
    let first = !dice.one_in(4);
    let wanted: Vec<_> = slabs.iter().filter(|slab| !first || slab.row == 0).collect();
    let Some(slab) = dice.pick(&wanted).copied() else { return };
    let members = rig.with_standing(Standing::Member);
    let Some(slot) = members.into_iter().find(|slot| rig.id(pool, *slot) == Some(slab.disk)) else { return };
    let Some((sums, _)) = slab.sums else { return };
    let rest = rot::at_rest(&slabs, slab, rig.redundancy());
    let regions: Vec<u64> = (0..REGIONS).filter(|region| rest & (1 << region) != 0).collect();
    let Some(one) = dice.pick(&regions).copied() else { return };
    if !rig.may_fail(slot) {
        return;
    }
    let regions = if dice.one_in(4) { vec![one] } else { regions };
    let size = slab.len / REGIONS;
    let mut ranges = Vec::new();
    for region in regions {
        let from = region * size;
        ranges.push(slab.start + from..slab.start + from + size);
        let pages = from / (PAGE_BLOCKS * rot::BLOCK)..(from + size).div_ceil(PAGE_BLOCKS * rot::BLOCK);
        ranges.push(sums + pages.start * rot::BLOCK..sums + pages.end * rot::BLOCK);
    }
    rig.trace(|| format!("disk{slot} loses what is written to row {} of space {}", slab.row, slab.space.0));
    rig.stats.borrow_mut().lost_pairs += 1;
    let disk = rig.disk(slot);
    disk.lose_writes(&ranges);
    shard_runtime::sleep(Duration::from_millis(dice.between(millis / 4, millis * 4))).await;
    rig.trace(|| format!("disk{slot} keeps what is written; {} sectors are lost", disk.lost().len()));
    disk.keep_writes();
}
