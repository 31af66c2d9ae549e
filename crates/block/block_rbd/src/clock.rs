//! Time limits of requests. A volume's metadata thread makes requests, too: it has no event loop, and so no timers.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use shard_runtime::spawn_thread;
use tokio::sync::watch;

/// How exact a limit is: a tick, or a sixteenth of the shortest limit where that is less.
const TICK: Duration = Duration::from_secs(1);

/// A thread that counts ticks, until this is dropped.
pub(crate) struct Clock {
    tick: Duration,
    ticks: Arc<watch::Sender<u64>>,
    _running: mpsc::Sender<Infallible>,
}

impl Clock {
    /// One for limits from `shortest` on.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub(crate) fn start(shortest: Duration) -> io::Result<Self> {
        let tick = TICK.min(shortest / 16).max(Duration::from_millis(1));
        let ticks = Arc::new(watch::Sender::new(0));
        let (running, ended) = mpsc::channel();
        let count = Arc::clone(&ticks);
        spawn_thread("rbd-clock", move || {
            while ended.recv_timeout(tick) == Err(mpsc::RecvTimeoutError::Timeout) {
                count.send_modify(|now| *now += 1);
            }
        })?;
        Ok(Self { tick, ticks, _running: running })
    }

    /// The future's output, or `None` when `limit` passes first: never sooner, and up to two ticks later.
    pub(crate) async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let mut ticks = self.ticks.subscribe();
        let whole = limit.as_nanos().div_ceil(self.tick.as_nanos());
        // The tick that is under way is not a whole one.
        let last = (*ticks.borrow()).saturating_add(u64::try_from(whole).unwrap_or(u64::MAX));
        tokio::select! {
            biased;
            output = future => Some(output),
            Ok(_) = ticks.wait_for(|now| *now > last) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Without any event loop: polled by hand.
    #[test]
    fn limits_hold_on_a_thread_without_timers() {
        let clock = Clock::start(Duration::from_millis(16)).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut done = pin!(clock.timeout(Duration::from_secs(3600), ready(7)));
        assert_eq!(done.as_mut().poll(&mut context), Poll::Ready(Some(7)));
        let mut never = pin!(clock.timeout(Duration::from_millis(16), pending::<()>()));
        let from = *clock.ticks.borrow();
        while never.as_mut().poll(&mut context).is_pending() {
            std::thread::yield_now();
        }
        assert!(*clock.ticks.borrow() >= from + 17, "it ended too soon");
    }
}
