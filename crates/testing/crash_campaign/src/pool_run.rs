//! Spaces of a pool through power cuts.
//!
//! One boot: open → (settle?) → workers and administrator until the end comes. The cut may be armed before the
//! opening, so that openings, resynchronisation and repair are cut too, several times in a row.

mod admin;
mod model;
mod verify;
mod worker;

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;

use pool::{Pool, PoolErrorKind, Provisioning, SpaceSpec};
use sim::{Dice, Survival, on_shard};

use crate::case::{Case, Outcome};
use crate::end::End;
use crate::rig::{Rig, RigSpec, least_disks, resiliency};
use crate::rot;
use crate::{boot, faults};
use model::Model;

/// What a seed decides once.
struct Plan {
    boots: u64,
    spaces: u64,
    workers: u64,
    steps: u64,
    columns: u8,
    interleave: u32,
    fixed: bool,
    /// Bytes per second of repair; 0 for no limit.
    repair_rate: u64,
}

struct Run {
    rig: Rig,
    model: Model,
    plan: Plan,
    dice: Dice,
    /// The pool of this boot.
    pool: RefCell<Weak<Pool>>,
}

/// Runs a case.
pub(crate) fn run(case: &Case) -> Outcome {
    let dice = Dice::new(case.seed);
    let run = Rc::new(Run::new(case, dice));
    for boot in 0..run.plan.boots {
        let end = End::choose(&run.dice, 40);
        let ended = on_shard(one_boot(Rc::clone(&run), boot, end));
        if let Err(error) = ended {
            return Outcome {
                broken: Some(format!("the harness has no event loop: {error}")),
                ..Outcome::default()
            };
        }
        let outcome = run.rig.outcome();
        if outcome.broken.is_some() {
            return outcome;
        }
        run.power_returns();
    }
    run.rig.outcome()
}

impl Run {
    fn new(case: &Case, dice: Dice) -> Self {
        let least = (least_disks(case.layout) as u64).max(2);
        let count = least + dice.below(if least == 4 { 3 } else { 6 - least });
        let slab: u64 = if dice.one_in(3) { 1 << 20 } else { 256 << 10 };
        let data = if slab == 1 << 20 { 10 << 20 } else { 6 << 20 };
        let rig = Rig::new(case, &dice, &RigSpec { count, slab, data, slow_millis: 15_000, plain: false });
        let copies = resiliency(case.layout).copies() as u64;
        let columns = match u64::from(resiliency(case.layout).parity()) {
            0 if count >= 2 * copies && dice.one_in(2) => 2,
            0 => 1,
            parity => dice.between(parity + 2, count) as u8,
        };
        let plan = Plan {
            boots: dice.between(3, 6),
            spaces: dice.between(1, 2),
            workers: dice.between(1, 5),
            steps: dice.between(20, 90),
            columns,
            interleave: 4096,
            fixed: dice.one_in(4),
            repair_rate: if dice.one_in(3) { 1 << 20 } else { 0 },
        };
        Self { rig, model: Model::default(), plan, dice, pool: RefCell::default() }
    }

    fn spec(&self, name: &str, size: u64) -> SpaceSpec {
        let mut spec = SpaceSpec::thin(name, resiliency(self.rig.case.layout), size);
        spec.columns = self.plan.columns;
        spec.interleave = self.plan.interleave;
        if self.plan.fixed {
            spec.provisioning = Provisioning::Fixed;
        }
        spec
    }

    /// The disks that a row is on.
    fn width(&self) -> usize {
        usize::from(self.plan.columns) * resiliency(self.rig.case.layout).copies()
    }

    /// Whether the pool has room for a new row, with some to spare for rows that others make or give back meanwhile.
    fn has_room(&self) -> bool {
        let pool = self.pool.borrow().upgrade();
        pool.is_some_and(|pool| self.rig.disks_with_room(&pool, 3) >= self.width())
    }

    fn power_returns(&self) {
        self.model.crash();
        boot::power_returns(&self.rig, &self.dice);
    }
}

