//! How the caller follows and ends a run.

use shard_runtime::Clock;

/// What a run has done so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Seconds since the load began.
    pub elapsed: f64,
    /// Seconds that the run takes.
    pub whole: f64,
    /// Whether the time is being measured (not warm-up, not cool-down).
    pub measuring: bool,
    /// Operations per second since the last report.
    pub iops: f64,
    /// Bytes per second since the last report.
    pub bytes_per_second: f64,
    /// Mean latency in milliseconds since the last report.
    pub latency_ms: f64,
    /// Operations of each thread since the load began.
    pub operations: Vec<u64>,
}

/// How the caller follows and ends a run.
pub trait Control: Sync {
    /// Called when all is set up; returns, by `clock`, when the load begins, or `None` when it is not to begin. May wait.
    fn release(&self, clock: &dyn Clock) -> Option<u64> {
        Some(clock.now().0)
    }
    /// Whether the run is to end now; asked many times a second.
    fn stop(&self) -> bool;
    /// Called about every second.
    fn progress(&self, progress: &Progress);
}
