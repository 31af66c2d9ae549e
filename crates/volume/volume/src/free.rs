//! Free clusters, in memory.
//!
//! **Invariant (zero):** a free cluster reads as zeros and no request can reach it any more. Clusters that lose
//! their user are first *freed* in the database, then zeroed, and only then free again.

use std::collections::BTreeMap;

/// A run of clusters of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) count: u64,
}

/// Free runs by their start; neighbours are always joined.
#[derive(Clone, Default)]
pub(crate) struct Free {
    runs: BTreeMap<u64, u64>,
    total: u64,
    /// Where the next search begins, so that files written side by side do not fight for the same run.
    hint: u64,
}

impl Free {
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn add(&mut self, run: Run) {
        if run.count == 0 {
            return;
        }
        let (mut start, mut count) = (run.start, run.count);
        self.total += count;
        if let Some((before, len)) = self.runs.range(..start).next_back().map(|(s, l)| (*s, *l))
            && before + len == start
        {
            self.runs.remove(&before);
            start = before;
            count += len;
        }
        if let Some(len) = self.runs.remove(&(start + count)) {
            count += len;
        }
        self.runs.insert(start, count);
    }

    /// Takes a run out of the free ones; `false` when some of it is not free.
    pub(crate) fn remove(&mut self, run: Run) -> bool {
        if run.count == 0 {
            return true;
        }
        let Some((start, count)) = self.runs.range(..=run.start).next_back().map(|(s, c)| (*s, *c)) else {
            return false;
        };
        let end = start + count;
        if run.start + run.count > end {
            return false;
        }
        self.runs.remove(&start);
        if start < run.start {
            self.runs.insert(start, run.start - start);
        }
        if run.start + run.count < end {
            self.runs.insert(run.start + run.count, end - run.start - run.count);
        }
        self.total -= run.count;
        true
    }

    /// Takes `count` clusters, in as few runs as the search finds; `None`, and nothing taken, when there are
    /// not enough.
    pub(crate) fn take(&mut self, count: u64) -> Option<Vec<Run>> {
        if count > self.total {
            return None;
        }
        let mut taken = Vec::new();
        let mut left = count;
        while left > 0 {
            let fits = |(_, len): &(&u64, &u64)| **len >= left;
            let found = self.runs.range(self.hint..).find(fits).or_else(|| self.runs.iter().find(fits));
            let found = found.or_else(|| self.runs.iter().max_by_key(|(_, len)| **len));
            let (start, len) = found.map(|(s, l)| (*s, *l))?;
            let run = Run { start, count: len.min(left) };
            self.remove(run);
            self.hint = run.start + run.count;
            left -= run.count;
            taken.push(run);
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_split_and_run_out() {
        let mut free = Free::default();
        free.add(Run { start: 10, count: 5 });
        free.add(Run { start: 0, count: 10 });
        free.add(Run { start: 20, count: 4 });
        assert_eq!(free.total(), 19);
        assert!(!free.remove(Run { start: 14, count: 2 }));
        assert_eq!(free.take(15), Some(vec![Run { start: 0, count: 15 }]));
        assert_eq!(free.take(5), None);
        assert_eq!(free.take(4), Some(vec![Run { start: 20, count: 4 }]));
        assert_eq!(free.total(), 0);
    }
}
