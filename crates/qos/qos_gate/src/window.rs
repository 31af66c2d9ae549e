//! The time over which rates of a flow are: its totals, as they were at two looks at it.

use qos_scheduler::FlowCounters;

/// How often flows are looked at: rates are over the time since the last look but one, 5 to 10 seconds.
pub(crate) const SAMPLE_EVERY: u64 = 5 * SECOND;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Totals of a flow at some time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) at: u64,
    pub(crate) counters: FlowCounters,
    pub(crate) done: u64,
    pub(crate) disk_nanos: u64,
}

/// The last two looks at a flow.
#[derive(Debug)]
pub(crate) struct Window {
    older: Sample,
    newer: Sample,
}

impl Window {
    pub(crate) fn new(now: u64) -> Self {
        let sample = Sample { at: now, ..Sample::default() };
        Self { older: sample, newer: sample }
    }

    /// The look before the last one.
    pub(crate) fn older(&self) -> Sample {
        self.older
    }

    /// Another look, the last one from now on.
    pub(crate) fn look(&mut self, sample: Sample) {
        self.older = self.newer;
        self.newer = sample;
    }
}
