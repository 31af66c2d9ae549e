//! Runs on real files and on a lane in memory that fails as it is told.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shard_runtime::{Clock, Monotonic, SystemClock, WallTime};
use spd_profile::{Arrival, CacheMode, Target, TimeSpan, WriteContent};
use spd_report::{SpanOutcome, System};

use crate::*;

mod at_once;
mod copy;
mod replay;
mod verify;

/// Ends a run never, or once so many operations were begun.
struct Until(Option<(Arc<AtomicU64>, u64)>);

impl Control for Until {
    fn stop(&self) -> bool {
        self.0.as_ref().is_some_and(|(count, limit)| count.load(Ordering::Relaxed) >= *limit)
    }
    fn progress(&self, _: &Progress) {}
}

struct Yes;

impl Confirm for Yes {
    fn may_destroy(&self, _: &str) -> bool {
        true
    }
    fn made(&self, _: &str, _: u64, _: u64) -> bool {
        true
    }
}

struct No;

impl Confirm for No {
    fn may_destroy(&self, _: &str) -> bool {
        false
    }
    fn made(&self, _: &str, _: u64, _: u64) -> bool {
        true
    }
}

fn run(span: &TimeSpan, backend: &dyn Backend, control: &Until) -> SpanOutcome {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    run_span(span, backend, &System::default(), &clock, control, None).unwrap()
}

fn span(target: Target) -> TimeSpan {
    TimeSpan { duration: 1, warm_up: 0, latency: true, targets: vec![target], ..TimeSpan::default() }
}

/// Makes the target's file in `dir` and runs the span on it.
fn on_file(dir: &tempfile::TempDir, mut span: TimeSpan) -> (SpanOutcome, String) {
    let path = dir.path().join("f").display().to_string();
    span.targets.iter_mut().for_each(|target| target.path.clone_from(&path));
    let paths = vec![path.clone(); span.targets.len()];
    prepare(&span.targets, &paths, Preparation::default(), &Yes).unwrap();
    let backend = LocalBackend::open(&span.targets, &paths, false).unwrap();
    (run(&span, &backend, &Until(None)), path)
}

#[test]
fn reads_and_writes_of_a_file_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let target = Target {
        block: 4096,
        create: Some(1 << 20),
        random_percent: 100,
        write_percent: 50,
        threads: 2,
        requests: 4,
        ..Target::new("")
    };
    let span = TimeSpan { iops_intervals: true, interval_ms: 100, ..span(target) };
    let (outcome, _) = on_file(&dir, span);
    let (read, write) = outcome.sum();
    assert!(outcome.ended_early.is_none() && read.errors + write.errors == 0, "{outcome:?}");
    assert!(read.count > 0 && write.count > 0);
    assert_eq!(read.bytes, read.count * 4096);
    assert_eq!(read.latency.count(), read.count);
    assert_eq!((outcome.threads.len(), read.intervals.len()), (2, 10));
    assert_eq!(read.intervals.iter().map(|each| each.count).sum::<u64>(), read.count);
    assert_eq!(outcome.threads[0].targets[0].size, 1 << 20);
}

#[test]
fn what_is_written_is_what_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::write(&source, [0xabu8; 5000]).unwrap();
    let pattern: Vec<u8> = (0..8192).map(|index| index as u8).collect();
    for (content, random, expected) in [
        (WriteContent::Zero, false, Some(vec![0; 8192])),
        (WriteContent::Sequential, false, Some(pattern)),
        (
            WriteContent::Source { size: 16_384, file: Some(source.display().to_string()) },
            false,
            Some(vec![0xab; 8192]),
        ),
        (WriteContent::Source { size: 65_536, file: None }, false, None),
        (WriteContent::Sequential, true, None),
    ] {
        let target = Target {
            block: 8192,
            create: Some(8192 * 4),
            write_percent: 100,
            content: content.clone(),
            ..Target::new("")
        };
        let (outcome, path) = on_file(&dir, TimeSpan { random_writes: random, ..span(target) });
        assert!(outcome.sum().1.count > 4, "{content:?}");
        let file = std::fs::read(path).unwrap();
        for block in file.chunks(8192) {
            match &expected {
                Some(expected) => assert_eq!(block, expected, "{content:?}"),
                None => {
                    // Random: all values occur, none is frequent.
                    let mut counts = [0; 256];
                    block.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
                    assert!(counts.iter().all(|count| (1..120).contains(count)), "{content:?}");
                }
            }
        }
    }
}

#[test]
fn threads_share_targets_by_weight() {
    let dir = tempfile::tempdir().unwrap();
    let target = |weight, write_percent| Target {
        block: 4096,
        create: Some(1 << 20),
        random_percent: 100,
        weight,
        write_percent,
        content: WriteContent::Zero,
        ..Target::new("")
    };
    // Weights of 9 to 1, told apart by the size of blocks.
    let heavy = target(9, 0);
    let light = Target { block: 8192, ..target(1, 0) };
    let span = TimeSpan { threads: 2, requests: 8, targets: vec![heavy, light], ..span(target(1, 0)) };
    let (outcome, _) = on_file(&dir, span);
    let of = |index: usize| outcome.threads.iter().map(|each| each.targets[index].read.count).sum::<u64>();
    let share = of(1) as f64 / (of(0) + of(1)) as f64;
    assert!((0.05..0.15).contains(&share), "{share}");
}

