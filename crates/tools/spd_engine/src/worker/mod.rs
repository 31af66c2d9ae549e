//! One thread of a run: what it keeps, and its loop.

mod leave;
mod replaying;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shard_runtime::Clock;
use spd_profile::{Target, TimeSpan, WriteContent};
use spd_report::{Interval, Operations, WaitStatistics};

use crate::backend::{Data, Done, Lane, LaneFailure, LanePlan, Op, SlotPlan};
use crate::error::EngineError;
use crate::offsets::{Choice, Offsets};
use crate::pacing::Pacing;
use crate::random::Random;
use crate::shared::{Assignment, Left, Shared, Window};
use crate::verify::Verifier;

use replaying::Replaying;

/// Failures one after the other, without a success, after which a thread gives up.
const HOPELESS: u32 = 1000;
/// The same for slow loads: this many failures, when they have gone on for this long, in nanoseconds.
const HOPELESS_SLOW: (u32, u64) = (8, 30_000_000_000);
/// Longest wait for what is outstanding at the end, in nanoseconds.
const DRAIN: u64 = 30_000_000_000;
/// Longest wait without a look at the clock, in nanoseconds: how late a stop is seen.
const LOOK: u64 = 100_000_000;
/// Distance of the places in a source at which writes begin: what direct I/O asks of memory.
const SOURCE_STEP: usize = 4096;

/// One target of this thread.
struct Stream<'a> {
    target: &'a Target,
    offsets: Offsets,
    pacing: Pacing,
    /// Which of the pools of free slots it takes from, and its weight there.
    pool: usize,
    weight: u32,
    first_slot: usize,
    read: Operations,
    write: Operations,
    verifier: Option<Verifier>,
    replay: Option<Replaying>,
}

/// What is known of a slot's operation.
#[derive(Clone, Copy, Default)]
struct Slot {
    stream: usize,
    start: u64,
    offset: u64,
    len: u32,
    is_write: bool,
}

/// A thread with its lane, ready to run.
pub(crate) struct Worker<'a> {
    span: &'a TimeSpan,
    shared: &'a Shared,
    clock: &'a dyn Clock,
    thread: usize,
    streams: Vec<Stream<'a>>,
    /// Slots that are free, for each pool.
    pools: Vec<Vec<usize>>,
    slots: Vec<Slot>,
    /// Slots queued since the last wait.
    queued: Vec<usize>,
    done: Vec<Done>,
    lane: Box<dyn Lane>,
    random: Random,
    source_places: usize,
    window: Window,
    failures_in_a_row: u32,
    /// When the first of them ended.
    failing_since: u64,
    waits: WaitStatistics,
    outstanding: usize,
    /// When an operation last ended well, or the first one after none was outstanding began.
    last_good: u64,
    /// The longest time without one, in nanoseconds.
    longest_stall: u64,
    /// Why the thread ended before its time.
    broken: Option<String>,
}

