//! How far the campaign is, on standard error.

use std::time::Duration;

use parking_lot::Mutex;
use shard_runtime::{Clock as _, Monotonic, SystemClock};

/// Lines come so often.
const LINE_EVERY: Duration = Duration::from_secs(20);

/// What is done and what is left.
pub(crate) struct Progress {
    clock: SystemClock,
    start: Monotonic,
    inner: Mutex<(Monotonic, usize)>,
    all: usize,
}

impl Progress {
    pub(crate) fn new(all: usize) -> Self {
        let clock = SystemClock::new();
        let start = clock.now();
        Self { clock, start, inner: Mutex::new((start, 0)), all }
    }

    /// One more is done.
    pub(crate) fn done(&self) {
        let mut inner = self.inner.lock();
        inner.1 += 1;
        let now = self.clock.now();
        if now.since(inner.0) >= LINE_EVERY {
            inner.0 = now;
            let rate = inner.1 as f64 / self.seconds().max(0.001);
            let left = (self.all - inner.1) as f64 / rate.max(0.001);
            eprintln!("{} of {} seeds; {rate:.1} seeds/s, {left:.0} s left", inner.1, self.all);
        }
    }

    /// Since the beginning.
    pub(crate) fn seconds(&self) -> f64 {
        self.clock.now().since(self.start).as_secs_f64()
    }
}
