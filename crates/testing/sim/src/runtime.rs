//! An event loop whose time passes only when everybody waits, and its clock.

use std::future::Future;
use std::io;

use shard_runtime::{Clock, Monotonic, WallTime};

/// Runs `future` as on a shard, with virtual time; threads take turns with it (`shard_runtime::threads`). When it ends, all tasks that it left behind are dropped where
/// they stand.
///
/// # Errors
/// When no event loop can be had.
pub fn on_shard<F: Future>(future: F) -> io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    let local = tokio::task::LocalSet::new();
    Ok(local.block_on(&runtime, async {
        shard_runtime::adopt_detached_work();
        shard_runtime::take_turns();
        future.await
    }))
}

/// The virtual time of event loops one after another: it never goes back, also when a new loop begins at an
/// earlier time of its own.
#[derive(Default)]
pub struct SimClock(parking_lot::Mutex<Passed>);

#[derive(Default)]
struct Passed {
    last: Option<tokio::time::Instant>,
    nanos: u64,
}

impl SimClock {
    /// A new event loop begins on this thread; call inside of it.
    pub fn begin(&self) {
        self.0.lock().last = Some(tokio::time::Instant::now());
    }
}

impl Clock for SimClock {
    fn now(&self) -> Monotonic {
        let mut passed = self.0.lock();
        let now = tokio::time::Instant::now();
        if let Some(last) = passed.last
            && now > last
        {
            passed.nanos += (now - last).as_nanos() as u64;
            passed.last = Some(now);
        }
        Monotonic(passed.nanos)
    }

    fn wall(&self) -> WallTime {
        WallTime(self.now().0)
    }
}