impl<'a> Worker<'a> {
    /// Sets a thread up: its lane, buffers and counters. On the thread itself.
    pub(crate) fn new(
        assignment: Assignment<'a>,
        backend: &dyn crate::Backend,
        shared: &'a Shared,
        clock: &'a dyn Clock,
    ) -> Result<Self, EngineError> {
        let span = assignment.span;
        let mut random = Random::new(u64::from(span.seed), assignment.thread as u64 + 1);
        let (mut streams, mut pools, mut plans) = (Vec::new(), Vec::new(), Vec::<SlotPlan>::new());
        if span.is_weighted() {
            pools.push((0..span.requests as usize).collect::<Vec<_>>());
            let all = assignment.targets.iter().filter_map(|(index, ..)| span.targets.get(*index));
            let largest = all.map(|target| target.block as usize).max().unwrap_or(0);
            plans.resize(span.requests as usize, SlotPlan { read: largest, write: largest });
        }
        for (index, number, weight) in &assignment.targets {
            let Some(target) = span.targets.get(*index) else { continue };
            let size = assignment.sizes.get(*index).copied().unwrap_or(0);
            let (pool, first_slot) = if span.is_weighted() {
                (0, 0)
            } else {
                let first = plans.len();
                let verifies = assignment.verify.is_some();
                let writes = target.write_percent > 0 && assignment.source.is_empty() || verifies;
                let reads = target.write_percent < 100 || verifies;
                let (reads, writes) = (u32::from(reads) * target.block, u32::from(writes) * target.block);
                let plan = SlotPlan { read: reads as usize, write: writes as usize };
                plans.resize(first + target.requests as usize, plan);
                pools.push((first..plans.len()).rev().collect());
                (pools.len() - 1, first)
            };
            let unshared = Arc::default();
            let shared_offset = assignment.interlocked.get(*index).unwrap_or(&unshared);
            let slots = plans.len() - first_slot;
            let threads = if span.threads > 0 { span.threads } else { target.threads };
            let verifier =
                assignment.verify.map(|run| Verifier::new(target, size, run, *number, u64::from(threads)));
            let intervals = vec![Interval::default(); assignment.count_intervals];
            streams.push(Stream {
                target,
                offsets: Offsets::new(target, size, *number, slots, shared_offset),
                pacing: Pacing::Closed,
                pool,
                weight: *weight,
                first_slot,
                read: Operations { intervals: intervals.clone(), ..Operations::default() },
                write: Operations { intervals, ..Operations::default() },
                verifier,
                replay: span.replay.as_ref().map(Replaying::open).transpose()?,
            });
        }
        let indices: Vec<usize> = assignment.targets.iter().map(|(index, ..)| *index).collect();
        let plan = LanePlan {
            thread: assignment.thread,
            targets: &indices,
            slots: &plans,
            source: assignment.source,
        };
        let mut lane = backend.lane(&plan)?;
        for stream in &streams {
            let slots = pools.get(stream.pool).map_or(&[][..], Vec::as_slice);
            slots.iter().for_each(|slot| fill(lane.write_buffer(*slot), &stream.target.content));
        }
        let source_places = assignment.source.len() / SOURCE_STEP;
        // The open loop is divided among all streams of all threads; the window is known when the run begins.
        let (part, parts) = (assignment.part, assignment.parts);
        if let Some((rate, arrival)) = span.rate {
            for (index, stream) in streams.iter_mut().enumerate() {
                stream.pacing = Pacing::open(rate, arrival, part + index as u64, parts, 0, &mut random);
            }
        }
        Ok(Self {
            span,
            shared,
            clock,
            thread: assignment.thread,
            streams,
            pools,
            slots: vec![Slot::default(); plans.len()],
            queued: Vec::with_capacity(plans.len()),
            done: Vec::with_capacity(plans.len()),
            lane,
            random,
            source_places,
            window: Window { start: 0, from: 0, to: 0, end: 0 },
            failures_in_a_row: 0,
            failing_since: 0,
            waits: WaitStatistics::default(),
            outstanding: 0,
            last_good: 0,
            longest_stall: 0,
            broken: None,
        })
    }

    /// Generates load in `window`, then waits for what is still outstanding.
    pub(crate) fn run(mut self, window: Window) -> Left {
        self.window = window;
        for stream in &mut self.streams {
            match &mut stream.pacing {
                Pacing::Open(open) => open.begin_at(window.start),
                pacing => *pacing = Pacing::closed(stream.target, window.start),
            }
        }
        loop {
            let now = self.clock.now().0;
            if now >= window.end || self.shared.stop.load(Ordering::Relaxed) || self.broken.is_some() {
                break;
            }
            let due = self.begin(now);
            self.wait(due);
        }
        self.drain();
        if self.broken.is_none() {
            self.sweep();
        }
        self.leave()
    }

    /// Waits for what is outstanding; a target that answers nothing is not waited for for ever.
    fn drain(&mut self) {
        let limit = self.clock.now().0.saturating_add(DRAIN);
        while self.outstanding > 0 && self.clock.now().0 < limit && self.wait(None) {}
    }

    /// Reads once more all that was written, if it is verified.
    fn sweep(&mut self) {
        for index in 0..self.streams.len() {
            while let Some(stream) = self.streams.get_mut(index) {
                let Some(verifier) = &mut stream.verifier else { break };
                let Some(slot) = self.pools.get_mut(stream.pool).and_then(Vec::pop) else {
                    if !self.wait(None) {
                        return;
                    }
                    continue;
                };
                let Some(offset) = verifier.sweep() else { break };
                if let Some(kept) = self.slots.get_mut(slot) {
                    *kept =
                        Slot { stream: index, start: 0, offset, len: stream.target.block, is_write: false };
                }
                self.queued.push(slot);
                let op = Op { slot, target: index, data: Data::Read, offset, len: stream.target.block };
                if self.outstanding == 0 {
                    self.last_good = self.clock.now().0;
                }
                match self.lane.queue(&op) {
                    Ok(()) => self.outstanding += 1,
                    Err(error) => return self.give_up(format!("thread {}: {error}", self.thread)),
                }
            }
        }
        self.drain();
    }

