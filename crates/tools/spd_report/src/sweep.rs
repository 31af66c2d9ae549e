//! A campaign's results: means and spread of repeated runs, outliers, and the knee of each series.

use std::fmt::Write as _;

use serde_json::{Value, json};
use spd_profile::display_size;

use crate::outcome::SpanOutcome;

/// The figures of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFigures {
    /// Operations per second.
    pub iops: f64,
    /// MiB per second.
    pub mib: f64,
    /// Mean latency in milliseconds.
    pub mean_ms: f64,
    /// Percentiles 50, 90, 99 and 99.9 in milliseconds.
    pub percentiles_ms: [f64; 4],
    /// Use of all processors in percent.
    pub cpu: f64,
    /// Failed operations.
    pub errors: u64,
    /// Operations per second in each interval of the measured time.
    pub series: Vec<f64>,
    /// Milliseconds of such an interval.
    pub interval_ms: u32,
}

impl RunFigures {
    /// The figures of a span that counted intervals of `interval_ms`.
    #[must_use]
    pub fn of(measured: &SpanOutcome, interval_ms: u32) -> Self {
        let (mut all, write) = measured.sum();
        all.merge(&write);
        let seconds = measured.seconds.max(1e-9);
        let cpu = measured.average_cpu();
        let interval = f64::from(interval_ms.max(1)) / 1000.0;
        Self {
            iops: all.count as f64 / seconds,
            mib: all.bytes as f64 / 1_048_576.0 / seconds,
            mean_ms: all.latency.mean() / 1e6,
            percentiles_ms: [0.5, 0.9, 0.99, 0.999].map(|part| all.latency.percentile(part) as f64 / 1e6),
            cpu: cpu.user + cpu.kernel,
            errors: all.errors,
            series: all.intervals.iter().map(|each| each.count as f64 / interval).collect(),
            interval_ms,
        }
    }
}

/// One point of a series with its runs.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Threads per target.
    pub threads: u32,
    /// Requests outstanding per thread.
    pub depth: u32,
    /// Bytes of a block.
    pub block: u32,
    /// Percent of writes.
    pub write_percent: u32,
    /// Its runs, in order.
    pub runs: Vec<RunFigures>,
}

impl Measured {
    /// Mean of a figure over runs that are no outliers.
    #[must_use]
    pub fn mean(&self, figure: impl Fn(&RunFigures) -> f64) -> f64 {
        let outliers = self.outliers();
        let kept = || self.runs.iter().zip(&outliers).filter(|(_, out)| !**out).map(|(run, _)| run);
        kept().map(figure).sum::<f64>() / kept().count().max(1) as f64
    }

    /// Standard deviation of the IOPS of all runs, in percent of their mean.
    #[must_use]
    pub fn spread_percent(&self) -> f64 {
        let number = self.runs.len().max(1) as f64;
        let mean = self.runs.iter().map(|run| run.iops).sum::<f64>() / number;
        let squares: f64 = self.runs.iter().map(|run| (run.iops - mean).powi(2)).sum();
        if mean > 0.0 { (squares / number).sqrt() / mean * 100.0 } else { 0.0 }
    }

    /// Which runs are outliers: more than three robust standard deviations (1.4826 times the median distance from the
    /// median) from the median IOPS, and more than one percent. Fewer than four runs have none.
    #[must_use]
    pub fn outliers(&self) -> Vec<bool> {
        if self.runs.len() < 4 {
            return vec![false; self.runs.len()];
        }
        let center = median(self.runs.iter().map(|run| run.iops).collect());
        let robust = 1.4826 * median(self.runs.iter().map(|run| (run.iops - center).abs()).collect());
        let limit = (3.0 * robust).max(center * 0.01);
        self.runs.iter().map(|run| (run.iops - center).abs() > limit).collect()
    }

