//! A file copy as a workload: so many pieces at once, each read from the first target and then written to the second.

use std::sync::Arc;
use std::time::Duration;

use shard_runtime::Clock;
use spd_profile::TimeSpan;
use spd_report::{Interval, Operations, SpanOutcome, System, TargetOutcome, ThreadOutcome, WaitStatistics};

use crate::backend::{Backend, Done, LaneFailure};
use crate::control::{Control, Progress};
use crate::cpu::CpuTicks;
use crate::ends::Ends;
use crate::error::EngineError;

/// Longest wait without a look at the clock: how late a stop is seen.
const LOOK: Duration = Duration::from_millis(100);
/// Longest wait for what is outstanding at the end, in nanoseconds.
const DRAIN: u64 = 30_000_000_000;
const SECOND: u64 = 1_000_000_000;

/// A piece on its way.
#[derive(Clone, Copy, Default)]
struct Piece {
    offset: u64,
    len: u32,
    start: u64,
    is_write: bool,
}

struct Copy<'a> {
    span: &'a TimeSpan,
    clock: &'a dyn Clock,
    ends: Ends,
    pieces: Vec<Piece>,
    free: Vec<usize>,
    done: Vec<Done>,
    outstanding: usize,
    /// Where the next piece begins, and where the file ends.
    next: u64,
    end: u64,
    begin: u64,
    read: Operations,
    write: Operations,
    broken: Option<String>,
}

/// Copies the first target of `span` over the second.
pub(crate) fn run(
    span: &TimeSpan,
    backend: &dyn Backend,
    system: &System,
    clock: &Arc<dyn Clock>,
    control: &dyn Control,
) -> Result<SpanOutcome, EngineError> {
    let sizes = backend.sizes();
    let ([from, to], [size, room]) = (span.targets.as_slice(), sizes.as_slice()) else {
        return Err(EngineError::new("--copy needs two targets: from, to"));
    };
    if room < size {
        return Err(EngineError::new(format!(
            "'{}' has {size} bytes and '{}' only {room}: make both with -c, or the second one larger",
            from.path, to.path
        )));
    }
    let direct = span.targets.iter().any(|target| target.cache == spd_profile::CacheMode::DisableOsCache);
    if direct && !size.is_multiple_of(4096) {
        return Err(EngineError::new(format!(
            "'{}' has {size} bytes, whose last piece unbuffered I/O cannot copy: leave out -Su, -Sh, -S or -h",
            from.path
        )));
    }
    let slots = from.requests as usize;
    let ends = Ends::open(backend, slots, from.block as usize)?;
    let Some(begin) = control.release(clock.as_ref()) else {
        return Ok(SpanOutcome { ended_early: Some("interrupted".into()), ..SpanOutcome::default() });
    };
    let intervals = if span.iops_intervals {
        u64::from(span.duration) * 1000 / u64::from(span.interval_ms.max(1))
    } else {
        0
    };
    let counted =
        || Operations { intervals: vec![Interval::default(); intervals as usize], ..Operations::default() };
    let mut copy = Copy {
        span,
        clock: clock.as_ref(),
        ends,
        pieces: vec![Piece::default(); slots],
        free: (0..slots).rev().collect(),
        done: Vec::with_capacity(slots),
        outstanding: 0,
        next: 0,
        end: *size,
        begin,
        read: counted(),
        write: counted(),
        broken: None,
    };
    let before = CpuTicks::now();
    let interrupted = copy.all(control);
    let nanos = copy.clock.now().0.saturating_sub(begin);
    let cpus = CpuTicks::now().since(&before, &system.cpus.iter().map(|cpu| cpu.id).collect::<Vec<_>>());
    let complete = (nanos / 1_000_000 / u64::from(span.interval_ms.max(1))) as usize;
    copy.read.intervals.truncate(complete);
    copy.write.intervals.truncate(complete);
    let one = |path: &str, size: u64, read: Operations, write: Operations| TargetOutcome {
        path: path.to_owned(),
        size,
        read,
        write,
        distribution: Vec::new(),
    };
    let targets = vec![
        one(&from.path, *size, copy.read, Operations::default()),
        one(&to.path, *room, Operations::default(), copy.write),
    ];
    Ok(SpanOutcome {
        seconds: nanos as f64 / 1e9,
        cpus,
        threads: vec![ThreadOutcome { targets, waits: WaitStatistics::default() }],
        ended_early: copy.broken.or(interrupted),
        ..SpanOutcome::default()
    })
}

