//! Time as an argument.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nanoseconds since an arbitrary start; never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// The time from `earlier` to `self`, zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Nanoseconds since 1970-01-01 00:00 UTC; may jump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(pub u64);

/// Where the time comes from: the system, or the simulator.
pub trait Clock: Send + Sync + 'static {
    /// Time for durations and deadlines.
    fn now(&self) -> Monotonic;
    /// Time for people and file attributes.
    fn wall(&self) -> WallTime;
}

/// The clock of the machine.
pub struct SystemClock {
    start: std::time::Instant,
}

impl SystemClock {
    /// A clock that starts now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place where real time enters")]
    pub fn new() -> Self {
        Self { start: std::time::Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Monotonic {
        Monotonic(self.start.elapsed().as_nanos() as u64)
    }

    #[expect(clippy::disallowed_methods, reason = "the one place where real time enters")]
    fn wall(&self) -> WallTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime(since.as_nanos() as u64)
    }
}
