//! The administrator and the bad luck: disks go, come back and are replaced; spaces come, grow and go.

use std::rc::Rc;
use std::time::Duration;

use pool::{Pool, RepairParams};
use sim::Dice;

use super::model::Life;
use super::{Run, worker};
use crate::faults;
use crate::rot;

/// Works until it is stopped.
pub(super) async fn work(run: &Rc<Run>, pool: &Rc<Pool>, dice: &Dice) {
    let rate = run.plan.repair_rate;
    let balance_above_percent = if dice.one_in(2) { 0 } else { dice.between(1, 60) as u32 };
    let at_first = RepairParams { bytes_per_second: rate, balance_above_percent, ..RepairParams::default() };
    pool.set_repair_params(at_first);
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
        match dice.below(26) {
            0..=4 => faults::lose(&run.rig, pool, dice, &|| cache_lost(run)).await,
            5 => faults::fail(&run.rig, dice, &|| cache_lost(run)),
            6..=9 => faults::bring_back(&run.rig, pool, dice).await,
            10 | 11 => faults::replace(&run.rig, pool, dice).await,
            12 | 13 => grow(run, pool, dice).await,
            14 | 15 if run.model.present().len() < 3 => worker::create_space(run, pool).await,
            16 => delete(run, pool, dice).await,
            17 => {
                let parallel = dice.between(1, 4) as usize;
                let bytes_per_second = if dice.one_in(2) { 0 } else { 1 << dice.between(16, 22) };
                let paused = dice.one_in(6);
                pool.set_repair_params(RepairParams { bytes_per_second, parallel, paused, ..at_first });
            }
            18..=20 => rot::spoil(&run.rig, pool, dice),
            21 => rot::begin_scrub(&run.rig, pool).await,
            22 => faults::drain(&run.rig, pool, dice).await,
            23 => {
                run.rig.trace(|| "rebalance".into());
                run.rig.judge("asking for balance", pool.start_balance());
            }
            _ => {}
        }
    }
}

/// In a simple space nothing else has what a disk's cache held.
fn cache_lost(run: &Run) {
    if run.rig.case.layout == crate::Layout::Simple {
        run.model.cache_lost();
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
    if run.rig.judge("growing a space", pool.grow_space(space.id(), size).await) {
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
    if run.rig.judge("deleting a space", pool.delete_space(id).await) {
        model.life.set(Life::Gone);
    }
}
