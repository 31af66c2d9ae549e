//! What each volume did, second by second: `samples.json` of a bundle, and `samples.csv`, which spreadsheets make pivot tables of.

use std::collections::BTreeMap;
use std::time::Duration;

use control_api::{CounterKind, Counters};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use shard_runtime::{Clock as _, SystemClock};

use crate::context::Context;
use crate::perf::rates::{OperationRates, between};
use crate::units;

/// From one look to the next.
const EVERY: Duration = Duration::from_secs(1);

/// Operations of one kind in one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Operations {
    /// A second.
    pub(super) iops: f64,
    /// Mean milliseconds of one; 0 when there was none.
    pub(super) latency_ms: f64,
    /// Bytes a second.
    pub(super) bytes_per_second: f64,
}

impl From<OperationRates> for Operations {
    fn from(rates: OperationRates) -> Self {
        Self {
            iops: rates.per_second,
            latency_ms: rates.latency() * 1e3,
            bytes_per_second: rates.bytes_per_second,
        }
    }
}

/// What a volume did in one second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    /// Its number, from 1.
    pub(super) sample: u64,
    /// When it ended, in milliseconds since 1970 UTC.
    pub(super) time_unix_ms: u64,
    /// The node that served it.
    pub(super) node: String,
    /// The pool.
    pub(super) pool: String,
    /// The volume.
    pub(super) volume: String,
    /// What is served of it.
    pub(super) served_as: String,
    pub(super) read: Operations,
    pub(super) write: Operations,
}

/// What is known of a volume beside its name.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    pub(super) pool: String,
    pub(super) served_as: String,
}

/// Takes samples. What the node does not answer, or counts anew after a restart, is left out.
pub(super) async fn take(context: &Context, count: u64, places: &BTreeMap<String, Place>) -> Vec<Sample> {
    let clock = SystemClock::new();
    let bar = bar(count, context.json);
    let mut taken = Vec::new();
    let mut before: Option<Counters> = context.client.get("/counters").await.ok();
    let mut ticks = tokio::time::interval(EVERY);
    // A late look shall not be followed by an early one.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    for sample in 1..=count {
        ticks.tick().await;
        bar.set_position(sample);
        let now: Option<Counters> = context.client.get("/counters").await.ok();
        let time_unix_ms = clock.wall().0 / 1_000_000;
        let rates = before.as_ref().zip(now.as_ref()).and_then(|(before, now)| between(before, now));
        let node = now.as_ref().map(|now| now.node.clone()).unwrap_or_default();
        let volumes = rates.into_iter().flat_map(|(_, rates)| rates);
        for rates in volumes.filter(|rates| rates.kind == CounterKind::Volume) {
            let place = places.get(&rates.name).cloned().unwrap_or_default();
            taken.push(Sample {
                sample,
                time_unix_ms,
                node: node.clone(),
                pool: place.pool,
                volume: rates.name,
                served_as: place.served_as,
                read: rates.read.into(),
                write: rates.write.into(),
            });
        }
        before = now;
    }
    bar.finish_and_clear();
    taken
}

fn bar(count: u64, quiet: bool) -> ProgressBar {
    use std::io::IsTerminal as _;
    if quiet || count == 0 || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("samples of performance {wide_bar} {pos}/{len}, {eta} left");
    ProgressBar::new(count).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The samples as a table of facts: a line for each second and volume.
pub(super) fn csv(samples: &[Sample]) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let mut csv = String::from(
        "Sample,TimeUTC,Node,Pool,Volume,ServedAs,ReadIOPS,WriteIOPS,TotalIOPS,ReadLatencyMs,WriteLatencyMs,TotalLatencyMs,ReadBytesPerSec,WriteBytesPerSec\n",
    );
    for each in samples {
        let total = together(each.read, each.write);
        csv += &format!(
            "{},{},{},{},{},{},{:.1},{:.1},{:.1},{:.3},{:.3},{:.3},{:.0},{:.0}\n",
            each.sample,
            units::time(each.time_unix_ms / 1000),
            quoted(&each.node),
            quoted(&each.pool),
            quoted(&each.volume),
            quoted(&each.served_as),
            each.read.iops,
            each.write.iops,
            total.iops,
            each.read.latency_ms,
            each.write.latency_ms,
            total.latency_ms,
            each.read.bytes_per_second,
            each.write.bytes_per_second,
        );
    }
    csv
}