#[test]
fn limits_and_open_loops_keep_their_rate() {
    let dir = tempfile::tempdir().unwrap();
    let base = Target { block: 4096, create: Some(1 << 20), requests: 8, ..Target::new("") };
    let throttled = Target { throughput: Some(spd_profile::Throughput::Iops(300)), ..base.clone() };
    let (outcome, _) = on_file(&dir, span(throttled));
    let count = outcome.sum().0.count;
    assert!(count <= 301, "{count}");
    for arrival in [Arrival::Even, Arrival::Poisson] {
        let target = Target { threads: 2, ..base.clone() };
        let span = TimeSpan { rate: Some((500.0, arrival)), ..span(target) };
        let open = on_file(&dir, span).0.open_loop.unwrap();
        let tolerance = if arrival == Arrival::Even { 2 } else { 120 };
        assert!(open.intended.abs_diff(500) <= tolerance, "{open:?}");
    }
}

#[test]
fn nothing_foreign_is_lost_without_consent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("theirs").display().to_string();
    std::fs::write(&path, [7; 8192]).unwrap();
    let target = |create, write_percent| Target { create, write_percent, ..Target::new(&path) };
    for (target, verify) in
        [(target(None, 1), false), (target(Some(4096), 0), false), (target(None, 0), true)]
    {
        let how = Preparation { verify, sparse: false };
        let why = prepare(&[target], std::slice::from_ref(&path), how, &No).unwrap_err();
        assert!(why.0.contains("not made by this tool"), "{why}");
        assert_eq!(std::fs::read(&path).unwrap(), [7; 8192]);
    }
    // Reading needs no consent.
    prepare(&[target(None, 0)], std::slice::from_ref(&path), Preparation::default(), &No).unwrap();
}

#[test]
fn a_full_disk_leaves_no_half_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f").display().to_string();
    let target = Target { create: Some(1 << 60), ..Target::new(&path) };
    let why = prepare(&[target], std::slice::from_ref(&path), Preparation::default(), &Yes).unwrap_err();
    assert!(why.0.contains("cannot make") && !std::path::Path::new(&path).exists(), "{why}");
}

#[test]
fn what_direct_io_cannot_do_is_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = dir.path().join("f").display().to_string();
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let base = Target { block: 4096, cache: CacheMode::DisableOsCache, ..Target::new(&path) };
    for (target, part) in [
        (Target { block: 1000, ..base.clone() }, "block size -b"),
        (Target { alignment: Some(100), ..base.clone() }, "alignment -r or stride -s"),
        (Target { base: 100, ..base.clone() }, "offset -B"),
        (Target { max: 2048, ..base.clone() }, "too small"),
    ] {
        match LocalBackend::open(&[target], std::slice::from_ref(&path), false) {
            Err(why) => assert!(why.0.contains(part) || why.0.contains("cannot do unbuffered"), "{why}"),
            Ok(_) => panic!("{part}"),
        }
    }
}

/// A target that answers at once, in order, and fails as it is told.
struct Memory {
    size: u64,
    begun: Arc<AtomicU64>,
    /// Every n-th operation fails with this error.
    fails: Option<(u64, i32)>,
    /// The first wait of a lane takes so long.
    slow: Duration,
}

struct MemoryLane {
    queue: VecDeque<usize>,
    begun: Arc<AtomicU64>,
    fails: Option<(u64, i32)>,
    slow: Duration,
    buffer: Vec<u8>,
}

impl Backend for Memory {
    fn sizes(&self) -> Vec<u64> {
        vec![self.size]
    }
    fn lane(&self, _: &LanePlan<'_>) -> Result<Box<dyn Lane>, EngineError> {
        Ok(Box::new(MemoryLane {
            queue: VecDeque::new(),
            begun: Arc::clone(&self.begun),
            fails: self.fails,
            slow: self.slow,
            buffer: Vec::new(),
        }))
    }
}

impl Lane for MemoryLane {
    fn read_buffer(&mut self, _: usize) -> &mut [u8] {
        &mut self.buffer
    }
    fn write_buffer(&mut self, _: usize) -> &mut [u8] {
        &mut self.buffer
    }
    fn queue(&mut self, op: &Op) -> io::Result<()> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.queue.push_back(op.slot);
        Ok(())
    }
    fn wait(&mut self, timeout: Option<Duration>, done: &mut Vec<Done>) -> io::Result<()> {
        let clock = SystemClock::new();
        while clock.now().0 < self.slow.as_nanos() as u64 {
            std::thread::park_timeout(self.slow);
        }
        self.slow = Duration::ZERO;
        if self.queue.is_empty() {
            std::thread::park_timeout(timeout.unwrap_or_default().min(Duration::from_millis(10)));
            return Ok(());
        }
        let number = self.begun.load(Ordering::Relaxed);
        for (index, slot) in self.queue.drain(..).enumerate() {
            let fails = self.fails.filter(|(every, _)| (number + index as u64).is_multiple_of(*every));
            let result = fails.map_or(Ok(()), |(_, code)| Err(LaneFailure::System(code)));
            done.push(Done { slot, result });
        }
        Ok(())
    }
}

