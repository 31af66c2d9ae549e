//! A time span from its beginning to its outcome.

use std::fs;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use io_engine::placement;
use shard_runtime::Clock;
use spd_profile::{TimeSpan, WriteContent};
use spd_report::{Interval, OpenLoop, Operations, SpanOutcome, System};

use crate::backend::Backend;
use crate::control::{Control, Progress};
use crate::copy;
use crate::cpu::CpuTicks;
use crate::error::EngineError;
use crate::gate::Gate;
use crate::random::Random;
use crate::replay;
use crate::shared::{Assignment, Counters, Left, Shared, Window};
use crate::verify;
use crate::worker::Worker;

/// How often the caller's thread looks at the clock and at the run.
const TICK: Duration = Duration::from_millis(20);

/// Runs a time span against its opened targets and returns what was measured; `verify` is the number of the run when
/// what it writes is to be verified.
///
/// # Errors
/// When a thread cannot be set up. A run that began always ends with an outcome.
pub fn run_span(
    span: &TimeSpan,
    backend: &dyn Backend,
    system: &System,
    clock: &Arc<dyn Clock>,
    control: &dyn Control,
    verify: Option<u64>,
) -> Result<SpanOutcome, EngineError> {
    if span.copy {
        if verify.is_some() {
            return Err(EngineError::new(
                "--verify writes content of its own: it cannot be used with --copy",
            ));
        }
        return copy::run(span, backend, system, clock, control);
    }
    let sizes = backend.sizes();
    if verify.is_some() {
        check_verify(span, &sizes)?;
    }
    check_replay(span, &sizes, verify.is_some())?;
    let threads = span.thread_count() as usize;
    let interlocked: Vec<Arc<AtomicU64>> = span.targets.iter().map(|_| Arc::default()).collect();
    let shared = Shared {
        progress: (0..threads).map(|_| Counters::default()).collect(),
        stop: AtomicBool::new(false),
        failed: AtomicBool::new(false),
    };
    let source = if verify.is_some() { Vec::new() } else { source(span)? };
    let processors = processors(span)?;
    let intervals = if span.iops_intervals {
        (u64::from(span.duration) * 1000 / u64::from(span.interval_ms.max(1))) as usize
    } else {
        0
    };
    let assignments = assign(span, &sizes, &interlocked, &source, intervals, verify);
    let gate = Gate::default();
    // Scoped threads of their own: they block in the kernel for all of their life, nothing simulates them, and what they
    // borrow lives here.
    std::thread::scope(|scope| {
        let mut handles = Vec::new();
        let mut failed = None;
        for assignment in assignments {
            let number = assignment.thread;
            let cpu = processors.get(number % processors.len().max(1)).copied();
            let (shared, coming, clock) = (&shared, gate.expect(), clock.as_ref());
            let work = move || {
                let bound = cpu.map_or(Ok(()), |cpu| {
                    placement::bind_thread(cpu).map_err(|error| {
                        EngineError::new(format!("cannot bind a thread to CPU {cpu} (-a): {error}"))
                    })
                });
                let worker = bound.and_then(|()| Worker::new(assignment, backend, shared, clock));
                // All are set up, or not; then the caller says when the load begins.
                let start = coming.wait(worker.is_ok());
                let worker = worker?;
                Ok::<_, EngineError>(start.map(|start| worker.run(window(span, start))))
            };
            match std::thread::Builder::new().name(format!("load-{number}")).spawn_scoped(scope, work) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    failed = Some(EngineError::new(format!(
                        "thread {number} cannot be started: {error}; lower -t or -F"
                    )));
                    break;
                }
            }
        }
        // A thread that could not be started has dropped its way to the gate, which counts as failed there.
        let ready = gate.gathered(handles.len() + usize::from(failed.is_some()));
        let begin = if ready { control.release(clock.as_ref()) } else { None };
        gate.open(begin);
        let watched = match begin {
            Some(begin) => watch(window(span, begin), &shared, backend, clock.as_ref(), control),
            None => Watched { interrupted: ready, ..Watched::default() },
        };
        let mut left = Vec::new();
        for handle in handles {
            match handle.join() {
                Ok(Ok(each)) => left.extend(each),
                Ok(Err(error)) => drop(failed.get_or_insert(error)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(outcome(span, left, &watched, &sizes, system)),
        }
    })
}

