//! What can be set: of the scheduler, and of a class of flows.

/// What holds for all flows of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes that count as one normalised I/O; a request counts as many as it has, begun ones too, and at least one.
    pub unit_bytes: u32,
    /// Most requests at the volume at once; at least 1.
    pub depth: u32,
    /// Most requests that wait, of one flow.
    pub flow_queue: u32,
    /// Most requests that wait, of all flows.
    pub queue: u32,
    /// For how long a class that was kept below its minimum, or was idle, may catch up before all others, in nanoseconds.
    pub catch_up: u64,
    /// How long the volume may take for a request, in nanoseconds, while somebody would suffer by its being longer; 0 for twice as
    /// long as when it is quiet. Fewer requests than `depth` are let to it then.
    pub latency_target: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            unit_bytes: 8192,
            depth: 256,
            flow_queue: 4096,
            queue: 1 << 20,
            catch_up: 100_000_000,
            latency_target: 0,
        }
    }
}

impl Settings {
    /// Normalised I/Os that a request of so many bytes counts as.
    #[must_use]
    pub fn units(&self, bytes: u64) -> u64 {
        let unit = u64::from(self.unit_bytes.max(1));
        if bytes <= unit { 1 } else { bytes.div_ceil(unit) }
    }
}

/// What a class of flows must and may get. `None` is "nothing promised" or "no limit".
///
/// Nothing is refused here: a minimum above the maximum is what the maximum leaves of it. Policies are checked where they are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Normalised I/Os per second that the class gets before others get more than their minimum.
    pub min_iops: Option<u64>,
    /// Normalised I/Os per second that the class gets at most.
    pub max_iops: Option<u64>,
    /// Bytes per second that the class gets at most.
    pub max_bandwidth: Option<u64>,
    /// The burst allowance in nanoseconds: what the limits give in that time may start at once after a pause.
    pub burst: u64,
}

/// The burst allowance if nothing else is said: 20 ms. It must be longer than a timer is late on a busy machine, or the
/// limit is missed from below; and a fiftieth of a second keeps each second within 2 % of the limit.
pub const DEFAULT_BURST: u64 = 20_000_000;

impl Default for Terms {
    fn default() -> Self {
        Self { min_iops: None, max_iops: None, max_bandwidth: None, burst: DEFAULT_BURST }
    }
}

impl Terms {
    /// The terms with 0 taken as unset.
    pub(crate) fn tidied(mut self) -> Self {
        for term in [&mut self.min_iops, &mut self.max_iops, &mut self.max_bandwidth] {
            *term = term.filter(|value| *value > 0);
        }
        self
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.max_iops.is_some() || self.max_bandwidth.is_some()
    }
}
