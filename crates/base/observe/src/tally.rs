//! What one thing that does I/O has done so far: the raw counters from which rates, latencies and queues are made.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{Counter, IoKind};

/// Counters of one disk, space, volume, LUN or share. An operation costs five relaxed additions.
#[derive(Default)]
pub struct IoTally {
    read: KindTally,
    write: KindTally,
    other: KindTally,
    in_flight: AtomicU64,
}

#[derive(Default)]
struct KindTally {
    operations: Counter,
    bytes: Counter,
    errors: Counter,
    nanos: Counter,
}

impl KindTally {
    fn totals(&self) -> KindTotals {
        KindTotals {
            operations: self.operations.get(),
            bytes: self.bytes.get(),
            errors: self.errors.get(),
            nanos: self.nanos.get(),
        }
    }
}

/// An operation under way, until dropped.
pub struct InFlight<'a>(&'a IoTally);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl IoTally {
    /// An operation begins. It is under way until what is given back is dropped, also when nobody waits for its end.
    #[must_use]
    pub fn begin(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(self)
    }

    /// Counts an operation that has ended; of one that failed, only that it did.
    pub fn record(&self, kind: IoKind, bytes: u64, latency: Duration, ok: bool) {
        let tally = match kind {
            IoKind::Read => &self.read,
            IoKind::Write => &self.write,
            IoKind::Flush | IoKind::Unmap => &self.other,
        };
        if !ok {
            return tally.errors.add(1);
        }
        tally.operations.add(1);
        tally.bytes.add(bytes);
        tally.nanos.add(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The numbers now. Those of an operation that ends meanwhile may be there in part.
    #[must_use]
    pub fn totals(&self) -> IoTotals {
        IoTotals {
            read: self.read.totals(),
            write: self.write.totals(),
            other: self.other.totals(),
            in_flight: self.in_flight.load(Ordering::Relaxed),
        }
    }
}

/// Counters of one kind of operation at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindTotals {
    /// Operations that succeeded.
    pub operations: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Nanoseconds that those that succeeded took, all added up.
    pub nanos: u64,
}

/// Counters of a thing that does I/O at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoTotals {
    /// Reads.
    pub read: KindTotals,
    /// Writes, zeroes.
    pub write: KindTotals,
    /// Flushes, unmaps.
    pub other: KindTotals,
    /// Operations that have begun and not ended.
    pub in_flight: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_succeeds_fails_and_is_under_way_is_kept_apart() {
        let tally = IoTally::default();
        let first = tally.begin();
        let second = tally.begin();
        tally.record(IoKind::Read, 4096, Duration::from_micros(5), true);
        drop(first);
        tally.record(IoKind::Write, 512, Duration::from_micros(7), false);
        tally.record(IoKind::Flush, 0, Duration::from_micros(2), true);
        let now = tally.totals();
        assert_eq!(now.read, KindTotals { operations: 1, bytes: 4096, errors: 0, nanos: 5000 });
        assert_eq!(now.write, KindTotals { errors: 1, ..KindTotals::default() });
        assert_eq!((now.other.operations, now.other.nanos, now.in_flight), (1, 2000, 1));
        drop(second);
        assert_eq!(tally.totals().in_flight, 0);
    }
}
