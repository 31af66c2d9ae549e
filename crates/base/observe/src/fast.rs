//! Maps with a fixed, fast hash: the same order in every run.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map for keys that no adversary chooses (ids, tokens); attacker-chosen keys belong in a `BTreeMap`.
pub type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;
/// A set; see [`FastMap`].
pub type FastSet<K> = HashSet<K, BuildHasherDefault<FastHasher>>;

/// A multiply-and-rotate hash for short keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct FastHasher(u64);

/// An odd constant with well-spread bits: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word) ^ ((chunk.len() as u64) << 56));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(SPREAD);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        // The table takes its bits from both ends: mix the high ones down.
        self.0 ^ (self.0 >> 32)
    }
}