    /// Begins all operations that may begin; returns when the next one may, if that is what keeps it.
    fn begin(&mut self, now: u64) -> Option<u64> {
        if self.span.is_weighted() {
            while let Some(slot) = self.pools.first_mut().and_then(Vec::pop) {
                let stream = self.weighted();
                if !self.queue(stream, slot, now) {
                    break;
                }
            }
            return None;
        }
        let mut next: Option<u64> = None;
        for index in 0..self.streams.len() {
            if self.span.replay.is_some() {
                let due = self.replay(index, now);
                next = next.into_iter().chain(due).min();
                continue;
            }
            while let Some(stream) = self.streams.get_mut(index) {
                if let Some(due) = stream.pacing.due(now) {
                    next = Some(next.map_or(due, |other: u64| other.min(due)));
                    break;
                }
                let Some(slot) = self.pools.get_mut(stream.pool).and_then(Vec::pop) else {
                    stream.pacing.starve(now);
                    break;
                };
                if !self.queue(index, slot, now) {
                    break;
                }
            }
        }
        next
    }

    /// A stream, by weight.
    fn weighted(&mut self) -> usize {
        let sum: u64 = self.streams.iter().map(|stream| u64::from(stream.weight)).sum();
        let mut at = self.random.below(sum.max(1));
        let chosen = self.streams.iter().position(|stream| {
            let inside = at < u64::from(stream.weight);
            at = at.saturating_sub(u64::from(stream.weight));
            inside
        });
        chosen.unwrap_or(0)
    }

    /// Begins the next operation of a stream; `false` when there is none that may begin.
    fn queue(&mut self, index: usize, slot: usize, now: u64) -> bool {
        let Some(stream) = self.streams.get_mut(index) else { return false };
        let in_stream = slot.saturating_sub(stream.first_slot);
        let Choice { mut offset, len, mut is_write } = stream.offsets.next(in_stream, &mut self.random);
        if let Some(verifier) = &mut stream.verifier {
            let Some(chosen) = verifier.choose(offset, is_write) else {
                // All blocks of this thread have an operation already.
                if let Some(pool) = self.pools.get_mut(stream.pool) {
                    pool.push(slot);
                }
                return false;
            };
            (offset, is_write) = chosen;
        }
        let measured = (self.window.from, self.window.to);
        let intended = stream.pacing.begin(now, measured, &mut self.random);
        self.issue(index, slot, Choice { offset, len, is_write }, intended, now);
        true
    }

    /// Gives an operation to the lane.
    fn issue(&mut self, index: usize, slot: usize, choice: Choice, intended: Option<u64>, now: u64) {
        let Choice { offset, len, is_write } = choice;
        let Some(stream) = self.streams.get_mut(index) else { return };
        let data = match is_write {
            false => Data::Read,
            true if stream.verifier.is_some() => {
                if let Some(verifier) = &mut stream.verifier {
                    verifier.fill(self.lane.write_buffer(slot), offset);
                }
                Data::Write
            }
            true if self.source_places > 0 => {
                let places = self.source_places.saturating_sub((len as usize).div_ceil(SOURCE_STEP)) + 1;
                Data::WriteSource(self.random.below(places as u64) as usize * SOURCE_STEP)
            }
            true => {
                if self.span.random_writes {
                    let random = &mut self.random;
                    random.fill(self.lane.write_buffer(slot));
                }
                Data::Write
            }
        };
        // Without an intended time, the clock is read right before the kernel is entered: once for a batch.
        let at_once = self.lane.begins_at_once();
        let start = intended.unwrap_or_else(|| if at_once { self.clock.now().0 } else { 0 });
        if let Some(kept) = self.slots.get_mut(slot) {
            *kept = Slot { stream: index, start, offset, len, is_write };
        }
        if intended.is_none() && !at_once {
            self.queued.push(slot);
        }
        if self.outstanding == 0 {
            self.last_good = now;
        }
        match self.lane.queue(&Op { slot, target: index, data, offset, len }) {
            Ok(()) => self.outstanding += 1,
            Err(error) => self.give_up(format!("thread {}: {error}", self.thread)),
        }
    }