/// Refuses a trace that does not fit, or what cannot be done with one.
fn check_replay(span: &TimeSpan, sizes: &[u64], verify: bool) -> Result<(), EngineError> {
    let (given, mut span) = (&span.targets, span.clone());
    let Some(summary) = replay::prepare_replay(&mut span)? else { return Ok(()) };
    if verify {
        return Err(EngineError::new(
            "--verify decides itself what is written where: it cannot be used with --replay",
        ));
    }
    for (target, size) in given.iter().zip(sizes) {
        if target.block < summary.largest {
            return Err(EngineError::new("the block is smaller than the trace's largest operation"));
        }
        let end = if target.max > 0 { target.max.min(*size) } else { *size };
        if target.base.checked_add(summary.end).is_none_or(|last| last > end) {
            return Err(EngineError::new(format!(
                "the trace reaches to byte {} from offset {}, and target '{}' has {end}: make it larger (-c{})",
                summary.end,
                target.base,
                target.path,
                target.base.saturating_add(summary.end)
            )));
        }
    }
    Ok(())
}

/// Refuses what cannot be verified.
fn check_verify(span: &TimeSpan, sizes: &[u64]) -> Result<(), EngineError> {
    if span.is_weighted() {
        return Err(EngineError::new("--verify cannot be used with -O outstanding requests per thread"));
    }
    for (index, (target, size)) in span.targets.iter().zip(sizes).enumerate() {
        if !target.mix.is_empty() {
            return Err(EngineError::new("--verify checks blocks of one size: it cannot be used with --mix"));
        }
        if span.targets.iter().take(index).any(|other| other.path == target.path) {
            return Err(EngineError::new(format!(
                "--verify: target '{}' is given twice, and its blocks can belong to one only",
                target.path
            )));
        }
        verify::check(target, *size)?;
    }
    Ok(())
}

fn window(span: &TimeSpan, start: u64) -> Window {
    let nanos = |seconds: u32| u64::from(seconds) * 1_000_000_000;
    let from = start + nanos(span.warm_up);
    let to = from + nanos(span.duration);
    Window { start, from, to, end: to + nanos(span.cool_down) }
}

/// The buffer that writes take their content from (`-Z<size>`); empty for none.
fn source(span: &TimeSpan) -> Result<Vec<u8>, EngineError> {
    let mut found: Option<&WriteContent> = None;
    for target in span.targets.iter().filter(|target| target.write_percent > 0) {
        match &target.content {
            content @ WriteContent::Source { .. } if found.is_none_or(|other| other == content) => {
                found = Some(content);
            }
            WriteContent::Source { .. } => {
                return Err(EngineError::new(
                    "targets of one time span have different write buffers (-Z<size>), which is not offered",
                ));
            }
            _ => {}
        }
    }
    let Some(WriteContent::Source { size, file }) = found else { return Ok(Vec::new()) };
    let uses = |content: &WriteContent| Some(content) == found;
    if span.targets.iter().any(|target| target.write_percent > 0 && !uses(&target.content)) {
        return Err(EngineError::new(
            "one target of the time span has a write buffer (-Z<size>) and another has not, which is not offered",
        ));
    }
    // Whole pages, so that every place in it suits direct I/O; the rest repeats the beginning.
    let mut buffer = vec![0; (*size as usize).next_multiple_of(4096)];
    let mut filled = 0;
    match file {
        None => {
            Random::new(u64::from(span.seed), u64::MAX).fill(&mut buffer);
            filled = buffer.len();
        }
        Some(path) => {
            let wrong = |error| EngineError::new(format!("cannot read '{path}' (-Z): {error}"));
            let mut reader = fs::File::open(path).map_err(wrong)?.take(*size);
            let mut rest = buffer.get_mut(..).unwrap_or_default();
            while let count @ 1.. = reader.read(rest).map_err(wrong)? {
                filled += count;
                rest = rest.get_mut(count..).unwrap_or_default();
            }
            if filled == 0 {
                return Err(EngineError::new(format!("'{path}' (-Z) is empty")));
            }
        }
    }
    while filled < buffer.len() {
        let count = filled.min(buffer.len() - filled);
        buffer.copy_within(..count, filled);
        filled += count;
    }
    Ok(buffer)
}

