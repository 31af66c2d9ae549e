//! From one boot to the next: power and disks come back, some disks get lost, and the pool is opened again.

use pool::{Faults, OpenOptions, Pool, PoolError};
use sim::Dice;

use crate::faults;
use crate::rig::{Rig, Standing, has_losses};

/// Between two boots: disks are lost and found, power comes back.
pub(crate) fn power_returns(rig: &Rig, dice: &Dice) {
    rig.power.restore();
    for slot in rig.slots.borrow().iter() {
        slot.disk.forget_failures();
        slot.disk.keep_writes();
    }
    // Who was away with others is here when the power comes back.
    for slot in rig.troubles.away_together() {
        rig.disk(slot).restore();
    }
    rig.troubles.scattered.borrow_mut().away = false;
    for slot in rig.with_standing(Standing::Away) {
        if dice.one_in(2) {
            rig.disk(slot).restore();
            rig.set_standing(slot, Standing::Member);
            rig.stats.borrow_mut().returns += 1;
            rig.trace(|| format!("disk{slot} is back before the opening"));
        }
    }
    let members = rig.with_standing(Standing::Member);
    if let Some(slot) = dice.pick(&members).copied()
        && dice.one_in(5)
        && rig.may_fail(slot)
    {
        rig.lose(slot, dice);
    }
    faults::between_boots(rig);
}

/// Opens the pool from the disks that are there.
pub(crate) async fn open_pool(rig: &Rig) -> Result<Pool, PoolError> {
    let here: Vec<_> = rig
        .slots
        .borrow()
        .iter()
        .filter(|slot| matches!(slot.standing, Standing::Member | Standing::Joining | Standing::Leaving))
        .map(|slot| slot.disk.device())
        .collect();
    let guid = rig.guid.get().unwrap_or_default();
    let faults = Faults::default();
    rig.sabotage(&faults);
    if !rig.spoiled.borrow().is_empty() || has_losses(&rig.slots.borrow()) {
        // What was under way gets what it lacks before the journal's replay looks at it.
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let pool = Pool::open(guid, here.clone(), options, rig.surroundings.clone()).await;
        pool.iter().for_each(|pool| rig.forget_healed(pool, true));
    }
    let options = OpenOptions::default();
    let pool = Pool::open_broken(guid, here, options, rig.surroundings.clone(), faults).await?;
    rig.troubles.opened(&pool, &rig.marked(&pool));
    // Who was joining when the power went is a member now, or is not.
    for slot in rig.with_standing(Standing::Joining) {
        let member = rig.id(&pool, slot).is_some();
        rig.set_standing(slot, if member { Standing::Member } else { Standing::Replaced });
    }
    // Who was leaving is out now, or is not.
    for slot in rig.with_standing(Standing::Leaving) {
        if rig.id(&pool, slot).is_none() {
            rig.set_standing(slot, Standing::Replaced);
        }
    }
    rig.forget_healed(&pool, true);
    faults::space_returns(rig, &pool).await;
    Ok(pool)
}
