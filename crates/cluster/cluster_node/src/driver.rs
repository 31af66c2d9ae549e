//! What the control plane does for a pool that this node owns.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use cluster_store::keys::PoolId;
use parking_lot::Mutex;
use pool_ownership::{Failure, Order};
use tokio::sync::Notify;

use crate::permit::Permit;

/// What became of an order, later.
pub type DriverFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// Carries out orders. They are given on the control plane's runtime: what belongs to a shard is asked of it.
pub trait PoolDriver: Send + Sync + 'static {
    /// Does this with a pool; what each order means, and when it is done, stands at [`Order`].
    ///
    /// Orders of one pool come one after another. The future of one may be dropped at any of its waits; [`Order::Stop`] of the
    /// same epoch follows then, and ends whatever was begun, on shards too. It is given again after a while when it fails: until it is done
    /// the pool goes nowhere.
    fn carry_out<'a>(&'a self, of: &'a Ownership, order: Order) -> DriverFuture<'a>;

    /// The pool has been stopping for long. If something that it waits for hangs, the process has to end, since nobody else takes its pools while
    /// the node beats. If it only has much to do, this does nothing, and is asked again after a while.
    fn hung(&self, pool: PoolId);
}

/// A pool that this node owns in an epoch. Clones are the same.
#[derive(Clone, Debug)]
pub struct Ownership {
    /// The pool.
    pub pool: PoolId,
    /// The epoch: what the disks are fenced with.
    pub epoch: u64,
    /// Whether answers may be given: from [`Order::Publish`] on, while there is a permit.
    pub permit: Permit,
    pub(crate) failures: Arc<Failures>,
}

impl Ownership {
    /// The pool cannot go on in this epoch: no answer is given any more, at once, and [`Order::Stop`] follows. Waits for nobody; for
    /// shards that meet [`Failure::Fenced`].
    pub fn failed(&self, failure: Failure) {
        self.permit.revoke();
        self.failures.report(self.pool, self.epoch, failure);
    }
}

/// Failures that the loop has not taken note of yet: at most one for each pool and epoch that runs, so they need no bound of their own.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    waiting: Mutex<Vec<(PoolId, u64, Failure)>>,
    notify: Notify,
}

impl Failures {
    fn report(&self, pool: PoolId, epoch: u64, failure: Failure) {
        let mut waiting = self.waiting.lock();
        if !waiting.iter().any(|(of, in_epoch, _)| (*of, *in_epoch) == (pool, epoch)) {
            waiting.push((pool, epoch, failure));
        }
        drop(waiting);
        self.notify.notify_one();
    }

    /// The next one, when there is one.
    pub(crate) async fn next(&self) -> (PoolId, u64, Failure) {
        loop {
            if let Some(failure) = self.waiting.lock().pop() {
                return failure;
            }
            self.notify.notified().await;
        }
    }
}
