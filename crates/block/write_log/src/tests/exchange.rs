//! A log is put before a device with content and taken away again, while clients write: nothing is lost at any cut, nothing
//! fails, and a front that is not asked for any more may be destroyed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, BlockErrorKind, Device, Durability};
use futures_util::future::{join, join_all};
use shard_runtime::SeededEntropy;
use sim::{Dice, Survival, on_shard};
use write_log_format::{LABELS_INSIDE, Side};

use super::oracle::Oracle;
use super::{Rig, Sabotage};
use crate::labels::read_label;
use crate::{LogMode, OptionalLog, WriteLog};

/// Bytes that the workload uses, and where they begin: the labels are to lie in none of them.
const AREA: u64 = 256 << 10;
const BASE: u64 = 64 << 10;
const BLOCK: u64 = 4096;

fn rig(seed: u64, sabotage: Sabotage) -> Rig {
    let mut rig = Rig::new(seed, 600 << 10, 2 << 20, if seed.is_multiple_of(3) { 512 } else { 4096 });
    rig.options.sabotage = sabotage;
    rig
}

async fn open(rig: &Rig) -> Result<OptionalLog, String> {
    let front: Option<Device> = rig.front.is_present().then(|| rig.front.device());
    let opened = OptionalLog::open(front, rig.back.device(), rig.options, &rig.entropy).await;
    opened.map_err(|error| format!("open: {error} {:?}", std::error::Error::source(&error)))
}

/// What the node does when a log may be destroyed.
fn destroy_front(rig: &Rig) {
    rig.front.overwrite(0, &vec![0xa5; 600 << 10]);
}

async fn client(device: &OptionalLog, oracle: &RefCell<Oracle>, dice: &Dice, rig: &Rig, ended: &Cell<bool>) {
    while rig.power.is_on() && !ended.get() {
        let blocks = if dice.one_in(4) { dice.between(5, 20) } else { dice.between(1, 3) };
        let first = if dice.one_in(2) { dice.below(12) } else { dice.below(AREA / BLOCK) };
        let (offset, len) = (first * BLOCK, blocks.min(AREA / BLOCK - first) * BLOCK);
        let durable = dice.one_in(2);
        let durability = if durable { Durability::Durable } else { Durability::Volatile };
        let kind = dice.below(12);
        let result = match kind {
            0..8 => {
                let (asked, data) = oracle.borrow_mut().ask(offset, len, false);
                let data = IoBuf::copy_from(&data).freeze();
                let written = device.write(BASE + offset, data, durability).await;
                written.map(|()| oracle.borrow_mut().acknowledged(asked, durable))
            }
            8 => {
                let (asked, _) = oracle.borrow_mut().ask(offset, len, true);
                let zeroed = device.write_zeroes(BASE + offset, len, durability).await;
                zeroed.map(|()| oracle.borrow_mut().acknowledged(asked, durable))
            }
            9 => {
                let (asked, _) = oracle.borrow_mut().ask(offset, len, true);
                let unmapped = device.unmap(BASE + offset, len).await;
                unmapped.map(|()| oracle.borrow_mut().acknowledged(asked, false))
            }
            10 => {
                let begun = oracle.borrow_mut().flush();
                device.flush().await.map(|()| oracle.borrow_mut().flushed(begun))
            }
            _ => device.read(BASE + offset, IoBuf::new(len as usize)).await.map(drop),
        };
        if let Err(error) = result {
            assert!(!rig.power.is_on(), "failed without a reason: {error}");
        }
        // Virtual time passes only where everybody waits.
        shard_runtime::sleep(std::time::Duration::from_millis(dice.below(3))).await;
    }
}

