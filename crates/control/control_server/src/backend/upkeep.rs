//! How pools are kept whole and even.

use uuid::Uuid;

/// How a pool keeps itself whole beside its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Upkeep {
    /// Bytes per second that repair may copy; 0 for no limit.
    pub repair_bytes_per_second: u64,
    /// Milliseconds that clients may wait during repair; 0 for twice what they wait without.
    pub client_latency_ms: u64,
    /// Days from one scrub to the next; 0 for only when asked.
    pub scrub_every_days: u32,
    /// Bytes per second that a scrub may read; 0 for no limit.
    pub scrub_bytes_per_second: u64,
    /// Percent points between the fullest and the emptiest disk above which slabs are moved; 0 for only when asked.
    pub rebalance_above_percent: u32,
    /// How many disks' room is kept from new data.
    pub reserve_disks: u32,
}

/// What a rebalancing moves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BalancePlan {
    /// Bytes to move.
    pub bytes: u64,
    /// Members, with the bytes in use now and then.
    pub members: Vec<(Uuid, u64, u64)>,
}
