//! What no profile may ask for: DiskSpd's refusals in its words, and bounds of our own.

use crate::error::{ProfileError, refuse};
use crate::limits;
use crate::model::{CacheMode, DistributionUnit, Profile, Target, Throughput, TimeSpan, WriteContent};

/// What a valid profile still has to be told about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Warnings, in DiskSpd's words.
    pub warnings: Vec<String>,
}

/// Checks a profile; `runs` when it is to be run, so that templates must have been replaced.
///
/// # Errors
/// The first thing that makes no sense.
pub fn validate(profile: &Profile, runs: bool) -> Result<Checked, ProfileError> {
    if profile.spans.is_empty() {
        return refuse("no timespans specified");
    }
    if profile.spans.len() > limits::TIME_SPANS {
        return refuse(format!("at most {} timespans", limits::TIME_SPANS));
    }
    let mut checked = Checked::default();
    for span in &profile.spans {
        check_span(span)?;
        for target in &span.targets {
            check_target(span, target, &mut checked.warnings)?;
            if runs && target.is_template() {
                return refuse(format!(
                    "template target '{}' was not substituted - all template targets must be substituted to run a profile",
                    target.path
                ));
            }
        }
    }
    checked.warnings.dedup();
    Ok(checked)
}

fn check_span(span: &TimeSpan) -> Result<(), ProfileError> {
    if span.no_affinity && !span.affinity.is_empty() {
        return refuse("-n and -a parameters cannot be used together");
    }
    if span.targets.is_empty() {
        return refuse("need to provide at least one filename");
    }
    if span.targets.len() > limits::TARGETS {
        return refuse(format!("at most {} targets", limits::TARGETS));
    }
    for (name, seconds) in [("-d", span.duration), ("-W", span.warm_up), ("-C", span.cool_down)] {
        if seconds > limits::SECONDS {
            return refuse(format!("{name}{seconds} is longer than a year ({} seconds)", limits::SECONDS));
        }
    }
    if span.thread_count() > u64::from(limits::THREADS) {
        return refuse(format!("{} threads are more than {}", span.thread_count(), limits::THREADS));
    }
    if span.requests > 0 && span.threads == 0 {
        return refuse("-O outstanding requests per thread needs -F total threads");
    }
    if span.iops_intervals {
        let intervals = u64::from(span.duration) * 1000 / u64::from(span.interval_ms.max(1));
        if span.interval_ms == 0 || intervals > limits::INTERVALS {
            return refuse(format!(
                "-D{} gives {intervals} intervals in {} s: at most {} are kept",
                span.interval_ms,
                span.duration,
                limits::INTERVALS
            ));
        }
    }
    if let Some((rate, _)) = span.rate
        && !(rate.is_finite() && (0.001..=1e8).contains(&rate))
    {
        return refuse("--rate must be between 0.001 and 100000000 operations per second");
    }
    if span.rate.is_some() && span.is_weighted() {
        return refuse("--rate cannot be used with -O outstanding requests per thread");
    }
    if span.copy {
        let [from, to] = span.targets.as_slice() else {
            return refuse("--copy has two targets: what is copied, and what it is copied over");
        };
        if from.path == to.path {
            return refuse("--copy: both targets are the same file");
        }
        if span.threads > 0 || from.threads > 1 {
            return refuse(
                "--copy is one thread with several pieces at once: leave out -t and -F, and change -o",
            );
        }
        if span.warm_up > 0 || span.cool_down > 0 {
            return refuse("--copy measures all of the copy: leave out -W and -C");
        }
        for (is_used, option) in [
            (from.write_percent > 0 || to.write_percent < 100, "-w"),
            (from.random_percent > 0 || from.interlocked || from.parallel, "-r, -si and -p"),
            (
                from.base > 0
                    || from.max > 0
                    || from.thread_stride > 0
                    || from.step() != u64::from(from.block),
                "-B, -f, -s and -T",
            ),
            (
                span.rate.is_some() || from.throughput.is_some() || from.burst.is_some(),
                "--rate, -g, -i and -j",
            ),
            (span.replay.is_some() || !from.mix.is_empty(), "--replay and --mix"),
        ] {
            if is_used {
                return refuse(format!(
                    "--copy reads and writes from the beginning to the end: leave out {option}"
                ));
            }
        }
    }
    if span.replay.is_some() {
        let [target] = span.targets.as_slice() else {
            return refuse(
                "--replay replays a trace on one target: give one, and choose what of the trace with --replay-name",
            );
        };
        if span.threads > 0 || target.threads > 1 {
            return refuse(
                "--replay keeps the order of a trace with one thread: leave out -t and -F, and raise -o",
            );
        }
        for (is_used, option) in [
            (span.rate.is_some(), "--rate"),
            (!target.mix.is_empty(), "--mix"),
            (target.throughput.is_some(), "-g"),
            (target.burst.is_some() || target.think_ms.is_some(), "-i and -j"),
        ] {
            if is_used {
                return refuse(format!("--replay takes times and sizes from the trace: leave out {option}"));
            }
        }
    }
    let content = |target: &Target| (target.write_percent > 0).then(|| target.content.clone());
    if span.is_weighted()
        && span.targets.windows(2).any(|pair| pair.first().map(content) != pair.last().map(content))
    {
        return refuse(
            "with -O all targets share their buffers: the content of writes (-Z) must be the same",
        );
    }
    let per_thread = |requests: u32| -> Result<(), ProfileError> {
        if requests > limits::REQUESTS_PER_THREAD {
            return refuse(format!(
                "{requests} requests outstanding per thread are more than {}",
                limits::REQUESTS_PER_THREAD
            ));
        }
        Ok(())
    };
    let mut bytes = 0u64;
    if span.is_weighted() {
        per_thread(span.requests)?;
        let largest = span.targets.iter().map(|target| target.block).max().unwrap_or(0);
        bytes = u64::from(largest) * u64::from(span.requests) * u64::from(span.threads);
    } else {
        let mut shared = 0u32;
        for target in &span.targets {
            per_thread(target.requests)?;
            shared = shared.saturating_add(target.requests);
            let threads = if span.threads > 0 { span.threads } else { target.threads };
            bytes = bytes
                .saturating_add(u64::from(target.block) * u64::from(target.requests) * u64::from(threads));
        }
        if span.threads > 0 {
            per_thread(shared)?;
        }
    }
    if bytes > limits::BUFFER_BYTES {
        return refuse(format!(
            "block size times outstanding requests times threads is {} of buffers, more than {}: lower -b, -o or -t",
            crate::display_size(bytes),
            crate::display_size(limits::BUFFER_BYTES)
        ));
    }
    Ok(())
}

