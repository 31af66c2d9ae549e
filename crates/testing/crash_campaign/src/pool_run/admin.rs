//! The administrator and the bad luck: disks go, come back and are replaced; spaces come, grow and go.

use std::rc::Rc;
use std::time::Duration;

use pool::{DiskUse, Pool, PoolError, PoolErrorKind, RepairParams};
use sim::Dice;

use super::model::Life;
use super::{Run, worker};
use crate::rig::Standing;

/// Works until it is stopped.
pub(super) async fn work(run: &Rc<Run>, pool: &Rc<Pool>, dice: &Dice) {
    let rate = run.plan.repair_rate;
    pool.set_repair_params(RepairParams { bytes_per_second: rate, ..RepairParams::default() });
    let busy = dice.one_in(2);
    loop {
        let pause = if busy { dice.below(1_500) } else { dice.below(12_000) };
        if dice.one_in(3) {
            for _ in 0..dice.below(60) {
                shard_runtime::yield_now().await;
            }
        } else {
            shard_runtime::sleep(Duration::from_millis(pause)).await;
        }
        if run.rig.is_over() {
            return;
        }
        run.rig.look(pool);
        match dice.below(20) {
            0..=4 => lose(run, pool, dice).await,
            5 => fail(run, dice),
            6..=9 => bring_back(run, pool, dice).await,
            10 | 11 => replace(run, pool, dice).await,
            12 | 13 => grow(run, pool, dice).await,
            14 | 15 if run.model.present().len() < 3 => worker::create_space(run, pool).await,
            16 => delete(run, pool, dice).await,
            17 => {
                let parallel = dice.between(1, 4) as usize;
                let bytes_per_second = if dice.one_in(2) { 0 } else { 1 << dice.between(16, 22) };
                let paused = dice.one_in(6);
                pool.set_repair_params(RepairParams { bytes_per_second, parallel, paused });
            }
            _ => {}
        }
    }
}

/// Judges what the pool answered the administrator.
fn judge(run: &Run, what: &str, result: Result<(), PoolError>) -> bool {
    match result {
        Ok(()) => {
            run.rig.answered();
            true
        }
        Err(error) => {
            run.rig.trace(|| format!("{what}: {error}"));
            let sensible = matches!(error.kind(), PoolErrorKind::NoSpace | PoolErrorKind::InUse);
            if !sensible && !run.rig.excuses_failure() {
                run.rig.broken(format!("{what} fails within what the layout stands: {error}"));
            }
            false
        }
    }
}

async fn lose(run: &Rc<Run>, pool: &Pool, dice: &Dice) {
    let members = run.rig.with_standing(Standing::Member);
    let Some(slot) = dice.pick(&members).copied().filter(|slot| run.rig.may_fail(*slot)) else { return };
    let id = run.rig.id(pool, slot);
    run.rig.lose(slot, dice);
    cache_lost(run);
    // Often nobody tells the pool: it finds out when it uses the disk.
    if dice.one_in(3)
        && let Some(id) = id
    {
        let told = pool.disk_lost(id, "pulled by the campaign").await;
        judge(run, "telling of a lost disk", told);
    }
}

/// In a simple space nothing else has what a disk's cache held.
fn cache_lost(run: &Run) {
    if run.rig.case.layout == crate::Layout::Simple {
        run.model.cache_lost();
    }
}

/// A disk that stays fails once.
fn fail(run: &Rc<Run>, dice: &Dice) {
    let members = run.rig.with_standing(Standing::Member);
    let Some(slot) = dice.pick(&members).copied().filter(|slot| run.rig.may_fail(*slot)) else { return };
    let disk = run.rig.disk(slot);
    let mirrored = run.rig.case.layout != crate::Layout::Simple;
    cache_lost(run);
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
    run.rig.trace(|| format!("disk{slot} will fail"));
    run.rig.stats.borrow_mut().losses += 1;
}

