//! A pool's own path on this node: from the moment that it is this node's to the moment that nothing of it is left here.
//!
//! ```text
//!            take ──► fence ──► open ──► restore ──► publish ──► serving
//!   epoch ───┘        │         │        │           └ LUNs and shares of its volumes, and of no other pool's
//!   disks on which    ┘         │        └ its volumes, and what clients had open in them
//!   nobody of a lower one writes└ the newest state, in that epoch
//!
//!   any step, serving ──► stop: LUNs and shares are withdrawn, volumes close, the pool closes, nothing is on its way to a disk
//! ```
//! Each pool goes its own way, in a task of its own: one that opens slowly, hangs, or is stopped holds up nothing of the others.
//!
//! Who holds what:
//! * the **turn** of a pool, whoever moves it along its path or changes its shape (its disks, volumes, logs), for as long as that takes;
//!   of several pools in the order of their identities (a volume whose log lies in another pool concerns both);
//! * the node's **change lock**, whoever changes the configuration by what it has seen of it, from looking to writing. It comes after turns:
//!   nobody waits for a turn, or for a disk, with it, except the start of the node, whose paths do not want it;
//! * the **serving** lock of a pool (`serve`), whoever makes what is served of it equal to the configuration. It comes last.
//!
//! On a node of its own these steps follow each other here, without a store's watch or a beat in between: its epochs come from its own
//! data directory, which is its alone as long as it has the lock, so there is nobody to hear from before it may begin, and a start takes
//! as long as before. Orders of `pool_ownership` go through `driver`, and carry out the same steps.

mod down;
pub(crate) mod driver;
mod silence;
#[cfg(test)]
mod tests;
mod unfenced;
mod up;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use control_api::{Code, Problem};
use tokio::sync::{OwnedMutexGuard, watch as signal};
use uuid::Uuid;

use super::Node;

/// How long somebody waits for a pool that is busy, and how long a start waits for pools that do not answer before it goes on without them.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Whether the pool's disks are to say that it is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Release {
    /// It stays whose it is.
    No,
    /// When its volumes and the pool itself were closed cleanly; else it stays whose it is.
    IfClean,
    /// Somebody waits for it: when the pool itself was closed cleanly. What a volume could not be closed with, who takes it recovers.
    Asked,
}

/// How far a pool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing of it is here.
    #[default]
    Idle,
    /// An epoch is being taken.
    Take,
    /// Former owners are kept from its disks.
    Fence,
    /// Its newest state is looked for.
    Open,
    /// Volumes are opened, and what clients had open is brought back.
    Restore,
    /// LUNs and shares are being published.
    Publish,
    /// Clients use it.
    Serving,
    /// It is being let go of.
    Stop,
}

impl Step {
    /// Whether it is not known yet what is in the pool.
    fn is_before_restore(self) -> bool {
        matches!(self, Self::Take | Self::Fence | Self::Open)
    }

    /// Whether it comes, and it is not known yet what of it.
    fn is_on_its_way(self) -> bool {
        self.is_before_restore() || self == Self::Restore
    }

    /// What is being done, for people.
    fn told(self) -> &'static str {
        match self {
            Self::Idle => "it is not open",
            Self::Take => "its epoch is being raised",
            Self::Fence => "its disks are being looked at, and others kept from them",
            Self::Open => "its newest state is being looked for on its disks",
            Self::Restore => "its volumes are being opened",
            Self::Publish => "its LUNs and shares are being brought up",
            Self::Serving => "a change of it is under way",
            Self::Stop => "it is being closed",
        }
    }
}

/// The path of a pool.
pub(super) struct Path {
    turn: Arc<tokio::sync::Mutex<()>>,
    step: signal::Sender<Step>,
    pub(super) serving: tokio::sync::Mutex<()>,
    /// Somebody waits to serve it as the configuration is by then: nobody else needs to.
    pub(super) queued: AtomicBool,
    /// What was served of it does not answer.
    pub(super) stuck: AtomicBool,
    /// Nothing keeps others from some of its disks: they may have it when it was closed cleanly. Of the time since it was fenced last.
    unfenced: AtomicBool,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            turn: Arc::default(),
            step: signal::Sender::new(Step::Idle),
            serving: tokio::sync::Mutex::default(),
            queued: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            unfenced: AtomicBool::new(false),
        }
    }
}

impl Path {
    fn begin(&self, step: Step) {
        self.step.send_replace(step);
    }

    /// How far it is.
    pub(super) fn step(&self) -> Step {
        *self.step.borrow()
    }

    /// Whether somebody is at it, or it serves.
    pub(super) fn is_under_way(&self) -> bool {
        self.step() != Step::Idle
    }

    /// Whether it is being opened.
    pub(super) fn comes(&self) -> bool {
        self.step().is_on_its_way()
    }

