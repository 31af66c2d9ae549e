//! What is on a disk and in its cache, sector by sector. No time, no tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use aligned_buffer::SharedBuf;

use crate::Dice;

/// The unit that a power cut leaves whole, in bytes.
pub const SECTOR: usize = 512;

/// The unit in which the disk takes space where it is kept, as a file of a file system does, in bytes.
const CLUSTER: usize = 4096;

/// What becomes, at a power cut, of sectors that were written but not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// All of them are lost.
    Nothing,
    /// The newest version of each survives, also of what was in flight.
    Newest,
    /// Each operation survives whole or not at all, with this chance in 100.
    Operations(u64),
    /// Each sector decides alone: with this chance in 100 it takes any of its versions.
    Sectors(u64),
}

impl Survival {
    /// One of them, the fully torn ones most often.
    #[must_use]
    pub fn any(dice: &Dice) -> Self {
        match dice.below(8) {
            0 => Self::Nothing,
            1 => Self::Newest,
            2 => Self::Operations(50),
            3 => Self::Sectors(10),
            4 => Self::Sectors(90),
            _ => Self::Sectors(50),
        }
    }
}

/// What an operation writes.
#[derive(Clone)]
pub(crate) enum Content {
    Data(SharedBuf),
    Zeros,
    /// What an unmapping disk that promises nothing shows afterwards.
    Noise(u8),
}

/// An operation that changes a range.
#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) content: Content,
}

impl Change {
    fn put(&self, from: usize, target: &mut [u8]) {
        let len = target.len();
        match &self.content {
            Content::Data(data) => target.copy_from_slice(&data[from - self.offset..][..len]),
            Content::Zeros => target.fill(0),
            Content::Noise(byte) => target.fill(*byte),
        }
    }

    fn sectors(&self) -> Range<usize> {
        self.offset / SECTOR..(self.offset + self.len) / SECTOR
    }

    /// The part of it that lies from `from` to `to`, which it covers.
    fn part(&self, from: usize, to: usize) -> Self {
        let content = match &self.content {
            Content::Data(data) => Content::Data(data.slice(from - self.offset..to - self.offset)),
            other => other.clone(),
        };
        Self { offset: from, len: to - from, content }
    }

    /// Divides it into what lies within one of the ranges and what lies in none, in whole sectors.
    pub(crate) fn divide(&self, ranges: &[Range<usize>]) -> (Vec<Self>, Vec<Self>) {
        let (mut within, mut outside) = (Vec::new(), Vec::new());
        let is_within = |sector: &usize| ranges.iter().any(|range| range.contains(&(sector * SECTOR)));
        let sectors: Vec<usize> = self.sectors().collect();
        for run in sectors.chunk_by(|a, b| is_within(a) == is_within(b)) {
            let part = self.part(run[0] * SECTOR, (run[run.len() - 1] + 1) * SECTOR);
            if is_within(&run[0]) { within.push(part) } else { outside.push(part) }
        }
        (within, outside)
    }
}

/// What a disk showed at a moment, where it was ever written.
pub struct Image {
    clusters: BTreeMap<usize, Box<[u8]>>,
}

/// A sector of a write that was acknowledged and not kept.
struct Lost {
    /// The number of that write.
    number: u64,
    /// What it would have left.
    should: Box<[u8]>,
}

/// Content and cache of a disk.
pub(crate) struct Medium {
    current: Vec<u8>,
    durable: Vec<u8>,
    /// For each sector the number of the change that is in `durable`.
    durable_number: Vec<u64>,
    /// Completed and not durable, by number.
    pending: BTreeMap<u64, Change>,
    /// Pending changes that no flush makes durable any more, because one has failed on them.
    doomed: BTreeSet<u64>,
    completed: u64,
    /// Clusters that were ever written: they have their space.
    taken: Vec<bool>,
    /// Sectors that lack what was acknowledged last. What is kept since ends an entry when it is durable.
    lost: BTreeMap<usize, Lost>,
}

