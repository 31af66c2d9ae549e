//! Power cuts at every moment of a workload, with failing disks; what was acknowledged is there (W1), what else is there was
//! asked for (W3); and defects put in on purpose are noticed.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, BlockErrorKind, Durability};
use futures_util::future::join_all;
use sim::{Dice, Lie, Survival, on_shard};

use super::oracle::Oracle;
use super::{Rig, Sabotage};
use crate::{LogMode, WriteLog};

/// Bytes that the workload uses.
const AREA: u64 = 384 << 10;
const BLOCK: u64 = 4096;
const BOOTS: u64 = 6;

struct Life {
    oracle: RefCell<Oracle>,
    /// Whether operations may fail: a disk was told to.
    faulty: bool,
    power: Arc<sim::Power>,
}

async fn client(log: Arc<WriteLog>, life: Rc<Life>, dice: Dice) -> Result<(), String> {
    for _ in 0..dice.between(6, 30) {
        let blocks = if dice.one_in(4) { dice.between(5, 40) } else { dice.between(1, 3) };
        // Near each other now and then, so that ranges meet.
        let first = if dice.one_in(2) { dice.below(12) } else { dice.below(AREA / BLOCK) };
        let (offset, len) = (first * BLOCK, blocks.min(AREA / BLOCK - first) * BLOCK);
        let durability = if dice.one_in(2) { Durability::Durable } else { Durability::Volatile };
        let durable = durability == Durability::Durable;
        let result = match dice.below(12) {
            0..8 => {
                let (asked, data) = life.oracle.borrow_mut().ask(offset, len, false);
                let result = log.write(offset, IoBuf::copy_from(&data).freeze(), durability).await;
                result.map(|()| life.oracle.borrow_mut().acknowledged(asked, durable))
            }
            8 => {
                let (asked, _) = life.oracle.borrow_mut().ask(offset, len, true);
                let result = log.write_zeroes(offset, len, durability).await;
                result.map(|()| life.oracle.borrow_mut().acknowledged(asked, durable))
            }
            9 => {
                let (asked, _) = life.oracle.borrow_mut().ask(offset, len, true);
                let result = log.unmap(offset, len).await;
                result.map(|()| life.oracle.borrow_mut().acknowledged(asked, false))
            }
            10 => {
                let begun = life.oracle.borrow_mut().flush();
                let result = log.flush().await;
                result.map(|()| life.oracle.borrow_mut().flushed(begun))
            }
            _ => {
                shard_runtime::sleep(std::time::Duration::from_millis(dice.below(20))).await;
                Ok(())
            }
        };
        if let Err(error) = result {
            if life.power.is_on() && !life.faulty {
                return Err(format!(
                    "failed without a reason: {error} {:?}",
                    std::error::Error::source(&error)
                ));
            }
            if !life.power.is_on() || error.kind() == BlockErrorKind::Poisoned {
                return Ok(());
            }
        }
    }
    Ok(())
}

async fn content(log: &WriteLog) -> Result<IoBuf, String> {
    log.read(0, IoBuf::zeroed(AREA as usize)).await.map_err(|error| format!("read: {error}"))
}

/// Several lives of a log, each but the last ended by a cut. Gives what it went through, or the broken promise.
fn run(seed: u64, sabotage: Sabotage, lies: (Option<Lie>, Option<Lie>)) -> Result<[u64; 5], String> {
    let dice = Dice::new(seed);
    let mut rig = Rig::new(seed, 600 << 10, 2 << 20, if seed.is_multiple_of(3) { 512 } else { 4096 });
    rig.options.sabotage = sabotage;
    let life = Rc::new(RefCell::new(Some(Oracle::new(AREA))));
    let mut seen = [0; 5];
    for boot in 0..BOOTS {
        rig.front.set_lie(lies.0);
        rig.back.set_lie(lies.1);
        let ended = on_shard(async {
            if boot == 0 {
                rig.create().await.map_err(|error| error.to_string())?;
            }
            // Now and then the power goes while the log is being opened.
            if dice.one_in(6) {
                rig.power.cut_after(dice.below(3), Survival::any(&dice));
            }
            let log = match rig.open().await {
                Ok(log) => log,
                Err(_) if !rig.power.is_on() => return Ok(()),
                Err(error) => return Err(format!("open: {error} {:?}", std::error::Error::source(&error))),
            };
            if !rig.power.is_on() {
                return Ok(());
            }
            rig.power.restore();
            let mut oracle = life.borrow_mut().take().ok_or("lost")?;
            let replayed = content(&log).await?;
            oracle.compare(&replayed, true).map_err(|broken| format!("boot {boot}: {broken}"))?;
            seen[0] += log.status().replayed_batches;
            let faulty = dice.one_in(3);
            if faulty {
                let after = dice.below(3);
                match dice.below(4) {
                    0 => rig.front.fail_writes(after + 1),
                    1 => rig.back.fail_writes(after + 1),
                    2 => rig.back.fail_flushes(1),
                    _ => rig.front.unplug(),
                }
            }
            let now = Rc::new(Life { oracle: RefCell::new(oracle), faulty, power: Arc::clone(&rig.power) });
            if boot + 1 < BOOTS {
                rig.power.cut_after(dice.below(250), Survival::any(&dice));
            }
            let clients = (0..4).map(|_| client(Arc::clone(&log), Rc::clone(&now), dice.fork()));
            let results = join_all(clients).await;
            let mode = log.status().mode;
            let on = rig.power.is_on();
            seen[1] += u64::from(on && mode == LogMode::Through);
            seen[2] += u64::from(on && mode == LogMode::Poisoned);
            seen[3] += u64::from(!on);
            seen[4] += log.status().destaged_runs;
            if rig.power.is_on() && mode != LogMode::Poisoned && !faulty {
                match content(&log).await {
                    Ok(shown) => {
                        let compared = now.oracle.borrow_mut().compare(&shown, false);
                        compared.map_err(|broken| format!("live: {broken}"))?;
                    }
                    Err(error) if rig.power.is_on() => return Err(error),
                    Err(_) => {}
                }
            }
            rig.power.cut(Survival::any(&dice));
            drop(log);
            let all: Result<Vec<()>, String> = results.into_iter().collect();
            // What tasks left behind hold of it is nothing to wait for.
            let oracle = now.oracle.replace(Oracle::new(0));
            *life.borrow_mut() = Some(oracle);
            all.map(|_| ())
        });
        ended.map_err(|error| error.to_string())??;
        rig.power.cut(Survival::any(&dice));
        rig.power.restore();
        for disk in [&rig.front, &rig.back] {
            disk.restore();
            disk.mend();
        }
    }
    Ok(seen)
}