    /// The run to quote: the one whose IOPS are nearest to the median.
    #[must_use]
    pub fn quoted(&self) -> usize {
        let center = median(self.runs.iter().map(|run| run.iops).collect());
        let distance =
            |index: &usize| self.runs.get(*index).map_or(f64::MAX, |run| (run.iops - center).abs());
        (0..self.runs.len()).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(0)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    let half = values.len() / 2;
    if values.len().is_multiple_of(2) { (at(half.saturating_sub(1)) + at(half)) / 2.0 } else { at(half) }
}

/// The rule of [`knee`], in words for reports.
pub const KNEE_RULE: &str = "the depth at which IOPS divided by mean latency is greatest (Kleinrock's power): before it more \
    requests add throughput, after it they mostly add waiting";

/// The index of the knee of a series with rising depth: where IOPS per mean latency is greatest.
#[must_use]
pub fn knee(points: &[(f64, f64)]) -> Option<usize> {
    let power = |index: &usize| {
        points.get(*index).map_or(0.0, |(iops, latency)| if *latency > 0.0 { iops / latency } else { 0.0 })
    };
    // Of equals the least depth: `max_by` takes the last.
    (0..points.len()).rev().filter(|index| power(index) > 0.0).max_by(|a, b| power(a).total_cmp(&power(b)))
}

/// Points that differ in depth only, in the order they were run.
#[must_use]
pub fn series(points: &[Measured]) -> Vec<&[Measured]> {
    points
        .chunk_by(|a, b| {
            (a.threads, a.block, a.write_percent) == (b.threads, b.block, b.write_percent)
                && a.depth < b.depth
        })
        .collect()
}

/// The knee of one series.
#[must_use]
pub fn knee_of(series: &[Measured]) -> Option<usize> {
    let points: Vec<(f64, f64)> =
        series.iter().map(|point| (point.mean(|run| run.iops), point.mean(|run| run.mean_ms))).collect();
    knee(&points)
}

/// What a series is called.
#[must_use]
pub fn title(point: &Measured) -> String {
    let threads = if point.threads == 1 { "1 thread".into() } else { format!("{} threads", point.threads) };
    let mix = match point.write_percent {
        0 => "reads".into(),
        100 => "writes".into(),
        writes => format!("{} % reads, {writes} % writes", 100 - writes),
    };
    format!("{} {mix}, {threads}", display_size(u64::from(point.block)))
}

/// The results as a table for people.
#[must_use]
pub fn text(points: &[Measured]) -> String {
    let mut out = String::new();
    for series in series(points) {
        let Some(first) = series.first() else { continue };
        let knee = knee_of(series);
        let _ = writeln!(out, "{}", title(first));
        out.push_str(
            "  depth |       IOPS |      MiB/s |  mean (ms) |   50th |    99th | 3-nines |   CPU | spread |\n",
        );
        for (index, point) in series.iter().enumerate() {
            let percentile = |at: usize| point.mean(|run| run.percentiles_ms.get(at).copied().unwrap_or(0.0));
            let outliers = point.outliers().iter().filter(|out| **out).count();
            let mut notes = Vec::new();
            if Some(index) == knee {
                notes.push("<- knee".to_owned());
            }
            if outliers > 0 {
                notes.push(format!("{outliers} outlier(s) left out"));
            }
            let errors: u64 = point.runs.iter().map(|run| run.errors).sum();
            if errors > 0 {
                notes.push(format!("{errors} errors"));
            }
            let _ = writeln!(
                out,
                "{:>7} | {:>10.2} | {:>10.2} | {:>10.3} | {:>6.3} | {:>7.3} | {:>7.3} | {:>4.1}% | {:>5.1}% | {}",
                point.depth,
                point.mean(|run| run.iops),
                point.mean(|run| run.mib),
                point.mean(|run| run.mean_ms),
                percentile(0),
                percentile(2),
                percentile(3),
                point.mean(|run| run.cpu),
                point.spread_percent(),
                notes.join(", ")
            );
        }
        if let Some(point) = knee.and_then(|knee| series.get(knee)) {
            let _ = writeln!(
                out,
                "  quote: depth {}, run {} of {}",
                point.depth,
                point.quoted() + 1,
                point.runs.len()
            );
        }
        out.push('\n');
    }
    let _ = writeln!(out, "knee: {KNEE_RULE}.");
    out
}

/// The results as comma-separated values, one line per run.
#[must_use]
pub fn csv(points: &[Measured]) -> String {
    let mut out = String::from(
        "block_bytes,write_percent,threads,depth,run,iops,mib_per_s,mean_ms,p50_ms,p90_ms,p99_ms,p999_ms,cpu_percent,errors,outlier,knee\n",
    );
    for series in series(points) {
        let knee = knee_of(series);
        for (index, point) in series.iter().enumerate() {
            for (number, (run, outlier)) in point.runs.iter().zip(point.outliers()).enumerate() {
                let percentiles: Vec<String> =
                    run.percentiles_ms.iter().map(|ms| format!("{ms:.6}")).collect();
                let _ = writeln!(
                    out,
                    "{},{},{},{},{},{:.3},{:.3},{:.6},{},{:.3},{},{outlier},{}",
                    point.block,
                    point.write_percent,
                    point.threads,
                    point.depth,
                    number + 1,
                    run.iops,
                    run.mib,
                    run.mean_ms,
                    percentiles.join(","),
                    run.cpu,
                    run.errors,
                    Some(index) == knee
                );
            }
        }
    }
    out
}

/// The results as JSON.
#[must_use]
pub fn json(command_line: &str, points: &[Measured]) -> Value {
    let series: Vec<Value> = series(points)
        .into_iter()
        .map(|series| {
            let points: Vec<Value> = series
                .iter()
                .map(|point| {
                    let runs: Vec<Value> = point
                        .runs
                        .iter()
                        .zip(point.outliers())
                        .map(|(run, outlier)| {
                            json!({
                                "iops": run.iops, "mib_per_s": run.mib, "mean_ms": run.mean_ms,
                                "p50_ms": run.percentiles_ms[0], "p90_ms": run.percentiles_ms[1],
                                "p99_ms": run.percentiles_ms[2], "p999_ms": run.percentiles_ms[3],
                                "cpu_percent": run.cpu, "errors": run.errors, "outlier": outlier,
                            })
                        })
                        .collect();
                    json!({
                        "depth": point.depth, "iops": point.mean(|run| run.iops),
                        "mean_ms": point.mean(|run| run.mean_ms), "spread_percent": point.spread_percent(),
                        "quoted_run": point.quoted() + 1, "runs": runs,
                    })
                })
                .collect();
            let first = series.first().cloned().unwrap_or_default();
            let knee = knee_of(series).and_then(|knee| series.get(knee)).map(|point| point.depth);
            json!({
                "block_bytes": first.block, "write_percent": first.write_percent, "threads": first.threads,
                "knee_depth": knee, "points": points,
            })
        })
        .collect();
    json!({ "command_line": command_line, "knee_rule": KNEE_RULE, "series": series })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The series of the how-to of 2014 with the depth that its author chose after looking at it.
    #[test]
    fn the_knee_is_where_an_expert_saw_it() {
        let large = [
            (61.01, 16.355),
            (140.99, 14.143),
            (189.00, 15.855),
            (248.20, 16.095),
            (286.45, 17.431),
            (316.05, 19.052),
            (332.51, 21.059),
            (336.16, 23.875),
            (339.95, 26.482),
            (340.93, 29.373),
            (338.58, 32.567),
            (344.98, 34.675),
            (332.09, 39.190),
            (341.05, 41.127),
            (339.73, 44.037),
            (335.43, 47.594),
        ];
        assert_eq!(knee(&large), Some(5), "6 outstanding, 512K sequential");
        let small = [
            (191.06, 5.222),
            (361.10, 5.530),
            (627.30, 4.737),
            (773.70, 5.164),
            (1030.65, 4.840),
            (1191.29, 5.030),
            (1357.42, 5.152),
            (1674.22, 4.778),
            (1895.25, 4.745),
            (2097.54, 4.768),
            (2014.49, 5.467),
            (1981.64, 6.055),
            (2000.11, 6.517),
            (1968.79, 7.113),
            (1970.69, 7.646),
            (1983.77, 8.069),
            (1976.84, 8.599),
            (1982.57, 9.049),
        ];
        assert_eq!(knee(&small), Some(9), "10 outstanding, 8K random");
        assert_eq!(knee(&[]), None);
        assert_eq!(knee(&[(0.0, 0.0)]), None);
    }

    fn point(depth: u32, iops: &[f64]) -> Measured {
        let run = |iops: &f64| RunFigures { iops: *iops, mean_ms: 1.0, ..RunFigures::default() };
        Measured {
            threads: 1,
            depth,
            block: 4096,
            runs: iops.iter().map(run).collect(),
            ..Measured::default()
        }
    }

    #[test]
    fn outliers_are_left_out_of_the_mean() {
        let point = point(1, &[100.0, 101.0, 99.0, 100.0, 20.0]);
        assert_eq!(point.outliers(), [false, false, false, false, true]);
        assert_eq!(point.mean(|run| run.iops), 100.0);
        assert!(point.spread_percent() > 30.0);
        assert_eq!(point.quoted(), 0);
        assert_eq!(super::tests::point(1, &[100.0, 20.0]).outliers(), [false, false]);
    }

    #[test]
    fn tables_have_a_line_for_each_point_or_run() {
        let points = [point(1, &[10.0, 11.0]), point(2, &[30.0, 31.0]), point(1, &[5.0, 5.0])];
        assert_eq!(series(&points).len(), 2);
        assert_eq!(csv(&points).lines().count(), 7);
        let text = text(&points);
        assert_eq!(text.matches("<- knee").count(), 2);
        assert!(text.contains("quote: depth 2, run 1 of 2"));
        let value = json("x", &points);
        assert_eq!(value["series"][0]["knee_depth"], 2);
    }
}
