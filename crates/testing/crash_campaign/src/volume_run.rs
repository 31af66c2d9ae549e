//! A volume through power cuts, on a space of a pool or on a bare disk.
//!
//! One boot: open the pool, open the volume, check and compare everything, workers and bad luck until the end
//! comes, check again. The thread that the volume's metadata has takes turns with the event loop, so a seed does the
//! same each time.

mod accounts;
mod checked;
mod data;
mod liar;
mod model;
mod names;
mod snapshots;
mod steps;
mod verify;
mod worker;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use block_device::Device;
use file_store::{Attributes, FileId, FileKind, FileStore, NewFile, StoreError, StoreErrorKind, StoreUsage};
use pool::{Pool, RepairParams, SpaceSpec};
use shard_runtime::{Clock as _, Monotonic};
use sim::{Dice, Survival, on_shard};
use volume::{Environment, FormatOptions, Volume};
use volume_format::layout_for;

use crate::case::{Case, Layout, Outcome};
use crate::end::End;
use crate::metadata_rot;
use crate::rig::{Mark, Rig, RigSpec, Standing, least_disks, resiliency};
use crate::rot;
use crate::{boot, faults};
use liar::Liar;
use model::Model;

/// Bytes of the volume's device: 8 MiB of them are the metadata's, and so few are left that space is reused.
const SIZE: u64 = 20 << 20;

struct Plan {
    boots: u64,
    steps: u64,
    /// No pool: the volume is on the disk itself.
    bare: bool,
    /// The longest time from one fault or repair of disks to the next.
    luck_millis: u64,
}

struct Run {
    rig: Rig,
    model: Model,
    plan: Plan,
    dice: Dice,
    /// When the last flush that succeeded began.
    last_flush: RefCell<Mark>,
    /// What the volume had in use when there were only directories.
    start: Cell<StoreUsage>,
    /// Something failed for a good reason, and the volume has stopped because of it, or may have.
    stopped: Cell<bool>,
    volume: RefCell<Weak<Volume>>,
    /// When the volume was last seen not to have stopped: what it does behind operations may stop it between two of them.
    running: RefCell<Mark>,
}

