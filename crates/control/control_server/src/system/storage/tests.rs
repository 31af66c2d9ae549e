//! The power goes at every moment while a log comes to a volume in use or goes: the volume opens with every acknowledged
//! write, and older releases refuse it whenever its log may hold some.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::Durability;
use file_store::{Access, Attributes, FileKind, FileStore, NewFile, OpenFile, OpenOptions};
use parking_lot::Mutex;
use shard_runtime::{Entropy, SeededEntropy};
use sim::{Dice, Pace, Power, SimClock, SimDisk, SimSpec, Survival, on_shard};
use volume::{Environment, FormatOptions, Volume};

use super::{OpenStorage, Storage};

const BACK: usize = 24 << 20;
const FRONT: usize = 1 << 20;
const BLOCK: u64 = 4096;
const BLOCKS: u64 = 64;

struct Rig {
    power: Arc<Power>,
    back: Arc<SimDisk>,
    log: Arc<SimDisk>,
    /// Whether the log's space is there.
    has_space: Cell<bool>,
    clock: Arc<SimClock>,
    entropy: Arc<dyn Entropy>,
    /// Of each block of the file, what was acknowledged last, and what was asked for after it.
    blocks: RefCell<BTreeMap<u64, Vec<u8>>>,
}

impl Rig {
    fn new(seed: u64) -> Self {
        let power = Power::new(Dice::new(seed));
        let spec = |size, block_size| SimSpec {
            size,
            block_size,
            unmap: block_device::UnmapBehavior::Zeroes,
            pace: Pace::default(),
        };
        Self {
            back: SimDisk::new(&power, &spec(BACK, 4096)),
            log: SimDisk::new(&power, &spec(FRONT, 4096)),
            power,
            has_space: Cell::new(false),
            clock: Arc::default(),
            entropy: Arc::new(SeededEntropy::new(seed)),
            blocks: RefCell::default(),
        }
    }

    fn environment(&self) -> Environment {
        Environment { clock: self.clock.clone(), entropy: self.entropy.clone() }
    }

    fn storage(&self) -> Storage {
        let log = self.has_space.get().then(|| self.log.device());
        let name = Arc::new(Mutex::new("v".to_owned()));
        Storage { name, back: self.back.device(), log, entropy: self.entropy.clone() }
    }

    /// The log's space is deleted, and given to others.
    fn delete_space(&self) {
        self.has_space.set(false);
        self.log.overwrite(0, &vec![0xa5; FRONT]);
    }

    async fn open(&self) -> Result<(OpenStorage, Arc<Volume>), String> {
        let storage = self.storage().open().await.map_err(|problem| format!("storage: {problem}"))?;
        let volume = Volume::open(storage.device.clone(), self.environment()).await;
        let volume = volume.map_err(|error| format!("volume: {error}"))?;
        storage.settle(&volume).await;
        if storage.has_leftover {
            self.delete_space();
        }
        Ok((storage, volume))
    }
}

async fn file(volume: &Volume, make: bool) -> Result<Arc<dyn OpenFile>, String> {
    let told = |error: file_store::StoreError| error.to_string();
    if make {
        let new = NewFile { kind: FileKind::File, attributes: Attributes(0x20), security: Vec::new() };
        volume.create(volume.root(), "f", new).await.map_err(told)?;
    }
    let id = volume.resolve("/f").await.map_err(told)?;
    volume.open(id, OpenOptions::shared(Access::READ_WRITE)).await.map_err(told)
}

async fn write(file: &dyn OpenFile, block: u64, value: u8) -> bool {
    let data = IoBuf::copy_from(&[value; BLOCK as usize]).freeze();
    file.write(block * BLOCK, data, Durability::Durable).await.is_ok()
}

