//! The pools that run here: who carries out which order, and their permits.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use cluster_store::keys::PoolId;
use futures_util::FutureExt as _;
use pool_ownership::{BootTime, Failure, Order};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::driver::{Failures, Ownership, PoolDriver};
use crate::permit::Permit;
use crate::status::PoolState;

/// A pool that could not be stopped is asked to stop again after this.
const STOP_AGAIN: Duration = Duration::from_millis(500);

/// What became of an order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) pool: PoolId,
    pub(crate) epoch: u64,
    pub(crate) order: Order,
    pub(crate) result: Result<(), Failure>,
}

struct Running {
    ownership: Ownership,
    order: Order,
    done: bool,
    published: bool,
    task: JoinHandle<()>,
}

/// All pools of a life. When this goes away so do their permits.
pub(crate) struct Pools<Event> {
    driver: Arc<dyn PoolDriver>,
    running: BTreeMap<PoolId, Running>,
    until: BootTime,
    pub(crate) failures: Arc<Failures>,
    events: mpsc::Sender<Event>,
    event: fn(Report) -> Event,
}

impl<Event: Send + 'static> Pools<Event> {
    pub(crate) fn new(
        driver: Arc<dyn PoolDriver>,
        events: mpsc::Sender<Event>,
        event: fn(Report) -> Event,
    ) -> Self {
        let failures = Arc::new(Failures::default());
        Self { driver, running: BTreeMap::new(), until: BootTime(0), failures, events, event }
    }

    /// Answers may be given until then.
    pub(crate) fn permit(&mut self, until: BootTime) {
        self.until = until;
        for running in self.running.values().filter(|running| running.published) {
            running.ownership.permit.set(until);
        }
    }

    /// Begins to carry out an order. The one before has ended first; [`Order::Stop`] ends it.
    pub(crate) fn order(&mut self, pool: PoolId, epoch: u64, order: Order) {
        let before = self.running.remove(&pool);
        let ownership = match &before {
            Some(before) if before.ownership.epoch == epoch => before.ownership.clone(),
            before => {
                // It was stopped, or its epoch would not be over; shards may still hold its permit.
                before.iter().for_each(|before| before.ownership.permit.revoke());
                Ownership { pool, epoch, permit: Permit::new(), failures: self.failures.clone() }
            }
        };
        match order {
            Order::Stop => ownership.permit.revoke(),
            Order::Publish => ownership.permit.set(self.until),
            Order::Fence | Order::Open | Order::Restore => {}
        }
        let before = before.map(|before| before.task);
        if order == Order::Stop
            && let Some(task) = &before
        {
            task.abort();
        }
        tracing::info!("pool {pool}, epoch {epoch}: {order:?}");
        let (driver, events, event, of) =
            (self.driver.clone(), self.events.clone(), self.event, ownership.clone());
        let task = tokio::spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            let result = carry_out(driver.as_ref(), &of, order).await;
            let _ = events.send(event(Report { pool, epoch, order, result })).await;
        });
        let published = order == Order::Publish;
        self.running.insert(pool, Running { ownership, order, done: false, published, task });
    }

    /// Takes note of what became of an order.
    pub(crate) fn reported(&mut self, report: &Report) {
        let Some(running) = self.running.get_mut(&report.pool) else { return };
        if running.ownership.epoch != report.epoch || running.order != report.order {
            return;
        }
        if report.result.is_err() {
            running.ownership.permit.revoke();
        } else if report.order == Order::Stop {
            self.running.remove(&report.pool);
        } else {
            running.done = true;
        }
    }

    /// How it is with each pool.
    pub(crate) fn each(&self) -> impl Iterator<Item = PoolState> {
        self.running.iter().map(|(pool, running)| PoolState {
            pool: *pool,
            epoch: running.ownership.epoch,
            order: running.order,
            done: running.done,
        })
    }

    /// Stops everything and waits for it: the process is to end.
    pub(crate) async fn stop_all(&mut self) {
        let going: Vec<(PoolId, u64)> = self
            .running
            .iter()
            .filter(|(_, running)| running.order != Order::Stop)
            .map(|(pool, running)| (*pool, running.ownership.epoch))
            .collect();
        for (pool, epoch) in going {
            self.order(pool, epoch, Order::Stop);
        }
        while let Some((_, running)) = self.running.pop_first() {
            let _ = running.task.await;
        }
    }
}

impl<Event> Drop for Pools<Event> {
    fn drop(&mut self) {
        for running in self.running.values() {
            running.ownership.permit.revoke();
            running.task.abort();
        }
    }
}

/// One order. A driver that panics has failed; a pool is asked to stop until it has.
async fn carry_out(driver: &dyn PoolDriver, of: &Ownership, order: Order) -> Result<(), Failure> {
    loop {
        let work = AssertUnwindSafe(async { driver.carry_out(of, order).await }).catch_unwind();
        let failure = match work.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => failure,
            Err(_) => Failure::Trouble,
        };
        tracing::warn!("pool {}, epoch {}: {order:?} failed: {failure:?}", of.pool, of.epoch);
        if order != Order::Stop {
            return Err(failure);
        }
        sleep(STOP_AGAIN).await;
    }
}
