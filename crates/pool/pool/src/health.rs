//! Which disks answer slower than their like.
//!
//! A disk that fails slowly holds up every write of every mirror that it is in, long before it reports an error. What a
//! disk needs for small requests is compared with what the others of its kind in the pool need, in windows of some
//! seconds: a burst is bad luck, a slow minute is not. The pool only says so; what is done is the node's policy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::core::Core;

/// Requests up to this length are timed, in bytes: longer ones say more of their length than of the disk.
pub(crate) const SMALL: u64 = 128 << 10;
/// Requests that a window needs to say anything.
const ENOUGH: u64 = 16;
/// A disk is slow when it needs this many times what the others need ...
const TIMES: u32 = 8;
/// ... and more than this, which no kind of disk needs in good health and with short queues.
const LEAST: Duration = Duration::from_millis(50);

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
    last: Sample,
    pub(crate) slowness: Slowness,
}

/// Ends a window of `length` for all disks.
pub(crate) fn end_window(core: &Arc<Core>, length: Duration) {
    let kinds = core
        .meta
        .with_state(|state| state.disks.iter().map(|(id, record)| (*id, record.media)).collect::<Vec<_>>());
    let mut seen = Vec::new();
    for (id, media) in kinds {
        let Some(disk) = core.disk(id).filter(|disk| disk.is_online()) else { continue };
        let sample = disk.pace.sample();
        let mean = {
            let mut window = disk.window.lock();
            let mean = sample.mean_since(window.last, ENOUGH);
            if mean.is_some() {
                window.last = sample;
            }
            mean
        };
        seen.extend(mean.map(|mean| (disk, media, mean)));
    }
    for (disk, media, mean) in &seen {
        let others = seen.iter().filter(|(other, kind, _)| kind == media && !Arc::ptr_eq(other, disk));
        let mut others: Vec<Duration> = others.map(|(_, _, mean)| *mean).collect();
        others.sort_unstable();
        let Some(middle) = others.get(others.len() / 2).copied() else { continue };
        let mut window = disk.window.lock();
        let slow = *mean > LEAST && *mean > middle * TIMES;
        let lasting = if slow { window.slowness.lasting + length } else { Duration::ZERO };
        window.slowness = Slowness { mean: *mean, others: middle, lasting };
    }
}