impl Copy<'_> {
    /// Copies to the end; why it ended before, if it did.
    fn all(&mut self, control: &dyn Control) -> Option<String> {
        let limit = self.begin + u64::from(self.span.duration) * SECOND;
        let mut last = (self.begin, 0, 0);
        let mut ended = None;
        let mut patience = u64::MAX;
        loop {
            let now = self.clock.now().0;
            if ended.is_none() {
                ended = match (control.stop(), now >= limit) {
                    (true, _) => Some("interrupted".to_owned()),
                    (_, true) => Some(format!("the copy took longer than {} s (-d)", self.span.duration)),
                    _ => self.broken.clone(),
                };
                if ended.is_some() {
                    patience = now.saturating_add(DRAIN);
                }
            }
            if ended.is_none() {
                self.begin_reads(now);
            }
            if self.outstanding == 0 || now > patience {
                return ended;
            }
            if let Err(error) = self.ends.wait(LOOK, &mut self.done) {
                return Some(error.to_string());
            }
            self.count(ended.is_none());
            if now.saturating_sub(last.0) >= SECOND {
                let sums = (now, self.read.count + self.write.count, self.write.bytes);
                let seconds = (now - last.0) as f64 / 1e9;
                control.progress(&Progress {
                    elapsed: (now - self.begin) as f64 / 1e9,
                    whole: f64::from(self.span.duration),
                    measuring: true,
                    iops: (sums.1 - last.1) as f64 / seconds,
                    bytes_per_second: (sums.2 - last.2) as f64 / seconds,
                    latency_ms: self.write.latency.mean() / 1e6,
                    operations: vec![sums.1],
                });
                last = sums;
            }
        }
    }

    fn begin_reads(&mut self, now: u64) {
        while self.next < self.end
            && let Some(slot) = self.free.pop()
        {
            let block = self.span.targets.first().map_or(1, |target| u64::from(target.block));
            let len = block.min(self.end - self.next) as u32;
            let piece = Piece { offset: self.next, len, start: now, is_write: false };
            self.next += u64::from(len);
            self.queue(slot, piece);
        }
    }

    fn queue(&mut self, slot: usize, piece: Piece) {
        if let Some(kept) = self.pieces.get_mut(slot) {
            *kept = piece;
        }
        match self.ends.queue(slot, piece.is_write, piece.offset, piece.len) {
            Ok(()) => self.outstanding += 1,
            Err(error) => drop(self.broken.get_or_insert(error.to_string())),
        }
    }

    /// Counts what has ended; what was read is written, if the copy goes `on`.
    fn count(&mut self, on: bool) {
        let now = self.clock.now().0;
        let mut done = std::mem::take(&mut self.done);
        for Done { slot, result } in done.drain(..) {
            self.outstanding = self.outstanding.saturating_sub(1);
            let Some(piece) = self.pieces.get(slot).copied() else { continue };
            let counted = if piece.is_write { &mut self.write } else { &mut self.read };
            if let Err(failure) = result {
                counted.errors += 1;
                let after = (now - self.begin) as f64 / 1e9;
                counted.first_error.get_or_insert_with(|| (after, failure.text()));
                let what = if piece.is_write { "writing" } else { "reading" };
                // A copy with a hole is none.
                self.broken.get_or_insert_with(|| broken(what, &piece, &failure));
                continue;
            }
            let nanos = now.saturating_sub(piece.start);
            counted.count += 1;
            counted.bytes += u64::from(piece.len);
            counted.latency.record(nanos);
            let interval = u64::from(self.span.interval_ms.max(1)) * 1_000_000;
            if let Some(interval) =
                counted.intervals.get_mut((now.saturating_sub(self.begin) / interval) as usize)
            {
                interval.record(nanos);
            }
            if piece.is_write {
                self.free.push(slot);
            } else if on {
                self.ends.pass_on(slot, piece.len as usize);
                self.queue(slot, Piece { start: now, is_write: true, ..piece });
            }
        }
        self.done = done;
    }
}

fn broken(what: &str, piece: &Piece, failure: &LaneFailure) -> String {
    format!("{what} {} bytes at {} failed: {}", piece.len, piece.offset, failure.text())
}
