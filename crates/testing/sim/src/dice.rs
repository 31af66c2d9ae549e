//! Seeded choices.

use std::sync::Arc;

use shard_runtime::{Entropy, SeededEntropy};

/// Choices that follow from a seed. Clones draw from the same sequence.
#[derive(Clone)]
pub struct Dice(Arc<SeededEntropy>);

impl Dice {
    /// Dice that start from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give shifted copies of one sequence, which plain SplitMix64 would.
        let first = SeededEntropy::new(seed).next_u64();
        Self(Arc::new(SeededEntropy::new(first)))
    }

    /// Independent dice, so that more draws in one place do not shift another place's choices.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::new(self.0.next_u64())
    }

    /// Any number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`; 0 when `bound` is 0.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    #[must_use]
    pub fn between(&self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True once in `n` on average; never when `n` is 0.
    #[must_use]
    pub fn one_in(&self, n: u64) -> bool {
        n != 0 && self.below(n) == 0
    }

    /// True with a chance of `percent` in 100.
    #[must_use]
    pub fn percent(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several; `None` when there is none.
    #[must_use]
    pub fn pick<'a, T>(&self, from: &'a [T]) -> Option<&'a T> {
        from.get(self.below(from.len() as u64) as usize)
    }
}

impl Entropy for Dice {
    fn fill(&self, bytes: &mut [u8]) {
        self.0.fill(bytes);
    }
}
