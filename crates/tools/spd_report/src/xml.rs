//! DiskSpd's `<Results>`: element names, order and digits of version 2.2.

use std::fmt::Write as _;

use spd_profile::xml::{Lines, escape};
use spd_profile::{Profile, TimeSpan};

use crate::histogram::Histogram;
use crate::outcome::{
    CpuPlace, CpuTime, EffectiveRange, Interval, Operations, Outcome, SpanOutcome, System, TargetOutcome,
    WaitStatistics, iops_deviation,
};
use crate::text::INTERRUPTED;

const MS: f64 = 1e6;

fn milliseconds(lines: &mut Lines, name: &str, nanos: f64) {
    lines.value(name, format_args!("{:.3}", nanos / MS));
}

/// The result of a run. Its first line is exactly `<Results>`, by which scripts know it; it ends without a line break.
#[must_use]
pub fn report(profile: &Profile, outcome: &Outcome) -> String {
    let mut lines = Lines::default();
    lines.inside("Results", |lines| {
        system(lines, &outcome.system);
        lines.out.push_str(&spd_profile::xml::write(profile, lines.depth()));
        for (span, measured) in profile.spans.iter().zip(&outcome.spans) {
            lines.inside("TimeSpan", |lines| time_span(lines, profile, span, measured, &outcome.system));
        }
    });
    lines.out.truncate(lines.out.trim_end().len());
    lines.out
}

fn system(lines: &mut Lines, system: &System) {
    lines.inside("System", |lines| {
        lines.value("ComputerName", escape(&system.computer));
        lines.inside("Tool", |lines| {
            lines.value("Version", escape(&system.version));
            lines.value("VersionDate", escape(&system.version_date));
        });
        lines.value("RunTime", system.start_text());
        lines.line(&format!("<PowerScheme Name=\"{}\" Guid=\"\"/>", escape(&system.power_scheme)));
        lines.inside("ProcessorTopology Heterogeneous=\"false\"", |lines| topology(lines, &system.cpus));
    });
}

fn topology(lines: &mut Lines, cpus: &[CpuPlace]) {
    let all = mask(cpus, |_| true);
    let count = cpus.len();
    lines.line(&format!(
        "<Group Group=\"0\" MaximumProcessors=\"{count}\" ActiveProcessors=\"{count}\" ActiveProcessorMask=\"0x{all}\"/>"
    ));
    type Property = fn(&CpuPlace) -> u32;
    for (name, property) in [("Node", (|cpu| cpu.node) as Property), ("Socket", |cpu| cpu.socket)] {
        for value in values(cpus, property) {
            lines.inside(&format!("{name} {name}=\"{value}\""), |lines| {
                let mask = mask(cpus, |cpu| property(cpu) == value);
                lines.line(&format!("<Group Group=\"0\" Mask=\"0x{mask}\"/>"));
            });
        }
    }
    for core in values(cpus, |cpu| cpu.core) {
        let mask = mask(cpus, |cpu| cpu.core == core);
        lines.line(&format!("<Core Group=\"0\" Core=\"{core}\" Mask=\"0x{mask}\" EfficiencyClass=\"0\"/>"));
    }
}

fn values(cpus: &[CpuPlace], property: fn(&CpuPlace) -> u32) -> Vec<u32> {
    let mut values: Vec<u32> = cpus.iter().map(property).collect();
    values.sort_unstable();
    values.dedup();
    values
}

/// Hexadecimal digits of a mask of processors, however many there are.
fn mask(cpus: &[CpuPlace], chosen: impl Fn(&CpuPlace) -> bool) -> String {
    let top = cpus.iter().map(|cpu| cpu.id).max().unwrap_or(0).min(4096);
    let mut nibbles = vec![0u8; top as usize / 4 + 1];
    for cpu in cpus.iter().filter(|cpu| chosen(cpu)) {
        if let Some(nibble) = nibbles.get_mut(cpu.id as usize / 4) {
            *nibble |= 1 << (cpu.id % 4);
        }
    }
    let digits: String = nibbles.iter().rev().map(|nibble| format!("{nibble:x}")).collect();
    let short = digits.trim_start_matches('0');
    if short.is_empty() { "0".into() } else { short.into() }
}

fn time_span(lines: &mut Lines, profile: &Profile, span: &TimeSpan, measured: &SpanOutcome, system: &System) {
    if measured.seconds < 1e-7 {
        lines.value("Error", INTERRUPTED);
        return;
    }
    let threads = if span.threads > 0 { span.threads as usize } else { measured.threads.len() };
    lines.value("TestTimeSeconds", format_args!("{:.2}", measured.seconds));
    lines.value("ThreadCount", threads);
    lines.value("RequestCount", span.requests);
    lines.value("ProcCount", system.cpus.len());
    processors(lines, measured, system);
    let (read, write) = measured.sum();
    if span.latency {
        latencies(lines, &read.latency, &write.latency);
    }
    if span.iops_intervals {
        intervals(lines, &read, &write, span.interval_ms);
    }
    for (id, thread) in measured.threads.iter().enumerate() {
        lines.inside("Thread", |lines| {
            lines.value("Id", id);
            for each in &thread.targets {
                lines.inside("Target", |lines| target(lines, span, each));
            }
            if profile.verbose_stats {
                waits(lines, &thread.waits);
            }
        });
    }
    ours(lines, measured, &read, &write);
}

