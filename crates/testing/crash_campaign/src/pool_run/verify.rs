//! After an opening: is everything there that was promised, and does it become whole again.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::BlockDevice;
use pool::{DiskStatus, DiskUse, Pool, PoolStatus, RepairParams, Space, SpaceStatus};
use sim::SECTOR;

use super::Run;
use super::model::{Life, SpaceModel};
use crate::history::Value;
use crate::rig::Standing;
use crate::rot;

/// Bytes read at once.
const PIECE: u64 = 256 << 10;

/// Checks all spaces; now and then waits until all copies are equal, and checks again.
pub(super) async fn after_opening(run: &Rc<Run>, pool: &Rc<Pool>) {
    let rig = &run.rig;
    let durable = !run.model.take_killed();
    // A pool that the power left while it was opened lacks what it could not open any more.
    if rig.is_over() {
        return;
    }
    let params = pool.repair_params();
    // Not before the first look: which copy a read takes is most delicate then.
    pool.set_repair_params(RepairParams { paused: run.dice.one_in(3), ..params });
    let spaces = match_spaces(run, pool);
    let mut first = Vec::new();
    for (model, space) in &spaces {
        let Some(seen) = read_all(run, model, space).await else { return };
        // What has been read stays, whichever copy it came from and whichever is lost next.
        settle(model, &seen, durable);
        first.push(seen);
    }
    pool.set_repair_params(params);
    if run.dice.one_in(2) {
        return;
    }
    let whole = become_redundant(run, pool).await;
    for ((model, space), before) in spaces.iter().zip(&first) {
        let Some(seen) = read_all(run, model, space).await else { return };
        for (sector, (now, before)) in seen.iter().zip(before).enumerate() {
            if let (Some(now), Some(before)) = (now, before)
                && now != before
            {
                let name = &model.name;
                rig.broken(format!(
                    "{name}: sector {sector} held {before} after the opening and holds {now} now"
                ));
                return;
            }
        }
        if whole {
            settle(model, &seen, durable);
        }
    }
    if whole {
        rot::scrub_and_check(rig, pool).await;
    }
}

/// Pairs what must be there with what is.
fn match_spaces(run: &Rc<Run>, pool: &Pool) -> Vec<(Rc<SpaceModel>, Arc<Space>)> {
    let mut pairs = Vec::new();
    let models = run.model.spaces.borrow().clone();
    for space in pool.spaces() {
        if !models.iter().any(|model| model.name == space.name()) {
            run.rig.broken(format!("there is a space {} that nobody asked for", space.name()));
        }
    }
    for model in models {
        let name = &model.name;
        match (model.life.get(), pool.space(name)) {
            (Life::Present, None) => run.rig.broken(format!("space {name} is gone")),
            (Life::Gone, Some(_)) => run.rig.broken(format!("space {name} is back although it was deleted")),
            (Life::Gone, None) => {}
            (Life::Creating | Life::Deleting, None) => model.life.set(Life::Gone),
            (_, Some(space)) => {
                model.life.set(Life::Present);
                let (size, asked) = (space.size(), model.growing.take());
                if size != model.size.get() && Some(size) != asked {
                    let known = model.size.get();
                    run.rig.broken(format!("space {name} has {size} bytes, not {known} or {asked:?}"));
                }
                model.size.set(size);
                pairs.push((model, space));
            }
        }
    }
    pairs
}

/// Reads a space and compares each sector with what a crash may show. Sectors that cannot be read for a good
/// reason are `None`; the whole is `None` when the boot has ended.
async fn read_all(run: &Rc<Run>, model: &SpaceModel, space: &Arc<Space>) -> Option<Vec<Option<Value>>> {
    let rig = &run.rig;
    let mut seen = Vec::new();
    let mut at = 0;
    while at < model.size.get() {
        let len = PIECE.min(model.size.get() - at);
        let read = space.read(at, IoBuf::new(len as usize)).await;
        if rig.is_over() {
            return None;
        }
        match read {
            Ok(bytes) => {
                rig.stats.borrow_mut().sectors += len / SECTOR as u64;
                for bytes in bytes.chunks(SECTOR) {
                    let (sector, found) = (seen.len(), Value::of(bytes));
                    if let Err(what) = model.history.borrow().admits(sector, found) {
                        rig.broken(format!("{}: after the opening sector {sector} holds {what}", model.name));
                        return None;
                    }
                    seen.push(found);
                }
            }
            Err(_) if rig.excuses_failure() => seen.extend((0..len as usize / SECTOR).map(|_| None)),
            Err(error) => {
                rig.broken(format!("{} cannot be read after the opening: {error}", model.name));
                return None;
            }
        }
        at += len;
    }
    Some(seen)
}

