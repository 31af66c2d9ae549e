//! Notices that an event loop stood still: a process that was stopped, a machine that slept, a loop that was held up.
//!
//! What a client sent before may be answered long ago by another node, and the client may have given up. So whoever was connected is
//! sent away unread: a connection remembers [`Watchdog::look`] from when it began, and closes when it says something else. Something on the loop has
//! to look from time to time, so that a loop with nothing to do does not look as if it stood still.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pool_ownership::BootTime;

use crate::clock::boot_time;

/// Of one event loop.
#[derive(Debug)]
pub struct Watchdog {
    limit: Duration,
    turned: AtomicU64,
    stood_still: AtomicU64,
}

impl Watchdog {
    /// For a loop that has stood still when it did not turn for longer than this.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit, turned: AtomicU64::new(boot_time().0), stood_still: AtomicU64::new(0) }
    }

    /// The loop turns. How often it has stood still until now: to be asked before anything is read that came in meanwhile.
    pub fn look(&self) -> u64 {
        self.look_at(boot_time())
    }

    fn look_at(&self, now: BootTime) -> u64 {
        let before = BootTime(self.turned.swap(now.0, Ordering::SeqCst));
        if now.since(before) <= self.limit {
            return self.stood_still.load(Ordering::SeqCst);
        }
        tracing::warn!(
            "an event loop stood still for {:?}: connections are closed unread",
            now.since(before)
        );
        self.stood_still.fetch_add(1, Ordering::SeqCst) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_learns_of_a_stand_still_whoever_looks_first() {
        let watchdog = Watchdog::new(Duration::from_secs(1));
        let start = boot_time();
        let began = watchdog.look_at(start);
        assert_eq!(watchdog.look_at(start.after(Duration::from_millis(900))), began);
        assert_eq!(
            watchdog.look_at(start.after(Duration::from_millis(1800))),
            began,
            "it has turned in between"
        );
        // The timer looks first.
        let still = watchdog.look_at(start.after(Duration::from_millis(2801)));
        assert_ne!(still, began);
        let later = watchdog.look_at(start.after(Duration::from_millis(2802)));
        assert_eq!(
            later, still,
            "a connection that looks next sees it too, and one that begins now does not close"
        );
        assert_eq!(watchdog.look_at(start), still, "two threads that look at once are no stand-still");
    }
}
