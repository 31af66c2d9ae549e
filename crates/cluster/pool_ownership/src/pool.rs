//! The life of one pool on this node.

use cluster_store::keys::NodeId;

use crate::io::Order;
use crate::settings::Timings;
use crate::time::BootTime;

/// A failed opening is given twice the time of the one before, so often.
const DOUBLINGS: u32 = 4;

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
    /// What it was at when it was looked at last, and since when.
    watched: (Run, BootTime),
    /// It was told that this epoch does not stop.
    hung: Option<u64>,
}

/// What a pool does not come to the end of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// A step that opens it, in this epoch.
    Opening(u64),
    /// Its stop; said once for each epoch.
    Stopping,
}

impl Pool {
    /// Whether it has been at the same order for longer than that may take; else, when that will be so.
    pub(crate) fn overdue(&mut self, now: BootTime, timings: &Timings) -> Result<Overdue, Option<BootTime>> {
        if self.watched.0 != self.run {
            self.watched = (self.run, now);
        }
        let (within, overdue) = match self.run {
            Run::Active { epoch, step: Some(_) } => {
                (timings.open_within * (1 << self.failures.min(DOUBLINGS)), Overdue::Opening(epoch))
            }
            Run::Stopping { epoch } if self.hung != Some(epoch) => (timings.stop_within, Overdue::Stopping),
            Run::Idle | Run::Active { step: None, .. } | Run::Stopping { .. } => return Err(None),
        };
        let until = self.watched.1.after(within);
        if now < until {
            return Err(Some(until));
        }
        if let Run::Stopping { epoch } = self.run {
            self.hung = Some(epoch);
        }
        Ok(overdue)
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