/// Adds a log and removes it, twice; how often that came to its end.
async fn exchange(device: &OptionalLog, rig: &Rig, dice: &Dice) -> Result<(), String> {
    let told = |what: &str, error: &dyn std::error::Error| match rig.power.is_on() {
        true => Err(format!("{what}: {error} {:?}", error.source())),
        false => Ok(()),
    };
    for _ in 0..2 {
        if let Err(error) = device.prepare().await {
            return told("prepare", &error);
        }
        let entropy = Arc::new(SeededEntropy::new(dice.below(1 << 30)));
        if let Err(failed) = device.attach(rig.front.device(), entropy).await {
            return told("attach", &failed.error);
        }
        shard_runtime::sleep(std::time::Duration::from_millis(dice.below(40))).await;
        if let Err(error) = device.detach().await {
            return told("detach", &error);
        }
        if rig.power.is_on() {
            destroy_front(rig);
        }
    }
    Ok(())
}

async fn compare(device: &OptionalLog, rig: &Rig, oracle: &RefCell<Oracle>, cut: bool) -> Result<(), String> {
    match device.read(BASE, IoBuf::new(AREA as usize)).await {
        Ok(shown) => oracle.borrow_mut().compare(&shown, cut),
        Err(_) if !rig.power.is_on() => Ok(()),
        Err(error) => Err(format!("read: {error}")),
    }
}

/// One life in which a log comes and goes, cut after so many events of the disks; then a look at what is there. Gives how many
/// events there were, and whether the back wants a log then.
fn run(seed: u64, cut: u64, sabotage: Sabotage) -> Result<(u64, bool), String> {
    let dice = Dice::new(seed);
    let rig = rig(seed, sabotage);
    let survival = match cut % 3 {
        0 => Survival::Nothing,
        _ => Survival::any(&dice),
    };
    let oracle = Rc::new(RefCell::new(Oracle::new(AREA)));
    let first = on_shard(async {
        let device = open(&rig).await?;
        let (asked, data) = oracle.borrow_mut().ask(0, AREA, false);
        let written = device.write(BASE, IoBuf::copy_from(&data).freeze(), Durability::Durable).await;
        written.map_err(|error| error.to_string())?;
        oracle.borrow_mut().acknowledged(asked, true);
        let before = rig.power.events();
        rig.power.cut_after(cut, survival);
        let ended = Cell::new(false);
        let changed = async {
            let changed = exchange(&device, &rig, &dice).await;
            ended.set(true);
            changed
        };
        let clients = (0..2).map(|_| client(&device, &oracle, &dice, &rig, &ended));
        let (changed, _) = join(changed, join_all(clients)).await;
        let events = rig.power.events() - before;
        changed?;
        compare(&device, &rig, &oracle, false).await?;
        rig.power.cut(survival);
        Ok::<_, String>(events)
    });
    let events = first.map_err(|error| error.to_string())??;
    rig.power.restore();
    let second = on_shard(async {
        let label = read_label(&rig.back.device(), Side::Back).await.map_err(|error| error.to_string())?;
        let wanted = label.is_some_and(|label| !label.says_none());
        if !wanted {
            destroy_front(&rig);
        }
        let device = open(&rig).await?;
        compare(&device, &rig, &oracle, true).await?;
        // And the other way round, with the same promise.
        if device.has_log() {
            device.detach().await.map_err(|error| format!("detach afterwards: {error}"))?;
            destroy_front(&rig);
        } else {
            device.prepare().await.map_err(|error| format!("prepare afterwards: {error}"))?;
            let entropy = Arc::new(SeededEntropy::new(seed));
            let attached = device.attach(rig.front.device(), entropy).await;
            attached.map_err(|failed| format!("attach afterwards: {}", failed.error))?;
        }
        compare(&device, &rig, &oracle, false).await?;
        let (asked, data) = oracle.borrow_mut().ask(0, BLOCK, false);
        let written = device.write(BASE, IoBuf::copy_from(&data).freeze(), Durability::Durable).await;
        written.map_err(|error| error.to_string())?;
        oracle.borrow_mut().acknowledged(asked, true);
        rig.power.cut(survival);
        Ok::<_, String>(wanted)
    });
    let wanted = second.map_err(|error| error.to_string())??;
    rig.power.restore();
    let third = on_shard(async {
        let device = open(&rig).await?;
        compare(&device, &rig, &oracle, true).await
    });
    third.map_err(|error| error.to_string())??;
    Ok((events, wanted))
}