/// Processors that threads are bound to in turn; none when they are not bound.
fn processors(span: &TimeSpan) -> Result<Vec<usize>, EngineError> {
    if span.no_affinity {
        return Ok(Vec::new());
    }
    let allowed = placement::allowed_cpus().unwrap_or_default();
    if span.affinity.is_empty() {
        return Ok(allowed);
    }
    let wanted: Vec<usize> = span.affinity.iter().map(|each| usize::from(each.cpu)).collect();
    match wanted.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(cpu) => Err(EngineError::new(format!(
            "affinity assignment to group 0 cpu {cpu} not possible; this process may use CPUs {allowed:?}"
        ))),
        None => Ok(wanted),
    }
}

/// Which thread does what: with `-F` all threads use all targets, else each target has its own.
fn assign<'a>(
    span: &'a TimeSpan,
    sizes: &'a [u64],
    interlocked: &'a [Arc<AtomicU64>],
    source: &'a [u8],
    count_intervals: usize,
    verify: Option<u64>,
) -> Vec<Assignment<'a>> {
    let mut lists: Vec<Vec<(usize, u64, u32)>> = Vec::new();
    if span.threads > 0 {
        for thread in 0..span.threads {
            let targets = span.targets.iter().enumerate().filter_map(|(index, target)| {
                let chosen = target.thread_targets.iter().find(|(other, _)| *other == thread);
                let weight = match chosen {
                    Some((_, 0)) => target.weight,
                    Some((_, weight)) => *weight,
                    None if target.thread_targets.is_empty() => target.weight,
                    None => return None,
                };
                Some((index, u64::from(thread), weight))
            });
            lists.push(targets.collect());
        }
    } else {
        for (index, target) in span.targets.iter().enumerate() {
            lists.extend((0..target.threads).map(|number| vec![(index, u64::from(number), 1)]));
        }
    }
    let parts = lists.iter().map(|targets| targets.len() as u64).sum();
    let mut part = 0;
    let assignments = lists.into_iter().enumerate().map(|(thread, targets)| {
        let first = part;
        part += targets.len() as u64;
        Assignment {
            span,
            thread,
            targets,
            sizes,
            interlocked,
            part: first,
            parts,
            source,
            count_intervals,
            verify,
        }
    });
    assignments.collect()
}

/// What the caller's thread saw.
#[derive(Default)]
struct Watched {
    from: CpuTicks,
    to: CpuTicks,
    /// Nanoseconds that were measured.
    measured: u64,
    interrupted: bool,
    /// Why a target is no longer there.
    gone: Option<String>,
}

