//! The clusters that are ready to take the place of shared ones, or of holes (`lending.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shard_runtime::Monotonic;

/// How long those that are ready wait for somebody to want them.
pub(crate) const REST: Duration = Duration::from_secs(1);

/// Clusters that are ready.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    /// With the number of the change that has put them into the list.
    pub(crate) ready: Vec<(u64, u64)>,
    /// How many are made ready next time: more while they are wanted.
    pub(crate) more: usize,
    /// The same of those for holes.
    pub(crate) more_for_holes: usize,
    /// Runs that are being filled, with those that are ready.
    pub(crate) filling: Arc<Mutex<BTreeSet<u64>>>,
    /// When some were wanted last.
    pub(crate) wanted: Monotonic,
}
