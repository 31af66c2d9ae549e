//! Clients of the spaces: reads, writes of all kinds, flushes, and pauses in which regions become clean.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_conformance::pattern;
use block_device::{BlockDevice, BlockError, BlockErrorKind, Durability};
use pool::{Pool, PoolErrorKind, Space};
use sim::{Dice, SECTOR};

use super::Run;
use super::model::{Life, SpaceModel};
use crate::history::Value;
use crate::rig::Mark;

const BLOCK: u64 = 4096;
/// Virtual time after which an operation hangs: far more than the slowest disk and repair can take.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Works until the steps are done or the boot is over.
pub(super) async fn work(run: &Rc<Run>, pool: &Rc<Pool>, dice: &Dice, number: u64) {
    for _ in 0..run.plan.steps {
        if run.rig.is_over() {
            return;
        }
        let Some(model) = dice.pick(&run.model.present()).cloned() else {
            shard_runtime::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Some(space) = pool.space(&model.name) else {
            if model.is_present() {
                run.rig.broken(format!("space {} is gone", model.name));
            }
            continue;
        };
        if shard_runtime::timeout(PATIENCE, step(run, &model, &space, dice, number)).await.is_none() {
            run.rig.broken(format!("an operation on {} has not ended after {PATIENCE:?}", model.name));
        }
    }
}

async fn step(run: &Rc<Run>, model: &SpaceModel, space: &Arc<Space>, dice: &Dice, worker: u64) {
    let (offset, len) = range(model.size.get(), dice);
    let durability = if dice.one_in(2) { Durability::Durable } else { Durability::Volatile };
    let kind = dice.below(100);
    run.rig.trace(|| format!("worker {worker}: {} kind {kind} {offset}+{len} {durability:?}", model.name));
    match kind {
        0..=54 => write(run, model, space, offset, len, durability).await,
        55..=69 => read(run, model, space, offset, len).await,
        70..=78 => flush(run, model, space).await,
        79..=83 => zero(run, model, space, offset, len, durability).await,
        84..=88 => unmap(run, model, space, offset, len).await,
        89 => {
            // Whole rows, which give their slabs back.
            let row = run.rig.slab * u64::from(run.plan.columns);
            let offset = offset / row * row;
            unmap(run, model, space, offset, row.min(model.size.get() - offset)).await;
        }
        90..=96 => shard_runtime::sleep(Duration::from_millis(dice.below(300))).await,
        _ => shard_runtime::sleep(Duration::from_millis(dice.below(15_000))).await,
    }
}

/// Mostly small, half of them in the first blocks, where they meet.
fn range(size: u64, dice: &Dice) -> (u64, u64) {
    let blocks = match dice.below(10) {
        0..=5 => dice.between(1, 4),
        6..=8 => dice.between(1, 20),
        _ => dice.between(1, 64),
    };
    let room = if dice.one_in(2) { size.min(40 * BLOCK) } else { size };
    let len = (blocks * BLOCK).min(room);
    let offset = dice.below((room - len) / BLOCK + 1) * BLOCK;
    (offset, len)
}

fn sectors(offset: u64, len: u64) -> std::ops::Range<usize> {
    offset as usize / SECTOR..(offset + len) as usize / SECTOR
}

/// When something was asked for.
struct Asked {
    since: Mark,
    /// The pool had room for a new row, and want of it is no excuse.
    room: bool,
}

impl Asked {
    fn now(run: &Run) -> Self {
        // A disk that is full is no reason: it is that disk's failure, and the pool has room elsewhere, or does without.
        let strict = run.rig.troubles.kinds.fill;
        Self { since: run.rig.mark(), room: strict && run.has_room() }
    }
}

/// Judges an answer that is an error.
///
/// Want of space is promised to be no answer while there is room, which is looked at before and after: a disk may have joined, or a space
/// been deleted, between the answer and now.
fn refused(run: &Run, model: &SpaceModel, what: &str, error: &BlockError, asked: &Asked) {
    let full = error.kind() == BlockErrorKind::NoSpace && !(asked.room && run.has_room());
    let excused = run.rig.excuses_since(&asked.since) || !model.is_present() || full;
    run.rig.trace(|| {
        format!("{what} of {} failed{}: {error}", model.name, if excused { ", excused" } else { "" })
    });
    if !excused {
        run.rig.broken(format!("{what} of {} fails within what the layout stands: {error}", model.name));
    }
}

async fn write(
    run: &Run,
    model: &SpaceModel,
    space: &Arc<Space>,
    offset: u64,
    len: u64,
    durability: Durability,
) {
    let asked = Asked::now(run);
    let generation = run.model.next_generation();
    let mut buf = IoBuf::new(len as usize);
    pattern::fill(&mut buf, u64::from(model.owner), offset, u64::from(generation));
    let begun =
        model.history.borrow_mut().begin(sectors(offset, len), |sector| model.value(generation, sector));
    run.rig.trace(|| format!("write {generation} begins"));
    let written = space.write(offset, buf.freeze(), durability).await;
    run.rig.trace(|| format!("write {generation} ends well: {}", written.is_ok()));
    conclude(run, model, "a write", &begun, written, durability, &asked);
}

async fn zero(
    run: &Run,
    model: &SpaceModel,
    space: &Arc<Space>,
    offset: u64,
    len: u64,
    durability: Durability,
) {
    let asked = Asked::now(run);
    let begun = model.history.borrow_mut().begin(sectors(offset, len), |_| Value::ZERO);
    let zeroed = space.write_zeroes(offset, len, durability).await;
    conclude(run, model, "a write of zeros", &begun, zeroed, durability, &asked);
}

async fn unmap(run: &Run, model: &SpaceModel, space: &Arc<Space>, offset: u64, len: u64) {
    let asked = Asked::now(run);
    let begun = model.history.borrow_mut().begin(sectors(offset, len), |_| Value::ZERO);
    let unmapped = space.unmap(offset, len).await;
    conclude(run, model, "an unmap", &begun, unmapped, Durability::Volatile, &asked);
}

fn conclude(
    run: &Run,
    model: &SpaceModel,
    what: &str,
    begun: &crate::history::Operation,
    result: Result<(), BlockError>,
    durability: Durability,
    asked: &Asked,
) {
    match result {
        Ok(()) => {
            run.rig.answered();
            model.history.borrow_mut().complete(begun, durability == Durability::Durable);
        }
        Err(error) => {
            model.history.borrow_mut().fail(begun);
            refused(run, model, what, &error, asked);
        }
    }
}

async fn flush(run: &Run, model: &SpaceModel, space: &Arc<Space>) {
    // A loss is told by the first flush that ends after it.
    let asked = Asked { since: run.rig.mark().earlier(&model.last_flush.borrow()), ..Asked::now(run) };
    let began = model.history.borrow_mut().moment();
    let flushed = space.flush().await;
    *model.last_flush.borrow_mut() = run.rig.mark();
    run.rig.trace(|| format!("flush of {} ends well: {}", model.name, flushed.is_ok()));
    match flushed {
        Ok(()) => {
            run.rig.answered();
            model.history.borrow_mut().flushed(began);
        }
        Err(error) => {
            model.history.borrow_mut().flush_failed();
            refused(run, model, "a flush", &error, &asked);
        }
    }
}

async fn read(run: &Run, model: &SpaceModel, space: &Arc<Space>, offset: u64, len: u64) {
    let asked = Asked::now(run);
    let reading = model.history.borrow_mut().begin_read(sectors(offset, len));
    let read = space.read(offset, IoBuf::new(len as usize)).await;
    let bytes = read.as_ref().ok().filter(|_| model.is_present()).map(|buf| &buf[..]);
    let judged = model.history.borrow_mut().end_read(&reading, bytes);
    if let Err(what) = judged {
        run.rig.broken(format!("{}: a read: {what}", model.name));
    }
    match read {
        Ok(_) => {
            run.rig.answered();
            run.rig.stats.borrow_mut().sectors += len / SECTOR as u64;
        }
        Err(error) => refused(run, model, "a read", &error, &asked),
    }
}

/// Makes one more space.
pub(super) async fn create_space(run: &Rc<Run>, pool: &Pool) {
    let rows = run.dice.between(1, 2 + (2 << 20) / (run.rig.slab * u64::from(run.plan.columns)));
    let most = rows.min(8) * run.rig.slab * u64::from(run.plan.columns);
    let size = most - run.dice.below(2) * 16 * BLOCK;
    let model = run.model.add(size);
    run.rig.trace(|| format!("create {} of {size} bytes", model.name));
    match pool.create_space(run.spec(&model.name, size)).await {
        Ok(_) => {
            run.rig.answered();
            model.life.set(Life::Present);
        }
        Err(error) if error.kind() == PoolErrorKind::NoSpace => model.life.set(Life::Gone),
        Err(error) => {
            if !run.rig.excuses_failure() {
                run.rig.broken(format!("a space cannot be made: {error}"));
            }
        }
    }
}
