//! Random numbers for offsets and mixes: xoshiro256++ (Blackman, Vigna 2019), seeded by SplitMix64.

use shard_runtime::{Entropy as _, SeededEntropy};

/// A generator of one thread; the same seed and stream give the same numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random([u64; 4]);

impl Random {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        // SplitMix64 never gives four zeros in a row, which is the one state that must not be.
        let source = SeededEntropy::new(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        Self(std::array::from_fn(|_| source.next_u64()))
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.0;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let t = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= t;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `bound`, which is above 0 (Lemire's multiplication; the bias is below 2^-64 times the bound).
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// True in `percent` of the cases.
    #[inline]
    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }

    /// Above 0, at most 1.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}
