//! The tables of a time span: processors, threads, percentiles, waits; and the totals of several spans.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use spd_profile::{Profile, TimeSpan, display_size};

use super::Layout;
use super::profile::bounds;
use crate::histogram::Histogram;
use crate::outcome::{
    CpuPlace, CpuTime, EffectiveRange, Operations, Outcome, SpanOutcome, System, TargetOutcome,
    iops_deviation,
};

const MIB: f64 = 1_048_576.0;
const MS: f64 = 1e6;

pub(super) fn write(
    out: &mut String,
    profile: &Profile,
    span: &TimeSpan,
    measured: &SpanOutcome,
    system: &System,
    layout: Layout,
) {
    let threads = if span.threads > 0 { span.threads as usize } else { measured.threads.len() };
    let _ = write!(out, "\nactual test time:\t{:.2}s\nthread count:\t\t{threads}\n", measured.seconds);
    if span.is_weighted() {
        let _ = writeln!(out, "request count:\t\t{}", span.requests);
    }
    if layout == Layout::V20 {
        let _ = writeln!(out, "proc count:\t\t{}", system.cpus.len());
    }
    processors(out, measured, system, layout);
    if layout == Layout::V22 {
        effective(out, measured);
    }
    for (title, part) in [
        ("Total IO", TargetOutcome::total as fn(&TargetOutcome) -> Operations),
        ("Read IO", |target| target.read.clone()),
        ("Write IO", |target| target.write.clone()),
    ] {
        let _ = writeln!(out, "\n{title}");
        section(out, span, measured, part, layout);
    }
    if span.latency {
        latencies(out, measured, layout);
    }
    if profile.verbose_stats {
        waits(out, measured);
    }
}

