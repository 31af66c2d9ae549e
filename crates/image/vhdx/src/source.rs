//! The file as it is once its log is replayed, whether or not the file itself has been changed.
//!
//! An image that is opened to be read changes nothing: what its log says lies over the file, in memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use file_store::OpenFile;
use vhdx_format::{Change, LOG_SECTOR};

use crate::error::{ImageError, Result};
use crate::memory::Taken;

const SECTOR: u64 = LOG_SECTOR as u64;

/// The file, and what lies over it.
pub(crate) struct Source {
    pub(crate) file: Arc<dyn OpenFile>,
    over: Option<Overlay>,
    /// The memory of what lies over it.
    _taken: Option<Taken>,
}

/// What a log says, later changes over earlier ones.
pub(crate) struct Overlay {
    /// Sectors by their offsets. They are newer than the zeros, or not there.
    pub(crate) sectors: BTreeMap<u64, Box<[u8]>>,
    /// Ranges by their beginnings, with their ends. None touches another: a hostile log has a million that do.
    zeros: BTreeMap<u64, u64>,
    /// How long the file is at least with it.
    size: u64,
}

impl Overlay {
    pub(crate) fn of(changes: Vec<Change>) -> Self {
        let mut over = Self { sectors: BTreeMap::new(), zeros: BTreeMap::new(), size: 0 };
        for change in changes {
            match change {
                Change::Data { offset, bytes } => {
                    over.size = over.size.max(offset.saturating_add(SECTOR));
                    over.sectors.insert(offset, bytes);
                }
                Change::Zero { offset, len } => over.zero(offset..offset.saturating_add(len)),
            }
        }
        over
    }

    fn zero(&mut self, range: Range<u64>) {
        self.size = self.size.max(range.end);
        let gone: Vec<u64> = self.sectors.range(range.clone()).map(|(at, _)| *at).collect();
        gone.iter().for_each(|at| drop(self.sectors.remove(at)));
        let Range { mut start, mut end } = range;
        // Those that it touches become one with it; each goes once.
        while let Some((first, last)) =
            self.zeros.range(..=end).next_back().map(|(first, last)| (*first, *last))
            && last >= start
        {
            self.zeros.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        if start < end {
            self.zeros.insert(start, end);
        }
    }

    /// Ranges of zeros, under the sectors.
    pub(crate) fn zeros(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.zeros.iter().map(|(start, end)| *start..*end)
    }

    /// Those that may have a byte of a range.
    fn zeros_in(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.zeros.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        self.zeros.range(first..range.end.max(first)).map(|(start, end)| *start..*end)
    }
}

impl Source {
    pub(crate) fn new(file: Arc<dyn OpenFile>) -> Self {
        Self { file, over: None, _taken: None }
    }

    /// Lays the changes of a log over the file, which is then at least `size` bytes long.
    pub(crate) fn lay_over(&mut self, changes: Vec<Change>, size: u64, taken: Taken) {
        self._taken = Some(taken);
        let over = Overlay::of(changes);
        self.over = Some(Overlay { size: over.size.max(size), ..over });
    }

    /// Size in bytes now.
    pub(crate) fn size(&self) -> u64 {
        let size = self.file.size();
        self.over.as_ref().map_or(size, |over| over.size.max(size))
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// When the file ends before, or fails.
    pub(crate) async fn read(&self, offset: u64, buf: IoBuf) -> Result<IoBuf> {
        let len = buf.len();
        let Some(over) = &self.over else {
            let got = self.file.read(offset, buf).await?;
            if got.len() < len {
                return Err(cut(offset, len));
            }
            return Ok(got);
        };
        let end = offset.saturating_add(len as u64);
        if end > self.size() {
            return Err(cut(offset, len));
        }
        let mut buf = buf;
        let got = self.file.read(offset, IoBuf::new(len)).await?;
        let (head, tail) = buf.split_at_mut(got.len());
        head.copy_from_slice(&got);
        tail.fill(0);
        let mut put = |range: Range<u64>, bytes: Option<&[u8]>| {
            let (from, to) = (range.start.max(offset), range.end.min(end));
            if from < to {
                let target = &mut buf[(from - offset) as usize..(to - offset) as usize];
                match bytes {
                    Some(bytes) => {
                        target.copy_from_slice(&bytes[(from - range.start) as usize..][..target.len()])
                    }
                    None => target.fill(0),
                }
            }
        };
        over.zeros_in(offset..end).for_each(|range| put(range, None));
        let first = offset / SECTOR * SECTOR;
        for (at, bytes) in over.sectors.range(first..end) {
            put(*at..*at + SECTOR, Some(bytes));
        }
        Ok(buf)
    }

    /// Where, from `offset` on and before `end`, there may be something else than zeros.
    ///
    /// # Errors
    /// When the file fails.
    pub(crate) async fn next_data(&self, offset: u64, end: u64) -> Result<Option<u64>> {
        if self.over.is_some() || offset >= end {
            return Ok((offset < end).then_some(offset));
        }
        let ranges = self.file.allocated_ranges(offset, end - offset, 1).await?;
        Ok(ranges.first().map(|range| range.offset.max(offset)).filter(|at| *at < end))
    }

    /// `len` bytes from `offset`.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub(crate) async fn bytes(&self, offset: u64, len: usize) -> Result<IoBuf> {
        // Asked first, so that nobody gets memory for what is not there.
        if offset.saturating_add(len as u64) > self.size() {
            return Err(cut(offset, len));
        }
        self.read(offset, IoBuf::new(len)).await
    }
}

fn cut(offset: u64, len: usize) -> ImageError {
    ImageError::damaged(format!(
        "the file ends before {offset:#x}+{len:#x}, where its structures lead: it was cut"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same as changing sector by sector in their order, in no more ranges than are needed.
    #[test]
    fn later_changes_lie_over_earlier_ones() {
        let dice = sim::Dice::new(5);
        for _ in 0..200 {
            let mut model: BTreeMap<u64, u8> = BTreeMap::new();
            let mut changes = Vec::new();
            for number in 0..dice.between(1, 40) {
                let (first, count) = (dice.below(60), dice.below(9));
                if dice.one_in(2) {
                    changes.push(Change::Zero { offset: first * SECTOR, len: count * SECTOR });
                    model.extend((first..first + count).map(|sector| (sector, 0)));
                } else {
                    let fill = number as u8 + 1;
                    changes.push(Change::Data { offset: first * SECTOR, bytes: [fill; LOG_SECTOR].into() });
                    model.insert(first, fill);
                }
            }
            let over = Overlay::of(changes);
            let ranges: Vec<Range<u64>> = over.zeros().collect();
            assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
            for sector in 0..70 {
                let at = sector * SECTOR;
                let zero = over.zeros_in(at..at + SECTOR).any(|range| range.contains(&at));
                let is = over.sectors.get(&at).map(|bytes| bytes[0]).or(zero.then_some(0));
                assert_eq!(is, model.get(&sector).copied(), "{sector}: {ranges:?}");
            }
        }
    }
}