/// A disk that is away, or that the pool has given up, comes back.
async fn bring_back(run: &Rc<Run>, pool: &Pool, dice: &Dice) {
    let rig = &run.rig;
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
        if !judge(run, "telling of a lost disk", told) {
            return;
        }
    }
    let returned = pool.disk_returned(disk.device()).await.map(drop);
    if judge(run, "the return of a disk", returned) {
        rig.set_standing(slot, Standing::Member);
        rig.stats.borrow_mut().returns += 1;
    }
}

/// A disk that is away is given up, and another takes its place.
async fn replace(run: &Rc<Run>, pool: &Pool, dice: &Dice) {
    let rig = &run.rig;
    let away = rig.with_standing(Standing::Away);
    // A simple space's data is on the lost disk alone: it can only be waited for.
    if rig.case.layout == crate::Layout::Simple {
        return;
    }
    if let Some(slot) = dice.pick(&away).copied()
        && rig.with_standing(Standing::Replaced).len() < 3
        && let Some(id) = rig.id(pool, slot)
    {
        rig.trace(|| format!("disk{slot} is replaced"));
        rig.forget_voters();
        let spare_first = dice.one_in(2);
        if spare_first && !join(run, pool, dice).await {
            return;
        }
        // From here on it may not come back: the answer may be lost with the power.
        rig.set_standing(slot, Standing::Replaced);
        let retired = pool.set_disk_use(id, DiskUse::Retired).await;
        if judge(run, "retiring a disk", retired) {
            rig.stats.borrow_mut().replacements += 1;
        }
        if !spare_first {
            join(run, pool, dice).await;
        }
    }
    for slot in rig.with_standing(Standing::Replaced) {
        if let Some(id) = rig.id(pool, slot)
            && dice.one_in(2)
        {
            match pool.remove_disk(id).await {
                // Out of the pool, but what is written on it cannot be cleared: it is away.
                Err(error) if error.kind() == PoolErrorKind::Io => {}
                removed => drop(judge(run, "removing a disk", removed)),
            }
        }
    }
}

async fn join(run: &Rc<Run>, pool: &Pool, dice: &Dice) -> bool {
    let slot = run.rig.add_slot(Standing::Joining);
    let spare = dice.one_in(3);
    match pool.add_disk(run.rig.new_disk(slot), spare, false).await {
        Ok(id) => {
            run.rig.set_standing(slot, Standing::Member);
            run.rig.answered();
            if spare {
                let used = pool.set_disk_use(id, DiskUse::Active).await;
                judge(run, "putting a spare to work", used);
            }
            true
        }
        Err(error) => judge(run, "adding a disk", Err(error)),
    }
}

async fn grow(run: &Rc<Run>, pool: &Pool, dice: &Dice) {
    let Some(model) = dice.pick(&run.model.present()).cloned() else { return };
    if model.growing.get().is_some() {
        return;
    }
    let size = model.size.get() + dice.between(1, 64) * 4096;
    if size > 4 << 20 {
        return;
    }
    let Some(space) = pool.space(&model.name) else { return };
    model.history.borrow_mut().grow(size as usize / sim::SECTOR);
    model.growing.set(Some(size));
    run.rig.trace(|| format!("grow {} to {size}", model.name));
    if judge(run, "growing a space", pool.grow_space(space.id(), size).await) {
        model.size.set(size);
        model.growing.set(None);
    }
}

async fn delete(run: &Rc<Run>, pool: &Pool, dice: &Dice) {
    let present = run.model.present();
    if present.len() < 2 {
        return;
    }
    let Some(model) = dice.pick(&present) else { return };
    let Some(space) = pool.space(&model.name) else { return };
    let id = space.id();
    drop(space);
    model.life.set(Life::Deleting);
    run.rig.trace(|| format!("delete {}", model.name));
    if judge(run, "deleting a space", pool.delete_space(id).await) {
        model.life.set(Life::Gone);
    }
}