fn check_target(span: &TimeSpan, target: &Target, warnings: &mut Vec<String>) -> Result<(), ProfileError> {
    if target.path.is_empty() {
        return refuse("a target has an empty path");
    }
    if target.block == 0 || target.block > limits::BLOCK_BYTES {
        return refuse(format!(
            "invalid block size passed to -b: it is between 1 byte and {}",
            crate::display_size(u64::from(limits::BLOCK_BYTES))
        ));
    }
    crate::mix::check(target)?;
    if target.threads == 0 || target.requests == 0 {
        return refuse("-t and -o must be at least 1");
    }
    let several_threads = span.threads > 1 || target.threads > 1;
    if span.threads > 0 && target.threads > 1 {
        return refuse("-F and -t parameters cannot be used together");
    }
    let throttled = target.throughput.is_some();
    if throttled && span.completion_routines {
        return refuse("-g throughput control cannot be used with -x completion routines");
    }
    if matches!(target.throughput, Some(Throughput::Iops(0) | Throughput::BytesPerMillisecond(0))) {
        return refuse("-g throughput must be above 0");
    }
    if target.think_ms.unwrap_or(0) > 0 && target.burst.unwrap_or(0) == 0
        || target.burst.unwrap_or(0) > 0 && target.think_ms.unwrap_or(0) == 0
    {
        return refuse("need to specify -j<think time> with -i<burst size>");
    }
    if span.is_weighted() {
        if throttled {
            return refuse("-g throughput control cannot be used with -O outstanding requests per thread");
        }
        if target.think_ms.is_some() {
            return refuse("-j think time cannot be used with -O outstanding requests per thread");
        }
        if target.parallel {
            return refuse("-p parallel IO cannot be used with -O outstanding requests per thread");
        }
        if target.weight == 0 {
            return refuse("a non-zero target Weight must be specified");
        }
        if target.thread_targets.iter().any(|(thread, _)| *thread >= span.threads) {
            return refuse("illegal thread specified for ThreadTarget");
        }
    } else if !target.thread_targets.is_empty() {
        return refuse(
            "ThreadTargets can only be specified when the timespan ThreadCount and RequestCount are specified",
        );
    }
    if span.rate.is_some() && (throttled || target.think_ms.is_some()) {
        return refuse(
            "--rate is an open loop: it cannot be used with -g throughput control or -i/-j bursts",
        );
    }
    check_pattern(target, several_threads, warnings)?;
    check_distribution(target)?;
    if let WriteContent::Source { size, .. } = &target.content {
        if *size < u64::from(target.block) {
            return refuse(format!(
                "custom write buffer (-Z) is smaller than the block size. Write buffer size: {size} block size: {}",
                target.block
            ));
        }
        if *size > 1 << 30 {
            return refuse(
                "custom write buffer (-Z) is larger than 1GiB, which one request's buffer may have",
            );
        }
    }
    if target.memory_mapped {
        if span.completion_routines {
            return refuse("completion routines (-x) can't be used with memory mapped IO (-Sm)");
        }
        if target.cache == CacheMode::DisableOsCache {
            return refuse("unbuffered IO (-Su or -Sh) can't be used with memory mapped IO (-Sm)");
        }
    } else if target.flush.is_some() {
        return refuse("memory mapped flush mode (-N) can only be specified with memory mapped IO (-Sm)");
    }
    if target.max > 0 && target.max <= target.base {
        return refuse("maximum (-f) target offset must be greater than base (-B)");
    }
    Ok(())
}