/// What DiskSpd's readers do not know and skip.
fn ours(lines: &mut Lines, measured: &SpanOutcome, read: &Operations, write: &Operations) {
    if let Some(why) = &measured.ended_early {
        lines.value("EndedEarly", escape(why));
    }
    if read.errors + write.errors > 0 {
        lines.inside("Errors", |lines| {
            lines.value("ReadErrors", read.errors);
            lines.value("WriteErrors", write.errors);
            for (name, operations) in [("FirstReadError", read), ("FirstWriteError", write)] {
                if let Some((at, what)) = &operations.first_error {
                    lines.line(&format!("<{name} Second=\"{at:.3}\">{}</{name}>", escape(what)));
                }
            }
        });
    }
    for agent in &measured.agents {
        lines.inside("Agent", |lines| {
            lines.value("Name", escape(&agent.name));
            lines.value("ComputerName", escape(&agent.computer));
            if let Some((after, error)) = agent.start_ms {
                lines
                    .line(&format!("<StartMilliseconds Error=\"{error:.3}\">{after:.3}</StartMilliseconds>"));
            }
            lines.value("TestTimeSeconds", format_args!("{:.2}", agent.seconds));
            lines.value("ReadBytes", agent.read.bytes);
            lines.value("ReadCount", agent.read.count);
            lines.value("WriteBytes", agent.write.bytes);
            lines.value("WriteCount", agent.write.count);
            if let Some(why) = &agent.ended_early {
                lines.value("EndedEarly", escape(why));
            }
        });
    }
    if let Some(open) = &measured.open_loop {
        lines.line(&format!(
            "<OpenLoop Rate=\"{}\" Intended=\"{}\" Late=\"{}\" NeverBegun=\"{}\"/>",
            open.rate, open.intended, open.late, open.never_begun
        ));
    }
    if let Some(verify) = &measured.verify {
        lines.inside("Verification", |lines| {
            lines.value("Checked", verify.checked);
            lines.value("Stale", verify.stale);
            lines.value("Lost", verify.lost);
            lines.value("Misplaced", verify.misplaced);
            lines.value("Torn", verify.torn);
            lines.value("LongestStallMilliseconds", format_args!("{:.3}", verify.longest_stall_ms));
        });
    }
}

fn processors(lines: &mut Lines, measured: &SpanOutcome, system: &System) {
    let percents = |lines: &mut Lines, cpu: &CpuTime| {
        for (name, value) in [
            ("UsagePercent", cpu.user + cpu.kernel),
            ("UserPercent", cpu.user),
            ("KernelPercent", cpu.kernel),
            ("IdlePercent", cpu.idle),
        ] {
            lines.value(name, format_args!("{value:.2}"));
        }
    };
    lines.inside("CpuUtilization", |lines| {
        for (place, cpu) in system.cpus.iter().zip(&measured.cpus) {
            lines.inside("CPU", |lines| {
                lines.value("Socket", place.socket);
                lines.value("Node", place.node);
                lines.value("Group", 0);
                lines.value("Core", place.core);
                lines.value("EfficiencyClass", 0);
                lines.value("Id", place.id);
                percents(lines, cpu);
            });
        }
        lines.inside("Average", |lines| percents(lines, &measured.average_cpu()));
    });
}

fn latencies(lines: &mut Lines, read: &Histogram, write: &Histogram) {
    let mut total = read.clone();
    total.merge(write);
    let all = [("Read", read), ("Write", write), ("Total", &total)];
    let start = format!(
        "Latency ReadHistoBuckets=\"{}\" WriteHistoBuckets=\"{}\" TotalHistoBuckets=\"{}\"",
        read.buckets().count(),
        write.buckets().count(),
        total.buckets().count()
    );
    lines.inside(&start, |lines| {
        for (name, histogram) in all.iter().filter(|(_, histogram)| !histogram.is_empty()) {
            let deviation =
                if *name == "Total" { "LatencyStdev".into() } else { format!("{name}LatencyStdev") };
            milliseconds(lines, &format!("Average{name}Milliseconds"), histogram.mean());
            milliseconds(lines, &deviation, histogram.deviation());
        }
        let mut bucket = |percentile: String, of: &dyn Fn(&Histogram) -> u64| {
            lines.inside("Bucket", |lines| {
                lines.value("Percentile", percentile);
                for (name, histogram) in all.iter().filter(|(_, histogram)| !histogram.is_empty()) {
                    milliseconds(lines, &format!("{name}Milliseconds"), of(histogram) as f64);
                }
            });
        };
        bucket("0".into(), &Histogram::min);
        for percent in 1..=99 {
            bucket(percent.to_string(), &|histogram| histogram.percentile(f64::from(percent) / 100.0));
        }
        for nines in 1..=7 {
            let percent = 100.0 - 0.1f64.powi(nines);
            let digits = nines as usize;
            bucket(format!("{percent:.digits$}"), &|histogram| histogram.percentile(percent / 100.0));
        }
        bucket("100".into(), &Histogram::max);
    });
}