    /// Whether it is being let go of.
    pub(super) fn leaves(&self) -> bool {
        self.step() == Step::Stop
    }

    /// Whether nobody is let in yet.
    pub(super) fn is_before_publishing(&self) -> bool {
        self.step() == Step::Restore
    }

    /// Ends when it is known what is in the pool, or that it is not open.
    async fn wait_looked_into(&self) {
        // The sender is this path.
        let _ = self.step.subscribe().wait_for(|step| !step.is_before_restore()).await;
    }
}

/// The right to move a pool along its path and to change its shape.
pub(super) struct Turn {
    pool: Uuid,
    path: Arc<Path>,
    _held: OwnedMutexGuard<()>,
}

impl Turn {
    /// Whose it is.
    pub(super) fn pool(&self) -> Uuid {
        self.pool
    }

    /// Whether it is that of this pool.
    pub(super) fn is_of(&self, pool: Uuid) -> bool {
        self.pool == pool
    }

    /// Says how far the pool is.
    pub(super) fn begin(&self, step: Step) {
        self.path.begin(step);
    }
}

impl Node {
    /// The path of a pool.
    pub(super) fn path(&self, pool: Uuid) -> Arc<Path> {
        self.paths.lock().entry(pool).or_default().clone()
    }

    /// The turn of a pool, when it comes.
    pub(super) async fn turn(&self, pool: Uuid) -> Turn {
        let path = self.path(pool);
        let held = path.turn.clone().lock_owned().await;
        Turn { pool, path, _held: held }
    }

    /// The turn of a pool, if nobody has it.
    pub(super) fn try_turn(&self, pool: Uuid) -> Option<Turn> {
        let path = self.path(pool);
        let held = path.turn.clone().try_lock_owned().ok()?;
        Some(Turn { pool, path, _held: held })
    }

    /// The turns of the pools that a change concerns, as far as they are known when a change under way (the start of the node) has ended.
    ///
    /// # Errors
    /// When one of them is busy for long.
    pub(super) async fn turns_of(&self, pools: impl Fn(&Self) -> Vec<Uuid>) -> Result<Vec<Turn>, Problem> {
        let wanted: BTreeSet<Uuid> = {
            let _settled = self.changes.lock().await;
            pools(self).into_iter().collect()
        };
        let mut turns = Vec::new();
        for pool in wanted {
            let Ok(turn) = tokio::time::timeout(PATIENCE, self.turn(pool)).await else {
                let name = self.pool_name(pool).unwrap_or_else(|| pool.to_string());
                let detail = format!("pool {name} is busy: {}.", self.path(pool).step().told());
                return Err(Problem::new(Code::Unavailable, detail)
                    .todo("Nothing was changed. Try again later; `holdfast status` says which of its disks do not answer."));
            };
            turns.push(turn);
        }
        Ok(turns)
    }

    /// The turn of the pool that a volume is in, if there is such a volume.
    ///
    /// # Errors
    /// As [`Node::turns_of`].
    pub(super) async fn turn_of_volume(&self, volume: &str) -> Result<Vec<Turn>, Problem> {
        self.turns_of(|node| node.pools_of_volume(volume)).await
    }

    /// The turn of a pool, by its name or GUID.
    ///
    /// # Errors
    /// As [`Node::turns_of`].
    pub(super) async fn turn_of_pool(&self, name: &str) -> Result<Vec<Turn>, Problem> {
        self.turns_of(|node| node.pools_named(name)).await
    }

    /// The pools that a volume concerns: of all of its name, and those that hold their logs.
    pub(super) fn pools_of_volume(&self, volume: &str) -> Vec<Uuid> {
        let mut pools = Vec::new();
        pools.extend(self.volumes.lock().get(volume).map(|slot| slot.pool));
        for holder in self.holders() {
            let holds =
                holder.volumes().any(|name| name == volume) || holder.logs().any(|(_, of)| of == volume);
            pools.extend(holds.then_some(holder.guid));
        }
        pools
    }

    /// The pools of this name or GUID.
    pub(super) fn pools_named(&self, name: &str) -> Vec<Uuid> {
        let pools = self.pools.lock();
        let named = pools.iter().filter(|(guid, slot)| slot.name == name || guid.to_string() == name);
        named.map(|(guid, _)| *guid).collect()
    }

    /// Whether the node is to stop: nothing is opened any more.
    fn stops(&self) -> bool {
        *self.stopping.borrow()
    }

    /// What is being done with a pool that comes; none when it does not.
    pub(super) fn coming(&self, pool: Uuid) -> Option<&'static str> {
        let step = self.path(pool).step();
        step.is_on_its_way().then(|| step.told())
    }

    /// Whether something of a pool does not answer.
    pub(super) fn is_stuck(&self, pool: Uuid) -> bool {
        self.path(pool).stuck.load(Ordering::Acquire)
    }
}
