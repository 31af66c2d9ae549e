//! A bit for each MiB of a file, kept for those parts of it only that have one set: a hostile file of few bytes may be used at places that
//! lie far apart.

use std::collections::BTreeMap;

use vhdx_format::MIB;

/// A part of a file, in MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) at: u64,
    pub(crate) count: u64,
}

impl Extent {
    /// Of bytes, in whole MiB.
    pub(crate) fn of(offset: u64, len: u64) -> Self {
        Self { at: offset / MIB, count: len.div_ceil(MIB) }
    }
}

/// Words of bits that are kept together: of 1 GiB of a file.
const WORDS: usize = 16;
/// Bits that are kept together.
const BITS: u64 = 64 * WORDS as u64;
/// What they take in memory, in bytes, with their place among the others.
const PART_BYTES: usize = 8 * WORDS + 64;
/// Parts that each file has, however little memory there is: of 64 GiB in one piece.
const OWN: usize = 64;

/// Which MiB are used. Invariant: no part is all zeros.
#[derive(Default)]
pub(crate) struct Used {
    parts: BTreeMap<u64, [u64; WORDS]>,
    count: u64,
}

/// The words that an extent has bits of: number of the part, place in it, and which bits.
fn words(extent: Extent) -> impl Iterator<Item = (u64, usize, u64)> {
    let (mut at, end) = (extent.at, extent.at + extent.count);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (bit, next) = (at % 64, end.min((at / 64 + 1) * 64));
        let mask = (u64::MAX >> (64 - (next - at))) << bit;
        let word = (at / BITS, (at % BITS / 64) as usize, mask);
        at = next;
        Some(word)
    })
}

impl Used {
    /// The bits of 64 MiB, the lowest of which is that of this one.
    pub(crate) fn word(&self, at: u64) -> u64 {
        let at = at / 64 * 64;
        self.parts.get(&(at / BITS)).map_or(0, |part| part[(at % BITS / 64) as usize])
    }

    /// Whether one of these is used.
    pub(crate) fn any(&self, extent: Extent) -> bool {
        let mut words = words(extent);
        words.any(|(part, word, mask)| self.parts.get(&part).is_some_and(|part| part[word] & mask != 0))
    }

    /// How many bytes of memory it would take more if these were used, beyond what each file has.
    pub(crate) fn bytes_more(&self, extent: Extent) -> usize {
        let beyond = |parts: usize| parts.saturating_sub(OWN) * PART_BYTES;
        beyond(self.parts.len() + self.parts_more(extent)) - beyond(self.parts.len())
    }

    fn parts_more(&self, extent: Extent) -> usize {
        let last = (extent.at + extent.count).saturating_sub(1).max(extent.at) / BITS;
        let all = last - extent.at / BITS + 1;
        all as usize - self.parts.range(extent.at / BITS..=last).count()
    }

    /// Says of these whether they are used.
    pub(crate) fn set(&mut self, extent: Extent, used: bool) {
        for (number, word, mask) in words(extent) {
            if used {
                let part = self.parts.entry(number).or_default();
                self.count += u64::from((mask & !part[word]).count_ones());
                part[word] |= mask;
            } else if let Some(part) = self.parts.get_mut(&number) {
                self.count -= u64::from((mask & part[word]).count_ones());
                part[word] &= !mask;
                if part.iter().all(|word| *word == 0) {
                    self.parts.remove(&number);
                }
            }
        }
    }

    /// How many are used.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Where the last that is used ends.
    pub(crate) fn end(&self) -> u64 {
        let Some((number, part)) = self.parts.last_key_value() else { return 0 };
        let last = part.iter().rposition(|word| *word != 0).unwrap_or(0);
        number * BITS + (last as u64 + 1) * 64 - u64::from(part[last].leading_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a plain list of the same bits.
    #[test]
    fn bits_are_what_was_said_of_them() {
        let dice = sim::Dice::new(4);
        let (mut used, mut plain) = (Used::default(), vec![false; 5000]);
        for _ in 0..5000 {
            let at = dice.below(4900);
            let extent = Extent { at, count: *dice.pick(&[1, 2, 8, 63, 64, 65, 90]).expect("one") };
            let range = at as usize..(at + extent.count) as usize;
            assert_eq!(used.any(extent), plain[range.clone()].contains(&true));
            let says = dice.one_in(2);
            let before = used.parts.len();
            let more = used.parts_more(extent);
            used.set(extent, says);
            if says {
                assert_eq!(used.parts.len(), before + more);
            }
            plain[range].fill(says);
            assert_eq!(used.count(), plain.iter().filter(|used| **used).count() as u64);
            assert_eq!(used.end(), plain.iter().rposition(|used| *used).map_or(0, |at| at as u64 + 1));
            let word = used.word(at);
            let first = at as usize / 64 * 64;
            let same =
                |bit: usize| plain.get(first + bit).copied().unwrap_or(false) == (word >> bit & 1 == 1);
            assert!((0..64).all(same));
        }
        used.set(Extent { at: 0, count: 5000 }, false);
        assert!(used.parts.is_empty(), "nothing is kept of what is not used");
    }
}
