//! Which offset comes next, and whether it is read or written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spd_profile::{Distribution, DistributionUnit, MixPart, Target};
use spd_report::EffectiveRange;

use crate::random::Random;

/// The next operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Byte offset in the target.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) len: u32,
    /// Whether it is written.
    pub(crate) is_write: bool,
}

/// Offsets of one thread on one target. All are relative to the target's base.
pub(crate) struct Offsets {
    base: u64,
    /// Bytes of one operation; with a mix, of the largest.
    block: u64,
    /// Sizes with their percents; empty: all are `block`.
    mix: Vec<MixPart>,
    /// Distance of possible offsets.
    step: u64,
    /// A sequential stream of a mix goes on where its last operation ended.
    gapless: bool,
    /// Bytes from the base on that may be touched; at least one block.
    size: u64,
    random_percent: u32,
    write_percent: u32,
    /// Where the thread's sequential stream begins.
    first: u64,
    next: u64,
    shared: Option<Arc<AtomicU64>>,
    /// `-p`: one stream for each slot.
    parallel: Vec<u64>,
    ranges: Vec<EffectiveRange>,
    /// Sum of the ranges' percents.
    io_sum: u64,
    last_was_write: bool,
}

impl Offsets {
    /// For the `thread`-th thread of `target`, whose size is `size`; `shared` is the common offset of all of them.
    pub(crate) fn new(
        target: &Target,
        size: u64,
        thread: u64,
        slots: usize,
        shared: &Arc<AtomicU64>,
    ) -> Self {
        let end = if target.max > 0 { target.max.min(size) } else { size };
        let block = u64::from(target.block);
        let size = end.saturating_sub(target.base).max(block);
        let ranges = target
            .distribution
            .as_ref()
            .map_or_else(Vec::new, |distribution| fit(distribution, target, size));
        let io_sum = ranges.iter().map(|range| u64::from(range.io_percent)).sum();
        let first = thread.wrapping_mul(target.thread_stride);
        Self {
            base: target.base,
            block,
            mix: target.mix.clone(),
            step: target.step(),
            gapless: !target.mix.is_empty() && target.alignment.is_none(),
            size,
            random_percent: target.random_percent,
            write_percent: target.write_percent,
            first,
            next: first,
            shared: target.interlocked.then(|| Arc::clone(shared)),
            parallel: if target.parallel { vec![first; slots] } else { Vec::new() },
            ranges,
            io_sum,
            last_was_write: false,
        }
    }

    /// The distribution, fitted to the target.
    pub(crate) fn ranges(&self) -> &[EffectiveRange] {
        &self.ranges
    }

    /// The next operation on the target; `slot` counts within the target's slots.
    #[inline]
    pub(crate) fn next(&mut self, slot: usize, random: &mut Random) -> Choice {
        let (len, write_percent) = self.size_of_next(random);
        let step = if self.gapless { len } else { self.step };
        let is_random =
            self.random_percent == 100 || self.random_percent > 0 && random.percent(self.random_percent);
        let relative = if is_random {
            let offset = self.pick(len, random);
            // A sequential run of a mix goes on from where the last random one was.
            self.next = offset + step;
            offset
        } else if let Some(shared) = &self.shared {
            let positions = (self.size - self.block).checked_div(self.step).unwrap_or(0) + 1;
            let at = shared.fetch_add(1, Ordering::Relaxed);
            (at % positions) * self.step
        } else {
            let (size, block, first) = (self.size, len, self.first);
            let next = self.parallel.get_mut(slot).unwrap_or(&mut self.next);
            if next.checked_add(block).is_none_or(|end| end > size) {
                // Over the end: from the beginning, with the thread's displacement within a step.
                *next = first.checked_rem(self.step).unwrap_or(0);
                if *next + block > size {
                    *next = 0;
                }
            }
            let offset = *next;
            *next = offset.saturating_add(step);
            offset
        };
        let is_write = match write_percent {
            0 => false,
            100 => true,
            // Sequential runs of a mix are of one kind.
            _ if self.random_percent > 0 && !is_random => self.last_was_write,
            percent => random.percent(percent),
        };
        self.last_was_write = is_write;
        Choice { offset: self.base + relative, len: len as u32, is_write }
    }