fn processors(out: &mut String, measured: &SpanOutcome, system: &System, layout: Layout) {
    let row = |id: &str, cpu: &CpuTime| match layout {
        Layout::V22 => format!(
            "{id}| {:6.2}%| {:6.2}%| {:6.2}%| {:6.2}%\n",
            cpu.user + cpu.kernel,
            cpu.user,
            cpu.kernel,
            cpu.idle
        ),
        Layout::V20 => format!(
            "{id}| {:6.2}%| {:6.2}%|  {:6.2}%| {:6.2}%\n",
            cpu.user + cpu.kernel,
            cpu.user,
            cpu.kernel,
            cpu.idle
        ),
    };
    // Columns beside the processor's number, where the machine has more than one of them.
    type Column = (&'static str, usize, fn(&CpuPlace) -> u32);
    let mut columns: Vec<Column> = Vec::new();
    if layout == Layout::V22 {
        if system.distinct(|cpu| cpu.socket) > 1 {
            columns.push(("Socket | ", 7, |cpu| cpu.socket));
        }
        if system.distinct(|cpu| cpu.node) > 1 {
            columns.push(("Node | ", 5, |cpu| cpu.node));
        }
        if system.distinct(|cpu| cpu.core) < system.cpus.len() {
            columns.push(("Core | ", 5, |cpu| cpu.core));
        }
    }
    out.push('\n');
    columns.iter().for_each(|(title, _, _)| out.push_str(title));
    let (titles, width) = match layout {
        Layout::V22 => ("CPU |  Usage |  User  | Kernel |  Idle\n", 40),
        Layout::V20 => ("CPU |  Usage |  User  |  Kernel |  Idle\n", 43),
    };
    let rule = width + columns.iter().map(|(title, _, _)| title.len()).sum::<usize>();
    out.push_str(titles);
    let _ = writeln!(out, "{}", "-".repeat(rule));
    for (place, cpu) in system.cpus.iter().zip(&measured.cpus) {
        for (_, width, value) in &columns {
            let _ = write!(out, "{:>width$}| ", value(place));
        }
        out.push_str(&row(&format!("{:4}", place.id), cpu));
    }
    let _ = writeln!(out, "{}", "-".repeat(rule));
    columns.iter().for_each(|(title, _, _)| out.extend(std::iter::repeat_n(' ', title.len())));
    out.push_str(&row("avg.", &measured.average_cpu()));
}

/// Distributions as they were fitted to the targets, each with the targets and threads that used it.
fn effective(out: &mut String, measured: &SpanOutcome) {
    type Threads<'a> = BTreeMap<&'a str, Vec<usize>>;
    let mut users: Vec<(&[EffectiveRange], Threads<'_>)> = Vec::new();
    for (thread, outcome) in measured.threads.iter().enumerate() {
        for target in outcome.targets.iter().filter(|target| !target.distribution.is_empty()) {
            let at = match users.iter().position(|(ranges, _)| *ranges == target.distribution) {
                Some(at) => at,
                None => {
                    users.push((&target.distribution, BTreeMap::new()));
                    users.len() - 1
                }
            };
            if let Some((_, targets)) = users.get_mut(at) {
                targets.entry(&target.path).or_default().push(thread);
            }
        }
    }
    if !users.is_empty() {
        out.push_str("\nEffective IO Distributions\n--------------------------\n");
    }
    for (ranges, targets) in users {
        for (path, threads) in targets {
            let _ = writeln!(out, "target: {path} [thread:{}]", runs(&threads));
        }
        let sum: u32 = ranges.iter().map(|range| range.io_percent).sum();
        for range in ranges {
            let bounds = bounds(range.start, range.length);
            let _ = if sum < 100 {
                let part = 100.0 * f64::from(range.io_percent) / f64::from(sum.max(1));
                writeln!(out, "    {part:.1}% of IO => {bounds}")
            } else {
                writeln!(out, "   {:3}% of IO => {bounds}", range.io_percent)
            };
        }
    }
}

/// ` 0 - 3 5`: numbers with runs drawn together.
fn runs(numbers: &[usize]) -> String {
    let mut text = String::new();
    for run in numbers.chunk_by(|a, b| a + 1 == *b) {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
        let _ = match run.len() {
            1 => write!(text, " {first}"),
            2 => write!(text, " {first} {last}"),
            _ => write!(text, " {first} - {last}"),
        };
    }
    text
}

fn section(
    out: &mut String,
    span: &TimeSpan,
    measured: &SpanOutcome,
    part: fn(&TargetOutcome) -> Operations,
    layout: Layout,
) {
    let latency = if span.latency { "|  AvgLat  " } else { "" };
    let iops = if span.iops_intervals { "| IopsStdDev " } else { "" };
    let deviation = if span.latency { "| LatStdDev " } else { "" };
    let unit = match layout {
        Layout::V22 => "    MiB/s   ",
        Layout::V20 => "     MB/s   ",
    };
    let _ = writeln!(
        out,
        "thread |       bytes     |     I/Os     |{unit}|  I/O per s {latency}{iops}{deviation}|  file"
    );
    let rule = "-".repeat(66 + latency.len() + iops.len() + deviation.len() + 12);
    let _ = writeln!(out, "{rule}");
    let mut total = Operations::default();
    for (thread, outcome) in measured.threads.iter().enumerate() {
        for target in &outcome.targets {
            let operations = part(target);
            let _ = write!(out, "{thread:6} | ");
            numbers(out, span, measured.seconds, &operations);
            let size = match layout {
                Layout::V22 => display_size(target.size),
                Layout::V20 => old_size(target.size),
            };
            let _ = writeln!(out, " | {} ({size})", target.path);
            total.merge(&operations);
        }
    }
    let _ = write!(out, "{rule}\ntotal:   ");
    numbers(out, span, measured.seconds, &total);
    out.push('\n');
}

/// The columns from bytes on.
fn numbers(out: &mut String, span: &TimeSpan, seconds: f64, operations: &Operations) {
    let _ = write!(
        out,
        "{:15} | {:12} | {:10.2} | {:10.2}",
        operations.bytes,
        operations.count,
        operations.bytes as f64 / MIB / seconds,
        operations.count as f64 / seconds
    );
    if span.latency {
        let _ = write!(out, " | {:8.3}", operations.latency.mean() / MS);
    }
    if span.iops_intervals {
        let _ = write!(out, " | {:10.2}", iops_deviation(&operations.intervals, span.interval_ms));
    }
    if span.latency {
        if operations.latency.is_empty() {
            out.push_str(" |       N/A");
        } else {
            let _ = write!(out, " |  {:8.3}", operations.latency.deviation() / MS);
        }
    }
}

/// A size as version 2.0 shows it: the largest unit of which there are more than ten.
fn old_size(bytes: u64) -> String {
    for (shift, name) in [(30, "GB"), (20, "MB"), (10, "KB")] {
        if bytes > 10 << shift {
            return format!("{}{name}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

/// Rows of the table of percentiles.
const ROWS: [(f64, &str); 13] = [
    (0.25, "25th"),
    (0.50, "50th"),
    (0.75, "75th"),
    (0.90, "90th"),
    (0.95, "95th"),
    (0.99, "99th"),
    (0.999, "3-nines"),
    (0.9999, "4-nines"),
    (0.999_99, "5-nines"),
    (0.999_999, "6-nines"),
    (0.999_999_9, "7-nines"),
    (0.999_999_99, "8-nines"),
    (0.999_999_999, "9-nines"),
];

fn latencies(out: &mut String, measured: &SpanOutcome, layout: Layout) {
    let mut targets: BTreeMap<&str, (Histogram, Histogram)> = BTreeMap::new();
    for target in measured.threads.iter().flat_map(|thread| &thread.targets) {
        let (read, write) = targets.entry(&target.path).or_default();
        read.merge(&target.read.latency);
        write.merge(&target.write.latency);
    }
    if layout == Layout::V22 && targets.len() > 1 {
        for (path, (read, write)) in &targets {
            let _ = write!(out, "\nLatency distribution: {path}\n");
            percentiles(out, read, write, layout);
        }
    }
    let (read, write) = measured.sum();
    out.push('\n');
    if layout == Layout::V22 {
        out.push_str("Total latency distribution:\n");
    }
    percentiles(out, &read.latency, &write.latency, layout);
}

fn percentiles(out: &mut String, read: &Histogram, write: &Histogram, layout: Layout) {
    let mut total = read.clone();
    total.merge(write);
    out.push_str("  %-ile |  Read (ms) | Write (ms) | Total (ms)\n");
    let _ = writeln!(out, "{}", "-".repeat(46));
    let mut row = |name: &str, of: &dyn Fn(&Histogram) -> u64| {
        let cell = |histogram: &Histogram| {
            if histogram.is_empty() { "N/A".to_owned() } else { format!("{:.3}", of(histogram) as f64 / MS) }
        };
        let _ = writeln!(
            out,
            "{name:>7} | {:>10} | {:>10} | {:10.3}",
            cell(read),
            cell(write),
            of(&total) as f64 / MS
        );
    };
    row("min", &Histogram::min);
    let rows = if layout == Layout::V20 { 12 } else { 13 };
    for (portion, name) in ROWS.iter().take(rows) {
        row(name, &|histogram| histogram.percentile(*portion));
    }
    row("max", &Histogram::max);
}

fn waits(out: &mut String, measured: &SpanOutcome) {
    out.push_str(
        "\nWait Statistics\n\
         thread | completion wait | throttle wait  -  sleep | lookaside | 0 - 7+ complete per lookaside\n",
    );
    let _ = writeln!(out, "{}", "-".repeat(95));
    for (thread, outcome) in measured.threads.iter().enumerate() {
        let waits = &outcome.waits;
        let found: Vec<String> = waits.found.iter().map(u64::to_string).collect();
        let _ = writeln!(
            out,
            "{thread:6} | {:15} | {:13}  - {:6} | {:9} | {}",
            waits.waits,
            waits.throttle_waits,
            waits.throttle_sleeps,
            waits.lookasides,
            found.join(" ")
        );
    }
}

/// The sums over several time spans.
pub(super) fn totals(out: &mut String, outcome: &Outcome, layout: Layout) {
    let unit = match layout {
        Layout::V22 => "    MiB/s   ",
        Layout::V20 => "     MB/s   ",
    };
    let _ = write!(
        out,
        "\n\nTotals:\n{}\n\ntype   |       bytes     |     I/Os     |{unit}|  I/O per s\n{}\n",
        "*".repeat(79),
        "-".repeat(79)
    );
    let (mut read, mut write, mut seconds) = (Operations::default(), Operations::default(), 0.0);
    for span in outcome.spans.iter().filter(|span| span.seconds >= 1e-7) {
        let (reads, writes) = span.sum();
        read.merge(&reads);
        write.merge(&writes);
        seconds += span.seconds;
    }
    let mut row = |name: &str, bytes: u64, count: u64| {
        let per_second = |value: f64| if seconds > 0.0 { value / seconds } else { 0.0 };
        let _ = writeln!(
            out,
            "{name} | {bytes:15} | {count:12} | {:10.2} | {:10.2}",
            per_second(bytes as f64 / MIB),
            per_second(count as f64)
        );
    };
    row("write ", write.bytes, write.count);
    row("read  ", read.bytes, read.count);
    let _ = writeln!(out, "{}", "-".repeat(79));
    let mut row = |name: &str, bytes: u64, count: u64| {
        let per_second = |value: f64| if seconds > 0.0 { value / seconds } else { 0.0 };
        let _ = writeln!(
            out,
            "{name} | {bytes:15} | {count:12} | {:10.2} | {:10.2}\n",
            per_second(bytes as f64 / MIB),
            per_second(count as f64)
        );
    };
    row("total ", read.bytes + write.bytes, read.count + write.count);
    let _ = writeln!(out, "total test time:\t{seconds:.2}s");
}
