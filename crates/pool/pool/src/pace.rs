//! How fast a disk, or the pool, answers small requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Requests up to this length are timed, in bytes: longer ones say more of their length than of the disk.
pub(crate) const SMALL: u64 = 128 << 10;

/// Requests that were timed, and what they took.
#[derive(Default)]
pub(crate) struct Pace {
    requests: AtomicU64,
    nanos: AtomicU64,
}

/// [`Pace`] at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    requests: u64,
    nanos: u64,
}

impl Pace {
    pub(crate) fn record(&self, took: Duration) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(crate) fn sample(&self) -> Sample {
        Sample { requests: self.requests.load(Ordering::Relaxed), nanos: self.nanos.load(Ordering::Relaxed) }
    }
}

impl Sample {
    /// What requests have taken on the average since an earlier sample; `None` for fewer than `least`.
    pub(crate) fn mean_since(self, earlier: Self, least: u64) -> Option<Duration> {
        let requests = self.requests.saturating_sub(earlier.requests);
        let nanos = self.nanos.saturating_sub(earlier.nanos);
        (requests >= least.max(1)).then(|| Duration::from_nanos(nanos / requests))
    }
}

/// How a disk has answered lately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slowness {
    /// What its small requests took in the last window that says something, on the average.
    pub mean: Duration,
    /// What those of the others of its kind took then: the middle one of them.
    pub others: Duration,
    /// For how long it has been slow, without a window in which it was not; zero when it is not slow.
    pub lasting: Duration,
}

/// What is kept of a disk between windows.
#[derive(Default)]
pub(crate) struct Window {
    pub(crate) last: Sample,
    pub(crate) slowness: Slowness,
}
