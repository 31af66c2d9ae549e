//! Where the data of an open stream lies: its extents in memory.

use std::collections::BTreeMap;

use file_store::Range;
use volume_format::CLUSTER;

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
    pub(crate) fn end(&self) -> u64 {
        self.first + self.count
    }

    /// The part of the extent in `first..end`, which must meet it.
    pub(crate) fn part(&self, first: u64, end: u64) -> Self {
        let from = self.first.max(first);
        let to = self.end().min(end);
        Self { first: from, count: to - from, device: self.device + (from - self.first), shared: self.shared }
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

/// The extents of a stream.
#[derive(Clone, Default)]
pub(crate) struct ExtentMap {
    by_first: BTreeMap<u64, Extent>,
}

impl ExtentMap {
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.by_first.values()
    }

    /// Adds an extent where there is a hole, joining it with its neighbour before.
    pub(crate) fn insert(&mut self, extent: Extent) {
        if let Some((_, before)) = self.by_first.range_mut(..extent.first).next_back()
            && before.end() == extent.first
            && before.device + before.count == extent.device
            && before.shared == extent.shared
        {
            before.count += extent.count;
            return;
        }
        self.by_first.insert(extent.first, extent);
    }

    /// The extents that meet the clusters `first..end`, cut to them.
    pub(crate) fn meeting(&self, first: u64, end: u64) -> Vec<Extent> {
        let before = self.by_first.range(..first).next_back().filter(|(_, e)| e.end() > first);
        let inside = self.by_first.range(first..end.max(first));
        before.into_iter().chain(inside).map(|(_, e)| e.part(first, end)).collect()
    }

    /// Makes a hole of the clusters `first..end`.
    pub(crate) fn remove(&mut self, first: u64, end: u64) {
        let keys: Vec<u64> = {
            let before = self.by_first.range(..first).next_back().filter(|(_, e)| e.end() > first);
            before
                .into_iter()
                .chain(self.by_first.range(first..end.max(first)))
                .map(|(key, _)| *key)
                .collect()
        };
        for key in keys {
            let Some(extent) = self.by_first.remove(&key) else { continue };
            if extent.first < first {
                self.by_first.insert(key, extent.part(key, first));
            }
            if extent.end() > end {
                let rest = extent.part(end, extent.end());
                self.by_first.insert(rest.first, rest);
            }
        }
    }

    /// Cuts a byte range into segments, in order.
    pub(crate) fn segments(&self, offset: u64, len: u64) -> Vec<Segment> {
        let end = offset + len;
        let mut segments = Vec::new();
        let mut at = offset;
        for extent in self.meeting(offset / CLUSTER, end.div_ceil(CLUSTER)) {
            let from = (extent.first * CLUSTER).max(offset);
            let to = (extent.end() * CLUSTER).min(end);
            if from > at {
                segments.push(Segment { offset: at, len: from - at, device: None, shared: false });
            }
            let device = extent.device * CLUSTER + (from - extent.first * CLUSTER);
            segments.push(Segment {
                offset: from,
                len: to - from,
                device: Some(device),
                shared: extent.shared,
            });
            at = to;
        }
        if at < end {
            segments.push(Segment { offset: at, len: end - at, device: None, shared: false });
        }
        segments
    }

    /// The first mapped part of the bytes `offset..end`.
    pub(crate) fn first_mapped(&self, offset: u64, end: u64) -> Option<Segment> {
        let (first, last) = (offset / CLUSTER, end.div_ceil(CLUSTER));
        let before = self.by_first.range(..first).next_back().filter(|(_, e)| e.end() > first);
        let (_, extent) = before.or_else(|| self.by_first.range(first..last.max(first)).next())?;
        let from = (extent.first * CLUSTER).max(offset);
        let to = (extent.end() * CLUSTER).min(end);
        let device = extent.device * CLUSTER + (from - extent.first * CLUSTER);
        Some(Segment { offset: from, len: to - from, device: Some(device), shared: extent.shared })
    }

    /// What is mapped of the bytes `offset..end`, neighbours joined, at most `limit`.
    pub(crate) fn ranges(&self, offset: u64, end: u64, limit: usize) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        let mut at = offset;
        while at < end
            && let Some(segment) = self.first_mapped(at, end)
        {
            at = segment.offset + segment.len;
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
        let before = self.by_first.range(..first).next_back().filter(|(_, e)| e.end() > first);
        let inside = self.by_first.range(first..end.max(first)).rev();
        let tail = inside.chain(before).take(limit).last();
        tail.map(|(_, extent)| extent.first.max(first))
    }

    /// Holes in the clusters `first..end`, as (first, count).
    pub(crate) fn holes(&self, first: u64, end: u64) -> Vec<(u64, u64)> {
        let mut holes = Vec::new();
        let mut at = first;
        for extent in self.meeting(first, end) {
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

    /// Mapped clusters.
    pub(crate) fn clusters(&self) -> u64 {
        self.by_first.values().map(|extent| extent.count).sum()
    }
}

#[cfg(test)]
mod tests {
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
}
