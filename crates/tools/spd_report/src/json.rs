//! A result as JSON: the numbers of the text report under names of their own, in SI units.

use serde_json::{Value, json};
use spd_profile::{Profile, TimeSpan};

use crate::histogram::Histogram;
use crate::outcome::{AgentOutcome, CpuTime, Operations, Outcome, SpanOutcome};

/// The result of a run: `{"command_line", "system", "spans": [...]}`.
#[must_use]
pub fn report(profile: &Profile, outcome: &Outcome) -> Value {
    let system = &outcome.system;
    let spans: Vec<Value> =
        profile.spans.iter().zip(&outcome.spans).map(|(span, measured)| span_value(span, measured)).collect();
    json!({
        "command_line": profile.command_line,
        "system": {
            "computer": system.computer,
            "version": system.version,
            "version_date": system.version_date,
            "start_unix_seconds": system.start,
            "cpus": system.cpus.len(),
            "power_scheme": system.power_scheme,
        },
        "spans": spans,
    })
}

/// One time span.
#[must_use]
pub fn span_value(span: &TimeSpan, measured: &SpanOutcome) -> Value {
    let (read, write) = measured.sum();
    let mut total = read.clone();
    total.merge(&write);
    let threads: Vec<Value> = measured
        .threads
        .iter()
        .map(|thread| {
            let targets = thread.targets.iter().map(|target| {
                json!({
                    "path": target.path,
                    "size_bytes": target.size,
                    "read": operations(&target.read, measured.seconds),
                    "write": operations(&target.write, measured.seconds),
                })
            });
            json!({ "targets": targets.collect::<Vec<_>>() })
        })
        .collect();
    let average = measured.average_cpu();
    let mut value = json!({
        "asked_seconds": span.duration,
        "seconds": measured.seconds,
        "ended_early": measured.ended_early,
        "cpus": measured.cpus.iter().map(cpu).collect::<Vec<_>>(),
        "cpu_average": cpu(&average),
        "total": operations(&total, measured.seconds),
        "read": operations(&read, measured.seconds),
        "write": operations(&write, measured.seconds),
        "threads": threads,
    });
    if let Some(object) = value.as_object_mut() {
        if span.iops_intervals {
            let series = |operations: &Operations| {
                operations.intervals.iter().map(|interval| interval.count).collect::<Vec<_>>()
            };
            object.insert(
                "intervals".into(),
                json!({ "milliseconds": span.interval_ms, "read": series(&read), "write": series(&write) }),
            );
        }
        if !measured.agents.is_empty() {
            object.insert("agents".into(), measured.agents.iter().map(agent).collect());
        }
        if let Some(open) = &measured.open_loop {
            object.insert(
                "open_loop".into(),
                json!({
                    "rate": open.rate, "intended": open.intended, "late": open.late,
                    "never_begun": open.never_begun,
                }),
            );
        }
        if let Some(verify) = &measured.verify {
            object.insert(
                "verify".into(),
                json!({
                    "checked": verify.checked, "stale": verify.stale, "lost": verify.lost,
                    "misplaced": verify.misplaced, "torn": verify.torn, "findings": verify.findings,
                    "longest_stall_ms": verify.longest_stall_ms,
                }),
            );
        }
    }
    value
}

fn agent(agent: &AgentOutcome) -> Value {
    let mut total = agent.read.clone();
    total.merge(&agent.write);
    json!({
        "name": agent.name,
        "computer": agent.computer,
        "start_ms": agent.start_ms.map(|(after, _)| after),
        "start_error_ms": agent.start_ms.map(|(_, error)| error),
        "seconds": agent.seconds,
        "ended_early": agent.ended_early,
        "total": operations(&total, agent.seconds),
        "read": operations(&agent.read, agent.seconds),
        "write": operations(&agent.write, agent.seconds),
    })
}

fn cpu(cpu: &CpuTime) -> Value {
    json!({ "user_percent": cpu.user, "kernel_percent": cpu.kernel, "idle_percent": cpu.idle })
}

fn operations(operations: &Operations, seconds: f64) -> Value {
    let per_second = |number: u64| if seconds > 0.0 { number as f64 / seconds } else { 0.0 };
    let error = operations.first_error.as_ref().map(|(at, what)| json!({ "at_seconds": at, "error": what }));
    json!({
        "bytes": operations.bytes,
        "count": operations.count,
        "errors": operations.errors,
        "first_error": error,
        "iops": per_second(operations.count),
        "bytes_per_second": per_second(operations.bytes),
        "latency_ms": latency(&operations.latency),
    })
}

fn latency(histogram: &Histogram) -> Value {
    if histogram.is_empty() {
        return Value::Null;
    }
    let ms = |nanos: u64| nanos as f64 / 1e6;
    json!({
        "min": ms(histogram.min()),
        "mean": histogram.mean() / 1e6,
        "deviation": histogram.deviation() / 1e6,
        "p25": ms(histogram.percentile(0.25)),
        "p50": ms(histogram.percentile(0.5)),
        "p75": ms(histogram.percentile(0.75)),
        "p90": ms(histogram.percentile(0.9)),
        "p95": ms(histogram.percentile(0.95)),
        "p99": ms(histogram.percentile(0.99)),
        "p999": ms(histogram.percentile(0.999)),
        "p9999": ms(histogram.percentile(0.9999)),
        "max": ms(histogram.max()),
    })
}
