//! How far the campaign is, on standard error.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use crash_campaign::{Case, Outcome, Stats};
use parking_lot::Mutex;
use shard_runtime::{Clock as _, Monotonic, SystemClock};

/// Lines without a terminal come so often.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// What is done and what is left.
pub(crate) struct Progress {
    inner: Mutex<Inner>,
    all: usize,
    terminal: bool,
}

struct Inner {
    clock: SystemClock,
    start: Monotonic,
    shown: Monotonic,
    done: usize,
    broken: usize,
    stats: Stats,
}

impl Progress {
    pub(crate) fn new(all: usize) -> Self {
        let clock = SystemClock::new();
        let start = clock.now();
        let inner = Inner { clock, start, shown: start, done: 0, broken: 0, stats: Stats::default() };
        Self { inner: Mutex::new(inner), all, terminal: std::io::stderr().is_terminal() }
    }

    /// One more is done; a broken promise is told at once.
    pub(crate) fn done(&self, case: &Case, outcome: &Outcome) {
        let mut inner = self.inner.lock();
        inner.done += 1;
        inner.broken += usize::from(outcome.broken.is_some());
        inner.stats += outcome.stats;
        if let Some(what) = &outcome.broken {
            let clear = if self.terminal { "\r\x1b[K" } else { "" };
            eprintln!("{clear}broken: {what}\n  again: {} --trace", case.again());
        }
        let now = inner.clock.now();
        let pause = if self.terminal { Duration::from_millis(200) } else { LINE_EVERY };
        if now.since(inner.shown) >= pause {
            inner.shown = now;
            self.show(&inner);
        }
    }

    /// Leaves the last state behind.
    pub(crate) fn end(&self) {
        let inner = self.inner.lock();
        self.show(&inner);
        if self.terminal {
            eprintln!();
        }
    }

    fn show(&self, inner: &Inner) {
        let seconds = inner.clock.now().since(inner.start).as_secs_f64();
        let rate = inner.done as f64 / seconds.max(0.001);
        let left = (self.all - inner.done) as f64 / rate.max(0.001);
        let line = format!(
            "{} of {} seeds, {} power cuts, {} operations, {} broken; {rate:.1} seeds/s, {left:.0} s left",
            inner.done, self.all, inner.stats.cuts, inner.stats.operations, inner.broken
        );
        if self.terminal {
            eprint!("\r\x1b[K{line}");
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{line}");
        }
    }
}
