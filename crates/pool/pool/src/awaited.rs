//! What an opening finds in the journal for stripes of which more disks are away than parity makes up for.
//!
//! The record may be all that says what such a stripe is to be: it is kept, the stripe's region is torn until the disks are back
//! ([`crate::replay::bring_back`]), and the rest of the space serves. Nothing of the region is read meanwhile, as a stripe that
//! was being written as a whole may be half-written where it can be seen. Whoever accepts the loss gets what the disks have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use block_device::BlockError;
use pool_format::{DiskId, JournalKind};

use crate::at::At;
use crate::core::{Core, Space};
use crate::journal::{Stripes, Told};
use crate::row::{Place, names};

/// Whether what the journal has for a stripe cannot come to its place without disks that are away. In a clean region all of it has
/// come there already.
pub(crate) fn waits(at: At<'_>, stripe: u64) -> bool {
    let mask = at.regions_of(stripe) & at.group().dirty_durable.load(Ordering::SeqCst);
    at.row.lacking(mask) > at.row.shape.parity
}

/// Marks the regions that wait for disks as torn. `true` when the journal is needed for them. Where the loss is accepted, and says
/// nobody waits, it is only told of.
pub(crate) fn mark(core: &Arc<Core>, space: &Space, stripes: &Stripes, accept_loss: bool) -> bool {
    let mut waiting: BTreeMap<u32, u64> = BTreeMap::new();
    let mut disks: BTreeSet<DiskId> = BTreeSet::new();
    for (number, stripe) in stripes.keys() {
        let Some(row) = space.row(*number) else { continue };
        let at = At::new(core, space, &row, Place { space: space.id(), row: *number, column: 0 });
        if waits(at, *stripe) {
            *waiting.entry(*number).or_default() |= at.regions_of(*stripe);
            disks.extend(row.missing());
        }
    }
    for (number, row) in space.rows() {
        let (group, mask) = (row.group(0), waiting.get(&number).copied().unwrap_or(0));
        // An earlier attempt to open the space may have found others away.
        group.mend(!mask);
        if !accept_loss && mask != 0 {
            group.unsettled.fetch_or(mask, Ordering::AcqRel);
            group.awaited.fetch_or(mask, Ordering::AcqRel);
            space.tear(group, mask);
        }
    }
    if waiting.is_empty() {
        return false;
    }
    let (name, disks) = (space.name(), names(&disks));
    let regions: u64 = waiting.values().map(|mask| u64::from(mask.count_ones())).sum();
    let bytes = regions * space.striping.region_size() * space.striping.data() as u64;
    if accept_loss {
        tracing::error!(
            "space {name}: what the journal has for stripes of {bytes} bytes is given up, as more of their disks are missing ({disks}) \
             than parity makes up for, and their loss is accepted: what was written there just before may be lost"
        );
        return false;
    }
    tracing::error!(
        "space {name}: {bytes} bytes of it wait for disks ({disks}): they must be made whole from the journal, and more are missing \
         than parity makes up for. Reading and writing them is an error until they are back; the rest is served. If they are lost for good: \
         export the pool, and import it with the loss accepted"
    );
    true
}

/// Gives up what disks that are away were to get of a stripe. `true` when the columns that are here may get their part: the copies
/// that lack theirs count as lacking the region, so that it is calculated when the others are back. Otherwise, with more of them than
/// parity makes up for, or of a stripe of which the journal has only checksums, it is what the disks have.
pub(crate) async fn give_up(at: At<'_>, stripe: u64, told: &[Told]) -> Result<bool, BlockError> {
    let mask = at.regions_of(stripe);
    let whole = |told: &Told| matches!(told.entry.kind, JournalKind::Fresh | JournalKind::Derived);
    let told_of: BTreeSet<usize> = told.iter().map(|told| usize::from(told.entry.column)).collect();
    let lacks = |column: &usize| at.row.columns[*column].good() & mask != mask;
    let lacking: Vec<usize> = told_of.into_iter().filter(lacks).collect();
    if lacking.len() > at.row.shape.parity || told.iter().any(whole) {
        return Ok(false);
    }
    for column in lacking {
        for copy in at.row.columns[column].copies().iter() {
            at.core.mark_lacking(at.other(column).place, at.row, copy, mask).await?;
        }
    }
    Ok(true)
}
