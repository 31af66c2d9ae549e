//! Disks with all copies of the same data go away together and come back with their caches: a cable, a switch, an enclosure.
//! What is asked for meanwhile may fail; nothing that was acknowledged is lost, and service goes on when they are back,
//! if need be after another opening.

use std::collections::BTreeSet;
use std::time::Duration;

use pool::{Pool, RepairParams};

use crate::case::Subject;
use crate::rig::{Rig, Standing};

/// Seconds after the last disk has caught up in which the pool's upkeep does what had to wait.
const GRACE_SECONDS: u64 = 10;

/// Takes more disks away than the layout stands, and brings them back.
pub(super) async fn for_a_while(rig: &Rig, pool: &Pool, millis: u64) {
    let dice = &rig.troubles.dice;
    let mut members = rig.with_standing(Standing::Member);
    let least = rig.tolerance() + 1;
    if !rig.is_well() || members.len() < least {
        return;
    }
    let mut chosen = Vec::new();
    for _ in 0..dice.between(least as u64, members.len() as u64) {
        chosen.push(members.swap_remove(dice.below(members.len() as u64) as usize));
    }
    rig.note_scattered(&chosen.iter().copied().collect::<BTreeSet<_>>());
    rig.stats.borrow_mut().scattered += 1;
    // At once, or one after the other, so that some miss what others still get.
    let apart = if dice.one_in(2) { 0 } else { millis / 4 };
    for slot in &chosen {
        rig.trace(|| format!("disk{slot} goes away with others"));
        rig.disk(*slot).unplug();
        if dice.one_in(4)
            && let Some(id) = rig.id(pool, *slot)
        {
            let told = pool.disk_lost(id, "pulled by the campaign").await;
            rig.judge("telling of a lost disk", told);
        }
        shard_runtime::sleep(Duration::from_millis(dice.below(apart + 1))).await;
    }
    shard_runtime::sleep(Duration::from_millis(dice.below(millis * 2))).await;
    for _ in 0..chosen.len() {
        let slot = chosen.swap_remove(dice.below(chosen.len() as u64) as usize);
        if rig.is_over() || !come_back(rig, pool, slot).await {
            break;
        }
        shard_runtime::sleep(Duration::from_millis(dice.below(apart + 1))).await;
    }
    if rig.is_over() {
        return;
    }
    let reopen = rig.case.subject == Subject::Volume && dice.one_in(2);
    if reopen || pool.status().stopped {
        rig.look(pool);
        rig.reopen();
        return;
    }
    rig.troubles.lost_quorum.set(false);
    if all_catch_up(rig, pool).await {
        rig.troubles.scattered.borrow_mut().away = false;
    }
}

/// Whether it is a part of the pool again.
async fn come_back(rig: &Rig, pool: &Pool, slot: usize) -> bool {
    rig.trace(|| format!("disk{slot} comes back with others"));
    let disk = rig.disk(slot);
    disk.restore();
    while disk.is_busy() && !rig.is_over() {
        shard_runtime::sleep(Duration::from_millis(50)).await;
    }
    let Some(id) = rig.id(pool, slot) else { return true };
    let is_online = || pool.status().disks.iter().any(|disk| disk.record.id == id && disk.online);
    // The pool may not have noticed that it was away; or somebody else has brought it back.
    if is_online() {
        let told = pool.disk_lost(id, "was away").await;
        if !rig.judge("telling of a lost disk", told) {
            return !pool.status().stopped;
        }
    }
    let returned = pool.disk_returned(disk.device()).await.map(drop);
    rig.judge("the return of a disk", returned);
    !pool.status().stopped
}

/// What the disks have missed is brought to them, now that all are here, and what had to wait for them is done. Until then
/// what is asked for may fail.
async fn all_catch_up(rig: &Rig, pool: &Pool) -> bool {
    let slots = rig.troubles.scattered.borrow().slots.clone();
    let params = pool.repair_params();
    pool.set_repair_params(RepairParams { bytes_per_second: 0, paused: false, ..params });
    let mut done = 0;
    for _ in 0..300 {
        shard_runtime::sleep(Duration::from_secs(1)).await;
        if rig.is_over() {
            return false;
        }
        let status = pool.status();
        let ids: Vec<_> = slots.iter().filter_map(|slot| rig.id(pool, *slot)).collect();
        let mut theirs = status.disks.iter().filter(|disk| ids.contains(&disk.record.id));
        let caught_up =
            status.unsettled_bytes == 0 && theirs.all(|disk| disk.online && disk.stale_bytes == 0);
        done = if caught_up { done + 1 } else { 0 };
        if done > GRACE_SECONDS {
            pool.set_repair_params(params);
            return true;
        }
    }
    rig.broken(format!("disks that were away together do not catch up: {}", crate::rig::summary(pool)));
    false
}