    /// Bytes of the next operation, and the percent of writes among such.
    #[inline]
    fn size_of_next(&self, random: &mut Random) -> (u64, u32) {
        if self.mix.is_empty() {
            return (self.block, self.write_percent);
        }
        let mut at = random.below(100);
        let chosen = self.mix.iter().find(|part| {
            let inside = at < u64::from(part.percent);
            at = at.saturating_sub(u64::from(part.percent));
            inside
        });
        chosen.map_or((self.block, self.write_percent), |part| (u64::from(part.block), part.write_percent))
    }

    fn pick(&self, len: u64, random: &mut Random) -> u64 {
        let (start, length) = match self.ranges.as_slice() {
            [] => (0, self.size),
            ranges => {
                let mut at = random.below(self.io_sum.max(1));
                let chosen = ranges.iter().find(|range| {
                    let inside = at < u64::from(range.io_percent);
                    at = at.saturating_sub(u64::from(range.io_percent));
                    inside
                });
                chosen.map_or((0, self.size), |range| (range.start, range.length))
            }
        };
        let positions = length.saturating_sub(len) / self.step.max(1) + 1;
        let offset = start + random.below(positions) * self.step;
        offset.min(self.size - len)
    }
}

/// Fits a distribution to `size` bytes: bounds are rounded down to offsets at which an operation may begin, and parts
/// behind the end are left out (what remains counts as all).
fn fit(distribution: &Distribution, target: &Target, size: u64) -> Vec<EffectiveRange> {
    let (block, step) = (u64::from(target.block), target.step().max(1));
    // The end of the last position at which an operation may begin.
    let aligned = (size - block) / step * step + step;
    let mut fitted: Vec<EffectiveRange> = Vec::new();
    let mut start = 0u64;
    for range in &distribution.ranges {
        let (low, high) = match distribution.unit {
            DistributionUnit::Percent => {
                let place = |percent: u64| (u128::from(aligned) * u128::from(percent) / 100) as u64;
                let low = place(start) / step * step;
                let end = place((start + range.span).min(100)) / step * step;
                (low, end)
            }
            DistributionUnit::Absolute => {
                let end = if range.span == 0 { size } else { start.saturating_add(range.span).min(size) };
                (start, end)
            }
        };
        start = start.saturating_add(range.span);
        if range.io_percent == 0 {
            continue;
        }
        let usable = match distribution.unit {
            DistributionUnit::Percent => low < high,
            DistributionUnit::Absolute => low.checked_add(block).is_some_and(|end| end <= high),
        };
        if usable {
            fitted.push(EffectiveRange { io_percent: range.io_percent, start: low, length: high - low });
        } else if distribution.unit == DistributionUnit::Percent {
            // Too small for one position of its own: its I/O goes to the position it lies in, which is its neighbour's.
            match fitted.last_mut() {
                Some(last) => last.io_percent += range.io_percent,
                None => fitted.push(EffectiveRange {
                    io_percent: range.io_percent,
                    start: low.min(aligned - step),
                    length: step,
                }),
            }
        }
    }
    fitted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spd_profile::Range;

    use super::*;

    fn offsets(target: &Target, size: u64) -> Offsets {
        Offsets::new(target, size, 0, 2, &Arc::default())
    }

    fn take(offsets: &mut Offsets, count: usize) -> Vec<u64> {
        let mut random = Random::new(1, 0);
        (0..count).map(|index| offsets.next(index % 2, &mut random).offset).collect()
    }

    #[test]
    fn sequential_streams_wrap() {
        let target = Target { block: 4, alignment: Some(8), base: 100, ..Target::new("a") };
        assert_eq!(take(&mut offsets(&target, 121), 5), [100, 108, 116, 100, 108]);
        let target = Target { block: 4, max: 12, ..Target::new("a") };
        assert_eq!(take(&mut offsets(&target, 1000), 4), [0, 4, 8, 0]);
        let target = Target { parallel: true, ..target };
        assert_eq!(take(&mut offsets(&target, 1000), 6), [0, 0, 4, 4, 8, 8]);
        let target = Target { block: 4, thread_stride: 6, alignment: Some(4), ..Target::new("a") };
        let mut second = Offsets::new(&target, 20, 1, 1, &Arc::default());
        assert_eq!(take(&mut second, 5), [6, 10, 14, 2, 6]);
    }

    #[test]
    fn interlocked_threads_share_one_stream() {
        let target = Target { block: 4, interlocked: true, ..Target::new("a") };
        let shared = Arc::default();
        let mut a = Offsets::new(&target, 16, 0, 1, &shared);
        let mut b = Offsets::new(&target, 16, 1, 1, &shared);
        let mut random = Random::new(0, 0);
        let order: Vec<u64> =
            (0..3).flat_map(|_| [a.next(0, &mut random).offset, b.next(0, &mut random).offset]).collect();
        assert_eq!(order, [0, 4, 8, 12, 0, 4]);
    }

    #[test]
    fn mixes_have_their_percents() {
        let target = Target { block: 1, random_percent: 100, write_percent: 30, ..Target::new("a") };
        let mut offsets = offsets(&target, 1 << 20);
        let mut random = Random::new(7, 0);
        let writes = (0..100_000).filter(|_| offsets.next(0, &mut random).is_write).count();
        assert!((29_000..31_000).contains(&writes), "{writes}");
    }

    #[test]
    fn mixes_of_sizes_have_their_percents_and_no_gaps() {
        let part = |block, percent, write_percent| MixPart { block, percent, write_percent };
        let mut target = Target { random_percent: 100, ..Target::new("a") };
        target.set_mix(vec![part(8, 70, 0), part(64, 30, 100)]);
        assert_eq!((target.block, target.step(), target.write_percent), (64, 8, 30));
        let mut random = Random::new(7, 0);
        let mut some = offsets(&target, 1 << 20);
        let chosen: Vec<Choice> = (0..100_000).map(|_| some.next(0, &mut random)).collect();
        let large = chosen.iter().filter(|choice| choice.len == 64).count();
        assert!((29_000..31_000).contains(&large), "{large}");
        assert!(chosen.iter().all(|choice| choice.is_write == (choice.len == 64)));
        assert!(
            chosen
                .iter()
                .all(|choice| choice.offset % 8 == 0 && choice.offset + u64::from(choice.len) <= 1 << 20)
        );
        // Sequentially each begins where the one before has ended, until the end.
        target.random_percent = 0;
        let mut some = offsets(&target, 1 << 20);
        let chosen: Vec<Choice> = (0..1000).map(|_| some.next(0, &mut random)).collect();
        assert!(chosen.windows(2).all(|pair| pair[1].offset == pair[0].offset + u64::from(pair[0].len)));
    }

    #[test]
    fn distributions_put_io_where_they_say() {
        let ranges = [(90, 10), (0, 10), (5, 20), (5, 60)];
        let ranges = ranges.map(|(io_percent, span)| Range { io_percent, span }).to_vec();
        let target = Target {
            block: 1,
            random_percent: 100,
            distribution: Some(Distribution { unit: DistributionUnit::Percent, ranges }),
            ..Target::new("a")
        };
        let found = take(&mut offsets(&target, 1000), 100_000);
        let inside = |low: u64, high: u64| found.iter().filter(|at| (low..high).contains(*at)).count();
        assert!((89_000..91_000).contains(&inside(0, 100)));
        assert_eq!(inside(100, 200), 0);
        assert!((4_500..5_500).contains(&inside(200, 400)));
        assert!((4_500..5_500).contains(&inside(400, 1000)));
    }

    proptest! {
        /// Whatever the pattern, every operation lies within the target, from its base to its end.
        #[test]
        fn nothing_is_touched_outside(
            block in 1u32..200, step in 0u64..300, base in 0u64..500, extra in 0u64..2000, max in 0u64..3000,
            random in 0u32..=100, parallel: bool, interlocked: bool, stride in 0u64..1000, thread in 0u64..5,
            ranges in proptest::option::of(proptest::collection::vec((0u32..=50, 1u64..40), 1..4)), percent: bool,
        ) {
            let size = base + u64::from(block) + extra;
            prop_assume!(max == 0 || max >= base + u64::from(block));
            let unit = if percent { DistributionUnit::Percent } else { DistributionUnit::Absolute };
            let distribution = ranges.map(|ranges| {
                let scale = if percent { 1 } else { u64::from(block) };
                let ranges = ranges.into_iter().map(|(io, span)| Range { io_percent: io, span: span * scale });
                Distribution { unit, ranges: ranges.collect() }
            });
            let target = Target {
                block, alignment: Some(if random > 0 { step.max(1) } else { step }), base, max, random_percent: random,
                parallel, interlocked, thread_stride: stride, distribution, ..Target::new("a")
            };
            let end = if max > 0 { max.min(size) } else { size };
            let mut offsets = Offsets::new(&target, size, thread, 2, &Arc::default());
            for at in take(&mut offsets, 200) {
                prop_assert!(at >= base && at + u64::from(block) <= end, "{at} in {base}..{end}");
            }
        }
    }
}