fn intervals(lines: &mut Lines, read: &Operations, write: &Operations, interval_ms: u32) {
    lines.inside("Iops", |lines| {
        let mut total = read.clone();
        total.merge(write);
        for (name, operations) in
            [("ReadIopsStdDev", read), ("WriteIopsStdDev", write), ("IopsStdDev", &total)]
        {
            if !operations.intervals.is_empty() {
                let deviation = iops_deviation(&operations.intervals, interval_ms);
                lines.value(name, format_args!("{deviation:.3}"));
            }
        }
        let seconds = f64::from(interval_ms.max(1)) / 1000.0;
        for index in 0..total.intervals.len() {
            let of = |operations: &Operations| operations.intervals.get(index).copied().unwrap_or_default();
            let (r, w) = (of(read), of(write));
            let mut line = format!(
                "<Bucket SampleMillisecond=\"{}\" Read=\"{:.0}\" Write=\"{:.0}\" Total=\"{:.0}\"",
                u64::from(interval_ms) * (index as u64 + 1),
                r.count as f64 / seconds,
                w.count as f64 / seconds,
                (r.count + w.count) as f64 / seconds
            );
            let mut side = |name: &str, interval: &Interval| {
                let _ = write!(
                    line,
                    " {name}MinLatencyMilliseconds=\"{:.3}\" {name}MaxLatencyMilliseconds=\"{:.3}\" \
                     {name}AvgLatencyMilliseconds=\"{:.3}\" {name}LatencyStdDev=\"{:.3}\"",
                    interval.min_ns as f64 / MS,
                    interval.max_ns as f64 / MS,
                    interval.mean_ms(),
                    interval.deviation_ms()
                );
            };
            side("Read", &r);
            side("Write", &w);
            line.push_str("/>");
            lines.line(&line);
        }
    });
}

fn target(lines: &mut Lines, span: &TimeSpan, target: &TargetOutcome) {
    let (read, write) = (&target.read, &target.write);
    lines.value("Path", escape(&target.path));
    lines.value("BytesCount", read.bytes + write.bytes);
    lines.value("FileSize", target.size);
    lines.value("IOCount", read.count + write.count);
    lines.value("ReadBytes", read.bytes);
    lines.value("ReadCount", read.count);
    lines.value("WriteBytes", write.bytes);
    lines.value("WriteCount", write.count);
    if !target.distribution.is_empty() {
        lines.inside("Distribution", |lines| {
            lines.inside("Absolute", |lines| distribution(lines, &target.distribution));
        });
    }
    if span.latency {
        let total = target.total();
        for (average, deviation, histogram) in [
            ("AverageReadLatencyMilliseconds", "ReadLatencyStdev", &read.latency),
            ("AverageWriteLatencyMilliseconds", "WriteLatencyStdev", &write.latency),
            ("AverageLatencyMilliseconds", "LatencyStdev", &total.latency),
        ] {
            if !histogram.is_empty() {
                milliseconds(lines, average, histogram.mean());
                milliseconds(lines, deviation, histogram.deviation());
            }
        }
    }
    if span.iops_intervals {
        intervals(lines, read, write, span.interval_ms);
    }
}

/// Ranges with the gaps between them as ranges without I/O.
fn distribution(lines: &mut Lines, ranges: &[EffectiveRange]) {
    let mut expected = 0;
    for range in ranges {
        if range.start > expected {
            lines.line(&format!("<Range IO=\"0\">{}</Range>", range.start - expected));
        }
        lines.line(&format!("<Range IO=\"{}\">{}</Range>", range.io_percent, range.length));
        expected = range.start.saturating_add(range.length);
    }
}

fn waits(lines: &mut Lines, waits: &WaitStatistics) {
    lines.inside("WaitStatistics", |lines| {
        lines.value("CompletionWait", waits.waits);
        lines.value("ThrottleWait", waits.throttle_waits);
        lines.value("ThrottleSleep", waits.throttle_sleeps);
        lines.value("Lookaside", waits.lookasides);
        let found: Vec<String> = waits.found.iter().map(u64::to_string).collect();
        lines.value("LookasideCompletion", found.join(" "));
    });
}