/// Writes until told to stop or the power is off, a block at a time.
async fn client(rig: &Rig, file: &dyn OpenFile, dice: &Dice, ended: &Cell<bool>) -> Result<(), String> {
    let mut value = 1_u8;
    while !ended.get() && rig.power.is_on() {
        let block = dice.below(BLOCKS);
        value = value % 250 + 1;
        rig.blocks.borrow_mut().entry(block).or_insert_with(|| vec![0]).push(value);
        if write(file, block, value).await {
            rig.blocks.borrow_mut().insert(block, vec![value]);
        } else if rig.power.is_on() {
            return Err("a write failed while the power was on".into());
        }
        shard_runtime::sleep(Duration::from_millis(dice.below(4))).await;
    }
    Ok(())
}

async fn compare(rig: &Rig, file: &dyn OpenFile) -> Result<(), String> {
    let blocks = rig.blocks.borrow().clone();
    for (block, possible) in &blocks {
        let read = file.read(block * BLOCK, IoBuf::new(BLOCK as usize)).await;
        let read = read.map_err(|error| format!("read: {error}"))?;
        // What nobody was told of may be there in part, by sectors.
        for sector in read.chunks(512) {
            let is_whole = sector.iter().all(|byte| *byte == sector[0]);
            if !is_whole || !possible.contains(&sector[0]) {
                return Err(format!("block {block} has {} of {possible:?}", sector[0]));
            }
        }
    }
    Ok(())
}

/// A log comes and goes.
async fn exchange(rig: &Rig, storage: &OpenStorage, volume: &Volume, dice: &Dice) -> Result<(), String> {
    // The space is made before anything is said of it.
    rig.has_space.set(true);
    if let Err(failed) = storage.add_log(volume, rig.log.device()).await {
        return if rig.power.is_on() { Err(format!("add: {}", failed.problem)) } else { Ok(()) };
    }
    shard_runtime::sleep(Duration::from_millis(dice.below(30))).await;
    match storage.remove_log(volume).await {
        Ok(()) => rig.delete_space(),
        Err(problem) if rig.power.is_on() => return Err(format!("remove: {problem}")),
        Err(_) => {}
    }
    Ok(())
}

/// What an older release sees when the power is off: whether it would open the volume, and whether a log counts.
async fn older_release(rig: &Rig) -> Result<(), String> {
    let device = rig.back.device();
    let alone = Storage { log: None, ..rig.storage() };
    let needs_log = alone.open().await.is_err();
    let refuses = Volume::expects_log(&device).await.map_err(|error| error.to_string())?;
    if needs_log && !refuses { Err("an older release would open it without its log".into()) } else { Ok(()) }
}

