//! What pools do, averaged over minutes: what the balance of a cluster goes by.

use std::collections::BTreeMap;
use std::time::Duration;

use observe::IoTotals;
use parking_lot::Mutex;
use shard_runtime::Monotonic;
use uuid::Uuid;

/// A normalised I/O has so many bytes, as for Storage QoS.
const NORMALISED: u64 = 8192;
/// For so long a pool is watched before anything is said of it.
const KNOWN_AFTER: Duration = Duration::from_secs(60);
/// The average is of so many seconds: what is over for that long has fallen to a third.
const AVERAGE_SECONDS: f64 = 600.0;

/// Normalised I/Os of reads and writes so far, of all volumes of a pool together.
pub(super) fn normalised(spaces: &[(String, IoTotals)]) -> u64 {
    let both = spaces.iter().flat_map(|(_, totals)| [totals.read, totals.write]);
    both.map(|kind| kind.operations.max(kind.bytes / NORMALISED)).fold(0, u64::saturating_add)
}

/// What one pool does.
#[derive(Clone, Copy, Debug)]
struct Load {
    since: Monotonic,
    at: Monotonic,
    total: u64,
    per_second: f64,
}

impl Load {
    fn new(now: Monotonic, total: u64) -> Self {
        Self { since: now, at: now, total, per_second: 0.0 }
    }

    /// Takes in what it has done until now. While it is known for less than the average's time, that is the mean so far.
    fn look(&mut self, now: Monotonic, total: u64) {
        // Counters begin anew with each opening.
        let Some(done) = total.checked_sub(self.total) else {
            *self = Self::new(now, total);
            return;
        };
        let seconds = now.since(self.at).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let known = now.since(self.since).as_secs_f64().min(AVERAGE_SECONDS);
        self.per_second += (done as f64 / seconds - self.per_second) * (seconds / known).min(1.0);
        (self.at, self.total) = (now, total);
    }
}

/// What the pools of this node do.
#[derive(Debug, Default)]
pub(super) struct PoolLoads(Mutex<BTreeMap<Uuid, Load>>);

impl PoolLoads {
    /// Normalised I/Os a second; none of a pool that has not been open here for long enough.
    pub(super) fn of(&self, pool: Uuid) -> Option<u64> {
        let loads = self.0.lock();
        let known = loads.get(&pool).filter(|load| load.at.since(load.since) >= KNOWN_AFTER);
        // From f64 to u64 numbers are kept in bounds.
        known.map(|load| load.per_second.round() as u64)
    }

    pub(super) fn look(&self, now: Monotonic, totals: &BTreeMap<Uuid, u64>) {
        let mut loads = self.0.lock();
        loads.retain(|pool, _| totals.contains_key(pool));
        for (pool, total) in totals {
            loads.entry(*pool).or_insert_with(|| Load::new(now, *total)).look(now, *total);
        }
    }
}

#[cfg(test)]
mod tests {
    use observe::KindTotals;

    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn large_requests_count_for_what_they_bring() {
        let kind = |operations, bytes| KindTotals { operations, bytes, errors: 0, nanos: 0 };
        let totals = IoTotals { read: kind(10, 5120), write: kind(2, 1 << 20), ..IoTotals::default() };
        assert_eq!(normalised(&[("a".into(), totals), ("b".into(), totals)]), 2 * (10 + 128));
    }

    #[test]
    fn the_average_is_the_mean_at_first_and_forgets_later() {
        let loads = PoolLoads::default();
        let pool = Uuid::from_u128(1);
        let mut total = 0;
        let mut run = |from: u64, to: u64, rate: u64| {
            for second in (from..=to).step_by(10) {
                total += if second == from { 0 } else { rate * 10 };
                loads.look(at(second), &BTreeMap::from([(pool, total)]));
            }
            loads.of(pool).expect("it is known")
        };
        assert_eq!(run(0, 60, 1000), 1000);
        assert_eq!(run(60, 120, 0), 500, "the mean of both minutes");
        let steady = run(120, 6000, 2000);
        assert!((1995..=2000).contains(&steady), "{steady}");
        let falling = run(6000, 6600, 0);
        assert!((600..=800).contains(&falling), "about a third: {falling}");
    }

    #[test]
    fn what_is_opened_anew_begins_anew_and_what_is_closed_is_forgotten() {
        let loads = PoolLoads::default();
        let pool = Uuid::from_u128(1);
        loads.look(at(0), &BTreeMap::from([(pool, 0)]));
        loads.look(at(59), &BTreeMap::from([(pool, 5900)]));
        assert_eq!(loads.of(pool), None, "it has not been open for long");
        loads.look(at(60), &BTreeMap::from([(pool, 6000)]));
        assert_eq!(loads.of(pool), Some(100));
        loads.look(at(70), &BTreeMap::from([(pool, 10)]));
        assert_eq!(loads.of(pool), None, "opened anew");
        loads.look(at(140), &BTreeMap::from([(pool, 710)]));
        assert_eq!(loads.of(pool), Some(10));
        loads.look(at(150), &BTreeMap::new());
        assert_eq!(loads.of(pool), None);
    }
}
