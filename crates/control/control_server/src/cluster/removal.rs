//! That the cluster has removed this node, for whatever writes to what is shared: it asks before each change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use cluster_node::Status;
use tokio::sync::watch;

/// Whether the cluster has removed this node. Copies are of the same node, and what one learns all know. It is never taken back.
#[derive(Clone, Default)]
pub(crate) struct Removal(Arc<Told>);

#[derive(Default)]
struct Told {
    /// As it was found out when the node was to take part, or since.
    is_noted: AtomicBool,
    /// What the node's part in the cluster says, once it has begun.
    status: OnceLock<watch::Receiver<Status>>,
}

impl Removal {
    /// The cluster has removed this node.
    pub(crate) fn note(&self) {
        self.0.is_noted.store(true, Ordering::Release);
    }

    /// The node takes part from now on, and hears of it this way too.
    pub(super) fn follow(&self, status: watch::Receiver<Status>) {
        let _ = self.0.status.set(status);
    }

    /// Whether it has, as far as is known here.
    pub(crate) fn is_so(&self) -> bool {
        self.0.is_noted.load(Ordering::Acquire)
            || self.0.status.get().is_some_and(|told| told.borrow().removed)
    }
}
