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

/// What a [`Histogram`] consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramParts {
    /// Buckets that are not empty: number and count.
    pub counts: Vec<(u32, u64)>,
    /// Sum of the latencies in nanoseconds.
    pub sum: u128,
    /// Sum of their squares.
    pub sum_squares: u128,
    /// The least; 0 when there is none.
    pub min: u64,
    /// The greatest; 0 when there is none.
    pub max: u64,
}

/// The most buckets that [`HistogramParts`] can name.
pub const HISTOGRAM_BUCKETS: usize = BUCKETS;

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
            *mine = mine.saturating_add(*theirs);
        }
        // Another machine's numbers are merged too: they may be wrong, and must not stop the report.
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.sum_squares = self.sum_squares.saturating_add(other.sum_squares);
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

    /// All that is counted, exactly, to be sent elsewhere: the buckets that are not empty as (number, count), in order.
    #[must_use]
    pub fn parts(&self) -> HistogramParts {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        HistogramParts {
            counts: filled.map(|(index, count)| (index as u32, *count)).collect(),
            sum: self.sum,
            sum_squares: self.sum_squares,
            min: self.min(),
            max: self.max,
        }
    }

    /// The histogram that these are the parts of; `None` when no histogram has such parts.
    #[must_use]
    pub fn from_parts(parts: &HistogramParts) -> Option<Self> {
        let mut histogram = Self::new();
        for (index, count) in &parts.counts {
            *histogram.counts.get_mut(*index as usize)? = *count;
            histogram.count = histogram.count.checked_add(*count)?;
        }
        if parts.min > parts.max {
            return None;
        }
        histogram.sum = parts.sum;
        histogram.sum_squares = parts.sum_squares;
        histogram.min = if histogram.count == 0 { u64::MAX } else { parts.min };
        histogram.max = parts.max;
        Some(histogram)
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
