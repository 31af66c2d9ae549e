//! The rule by which many take from what they share, so that whoever comes later finds some.
//!
//! ```text
//!   limit  ├──────────── open ────────────┼──── kept: only for the first of each ────┤
//! ```
//! * The `first` of each are taken from all that is free. What is kept is taken for nothing else, so nobody finds none as long as fewer
//!   than `kept / first` others have theirs, whatever they do beside.
//! * Beyond them one takes only while it holds less than is free of what is open: two that take what they get share that, and one
//!   alone leaves half of it.

/// How much there is of something, and what of it is kept for whom.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// How many there are.
    pub limit: usize,
    /// How many of them are kept for the first of each.
    pub kept: usize,
    /// How many each takes for nobody's sake.
    pub first: usize,
}

impl Shares {
    /// Half of `limit` is kept for the `first` of each.
    #[must_use]
    pub const fn half_kept(limit: usize, first: usize) -> Self {
        Self { limit, kept: limit / 2, first }
    }

    /// How many are left of what is open, where so many are taken.
    #[must_use]
    pub const fn open(self, taken: usize) -> usize {
        self.limit.saturating_sub(self.kept).saturating_sub(taken)
    }

    /// Whether one that holds so many of those that are taken may take one more.
    #[must_use]
    pub const fn may_take(self, taken: usize, held: usize) -> bool {
        taken < self.limit && (held < self.first || held < self.open(taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each gets when they take all they can, one after another.
    fn greedy(shares: Shares, who: usize) -> Vec<usize> {
        let (mut taken, mut got) = (0, Vec::new());
        for _ in 0..who {
            let mut held = 0;
            while shares.may_take(taken, held) {
                (taken, held) = (taken + 1, held + 1);
            }
            got.push(held);
        }
        assert!(taken <= shares.limit);
        got
    }

    #[test]
    fn whoever_comes_later_finds_the_first() {
        let got = greedy(Shares::half_kept(1024, 8), 64);
        assert_eq!((got[0], got[1]), (256, 128), "one alone leaves half of what is open");
        assert!(got.iter().all(|held| *held >= 8), "{got:?}");
        let got = greedy(Shares { limit: 256, kept: 64, first: 8 }, 8);
        assert!(got[0] == 96 && got.iter().all(|held| *held >= 8), "{got:?}");
    }

    #[test]
    fn never_more_than_there_are() {
        for limit in [0, 1, 7, 16, 100] {
            greedy(Shares::half_kept(limit, 8), limit + 20);
        }
    }
}
