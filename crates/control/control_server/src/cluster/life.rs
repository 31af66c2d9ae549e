//! Who a node is when it writes itself as the owner of a pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cluster_store::keys::NodeId;
use cluster_store::values::{Holder, Incarnation};

/// Which node this is, and the number of its present life. Clones are the same.
#[derive(Clone)]
pub(crate) struct Life {
    node: NodeId,
    /// 0 while it has none.
    incarnation: Arc<AtomicU64>,
}

impl Life {
    /// Of a node that does not take part yet.
    pub(super) fn new(node: NodeId) -> Self {
        Self { node, incarnation: Arc::new(AtomicU64::new(0)) }
    }

    /// Which node it is.
    pub(crate) fn node(&self) -> NodeId {
        self.node
    }

    /// Whom a pool belongs to that is this node's; none while it does not take part.
    pub(crate) fn holder(&self) -> Option<Holder> {
        let number = self.incarnation.load(Ordering::Acquire);
        (number != 0).then_some(Holder { node: self.node, incarnation: Incarnation(number) })
    }

    /// This is the number of its life from now on; 0: it has none.
    pub(super) fn set(&self, number: u64) {
        self.incarnation.store(number, Ordering::Release);
    }
}
