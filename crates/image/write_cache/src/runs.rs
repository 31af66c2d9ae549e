//! Sets of numbers as runs that do not touch each other.

use std::collections::BTreeMap;

/// Numbers, as where each run begins and where it ends.
#[derive(Default)]
pub(crate) struct Runs(BTreeMap<u64, u64>);

impl Runs {
    /// Adds the numbers from `start` to before `end`, whichever of them are there already.
    pub(crate) fn add(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        if let Some((&before, &until)) = self.0.range(..start).next_back()
            && until >= start
        {
            start = before;
            end = end.max(until);
        }
        while let Some((&next, &until)) = self.0.range(start..=end).next() {
            self.0.remove(&next);
            end = end.max(until);
        }
        self.0.insert(start, end);
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        self.0.range(..=number).next_back().is_some_and(|(_, end)| *end > number)
    }

    /// Takes up to `most` numbers that follow each other, from the first run that has so many, else from the longest one.
    pub(crate) fn take(&mut self, most: u64) -> Option<(u64, u64)> {
        let long_enough = self.0.iter().find(|(start, end)| *end - *start >= most);
        let found = long_enough.or_else(|| self.0.iter().max_by_key(|(start, end)| *end - *start));
        let (start, end) = found.map(|(start, end)| (*start, *end))?;
        self.0.remove(&start);
        let taken = end.min(start + most);
        if taken < end {
            self.0.insert(taken, end);
        }
        Some((start, taken))
    }

    /// How many numbers there are.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|(start, end)| end - start).sum()
    }

    /// All runs, which are not in it any more.
    pub(crate) fn drain(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.0).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_and_are_taken_whole_where_they_can() {
        let mut runs = Runs::default();
        for (start, end) in [(10, 12), (20, 30), (12, 14), (9, 11), (28, 29), (5, 5)] {
            runs.add(start, end);
        }
        assert_eq!(runs.count(), 15);
        assert!(runs.contains(9) && runs.contains(13) && !runs.contains(14) && !runs.contains(19));
        assert_eq!(runs.take(6), Some((20, 26)));
        assert_eq!(runs.take(9), Some((9, 14)));
        runs.add(0, 100);
        assert_eq!(runs.drain(), [(0, 100)]);
        assert_eq!(runs.take(1), None);
    }
}
