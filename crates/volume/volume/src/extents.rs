//! Where the data of an open stream lies: its extents in memory.

use file_store::{FILE_SIZE_MAX, Range};
use volume_format::CLUSTER;

/// Behind all clusters that a stream can have.
pub(crate) const END: u64 = FILE_SIZE_MAX.div_ceil(CLUSTER);

/// A run of a stream's clusters that lie side by side on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First cluster of the stream.
    pub(crate) first: u64,
    /// How many.
    pub(crate) count: u64,
    /// First cluster of the device.
    pub(crate) device: u64,
    /// Others may use the clusters too.
    pub(crate) shared: bool,
}

impl Extent {
    /// Behind its last cluster in the stream. What comes from the disk may claim to reach beyond all numbers.
    pub(crate) fn end(&self) -> u64 {
        self.first.saturating_add(self.count)
    }

    /// The part of the extent in `first..end`, which must meet it.
    pub(crate) fn part(&self, first: u64, end: u64) -> Self {
        let from = self.first.max(first);
        let to = self.end().min(end);
        let device = self.device.saturating_add(from - self.first);
        Self { first: from, count: to.saturating_sub(from), device, shared: self.shared }
    }

    /// Whether `next` follows in the stream and on the device alike.
    fn goes_on_as(&self, next: &Self) -> bool {
        self.end() == next.first
            && self.device + self.count == next.device
            && self.shared == next.shared
            && self.count + next.count <= COUNT_MAX
    }

    /// What the extent maps of the bytes `offset..end`, which it meets.
    fn segment(&self, offset: u64, end: u64) -> Segment {
        let from = (self.first * CLUSTER).max(offset);
        let to = (self.end() * CLUSTER).min(end);
        let device = self.device * CLUSTER + (from - self.first * CLUSTER);
        Segment { offset: from, len: to - from, device: Some(device), shared: self.shared }
    }

    fn fits(&self, start: u64, limit: u64) -> bool {
        start.checked_add(self.count).is_some_and(|end| end <= limit)
    }

    /// Whether the numbers are ones that a volume of `clusters` clusters can have.
    pub(crate) fn is_possible(&self, clusters: u64) -> bool {
        self.lies_on(clusters) && self.fits(self.first, END)
    }

    /// Whether it lies on a device of `clusters` clusters: which these are is known then, also if no stream can have them there.
    pub(crate) fn lies_on(&self, clusters: u64) -> bool {
        self.count > 0 && self.fits(self.first, u64::MAX) && self.fits(self.device, clusters)
    }
}

/// A part of a byte range: mapped to the device, or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Byte offset in the stream.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) len: u64,
    /// First cluster-relative byte on the device (from cluster 0); `None` for a hole.
    pub(crate) device: Option<u64>,
    /// The clusters may have other users.
    pub(crate) shared: bool,
}

/// Clusters that an extent in the map has at most: 2 PiB; longer ones are several.
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
const COUNT_BITS: u32 = 35;
/// Bits of a cluster's number: 4 EiB in clusters.
const CLUSTER_BITS: u32 = 46;
/// Extents in a leaf: few enough to move when one comes in between.
const LEAF: usize = 256;

/// An extent in 16 bytes: first (46 bits), device (46), count (35), shared (1).
#[derive(Clone, Copy)]
struct Packed(u128);

impl Packed {
    fn new(extent: Extent) -> Self {
        let numbers = (u128::from(extent.first) << CLUSTER_BITS) | u128::from(extent.device);
        let counted = (numbers << COUNT_BITS) | u128::from(extent.count);
        Self((counted << 1) | u128::from(extent.shared))
    }

    fn first(self) -> u64 {
        (self.0 >> (1 + COUNT_BITS + CLUSTER_BITS)) as u64
    }

    fn extent(self) -> Extent {
        let mask = |bits: u32| (1u64 << bits) - 1;
        Extent {
            first: self.first(),
            count: (self.0 >> 1) as u64 & mask(COUNT_BITS),
            device: (self.0 >> (1 + COUNT_BITS)) as u64 & mask(CLUSTER_BITS),
            shared: self.0 & 1 != 0,
        }
    }
}

/// The extents of a stream, in order: 16 bytes for each, in leaves of some hundred.
///
/// Invariants: extents do not overlap; neighbours that continue each other on the device are one; no leaf is
/// empty. Numbers fit their bits: what comes from the disk is checked when it is read.
#[derive(Clone, Default)]
pub(crate) struct ExtentMap {
    leaves: Vec<Vec<Packed>>,
    clusters: u64,
}

/// A place in the map: leaf, and extent in it. Behind the last extent, the leaf does not exist.
type Place = (usize, usize);

