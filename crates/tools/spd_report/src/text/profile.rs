//! The first part of the report: what was asked for.

use std::fmt::Write as _;

use spd_profile::{
    Arrival, CacheMode, Distribution, DistributionUnit, IoPriority, Profile, Target, Throughput, TimeSpan,
    WriteContent, display_size,
};

use super::{Layout, size};

pub(super) fn write(out: &mut String, profile: &Profile, layout: Layout) {
    let _ = write!(out, "\nCommand Line: {}\n\n", profile.command_line);
    if profile.experiments != 0 {
        let _ = write!(out, "Experiment Flags: 0x{0:x} ({0})\n\n", profile.experiments);
    }
    out.push_str("Input parameters:\n\n");
    if profile.verbose {
        out.push_str("\tusing verbose mode\n");
    }
    for (index, each) in profile.spans.iter().enumerate() {
        let _ = write!(out, "\ttimespan: {:3}\n\t-------------\n", index + 1);
        span(out, each, layout);
        if layout == Layout::V22 || index + 1 < profile.spans.len() {
            out.push('\n');
        }
    }
}

fn span(out: &mut String, span: &TimeSpan, layout: Layout) {
    let _ = writeln!(out, "\tduration: {}s", span.duration);
    let _ = writeln!(out, "\twarm up time: {}s", span.warm_up);
    let _ = writeln!(out, "\tcool down time: {}s", span.cool_down);
    if span.no_affinity {
        out.push_str("\taffinity disabled\n");
    }
    if span.latency {
        out.push_str("\tmeasuring latency\n");
    }
    if span.iops_intervals {
        let _ = writeln!(out, "\tgathering IOPS at intervals of {}ms", span.interval_ms);
    }
    let _ = writeln!(out, "\trandom seed: {}", span.seed);
    if let Some((rate, arrival)) = span.rate {
        let arrival = match arrival {
            Arrival::Even => "even",
            Arrival::Poisson => "poisson",
        };
        let _ = writeln!(out, "\topen loop: {rate} I/O per s, {arrival} arrivals");
    }
    if span.copy {
        out.push_str("\tcopying the first target over the second\n");
    }
    if let Some(replay) = &span.replay {
        let timing = if replay.fast { "as fast as possible" } else { "at its times" };
        let _ = writeln!(out, "\treplaying trace '{}' {timing}", replay.path);
    }
    if span.threads != 0 {
        let _ = writeln!(out, "\tthread pool with {} threads", span.threads);
        let _ = writeln!(out, "\tnumber of outstanding I/O operations per thread: {}", span.requests);
    }
    if !span.affinity.is_empty() {
        let list: Vec<String> =
            span.affinity.iter().map(|each| format!("{}/{}", each.group, each.cpu)).collect();
        let _ = writeln!(out, "\tadvanced affinity round robin (group/core): {}", list.join(", "));
    }
    if span.random_writes {
        out.push_str(
            "\tgenerating random data for each write IO\n\
             \t  WARNING: this increases the CPU cost of issuing writes and should only\n\
             \t           be compared to other results using the -Zr flag\n",
        );
    }
    for each in &span.targets {
        target(out, span, each, layout);
    }
}

fn target(out: &mut String, span: &TimeSpan, target: &Target, layout: Layout) {
    match target.path.strip_prefix('*') {
        Some(number) => drop(writeln!(out, "\tpath: template target '{number}'")),
        None => drop(writeln!(out, "\tpath: '{}'", target.path)),
    }
    let _ = writeln!(out, "\t\tthink time: {}ms", target.think_ms.unwrap_or(0));
    let _ = writeln!(out, "\t\tburst size: {}", target.burst.unwrap_or(0));
    caches(out, target, layout);
    match &target.content {
        WriteContent::Sequential => {}
        WriteContent::Zero => out.push_str("\t\tzeroing write buffers\n"),
        WriteContent::Source { size: bytes, file } => {
            let _ = writeln!(out, "\t\twrite buffer size: {}", size(*bytes, layout));
            match file {
                Some(file) => drop(writeln!(out, "\t\twrite buffer source: '{file}'")),
                None => out.push_str("\t\twrite buffer source: random fill\n"),
            }
        }
    }
    if target.parallel {
        out.push_str("\t\tusing parallel async I/O\n");
    }
    match target.write_percent {
        0 => out.push_str("\t\tperforming read test\n"),
        100 => out.push_str("\t\tperforming write test\n"),
        writes => {
            let _ = writeln!(out, "\t\tperforming mix test (read/write ratio: {}/{writes})", 100 - writes);
        }
    }
    let _ = writeln!(out, "\t\tblock size: {}", size(u64::from(target.block), layout));
    if !target.mix.is_empty() {
        let parts = target.mix.iter().map(|part| {
            let bytes = size(u64::from(part.block), layout);
            format!("{bytes} {}% ({}% writes)", part.percent, part.write_percent)
        });
        let _ = writeln!(out, "\t\tblock size mix: {}", parts.collect::<Vec<_>>().join(", "));
    }
    match layout {
        Layout::V22 => pattern(out, span, target),
        Layout::V20 => old_pattern(out, target),
    }
    let per_file = span.threads == 0;
    if per_file {
        let _ = writeln!(out, "\t\tthreads per file: {}", target.threads);
        if target.requests > 1 || layout == Layout::V20 {
            out.push_str("\t\tusing I/O Completion Ports\n");
        }
    }
    out.push_str(match target.priority {
        IoPriority::VeryLow => "\t\tIO priority: very low\n",
        IoPriority::Low => "\t\tIO priority: low\n",
        IoPriority::Normal => "\t\tIO priority: normal\n",
    });
    match target.throughput {
        Some(Throughput::Iops(iops)) => {
            let _ = writeln!(out, "\t\tthroughput rate-limited to {iops} IOPS");
        }
        Some(Throughput::BytesPerMillisecond(bytes)) => {
            let _ = writeln!(out, "\t\tthroughput rate-limited to {bytes} B/ms");
        }
        None => {}
    }
    if let Some(distribution) = &target.distribution {
        out.push_str("\t\tIO Distribution:\n");
        stated(out, distribution);
    }
}

