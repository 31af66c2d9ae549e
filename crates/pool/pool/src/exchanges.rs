//! What is remembered of exchanges (`exchange.rs`) between two plans.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use pool_format::DiskId;
use shard_runtime::Monotonic;

use crate::row::Place;

/// What is remembered between two plans.
#[derive(Default)]
pub(crate) struct Exchanges {
    pub(crate) futile: Mutex<Option<Futile>>,
    /// Columns that lack a copy, or have one that leaves, and that the last pass found no room for, whatever moves: nothing of them is
    /// restored before something else changes.
    pub(crate) without_room: Mutex<BTreeSet<Place>>,
}

/// A plan that found nothing, and what it found nothing in.
pub(crate) struct Futile {
    pub(crate) made: Monotonic,
    /// The disks in use that are here, and whether they have room: how much makes no difference.
    pub(crate) disks: Vec<(DiskId, bool)>,
    pub(crate) waiting: usize,
}
