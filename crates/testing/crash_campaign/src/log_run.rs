//! A write log before a disk, through power cuts, and through the loss of either of its devices.
//!
//! Two things are kept in mind of each sector: what the log must show, and what the back alone may show if the front is
//! given up with what was only there. A front that fails is nobody's business: the log goes on without it, and no operation may
//! fail. A back that fails may make operations fail, but what was acknowledged is there at the next opening.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_conformance::pattern;
use block_device::{BlockDevice, BlockError, BlockErrorKind, Device, Durability};
use sim::{Dice, SECTOR, Survival, on_shard};
use write_log::{LogMode, Options, WriteLog};

use crate::case::{Case, Outcome};
use crate::end::End;
use crate::history::{History, Operation, Value};
use crate::rig::{Rig, RigSpec, Standing};

/// Bytes that clients use.
const AREA: u64 = 768 << 10;
/// Virtual time after which an operation hangs.
const PATIENCE: Duration = Duration::from_secs(1800);
/// The slot of the back; the front is the newest of the others.
const BACK: usize = 0;

struct Run {
    rig: Rig,
    dice: Dice,
    options: Options,
    boots: u64,
    clients: u64,
    steps: u64,
    front: Cell<usize>,
    /// What the log may show.
    history: RefCell<History>,
    /// What the back may show if the front is given up.
    alone: RefCell<History>,
    generation: Cell<u32>,
    /// The back had a fault in this boot.
    back_failed: Cell<bool>,
    /// The front was given up, and the back may not know it yet.
    given_up: Cell<bool>,
    /// The back has said, durably, that it has everything.
    known_void: Cell<bool>,
    killed: Cell<bool>,
}

/// Runs a case.
pub(crate) fn run(case: &Case) -> Outcome {
    let run = Rc::new(Run::new(case));
    for boot in 0..run.boots {
        let end = End::choose(&run.dice, 8);
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
        // Room for the log's own part of the back, and a ring that is filled now and then.
        let spec = RigSpec { count: 2, slab: 0, data: 256 << 10, slow_millis: 200, plain: true };
        let rig = Rig::new(case, &dice, &spec);
        let options = Options {
            small: 4096 << dice.below(5),
            memory: (192 << 10) << dice.below(4),
            quiet: Duration::from_millis(dice.between(1, 400)),
        };
        let zeros = || RefCell::new(History::zeros(AREA as usize / SECTOR));
        Self {
            rig,
            options,
            boots: dice.between(3, 6),
            clients: dice.between(1, 4),
            steps: dice.between(20, 90),
            front: Cell::new(1),
            history: zeros(),
            alone: zeros(),
            generation: Cell::new(0),
            back_failed: Cell::new(false),
            given_up: Cell::new(false),
            known_void: Cell::new(false),
            killed: Cell::new(false),
            dice,
        }
    }

    fn front_is_here(&self) -> bool {
        self.rig.disk(self.front.get()).is_present()
    }

    /// Between two boots: devices come back, or the front never does.
    fn power_returns(&self) {
        let (rig, dice) = (&self.rig, &self.dice);
        self.history.borrow_mut().crash();
        self.alone.borrow_mut().crash();
        rig.power.restore();
        rig.slots.borrow().iter().for_each(|slot| slot.disk.mend());
        rig.disk(BACK).restore();
        let front = self.front.get();
        if self.front_is_here() && dice.one_in(6) {
            rig.trace(|| "the front is lost".into());
            rig.disk(front).vanish(Survival::any(dice));
            rig.set_standing(front, Standing::Away);
            rig.stats.borrow_mut().losses += 1;
        } else if !self.front_is_here() && !self.given_up.get() && dice.one_in(2) {
            self.front_returns();
        }
    }

    fn front_returns(&self) {
        self.rig.trace(|| "the front is back".into());
        self.rig.disk(self.front.get()).restore();
        self.rig.set_standing(self.front.get(), Standing::Member);
        self.rig.stats.borrow_mut().returns += 1;
    }

    async fn open_with(&self, front: Option<Device>, accept_loss: bool) -> Result<WriteLog, BlockError> {
        let entropy = &*self.rig.surroundings.entropy;
        WriteLog::open(front, self.rig.disk(BACK).device(), self.options, entropy, accept_loss).await
    }

    fn begin(&self, (offset, len): (u64, u64), value: impl Fn(usize) -> Value) -> [Operation; 2] {
        let sectors = offset as usize / SECTOR..(offset + len) as usize / SECTOR;
        let first = self.history.borrow_mut().begin(sectors.clone(), &value);
        [first, self.alone.borrow_mut().begin(sectors, value)]
    }

    fn conclude(&self, what: &str, begun: &[Operation; 2], result: Result<(), BlockError>, durable: bool) {
        match result {
            Ok(()) => {
                self.rig.answered();
                self.history.borrow_mut().complete(&begun[0], durable);
                self.alone.borrow_mut().complete(&begun[1], false);
            }
            Err(error) => {
                self.history.borrow_mut().fail(&begun[0]);
                self.alone.borrow_mut().fail(&begun[1]);
                self.refused(what, &error);
            }
        }
    }

    fn refused(&self, what: &str, error: &BlockError) {
        self.rig.trace(|| format!("{what} failed: {error}"));
        if !self.back_failed.get() {
            self.rig.broken(format!("{what} fails although the back is well: {}", whole(error)));
        }
    }
}