fn settle(model: &SpaceModel, seen: &[Option<Value>], durable: bool) {
    let mut history = model.history.borrow_mut();
    for (sector, value) in seen.iter().enumerate() {
        if let Some(value) = value {
            history.settle(sector, *value, durable);
        }
    }
}

/// Waits until all copies are there and equal, where the disks for it are.
///
/// A pool whose disks are here must come to that unless it has allocated more than the disks that stay can hold. There is no other
/// excuse while a rig's disks are of one size: a disk joins before one leaves, so that for each copy either there is room or
/// one slab that moves makes some (`pool_layout`, `exchange.rs` has the proof). Where sizes differ there must be room on as many
/// disks as a row has, so that each copy finds some on one that its row does not use.
async fn become_redundant(run: &Rc<Run>, pool: &Pool) -> bool {
    /// Looks of 20 s without any progress, and in all: two disks that went back in time take their time.
    const PATIENCE: (u32, u32) = (12, 200);
    let rig = &run.rig;
    let (mut idle, mut least) = (0, u64::MAX);
    for _ in 0..PATIENCE.1 {
        shard_runtime::sleep(Duration::from_secs(20)).await;
        if rig.is_over() {
            return false;
        }
        let status = pool.status();
        if status.is_fully_redundant() {
            let (needed, used) = (slabs_needed(&status, rig.slab), slabs(&status, |disk| disk.used_slabs));
            if used < needed {
                rig.broken(format!("{used} slabs hold what needs {needed}: {status:?}"));
            }
            return true;
        }
        let owed = owed(&status);
        idle = if owed < least { 0 } else { idle + 1 };
        least = least.min(owed);
        if idle == PATIENCE.0 {
            break;
        }
    }
    let missing = rig.with_standing(Standing::Away).len() + rig.with_standing(Standing::Replaced).len();
    let status = pool.status();
    let stay =
        |disk: &DiskStatus| if disk.record.usage == DiskUse::Active { disk.record.slab_count } else { 0 };
    let (needed, there) = (slabs_needed(&status, rig.slab), slabs(&status, stay));
    let has_room = !rig.troubles.kinds.sizes || rig.disks_with_room(pool, 1) >= run.width();
    if missing == 0 && needed <= there && has_room {
        rig.broken(format!("all disks are here, and the pool is not redundant again: {status:?}"));
    }
    false
}

/// Bytes that are still to be made redundant.
fn owed(status: &PoolStatus) -> u64 {
    let stale: u64 = status.disks.iter().map(|disk| disk.stale_bytes).sum();
    let repair: u64 = status.spaces.iter().map(|space| space.repair_bytes).sum();
    status.unsettled_bytes + stale + repair
}

fn slabs(status: &PoolStatus, of: impl Fn(&DiskStatus) -> u32) -> u64 {
    status.disks.iter().map(|disk| u64::from(of(disk))).sum()
}

/// The slabs that everything allocated has when it is redundant and none moves.
fn slabs_needed(status: &PoolStatus, slab: u64) -> u64 {
    let of = |space: &SpaceStatus| {
        let (resiliency, columns) = (space.record.resiliency, u64::from(space.record.columns));
        let parity = u64::from(resiliency.parity());
        let rows = space.allocated_bytes / ((columns - parity) * slab);
        // A journal has as many copies as a row may lose disks, and one.
        let journal = if parity > 0 { parity + 1 } else { 0 };
        rows * columns * resiliency.copies() as u64 + journal
    };
    status.spaces.iter().map(of).sum()
}
