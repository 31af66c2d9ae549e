//! The rarer kinds of bad luck that a seed has, one after the other, for as long as the pool is open.

use std::time::Duration;

use pool::Pool;

use super::{full, lost_pairs, rollback, together};
use crate::rig::Rig;
use crate::troubles::Troubles;

/// Has its way with the disks of an open pool until it is stopped; pauses and faults take up to so many milliseconds.
pub(crate) async fn come_and_go(rig: &Rig, pool: &Pool, millis: u64) {
    let Troubles { kinds, dice, .. } = &rig.troubles;
    let all = [kinds.roll_back, kinds.lose_pairs, kinds.fill, kinds.scatter];
    let kinds: Vec<usize> = (0..all.len()).filter(|kind| all[*kind]).collect();
    // Where all is at rest after the opening, much of what comes first can be lost.
    if all[1] && dice.one_in(2) {
        rig.look(pool);
        lost_pairs::for_a_while(rig, pool, millis).await;
    }
    while let Some(kind) = dice.pick(&kinds) {
        shard_runtime::sleep(Duration::from_millis(dice.below(millis))).await;
        if rig.is_over() {
            return;
        }
        rig.look(pool);
        match kind {
            0 => rollback::while_open(rig),
            1 => lost_pairs::for_a_while(rig, pool, millis).await,
            2 => full::for_a_while(rig, millis).await,
            _ => together::for_a_while(rig, pool, millis).await,
        }
    }
}