async fn one_boot(run: Rc<Run>, boot: u64, end: End) {
    let rig = &run.rig;
    rig.begin_boot();
    run.back_failed.set(false);
    rig.trace(|| format!("boot {boot}, to end with {end:?}"));
    let survival = Survival::any(&run.dice);
    if boot == 0 {
        let (front, back) = (rig.disk(run.front.get()).device(), rig.disk(BACK).device());
        let made = WriteLog::create(&front, &back, &*rig.surroundings.entropy).await;
        if let Err(error) = made {
            rig.broken(format!("the log cannot be made: {error}"));
        }
    } else if let End::CutFromStart(events) = end {
        rig.power.cut_after(events, survival);
    }
    let log = open(&run).await.map(Rc::new);
    if let Some(log) = &log {
        if compare(&run, log).await {
            if let End::Cut(events) = end {
                rig.power.cut_after(events, survival);
            }
            workload(&run, log, end).await;
            finish(&run, log, end).await;
        }
    } else {
        rig.stats.borrow_mut().cuts_at_opening += 1;
    }
    if !rig.is_killed() {
        rig.power.cut(survival);
    }
    drop(log);
    shard_runtime::sleep(Duration::from_secs(40)).await;
}

/// Opens the log, with its front if that is there.
async fn open(run: &Run) -> Option<WriteLog> {
    let rig = &run.rig;
    if !run.front_is_here() {
        match run.open_with(None, false).await {
            Ok(log) => {
                run.given_up.set(false);
                return Some(log);
            }
            Err(error) if error.kind() == BlockErrorKind::Gone && !run.known_void.get() => {
                rig.trace(|| format!("without its front: {error}"));
            }
            Err(error) => {
                rig.broken(format!("the back has everything and cannot be opened: {error}"));
                return None;
            }
        }
        if rig.is_over() {
            return None;
        }
        if !run.given_up.get() && run.dice.one_in(2) {
            run.front_returns();
        } else {
            return give_up_front(run).await;
        }
    }
    // An opening with a front may begin a new log on it, and say so on the back, before the power goes: then the back waits
    // for that front, although nothing was acknowledged on it.
    run.known_void.set(false);
    match run.open_with(Some(rig.disk(run.front.get()).device()), false).await {
        Ok(log) => Some(log),
        Err(error) => {
            rig.broken(format!("the log cannot be opened: {}", whole(&error)));
            None
        }
    }
}

