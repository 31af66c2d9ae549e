//! What is counted of commands on the medium.

use std::sync::atomic::{AtomicU64, Ordering};

use observe::KindTotals;
use shard_runtime::{Clock, Monotonic, WallTime};

use super::*;

/// A clock that goes on by a microsecond whenever it is asked.
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> Monotonic {
        Monotonic(self.0.fetch_add(1000, Ordering::Relaxed))
    }
    fn wall(&self) -> WallTime {
        WallTime(0)
    }
}

#[test]
fn commands_count_for_the_unit_and_for_the_nexus_that_they_came_over() {
    run(async {
        let rig = Rig::new().await;
        rig.unit.count_with(Arc::new(Ticking(AtomicU64::new(0))));
        rig.good(0, &rw(0x2a, 0, 0, 2), &[1; 1024]).await;
        rig.good(1, &rw(0x28, 0, 0, 2), &[]).await;
        rig.good(1, &rw(0x28, 0, 0, 1), &[]).await;
        // Beyond the end.
        assert_ne!(rig.sense(0, &rw(0x28, 0, BLOCKS as u32, 1), &[]).await.0, 0);
        let [first, second] = rig.nexuses.each_ref().map(|nexus| nexus.io.totals());
        let kind =
            |operations, bytes, errors| KindTotals { operations, bytes, errors, nanos: operations * 1000 };
        assert_eq!((first.read, first.write), (kind(0, 0, 1), kind(1, 1024, 0)));
        assert_eq!((second.read, second.write), (kind(2, 1536, 0), kind(0, 0, 0)));
        let unit = rig.unit.totals();
        assert_eq!((unit.read, unit.write), (kind(2, 1536, 1), kind(1, 1024, 0)));
    });
}
