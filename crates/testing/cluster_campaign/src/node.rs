//! A node of the simulation: its clock, its present life, and what waits while it stands still.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::task::{Context, Waker};

use cluster_store::keys::NodeId;
use pool_ownership::{BootTime, Failure, Message, Node, Order, RequestId};
use sim_store::{ClientId, Reply};

use crate::case::Sabotage;
use crate::disk::DiskReply;
use crate::life::{Life, Task, Time, WaitId};
use crate::pool::{Pool, Request};

/// Something arrives at a node.
pub(crate) enum Incoming {
    Wake(u64),
    Disk(WaitId, DiskReply),
    TimeOut(WaitId),
    Slept(WaitId),
    Store(For, Reply),
    Message(NodeId, Message),
    Report(usize, u64, Result<Order, Failure>),
    Client(usize, Request),
    Move(usize, NodeId),
    Mode(bool, bool),
    /// The snapshot that was asked for has not come.
    NoSnapshot(u64),
}

/// Connections, threads and timers that go on at different times after a stand-still.
pub(crate) const SOURCES: usize = 7;

impl Incoming {
    /// What comes of one source stays in its order.
    pub(crate) fn source(&self) -> usize {
        match self {
            Self::Wake(_) | Self::NoSnapshot(_) => 0,
            Self::Store(For::Watch | For::Snapshot, _) => 1,
            Self::Store(..) => 2,
            Self::Message(..) => 3,
            Self::Move(..) | Self::Mode(..) => 4,
            Self::Disk(..) | Self::TimeOut(_) | Self::Slept(_) | Self::Report(..) => 5,
            Self::Client(..) => 6,
        }
    }
}

/// Who waits for an answer of the store.
#[derive(Clone, Copy)]
pub(crate) enum For {
    Machine(RequestId),
    Task(WaitId),
    Snapshot,
    Watch,
}

/// The clocks of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// Millionths that it runs too fast.
    pub(crate) error_ppm: i64,
    pub(crate) offset: Time,
    /// How long the machine has slept.
    pub(crate) slept: Time,
    /// How far wall time was set back.
    pub(crate) set_back: Time,
}

impl Clock {
    fn boot(&self, now: Time) -> Time {
        let scaled = i128::from(now) * i128::from(1_000_000 + self.error_ppm) / 1_000_000;
        self.offset + scaled as u64
    }

    /// The clock that the node goes by.
    pub(crate) fn read(&self, now: Time, sabotage: Sabotage) -> BootTime {
        let boot = self.boot(now);
        BootTime(match sabotage {
            Sabotage::PermitOnWallTime => boot - self.set_back,
            Sabotage::PermitStopsInSleep => boot - self.slept,
            _ => boot,
        })
    }

    /// The true time that passes until the clock shows this.
    pub(crate) fn until(&self, now: Time, at: BootTime, sabotage: Sabotage) -> Time {
        let left = at.0.saturating_sub(self.read(now, sabotage).0);
        let rate = (1_000_000 + self.error_ppm) as u128;
        u64::try_from(u128::from(left) * 1_000_000 / rate + 1).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
    }
}

pub(crate) struct Running {
    /// The epoch of the pool that it belongs to.
    pub(crate) pool: (usize, u64),
    task: Option<Task>,
}

pub(crate) struct SimNode {
    pub(crate) id: NodeId,
    /// Counts lives; the present one's incarnation.
    pub(crate) life_number: u64,
    /// `None` while no process runs.
    pub(crate) machine: Option<Node>,
    pub(crate) life: Rc<Life>,
    pub(crate) running: Vec<Running>,
    pub(crate) pools: BTreeMap<usize, Rc<Pool>>,
    pub(crate) clock: Clock,
    pub(crate) paused_since: Option<Time>,
    pub(crate) pauses: u64,
    pub(crate) sleeps: bool,
    pub(crate) inbox: VecDeque<Incoming>,
    /// Until then what has waited comes first, for each source.
    pub(crate) catching_up: [Time; SOURCES],
    pub(crate) wake_generation: u64,
    pub(crate) reads: u64,
    /// It crashes when it is given this order.
    pub(crate) crash_at: Option<Order>,
    /// When transactions were sent, and the last one that was committed, by its own clock.
    pub(crate) sent: BTreeMap<RequestId, BootTime>,
    pub(crate) committed: BootTime,
}

impl SimNode {
    pub(crate) fn new(id: NodeId, clock: Clock) -> Self {
        Self {
            id,
            life_number: 0,
            machine: None,
            life: Life::new(Sabotage::None, 0),
            running: Vec::new(),
            pools: BTreeMap::new(),
            clock,
            paused_since: None,
            pauses: 0,
            sleeps: false,
            inbox: VecDeque::new(),
            catching_up: [0; SOURCES],
            wake_generation: 0,
            reads: 0,
            crash_at: None,
            sent: BTreeMap::new(),
            committed: BootTime(0),
        }
    }

    /// How the store knows this life.
    pub(crate) fn client(&self) -> ClientId {
        u64::from(self.id.number()) * 1_000_000 + self.life_number
    }

    pub(crate) fn spawn(&mut self, pool: (usize, u64), task: Task) {
        self.running.push(Running { pool, task: Some(task) });
    }

    /// Ends everything that belongs to an epoch of a pool.
    pub(crate) fn stop(&mut self, pool: (usize, u64)) {
        self.running.retain(|running| running.pool != pool);
        if self.pools.get(&pool.0).is_some_and(|running| running.epoch == pool.1) {
            self.pools.remove(&pool.0);
        }
        let mut inner = self.life.inner.borrow_mut();
        if inner.published.get(&pool.0) == Some(&pool.1) {
            inner.published.remove(&pool.0);
        }
    }

    /// Polls until a task has something to tell the world; false when none has.
    pub(crate) fn poll(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            self.life.progress.set(false);
            for running in &mut self.running {
                let Some(task) = &mut running.task else { continue };
                if task.as_mut().poll(&mut context).is_ready() {
                    running.task = None;
                    self.life.progress.set(true);
                }
                if !self.life.inner.borrow().out.is_empty() {
                    return true;
                }
            }
            self.running.retain(|running| running.task.is_some());
            if !self.life.progress.get() {
                return false;
            }
        }
    }
}
