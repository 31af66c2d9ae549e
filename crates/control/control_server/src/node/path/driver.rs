//! Orders of [`pool_ownership`] for pools of this node.
//!
//! On a node of its own nobody gives orders: the pool's path (`super`) does the same steps by itself.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster_store::keys::PoolId;
use control_api::{Code, PoolConfig};
use parking_lot::Mutex;
use pool_ownership::{Failure, Order};
use uuid::Uuid;

use super::{Step, Turn};
use crate::backend::{self, OpenTold, Opened, PoolDisk};
use crate::node::Node;

/// How often a pool is asked whether it goes on.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What came of an order.
pub type Ordered<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// Carries out orders for pools.
///
/// The steps of one pool are given one after the other, each when the one before is done; [`Order::Stop`] at any time, also while
/// another order is under way, which then ends with a failure or is undone. A future that is dropped leaves its step half done: [`Order::Stop`]
/// puts that right.
pub trait PoolDriver: Send + Sync + 'static {
    /// Does this with a pool, in this epoch.
    ///
    /// # Errors
    /// Why the pool cannot go on in the epoch: somebody has a higher one, or anything else. What was begun is undone by [`Order::Stop`].
    fn carry_out(&self, pool: PoolId, epoch: u64, order: Order) -> Ordered<'_>;
    /// Ends when the pool cannot go on that was published in this epoch, with the reason.
    fn failed(&self, pool: PoolId, epoch: u64) -> Pin<Box<dyn Future<Output = Failure> + Send + '_>>;
}

/// Disks of a pool on which nobody of a lower epoch writes.
struct Fenced {
    epoch: u64,
    disks: Vec<PoolDisk>,
}

/// Carries out orders with the pools of a node.
pub struct NodeDriver {
    node: Arc<Node>,
    fenced: Mutex<BTreeMap<Uuid, Fenced>>,
}

impl NodeDriver {
    /// For the pools of this node's configuration: from now on it opens none of them by itself. To be made before the node begins.
    #[must_use]
    pub fn new(node: Arc<Node>) -> Self {
        node.driven.store(true, Ordering::Release);
        Self { node, fenced: Mutex::default() }
    }

    fn config(&self, pool: Uuid) -> Result<PoolConfig, Failure> {
        let found =
            self.node.config.with(|config| config.pools.iter().find(|known| known.guid == pool).cloned());
        found.ok_or(Failure::Trouble)
    }

    async fn fence(&self, turn: &Turn, epoch: u64) -> Result<(), Failure> {
        let config = self.config(turn.pool)?;
        self.node.pools.lock().entry(turn.pool).or_default().name.clone_from(&config.name);
        self.node.take_back(turn.pool).await;
        match self.node.fence(turn, epoch).await {
            Ok(backend::Fenced::Disks(disks)) => {
                self.fenced.lock().insert(turn.pool, Fenced { epoch, disks });
                Ok(())
            }
            Ok(backend::Fenced::Held(held)) => {
                self.node.not_opened(&config, held.problem(&config.name));
                Err(Failure::Fenced)
            }
            Err(problem) => {
                let failure = if problem.code == Code::InUse { Failure::Fenced } else { Failure::Trouble };
                self.node.not_opened(&config, problem);
                Err(failure)
            }
        }
    }

    async fn open(&self, turn: &Turn, epoch: u64) -> Result<(), Failure> {
        let config = self.config(turn.pool)?;
        let fenced = self.fenced.lock().remove(&turn.pool).filter(|fenced| fenced.epoch == epoch);
        let Some(Fenced { disks, .. }) = fenced else { return Err(Failure::Trouble) };
        // Whose the pool is, the store has said.
        let told = OpenTold { take_over: true, ..OpenTold::default() };
        match self.node.open_fenced(turn, epoch, disks, told).await {
            Ok(Opened::Open(handle)) => {
                self.node.took_over(turn.pool, &config.name, handle).await.map_err(|_| Failure::Trouble)
            }
            Ok(Opened::OldEpoch(known)) => {
                tracing::error!(pool = config.name, epoch, known, "a pool has an owner of a higher epoch");
                Err(Failure::Fenced)
            }
            Err(problem) => {
                self.node.not_opened(&config, problem);
                Err(Failure::Trouble)
            }
        }
    }

    async fn step(&self, pool: Uuid, epoch: u64, order: Order) -> Result<(), Failure> {
        let turn = self.node.turn(pool).await;
        let done = match order {
            Order::Fence => self.fence(&turn, epoch).await,
            Order::Open => self.open(&turn, epoch).await,
            Order::Restore | Order::Publish if !self.node.is_open(pool) => Err(Failure::Trouble),
            Order::Restore => {
                self.node.restore(&turn).await;
                Ok(())
            }
            Order::Publish => {
                self.node.publish(&turn).await;
                Ok(())
            }
            Order::Stop => {
                self.fenced.lock().remove(&pool);
                // What was not closed cleanly, the next owner recovers as after a crash.
                drop(self.node.give_up(&turn, false).await);
                self.node.let_go(pool);
                Ok(())
            }
        };
        if done.is_err() {
            turn.begin(Step::Idle);
        }
        done
    }
}

impl PoolDriver for NodeDriver {
    fn carry_out(&self, pool: PoolId, epoch: u64, order: Order) -> Ordered<'_> {
        Box::pin(self.step(pool.0, epoch, order))
    }

    fn failed(&self, pool: PoolId, epoch: u64) -> Pin<Box<dyn Future<Output = Failure> + Send + '_>> {
        Box::pin(async move {
            loop {
                let handle = self.node.pools.lock().get(&pool.0).and_then(|slot| slot.handle.clone());
                match handle {
                    Some(handle) if !handle.has_stopped() => {}
                    Some(handle) if handle.is_superseded() => return Failure::Fenced,
                    Some(handle) if handle.info().epoch > epoch => return Failure::Fenced,
                    _ => return Failure::Trouble,
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        })
    }
}
