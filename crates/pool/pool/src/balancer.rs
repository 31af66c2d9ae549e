//! What a rebalancing has still to do, and what asks for it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use pool_format::DiskId;
use shard_runtime::Monotonic;

use crate::row::Planned;

/// What is to be moved, and what asks for it.
#[derive(Default)]
pub(crate) struct Balancer {
    pub(crate) state: Mutex<State>,
    /// Somebody has asked for it.
    pub(crate) asked: AtomicBool,
    /// Disks have joined: fault domains may be used better.
    pub(crate) joined: AtomicBool,
    /// Slabs moved since the opening.
    pub(crate) moved: AtomicU64,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) moves: VecDeque<Planned>,
    /// How many moves the plan had.
    pub(crate) planned: u64,
    /// Somebody has asked for it: when it is done, what is left of it is planned anew.
    pub(crate) by_hand: bool,
    /// Whether it has moved anything.
    pub(crate) progress: bool,
    /// When it was made, and the used slabs of each disk then: if it moves nothing, neither would the same plan a moment later.
    pub(crate) made: Option<(Monotonic, Vec<(DiskId, u32)>)>,
}

impl Balancer {
    /// Disks have joined.
    pub(crate) fn tell_joined(&self) {
        self.joined.store(true, Ordering::Release);
    }
}
