//! Orders of the cluster for pools of this node.
//!
//! On a node of its own nobody gives orders: the pool's path (`super`) does the same steps by itself.
//!
//! An order may be dropped at any of its waits, and `Stop` of the same epoch follows. What shards have begun by then comes to its end all the
//! same, in a task of its own that has the pool's turn: a pool that opens while nobody waits for it any more is not lost, and `Stop`, which waits
//! for the turn, finds it and closes it. So `Stop` waits for I/O that is under way, as it has to, and for nothing else: keeping others from
//! disks, and waiting for other pools, ends with the order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster_node::{DriverFuture, Failure, Order, Ownership, PoolDriver};
use cluster_store::keys::PoolId;
use control_api::{Code, PoolConfig, Problem};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{Release, Step, Turn, silence};
use crate::backend::{self, OpenTold, Opened, PoolDisk, is_followed};
use crate::node::Node;

/// How often a pool is asked whether it goes on.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often it is asked whether a disk of it is silent: each so many of these looks.
const SILENCE_EVERY: u32 = 50;

/// What is known of a pool between its orders.
#[derive(Default)]
struct Driven {
    /// Disks on which nobody of a lower epoch writes, with that epoch.
    fenced: Option<(u64, Vec<PoolDisk>)>,
    /// Tells the cluster when the pool cannot go on.
    watching: Option<JoinHandle<()>>,
}

impl Drop for Driven {
    fn drop(&mut self) {
        if let Some(watching) = &self.watching {
            watching.abort();
        }
    }
}

/// That disks know an owner of an epoch that is not below the one in which a pool was taken: what the cluster keeps is older than they are, and
/// the next owner goes above it. Not above what no owner has written.
fn behind(epoch: u64, known: u64) -> Failure {
    if is_followed(epoch.saturating_sub(1), known) { Failure::Behind(known) } else { Failure::Trouble }
}

/// Carries out orders with the pools of a node. Clones are the same.
#[derive(Clone)]
pub(crate) struct NodeDriver {
    node: Arc<Node>,
    driven: Arc<Mutex<BTreeMap<Uuid, Driven>>>,
    /// Where the node's own work runs: orders come from where nothing may be held up.
    control: Handle,
}

/// A task that ends with whoever waits for it.
struct Waited<T>(JoinHandle<T>);

impl<T> Drop for Waited<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl NodeDriver {
    /// For the pools of this node's configuration: from now on it opens none of them by itself. To be made before the node begins.
    #[must_use]
    pub(crate) fn new(node: Arc<Node>) -> Self {
        node.driven.store(true, Ordering::Release);
        Self { node, driven: Arc::default(), control: Handle::current() }
    }

    fn config(&self, pool: Uuid) -> Result<PoolConfig, Failure> {
        let found =
            self.node.config.with(|config| config.pools.iter().find(|known| known.guid == pool).cloned());
        found.ok_or(Failure::Trouble)
    }