impl Medium {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            current: vec![0; size],
            durable: vec![0; size],
            durable_number: vec![0; size / SECTOR],
            pending: BTreeMap::new(),
            doomed: BTreeSet::new(),
            completed: 0,
            taken: vec![false; size.div_ceil(CLUSTER)],
            lost: BTreeMap::new(),
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.current.len()
    }

    pub(crate) fn read(&self, offset: usize, buf: &mut [u8]) {
        buf.copy_from_slice(&self.current[offset..][..buf.len()]);
    }

    /// An operation completes: reads see it.
    pub(crate) fn complete(&mut self, change: Change, durable: bool) {
        self.completed += 1;
        let range = change.offset..change.offset + change.len;
        change.put(change.offset, &mut self.current[range.clone()]);
        self.taken[clusters(&change)].fill(true);
        if durable {
            change.put(change.offset, &mut self.durable[range]);
            self.durable_number[change.sectors()].fill(self.completed);
        } else {
            self.pending.insert(self.completed, change);
        }
    }

    /// What a sector shows, and what of it would survive a cut.
    pub(crate) fn sector(&self, sector: usize) -> (&[u8], &[u8]) {
        let range = sector * SECTOR..(sector + 1) * SECTOR;
        (&self.current[range.clone()], &self.durable[range])
    }

    /// Where a sector is `from`, to be seen or to survive, it becomes `to`.
    pub(crate) fn swap(&mut self, sector: usize, from: &[u8], to: &[u8]) {
        let range = sector * SECTOR..(sector + 1) * SECTOR;
        for image in [&mut self.current, &mut self.durable] {
            if &image[range.clone()] == from {
                image[range.clone()].copy_from_slice(to);
            }
        }
    }

    /// The number of the last completed operation: what a flush that begins now covers.
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    /// Makes operations up to `covered` durable.
    pub(crate) fn flush(&mut self, covered: u64) {
        let flushed = |number: &u64| *number <= covered && !self.doomed.contains(number);
        let flushed: Vec<u64> = self.pending.keys().copied().filter(flushed).collect();
        for number in flushed {
            let Some(change) = self.pending.remove(&number) else { continue };
            for sector in change.sectors() {
                // A later durable write has overtaken it.
                if self.durable_number[sector] < number {
                    self.durable_number[sector] = number;
                    let at = sector * SECTOR;
                    change.put(at, &mut self.durable[at..at + SECTOR]);
                }
            }
        }
    }

    /// A flush fails: each operation that it covered may be lost, which shows only when the cache is.
    pub(crate) fn fail_flush(&mut self, covered: u64, dice: &Dice) {
        let lost = self.pending.keys().copied().filter(|number| *number <= covered && dice.one_in(2));
        self.doomed.extend(lost);
    }

    /// Reads see what failed flushes have lost, from now on.
    pub(crate) fn show_losses(&mut self) {
        let mut lost = BTreeSet::new();
        for number in std::mem::take(&mut self.doomed) {
            lost.extend(self.pending.remove(&number).into_iter().flat_map(|change| change.sectors()));
        }
        for sector in lost {
            let at = sector * SECTOR;
            let kept = self
                .pending
                .range(self.durable_number[sector] + 1..)
                .rfind(|(_, change)| change.sectors().contains(&sector));
            let target = &mut self.current[at..at + SECTOR];
            match kept {
                Some((_, change)) => change.put(at, target),
                None => target.copy_from_slice(&self.durable[at..at + SECTOR]),
            }
        }
    }

    /// The cache is lost. `in_flight` are operations that had begun.
    pub(crate) fn cut(&mut self, in_flight: Vec<Change>, survival: Survival, dice: &Dice) {
        self.doomed.clear();
        let mut versions: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut changes = Vec::new();
        let mut numbers = Vec::new();
        for (number, change) in std::mem::take(&mut self.pending) {
            let overtaken = |sector: &usize| self.durable_number[*sector] < number;
            for sector in change.sectors().filter(overtaken) {
                versions.entry(sector).or_default().push(changes.len());
            }
            changes.push(change);
            numbers.push(number);
        }
        // In which order operations in flight would have completed is anyone's guess.
        let mut in_flight = in_flight;
        while !in_flight.is_empty() {
            let change = in_flight.swap_remove(dice.below(in_flight.len() as u64) as usize);
            for sector in change.sectors() {
                versions.entry(sector).or_default().push(changes.len());
            }
            self.taken[clusters(&change)].fill(true);
            changes.push(change);
            numbers.push(u64::MAX);
        }
        let whole: Vec<bool> = match survival {
            Survival::Operations(chance) => changes.iter().map(|_| dice.percent(chance)).collect(),
            _ => Vec::new(),
        };
        for (sector, versions) in versions {
            let kept = match survival {
                Survival::Nothing => None,
                Survival::Newest => versions.last(),
                Survival::Operations(_) => versions.iter().rev().find(|version| whole[**version]),
                Survival::Sectors(chance) if dice.percent(chance) => dice.pick(&versions),
                Survival::Sectors(_) => None,
            };
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            if let Some(kept) = kept {
                changes[*kept].put(range.start, &mut self.durable[range.clone()]);
                if self.lost.get(&sector).is_some_and(|lost| lost.number < numbers[*kept]) {
                    self.lost.remove(&sector);
                }
            }
            self.current[range.clone()].copy_from_slice(&self.durable[range]);
        }
        self.completed += 1;
    }

    /// Operations that had begun end undecided, but the cache stays: as when a cable is pulled.
    pub(crate) fn interrupt(&mut self, in_flight: Vec<Change>, dice: &Dice) {
        for change in in_flight {
            for sector in change.sectors().filter(|_| dice.one_in(2)) {
                let offset = sector * SECTOR;
                self.complete(change.part(offset, offset + SECTOR), false);
            }
        }
    }

    /// Whether a change needs space that has not been taken.
    pub(crate) fn grows(&self, change: &Change) -> bool {
        self.taken[clusters(change)].contains(&false)
    }

    /// An operation completes as far as anyone can tell, and nothing of it is kept.
    pub(crate) fn lose(&mut self, change: &Change) {
        self.completed += 1;
        for sector in change.sectors() {
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            let mut should = vec![0; SECTOR].into_boxed_slice();
            change.put(range.start, &mut should);
            if self.current[range.clone()] == *should && self.durable[range] == *should {
                self.lost.remove(&sector);
            } else {
                self.lost.insert(sector, Lost { number: self.completed, should });
            }
        }
    }

    /// Sectors that lack what was acknowledged last, and have not been written since.
    pub(crate) fn lost(&mut self) -> Vec<usize> {
        let numbers = &self.durable_number;
        self.lost.retain(|sector, lost| numbers[*sector] <= lost.number);
        self.lost.keys().copied().collect()
    }

    /// What a sector lacks is not missed any more, and put there if asked.
    pub(crate) fn end_loss(&mut self, sector: usize, put_back: bool) {
        let Some(Lost { number, should }) = self.lost.remove(&sector) else { return };
        if !put_back || self.durable_number[sector] > number {
            return;
        }
        let at = sector * SECTOR;
        self.durable[at..at + SECTOR].copy_from_slice(&should);
        self.durable_number[sector] = number;
        let mut newer = self.pending.range(number + 1..).rev();
        let target = &mut self.current[at..at + SECTOR];
        match newer.find(|(_, change)| change.sectors().contains(&sector)) {
            Some((_, change)) => change.put(at, target),
            None => target.copy_from_slice(&should),
        }
    }

    /// What the disk shows now.
    pub(crate) fn image(&self) -> Image {
        let taken = self.taken.iter().enumerate().filter(|(_, taken)| **taken);
        let cluster = |(index, _): (usize, &bool)| (index, self.current[self.cluster(index)].into());
        Image { clusters: taken.map(cluster).collect() }
    }

    /// The disk is again what it was, with nothing in its cache.
    pub(crate) fn roll_back(&mut self, image: &Image) {
        self.completed += 1;
        self.pending.clear();
        self.doomed.clear();
        self.lost.clear();
        for index in (0..self.taken.len()).filter(|index| self.taken[*index]) {
            let range = self.cluster(index);
            for target in [&mut self.current, &mut self.durable] {
                match image.clusters.get(&index) {
                    Some(was) => target[range.clone()].copy_from_slice(was),
                    None => target[range.clone()].fill(0),
                }
            }
            self.durable_number[range.start / SECTOR..range.end / SECTOR].fill(self.completed);
        }
    }

    fn cluster(&self, index: usize) -> Range<usize> {
        index * CLUSTER..((index + 1) * CLUSTER).min(self.current.len())
    }
}

fn clusters(change: &Change) -> Range<usize> {
    change.offset / CLUSTER..(change.offset + change.len).div_ceil(CLUSTER)
}