impl ExtentMap {
    /// All extents, in order.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = Extent> {
        self.from((0, 0))
    }

    fn get(&self, (leaf, at): Place) -> Option<Extent> {
        self.leaves.get(leaf)?.get(at).map(|packed| packed.extent())
    }

    fn from(&self, mut place: Place) -> impl Iterator<Item = Extent> {
        std::iter::from_fn(move || {
            let extent = self.get(place)?;
            place = self.after(place);
            Some(extent)
        })
    }

    fn after(&self, (leaf, at): Place) -> Place {
        if at + 1 < self.leaves[leaf].len() { (leaf, at + 1) } else { (leaf + 1, 0) }
    }

    fn before(&self, (leaf, at): Place) -> Option<Place> {
        match (leaf, at) {
            (0, 0) => None,
            (leaf, 0) => Some((leaf - 1, self.leaves[leaf - 1].len() - 1)),
            (leaf, at) => Some((leaf, at - 1)),
        }
    }

    /// The first extent that begins at `first` or later.
    fn lower(&self, first: u64) -> Place {
        // The last leaf that begins before `first`, if any, is where it is, or behind.
        let leaf = self.leaves.partition_point(|leaf| leaf.first().is_some_and(|e| e.first() < first));
        let Some(leaf) = leaf.checked_sub(1) else { return (0, 0) };
        let at = self.leaves[leaf].partition_point(|packed| packed.first() < first);
        if at < self.leaves[leaf].len() { (leaf, at) } else { (leaf + 1, 0) }
    }

    /// The first extent that ends after `first`.
    fn reaching(&self, first: u64) -> Place {
        let place = self.lower(first);
        match self.before(place) {
            Some(before) if self.get(before).is_some_and(|extent| extent.end() > first) => before,
            _ => place,
        }
    }

    /// Adds an extent where there is a hole, joining it with its neighbours.
    pub(crate) fn insert(&mut self, mut extent: Extent) {
        if extent.count == 0 {
            return;
        }
        self.clusters += extent.count;
        let mut place = self.lower(extent.first);
        if let Some(next) = self.get(place).filter(|next| extent.goes_on_as(next)) {
            self.take(place);
            extent.count += next.count;
            place = self.lower(extent.first);
        }
        if let Some(before) = self.before(place)
            && let Some(joined) = self.get(before).filter(|before| before.goes_on_as(&extent))
        {
            self.leaves[before.0][before.1] =
                Packed::new(Extent { count: joined.count + extent.count, ..joined });
            return;
        }
        let mut rest = extent;
        while rest.count > COUNT_MAX {
            self.put(place, rest.part(rest.first, rest.first + COUNT_MAX));
            rest = rest.part(rest.first + COUNT_MAX, rest.end());
            place = self.lower(rest.first);
        }
        self.put(place, rest);
    }

    /// Puts an extent before the one at `place`.
    fn put(&mut self, place: Place, extent: Extent) {
        // Behind the last one of a leaf rather than before the first one of the next.
        let (leaf, at) = match self.before(place) {
            Some((leaf, at)) => (leaf, at + 1),
            None => (0, 0),
        };
        if self.leaves.is_empty() {
            self.leaves.push(Vec::new());
        }
        self.leaves[leaf].insert(at, Packed::new(extent));
        if self.leaves[leaf].len() > LEAF {
            // In order, as at an opening, leaves become full; in between, half full.
            let half = if at == LEAF { LEAF } else { LEAF / 2 };
            let mut behind = Vec::with_capacity(LEAF + 1);
            behind.extend(self.leaves[leaf].drain(half..));
            self.leaves.insert(leaf + 1, behind);
        }
    }

    fn take(&mut self, (leaf, at): Place) {
        self.leaves[leaf].remove(at);
        if self.leaves[leaf].is_empty() {
            self.leaves.remove(leaf);
        }
    }

    /// From now on, what lies in the clusters `first..end` may have other users.
    pub(crate) fn share(&mut self, first: u64, end: u64) {
        self.cut(first);
        self.cut(end);
        let mut place = self.lower(first);
        while let Some(extent) = self.get(place).filter(|extent| extent.first < end) {
            self.leaves[place.0][place.1] = Packed::new(Extent { shared: true, ..extent });
            place = self.after(place);
        }
    }

    /// The extents that meet the clusters `first..end`, cut to them.
    pub(crate) fn meeting(&self, first: u64, end: u64) -> Vec<Extent> {
        let met = self.from(self.reaching(first)).take_while(|extent| extent.first < end);
        met.map(|extent| extent.part(first, end)).collect()
    }

    /// Makes a hole of the clusters `first..end`.
    pub(crate) fn remove(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        self.cut(first);
        self.cut(end);
        let (from, to) = (self.lower(first), self.lower(end));
        let gone: u64 =
            self.from(from).take_while(|extent| extent.first < end).map(|extent| extent.count).sum();
        if gone == 0 {
            return;
        }
        self.clusters -= gone;
        if from.0 == to.0 {
            self.leaves[from.0].drain(from.1..to.1);
        } else {
            self.leaves[from.0].truncate(from.1);
            if let Some(last) = self.leaves.get_mut(to.0) {
                last.drain(..to.1);
            }
            self.leaves.drain(from.0 + 1..to.0);
        }
        let around = from.0..(from.0 + 2).min(self.leaves.len());
        for leaf in around.rev() {
            if self.leaves[leaf].is_empty() {
                self.leaves.remove(leaf);
            }
        }
    }

    /// Makes two of an extent that goes over `at`.
    fn cut(&mut self, at: u64) {
        let place = self.reaching(at);
        let Some(extent) = self.get(place).filter(|extent| extent.first < at && extent.end() > at) else {
            return;
        };
        self.leaves[place.0][place.1] = Packed::new(extent.part(extent.first, at));
        let rest = extent.part(at, extent.end());
        self.put(self.lower(at), rest);
    }

    /// Cuts a byte range into segments, in order.
    pub(crate) fn segments(&self, offset: u64, len: u64) -> Vec<Segment> {
        let end = offset + len;
        let mut segments = Vec::new();
        let mut at = offset;
        let last = end.div_ceil(CLUSTER);
        for extent in self.from(self.reaching(offset / CLUSTER)).take_while(|extent| extent.first < last) {
            let segment = extent.segment(offset, end);
            if segment.offset > at {
                segments.push(Segment { offset: at, len: segment.offset - at, device: None, shared: false });
            }
            at = segment.offset + segment.len;
            segments.push(segment);
        }
        if at < end {
            segments.push(Segment { offset: at, len: end - at, device: None, shared: false });
        }
        segments
    }

    /// The first mapped part of the bytes `offset..end`.
    pub(crate) fn first_mapped(&self, offset: u64, end: u64) -> Option<Segment> {
        let extent = self.get(self.reaching(offset / CLUSTER))?;
        (extent.first < end.div_ceil(CLUSTER)).then(|| extent.segment(offset, end))
    }

    /// What is mapped of the bytes `offset..end`, neighbours joined, at most `limit`.
    pub(crate) fn ranges(&self, offset: u64, end: u64, limit: usize) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        let last = end.div_ceil(CLUSTER);
        for extent in self.from(self.reaching(offset / CLUSTER)).take_while(|extent| extent.first < last) {
            let segment = extent.segment(offset, end);
            let full = ranges.len() == limit;
            match ranges.last_mut() {
                Some(last) if last.offset + last.len == segment.offset => last.len += segment.len,
                _ if full => break,
                _ => ranges.push(Range { offset: segment.offset, len: segment.len }),
            }
        }
        ranges
    }

    /// Where the last `limit` extents of the clusters `first..end` begin; `None` when nothing is mapped there.
    pub(crate) fn tail(&self, first: u64, end: u64, limit: usize) -> Option<u64> {
        let mut found = None;
        let mut place = self.lower(end);
        for _ in 0..limit {
            let Some(before) = self.before(place) else { break };
            let Some(extent) = self.get(before).filter(|extent| extent.end() > first) else { break };
            found = Some(extent.first.max(first));
            place = before;
        }
        found
    }

    /// Holes in the clusters `first..end`, as (first, count).
    pub(crate) fn holes(&self, first: u64, end: u64) -> Vec<(u64, u64)> {
        let mut holes = Vec::new();
        let mut at = first;
        for extent in self.from(self.reaching(first)).take_while(|extent| extent.first < end) {
            if extent.first > at {
                holes.push((at, extent.first - at));
            }
            at = extent.end();
        }
        if at < end {
            holes.push((at, end - at));
        }
        holes
    }

    /// Whether all of the clusters `first..end` are mapped, and whether one of them may be shared.
    pub(crate) fn covers(&self, first: u64, end: u64) -> (bool, bool) {
        let (mut at, mut shared) = (first, false);
        for extent in self.from(self.reaching(first)).take_while(|extent| extent.first < end) {
            if extent.first > at {
                return (false, shared || self.meeting(at, end).iter().any(|extent| extent.shared));
            }
            shared |= extent.shared;
            at = extent.end();
        }
        (at >= end, shared)
    }

    /// Mapped clusters.
    pub(crate) fn clusters(&self) -> u64 {
        self.clusters
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use block_conformance::Rng;

    use super::*;

    fn extent(first: u64, count: u64, device: u64) -> Extent {
        Extent { first, count, device, shared: false }
    }

    #[test]
    fn segments_alternate_with_holes() {
        let mut map = ExtentMap::default();
        map.insert(extent(1, 2, 100));
        map.insert(extent(3, 1, 102)); // joins
        map.insert(extent(5, 1, 7));
        assert_eq!(map.iter().count(), 2);
        let segments = map.segments(CLUSTER / 2, 5 * CLUSTER);
        let shape: Vec<_> = segments.iter().map(|s| (s.len, s.device)).collect();
        assert_eq!(
            shape,
            vec![
                (CLUSTER / 2, None),
                (3 * CLUSTER, Some(100 * CLUSTER)),
                (CLUSTER, None),
                (CLUSTER / 2, Some(7 * CLUSTER)),
            ]
        );
        assert_eq!(map.holes(0, 6), vec![(0, 1), (4, 1)]);
        map.remove(2, 3);
        assert_eq!(map.meeting(0, 9), vec![extent(1, 1, 100), extent(3, 1, 102), extent(5, 1, 7)]);
    }

    #[test]
    fn the_largest_numbers_fit() {
        let last = (1 << CLUSTER_BITS) - 1;
        let mut map = ExtentMap::default();
        map.insert(Extent { first: last - 9, count: 9, device: last - 9, shared: true });
        map.insert(extent(0, COUNT_MAX + 10, 5));
        assert_eq!(
            map.meeting(last - 9, last),
            vec![Extent { first: last - 9, count: 9, device: last - 9, shared: true }]
        );
        assert_eq!(map.clusters(), COUNT_MAX + 19);
        assert_eq!(map.holes(0, COUNT_MAX + 10), Vec::new());
        map.remove(3, u64::MAX);
        assert_eq!(map.iter().collect::<Vec<_>>(), vec![extent(0, 3, 5)]);
    }

    #[test]
    fn agrees_with_a_map_of_single_clusters() {
        for seed in 0..30 {
            let mut rng = Rng::new(seed);
            let size = 3000;
            let (mut map, mut model): (ExtentMap, BTreeMap<u64, (u64, bool)>) = Default::default();
            for step in 0..800 {
                let first = rng.below(size);
                let reach = if rng.one_in(20) { 1500 } else { 6 };
                let end = first + 1 + rng.below(reach);
                match rng.below(5) {
                    0 => {
                        map.remove(first, end);
                        model.retain(|at, _| !(first..end).contains(at));
                    }
                    _ => {
                        // Single clusters mostly, so that there are many; now and then one that joins others.
                        for (hole, count) in map.holes(first, end) {
                            let count = if rng.one_in(3) { count } else { 1 };
                            let device = if rng.one_in(2) { hole + 5000 } else { 100_000 + rng.below(9000) };
                            let shared = rng.one_in(4);
                            map.insert(Extent { first: hole, count, device, shared });
                            model.extend((0..count).map(|n| (hole + n, (device + n, shared))));
                        }
                    }
                }
                assert_eq!(map.clusters(), model.len() as u64, "seed {seed} step {step}");
                let met = map.meeting(first, end + 20);
                let singles =
                    met.iter().flat_map(|e| (0..e.count).map(|n| (e.first + n, (e.device + n, e.shared))));
                let wanted = model.range(first..end + 20).map(|(at, value)| (*at, *value));
                assert!(singles.eq(wanted), "seed {seed} step {step}");
                let holes: u64 = map.holes(first, end + 20).iter().map(|(_, count)| count).sum();
                assert_eq!(holes, end + 20 - first - model.range(first..end + 20).count() as u64);
                let (all, shared) = map.covers(first, end);
                let here: Vec<bool> = model.range(first..end).map(|(_, (_, shared))| *shared).collect();
                assert_eq!(
                    (all, shared),
                    (here.len() as u64 == end - first, here.contains(&true)),
                    "seed {seed} step {step}"
                );
                let last = map.iter().filter(|e| e.first < end && e.end() > first).last();
                assert_eq!(map.tail(first, end, 1), last.map(|e| e.first.max(first)));
                assert!(map.leaves.iter().all(|leaf| !leaf.is_empty() && leaf.len() <= LEAF));
            }
            let whole: Vec<Extent> = map.iter().collect();
            assert!(
                whole.windows(2).all(|two| two[0].end() <= two[1].first && !two[0].goes_on_as(&two[1])),
                "seed {seed}"
            );
            assert_eq!(map.tail(0, u64::MAX, whole.len()), whole.first().map(|e| e.first));
        }
    }
}