/// The power goes at each event while a log comes, works, goes, and comes and goes once more.
#[test]
fn nothing_is_lost_when_the_power_goes_while_a_log_comes_or_goes() {
    let (mut with, mut without) = (0, 0);
    for seed in 0..5 {
        let (events, _) = run(seed, u64::MAX, Sabotage::None).unwrap_or_else(|broken| panic!("{broken}"));
        for cut in 0..events {
            match run(seed, cut, Sabotage::None) {
                Ok((_, true)) => with += 1,
                Ok((_, false)) => without += 1,
                Err(broken) => panic!("seed {seed}, cut after {cut} of {events} events: {broken}"),
            }
        }
    }
    assert!(with > 300 && without > 50, "{with} {without}");
}

#[test]
fn broken_exchanges_are_noticed() {
    for sabotage in [Sabotage::DetachUnemptied, Sabotage::LabelBeforeFront] {
        let noticed = (0..400).find(|cut| run(1, *cut, sabotage).is_err());
        assert!(noticed.is_some(), "{sabotage:?} is not noticed");
    }
}

async fn read_byte(device: &OptionalLog, offset: u64) -> u8 {
    device.read(offset, IoBuf::new(4096)).await.expect("read")[0]
}

async fn write_byte(device: &OptionalLog, offset: u64, byte: u8) {
    let data = IoBuf::copy_from(&[byte; 4096]).freeze();
    device.write(offset, data, Durability::Durable).await.expect("write");
}

#[test]
fn a_log_comes_and_goes_and_content_stays_where_it_is() {
    on_shard(async {
        let rig = rig(1, Sabotage::None);
        let device = open(&rig).await.expect("open");
        assert!(!device.had_label() && device.is_inside() && device.status().is_none());
        write_byte(&device, BASE, 1).await;
        let entropy = || Arc::new(SeededEntropy::new(3));
        let failed = device.attach(rig.front.device(), entropy()).await.expect_err("not prepared");
        assert!(failed.front_is_free && failed.error.kind() == BlockErrorKind::Unsupported);
        assert_eq!(device.detach().await.expect_err("none").kind(), BlockErrorKind::Unsupported);
        device.prepare().await.expect("prepare");
        device.attach(rig.front.device(), entropy()).await.expect("attach");
        let again = device.attach(rig.front.device(), entropy()).await.expect_err("there is one");
        assert!(!again.front_is_free);
        write_byte(&device, BASE + BLOCK, 2).await;
        let status = device.status().expect("a log");
        assert_eq!((status.mode, status.logged_writes), (LogMode::Logging, 1));
        drop(device);
        // Without its front nothing of it is to be had; with it, everything.
        let back = rig.back.device();
        let alone = OptionalLog::open(None, back, rig.options, &rig.entropy).await;
        assert_eq!(alone.err().map(|error| error.kind()), Some(BlockErrorKind::Gone));
        let device = open(&rig).await.expect("open");
        assert!(device.had_label() && device.has_log());
        assert_eq!((read_byte(&device, BASE).await, read_byte(&device, BASE + BLOCK).await), (1, 2));
        device.detach().await.expect("detach");
        assert!(!device.has_log());
        destroy_front(&rig);
        write_byte(&device, BASE, 3).await;
        drop(device);
        let device = open(&rig).await.expect("open");
        assert!(device.had_label() && !device.has_log(), "its front is left alone");
        assert_eq!((read_byte(&device, BASE).await, read_byte(&device, BASE + BLOCK).await), (3, 2));
        let beyond = device.write(2 << 20, IoBuf::copy_from(&[1; 4096]).freeze(), Durability::Durable).await;
        assert!(beyond.is_err());
    })
    .expect("event loop");
}