/// Runs a case.
pub(crate) fn run(case: &Case) -> Outcome {
    let run = Rc::new(Run::new(case));
    for boot in 0..run.plan.boots {
        let last = boot + 1 == run.plan.boots;
        let end = if last && run.dice.one_in(2) { End::Close } else { End::choose(&run.dice, 80) };
        if let Err(error) = on_shard(one_boot(Rc::clone(&run), boot, end)) {
            let broken = Some(format!("the harness has no event loop: {error}"));
            return Outcome { broken, ..Outcome::default() };
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
    fn new(case: &Case) -> Self {
        let dice = Dice::new(case.seed);
        let bare = case.layout == Layout::Simple && dice.one_in(2);
        let least = least_disks(case.layout) as u64;
        let count = if bare { 1 } else { dice.between(least.max(2), least.max(4)) };
        let spec = RigSpec { count, slab: 1 << 20, data: SIZE + (4 << 20), slow_millis: 400, plain: bare };
        let rig = Rig::new(case, &dice, &spec);
        let plan = Plan {
            boots: dice.between(3, 5),
            steps: dice.between(15, 60),
            bare,
            luck_millis: dice.between(20, 1_500),
        };
        let model = Model::new(dice.between(1, 3));
        Self {
            rig,
            model,
            plan,
            dice,
            last_flush: RefCell::default(),
            start: Cell::default(),
            stopped: Cell::new(false),
            volume: RefCell::default(),
            running: RefCell::default(),
        }
    }

    fn environment(&self) -> Environment {
        Environment {
            clock: Arc::clone(&self.rig.surroundings.clock),
            entropy: Arc::clone(&self.rig.surroundings.entropy),
        }
    }

    fn begin_boot(&self) {
        self.rig.begin_boot();
        *self.last_flush.borrow_mut() = self.rig.mark();
        *self.running.borrow_mut() = self.rig.mark();
        self.stopped.set(false);
    }

    /// The mark of an operation that begins, for [`Run::excuses`].
    fn mark(&self) -> Mark {
        let mark = self.rig.mark();
        if self.volume.borrow().upgrade().is_some_and(|volume| volume.why_stopped().is_none()) {
            self.running.borrow_mut().clone_from(&mark);
        }
        // What a disk without a copy elsewhere has lost is told by the first flush after it, also when the disk is
        // back by then.
        let untold = self.rig.case.layout == Layout::Simple;
        if untold { mark.earlier(&self.last_flush.borrow()) } else { mark }
    }

    /// An operation that flushes, and began at the mark, succeeded.
    fn flushed(&self, since: &Mark) {
        *self.last_flush.borrow_mut() = since.clone().earlier(&self.rig.mark());
    }

    /// Whether a fault since the mark may be the reason of a failure. A volume that has stopped for a good reason
    /// stays so until it is opened again.
    fn excuses(&self, error: &StoreError, since: &Mark) -> bool {
        let mut since = since.clone();
        if error.kind() == StoreErrorKind::Stopped {
            since = since.earlier(&self.running.borrow());
        }
        let stopped = error.kind() == StoreErrorKind::Stopped && self.stopped.get();
        let excused = stopped || self.rig.excuses_since(&since);
        self.stopped.set(self.stopped.get() || excused);
        excused
    }

    /// The time of the simulation.
    fn now(&self) -> Monotonic {
        self.rig.clock.now()
    }

    fn power_returns(&self) {
        self.model.crash(self.rig.alive());
        boot::power_returns(&self.rig, &self.dice);
    }
}

/// What a boot works with.
struct Opened {
    pool: Option<Rc<Pool>>,
    volume: Arc<Volume>,
}

async fn one_boot(run: Rc<Run>, boot: u64, end: End) {
    let rig = &run.rig;
    run.begin_boot();
    rig.trace(|| format!("boot {boot}, to end with {end:?}"));
    let survival = Survival::any(&run.dice);
    if let End::CutFromStart(events) = end
        && boot > 0
    {
        rig.power.cut_after(events, survival);
    }
    let opened = open(&run, boot == 0).await;
    if let Some(opened) = &opened {
        let begun =
            if boot == 0 { prepare(&run, opened).await } else { verify::after_opening(&run, opened).await };
        if begun && !rig.is_over() {
            if let End::Cut(events) = end {
                rig.power.cut_after(events, survival);
            }
            workload(&run, opened, end).await;
            // Nothing is opened after the last boot, so nothing has to be left.
            if boot + 1 == run.plan.boots && !rig.is_over() {
                accounts::all_goes(&run, opened).await;
            }
            finish(&run, opened, end).await;
        }
    } else {
        rig.stats.borrow_mut().cuts_at_opening += 1;
    }
    if !rig.is_killed() {
        rig.trace(|| "power cut".into());
        rig.power.cut(survival);
    }
    unwind(rig, opened).await;
}

/// Ends what is left: all operations fail now. A real end takes the volume's thread with it, here it is told to end,
/// so that it does not reach into the next boot.
async fn unwind(rig: &Rig, opened: Option<Opened>) {
    shard_runtime::sleep(Duration::from_millis(1500)).await;
    if let Some(opened) = opened {
        let _ = shard_runtime::timeout(Duration::from_secs(600), opened.volume.close()).await;
    }
    if shard_runtime::threads_alive() > 0 {
        rig.hung("a thread of the volume's goes on after its boot");
    }
}

/// Opens pool and volume; makes them first if asked.
async fn open(run: &Rc<Run>, first: bool) -> Option<Opened> {
    let rig = &run.rig;
    let (pool, device) = if run.plan.bare {
        (None, rig.disk(0).device())
    } else {
        let opened = if first {
            rig.create_pool().await
        } else {
            metadata_rot::spoil(rig, &run.dice).await;
            boot::open_pool(rig).await
        };
        let pool = match opened {
            Ok(pool) => Rc::new(pool),
            Err(error) => {
                rig.broken(format!("the pool cannot be opened: {error}"));
                return None;
            }
        };
        if first {
            let mut spec = SpaceSpec::thin("v", resiliency(rig.case.layout), SIZE);
            if spec.resiliency.parity() > 0 {
                spec.columns = least_disks(rig.case.layout) as u8;
                spec.interleave = 16 << 10;
            }
            if let Err(error) = pool.create_space(spec).await {
                rig.broken(format!("a space cannot be made: {error}"));
                return None;
            }
        }
        metadata_rot::is_healed(rig, &pool);
        rig.look(&pool);
        rig.trace(|| crate::rig::summary(&pool));
        let params = RepairParams { parallel: 1, ..RepairParams::default() };
        pool.set_repair_params(params);
        let space: Device = pool.space("v")?;
        (Some(pool), space)
    };
    let mut device = device;
    let mut liar = None;
    if rig.case.sabotage.is_of_the_volume()
        && let Some(superblock) = layout_for(device.size())
    {
        let between = Liar::new(device, rig.case.sabotage, run.dice.fork(), &superblock);
        let between = Arc::new(between);
        liar = Some(Arc::clone(&between));
        device = between;
    }
    if first {
        let options = FormatOptions { name: "v".into() };
        if let Err(error) = Volume::format(Arc::clone(&device), options, run.environment()).await {
            rig.broken(format!("the volume cannot be made: {error}"));
            return None;
        }
    } else if run.dice.one_in(2)
        && let Some(pool) = &pool
    {
        verify::settle(run, pool).await;
    }
    match Volume::open(device, run.environment()).await {
        Ok(volume) => {
            if let Some(liar) = liar {
                liar.arm();
            }
            *run.volume.borrow_mut() = Arc::downgrade(&volume);
            Some(Opened { pool, volume })
        }
        Err(error) => {
            // A disk that is away takes a simple space's data with it until it is back.
            if !run.excuses(&error, &run.mark()) {
                rig.broken(format!("the volume cannot be opened: {error}"));
            }
            None
        }
    }
}

/// A directory for each worker, with another in it.
async fn prepare(run: &Rc<Run>, opened: &Opened) -> bool {
    let make = async |within, name: &str, place: &Cell<u64>| {
        let new = NewFile { kind: FileKind::Directory, attributes: Attributes(0x10), security: Vec::new() };
        match opened.volume.create(within, name, new).await {
            Ok(directory) => place.set(directory.0),
            Err(error) => run.rig.broken(format!("a directory cannot be made: {error}")),
        }
        FileId(place.get())
    };
    for (number, part) in run.model.parts.iter().enumerate() {
        let directory = make(opened.volume.root(), &format!("w{number}"), &part.directory).await;
        make(directory, model::INNER, &part.inner).await;
    }
    match opened.volume.usage().await {
        Ok(usage) => run.start.set(usage),
        Err(error) => run.rig.broken(format!("the volume does not tell what it uses: {error}")),
    }
    !run.rig.is_over()
}

async fn workload(run: &Rc<Run>, opened: &Opened, end: End) {
    let mut tasks = Vec::new();
    // Of all, as what one makes durable is all that was changed before.
    let hardly_durable = run.dice.one_in(2);
    for (number, part) in run.model.parts.iter().enumerate() {
        let (run, part, dice) = (Rc::clone(run), Rc::clone(part), run.dice.fork());
        let volume = Arc::clone(&opened.volume);
        tasks.push(shard_runtime::spawn_local(async move {
            worker::Worker::new(&run, &volume, &part, &dice, (number, hardly_durable)).work().await;
        }));
    }
    let luck = opened.pool.as_ref().map(|pool| {
        let (run, pool, dice) = (Rc::clone(run), Rc::clone(pool), run.dice.fork());
        shard_runtime::spawn_local(async move { luck(&run, &pool, &dice).await })
    });
    let troubles = opened.pool.as_ref().map(|pool| {
        let (run, pool) = (Rc::clone(run), Rc::clone(pool));
        let millis = run.plan.luck_millis.max(300);
        shard_runtime::spawn_local(async move { faults::come_and_go(&run.rig, &pool, millis).await })
    });
    let work = async {
        for task in &mut tasks {
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
    luck.into_iter().chain(troubles).for_each(|task| task.abort());
    if run.rig.is_killed() {
        run.model.note_kill();
    } else if let End::Kill(_) = end {
        run.rig.trace(|| "killed".into());
        run.rig.stats.borrow_mut().kills += 1;
        run.rig.kill();
        run.model.note_kill();
    }
    for task in tasks {
        task.abort();
    }
}

/// Disks go and come back.
async fn luck(run: &Rc<Run>, pool: &Pool, dice: &Dice) {
    let cache_lost = || {
        if run.rig.case.layout == Layout::Simple {
            run.model.cache_lost();
        }
    };
    // Some boots have none.
    if dice.one_in(3) {
        return;
    }
    loop {
        shard_runtime::sleep(Duration::from_millis(dice.below(run.plan.luck_millis))).await;
        if run.rig.is_over() {
            return;
        }
        run.rig.look(pool);
        match dice.below(10) {
            0 | 1 => faults::lose(&run.rig, pool, dice, &cache_lost).await,
            2 => faults::fail(&run.rig, dice, &cache_lost),
            3..=6 => faults::bring_back(&run.rig, pool, dice).await,
            7 => faults::replace(&run.rig, pool, dice).await,
            8 => rot::spoil(&run.rig, pool, dice),
            _ => {}
        }
    }
}

/// The workload is done and the power still on.
async fn finish(run: &Rc<Run>, opened: &Opened, end: End) {
    let rig = &run.rig;
    if rig.is_over() {
        return;
    }
    let in_repair = opened.pool.as_ref().is_some_and(|pool| !pool.status().is_fully_redundant());
    if in_repair {
        rig.stats.borrow_mut().cuts_at_repair += 1;
    }
    verify::check(run, &opened.volume).await;
    if end == End::Close && !rig.is_over() {
        rig.trace(|| "close".into());
        let since = run.mark();
        match close(opened).await {
            Ok(()) => {
                run.model.closed();
                let marked = opened.pool.as_ref().map(|pool| rig.marked(pool));
                rig.troubles.closed(marked.unwrap_or_default());
            }
            Err(error) if run.excuses(&error, &since) => rig.trace(|| format!("close: {error}")),
            Err(error) => rig.broken(format!("the volume cannot be closed: {error}")),
        }
    }
}

async fn close(opened: &Opened) -> Result<(), StoreError> {
    opened.volume.close().await?;
    if let Some(pool) = &opened.pool {
        let closed = pool.close().await;
        closed.map_err(|error| StoreError::new(file_store::StoreErrorKind::Io, error.to_string()))?;
    }
    Ok(())
}

/// Disks that are away, counted for what may be expected.
fn away(rig: &Rig) -> usize {
    rig.with_standing(Standing::Away).len()
}
