//! Spaces of a pool through power cuts.
//!
//! One boot: open → (settle?) → workers and administrator until the end comes. The cut may be armed before the
//! opening, so that openings, resynchronisation and repair are cut too, several times in a row.

mod admin;
mod model;
mod verify;
mod worker;

use std::rc::Rc;
use std::time::Duration;

use pool::{Pool, Provisioning, SpaceSpec};
use sim::{Dice, Survival, on_shard};

use crate::case::{Case, Layout, Outcome};
use crate::rig::{Rig, Standing, resiliency};
use model::Model;

/// How a boot ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The power goes after so many events, counted from before the opening.
    CutFromStart(u64),
    /// The power goes after so many events, counted from the beginning of the workload.
    Cut(u64),
    /// The process is killed after so many milliseconds of workload.
    Kill(u64),
    /// The pool is closed, then the power goes.
    Close,
}

impl End {
    fn choose(dice: &Dice) -> Self {
        match dice.below(16) {
            0..=2 => Self::CutFromStart(dice.below(40)),
            3 | 4 => Self::CutFromStart(dice.below(600)),
            5 | 6 => Self::Kill(dice.below(8_000)),
            7 => Self::Close,
            8..=10 => Self::Cut(dice.below(150)),
            _ => Self::Cut(dice.below(2_000)),
        }
    }
}

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
}

/// Runs a case.
pub(crate) fn run(case: &Case) -> Outcome {
    let dice = Dice::new(case.seed);
    let run = Rc::new(Run::new(case, dice));
    for boot in 0..run.plan.boots {
        let end = End::choose(&run.dice);
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
        let least = match case.layout {
            Layout::Simple => 2,
            Layout::Mirror2 => 2,
            Layout::Mirror3 => 3,
        };
        let count = least + dice.below(6 - least);
        let slab: u64 = if dice.one_in(3) { 1 << 20 } else { 256 << 10 };
        let rig =
            Rig::new(case, &dice, count as usize, slab, if slab == 1 << 20 { 10 << 20 } else { 6 << 20 });
        let copies = resiliency(case.layout).copies() as u64;
        let columns = if count >= 2 * copies && dice.one_in(2) { 2 } else { 1 };
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
        Self { rig, model: Model::default(), plan, dice }
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

    /// Between two boots: disks are lost and found, power comes back.
    fn power_returns(&self) {
        let (rig, dice) = (&self.rig, &self.dice);
        self.model.crash();
        rig.power.restore();
        rig.slots.borrow().iter().for_each(|slot| slot.disk.forget_failures());
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
    }
}

async fn one_boot(run: Rc<Run>, boot: u64, end: End) {
    let rig = &run.rig;
    rig.begin_boot();
    rig.trace(|| format!("boot {boot}, to end with {end:?}"));
    let survival = Survival::any(&run.dice);
    if let End::CutFromStart(events) = end
        && boot > 0
    {
        rig.power.cut_after(events, survival);
    }
    let opened = if boot == 0 { rig.create_pool().await } else { rig.open_pool().await };
    let pool = match opened {
        Ok(pool) => Rc::new(pool),
        Err(error) => {
            rig.broken(format!("the pool cannot be opened: {error}"));
            rig.stats.borrow_mut().cuts_at_opening += 1;
            return unwind(rig, survival).await;
        }
    };
    rig.look(&pool);
    rig.trace(|| summary(&pool));
    if boot == 0 {
        for _ in 0..run.plan.spaces {
            worker::create_space(&run, &pool).await;
        }
    } else {
        verify::after_opening(&run, &pool).await;
    }
    if let End::Cut(events) = end {
        rig.power.cut_after(events, survival);
    }
    workload(&run, &pool, end).await;
    if !rig.is_over() && !pool.status().is_fully_redundant() {
        rig.stats.borrow_mut().cuts_at_repair += 1;
    }
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
                Ok(()) => run.model.closed(),
                Err(error) if rig.excuses_failure() => rig.trace(|| format!("close: {error}")),
                Err(error) => rig.broken(format!("the pool cannot be closed: {error}")),
            }
        }
        _ => {}
    }
    drop(pool);
    unwind(rig, survival).await;
}

/// A pool's state in a line, for the trace.
fn summary(pool: &Pool) -> String {
    let status = pool.status();
    let disks = status.disks.iter().map(|disk| {
        let record = &disk.record;
        let online = if disk.online { "online" } else { "offline" };
        let votes = if record.metadata { ", votes" } else { "" };
        format!("{} {online} {:?}{votes}, {} bytes stale", record.serial, record.usage, disk.stale_bytes)
    });
    let disks: Vec<String> = disks.collect();
    format!(
        "open in epoch {}: {}; {} bytes unsettled",
        status.epoch,
        disks.join("; "),
        status.unsettled_bytes
    )
}

/// Ends what is left: all operations fail now, so tasks come to their ends and leave nothing behind.
async fn unwind(rig: &Rig, survival: Survival) {
    let killed = rig.is_over() && rig.power.is_on();
    if !killed {
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
    match end {
        End::Kill(millis) => {
            let _ = shard_runtime::timeout(Duration::from_millis(millis), work).await;
        }
        _ => work.await,
    }
    administrator.abort();
}