/// A device that was made with a log keeps its content where it is, too, and loses the log for good.
#[test]
fn a_log_from_the_beginning_goes_and_another_comes() {
    on_shard(async {
        let rig = rig(2, Sabotage::None);
        rig.create().await.expect("create");
        let device = open(&rig).await.expect("open");
        assert!(!device.is_inside());
        write_byte(&device, 0, 1).await;
        device.detach().await.expect("detach");
        drop(device);
        let device = open(&rig).await.expect("open");
        assert!(!device.has_log() && device.size() == (1 << 20));
        assert_eq!(read_byte(&device, 0).await, 1);
        write_byte(&device, (1 << 20) - BLOCK, 2).await;
        let beyond = device.write(1 << 20, IoBuf::copy_from(&[1; 4096]).freeze(), Durability::Durable).await;
        assert!(beyond.is_err());
        device.prepare().await.expect("nothing to prepare");
        device.attach(rig.front.device(), Arc::new(SeededEntropy::new(9))).await.expect("attach");
        write_byte(&device, BLOCK, 3).await;
        drop(device);
        let log = rig.open().await.expect("open");
        let read = log.read(0, IoBuf::new(2 * 4096)).await.expect("read");
        assert_eq!((read[0], read[4096]), (1, 3));
    })
    .expect("event loop");
}

/// A front or a back that fails leaves a device that works, and says whether the front is still needed.
#[test]
fn failing_disks_leave_the_device_in_use() {
    on_shard(async {
        for failing in 0..4 {
            let rig = rig(failing, Sabotage::None);
            let device = open(&rig).await.expect("open");
            device.prepare().await.expect("prepare");
            write_byte(&device, BASE, 1).await;
            match failing {
                0 => rig.front.unplug(),
                1 => rig.front.fail_writes(1),
                2 => rig.back.fail_writes(1),
                _ => rig.back.fail_writes(2),
            }
            let front = rig.front.device();
            let failed = device.attach(front, Arc::new(SeededEntropy::new(1))).await.expect_err("it fails");
            assert_eq!(failed.front_is_free, failing < 3, "{failing}");
            assert_eq!(device.is_unsure(), failing == 3, "{failing}");
            rig.back.forget_failures();
            assert!(!device.has_log());
            assert_eq!(read_byte(&device, BASE).await, 1);
            write_byte(&device, BASE, 2).await;
            drop(device);
            rig.front.restore();
            rig.front.mend();
            if failed.front_is_free {
                destroy_front(&rig);
            }
            let device = open(&rig).await.expect("open");
            assert_eq!(read_byte(&device, BASE).await, 2);
        }
        // While it is taken away: the back takes nothing, and the log has it all.
        let rig = rig(7, Sabotage::None);
        let device = open(&rig).await.expect("open");
        device.prepare().await.expect("prepare");
        device.attach(rig.front.device(), Arc::new(SeededEntropy::new(1))).await.expect("attach");
        write_byte(&device, BASE, 1).await;
        rig.back.fail_writes(u64::MAX);
        device.detach().await.expect_err("the back fails");
        assert!(device.has_log());
        drop(device);
        rig.back.forget_failures();
        let device = open(&rig).await.expect("open");
        assert_eq!(read_byte(&device, BASE).await, 1);
    })
    .expect("event loop");
}

/// What is content is not taken for a label, wherever it lies.
#[test]
fn a_label_counts_where_it_says_that_it_lies() {
    on_shard(async {
        let rig = rig(4, Sabotage::None);
        rig.create().await.expect("create");
        let outside = rig.back.device().read(BLOCK, IoBuf::new(4096)).await.expect("read").to_vec();
        rig.back.overwrite(0, &[0; 8192]);
        rig.back.overwrite(LABELS_INSIDE + BLOCK, &outside);
        let device = open(&rig).await.expect("open");
        assert!(!device.had_label());
        let log = WriteLog::open(None, rig.back.device(), rig.options, &rig.entropy, false).await;
        assert_eq!(log.err().map(|error| error.kind()), Some(BlockErrorKind::Unsupported));
    })
    .expect("event loop");
}