fn memory(fails: Option<(u64, i32)>, slow_ms: u64) -> Memory {
    Memory { size: 1 << 20, begun: Arc::default(), fails, slow: Duration::from_millis(slow_ms) }
}

#[test]
fn errors_are_counted_and_the_run_goes_on() {
    let outcome = run(&span(Target::new("m")), &memory(Some((10, libc::EIO)), 0), &Until(None));
    let (read, _) = outcome.sum();
    assert!(read.errors > 0 && read.count > read.errors, "{} of {}", read.errors, read.count);
    assert!(outcome.ended_early.is_none());
    assert!(read.first_error.unwrap().1.contains("Input/output error"));
}

/// Time that runs a hundred times as fast.
struct Hurried(SystemClock);

impl Clock for Hurried {
    fn now(&self) -> Monotonic {
        Monotonic(self.0.now().0 * 100)
    }
    fn wall(&self) -> WallTime {
        self.0.wall()
    }
}

#[test]
fn failures_that_go_on_end_a_slow_run_too() {
    let clock: Arc<dyn Clock> = Arc::new(Hurried(SystemClock::new()));
    // One in a second: a thousand of them would take longer than the run.
    let span = TimeSpan { duration: 600, rate: Some((1.0, Arrival::Even)), ..span(Target::new("m")) };
    let (memory, control) = (memory(Some((1, libc::EIO)), 0), Until(None));
    let outcome = run_span(&span, &memory, &System::default(), &clock, &control, None).unwrap();
    let why = outcome.ended_early.clone().unwrap();
    assert!(why.contains("a read of 'm' failed") && why.contains("Input/output error"), "{why}");
    assert!(outcome.seconds < 600.0 && outcome.sum().0.errors >= 8, "{outcome:?}");
}

#[test]
fn a_target_that_is_gone_ends_the_run_with_what_was_measured() {
    let target = Target { write_percent: 100, ..Target::new("m") };
    let span = TimeSpan { duration: 3600, ..span(target) };
    let outcome = run(&span, &memory(Some((1000, libc::ENOSPC)), 0), &Until(None));
    let (_, write) = outcome.sum();
    let why = outcome.ended_early.unwrap();
    assert!(why.contains("a write to 'm' failed") && why.contains("No space left"), "{why}");
    assert!(write.count > 0 && outcome.seconds < 3600.0);
}

#[test]
fn a_stop_ends_the_run_with_what_was_measured() {
    let memory = memory(None, 0);
    let control = Until(Some((Arc::clone(&memory.begun), 1000)));
    let outcome = run(&TimeSpan { duration: 3600, ..span(Target::new("m")) }, &memory, &control);
    assert_eq!(outcome.ended_early.as_deref(), Some("interrupted"));
    assert!(outcome.sum().0.count > 0 && outcome.seconds > 0.0 && outcome.seconds < 3600.0);
}

/// Coordinated omission: a closed loop sees one slow operation, an open one all that should have begun meanwhile.
#[test]
fn an_open_loop_sees_what_a_closed_one_hides() {
    let target = Target { requests: 1, ..Target::new("m") };
    let closed = run(&span(target.clone()), &memory(None, 300), &Until(None)).sum().0.latency;
    let open = TimeSpan { rate: Some((1000.0, Arrival::Even)), ..span(target) };
    let open = run(&open, &memory(None, 300), &Until(None)).sum().0.latency;
    // The first operation takes 300 ms, all others nothing.
    assert!(closed.max() >= 300_000_000 && open.max() >= 300_000_000);
    assert!(closed.percentile(0.9) < 50_000_000, "{}", closed.percentile(0.9));
    assert!(open.percentile(0.85) > 50_000_000, "{}", open.percentile(0.85));
}

/// Deletes a file when the first second is over.
struct Deletes(String);

impl Control for Deletes {
    fn stop(&self) -> bool {
        false
    }
    fn progress(&self, _: &Progress) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_deleted_file_ends_the_run_with_what_was_measured() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f").display().to_string();
    let target = Target { block: 4096, create: Some(1 << 20), random_percent: 100, ..Target::new(&path) };
    // Longer than anybody waits: a run that does not see it ends, too.
    let span = TimeSpan { duration: 60, ..span(target) };
    let paths = [path.clone()];
    prepare(&span.targets, &paths, Preparation::default(), &Yes).unwrap();
    let backend = LocalBackend::open(&span.targets, &paths, false).unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let outcome =
        run_span(&span, &backend, &System::default(), &clock, &Deletes(path.clone()), None).unwrap();
    let why = outcome.ended_early.clone().unwrap();
    assert!(why.starts_with(&format!("target '{path}' was deleted, seen ")), "{why}");
    assert!(outcome.seconds > 0.0 && outcome.seconds < 60.0 && outcome.sum().0.count > 0);
}
