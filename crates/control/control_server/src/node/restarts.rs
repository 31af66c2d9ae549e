//! How long a volume stays closed whose database gives up on a damaged page: at first it is opened again at once, but one that does so
//! each time soon after its opening waits longer and longer.
//!
//! Each time costs memory that is not had back before the process ends, and interrupts its clients. What stops because disks are away is
//! opened again as soon as they are back, however often.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use shard_runtime::Monotonic;
use uuid::Uuid;

/// After so long without a stop the next one counts as the first.
const CALM: Duration = Duration::from_secs(600);
/// The wait after the second stop; each further one doubles it, up to the last.
const FIRST_WAIT: Duration = Duration::from_secs(5);
const LAST_WAIT: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug)]
struct Restart {
    stops: u32,
    /// It is not opened before.
    not_before: Monotonic,
    opened: Monotonic,
}

/// Volumes that gave up, by pool and name.
#[derive(Debug, Default)]
pub(super) struct Restarts(Mutex<BTreeMap<(Uuid, String), Restart>>);

impl Restarts {
    /// A volume has given up: how long it is not opened by itself; zero at the first time.
    pub(super) fn gave_up(&self, pool: Uuid, volume: &str, now: Monotonic) -> Duration {
        let mut all = self.0.lock();
        let none = Restart { stops: 0, not_before: now, opened: now };
        let restart = all.entry((pool, volume.to_owned())).or_insert(none);
        if now.since(restart.opened) >= CALM {
            restart.stops = 0;
        }
        let doubled = restart.stops.checked_sub(1).map_or(Duration::ZERO, |again| {
            FIRST_WAIT.saturating_mul(1_u32.checked_shl(again).unwrap_or(u32::MAX))
        });
        let wait = doubled.min(LAST_WAIT);
        restart.stops = restart.stops.saturating_add(1);
        restart.not_before = Monotonic(now.0.saturating_add(wait.as_nanos().try_into().unwrap_or(u64::MAX)));
        restart.opened = restart.not_before;
        wait
    }

    /// A volume is open: the time without trouble begins.
    pub(super) fn opened(&self, pool: Uuid, volume: &str, now: Monotonic) {
        if let Some(restart) = self.0.lock().get_mut(&(pool, volume.to_owned())) {
            restart.opened = now;
        }
    }

    /// Whether a volume is not to be opened yet.
    pub(super) fn holds(&self, pool: Uuid, volume: &str, now: Monotonic) -> bool {
        let all = self.0.lock();
        all.get(&(pool, volume.to_owned())).is_some_and(|restart| now < restart.not_before)
    }

    /// Somebody wants it open, or it is there no more: it begins as one that has never given up.
    pub(super) fn forget(&self, pool: Uuid, volume: &str) {
        self.0.lock().remove(&(pool, volume.to_owned()));
    }

    /// As [`Restarts::forget`], for all volumes of a pool.
    pub(super) fn forget_pool(&self, pool: Uuid) {
        self.0.lock().retain(|(of, _), _| *of != pool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn waits_double_and_end_with_calm() {
        let (restarts, pool) = (Restarts::default(), Uuid::from_u128(1));
        let mut now = 100;
        let mut waits = Vec::new();
        for _ in 0..13 {
            assert!(!restarts.holds(pool, "vm", at(now)));
            let wait = restarts.gave_up(pool, "vm", at(now)).as_secs();
            assert_eq!(restarts.holds(pool, "vm", at(now)), wait > 0);
            assert!(!restarts.holds(pool, "other", at(now)));
            waits.push(wait);
            // Its opening takes longer than the time of calm, and its trouble comes at once.
            now += wait + 700;
            restarts.opened(pool, "vm", at(now));
            now += 1;
        }
        assert_eq!(waits, [0, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]);
        now += CALM.as_secs();
        assert_eq!(restarts.gave_up(pool, "vm", at(now)), Duration::ZERO);
        assert_eq!(restarts.gave_up(pool, "vm", at(now)), FIRST_WAIT);
        assert!(restarts.holds(pool, "vm", at(now)));
        restarts.forget(pool, "vm");
        assert!(!restarts.holds(pool, "vm", at(now)));
        assert_eq!(restarts.gave_up(pool, "vm", at(now)), Duration::ZERO);
        restarts.gave_up(pool, "vm", at(now));
        restarts.forget_pool(pool);
        assert!(!restarts.holds(pool, "vm", at(now)));
    }
}
