//! An event loop whose time passes only when everybody waits, and its clock.

use std::future::Future;
use std::io;
use std::time::Duration;

use shard_runtime::{Clock, Monotonic, WallTime};

/// Runs `future` as on a shard, with virtual time. When it ends, all tasks that it left behind are dropped where
/// they stand.
///
/// # Errors
/// When no event loop can be had.
pub fn on_shard<F: Future>(future: F) -> io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    let local = tokio::task::LocalSet::new();
    Ok(local.block_on(&runtime, async {
        shard_runtime::adopt_detached_work();
        future.await
    }))
}

/// Runs `future` as [`on_shard`] does, where other threads have a part in the work: time passes on its own, a
/// hundred times as fast as outside, and never merely because this thread waits for another.
///
/// # Errors
/// When no event loop can be had.
pub fn on_shard_among_threads<F: Future>(future: F) -> io::Result<F::Output> {
    on_shard(async {
        let ticker = shard_runtime::spawn_local(async {
            // Paused time stands still while a blocking task is under way, even if everybody waits.
            while tokio::task::spawn_blocking(tick).await.is_ok() {
                tokio::time::advance(TICK * SPEED).await;
            }
        });
        let output = future.await;
        ticker.abort();
        output
    })
}

const TICK: Duration = Duration::from_micros(200);
const SPEED: u32 = 100;

#[expect(clippy::disallowed_methods, reason = "what real time is to threads that have no virtual one")]
fn tick() {
    std::thread::sleep(TICK);
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
