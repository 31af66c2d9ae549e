//! Sectors that go bad and no disk says so, within what the layout stands; and the scrub that must find all of them.
//!
//! A disk with such sectors counts as one that has failed, until they are healed. They are put where a space's copies, or
//! the columns of its row, are all here, equal and at rest. One limit is taken for granted: which copy is right is known
//! by checksums, and these are not known after a crash where writes were under way. What is bad there, and was not
//! met before the power went, is therefore made good again at the opening; everywhere else it stays.

use std::time::Duration;

use pool::{Pool, Severity, SlabInUse};
use sim::Dice;

use crate::case::Layout;
use crate::rig::{REGIONS, Rig, Spoiled, Standing, group_of, has_losses};

pub(crate) const BLOCK: u64 = 4096;

/// Regions of a slab's group in which everything is good and at rest.
pub(crate) fn at_rest(slabs: &[SlabInUse], slab: &SlabInUse, least: usize) -> u64 {
    let group: Vec<_> = slabs.iter().filter(|other| group_of(other) == group_of(slab)).collect();
    if group.len() < least {
        return 0;
    }
    group.iter().fold(slab.quiet, |mask, other| mask & other.good)
}

/// Spoils some blocks of one disk, where that may be done now.
pub(crate) fn spoil(rig: &Rig, pool: &Pool, dice: &Dice) {
    if rig.case.layout == Layout::Simple || has_losses(&rig.slots.borrow()) {
        return;
    }
    let slabs = pool.slabs_in_use();
    let Some(slab) = dice.pick(&slabs) else { return };
    let members = rig.with_standing(Standing::Member);
    let Some(slot) = members.into_iter().find(|slot| rig.id(pool, *slot) == Some(slab.disk)) else { return };
    let rest = at_rest(&slabs, slab, rig.redundancy());
    let regions: Vec<u64> = (0..REGIONS).filter(|region| rest & (1 << region) != 0).collect();
    let Some(region) = dice.pick(&regions).copied() else { return };
    // A page of checksums and what it is of, both bad on one disk, are more than one fault.
    let there = |page: bool| {
        let spoiled = rig.spoiled.borrow();
        spoiled.iter().any(|bad| bad.group == group_of(slab) && (!page || bad.region.is_none()))
    };
    let page = slab.sums.filter(|_| dice.one_in(6) && rest == u64::MAX && !there(false));
    if (page.is_none() && there(true)) || !rig.may_fail(slot) {
        return;
    }
    let size = slab.len / REGIONS;
    for _ in 0..if page.is_some() { 1 } else { dice.between(1, 6) } {
        let at = match page {
            Some((sums, len)) => sums + dice.below(len / 512) * 512,
            None => slab.start + region * size + dice.below(size / BLOCK) * BLOCK + dice.below(8) * 512,
        };
        // What it was before is known once.
        if rig.spoiled.borrow().iter().any(|bad| bad.slot == slot && bad.at == at) {
            continue;
        }
        let Some(rot) = rig.disk(slot).rot(at, dice) else { continue };
        rig.trace(|| format!("disk{slot} rots at {at}, row {} of space {}", slab.row, slab.space.0));
        rig.stats.borrow_mut().spoiled += 1;
        let region = if page.is_some() { None } else { Some(region) };
        let (group, start) = (group_of(slab), slab.start);
        rig.spoiled.borrow_mut().push(Spoiled { slot, at, rot, group, start, region });
    }
}

/// Nobody reads a page of checksums that is in memory: what is bad there is healed when it is written next, or goes by
/// itself.
fn forget_pages(rig: &Rig, pool: &Pool) {
    let slabs = pool.slabs_in_use();
    for slot in 0..rig.slots.borrow().len() {
        let (disk, id) = (rig.disk(slot), rig.id(pool, slot));
        let holds = |slab: &SlabInUse, at| {
            Some(slab.disk) == id && slab.sums.is_some_and(|(start, len)| (start..start + len).contains(&at))
        };
        let pages = disk.lost().into_iter().filter(|at| slabs.iter().any(|slab| holds(slab, *at)));
        pages.for_each(|at| disk.put_back(at));
    }
    rig.spoiled.borrow_mut().retain(|bad| {
        if bad.region.is_none() {
            rig.disk(bad.slot).unrot(&bad.rot);
        }
        bad.region.is_some()
    });
}

/// Of a pool that is whole: a scrub heals all that is bad, a second one finds nothing, nor does the deep check.
pub(crate) async fn scrub_and_check(rig: &Rig, pool: &Pool) {
    if rig.case.layout != Layout::Simple {
        rig.slots.borrow().iter().for_each(|slot| slot.disk.keep_writes());
        let spoiled = !rig.spoiled.borrow().is_empty() || has_losses(&rig.slots.borrow());
        if spoiled && !scrub(rig, pool).await {
            return;
        }
        rig.forget_healed(pool, false);
        forget_pages(rig, pool);
        let lacking = rig.slots.borrow().iter().find(|slot| !slot.disk.lost().is_empty()).map(|slot| {
            format!("a scrub leaves {} without what it has lost at {:?}", slot.name, slot.disk.lost().first())
        });
        if let Some(lacking) = lacking {
            rig.broken(lacking);
        }
        if let Some(bad) = rig.spoiled.borrow().first() {
            let Spoiled { slot, group, start, region, .. } = bad;
            rig.broken(format!("a scrub leaves disk{slot} bad at {start}, {group:?}, region {region:?}"));
        }
        // Ends what was ordered of failures, which the check would meet.
        rig.look(pool);
        if spoiled && scrub(rig, pool).await {
            let record = pool.scrub_status().record;
            if record.damaged + record.hopeless > 0 {
                rig.broken(format!("a second scrub finds damage: {record:?}"));
            }
        }
    } else {
        rig.look(pool);
    }
    if rig.is_over() {
        return;
    }
    // A disk that is away is worth a warning, and nothing wrong with the pool.
    let findings = pool.check(true).await;
    if let Some(finding) = findings.iter().find(|finding| finding.severity != Severity::Warning) {
        rig.broken(format!("the check of the pool finds: {finding:?}"));
    }
}

/// A scrub from its beginning to its end; `false` if the boot is over. One that was under way is ended first.
async fn scrub(rig: &Rig, pool: &Pool) -> bool {
    let was_running = pool.scrub_status().is_running();
    for _ in 0..if was_running { 2 } else { 1 } {
        if let Err(error) = pool.start_scrub().await {
            rig.broken(format!("a scrub cannot be started: {error}"));
            return false;
        }
        // Seconds: the disks here are slow, and every region is read from all of them.
        let mut patience = 2000;
        while pool.scrub_status().is_running() {
            shard_runtime::sleep(Duration::from_secs(1)).await;
            if rig.is_over() {
                return false;
            }
            patience -= 1;
            if patience == 0 {
                rig.broken(format!("a scrub does not end: {:?}", pool.scrub_status()));
                return false;
            }
        }
    }
    rig.stats.borrow_mut().scrubs += 1;
    !rig.is_over()
}

/// A scrub is asked for, and goes on beside everything else.
pub(crate) async fn begin_scrub(rig: &Rig, pool: &Pool) {
    let begun = pool.start_scrub().await;
    if rig.judge("starting a scrub", begun) {
        rig.stats.borrow_mut().scrubs += 1;
    }
}
