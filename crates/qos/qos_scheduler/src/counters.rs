//! What flows have done so far: totals, from which rates over any span are made.

use crate::Kind;

/// Requests of one kind that went to the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindCounters {
    /// Requests.
    pub operations: u64,
    /// Their normalised I/Os.
    pub units: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Totals of a flow since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounters {
    /// Reads that went to the volume.
    pub read: KindCounters,
    /// Writes that went to the volume.
    pub write: KindCounters,
    /// Normalised I/Os that were asked for, those that still wait or were cancelled too.
    pub asked_units: u64,
    /// How long requests waited together before they went to the volume, in nanoseconds.
    pub held_nanos: u64,
    /// Requests that found a queue full.
    pub refused: u64,
}

impl FlowCounters {
    pub(crate) fn started(&mut self, kind: Kind, units: u64, bytes: u64) {
        let counters = match kind {
            Kind::Read => &mut self.read,
            Kind::Write => &mut self.write,
        };
        counters.operations += 1;
        counters.units = counters.units.saturating_add(units);
        counters.bytes = counters.bytes.saturating_add(bytes);
    }

    /// Reads and writes together.
    #[must_use]
    pub fn all(&self) -> KindCounters {
        KindCounters {
            operations: self.read.operations + self.write.operations,
            units: self.read.units.saturating_add(self.write.units),
            bytes: self.read.bytes.saturating_add(self.write.bytes),
        }
    }
}

/// A flow now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowState {
    /// What it has done so far.
    pub counters: FlowCounters,
    /// Requests that wait.
    pub waiting: u32,
    /// Requests at the volume.
    pub in_flight: u32,
}
