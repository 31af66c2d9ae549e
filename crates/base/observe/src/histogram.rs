//! Latencies in log-linear buckets: fixed memory, 6 % resolution, from 1 ns to 18 minutes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Linear buckets within each power of two.
const STEPS: usize = 16;
/// Powers of two above the first linear range.
const POWERS: usize = 36;
const BUCKETS: usize = STEPS * (POWERS + 1);

/// A histogram that threads share; recording is one relaxed addition.
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Histogram {
    /// Counts one latency.
    pub fn record(&self, latency: Duration) {
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(nanos)].fetch_add(1, Ordering::Relaxed);
    }

    /// What has been counted so far.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot { buckets: self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).collect() }
    }
}

/// A histogram at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSnapshot {
    buckets: Vec<u64>,
}

impl HistogramSnapshot {
    /// How many latencies were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The latency that `fraction` (0 to 1) of the counted ones do not exceed, at bucket resolution; zero when
    /// nothing was counted.
    #[must_use]
    pub fn quantile(&self, fraction: f64) -> Duration {
        let count = self.count();
        if count == 0 {
            return Duration::ZERO;
        }
        let rank = ((count as f64 * fraction.clamp(0.0, 1.0)).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, in_bucket) in self.buckets.iter().enumerate() {
            seen += in_bucket;
            if seen >= rank {
                return Duration::from_nanos(upper_bound(index));
            }
        }
        Duration::from_nanos(upper_bound(BUCKETS - 1))
    }

    /// Adds what another histogram counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
    }
}

fn bucket_of(nanos: u64) -> usize {
    if nanos < STEPS as u64 {
        return nanos as usize;
    }
    let power = nanos.ilog2() as usize - STEPS.ilog2() as usize;
    let step = (nanos >> power) as usize - STEPS;
    (STEPS * (power + 1) + step).min(BUCKETS - 1)
}

fn upper_bound(bucket: usize) -> u64 {
    if bucket < STEPS {
        return bucket as u64;
    }
    let power = bucket / STEPS - 1;
    let step = (bucket % STEPS + STEPS) as u64;
    ((step + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_below_its_bound_and_within_seven_percent() {
        for nanos in (0..2000).chain([12_345, 999_999, 1_000_000_007]) {
            let bound = upper_bound(bucket_of(nanos));
            assert!(bound >= nanos && bound as f64 <= nanos as f64 * 1.07 + 1.0, "{nanos} {bound}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles() {
        let histogram = Histogram::default();
        for i in 1..=100 {
            histogram.record(Duration::from_micros(i));
        }
        let mut snapshot = histogram.snapshot();
        let p50 = snapshot.quantile(0.5).as_micros();
        assert!((50..=54).contains(&p50), "{p50}");
        snapshot.merge(&histogram.snapshot());
        assert_eq!(snapshot.count(), 200);
    }
}
