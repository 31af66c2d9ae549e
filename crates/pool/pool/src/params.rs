//! How background work may use the disks.

use std::time::Duration;

/// How repair may use the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairParams {
    /// Bytes copied per second at most; 0 for no limit.
    pub bytes_per_second: u64,
    /// Columns worked on at the same time.
    pub parallel: usize,
    /// No new copying while set.
    pub paused: bool,
    /// What clients' small requests may take on the average while copies are made; zero for twice what they take without.
    pub client_latency: Duration,
    /// Percent points between the fullest and the emptiest disk above which slabs are moved; 0 for only when asked.
    pub balance_above_percent: u32,
    /// The room of so many disks, the largest, is kept from new rows: what lost disks held is made again there. 0 for none.
    pub reserve_disks: u32,
}

impl Default for RepairParams {
    fn default() -> Self {
        // Four columns keep several disks busy; more only lengthens the queues that clients wait in.
        Self {
            bytes_per_second: 0,
            parallel: 4,
            paused: false,
            client_latency: Duration::ZERO,
            balance_above_percent: 0,
            reserve_disks: 0,
        }
    }
}

/// How and when a pool is scrubbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubParams {
    /// Time from the end of one scrub to the start of the next; zero for only when asked.
    pub every: Duration,
    /// Bytes read per second at most; 0 for no limit.
    pub bytes_per_second: u64,
    /// No reading while set.
    pub paused: bool,
}

impl Default for ScrubParams {
    fn default() -> Self {
        // Damage should meet its repair long before the next disk fails; 64 MiB/s leaves a spinning disk to its clients.
        Self { every: Duration::from_secs(14 * 24 * 3600), bytes_per_second: 64 << 20, paused: false }
    }
}