    /// Waits for ends and counts them; `false` when the lane is broken.
    fn wait(&mut self, due: Option<u64>) -> bool {
        let before = self.clock.now().0;
        for slot in self.queued.drain(..) {
            if let Some(slot) = self.slots.get_mut(slot) {
                slot.start = before;
            }
        }
        let longest = due.unwrap_or(u64::MAX).saturating_sub(before).min(LOOK);
        if due.is_some() {
            self.waits.throttle_waits += 1;
            self.waits.throttle_sleeps += u64::from(self.outstanding == 0);
        } else {
            self.waits.waits += 1;
        }
        self.done.clear();
        if let Err(error) = self.lane.wait(Some(Duration::from_nanos(longest)), &mut self.done) {
            self.give_up(format!("thread {}: {error}", self.thread));
            return false;
        }
        let found = self.done.len();
        if found > 1 || due.is_some() {
            self.waits.lookasides += 1;
            if let Some(count) = self.waits.found.get_mut(found.min(7)) {
                *count += 1;
            }
        }
        if found > 0 {
            self.count();
        }
        true
    }

    /// Counts what has ended, at one moment for all of it.
    fn count(&mut self) {
        let now = self.clock.now().0;
        let measured = (self.window.from..self.window.to).contains(&now);
        let (mut operations, mut bytes, mut latencies) = (0, 0, 0);
        self.outstanding = self.outstanding.saturating_sub(self.done.len());
        for index in 0..self.done.len() {
            let Some(done) = self.done.get_mut(index) else { break };
            let (slot, result) = (done.slot, std::mem::replace(&mut done.result, Ok(())));
            let Some(kept) = self.slots.get(slot).copied() else { continue };
            let Some(stream) = self.streams.get_mut(kept.stream) else { continue };
            if let Some(pool) = self.pools.get_mut(stream.pool) {
                pool.push(slot);
            }
            if let Some(verifier) = &mut stream.verifier {
                match (kept.is_write, &result) {
                    (true, _) => verifier.written(kept.offset, result.is_ok()),
                    (false, Ok(())) => verifier.check(self.lane.read_buffer(slot), kept.offset),
                    (false, Err(_)) => verifier.unread(kept.offset),
                }
            }
            let counted = if kept.is_write { &mut stream.write } else { &mut stream.read };
            match result {
                Ok(()) => {
                    self.longest_stall = self.longest_stall.max(now.saturating_sub(self.last_good));
                    self.last_good = now;
                    let nanos = now.saturating_sub(kept.start);
                    self.failures_in_a_row = 0;
                    operations += 1;
                    bytes += u64::from(kept.len);
                    latencies += nanos;
                    if measured {
                        counted.count += 1;
                        counted.bytes += u64::from(kept.len);
                        counted.latency.record(nanos);
                        if !counted.intervals.is_empty() {
                            let interval = u64::from(self.span.interval_ms.max(1)) * 1_000_000;
                            let at = (now - self.window.from) / interval;
                            if let Some(interval) = counted.intervals.get_mut(at as usize) {
                                interval.record(nanos);
                            }
                        }
                    }
                }
                Err(failure) => {
                    counted.errors += 1;
                    let after = (now as f64 - self.window.from as f64) / 1e9;
                    counted.first_error.get_or_insert_with(|| (after, failure.text()));
                    if self.failures_in_a_row == 0 {
                        self.failing_since = now;
                    }
                    self.failures_in_a_row += 1;
                    let (few, long) = HOPELESS_SLOW;
                    let is_long = now.saturating_sub(self.failing_since) >= long;
                    let is_hopeless =
                        self.failures_in_a_row >= HOPELESS || self.failures_in_a_row >= few && is_long;
                    if failure.is_final() || is_hopeless {
                        let path = stream.target.path.clone();
                        self.give_up(reason(&path, kept.is_write, after, &failure));
                    }
                }
            }
        }
        if let Some(counters) = self.shared.progress.get(self.thread) {
            // One writer: a store is enough.
            let add = |counter: &AtomicU64, by: u64| {
                counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
            };
            add(&counters.operations, operations);
            add(&counters.bytes, bytes);
            add(&counters.latency, latencies);
        }
    }

    fn give_up(&mut self, why: String) {
        // What nobody waits for any longer has stalled until now.
        if self.outstanding > 0 {
            let stalled = self.clock.now().0.saturating_sub(self.last_good);
            self.longest_stall = self.longest_stall.max(stalled);
        }
        self.broken.get_or_insert(why);
        self.shared.failed.store(true, Ordering::Relaxed);
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

fn reason(path: &str, is_write: bool, after: f64, failure: &LaneFailure) -> String {
    let kind = if is_write { "a write to" } else { "a read of" };
    format!("{kind} '{path}' failed {after:.3}s after the measurement began: {}", failure.text())
}

/// What a write buffer holds when it is not filled for each write.
fn fill(buffer: &mut [u8], content: &WriteContent) {
    match content {
        WriteContent::Zero => buffer.fill(0),
        _ => buffer.iter_mut().enumerate().for_each(|(index, byte)| *byte = index as u8),
    }
}
