//! Notices that a shard stood still: a process that was stopped, a machine that slept.
//!
//! What initiators had sent by then lies in sockets still, and they may have given it up and written something else over another path. So nothing
//! is sent for a while after the shard goes on: it is read meanwhile, and told to come again.

use std::sync::atomic::{AtomicU64, Ordering};

/// A shard that has not turned for so long stood still, and nothing is sent for as long after that; nanoseconds.
const LIMIT: u64 = 1_000_000_000;

/// Of one shard.
#[derive(Debug)]
pub(super) struct StandStill {
    turned: AtomicU64,
    until: AtomicU64,
}

impl StandStill {
    /// Of a shard that turns now.
    pub(super) fn new(now: u64) -> Self {
        Self { turned: AtomicU64::new(now), until: AtomicU64::new(0) }
    }

    /// The shard turns. Whether what has come from initiators may be sent now.
    pub(super) fn turn(&self, now: u64) -> bool {
        let before = self.turned.swap(now, Ordering::SeqCst);
        if now.saturating_sub(before) > LIMIT {
            self.until.store(now.saturating_add(LIMIT), Ordering::SeqCst);
        }
        now >= self.until.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_stand_still_nothing_is_sent_for_a_while_whoever_looks_first() {
        let still = StandStill::new(0);
        assert!(still.turn(LIMIT) && still.turn(2 * LIMIT));
        let back = 3 * LIMIT + 1;
        assert!(!still.turn(back), "it had not turned for longer than it may");
        assert!(!still.turn(back + LIMIT - 1));
        assert!(still.turn(back + LIMIT));
    }
}
