//! The life of one pool on this node.

use std::time::Duration;

use cluster_store::keys::NodeId;

use crate::io::Order;
use crate::time::BootTime;

/// How far a pool is on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Run {
    /// Nothing of it runs here, and nothing is on its way to its disks.
    #[default]
    Idle,
    /// The order that is being carried out; `None` when all are.
    Active { epoch: u64, step: Option<Order> },
    /// It is being stopped.
    Stopping { epoch: u64 },
}

#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub(crate) run: Run,
    /// Epochs up to this one have ended here: none of them begins again.
    pub(crate) gave_up: u64,
    /// Where it is to go.
    pub(crate) move_to: Option<NodeId>,
    /// The highest epoch that its disks are known to know, above that of the store.
    pub(crate) known: u64,
    /// How often in a row it could not be opened.
    pub(crate) failures: u32,
    /// It is left to others until then.
    pub(crate) not_before: BootTime,
    /// No transaction is sent for it until then: the last one had no effect.
    pub(crate) retry_at: BootTime,
    /// The epoch that is being stopped, and since when, or when it was last told that it takes long.
    stopping: Option<(u64, BootTime)>,
}

impl Pool {
    /// Whether it has been stopping for so long, since it began or since this was asked last; else, when that will be so.
    pub(crate) fn stops_long(&mut self, now: BootTime, within: Duration) -> Result<(), Option<BootTime>> {
        let Run::Stopping { epoch } = self.run else {
            self.stopping = None;
            return Err(None);
        };
        let since = match self.stopping {
            Some((of, since)) if of == epoch => since,
            _ => now,
        };
        let until = since.after(within);
        let is_long = now >= until;
        self.stopping = Some((epoch, if is_long { now } else { since }));
        if is_long { Ok(()) } else { Err(Some(until)) }
    }

    /// The order after the one that is done.
    pub(crate) fn done(&mut self, epoch: u64, order: Order) -> Option<Order> {
        match self.run {
            Run::Active { epoch: running, step } if running == epoch && step == Some(order) => {
                let next = match order {
                    Order::Fence => Some(Order::Open),
                    Order::Open => Some(Order::Restore),
                    Order::Restore => Some(Order::Publish),
                    Order::Publish | Order::Stop => None,
                };
                self.run = Run::Active { epoch, step: next };
                if next.is_none() {
                    self.failures = 0;
                }
                next
            }
            Run::Stopping { epoch: running } if running == epoch && order == Order::Stop => {
                self.run = Run::Idle;
                None
            }
            _ => None,
        }
    }
}
