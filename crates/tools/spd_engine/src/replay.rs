//! Replays a trace: it is read through once to see what it asks for, and again while it is replayed, by a thread of its own
//! that is a few thousand operations ahead.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use spd_profile::TimeSpan;
use spd_profile::limits;
use spd_profile::trace::{LINE_BYTES, Parser, Record, Replay};

use crate::error::EngineError;

/// Operations that are handed over at once.
const CHUNK: usize = 4096;
/// Chunks that are read ahead.
const AHEAD: usize = 8;
/// Seconds for which a trace without times, or that is replayed without them, may take at most if no duration is given.
const LONGEST: u32 = 3600;

/// What a trace asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceSummary {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// What was left out: flushes, discards, operations on other names.
    pub skipped: u64,
    /// The end of the operation that reaches furthest.
    pub end: u64,
    /// Bytes of the largest operation.
    pub largest: u32,
    /// The largest number that divides all offsets and lengths.
    pub unit: u64,
    /// Nanoseconds from the first operation to the last.
    pub nanos: u64,
}

/// Gives a span with a trace the block size, mix and duration that the trace has; nothing without a trace.
///
/// # Errors
/// When the trace cannot be read, makes no sense, or has no operations.
pub fn prepare_replay(span: &mut TimeSpan) -> Result<Option<TraceSummary>, EngineError> {
    let Some(replay) = span.replay.clone() else { return Ok(None) };
    let summary = scan(&replay)?;
    let all = summary.reads + summary.writes;
    for target in &mut span.targets {
        target.block = summary.largest;
        target.alignment = Some(summary.unit);
        target.write_percent = match (summary.reads, summary.writes) {
            (_, 0) => 0,
            (0, _) => 100,
            (_, writes) => ((writes * 100).div_ceil(all) as u32).clamp(1, 99),
        };
    }
    if replay.whole {
        let seconds = u32::try_from(summary.nanos.div_ceil(1_000_000_000)).unwrap_or(u32::MAX);
        // The trace ends the run; what is late at its end still has time.
        span.duration = if replay.fast { LONGEST } else { seconds.saturating_add(60).min(limits::SECONDS) };
    }
    if span.iops_intervals {
        let intervals = u64::from(span.duration) * 1000 / u64::from(span.interval_ms.max(1));
        if intervals > limits::INTERVALS {
            return Err(EngineError::new(format!(
                "-D{} gives {intervals} intervals for this trace, and at most {} are kept: give a longer -D, or -d",
                span.interval_ms,
                limits::INTERVALS
            )));
        }
    }
    let bytes = span.targets.iter().fold(0u64, |sum, target| {
        sum.saturating_add(2 * u64::from(target.block) * u64::from(target.requests))
    });
    if bytes > limits::BUFFER_BYTES {
        return Err(EngineError::new(format!(
            "the trace's largest operation has {} bytes, too many for {} requests outstanding: lower -o",
            summary.largest,
            span.targets.first().map_or(0, |target| target.requests)
        )));
    }
    Ok(Some(summary))
}

fn scan(replay: &Replay) -> Result<TraceSummary, EngineError> {
    let mut summary = TraceSummary::default();
    let skipped = lines(replay, |record| {
        *if record.is_write { &mut summary.writes } else { &mut summary.reads } += 1;
        summary.end = summary.end.max(record.offset + u64::from(record.len));
        summary.largest = summary.largest.max(record.len);
        summary.unit = divisor(divisor(summary.unit, record.offset), u64::from(record.len));
        summary.nanos = record.at;
        true
    })?;
    summary.skipped = skipped;
    if summary.reads + summary.writes == 0 {
        let what = replay.name.as_ref().map_or(String::new(), |name| format!(" on '{name}' (--replay-name)"));
        return Err(EngineError::new(format!(
            "trace '{}' has no read and no write{what}{}",
            replay.path,
            if skipped > 0 {
                format!("; {skipped} other operations are not replayed")
            } else {
                String::new()
            }
        )));
    }
    Ok(summary)
}

/// The greatest common divisor; 0 is divided by all.
fn divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Gives each operation to `take` until that says no; returns how many were left out.
fn lines(replay: &Replay, mut take: impl FnMut(Record) -> bool) -> Result<u64, EngineError> {
    let wrong =
        |error: &dyn std::fmt::Display| EngineError::new(format!("'{}' (--replay): {error}", replay.path));
    let mut file =
        BufReader::with_capacity(1 << 18, File::open(&replay.path).map_err(|error| wrong(&error))?);
    let mut parser = Parser::new(replay.name.as_deref());
    let mut line = Vec::with_capacity(256);
    loop {
        line.clear();
        let read = (&mut file)
            .take(LINE_BYTES as u64)
            .read_until(b'\n', &mut line)
            .map_err(|error| wrong(&error))?;
        if read == 0 {
            return Ok(parser.skipped());
        }
        if read == LINE_BYTES && line.last() != Some(&b'\n') {
            return Err(wrong(&format!("a line has more than {LINE_BYTES} bytes: it is no trace")));
        }
        let record = parser.line(&String::from_utf8_lossy(&line)).map_err(|why| wrong(&why))?;
        if record.is_some_and(|record| !take(record)) {
            return Ok(parser.skipped());
        }
    }
}

/// What comes next in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This operation.
    Record(Record),
    /// The reading thread is behind.
    Later,
    /// Nothing.
    End,
    /// The trace can no longer be read.
    Broken(String),
}

/// A trace that is being read.
pub(crate) struct Feed {
    chunks: Receiver<Result<Vec<Record>, String>>,
    chunk: std::vec::IntoIter<Record>,
    next: Next,
}

impl Feed {
    /// Begins to read.
    pub(crate) fn open(replay: &Replay) -> Result<Self, EngineError> {
        let (sender, chunks) = sync_channel(AHEAD);
        let replay = replay.clone();
        let work = move || {
            let mut chunk = Vec::with_capacity(CHUNK);
            let read = lines(&replay, |record| {
                chunk.push(record);
                // Nobody takes it any more: the run has ended.
                chunk.len() < CHUNK
                    || sender.send(Ok(std::mem::replace(&mut chunk, Vec::with_capacity(CHUNK)))).is_ok()
            });
            let _ = sender.send(Ok(chunk));
            if let Err(why) = read {
                let _ = sender.send(Err(why.0));
            }
        };
        shard_runtime::spawn_thread("trace", work)
            .map_err(|error| EngineError::new(format!("no thread to read the trace: {error}")))?;
        Ok(Self { chunks, chunk: Vec::new().into_iter(), next: Next::Later })
    }

    /// What comes next; stays until [`Feed::take`].
    pub(crate) fn peek(&mut self) -> &Next {
        while self.next == Next::Later {
            self.next = match self.chunk.next() {
                Some(record) => Next::Record(record),
                None => match self.chunks.try_recv() {
                    Ok(Ok(chunk)) => {
                        self.chunk = chunk.into_iter();
                        continue;
                    }
                    Ok(Err(why)) => Next::Broken(why),
                    Err(TryRecvError::Disconnected) => Next::End,
                    Err(TryRecvError::Empty) => break,
                },
            };
        }
        &self.next
    }

    /// The operation was begun.
    pub(crate) fn take(&mut self) {
        self.next = Next::Later;
    }
}
