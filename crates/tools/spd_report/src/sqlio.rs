//! SQLIO's report: scripts take its lines 10, 11 and 14 (counted from 0), so no line may move.

use std::fmt::Write as _;

use spd_profile::sqlio::{Buffering, Pattern, Sqlio};

use crate::histogram::Histogram;
use crate::outcome::SpanOutcome;

/// Version that the report names first, as the tool it stands in for does.
const TITLE: &str = "sqlio v1.5.SG";
/// Columns of the histogram: 0 to 23 milliseconds, and 24 and more.
const COLUMNS: usize = 25;

/// The lines up to `initialization done`, which appear before the run; `sizes` are those of the targets in bytes.
#[must_use]
pub fn beginning(run: &Sqlio, sizes: &[u64]) -> String {
    let mut out = format!("{TITLE}\n");
    if run.latency {
        // The counter of this report's latencies counts nanoseconds.
        out.push_str("using system counter for latency timings, 1000000000 counts per second\n");
    }
    let threads = if run.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", run.threads) };
    let kind = match run.write_percent {
        0 => "reading".to_owned(),
        100 => "writing".to_owned(),
        percent => format!("reading ({}%) and writing ({percent}%)", 100 - percent),
    };
    let paths: Vec<&str> =
        run.profile.spans.iter().flat_map(|span| &span.targets).map(|target| target.path.as_str()).collect();
    let files = match paths.split_last() {
        Some((only, [])) => format!("file {only}"),
        Some((last, rest)) => format!("files {} and {last}", rest.join(", ")),
        None => "no file".to_owned(),
    };
    let seconds = run.seconds;
    let _ = writeln!(out, "{threads} {kind} for {seconds} secs from {files}");
    if run.write_percent == 100 {
        // "writing ... to file"
        out.truncate(out.len() - (format!("from {files}\n")).len());
        let _ = writeln!(out, "to {files}");
    }
    let _ = match run.pattern {
        Pattern::Random => writeln!(out, "\tusing {}KB random IOs", run.block_kb),
        Pattern::Sequential => writeln!(out, "\tusing {}KB sequential IOs", run.block_kb),
        Pattern::Stripe(blocks) => {
            writeln!(
                out,
                "\tusing {}KB IOs over {}KB stripes",
                run.block_kb,
                u64::from(run.block_kb) * u64::from(blocks)
            )
        }
    };
    if run.asynchronous {
        let _ = writeln!(out, "\tenabling multiple I/Os per thread with {} outstanding", run.outstanding);
    }
    out.push_str(match run.buffering {
        Buffering::None => "\tbuffering set to not use file nor disk caches (as is SQL Server)\n",
        Buffering::All => "\tbuffering set to use both file and disk caches\n",
        Buffering::Hardware => "\tbuffering set to use hardware disk cache (but not file cache)\n",
        Buffering::Software => "\tbuffering set to use software file cache (but not hardware disk cache)\n",
    });
    for (index, path) in paths.iter().enumerate() {
        let specified = run.sizes_mb.get(index).copied().flatten();
        let current = sizes.get(index).copied().unwrap_or(0) >> 20;
        let _ = match specified {
            Some(mb) => writeln!(out, "using specified size: {mb} MB for file: {path}"),
            None => writeln!(out, "using current size: {current} MB for file: {path}"),
        };
    }
    out.push_str("initialization done\n");
    out
}

/// The lines from `CUMULATIVE DATA:` on.
#[must_use]
pub fn results(run: &Sqlio, measured: &SpanOutcome) -> String {
    let (mut all, write) = measured.sum();
    all.merge(&write);
    let seconds = measured.seconds.max(1e-9);
    let mut out = format!(
        "CUMULATIVE DATA:\nthroughput metrics:\nIOs/sec: {:8.2}\nMBs/sec: {:8.2}\n",
        all.count as f64 / seconds,
        all.bytes as f64 / 1_048_576.0 / seconds
    );
    if run.latency {
        let ms = |nanos: f64| (nanos / 1e6) as u64;
        let _ = write!(
            out,
            "latency metrics:\nMin_Latency(ms): {}\nAvg_Latency(ms): {}\nMax_Latency(ms): {}\nhistogram:\n",
            ms(all.latency.min() as f64),
            ms(all.latency.mean()),
            ms(all.latency.max() as f64)
        );
        out.push_str(&histogram(&all.latency));
    }
    if let Some(span) = run.profile.spans.first() {
        crate::text::after_tables(&mut out, span, measured);
    }
    out
}

/// The two lines `ms:` and `%:`.
#[must_use]
pub fn histogram(latency: &Histogram) -> String {
    let mut counts = [0u64; COLUMNS];
    for (nanos, count) in latency.buckets() {
        let column = (nanos / 1_000_000).min(COLUMNS as u64 - 1) as usize;
        if let Some(sum) = counts.get_mut(column) {
            *sum += count;
        }
    }
    let heads: Vec<String> = (0..COLUMNS - 1).map(|ms| format!("{ms:2}")).collect();
    let total = latency.count().max(1) as f64;
    let percents: Vec<String> =
        counts.iter().map(|count| format!("{:2}", (*count as f64 * 100.0 / total).round())).collect();
    format!("ms:{} {}+\n%: {}\n", heads.join(" "), COLUMNS - 1, percents.join(" "))
}