fn check_pattern(
    target: &Target,
    several_threads: bool,
    warnings: &mut Vec<String>,
) -> Result<(), ProfileError> {
    if target.alignment == Some(0) && target.random_percent > 0 {
        return refuse("invalid alignment passed to -r");
    }
    if target.random_percent > 0 {
        if target.thread_stride > 0 {
            return refuse("-T conflicts with -r");
        }
        if target.interlocked {
            return refuse("-si conflicts with -r");
        }
        if target.parallel {
            return refuse("-p conflicts with -r");
        }
        return Ok(());
    }
    if target.distribution.is_some() {
        return refuse("random distribution ranges (-rd) do not apply to sequential-only IO patterns");
    }
    if target.parallel && target.requests == 1 {
        warnings.push("-p does not have effect unless outstanding I/O count (-o) is > 1".into());
    }
    if target.interlocked {
        if target.thread_stride > 0 {
            return refuse("-si conflicts with -T");
        }
        if target.parallel {
            return refuse("-si conflicts with -p");
        }
        if !several_threads {
            warnings.push("single-threaded test, -si ignored".into());
        }
    } else {
        if several_threads && target.thread_stride == 0 {
            warnings.push("target access pattern will not be sequential, consider -si".into());
        }
        if !several_threads && target.thread_stride > 0 {
            return refuse("-T has no effect unless multiple threads per target are used");
        }
    }
    Ok(())
}

fn check_distribution(target: &Target) -> Result<(), ProfileError> {
    let Some(distribution) = &target.distribution else { return Ok(()) };
    if distribution.ranges.is_empty() || distribution.ranges.len() > limits::RANGES {
        return refuse(format!("a distribution (-rd) has between 1 and {} ranges", limits::RANGES));
    }
    let (mut io, mut covered) = (0u32, 0u64);
    let last = distribution.ranges.len() - 1;
    for (index, range) in distribution.ranges.iter().enumerate() {
        if distribution.unit == DistributionUnit::Absolute
            && range.span < u64::from(target.block)
            && !(range.span == 0 && index == last)
        {
            return refuse(format!(
                "invalid random distribution target range {} - must be a minimum of the specified block size ({} bytes)",
                range.span, target.block
            ));
        }
        if io.saturating_add(range.io_percent) > 100 {
            return refuse(format!(
                "invalid random distribution IO% {}: can be at most {} - total must be <= 100%",
                range.io_percent,
                100 - io
            ));
        }
        io += range.io_percent;
        covered = match covered.checked_add(range.span) {
            Some(sum) => sum,
            None => return refuse("invalid random distribution: the target ranges overflow"),
        };
        if distribution.unit == DistributionUnit::Percent {
            if covered > 100 {
                return refuse(format!(
                    "invalid random distribution Target% {}: can be at most {} - total must be <= 100%",
                    range.span,
                    100 - (covered - range.span)
                ));
            }
            if covered == 100 && io < 100 {
                return refuse(format!(
                    "invalid random distribution: the target is covered with {}% IO left to distribute",
                    100 - io
                ));
            }
        }
    }
    if distribution.unit == DistributionUnit::Percent && covered != 100 {
        return refuse(format!("invalid random distribution span: Target% ({covered}%) must total 100%"));
    }
    if io == 0 {
        return refuse("invalid random distribution: no range has IO");
    }
    Ok(())
}
