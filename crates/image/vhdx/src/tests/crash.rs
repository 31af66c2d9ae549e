//! Power cuts at every write of a workload: the image opens, to be read and to be written, and holds what was flushed; what else it
//! holds was asked for.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Durability, UnmapBehavior};
use file_store::{MemoryStore, OpenFile};
use shard_runtime::{Entropy, SeededEntropy};
use sim::{Dice, Lie, Pace, Power, SimDisk, SimSpec, Survival, on_shard};

use super::sim_file::SimStorage;
use super::{MIB, memory_file};
use crate::{CreateOptions, Image, ImageError, Kind, Mode, Opening, ParentLocator, create};

const UNIT: u64 = 512;
/// Bytes of the disk that are used, and what it has at most.
const REACH: u64 = 8 * MIB;
const CLIENTS: u64 = 3;
/// Sectors whose owner changes nothing of the next ones, which belong to another client.
const STRIPE: u64 = 384;

/// What a sector may hold: numbers of writes, and what each shows, 0 for zeros; the first was promised, the last was asked for last.
struct Oracle {
    sectors: Vec<Vec<(u32, u32)>>,
    /// By sector: which of its values has been acknowledged last.
    acknowledged: Vec<usize>,
    sizes: Vec<u64>,
    writes: u32,
}

impl Oracle {
    fn new(size: u64, first: u32) -> Self {
        let count = (REACH / UNIT) as usize;
        Self {
            sectors: vec![vec![(0, first)]; count],
            acknowledged: vec![0; count],
            sizes: vec![size],
            writes: 1,
        }
    }

    fn begin(&mut self, range: Range<u64>, zeros: bool) -> u32 {
        self.writes += 1;
        let value = if zeros { 0 } else { self.writes };
        range.for_each(|sector| self.sectors[sector as usize].push((self.writes, value)));
        value
    }

    fn acknowledge(&mut self, range: Range<u64>) {
        range.for_each(|sector| self.acknowledged[sector as usize] = self.sectors[sector as usize].len() - 1);
    }

    /// What these sectors had, by the numbers of writes, is promised now, if it was acknowledged.
    fn settle(&mut self, promised: impl Iterator<Item = (usize, u32)>) {
        for (sector, write) in promised {
            let values = &mut self.sectors[sector];
            // Not there, it was promised before, and there is something newer.
            if let Some(at) = values.iter().position(|known| known.0 == write)
                && at <= self.acknowledged[sector]
            {
                values.drain(..at);
                self.acknowledged[sector] -= at;
            }
        }
    }

    /// What has been acknowledged last.
    fn promised(&self, range: Range<u64>) -> Vec<(usize, u32)> {
        let last = |sector: usize| (sector, self.sectors[sector][self.acknowledged[sector]].0);
        (range.start as usize..range.end as usize).map(last).collect()
    }
}

/// The content of a sector of a write.
fn fill(sector: u64, value: u32, bytes: &mut [u8]) {
    if value == 0 {
        return bytes.fill(0);
    }
    let word = (sector << 32 | u64::from(value)).to_le_bytes();
    bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&word));
}

fn value_of(sector: u64, bytes: &[u8]) -> Option<u32> {
    let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let mut expected = [0; UNIT as usize];
    fill(sector, value, &mut expected);
    (expected == bytes).then_some(value)
}

struct Rig {
    storage: SimStorage,
    kind: &'static str,
    parent: Option<Arc<dyn OpenFile>>,
    entropy: Arc<dyn Entropy>,
}

const PARENTS: u32 = 1;

impl Rig {
    async fn new(seed: u64, kind: &'static str) -> Self {
        let dice = Dice::new(seed);
        let power = Power::new(dice.fork());
        let spec = SimSpec {
            size: 48 << 20,
            block_size: 512,
            unmap: UnmapBehavior::Zeroes,
            pace: Pace { turns: 2, ..Pace::default() },
        };
        let disk = SimDisk::new(&power, &spec);
        let entropy: Arc<dyn Entropy> = Arc::new(SeededEntropy::new(seed));
        let parent = if kind == "differencing" { Some(parent().await) } else { None };
        Self { storage: SimStorage::new(power, disk), kind, parent, entropy }
    }