/// Gives how many events there were, and whether there was a log at the opening.
fn run(seed: u64, cut: u64) -> Result<(u64, bool), String> {
    let (rig, dice) = (Rig::new(seed), Dice::new(seed));
    let survival = if cut.is_multiple_of(3) { Survival::Nothing } else { Survival::any(&dice) };
    let first = on_shard(async {
        rig.clock.begin();
        let options = FormatOptions { name: "v".into() };
        let made = Volume::format(rig.back.device(), options, rig.environment()).await;
        made.map_err(|error| error.to_string())?;
        let (storage, volume) = rig.open().await?;
        let file = file(&volume, true).await?;
        for block in 0..BLOCKS {
            if !write(&*file, block, 251).await {
                return Err("it cannot be filled".to_owned());
            }
            rig.blocks.borrow_mut().insert(block, vec![251]);
        }
        let before = rig.power.events();
        rig.power.cut_after(cut, survival);
        let ended = Cell::new(false);
        let changing = async {
            let changed = exchange(&rig, &storage, &volume, &dice).await;
            ended.set(true);
            changed
        };
        let (changed, written) =
            futures_util::future::join(changing, client(&rig, &*file, &dice, &ended)).await;
        let events = rig.power.events() - before;
        changed.and(written)?;
        if rig.power.is_on() {
            compare(&rig, &*file).await?;
            let found = volume.check().await.map_err(|error| error.to_string())?;
            if !found.is_empty() {
                return Err(format!("in use: {found:?}"));
            }
        }
        rig.power.cut(survival);
        Ok(events)
    });
    let events = first.map_err(|error| error.to_string())??;
    rig.power.restore();
    let second = on_shard(async {
        rig.clock.begin();
        older_release(&rig).await?;
        let (storage, volume) = rig.open().await?;
        let opened = file(&volume, false).await?;
        compare(&rig, &*opened).await?;
        let found = volume.check().await.map_err(|error| error.to_string())?;
        if !found.is_empty() {
            return Err(format!("after the cut: {found:?}"));
        }
        let had_log = storage.device.has_log();
        let says = Volume::expects_log(&rig.back.device()).await.map_err(|error| error.to_string())?;
        if says != had_log {
            return Err(format!("its superblock says {says}, and its label {had_log}"));
        }
        // And the other way round, with another cut now and then.
        if dice.one_in(2) {
            rig.power.cut_after(dice.below(20), Survival::any(&dice));
        }
        let changed = if had_log {
            let removed = storage.remove_log(&volume).await;
            if removed.is_ok() {
                rig.delete_space();
            }
            removed.map_err(|problem| format!("remove afterwards: {problem}"))
        } else {
            rig.has_space.set(true);
            let added = storage.add_log(&volume, rig.log.device()).await;
            added.map_err(|failed| format!("add afterwards: {}", failed.problem))
        };
        rig.blocks.borrow_mut().entry(0).or_default().push(252);
        let written = write(&*opened, 0, 252).await;
        if written {
            rig.blocks.borrow_mut().insert(0, vec![252]);
        }
        if rig.power.is_on() {
            changed?;
            if !written {
                return Err("a write failed".to_owned());
            }
        }
        rig.power.cut(survival);
        Ok(had_log)
    });
    let had_log = second.map_err(|error| error.to_string())??;
    rig.power.restore();
    let third = on_shard(async {
        rig.clock.begin();
        let (_, volume) = rig.open().await?;
        let opened = file(&volume, false).await?;
        compare(&rig, &*opened).await
    });
    third.map_err(|error| error.to_string())??;
    Ok((events, had_log))
}

#[test]
fn every_moment_of_adding_and_removing_a_log_leaves_a_volume_that_opens() {
    let (mut with, mut without) = (0, 0);
    for seed in 0..2 {
        let (events, _) = run(seed, u64::MAX).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        for cut in 0..events {
            match run(seed, cut) {
                Ok((_, true)) => with += 1,
                Ok((_, false)) => without += 1,
                Err(broken) => panic!("seed {seed}, cut after {cut} of {events} events: {broken}"),
            }
        }
    }
    assert!(with > 10 && without > 10, "{with} {without}");
}

/// No label where the superblock says that a log may be there: nobody knows what the log holds, and only who says so loses it.
#[test]
fn a_label_that_is_lost_is_no_missing_log() {
    let rig = Rig::new(9);
    let done = on_shard(async {
        rig.clock.begin();
        let options = FormatOptions { name: "v".into() };
        Volume::format(rig.back.device(), options, rig.environment()).await.expect("format");
        let (storage, volume) = rig.open().await.expect("open");
        assert!(rig.storage().give_up_log().await.is_err(), "there is none");
        rig.has_space.set(true);
        storage.add_log(&volume, rig.log.device()).await.map_err(|failed| failed.problem).expect("add");
        assert!(storage.add_log(&volume, rig.log.device()).await.is_err_and(|failed| !failed.space_is_free));
        volume.close().await.expect("close");
        storage.close().await.expect("close");
        let place = write_log_format::LABELS_INSIDE;
        rig.back.overwrite(place, &[0; 8192]);
        let refused = rig.storage().open().await.map(drop).expect_err("the label is lost");
        assert_eq!(refused.code, control_api::Code::Damaged);
        rig.storage().give_up_log().await.expect("told to");
        let (storage, _) = rig.open().await.expect("open");
        assert!(!storage.device.has_log() && !rig.has_space.get());
    });
    done.expect("event loop");
}
