//! The pool's own structures go bad on one disk, between two boots: a superblock at one of its ends, a checkpoint, the log.
//! The pool must open all the same with all that was acknowledged, and have written anew what it keeps twice.

use pool::{Pool, probe};
use sim::Dice;

use crate::case::Layout;
use crate::rig::{Rig, SpoiledMetadata, Standing, What};

/// Spoils a structure of a disk, where a disk may fail now. Before the pool is opened.
pub(crate) async fn spoil(rig: &Rig, dice: &Dice) {
    rig.spoiled_metadata.borrow_mut().clear();
    if rig.case.layout == Layout::Simple || !dice.one_in(2) {
        return;
    }
    let members = rig.with_standing(Standing::Member);
    let Some(slot) = dice.pick(&members).copied() else { return };
    let disk = rig.disk(slot);
    // Nothing can be written anew on a disk that is still full when the pool is opened.
    if disk.is_full() {
        return;
    }
    let Ok(Some(found)) = probe(&disk.device()).await else { return };
    // A cut has left one of the two ends alone whole already.
    if found.needs_repair || !rig.may_fail(slot) {
        return;
    }
    let layout = found.superblock;
    let (what, at) = match dice.below(5) {
        0 => (What::Superblock, 0),
        1 => (What::Superblock, layout.disk_size - 4096),
        2 => (What::Checkpoint, layout.checkpoint_start),
        3 => (What::Checkpoint, layout.checkpoint_start + layout.checkpoint_size),
        _ => (What::Log, layout.log_start + dice.below(4) * 4096),
    };
    // All that counts lies in the first sectors; of a block each byte counts.
    let at = at + if what == What::Superblock { dice.below(8) * 512 } else { 0 };
    let Some(rot) = disk.rot(at, dice) else { return };
    rig.trace(|| format!("disk{slot} rots at {at}: {what:?}"));
    rig.stats.borrow_mut().spoiled += 1;
    rig.spoiled_metadata.borrow_mut().push(SpoiledMetadata { slot, rot, what });
}

/// After the opening: what the format keeps twice has been written anew. The log has begun again, so what lay in it does not
/// matter any more; nor what lies in the checkpoints of a disk that has none of the metadata.
pub(crate) fn is_healed(rig: &Rig, pool: &Pool) {
    let status = pool.status();
    for bad in rig.spoiled_metadata.borrow_mut().drain(..) {
        let (disk, id) = (rig.disk(bad.slot), rig.id(pool, bad.slot));
        let record = status.disks.iter().find(|disk| Some(disk.record.id) == id);
        let kept_twice = match bad.what {
            What::Superblock => record.is_some_and(|disk| disk.online),
            What::Checkpoint => record.is_some_and(|disk| disk.online && disk.record.metadata),
            What::Log => false,
        };
        if kept_twice && disk.is_rotten(&bad.rot) {
            rig.broken(format!("disk{}: its {:?} is bad after the opening", bad.slot, bad.what));
        }
        disk.unrot(&bad.rot);
    }
}