/// An error with what is behind it.
fn whole(error: &BlockError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The front never comes back: the back shows what it has.
async fn give_up_front(run: &Run) -> Option<WriteLog> {
    let rig = &run.rig;
    rig.trace(|| "the front is given up".into());
    if !run.given_up.replace(true) {
        *run.history.borrow_mut() = run.alone.borrow().clone();
        rig.set_standing(run.front.get(), Standing::Replaced);
        run.front.set(rig.add_slot(Standing::Member));
        rig.disk(run.front.get()).unplug();
        rig.stats.borrow_mut().replacements += 1;
    }
    match run.open_with(None, true).await {
        Ok(log) => {
            run.given_up.set(false);
            Some(log)
        }
        Err(error) => {
            rig.broken(format!("the back cannot be opened without its front: {error}"));
            None
        }
    }
}

/// Everything must be there; whether the boot can go on.
async fn compare(run: &Run, log: &WriteLog) -> bool {
    let rig = &run.rig;
    let durable = !run.killed.take();
    run.known_void.set(log.status().mode == LogMode::Through);
    let bytes = match log.read(0, IoBuf::new(AREA as usize)).await {
        Ok(bytes) => bytes,
        Err(error) => {
            rig.broken(format!("the log cannot be read after the opening: {error}"));
            return false;
        }
    };
    rig.stats.borrow_mut().sectors += AREA / SECTOR as u64;
    for (sector, bytes) in bytes.chunks(SECTOR).enumerate() {
        let found = Value::of(bytes);
        let judged = run.history.borrow().admits(sector, found);
        if let Err(what) = judged {
            rig.broken(format!("after the opening sector {sector} holds {what}"));
            return false;
        }
        let Some(value) = found else { continue };
        run.history.borrow_mut().settle(sector, value, durable);
        if run.known_void.get() {
            run.alone.borrow_mut().settle(sector, value, durable);
        }
    }
    !rig.is_over()
}

async fn workload(run: &Rc<Run>, log: &Rc<WriteLog>, end: End) {
    let mut tasks = Vec::new();
    for number in 0..run.clients {
        let (run, log, dice) = (Rc::clone(run), Rc::clone(log), run.dice.fork());
        tasks.push(shard_runtime::spawn_local(async move {
            for _ in 0..run.steps {
                if run.rig.is_over() {
                    return;
                }
                if shard_runtime::timeout(PATIENCE, step(&run, &log, &dice, number)).await.is_none() {
                    run.rig.broken(format!("an operation has not ended after {PATIENCE:?}"));
                }
            }
        }));
    }
    let luck = {
        let (run, dice) = (Rc::clone(run), run.dice.fork());
        shard_runtime::spawn_local(async move { luck(&run, &dice).await })
    };
    let work = async {
        for task in &mut tasks {
            if task.await.is_err() {
                run.rig.broken("a client panicked, or what it called did");
            }
        }
    };
    match end {
        End::Kill(millis) => {
            let _ = shard_runtime::timeout(Duration::from_millis(millis), work).await;
        }
        _ => work.await,
    }
    luck.abort();
    if let End::Kill(_) = end
        && !run.rig.is_over()
    {
        run.rig.trace(|| "killed".into());
        run.rig.stats.borrow_mut().kills += 1;
        run.killed.set(true);
        run.rig.kill();
    }
    for task in tasks {
        task.abort();
    }
}

/// The workload is done and the power still on.
async fn finish(run: &Run, log: &Rc<WriteLog>, end: End) {
    let rig = &run.rig;
    if rig.is_over() {
        return;
    }
    if log.status().waiting_bytes > 0 {
        rig.stats.borrow_mut().cuts_at_repair += 1;
    }
    if end == End::Close {
        match log.close().await {
            Ok(()) => {
                run.history.borrow_mut().closed();
                run.alone.borrow_mut().closed();
            }
            Err(error) => run.refused("closing", &error),
        }
    }
    // Through means that the back's label says so.
    run.known_void.set(!rig.is_over() && log.status().mode == LogMode::Through);
}

/// Devices fail and go.
async fn luck(run: &Run, dice: &Dice) {
    let (rig, front) = (&run.rig, run.front.get());
    if dice.one_in(3) {
        return;
    }
    loop {
        shard_runtime::sleep(Duration::from_millis(dice.below(3_000))).await;
        if rig.is_over() {
            return;
        }
        let kind = dice.below(40);
        match kind {
            0 => rig.disk(front).fail_writes(dice.between(1, 3)),
            1 => rig.disk(front).fail_flushes(1),
            2 => rig.disk(front).unplug(),
            3 => rig.disk(front).vanish(Survival::any(dice)),
            4 | 5 => {
                run.back_failed.set(true);
                run.history.borrow_mut().cache_lost();
                run.alone.borrow_mut().cache_lost();
                match dice.below(4) {
                    0 | 1 => rig.disk(BACK).fail_writes(dice.between(1, 3)),
                    2 => rig.disk(BACK).fail_flushes(1),
                    _ => rig.disk(BACK).vanish(Survival::any(dice)),
                }
            }
            _ => continue,
        }
        rig.stats.borrow_mut().losses += 1;
        rig.trace(|| format!("the {} fails ({kind})", if kind < 4 { "front" } else { "back" }));
    }
}

async fn step(run: &Run, log: &WriteLog, dice: &Dice, client: u64) {
    let unit = if dice.one_in(4) { u64::from(log.geometry().block_size) } else { 4096 };
    let count = if dice.one_in(4) { dice.between(5, 40) } else { dice.between(1, 3) };
    // Near each other now and then, so that ranges meet.
    let room = if dice.one_in(2) { 48 << 10 } else { AREA };
    let len = (count * unit).min(room);
    let range = (dice.below((room - len) / unit + 1) * unit, len);
    let durability = if dice.one_in(2) { Durability::Durable } else { Durability::Volatile };
    let durable = durability == Durability::Durable;
    let kind = dice.below(100);
    run.rig.trace(|| format!("client {client}: kind {kind} {range:?} {durability:?}"));
    match kind {
        0..=54 => {
            run.generation.set(run.generation.get() + 1);
            let generation = run.generation.get();
            let mut buf = IoBuf::new(range.1 as usize);
            pattern::fill(&mut buf, 1, range.0, u64::from(generation));
            let begun = run.begin(range, |sector| Value { owner: 1, generation, sector: sector as u32 });
            let written = log.write(range.0, buf.freeze(), durability).await;
            run.rig.trace(|| format!("write {generation} ends well: {}", written.is_ok()));
            run.conclude("a write", &begun, written, durable);
        }
        55..=62 => {
            let begun = run.begin(range, |_| Value::ZERO);
            let zeroed = log.write_zeroes(range.0, range.1, durability).await;
            run.conclude("a write of zeros", &begun, zeroed, durable);
        }
        63..=68 => {
            let begun = run.begin(range, |_| Value::ZERO);
            let unmapped = log.unmap(range.0, range.1).await;
            run.conclude("an unmap", &begun, unmapped, false);
        }
        69..=78 => read(run, log, range).await,
        79..=86 => settle(run, "a flush", log.flush(), Reach::Log).await,
        87 | 88 => settle(run, "emptying the log", log.drain(), Reach::Back).await,
        89 if dice.one_in(4) => {
            settle(run, "detaching the front", log.detach(), Reach::Back).await;
        }
        _ => shard_runtime::sleep(Duration::from_millis(dice.below(600))).await,
    }
}

/// Where what was acknowledged is durable afterwards.
#[derive(PartialEq, Eq)]
enum Reach {
    Log,
    Back,
}

/// A flush, or something that takes everything to the back as well.
async fn settle(
    run: &Run,
    what: &str,
    operation: impl Future<Output = Result<(), BlockError>>,
    reach: Reach,
) {
    let began = (run.history.borrow_mut().moment(), run.alone.borrow_mut().moment());
    match operation.await {
        Ok(()) => {
            run.rig.answered();
            run.history.borrow_mut().flushed(began.0);
            if reach == Reach::Back {
                run.alone.borrow_mut().flushed(began.1);
            }
        }
        Err(error) => {
            run.history.borrow_mut().flush_failed();
            run.refused(what, &error);
        }
    }
}

async fn read(run: &Run, log: &WriteLog, (offset, len): (u64, u64)) {
    let sectors = offset as usize / SECTOR..(offset + len) as usize / SECTOR;
    let reading = run.history.borrow_mut().begin_read(sectors);
    let read = log.read(offset, IoBuf::new(len as usize)).await;
    let bytes = read.as_ref().ok().map(|buf| &buf[..]);
    let judged = run.history.borrow_mut().end_read(&reading, bytes);
    if let Err(what) = judged {
        run.rig.broken(format!("a read: {what}"));
    }
    match read {
        Ok(_) => {
            run.rig.answered();
            run.rig.stats.borrow_mut().sectors += len / SECTOR as u64;
        }
        Err(error) => run.refused("a read", &error),
    }
}
