//! Counters of I/O.

use std::time::Duration;

use serde_json::{Value, json};

use crate::tally::{InFlight, IoTally, IoTotals};
use crate::{Counter, Histogram, Inspect, IoKind};

const KINDS: usize = 4;

/// Counters of one thing that does I/O: a disk, a space, a LUN, a session.
#[derive(Default)]
pub struct IoStats {
    kinds: [KindStats; KINDS],
    tally: IoTally,
}

#[derive(Default)]
struct KindStats {
    ops: Counter,
    bytes: Counter,
    errors: Counter,
    latency: Histogram,
}

impl IoStats {
    /// An operation starts; it is under way until what is given back is dropped.
    #[must_use]
    pub fn begin(&self) -> InFlight<'_> {
        self.tally.begin()
    }

    /// Sums of all so far.
    #[must_use]
    pub fn totals(&self) -> IoTotals {
        self.tally.totals()
    }

    /// Counts an operation that has ended.
    pub fn record(&self, kind: IoKind, bytes: u64, latency: Duration, ok: bool) {
        self.tally.record(kind, bytes, latency, ok);
        let stats = &self.kinds[kind as usize];
        if ok {
            stats.ops.add(1);
            stats.bytes.add(bytes);
            stats.latency.record(latency);
        } else {
            stats.errors.add(1);
        }
    }

    /// Numbers of one kind now.
    #[must_use]
    pub fn snapshot(&self, kind: IoKind) -> IoStatsSnapshot {
        let stats = &self.kinds[kind as usize];
        let latency = stats.latency.snapshot();
        IoStatsSnapshot {
            ops: stats.ops.get(),
            bytes: stats.bytes.get(),
            errors: stats.errors.get(),
            p50: latency.quantile(0.5),
            p99: latency.quantile(0.99),
        }
    }

    /// Operations that have begun and not ended.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.tally.totals().in_flight
    }
}

/// Counters of one kind of operation at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoStatsSnapshot {
    /// Operations that succeeded.
    pub ops: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Median latency.
    pub p50: Duration,
    /// 99th percentile of latency.
    pub p99: Duration,
}

impl Inspect for IoStats {
    fn inspect(&self) -> Value {
        let kind = |kind| {
            let s = self.snapshot(kind);
            json!({
                "ops": s.ops, "bytes": s.bytes, "errors": s.errors,
                "p50_us": s.p50.as_micros() as u64, "p99_us": s.p99.as_micros() as u64,
            })
        };
        json!({
            "in_flight": self.in_flight(),
            "read": kind(IoKind::Read), "write": kind(IoKind::Write),
            "flush": kind(IoKind::Flush), "unmap": kind(IoKind::Unmap),
        })
    }
}
