//! What is on a disk and in its cache, sector by sector. No time, no tasks.

use std::collections::{BTreeMap, BTreeSet};

use aligned_buffer::SharedBuf;

use crate::Dice;

/// The unit that a power cut leaves whole, in bytes.
pub const SECTOR: usize = 512;

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

    fn sectors(&self) -> std::ops::Range<usize> {
        self.offset / SECTOR..(self.offset + self.len) / SECTOR
    }
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
        for (number, change) in std::mem::take(&mut self.pending) {
            let overtaken = |sector: &usize| self.durable_number[*sector] < number;
            for sector in change.sectors().filter(overtaken) {
                versions.entry(sector).or_default().push(changes.len());
            }
            changes.push(change);
        }
        // In which order operations in flight would have completed is anyone's guess.
        let mut in_flight = in_flight;
        while !in_flight.is_empty() {
            let change = in_flight.swap_remove(dice.below(in_flight.len() as u64) as usize);
            for sector in change.sectors() {
                versions.entry(sector).or_default().push(changes.len());
            }
            changes.push(change);
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
                let content = match &change.content {
                    Content::Data(data) => {
                        let from = offset - change.offset;
                        Content::Data(data.slice(from..from + SECTOR))
                    }
                    other => other.clone(),
                };
                self.complete(Change { offset, len: SECTOR, content }, false);
            }
        }
    }
}
