//! What a thread is given, and what it shares with the caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use spd_profile::TimeSpan;
use spd_report::{OpenLoop, ThreadOutcome, VerifyOutcome};

/// What threads and the caller share: written by one, read by others, no lock.
#[derive(Default)]
pub(crate) struct Shared {
    /// The run ends now.
    pub(crate) stop: AtomicBool,
    /// Whether a target is gone or a thread gave up.
    pub(crate) failed: AtomicBool,
    /// Operations, bytes and summed latency (ns) of each thread, for progress.
    pub(crate) progress: Vec<Counters>,
}

/// Counters of one thread, on a cache line of their own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) operations: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) latency: AtomicU64,
}

/// Times of a run, in nanoseconds of the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Load begins.
    pub(crate) start: u64,
    /// What ends from here on is measured.
    pub(crate) from: u64,
    /// What ends from here on is not.
    pub(crate) to: u64,
    /// Load ends.
    pub(crate) end: u64,
}

/// What a thread is to do.
pub(crate) struct Assignment<'a> {
    pub(crate) span: &'a TimeSpan,
    pub(crate) thread: usize,
    /// Its targets as indices into the span's, with the thread's number among the target's threads and its weight.
    pub(crate) targets: Vec<(usize, u64, u32)>,
    pub(crate) sizes: &'a [u64],
    pub(crate) interlocked: &'a [Arc<AtomicU64>],
    /// Parts of the open loop: which are this thread's begins, how many there are.
    pub(crate) part: u64,
    pub(crate) parts: u64,
    /// Content for writes, if it comes from a buffer.
    pub(crate) source: &'a [u8],
    pub(crate) count_intervals: usize,
    /// The number of the run, if what it writes is verified.
    pub(crate) verify: Option<u64>,
}

/// What a thread leaves behind.
pub(crate) struct Left {
    pub(crate) outcome: ThreadOutcome,
    pub(crate) open: Option<OpenLoop>,
    pub(crate) verify: Option<VerifyOutcome>,
    pub(crate) broken: Option<String>,
}