    async fn create(&self, file: &Arc<dyn OpenFile>, size: u64) -> Result<(), ImageError> {
        let kind = match (self.kind, &self.parent) {
            ("fixed", _) => Kind::Fixed,
            (_, Some(parent)) => {
                let id = self.open_parent(parent).await?.data_write_guid().await;
                Kind::Differencing(ParentLocator::new(id, "parent", None))
            }
            _ => Kind::Dynamic,
        };
        let options = CreateOptions { block_size: Some(1 << 20), ..CreateOptions::new(size, kind) };
        create(file, &options, &*self.entropy).await
    }

    async fn open_parent(&self, parent: &Arc<dyn OpenFile>) -> Result<Image, ImageError> {
        Opening::read(Arc::clone(parent), Mode::Read, &self.entropy).await?.finish(None).await
    }

    async fn open(&self, mode: Mode) -> Result<Image, ImageError> {
        let parent = match &self.parent {
            Some(parent) => Some(self.open_parent(parent).await?),
            None => None,
        };
        Opening::read(self.storage.file(), mode, &self.entropy).await?.finish(parent).await
    }
}

/// A parent of which every sector says that it is the parent's.
async fn parent() -> Arc<dyn OpenFile> {
    let file = memory_file(&MemoryStore::new(1 << 50), "parent").await;
    let options = CreateOptions { block_size: Some(4 << 20), ..CreateOptions::new(REACH, Kind::Dynamic) };
    create(&file, &options, &SeededEntropy::new(1)).await.expect("made");
    let image = super::open(&file, Mode::Write).await.expect("opened");
    let mut content = IoBuf::new(REACH as usize);
    for (sector, bytes) in (0..).zip(content.chunks_mut(UNIT as usize)) {
        fill(sector, PARENTS, bytes);
    }
    image.write(0, content.freeze(), Durability::Volatile).await.expect("written");
    image.close().await.expect("closed");
    file
}

struct Life {
    image: Image,
    oracle: Rc<RefCell<Oracle>>,
    dice: Dice,
}

impl Life {
    /// One client's operations, in its own stripes: so of two that overlap one is always the later.
    async fn client(&self, number: u64, dice: Dice) -> Result<(), ()> {
        for _ in 0..dice.between(2, 8) {
            let size = self.image.size() / UNIT;
            let stripes = size / STRIPE / CLIENTS;
            if stripes == 0 {
                return Ok(());
            }
            let start = (dice.below(stripes.min(8)) * CLIENTS + number) * STRIPE;
            let first = start + dice.below(STRIPE);
            let range = first..first + dice.between(1, (start + STRIPE - first).min(64));
            let (offset, len) = (range.start * UNIT, (range.end - range.start) * UNIT);
            let durability = if dice.one_in(4) { Durability::Durable } else { Durability::Volatile };
            let zeros = dice.one_in(5);
            if dice.one_in(4) {
                self.flush().await?;
                continue;
            }
            let unmaps = zeros && dice.one_in(2);
            let value = self.oracle.borrow_mut().begin(range.clone(), zeros);
            let done = if unmaps {
                self.image.unmap(offset, len).await
            } else if zeros {
                self.image.write_zeroes(offset, len, durability).await
            } else {
                let mut data = IoBuf::new(len as usize);
                for (sector, bytes) in range.clone().zip(data.chunks_mut(UNIT as usize)) {
                    fill(sector, value, bytes);
                }
                self.image.write(offset, data.freeze(), durability).await
            };
            done.map_err(drop)?;
            self.oracle.borrow_mut().acknowledge(range.clone());
            if durability == Durability::Durable && !unmaps {
                self.settle(range);
            }
        }
        Ok(())
    }

    fn settle(&self, range: Range<u64>) {
        let mut oracle = self.oracle.borrow_mut();
        let promised = oracle.promised(range);
        oracle.settle(promised.into_iter());
    }