/// Reads and writes as one: the latency is the mean of all of them.
pub(super) fn together(one: Operations, other: Operations) -> Operations {
    let iops = one.iops + other.iops;
    let waited = one.iops * one.latency_ms + other.iops * other.latency_ms;
    Operations {
        iops,
        latency_ms: if iops > 0.0 { waited / iops } else { 0.0 },
        bytes_per_second: one.bytes_per_second + other.bytes_per_second,
    }
}

/// Several seconds as one: means of rates, and the latency of all operations in them.
pub(super) fn mean(seconds: impl Iterator<Item = Operations>) -> Operations {
    let (count, sum) = seconds
        .fold((0.0_f64, Operations::default()), |(count, sum), each| (count + 1.0, together(sum, each)));
    if count == 0.0 {
        return sum;
    }
    Operations { iops: sum.iops / count, bytes_per_second: sum.bytes_per_second / count, ..sum }
}

/// What a volume did over all samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct VolumePerformance {
    pub(super) pool: String,
    pub(super) volume: String,
    pub(super) served_as: String,
    pub(super) node: String,
    pub(super) read: Operations,
    pub(super) write: Operations,
    pub(super) total: Operations,
}

/// One line for each volume, the one with the highest latency first: it is where the node is busiest.
pub(super) fn by_volume(samples: &[Sample]) -> Vec<VolumePerformance> {
    let mut volumes: BTreeMap<(&str, &str), Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        volumes.entry((&sample.pool, &sample.volume)).or_default().push(sample);
    }
    let mut lines: Vec<VolumePerformance> = volumes
        .into_values()
        .filter_map(|samples| {
            let last = samples.last()?;
            let read = mean(samples.iter().map(|sample| sample.read));
            let write = mean(samples.iter().map(|sample| sample.write));
            Some(VolumePerformance {
                pool: last.pool.clone(),
                volume: last.volume.clone(),
                served_as: last.served_as.clone(),
                node: last.node.clone(),
                read,
                write,
                total: together(read, write),
            })
        })
        .collect();
    lines.sort_by(|one, other| {
        let busy = |line: &VolumePerformance| (line.total.latency_ms, line.total.iops);
        busy(other).partial_cmp(&busy(one)).unwrap_or(std::cmp::Ordering::Equal)
    });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(volume: &str, number: u64, reads: f64, read_ms: f64, writes: f64, write_ms: f64) -> Sample {
        let operations = |iops, latency_ms| Operations { iops, latency_ms, bytes_per_second: iops * 4096.0 };
        Sample {
            sample: number,
            pool: "p".into(),
            volume: volume.into(),
            read: operations(reads, read_ms),
            write: operations(writes, write_ms),
            ..Sample::default()
        }
    }

    #[test]
    fn latency_is_of_all_operations_and_the_busiest_is_first() {
        let samples = [
            sample("calm", 1, 100.0, 1.0, 0.0, 0.0),
            sample("busy", 1, 10.0, 30.0, 0.0, 0.0),
            sample("calm", 2, 300.0, 2.0, 0.0, 0.0),
            sample("busy", 2, 0.0, 0.0, 30.0, 50.0),
        ];
        let lines = by_volume(&samples);
        let names: Vec<_> = lines.iter().map(|line| line.volume.as_str()).collect();
        assert_eq!(names, ["busy", "calm"]);
        assert!((lines[0].total.latency_ms - 45.0).abs() < 1e-9, "{:?}", lines[0]);
        assert!((lines[0].total.iops - 20.0).abs() < 1e-9, "{:?}", lines[0]);
        assert!((lines[1].read.latency_ms - 1.75).abs() < 1e-9, "{:?}", lines[1]);
        assert!((lines[1].read.iops - 200.0).abs() < 1e-9, "{:?}", lines[1]);
    }

    #[test]
    fn the_table_of_facts_has_a_line_for_each_second_and_volume() {
        let mut one = sample("a \"b\"", 1, 2.0, 0.5, 0.0, 0.0);
        one.time_unix_ms = 951_827_696_000;
        let csv = csv(&[one]);
        let lines: Vec<_> = csv.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(
            lines[1].starts_with("1,2000-02-29 12:34:56,\"\",\"p\",\"a \"\"b\"\"\",\"\",2.0,0.0,2.0,0.500,"),
            "{csv}"
        );
        assert_eq!(lines[0].matches(',').count(), lines[1].matches(',').count());
    }
}
