//! Layouts against reports of the original tools, histograms against exact sums, and scripts that read reports.

mod golden;
mod newer;
mod sqlio;

use proptest::prelude::*;

use crate::Histogram;

/// Latencies with which these percentiles (portion, milliseconds) come out, dealt to so many histograms.
fn deal(count: u64, points: &[(f64, f64)], hands: usize) -> Vec<Histogram> {
    let mut histograms = vec![Histogram::new(); hands];
    let mut done = 0;
    for (portion, ms) in points {
        let upto = ((portion * count as f64).ceil() as u64).min(count);
        for number in done..upto {
            histograms[number as usize % hands].record((ms * 1e6) as u64);
        }
        done = done.max(upto);
    }
    histograms
}

proptest! {
    /// Percentiles are within 1/512 of the exact ones; sums, extremes and deviation are exact.
    #[test]
    fn percentiles_of_any_values(values in proptest::collection::vec(0u64..1 << 45, 1..200), portion in 0.0f64..=1.0) {
        let mut histogram = Histogram::new();
        let mut halves = [Histogram::new(), Histogram::new()];
        for (index, value) in values.iter().enumerate() {
            histogram.record(*value);
            halves[index % 2].record(*value);
        }
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let rank = ((portion * values.len() as f64).max(1.0).ceil() as usize).min(values.len());
        let exact = sorted[rank - 1];
        let found = histogram.percentile(portion);
        // The last bucket, of the 2^31 ns below 2^40, has all that is longer as well.
        if exact < (1 << 40) - (1 << 31) {
            prop_assert!(found.abs_diff(exact) <= exact / 512, "{found} for {exact}");
        }
        prop_assert_eq!((histogram.min(), histogram.max()), (sorted[0], sorted[sorted.len() - 1]));
        prop_assert_eq!(histogram.count(), values.len() as u64);
        let mean = values.iter().map(|value| *value as f64).sum::<f64>() / values.len() as f64;
        prop_assert!((histogram.mean() - mean).abs() <= mean * 1e-9);
        let [mut a, b] = halves;
        a.merge(&b);
        // What was sent elsewhere and put together again is the same, too.
        let sent = Histogram::from_parts(&a.parts());
        prop_assert_eq!(sent.map(|sent| sent.parts()), Some(histogram.parts()));
        prop_assert_eq!(a.percentile(portion), found);
        prop_assert_eq!(a.buckets().map(|(_, count)| count).sum::<u64>(), values.len() as u64);
    }
}

#[test]
fn deviation_of_a_known_set() {
    let mut histogram = Histogram::new();
    for value in [2, 4, 4, 4, 5, 5, 7, 9] {
        histogram.record(value);
    }
    assert_eq!((histogram.mean(), histogram.deviation()), (5.0, 2.0));
    assert_eq!(Histogram::new().deviation(), 0.0);
    assert_eq!(Histogram::new().percentile(0.5), 0);
}