    async fn flush(&self) -> Result<(), ()> {
        let promised = self.oracle.borrow().promised(0..REACH / UNIT);
        self.image.flush().await.map_err(drop)?;
        self.oracle.borrow_mut().settle(promised.into_iter());
        Ok(())
    }

    /// What has the image alone.
    async fn reshape(&self) -> Result<(), ()> {
        // Whole blocks lose their places, which others get before anything is durable.
        for _ in 0..self.dice.below(3) {
            let block = self.dice.below(self.image.size() / MIB) * MIB;
            let range = block / UNIT..(block + MIB) / UNIT;
            self.oracle.borrow_mut().begin(range.clone(), true);
            self.image.unmap(block, MIB).await.map_err(drop)?;
            self.oracle.borrow_mut().acknowledge(range);
        }
        match self.dice.below(5) {
            0 | 1 => {
                let size = self.dice.between(4, REACH / MIB * 2) * MIB / 2;
                let before = self.image.size();
                self.oracle.borrow_mut().sizes.push(size);
                let gone = size.min(before) / UNIT..before / UNIT;
                self.oracle.borrow_mut().begin(gone.clone(), true);
                self.image.resize(size).await.map_err(drop)?;
                let mut oracle = self.oracle.borrow_mut();
                oracle.sizes = vec![size];
                oracle.acknowledge(gone.clone());
                drop(oracle);
                self.settle(gone);
            }
            2 | 3 => {
                self.image.compact(Box::new(|_, _| {})).await.map_err(drop)?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn live(&self) -> Result<(), ()> {
        for _ in 0..3 {
            let [a, b, c] = [0, 1, 2].map(|number| self.client(number, self.dice.fork()));
            let (a, b, c) = tokio::join!(a, b, c);
            a.and(b).and(c)?;
            self.reshape().await?;
        }
        Ok(())
    }
}

/// Everything that an image holds is allowed; what it is.
async fn compare(image: &Image, oracle: &mut Oracle) -> Result<Vec<u32>, String> {
    let size = image.size();
    if !oracle.sizes.contains(&size) {
        return Err(format!("the disk has {size} bytes, and {:?} were asked for", oracle.sizes));
    }
    let content = image.read(0, IoBuf::new(size as usize)).await;
    let content = content.map_err(|error| format!("{error} {:?}", std::error::Error::source(&error)))?;
    let mut values = Vec::new();
    for (sector, bytes) in (0..).zip(content.chunks(UNIT as usize)) {
        let value = value_of(sector, bytes);
        match value.filter(|value| oracle.sectors[sector as usize].iter().any(|known| known.1 == *value)) {
            Some(value) => values.push(value),
            None => {
                let allowed = &oracle.sectors[sector as usize];
                let found = u64::from_le_bytes(bytes[..8].try_into().unwrap_or_default());
                return Err(format!("sector {sector} holds {value:?} ({found:#x}), allowed are {allowed:?}"));
            }
        }
    }
    Ok(values)
}

struct Outcome {
    events: u64,
    /// Whether the power went.
    cut: bool,
    had_log: bool,
}

/// Several lives of an image; in the first, the power goes at event `cut`.
fn run(seed: u64, kind: &'static str, cut: Option<u64>, lie: Option<Lie>) -> Result<Outcome, String> {
    on_shard(async {
        let rig = Rig::new(seed, kind).await;
        let dice = Dice::new(seed ^ 0x55);
        let survival = Survival::any(&Dice::new(seed * 1000 + cut.unwrap_or(0)));
        let size = REACH / 2;
        let oracle =
            Rc::new(RefCell::new(Oracle::new(size, if kind == "differencing" { PARENTS } else { 0 })));
        if kind == "differencing" {
            // What a larger disk has more is zeros.
            oracle.borrow_mut().sectors[(size / UNIT) as usize..].fill(vec![(0, 0)]);
        }
        rig.storage.disk.set_lie(lie);
        if let Some(cut) = cut {
            rig.storage.power.cut_after(cut, survival);
        }
        let created = rig.create(&rig.storage.file(), size).await;
        if created.is_ok() {
            let image = rig.open(Mode::Write).await;
            if let Ok(image) = image {
                let life = Life { image, oracle: Rc::clone(&oracle), dice: dice.fork() };
                let lived = life.live().await;
                if lived.is_err() && rig.storage.power.is_on() {
                    return Err("an operation failed without a reason".to_owned());
                }
                if dice.one_in(2) && rig.storage.power.is_on() {
                    let flushed = life.flush().await;
                    if flushed.is_ok() {
                        let _ = life.image.close().await;
                    }
                }
            } else if rig.storage.power.is_on() {
                return Err(format!(
                    "open: {}",
                    image.err().map(|error| error.to_string()).unwrap_or_default()
                ));
            }
        }
        let events = rig.storage.power.events();
        let was_cut = !rig.storage.power.is_on();
        rig.storage.power.cut(survival);
        rig.storage.recover(&dice);
        rig.storage.disk.set_lie(None);
        if created.is_err() {
            return Ok(Outcome { events, cut: was_cut, had_log: false });
        }
        let mut oracle = oracle.replace(Oracle::new(0, 0));
        let read = rig.open(Mode::Read).await.map_err(|error| format!("to be read: {error}"))?;
        let had_log = read.info().await.had_log;
        let first = compare(&read, &mut oracle).await.map_err(|broken| format!("to be read: {broken}"))?;
        drop(read);
        let written = rig.open(Mode::Write).await.map_err(|error| format!("to be written: {error}"))?;
        let second =
            compare(&written, &mut oracle).await.map_err(|broken| format!("to be written: {broken}"))?;
        if first != second {
            return Err("what is read through the log differs from what is replayed".to_owned());
        }
        let data = IoBuf::zeroed(MIB as usize).freeze();
        for block in 0..written.size() / MIB {
            written
                .write(block * MIB, data.clone(), Durability::Volatile)
                .await
                .map_err(|error| error.to_string())?;
        }
        written.close().await.map_err(|error| error.to_string())?;
        let report = crate::check(&rig.storage.file()).await.map_err(|error| error.to_string())?;
        if report.error_count > 0 || !report.warnings.is_empty() {
            return Err(format!("{report:?}"));
        }
        Ok(Outcome { events, cut: was_cut, had_log })
    })
    .map_err(|error| error.to_string())?
}

/// The power goes at some events of some workloads: how often it went, and how often a log was there.
fn cut(kind: &'static str, seed: u64, events: impl Fn(u64) -> Vec<u64>) -> (u64, u64) {
    let (mut cuts, mut logs) = (0, 0);
    let whole = run(seed, kind, None, None).unwrap_or_else(|broken| panic!("{kind} {seed}: {broken}"));
    for cut in events(whole.events) {
        match run(seed, kind, Some(cut), None) {
            Ok(outcome) => {
                cuts += u64::from(outcome.cut);
                logs += u64::from(outcome.had_log);
            }
            Err(broken) => panic!("{kind}, seed {seed}, cut at {cut} of {}: {broken}", whole.events),
        }
    }
    (cuts, logs)
}

/// Every event of one workload, and one of each of some others.
fn cut_everywhere(kind: &'static str, seed: u64) {
    let (cuts, logs) = cut(kind, seed, |events| (0..events).collect());
    assert!(cuts > 100 && logs > 20, "{cuts} cuts, {logs} replays");
    for seed in seed + 1..seed + 16 {
        cut(kind, seed, |events| vec![Dice::new(seed).below(events)]);
    }
}

#[test]
fn dynamic_disks_survive_a_cut_at_every_write() {
    cut_everywhere("dynamic", 0);
}

#[test]
fn fixed_disks_survive_a_cut_at_every_write() {
    cut_everywhere("fixed", 100);
}

#[test]
fn differencing_disks_survive_a_cut_at_every_write() {
    cut_everywhere("differencing", 20);
}

#[test]
fn a_file_that_does_not_keep_its_promises_is_noticed() {
    let noticed = (0..100).find(|seed| run(*seed, "dynamic", Some(150), Some(Lie::SkipFlush(1))).is_err());
    assert!(noticed.is_some(), "flushes that do nothing are not noticed");
}