/// Takes the processors' times at the ends of the window, reports progress, and ends the run when it is told to.
fn watch(
    window: Window,
    shared: &Shared,
    backend: &dyn Backend,
    clock: &dyn Clock,
    control: &dyn Control,
) -> Watched {
    let mut watched = Watched::default();
    let (mut began, mut ended) = (false, false);
    let mut last = (clock.now().0, [0u64; 3]);
    loop {
        let now = clock.now().0;
        if !began && now >= window.from {
            began = true;
            watched.from = CpuTicks::now();
        }
        if !ended && now >= window.to {
            ended = true;
            watched.to = CpuTicks::now();
            watched.measured = window.to - window.from;
        }
        if now >= window.end {
            return watched;
        }
        watched.interrupted |= control.stop();
        if watched.interrupted || watched.gone.is_some() || shared.stop.load(Ordering::Relaxed) {
            shared.stop.store(true, Ordering::Relaxed);
            if began && !ended {
                watched.to = CpuTicks::now();
                watched.measured = now - window.from;
            }
            return watched;
        }
        if now.saturating_sub(last.0) >= 1_000_000_000 {
            let sum = |part: fn(&Counters) -> &AtomicU64| {
                shared.progress.iter().map(|each| part(each).load(Ordering::Relaxed)).sum::<u64>()
            };
            let sums = [sum(|each| &each.operations), sum(|each| &each.bytes), sum(|each| &each.latency)];
            let [operations, bytes, latency] =
                std::array::from_fn(|part| sums[part].saturating_sub(last.1[part]) as f64);
            let seconds = (now - last.0) as f64 / 1e9;
            control.progress(&Progress {
                elapsed: (now - window.start) as f64 / 1e9,
                whole: (window.end - window.start) as f64 / 1e9,
                measuring: (window.from..window.to).contains(&now),
                iops: operations / seconds,
                bytes_per_second: bytes / seconds,
                latency_ms: if operations > 0.0 { latency / operations / 1e6 } else { 0.0 },
                operations: shared
                    .progress
                    .iter()
                    .map(|each| each.operations.load(Ordering::Relaxed))
                    .collect(),
            });
            last = (now, sums);
            let after = (now as f64 - window.from as f64) / 1e9;
            let told = |why| format!("{why}, seen {after:.3}s after the measurement began");
            watched.gone = backend.gone().map(told);
        }
        let next = [window.from, window.to, window.end].into_iter().filter(|time| *time > now).min();
        let rest = Duration::from_nanos(next.unwrap_or(now) - now);
        std::thread::park_timeout(rest.min(TICK));
    }
}

fn outcome(
    span: &TimeSpan,
    left: Vec<Left>,
    watched: &Watched,
    sizes: &[u64],
    system: &System,
) -> SpanOutcome {
    let seconds = watched.measured as f64 / 1e9;
    let ids: Vec<u32> = system.cpus.iter().map(|cpu| cpu.id).collect();
    let complete = (watched.measured / 1_000_000 / u64::from(span.interval_ms.max(1))) as usize;
    let mut ended_early = left.iter().find_map(|each| each.broken.clone());
    ended_early = ended_early.or_else(|| watched.gone.clone());
    if ended_early.is_none() && watched.interrupted {
        ended_early = Some("interrupted".into());
    }
    let mut open: Option<OpenLoop> = None;
    let mut threads = Vec::new();
    let mut verified = None;
    for each in left {
        if let Some(part) = each.verify {
            verify::merge(verified.get_or_insert_default(), part);
        }
        if let Some(part) = each.open {
            let sum = open.get_or_insert(OpenLoop { rate: part.rate, ..OpenLoop::default() });
            sum.intended += part.intended;
            sum.late += part.late;
            sum.never_begun += part.never_begun;
        }
        let mut thread = each.outcome;
        for target in &mut thread.targets {
            let place = span.targets.iter().position(|other| other.path == target.path);
            target.size = place.and_then(|index| sizes.get(index)).copied().unwrap_or(0);
            for operations in [&mut target.read, &mut target.write] {
                cut(operations, complete);
            }
        }
        threads.push(thread);
    }
    SpanOutcome {
        seconds,
        cpus: watched.to.since(&watched.from, &ids),
        threads,
        ended_early,
        open_loop: open,
        verify: verified,
        agents: Vec::new(),
    }
}

/// Leaves out intervals that were not measured to their end.
fn cut(operations: &mut Operations, complete: usize) {
    let intervals: &mut Vec<Interval> = &mut operations.intervals;
    intervals.truncate(complete);
}
