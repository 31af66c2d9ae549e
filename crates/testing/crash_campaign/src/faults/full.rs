//! A disk that is full for a while, as a file on a file system without space is, and then has space again.

use std::time::Duration;

use pool::Pool;
use sim::Full;

use crate::rig::{Rig, Standing};

/// Fills a disk for a while.
pub(super) async fn for_a_while(rig: &Rig, millis: u64) {
    let dice = &rig.troubles.dice;
    let members = rig.with_standing(Standing::Member);
    let Some(slot) = dice.pick(&members).copied().filter(|slot| rig.may_fail(*slot)) else { return };
    let full = if dice.one_in(2) { Full::Everything } else { Full::New };
    rig.trace(|| format!("disk{slot} is full: {full:?}"));
    rig.stats.borrow_mut().filled += 1;
    rig.disk(slot).set_full(Some(full));
    shard_runtime::sleep(Duration::from_millis(dice.below(millis * 2))).await;
    rig.trace(|| format!("disk{slot} has space again"));
    rig.disk(slot).set_full(None);
}

/// After an opening all disks have space, and those that the pool could not use for want of it return.
pub(crate) async fn space_returns(rig: &Rig, pool: &Pool) {
    for slot in rig.with_standing(Standing::Member) {
        let disk = rig.disk(slot);
        if !disk.is_full() {
            continue;
        }
        disk.set_full(None);
        let id = rig.id(pool, slot);
        let status = pool.status();
        let given_up = status.disks.iter().any(|disk| Some(disk.record.id) == id && !disk.online);
        if given_up {
            let returned = pool.disk_returned(disk.device()).await.map(drop);
            rig.judge("the return of a disk that was full", returned);
        }
    }
}
