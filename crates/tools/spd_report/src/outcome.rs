//! What was measured.

use crate::histogram::Histogram;

/// One piece of the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// Operations that ended in it.
    pub count: u64,
    /// Sum of their latencies in microseconds.
    pub sum_us: f64,
    /// Sum of the squares of their latencies in microseconds.
    pub sum_squares_us: f64,
    /// Their least latency in nanoseconds.
    pub min_ns: u64,
    /// Their greatest latency in nanoseconds.
    pub max_ns: u64,
}

impl Interval {
    /// Counts one operation.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        let us = nanos as f64 / 1000.0;
        self.min_ns = if self.count == 0 { nanos } else { self.min_ns.min(nanos) };
        self.max_ns = self.max_ns.max(nanos);
        self.count += 1;
        self.sum_us += us;
        self.sum_squares_us += us * us;
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Self) {
        if other.count > 0 {
            self.min_ns = if self.count == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
        }
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count = self.count.saturating_add(other.count);
        self.sum_us += other.sum_us;
        self.sum_squares_us += other.sum_squares_us;
    }

    /// Mean latency in milliseconds.
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_us / self.count as f64 / 1000.0 }
    }

    /// Standard deviation of the latency in milliseconds.
    #[must_use]
    pub fn deviation_ms(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let count = self.count as f64;
        let mean = self.sum_us / count;
        (self.sum_squares_us / count - mean * mean).max(0.0).sqrt() / 1000.0
    }
}

/// Standard deviation of operations per second over intervals of `interval_ms`.
#[must_use]
pub fn iops_deviation(intervals: &[Interval], interval_ms: u32) -> f64 {
    if intervals.is_empty() {
        return 0.0;
    }
    let number = intervals.len() as f64;
    let mean = intervals.iter().map(|interval| interval.count as f64).sum::<f64>() / number;
    let squares: f64 = intervals.iter().map(|interval| (interval.count as f64 - mean).powi(2)).sum();
    (squares / number).sqrt() / (f64::from(interval_ms.max(1)) / 1000.0)
}

/// Reads, or writes, of one thread on one target.
#[derive(Clone, Debug, Default)]
pub struct Operations {
    /// Bytes moved.
    pub bytes: u64,
    /// Operations that ended well.
    pub count: u64,
    /// Operations that failed.
    pub errors: u64,
    /// The first failure: seconds after the start of the measurement (below 0: before it), and what was wrong.
    pub first_error: Option<(f64, String)>,
    /// Latencies.
    pub latency: Histogram,
    /// The measured time in intervals, complete ones only; empty when not asked for.
    pub intervals: Vec<Interval>,
}

impl Operations {
    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.count = self.count.saturating_add(other.count);
        self.errors = self.errors.saturating_add(other.errors);
        let earlier = match (&self.first_error, &other.first_error) {
            (Some((mine, _)), Some((theirs, _))) => theirs < mine,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if earlier {
            self.first_error.clone_from(&other.first_error);
        }
        self.latency.merge(&other.latency);
        if self.intervals.len() < other.intervals.len() {
            self.intervals.resize(other.intervals.len(), Interval::default());
        }
        for (mine, theirs) in self.intervals.iter_mut().zip(&other.intervals) {
            mine.merge(theirs);
        }
    }
}

/// A part of a target that a distribution gives I/O to, after it was fitted to the target's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectiveRange {
    /// Percent of the I/O.
    pub io_percent: u32,
    /// First byte, from the target's base.
    pub start: u64,
    /// Bytes.
    pub length: u64,
}

/// One thread on one target.
#[derive(Clone, Debug, Default)]
pub struct TargetOutcome {
    /// Its path as it was given.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Reads.
    pub read: Operations,
    /// Writes.
    pub write: Operations,
    /// Where random I/O went, when a distribution was asked for.
    pub distribution: Vec<EffectiveRange>,
}

impl TargetOutcome {
    /// Reads and writes together.
    #[must_use]
    pub fn total(&self) -> Operations {
        let mut total = self.read.clone();
        total.merge(&self.write);
        total
    }
}

/// How a thread waited (`-vs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitStatistics {
    /// Times it waited for a completion.
    pub waits: u64,
    /// Times it looked for completions while it waited for a throttle.
    pub throttle_waits: u64,
    /// Times it slept for a throttle.
    pub throttle_sleeps: u64,
    /// Times it looked for completions without waiting.
    pub lookasides: u64,
    /// How many completions a look found: 0, 1, ... 6, 7 and more.
    pub found: [u64; 8],
}

/// One thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadOutcome {
    /// Its targets.
    pub targets: Vec<TargetOutcome>,
    /// How it waited.
    pub waits: WaitStatistics,
}

/// Use of one processor in percent of the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTime {
    /// Programs.
    pub user: f64,
    /// The kernel.
    pub kernel: f64,
    /// Nothing.
    pub idle: f64,
}