#[test]
fn nothing_acknowledged_is_lost_at_any_cut() {
    let mut seen = [0; 5];
    for seed in 0..300 {
        match run(seed, Sabotage::None, (None, None)) {
            Ok(more) => seen.iter_mut().zip(more).for_each(|(sum, more)| *sum += more),
            Err(broken) => panic!("seed {seed}: {broken}"),
        }
    }
    let [replayed, through, poisoned, cuts, destaged] = seen;
    assert!(replayed > 1000 && through > 20 && poisoned > 20 && cuts > 500 && destaged > 1000, "{seen:?}");
}

/// Some blocks are written again and again while the log is being emptied: what was acknowledged is often in one batch
/// only, and what takes its place is not committed yet when the tail moves.
fn run_hot(seed: u64, sabotage: Sabotage) -> Result<(), String> {
    let dice = Dice::new(seed);
    let mut rig = Rig::new(seed * 2, 600 << 10, 2 << 20, 4096);
    rig.options.sabotage = sabotage;
    let oracle = Rc::new(RefCell::new(Oracle::new(AREA)));
    let ended = on_shard(async {
        rig.create().await.map_err(|error| error.to_string())?;
        let log = rig.open().await.map_err(|error| error.to_string())?;
        rig.power.cut_after(dice.between(20, 200), Survival::any(&dice));
        let writers = (0..3).map(|_| async {
            while rig.power.is_on() {
                let (asked, data) = oracle.borrow_mut().ask(dice.below(2) * BLOCK, BLOCK, false);
                let written =
                    log.write(asked.offset, IoBuf::copy_from(&data).freeze(), Durability::Durable).await;
                if written.is_ok() {
                    oracle.borrow_mut().acknowledged(asked, true);
                }
            }
        });
        let emptying = async {
            while rig.power.is_on() {
                let _ = log.core.round().await;
            }
        };
        futures_util::future::join(join_all(writers), emptying).await;
        Ok::<_, String>(())
    });
    ended.map_err(|error| error.to_string())??;
    rig.power.restore();
    let compared = on_shard(async {
        let log = rig.open().await.map_err(|error| error.to_string())?;
        let replayed = content(&log).await?;
        oracle.borrow_mut().compare(&replayed, true)
    });
    compared.map_err(|error| error.to_string())?
}

#[test]
fn what_takes_the_place_of_a_batch_is_committed_before_it_goes() {
    for seed in 0..150 {
        run_hot(seed, Sabotage::None).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    }
    let noticed = (0..1000).find(|seed| run_hot(*seed, Sabotage::AdvanceEarly).is_err());
    assert!(noticed.is_some(), "giving entries up early is not noticed");
}

#[test]
fn broken_builds_and_lying_disks_are_noticed() {
    let cases = [
        (Sabotage::ReplayBackwards, (None, None)),
        (Sabotage::ForgetNothing, (None, None)),
        (Sabotage::SkipFlush, (None, None)),
        (Sabotage::VolatileBack, (None, None)),
        (Sabotage::None, (Some(Lie::SkipForce(1)), None)),
        (Sabotage::None, (None, Some(Lie::SkipFlush(1)))),
        (Sabotage::None, (None, Some(Lie::SkipForce(1)))),
    ];
    for (sabotage, lies) in cases {
        let noticed = (0..200).find(|seed| run(*seed, sabotage, lies).is_err());
        assert!(noticed.is_some(), "{sabotage:?} {lies:?} is not noticed");
    }
}
