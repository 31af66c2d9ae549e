//! Latencies in buckets of constant relative width (an HDR histogram).

/// Buckets for each power of two: a bucket is 1/512 of its value wide.
const SUB_BITS: u32 = 9;
/// Values of 2^40 ns (18 minutes) and more share the last bucket; their greatest is kept exactly.
const MAX_BITS: u32 = 40;
const BUCKETS: usize = ((MAX_BITS - SUB_BITS) as usize + 1) << SUB_BITS;

/// Counts of latencies in nanoseconds. Recording neither allocates nor branches on the past.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    sum: u128,
    sum_squares: u128,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// An empty histogram of 128 KiB.
    #[must_use]
    pub fn new() -> Self {
        Self {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            count: 0,
            sum: 0,
            sum_squares: 0,
            min: u64::MAX,
            max: 0,
        }
    }

    /// Counts one latency of `nanos`.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        if let Some(count) = self.counts.get_mut(index(nanos)) {
            *count += 1;
        }
        self.count += 1;
        self.sum += u128::from(nanos);
        self.sum_squares += u128::from(nanos) * u128::from(nanos);
        self.min = self.min.min(nanos);
        self.max = self.max.max(nanos);
    }

    /// Adds all that `other` has counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.sum_squares += other.sum_squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether none was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The least in nanoseconds; 0 when there is none.
    #[must_use]
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The greatest in nanoseconds; 0 when there is none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean in nanoseconds; 0 when there is none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The standard deviation in nanoseconds; 0 when there is none.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let mean = self.mean();
        (self.sum_squares as f64 / self.count as f64 - mean * mean).max(0.0).sqrt()
    }

    /// The lowest latency in nanoseconds that at least the part `portion` (0 to 1) did not exceed; 0 when there is none.
    #[must_use]
    pub fn percentile(&self, portion: f64) -> u64 {
        let target = (portion.clamp(0.0, 1.0) * self.count as f64).max(1.0);
        let mut seen = 0u64;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen as f64 >= target {
                return if seen == self.count && index == BUCKETS - 1 {
                    self.max
                } else {
                    self.middle(index)
                };
            }
        }
        self.max
    }

    /// Buckets that are not empty, as (middle in nanoseconds, count), in order.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(index, count)| (self.middle(index), *count))
    }

    /// The middle of a bucket, within what was really counted.
    fn middle(&self, index: usize) -> u64 {
        let shift = (index >> SUB_BITS).saturating_sub(1) as u32;
        let low = ((index - ((shift as usize) << SUB_BITS)) as u64) << shift;
        (low + (1u64 << shift) / 2).clamp(self.min(), self.max)
    }
}

/// The bucket of a value: the value itself below 1024, then 512 buckets for each power of two.
#[inline]
fn index(nanos: u64) -> usize {
    let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(SUB_BITS + 1);
    let index = ((shift as usize) << SUB_BITS) + (nanos >> shift) as usize;
    index.min(BUCKETS - 1)
}