    async fn fence(&self, turn: &Turn, epoch: u64) -> Result<(), Failure> {
        let config = self.config(turn.pool)?;
        if self.node.leaves_to_others(turn.pool) {
            tracing::warn!(pool = config.name, "a pool is left to others, as its disk was silent here");
            return Err(Failure::Trouble);
        }
        self.node.pools.lock().entry(turn.pool).or_default().name.clone_from(&config.name);
        turn.begin(Step::Take);
        self.node.expect_shares();
        self.node.lend_as_ordered(turn.pool).await;
        self.node.take_back(turn.pool).await;
        self.node.look_for_members(turn.pool).await;
        let told = self.node.told.lock().get(&turn.pool).copied().unwrap_or_default();
        if !told.take_over
            && let Err(problem) = self.node.refuse_strangers(turn).await
        {
            self.node.not_opened(&config, problem);
            return Err(Failure::Trouble);
        }
        // Before any disk is fenced: who had the pool last goes on with all of them, or with none.
        let unfenced = match self.node.refuse_unfenced(turn, told).await {
            Ok(unfenced) => unfenced,
            Err(problem) => {
                self.node.not_opened(&config, problem);
                return Err(Failure::Trouble);
            }
        };
        match self.node.fence(turn, epoch).await {
            Ok(backend::Fenced::Disks(disks)) => {
                self.driven.lock().entry(turn.pool).or_default().fenced = Some((epoch, disks));
                self.node.path(turn.pool).unfenced.store(unfenced, Ordering::Release);
                Ok(())
            }
            Ok(backend::Fenced::Held(held)) => {
                self.node.surpassed.lock().insert(turn.pool, held.epoch);
                self.node.not_opened(&config, held.problem(&config.name));
                Err(behind(epoch, held.epoch))
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
        let fenced = self.driven.lock().get_mut(&turn.pool).and_then(|driven| driven.fenced.take());
        let Some((_, disks)) = fenced.filter(|(of, _)| *of == epoch) else { return Err(Failure::Trouble) };
        // Whose the pool is, the store has said; that no stranger has it, was looked at before others were kept from its disks.
        let told = self.node.told.lock().remove(&turn.pool).unwrap_or_default();
        match self.node.open_fenced(turn, epoch, disks, OpenTold { take_over: true, ..told }).await {
            Ok(Opened::Open(handle)) => {
                self.node.place_members(turn.pool, &*handle).await;
                self.node.took_over(turn.pool, &config.name, handle).await.map_err(|_| Failure::Trouble)
            }
            Ok(Opened::OldEpoch(known)) => {
                tracing::error!(pool = config.name, epoch, known, "a pool has an owner of a higher epoch");
                self.node.surpassed.lock().insert(turn.pool, known);
                let detail =
                    format!("its disks know epoch {known} of it, and the cluster gave it epoch {epoch}");
                self.node.not_opened(&config, Problem::new(Code::WrongState, detail));
                Err(behind(epoch, known))
            }
            Err(problem) => {
                self.node.not_opened(&config, problem);
                Err(Failure::Trouble)
            }
        }
    }

    /// A step that comes to its end, once it has begun, whether anybody waits for it or not.
    async fn to_its_end(&self, pool: Uuid, epoch: u64, order: Order) -> Result<(), Failure> {
        let turn = self.node.turn(pool).await;
        let driver = self.clone();
        let step = tokio::spawn(async move {
            let done = match order {
                Order::Open => driver.open(&turn, epoch).await,
                _ if !driver.node.is_open(pool) => Err(Failure::Trouble),
                Order::Restore => match driver.node.catch_up_before_restoring() {
                    Ok(()) => {
                        driver.node.restore(&turn).await;
                        Ok(())
                    }
                    Err(problem) => {
                        tracing::error!(%pool, %problem, "what clients had open is not brought back: the state of the cluster cannot be read");
                        Err(Failure::Trouble)
                    }
                },
                _ => {
                    driver.node.publish(&turn).await;
                    Ok(())
                }
            };
            if done.is_err() {
                turn.begin(Step::Idle);
            }
            done
        });
        step.await.unwrap_or(Err(Failure::Trouble))
    }

    pub(super) async fn step(&self, pool: Uuid, epoch: u64, order: Order) -> Result<(), Failure> {
        match order {
            Order::Fence => {
                let turn = self.node.turn(pool).await;
                let fenced = self.fence(&turn, epoch).await;
                if fenced.is_err() {
                    turn.begin(Step::Idle);
                }
                fenced
            }
            Order::Open | Order::Publish => self.to_its_end(pool, epoch, order).await,
            Order::Restore => {
                // Others that wait for this one know from now on what is in it.
                self.node.path(pool).begin(Step::Restore);
                self.node.wait_for_entangled(pool).await;
                self.to_its_end(pool, epoch, order).await
            }
            Order::Stop => {
                self.driven.lock().remove(&pool);
                let turn = self.node.turn(pool).await;
                let unfenced = self.node.path(pool).unfenced.load(Ordering::Acquire);
                let was_open = self.node.is_open(pool);
                // What was not closed cleanly, the next owner recovers as after a crash.
                let release = if unfenced { Release::IfClean } else { Release::No };
                drop(self.node.give_up(&turn, release).await);
                self.node.let_go(pool);
                // Why it could not be opened is told until it is, here or elsewhere.
                let mut pools = self.node.pools.lock();
                if let Some(slot) = pools.get_mut(&pool).filter(|slot| slot.handle.is_none() && was_open) {
                    slot.reason = None;
                }
                drop(pools);
                // What an open may have left that was under way.
                self.driven.lock().remove(&pool);
                Ok(())
            }
        }
    }

    /// Whether a pool cannot go on that was opened in this epoch, and why.
    fn why_not(&self, pool: Uuid, epoch: u64) -> Option<Failure> {
        let handle = self.node.pools.lock().get(&pool).and_then(|slot| slot.handle.clone());
        match handle {
            Some(handle) if !handle.has_stopped() => None,
            Some(handle) if handle.is_superseded() || handle.info().epoch > epoch => Some(Failure::Fenced),
            _ => Some(Failure::Trouble),
        }
    }

    /// Tells the cluster when the pool cannot go on, from now on until it is stopped.
    fn watch(&self, of: &Ownership) {
        let (driver, of) = (self.clone(), of.clone());
        let pool = of.pool.0;
        let watching = self.control.spawn(async move {
            for round in 0_u32.. {
                if let Some(failure) = driver.why_not(pool, of.epoch) {
                    return of.failed(failure);
                }
                if round.is_multiple_of(SILENCE_EVERY)
                    && let Some(disk) = driver.node.given_up_for(pool)
                {
                    silence::told(&disk, pool);
                    return of.failed(Failure::Trouble);
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
        self.driven.lock().entry(pool).or_default().watching = Some(watching);
    }
}

impl PoolDriver for NodeDriver {
    fn carry_out<'a>(&'a self, of: &'a Ownership, order: Order) -> DriverFuture<'a> {
        Box::pin(async move {
            let (driver, pool, epoch) = (self.clone(), of.pool.0, of.epoch);
            let mut step = Waited(self.control.spawn(async move { driver.step(pool, epoch, order).await }));
            tokio::select! {
                done = &mut step.0 => {
                    let done = done.unwrap_or(Err(Failure::Trouble));
                    if matches!((order, done), (Order::Fence | Order::Open, Err(Failure::Trouble))) {
                        self.node.note_opening(pool, false).await;
                    }
                    done?;
                }
                // What shards have begun goes on, and has the turn: `Stop` waits for it.
                () = self.node.wait_until_silent(pool), if order != Order::Stop => return Err(Failure::Trouble),
            }
            if order == Order::Open {
                self.node.note_opening(pool, true).await;
            }
            match (order, self.node.cluster.get()) {
                (Order::Open, _) => self.watch(of),
                (Order::Publish, Some(cluster)) => cluster.say_served(of.pool, of.epoch, of.permit.clone()),
                _ => {}
            }
            Ok(())
        })
    }

    fn hung(&self, pool: PoolId) {
        self.node.end_if_silent(pool.0);
    }
}