async fn one_boot(run: Rc<Run>, boot: u64, end: End) {
    let rig = &run.rig;
    rig.begin_boot();
    let booted = rig.mark();
    rig.trace(|| format!("boot {boot}, to end with {end:?}"));
    let survival = Survival::any(&run.dice);
    if let End::CutFromStart(events) = end
        && boot > 0
    {
        rig.power.cut_after(events, survival);
    }
    let opened = if boot == 0 { rig.create_pool().await } else { boot::open_pool(rig).await };
    let pool = match opened {
        Ok(pool) => Rc::new(pool),
        Err(error) => {
            rig.broken(format!("the pool cannot be opened: {error}"));
            rig.stats.borrow_mut().cuts_at_opening += 1;
            return unwind(rig, survival).await;
        }
    };
    *run.pool.borrow_mut() = Rc::downgrade(&pool);
    rig.look(&pool);
    rig.trace(|| crate::rig::summary(&pool));
    if boot == 0 {
        for _ in 0..run.plan.spaces {
            worker::create_space(&run, &pool).await;
        }
    } else {
        // Before anything has been read: what checksums there are lie on the disks.
        for _ in 0..run.dice.below(3) {
            rot::spoil(rig, &pool, &run.dice);
        }
        verify::after_opening(&run, &pool).await;
    }
    if let End::Cut(events) = end {
        rig.power.cut_after(events, survival);
    }
    workload(&run, &pool, end).await;
    if !rig.is_over() && !pool.status().is_fully_redundant() {
        rig.stats.borrow_mut().cuts_at_repair += 1;
    }
    rig.stats.borrow_mut().cuts_at_scrub += u64::from(pool.scrub_status().is_running());
    match end {
        End::Kill(_) if !rig.is_over() => {
            rig.trace(|| "killed".into());
            rig.stats.borrow_mut().kills += 1;
            rig.kill();
            run.model.note_kill();
        }
        End::Close if !rig.is_over() => {
            rig.trace(|| "closed".into());
            match pool.close().await {
                Ok(()) => {
                    run.model.closed();
                    rig.troubles.closed(rig.marked(&pool));
                }
                Err(error) if rig.excuses_failure() => rig.trace(|| format!("close: {error}")),
                // It tells of a loss that no flush has told of, also when the disk is back by then.
                Err(error) if error.kind() == PoolErrorKind::Lost && rig.excuses_since(&booted) => {
                    rig.trace(|| format!("close: {error}"));
                }
                Err(error) => rig.broken(format!("the pool cannot be closed: {error}")),
            }
        }
        _ if rig.is_killed() => run.model.note_kill(),
        _ => {}
    }
    drop(pool);
    unwind(rig, survival).await;
}

/// Ends what is left: all operations fail now, so tasks come to their ends and leave nothing behind.
async fn unwind(rig: &Rig, survival: Survival) {
    if !rig.is_killed() {
        rig.trace(|| "power cut".into());
        rig.power.cut(survival);
    }
    shard_runtime::sleep(Duration::from_secs(40)).await;
}

async fn workload(run: &Rc<Run>, pool: &Rc<Pool>, end: End) {
    let mut tasks = Vec::new();
    for number in 0..run.plan.workers {
        let (run, pool, dice) = (Rc::clone(run), Rc::clone(pool), run.dice.fork());
        tasks.push(shard_runtime::spawn_local(async move { worker::work(&run, &pool, &dice, number).await }));
    }
    let administrator = {
        let (run, pool, dice) = (Rc::clone(run), Rc::clone(pool), run.dice.fork());
        shard_runtime::spawn_local(async move { admin::work(&run, &pool, &dice).await })
    };
    let work = async {
        for task in tasks {
            if task.await.is_err() {
                run.rig.broken("a worker of the campaign panicked, or what it called did");
            }
        }
    };
    let troubles = {
        let (run, pool) = (Rc::clone(run), Rc::clone(pool));
        shard_runtime::spawn_local(async move { faults::come_and_go(&run.rig, &pool, 8_000).await })
    };
    match end {
        End::Kill(millis) => {
            let _ = shard_runtime::timeout(Duration::from_millis(millis), work).await;
        }
        _ => work.await,
    }
    administrator.abort();
    troubles.abort();
}
