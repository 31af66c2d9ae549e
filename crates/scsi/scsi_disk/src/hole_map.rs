//! Ranges of a block device known to be unmapped, for devices that cannot tell. What is not in the map counts as
//! mapped, so that forgetting (a restart, too many ranges) is always right.

use std::collections::BTreeMap;

use file_store::Range;

/// Most ranges remembered; bounds memory.
const MAX_HOLES: usize = 65536;

/// Disjoint ranges, start to end; touching ones are joined.
#[derive(Default)]
pub(crate) struct HoleMap(BTreeMap<u64, u64>);

impl HoleMap {
    /// The range was unmapped.
    pub(crate) fn add(&mut self, offset: u64, len: u64) {
        let (mut start, mut end) = (offset, offset.saturating_add(len));
        if len == 0 {
            return;
        }
        while let Some((&s, &e)) = self.0.range(..=end).next_back().filter(|(_, e)| **e >= start) {
            (start, end) = (start.min(s), end.max(e));
            self.0.remove(&s);
        }
        if self.0.len() < MAX_HOLES {
            self.0.insert(start, end);
        }
    }

    /// The range will be written.
    pub(crate) fn remove(&mut self, offset: u64, len: u64) {
        let (start, end) = (offset, offset.saturating_add(len));
        if len == 0 {
            return;
        }
        while let Some((&s, &e)) = self.0.range(..end).next_back().filter(|(_, e)| **e > start) {
            self.0.remove(&s);
            if e > end && self.0.len() < MAX_HOLES {
                self.0.insert(end, e);
            }
            if s < start && self.0.len() < MAX_HOLES {
                self.0.insert(s, start);
            }
        }
    }

    /// The parts of the range that are not holes, at most `limit`.
    pub(crate) fn mapped(&self, offset: u64, len: u64, limit: usize) -> Vec<Range> {
        let (mut at, end) = (offset, offset.saturating_add(len));
        let first = self.0.range(..=offset).next_back().map_or(offset, |(start, _)| *start);
        let mut out = Vec::new();
        for (&s, &e) in self.0.range(first..end) {
            if s > at && out.len() < limit {
                out.push(Range { offset: at, len: s - at });
            }
            at = at.max(e);
        }
        if at < end && out.len() < limit {
            out.push(Range { offset: at, len: end - at });
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_as_a_bitmap(steps in prop::collection::vec((any::<bool>(), 0u64..64, 0u64..20), 1..60)) {
            let (mut map, mut bits) = (HoleMap::default(), [false; 96]);
            for (add, offset, len) in steps {
                if add { map.add(offset, len) } else { map.remove(offset, len) }
                bits[offset as usize..(offset + len) as usize].fill(add);
                for from in [0, 7, offset] {
                    let mut seen = [true; 96];
                    for range in map.mapped(from, 96 - from, usize::MAX) {
                        prop_assert!(range.len > 0 && range.offset >= from);
                        seen[range.offset as usize..(range.offset + range.len) as usize].fill(false);
                    }
                    prop_assert_eq!(&seen[from as usize..], &bits[from as usize..]);
                }
                let ends: Vec<_> = map.0.iter().collect();
                prop_assert!(ends.windows(2).all(|w| w[0].1 < w[1].0), "disjoint and joined");
            }
        }
    }
}
