//! [`Rate`]: what a volume does in a second.

use super::{MS, permille};

/// What a volume does in a second: requests, and normalised I/Os. Which of them it is short of nobody knows, and their mixture changes with who
/// is held back, so that it does less only where it does less of both.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    requests: u64,
    pub(super) units: u64,
}

impl Rate {
    /// Requests and units that were answered in so many nanoseconds.
    pub(super) fn over(nanos: u64, requests: u64, units: u64) -> Self {
        let rate = |count: u64| {
            let rate = u128::from(count) * u128::from(1000 * MS) / u128::from(nanos.max(1));
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        Self { requests: rate(requests), units: rate(units) }
    }

    /// The higher of two, if one is that in both.
    pub(super) fn up_to(self, other: Self) -> Self {
        let is_higher = other.requests >= self.requests && other.units >= self.units;
        if is_higher { other } else { self }
    }

    /// So many thousandths of it.
    pub(super) fn part(self, permille: u64) -> Self {
        let part =
            |rate: u64| u64::try_from(u128::from(rate) * u128::from(permille) / 1000).unwrap_or(u64::MAX);
        Self { requests: part(self.requests), units: part(self.units) }
    }

    /// How much it is of another one, in thousandths.
    pub(super) fn of(self, whole: Self) -> u64 {
        let part = |part: u64, whole: u64| permille(u128::from(part), u128::from(whole));
        part(self.requests, whole.requests).max(part(self.units, whole.units))
    }
}
