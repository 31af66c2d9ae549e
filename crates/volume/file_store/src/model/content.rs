//! The bytes of a stream of the store in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::UNIT;
use crate::Range;

/// One unit of content. Shared by clones; whoever writes to it takes a copy first.
pub(super) type Unit = Arc<[u8; UNIT as usize]>;

/// A stream's bytes. Invariant: bytes at and beyond `size` are zero.
#[derive(Clone, Default)]
pub(super) struct Content {
    pub(super) size: u64,
    /// By number of the unit; what is missing reads as zeros.
    pub(super) units: BTreeMap<u64, Unit>,
}

impl Content {
    /// Up to `len` bytes from `offset`, up to the end.
    pub(super) fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = (offset + len).min(self.size);
        let mut bytes = Vec::new();
        let mut at = offset;
        while at < end {
            let (unit, within) = (at / UNIT, (at % UNIT) as usize);
            let step = (UNIT - at % UNIT).min(end - at) as usize;
            match self.units.get(&unit) {
                Some(unit) => bytes.extend_from_slice(&unit[within..within + step]),
                None => bytes.resize(bytes.len() + step, 0),
            }
            at += step as u64;
        }
        bytes
    }

    /// Puts bytes in place, growing.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let within = (at % UNIT) as usize;
            let (now, later) = rest.split_at(rest.len().min(UNIT as usize - within));
            let unit = self.units.entry(at / UNIT).or_insert_with(|| Arc::new([0; UNIT as usize]));
            Arc::make_mut(unit)[within..within + now.len()].copy_from_slice(now);
            at += now.len() as u64;
            rest = later;
        }
        self.size = self.size.max(offset + data.len() as u64);
    }

    /// Makes a range read as zeros, keeping its units, or dropping those that lie in it whole.
    pub(super) fn zero(&mut self, offset: u64, end: u64, drop_units: bool) {
        if offset >= end {
            return;
        }
        for (number, unit) in self.units.range_mut(offset / UNIT..end.div_ceil(UNIT)) {
            let start = number * UNIT;
            let from = offset.saturating_sub(start).min(UNIT) as usize;
            let to = (end - start).min(UNIT) as usize;
            Arc::make_mut(unit)[from..to].fill(0);
        }
        if drop_units {
            let whole = offset.div_ceil(UNIT)..end / UNIT;
            self.units.retain(|number, _| !whole.contains(number));
        }
    }

    /// Cuts or grows.
    pub(super) fn resize(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, u64::MAX, true);
        }
        self.size = size;
    }

    /// Gives every hole of a range a unit of zeros.
    pub(super) fn allocate(&mut self, offset: u64, end: u64) {
        for number in offset / UNIT..end.div_ceil(UNIT) {
            self.units.entry(number).or_insert_with(|| Arc::new([0; UNIT as usize]));
        }
    }

    /// How many units [`Content::allocate`] would add.
    pub(super) fn missing(&self, offset: u64, end: u64) -> u64 {
        let wanted = offset / UNIT..end.div_ceil(UNIT);
        let there = self.units.range(wanted.clone()).count() as u64;
        wanted.end - wanted.start - there
    }

    /// What has units in a range, joined.
    pub(super) fn ranges(&self, offset: u64, end: u64, limit: usize) -> Vec<Range> {
        let end = end.min(self.size);
        let mut ranges: Vec<Range> = Vec::new();
        if offset >= end {
            return ranges;
        }
        for number in self.units.range(offset / UNIT..end.div_ceil(UNIT)).map(|(number, _)| *number) {
            let from = (number * UNIT).max(offset);
            let to = ((number + 1) * UNIT).min(end);
            let full = ranges.len() == limit;
            match ranges.last_mut() {
                Some(last) if last.offset + last.len == from => last.len += to - from,
                _ if full => break,
                _ => ranges.push(Range { offset: from, len: to - from }),
            }
        }
        ranges
    }

    /// Takes over `len` bytes of `source`; whole units are shared.
    pub(super) fn clone_from_range(&mut self, source: &Self, from: u64, to: u64, len: u64) {
        let size = self.size.max(to + len);
        let mut done = 0;
        while done < len {
            let (a, b) = (from + done, to + done);
            let step = (UNIT - a % UNIT).min(UNIT - b % UNIT).min(len - done);
            if step == UNIT {
                match source.units.get(&(a / UNIT)) {
                    Some(unit) => drop(self.units.insert(b / UNIT, Arc::clone(unit))),
                    None => drop(self.units.remove(&(b / UNIT))),
                }
            } else {
                self.write(b, &source.read(a, step));
            }
            done += step;
        }
        self.size = size;
    }

    /// Space taken, in bytes.
    pub(super) fn allocated(&self) -> u64 {
        self.units.len() as u64 * UNIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_agrees_with_a_plain_vector() {
        let mut content = Content::default();
        let mut plain: Vec<u8> = Vec::new();
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for step in 0..600u32 {
            let (at, len) = (random(600_000), 1 + random(200_000));
            match random(6) {
                0 | 1 => {
                    content.write(at, &vec![step as u8; len as usize]);
                    plain.resize(plain.len().max((at + len) as usize), 0);
                    plain[at as usize..(at + len) as usize].fill(step as u8);
                }
                2 => {
                    content.resize(at);
                    plain.resize(at as usize, 0);
                }
                3 => {
                    let end = (at + len).min(content.size);
                    content.zero(at, end, random(2) == 0);
                    if at < end {
                        plain[at as usize..end as usize].fill(0);
                    }
                }
                4 => content.allocate(at, at + len),
                _ => {
                    let len = len.min(content.size.saturating_sub(at));
                    let to = if random(2) == 0 { at % UNIT + 2 * UNIT } else { at + len };
                    if at + len <= to || to + len <= at {
                        let source = content.clone();
                        content.clone_from_range(&source, at, to, len);
                        plain.resize(plain.len().max((to + len) as usize), 0);
                        if len > 0 {
                            plain.copy_within(at as usize..(at + len) as usize, to as usize);
                        }
                    }
                }
            }
            assert_eq!(content.size, plain.len() as u64, "step {step}");
            assert_eq!(content.read(0, u64::MAX / 2), plain, "step {step}");
            let mut outside = plain.clone();
            for range in content.ranges(0, u64::MAX, usize::MAX) {
                outside[range.offset as usize..(range.offset + range.len) as usize].fill(0);
            }
            let lost = outside.iter().position(|byte| *byte != 0);
            assert_eq!(lost, None, "step {step}");
        }
    }
}
