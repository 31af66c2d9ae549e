//! A disk that goes back to what it was: a restored virtual disk, an old one that is plugged in again.
//!
//! One limit is taken for granted: nothing but what a disk holds tells how old it is, so what it was can be told from
//! what it is only if something was written that marks time in between. An opening does, and so does closing, on the disks that
//! are there. A disk therefore goes back to what it was before the pool was opened or closed with it.

use crate::rig::{Rig, Standing};
use crate::troubles::Earlier;

/// While the pool is open: an image is taken; or a disk that is away goes back, and will return as what it was.
pub(super) fn while_open(rig: &Rig) {
    let dice = &rig.troubles.dice;
    let mut away = rig.with_standing(Standing::Away);
    // One that is here again is being taken back just now.
    away.retain(|slot| !rig.disk(*slot).is_present());
    if let Some(slot) = dice.pick(&away).copied()
        && is_earlier(rig, slot)
    {
        go_back(rig, slot);
    } else {
        take(rig);
    }
}

/// While the pool is closed: a disk goes back, or an image is taken of what a clean end or a cut has left.
pub(crate) fn between_boots(rig: &Rig) {
    if !rig.troubles.kinds.roll_back {
        return;
    }
    let dice = &rig.troubles.dice;
    let mut slots = rig.with_standing(Standing::Member);
    slots.extend(rig.with_standing(Standing::Away));
    slots.retain(|slot| is_earlier(rig, *slot));
    if let Some(slot) = dice.pick(&slots).copied()
        && dice.one_in(2)
        && rig.may_fail(slot)
    {
        go_back(rig, slot);
    }
    if dice.one_in(2) {
        take(rig);
    }
}

/// Whether there is an image of the disk that can be told from what it is.
fn is_earlier(rig: &Rig, slot: usize) -> bool {
    let troubles = &rig.troubles;
    let images = troubles.images.borrow();
    let closed = troubles.closed.borrow().contains(&slot);
    let marked = troubles.marked.borrow().get(&slot).copied().unwrap_or(0);
    images.get(&slot).is_some_and(|earlier| earlier.epoch < marked || closed)
}

fn take(rig: &Rig) {
    let members = rig.with_standing(Standing::Member);
    let Some(slot) = rig.troubles.dice.pick(&members).copied() else { return };
    let disk = rig.disk(slot);
    // What has gone bad unseen, or is missing, would come back with it and be of no moment: the whole disk is old.
    let sound = disk.lost().is_empty() && !disk.is_losing() && !rig.is_spoiled(slot);
    if sound && disk.is_present() {
        rig.trace(|| format!("an image is taken of disk{slot}"));
        let earlier = Earlier { image: disk.image(), epoch: rig.troubles.epoch.get() };
        rig.troubles.images.borrow_mut().insert(slot, earlier);
    }
}

fn go_back(rig: &Rig, slot: usize) {
    let images = rig.troubles.images.borrow();
    let Some(earlier) = images.get(&slot) else { return };
    rig.trace(|| format!("disk{slot} is again what it was in epoch {}", earlier.epoch));
    rig.stats.borrow_mut().rolled_back += 1;
    rig.disk(slot).roll_back(&earlier.image);
}
