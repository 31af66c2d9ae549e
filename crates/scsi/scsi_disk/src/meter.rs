//! Counts the commands on a unit's medium.

use std::sync::{Arc, OnceLock};

use observe::{IoKind, IoTally, IoTotals};
use qos_gate::Permit;
use scsi_core::Nexus;
use scsi_defs::Op;
use shard_runtime::Clock;

use crate::reply::Outcome;

/// Counters of a unit, and the clock that latencies are taken with.
#[derive(Default)]
pub(crate) struct Meter {
    tally: IoTally,
    clock: OnceLock<Arc<dyn Clock>>,
}

/// What a command on the medium counts as.
pub(crate) fn kind(op: Op) -> IoKind {
    match op {
        Op::Read6 | Op::Read10 | Op::Read12 | Op::Read16 => IoKind::Read,
        Op::Write6
        | Op::Write10
        | Op::Write12
        | Op::Write16
        | Op::WriteVerify10
        | Op::WriteVerify12
        | Op::WriteVerify16
        | Op::WriteSame10
        | Op::WriteSame16
        | Op::OrWrite
        | Op::CompareAndWrite => IoKind::Write,
        Op::Unmap => IoKind::Unmap,
        _ => IoKind::Flush,
    }
}

impl Meter {
    /// Counts commands from now on, with latencies by this clock, which is that of the queue that they wait in, if there is one. Only
    /// the first call does something.
    pub(crate) fn count_with(&self, clock: Arc<dyn Clock>) {
        // A second clock would tell the same time.
        let _ = self.clock.set(clock);
    }

    /// What initiators have read, written and flushed since counting began. Bytes are those that the commands asked for.
    pub(crate) fn totals(&self) -> IoTotals {
        self.tally.totals()
    }

    /// Runs a command on the medium, counted here and for the nexus that it came over. Its time is that at the volume: what it waited
    /// for its turn before is its flow's. The queue has the same clock, so both count by the same two looks at it.
    pub(crate) async fn counted(
        &self,
        nexus: &Nexus,
        op: Op,
        permit: Option<Permit>,
        command: impl Future<Output = Outcome>,
    ) -> Outcome {
        let Some(clock) = self.clock.get() else {
            let outcome = command.await;
            drop(permit);
            return outcome;
        };
        let _under_way = self.tally.begin();
        let since = permit.as_ref().map_or_else(|| clock.now(), Permit::since);
        let outcome = command.await;
        let bytes = outcome.as_ref().map_or(0, |reply| reply.transfer);
        let now = clock.now();
        let took = now.since(since);
        for tally in [&self.tally, &nexus.io] {
            tally.record(kind(op), bytes, took, outcome.is_ok());
        }
        if let Some(permit) = permit {
            permit.leave(now);
        }
        outcome
    }
}