fn caches(out: &mut String, target: &Target, layout: Layout) {
    if layout == Layout::V20 {
        out.push_str(match (target.cache, target.write_through) {
            (CacheMode::DisableOsCache, true) => "\t\tsoftware and hardware cache disabled\n",
            (CacheMode::DisableOsCache, false) => "\t\tsoftware cache disabled\n",
            _ => "\t\tusing software and hardware cache\n",
        });
        return;
    }
    out.push_str(match target.cache {
        CacheMode::Cached => "\t\tusing software cache\n",
        CacheMode::DisableLocalCache => "\t\tlocal software cache disabled, remote cache enabled\n",
        CacheMode::DisableOsCache => "\t\tsoftware cache disabled\n",
    });
    out.push_str(match (target.write_through, target.cache) {
        (false, _) => "\t\tusing hardware write cache, writethrough off\n",
        (true, CacheMode::DisableOsCache) => "\t\thardware write cache disabled, writethrough on\n",
        (true, _) => "\t\thardware and software write caches disabled, writethrough on\n",
    });
}

fn pattern(out: &mut String, span: &TimeSpan, target: &Target) {
    let step = display_size(target.step());
    let _ = match target.random_percent {
        100 => writeln!(out, "\t\tusing random I/O (alignment: {step})"),
        0 => {
            let interlocked = if target.interlocked { " interlocked" } else { "" };
            writeln!(out, "\t\tusing{interlocked} sequential I/O (stride: {step})")
        }
        percent => writeln!(
            out,
            "\t\tusing mixed random/sequential I/O ({percent}% random) (alignment/stride: {step})"
        ),
    };
    if span.is_weighted() {
        let _ = writeln!(out, "\t\trelative IO weight in thread pool: {}", target.weight);
    } else {
        let _ = writeln!(out, "\t\tnumber of outstanding I/O operations per thread: {}", target.requests);
    }
    for (name, bytes) in [
        ("base file offset", target.base),
        ("max file size", target.max),
        ("thread stride size", target.thread_stride),
    ] {
        if bytes != 0 {
            let _ = writeln!(out, "\t\t{name}: {}", display_size(bytes));
        }
    }
    if target.hints.sequential {
        out.push_str("\t\tusing FILE_FLAG_SEQUENTIAL_SCAN hint\n");
    }
    if target.hints.random {
        out.push_str("\t\tusing FILE_FLAG_RANDOM_ACCESS hint\n");
    }
    if target.hints.temporary {
        out.push_str("\t\tusing FILE_ATTRIBUTE_TEMPORARY hint\n");
    }
}

fn old_pattern(out: &mut String, target: &Target) {
    if target.random_percent > 0 {
        let _ = writeln!(out, "\t\tusing random I/O (alignment: {})", target.step());
    }
    let _ = writeln!(out, "\t\tnumber of outstanding I/O operations: {}", target.requests);
    if target.base != 0 {
        let _ = writeln!(out, "\t\tbase file offset: {}", target.base);
    }
    if target.max != 0 {
        let _ = writeln!(out, "\t\tmax file size: {}", target.max);
    }
    let _ = writeln!(out, "\t\tstride size: {}", target.step());
    let _ = writeln!(out, "\t\tthread stride size: {}", target.thread_stride);
}

/// A distribution as it was asked for.
fn stated(out: &mut String, distribution: &Distribution) {
    let mut start = 0u64;
    for range in &distribution.ranges {
        let end = start.saturating_add(range.span);
        let _ = match distribution.unit {
            DistributionUnit::Percent => {
                writeln!(out, "\t\t   {:3}% of IO => [{start:2}% - {end:3}%) of target", range.io_percent)
            }
            DistributionUnit::Absolute => {
                writeln!(out, "\t\t   {:3}% of IO => {}", range.io_percent, bounds(start, range.span))
            }
        };
        start = end;
    }
}

/// `[     0    -   1GiB)`: a range of bytes, open when it has no length.
pub(super) fn bounds(start: u64, length: u64) -> String {
    let from = if start == 0 { "     0   ".to_owned() } else { wide_size(start) };
    let to = if length == 0 { "      end".to_owned() } else { wide_size(start.saturating_add(length)) };
    format!("[{from} - {to})")
}

/// A size whose number is at least six characters wide.
fn wide_size(bytes: u64) -> String {
    let text = display_size(bytes);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text.get(digits.len()..).unwrap_or_default();
    if unit.is_empty() { text } else { format!("{digits:>6}{unit}") }
}