/// An open loop: operations begin when they should, whatever the target does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OpenLoop {
    /// Operations per second that were asked for.
    pub rate: f64,
    /// Operations that should have begun in the measured time.
    pub intended: u64,
    /// How many of these began only after their time because all requests were outstanding.
    pub late: u64,
    /// Operations whose time had come and that had not begun at the end.
    pub never_begun: u64,
}

/// What verification found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VerifyOutcome {
    /// Blocks that were read and checked.
    pub checked: u64,
    /// Blocks that hold an older content than was acknowledged.
    pub stale: u64,
    /// Blocks without the content that was acknowledged: never written, by what they hold.
    pub lost: u64,
    /// Blocks whose content belongs to another place or another file.
    pub misplaced: u64,
    /// Blocks that hold parts of two contents, or are damaged.
    pub torn: u64,
    /// The first few findings, in words.
    pub findings: Vec<String>,
    /// The longest time in milliseconds in which a thread with requests outstanding saw none end well.
    pub longest_stall_ms: f64,
}

impl VerifyOutcome {
    /// Blocks that are wrong.
    #[must_use]
    pub fn wrong(&self) -> u64 {
        self.stale + self.lost + self.misplaced + self.torn
    }
}

/// What one of several machines measured in a time span.
#[derive(Clone, Debug, Default)]
pub struct AgentOutcome {
    /// Its address, as it was given.
    pub name: String,
    /// The machine's name.
    pub computer: String,
    /// Milliseconds by which it began after the first one, and by how much that may be wrong; none when it never began.
    pub start_ms: Option<(f64, f64)>,
    /// Seconds that it really measured.
    pub seconds: f64,
    /// All its reads.
    pub read: Operations,
    /// All its writes.
    pub write: Operations,
    /// Why it ended before its time, or why nothing of it is in the report.
    pub ended_early: Option<String>,
}

/// One time span.
#[derive(Clone, Debug, Default)]
pub struct SpanOutcome {
    /// Seconds that were really measured; 0 when the run ended before.
    pub seconds: f64,
    /// Processors, in the order of [`System::cpus`].
    pub cpus: Vec<CpuTime>,
    /// Threads.
    pub threads: Vec<ThreadOutcome>,
    /// Whether it was ended before its time, and why.
    pub ended_early: Option<String>,
    /// The open loop, if it was one.
    pub open_loop: Option<OpenLoop>,
    /// What verification found, if it was asked for.
    pub verify: Option<VerifyOutcome>,
    /// The machines that took part, when there were several; their threads are in `threads`, in the same order.
    pub agents: Vec<AgentOutcome>,
}

impl SpanOutcome {
    /// All threads and targets together: reads, writes.
    #[must_use]
    pub fn sum(&self) -> (Operations, Operations) {
        let (mut read, mut write) = (Operations::default(), Operations::default());
        for target in self.threads.iter().flat_map(|thread| &thread.targets) {
            read.merge(&target.read);
            write.merge(&target.write);
        }
        (read, write)
    }

    /// Mean use of all processors in percent.
    #[must_use]
    pub fn average_cpu(&self) -> CpuTime {
        let number = self.cpus.len().max(1) as f64;
        let mean = |part: fn(&CpuTime) -> f64| self.cpus.iter().map(part).sum::<f64>() / number;
        CpuTime { user: mean(|cpu| cpu.user), kernel: mean(|cpu| cpu.kernel), idle: mean(|cpu| cpu.idle) }
    }
}

/// Where a processor is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuPlace {
    /// Its number.
    pub id: u32,
    /// Its socket.
    pub socket: u32,
    /// Its NUMA node.
    pub node: u32,
    /// Its core, counted over the machine.
    pub core: u32,
}

/// The machine and the tool.
#[derive(Clone, Debug, Default)]
pub struct System {
    /// The machine's name.
    pub computer: String,
    /// Version of the tool.
    pub version: String,
    /// Date of the version.
    pub version_date: String,
    /// Start of the run in seconds since 1970-01-01 00:00 UTC.
    pub start: u64,
    /// Processors.
    pub cpus: Vec<CpuPlace>,
    /// What governs the processors' clocks.
    pub power_scheme: String,
}

impl System {
    /// How many different values a property of processors has.
    #[must_use]
    pub fn distinct(&self, property: fn(&CpuPlace) -> u32) -> usize {
        let mut values: Vec<u32> = self.cpus.iter().map(property).collect();
        values.sort_unstable();
        values.dedup();
        values.len()
    }

    /// `2026/01/31 12:00:00 UTC`.
    #[must_use]
    pub fn start_text(&self) -> String {
        let (days, rest) = (self.start / 86_400, self.start % 86_400);
        let (year, month, day) = civil(days);
        format!("{year}/{month:02}/{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
    }
}

/// Year, month and day of a day since 1970-01-01 (H. Hinnant's algorithm).
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let of_era = z % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// All spans of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The machine and the tool.
    pub system: System,
    /// The spans, in order.
    pub spans: Vec<SpanOutcome>,
}
