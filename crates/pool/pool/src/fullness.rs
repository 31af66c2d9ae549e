//! Disks whose file system is full.
//!
//! A disk that is a file can find no space while its pool has plenty. That is a failure of this disk, and one that ends when
//! somebody makes room: it serves on what it has, the writes that it refused leave its copies stale, and it is evidence
//! against nothing. For a while it is given nothing that needs space: no new slab, nothing to catch up with. Then it is
//! tried again, and each time that it refuses, the while becomes longer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shard_runtime::Monotonic;

/// How long a disk is left alone after the first refusal, and at most.
const FIRST: Duration = Duration::from_secs(5);
const LONGEST: Duration = Duration::from_secs(60);

/// Whether a disk is full.
#[derive(Default)]
pub(crate) struct Fullness {
    /// Until when nothing that needs space is tried, in nanoseconds of the clock; 0 before the first refusal.
    until: AtomicU64,
    /// When it began, and how long the last wait is.
    episode: Mutex<(Monotonic, Duration)>,
}

impl Fullness {
    /// The disk has refused a write for want of space. `true` when that is news.
    pub(crate) fn refused(&self, now: Monotonic) -> bool {
        let mut episode = self.episode.lock();
        if self.waits(now) {
            // Clients' writes go on meanwhile and say nothing of whether it is worth trying more.
            return false;
        }
        let news = !self.is_on(now);
        *episode = if news { (now, FIRST) } else { (episode.0, (episode.1 * 2).min(LONGEST)) };
        self.until.store(now.0.saturating_add(episode.1.as_nanos() as u64), Ordering::Release);
        news
    }

    /// Whether nothing that needs space should be tried now.
    pub(crate) fn waits(&self, now: Monotonic) -> bool {
        now.0 < self.until.load(Ordering::Acquire)
    }

    /// For how long it has been full, if it is as far as anybody knows: it has not been tried for long without refusing.
    pub(crate) fn lasting(&self, now: Monotonic) -> Option<Duration> {
        self.is_on(now).then(|| now.since(self.episode.lock().0))
    }

    fn is_on(&self, now: Monotonic) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until > 0 && now.0 < until.saturating_add(LONGEST.as_nanos() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_become_longer_and_end() {
        let (full, second) = (Fullness::default(), |seconds: u64| Monotonic(seconds * 1_000_000_000));
        assert!(!full.waits(second(1)) && full.lasting(second(1)).is_none());
        assert!(full.refused(second(1)) && full.waits(second(5)) && !full.waits(second(6)));
        assert!(!full.refused(second(3)), "no news, and no longer wait");
        assert!(!full.waits(second(6)));
        let mut now = 6;
        for wait in [10, 20, 40, 60, 60] {
            assert!(!full.refused(second(now)), "it is still the same");
            assert!(full.waits(second(now + wait - 1)) && !full.waits(second(now + wait)));
            now += wait;
        }
        assert_eq!(full.lasting(second(now)), Some(Duration::from_secs(now - 1)));
        assert_eq!(full.lasting(second(now + 60)), None);
        assert!(full.refused(second(now + 60)), "another time");
        assert!(!full.waits(second(now + 65)));
    }
}
