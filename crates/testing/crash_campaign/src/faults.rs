//! Bad luck with disks, within what the layout stands: they go, fail, come back and are replaced. The rarer kinds, of which a
//! seed has some or none, are in the modules below.

mod full;
mod lost_pairs;
mod rare;
mod rollback;
mod together;

use std::time::Duration;

use pool::{DiskUse, Pool, PoolErrorKind};
use sim::Dice;

use crate::case::Layout;
use crate::rig::{Rig, Standing};

pub(crate) use full::space_returns;
pub(crate) use rare::come_and_go;
pub(crate) use rollback::between_boots;

pub(crate) async fn lose(rig: &Rig, pool: &Pool, dice: &Dice, cache_lost: &dyn Fn()) {
    let members = rig.with_standing(Standing::Member);
    let Some(slot) = dice.pick(&members).copied().filter(|slot| rig.may_fail(*slot)) else { return };
    let id = rig.id(pool, slot);
    rig.lose(slot, dice);
    cache_lost();
    // Often nobody tells the pool: it finds out when it uses the disk.
    if dice.one_in(3)
        && let Some(id) = id
    {
        let told = pool.disk_lost(id, "pulled by the campaign").await;
        rig.judge("telling of a lost disk", told);
    }
}

/// A disk that stays fails once.
pub(crate) fn fail(rig: &Rig, dice: &Dice, cache_lost: &dyn Fn()) {
    let members = rig.with_standing(Standing::Member);
    let Some(slot) = dice.pick(&members).copied().filter(|slot| rig.may_fail(*slot)) else { return };
    let disk = rig.disk(slot);
    let mirrored = rig.case.layout != Layout::Simple;
    cache_lost();
    match dice.below(3) {
        0 => disk.fail_flushes(1),
        1 => disk.fail_writes(1),
        _ if mirrored => {
            // Not in the metadata: a disk whose metadata cannot be read is one that is away.
            let (first, last) = (2 << 20, disk.size() - 4096);
            let at = first + dice.below((last - first) / 4096) * 4096;
            disk.damage(at, 4096 * dice.between(1, 64).min((last - at) / 4096));
        }
        _ => return,
    }
    rig.trace(|| format!("disk{slot} will fail"));
    rig.stats.borrow_mut().losses += 1;
}

/// A disk that is away, or that the pool has given up, comes back.
pub(crate) async fn bring_back(rig: &Rig, pool: &Pool, dice: &Dice) {
    let status = pool.status();
    let given_up = |slot: &usize| {
        let id = rig.id(pool, *slot);
        status.disks.iter().any(|disk| Some(disk.record.id) == id && !disk.online)
    };
    let mut back = rig.with_standing(Standing::Away);
    back.extend(rig.with_standing(Standing::Member).into_iter().filter(given_up));
    let Some(slot) = dice.pick(&back).copied() else { return };
    rig.trace(|| format!("disk{slot} comes back"));
    let disk = rig.disk(slot);
    // An old operation that fails late would take the returned disk out again: a known weakness of the pool,
    // which costs availability and no data.
    while disk.is_busy() && !rig.is_over() {
        shard_runtime::sleep(Duration::from_millis(50)).await;
    }
    disk.restore();
    disk.mend();
    if !given_up(&slot)
        && let Some(id) = rig.id(pool, slot)
    {
        // The pool has not noticed yet that it was away.
        let told = pool.disk_lost(id, "was away").await;
        if !rig.judge("telling of a lost disk", told) {
            return;
        }
    }
    let returned = pool.disk_returned(disk.device()).await.map(drop);
    if rig.judge("the return of a disk", returned) {
        rig.set_standing(slot, Standing::Member);
        rig.stats.borrow_mut().returns += 1;
    }
}

/// A disk that is away is given up, and another takes its place.
pub(crate) async fn replace(rig: &Rig, pool: &Pool, dice: &Dice) {
    let away = rig.with_standing(Standing::Away);
    // A simple space's data is on the lost disk alone: it can only be waited for.
    if rig.case.layout == Layout::Simple {
        return;
    }
    if let Some(slot) = dice.pick(&away).copied()
        && rig.with_standing(Standing::Replaced).len() < 3
        && let Some(id) = rig.id(pool, slot)
    {
        rig.trace(|| format!("disk{slot} is replaced"));
        rig.forget_voters();
        let spare_first = dice.one_in(2);
        if spare_first && !join(rig, pool, dice).await {
            return;
        }
        // From here on it may not come back: the answer may be lost with the power.
        rig.set_standing(slot, Standing::Replaced);
        let retired = pool.set_disk_use(id, DiskUse::Retired).await;
        if rig.judge("retiring a disk", retired) {
            rig.stats.borrow_mut().replacements += 1;
        }
        if !spare_first {
            join(rig, pool, dice).await;
        }
    }
    for slot in rig.with_standing(Standing::Replaced) {
        if let Some(id) = rig.id(pool, slot)
            && dice.one_in(2)
        {
            match pool.remove_disk(id).await {
                // Out of the pool, but what is written on it cannot be cleared: it is away.
                Err(error) if error.kind() == PoolErrorKind::Io => {}
                removed => drop(rig.judge("removing a disk", removed)),
            }
        }
    }
}

/// A disk that works is emptied and taken out; another joins first.
pub(crate) async fn drain(rig: &Rig, pool: &Pool, dice: &Dice) {
    for slot in rig.with_standing(Standing::Leaving) {
        let Some(id) = rig.id(pool, slot) else { continue };
        rig.forget_voters();
        let removed = pool.remove_disk(id).await;
        if !rig.judge("removing an empty disk", removed) {
            continue;
        }
        rig.stats.borrow_mut().drained += 1;
        rig.set_standing(slot, Standing::Replaced);
    }
    let busy = rig.case.layout == Layout::Simple || !rig.with_standing(Standing::Leaving).is_empty();
    if busy || rig.with_standing(Standing::Replaced).len() >= 3 || rig.is_over() {
        return;
    }
    let members = rig.with_standing(Standing::Member);
    let Some(slot) = dice.pick(&members).copied() else { return };
    let Some(id) = rig.id(pool, slot) else { return };
    rig.forget_voters();
    if !join(rig, pool, dice).await || rig.with_standing(Standing::Away).contains(&slot) {
        return;
    }
    rig.trace(|| format!("disk{slot} is to be emptied"));
    rig.set_standing(slot, Standing::Leaving);
    let retired = pool.set_disk_use(id, DiskUse::Retired).await;
    rig.judge("retiring a disk that works", retired);
}

async fn join(rig: &Rig, pool: &Pool, dice: &Dice) -> bool {
    let slot = rig.add_slot(Standing::Joining);
    let spare = dice.one_in(3);
    match pool.add_disk(rig.new_disk(slot), spare, false).await {
        Ok(id) => {
            rig.set_standing(slot, Standing::Member);
            rig.answered();
            if spare {
                let used = pool.set_disk_use(id, DiskUse::Active).await;
                rig.judge("putting a spare to work", used);
            }
            true
        }
        Err(error) => rig.judge("adding a disk", Err(error)),
    }
}
