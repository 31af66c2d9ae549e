//! The flow that an open's reads and writes belong to.

use std::sync::Arc;

use qos_gate::Flow;

/// The flow of an open, as it was when queues had that generation.
pub(crate) struct Queued {
    pub(crate) generation: u64,
    /// That of what its host has said of it, if it has.
    pub(crate) said: Option<(u64, u64)>,
    pub(crate) flow: Option<Arc<Flow>>,
}
