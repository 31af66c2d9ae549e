//! The way up: take, fence, open, restore, publish.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use control_api::{Code, PoolConfig, Problem};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{PATIENCE, Step, Turn};
use crate::backend::{Fenced, OpenTold, Opened, PoolDisk, PoolHandle, Whose, another_nodes, is_followed};
use crate::node::Node;
use crate::node::pools::{join_all, with_verb};

/// Whose a pool was is looked at for so long before its disks are fenced.
const LOOKED_AT_WITHIN: Duration = Duration::from_secs(1);

impl Node {
    /// Begins with the pools of the configuration that are not open, or of which a volume is not: each on its way, in a task of its own.
    /// Those where somebody is at it are left to them, except one that is `told` something.
    pub(in crate::node) fn begin_opening(&self, told: Option<(Uuid, OpenTold)>) -> Vec<JoinHandle<()>> {
        let pools = self.config.with(|config| config.pools.clone());
        let Some(node) = self.arc().filter(|_| !self.stops()) else { return Vec::new() };
        let driven = self.driven.load(Ordering::Acquire);
        let mut begun = Vec::new();
        for pool in pools {
            self.pools.lock().entry(pool.guid).or_default().name.clone_from(&pool.name);
            let told = told.filter(|(of, _)| *of == pool.guid).map(|(_, told)| told);
            if (told.is_none() && !self.lacks_something(pool.guid)) || (driven && !self.is_open(pool.guid)) {
                continue;
            }
            let turn = node.try_turn(pool.guid);
            if turn.is_none() && told.is_none() {
                continue;
            }
            if let Some(turn) = &turn
                && !self.is_open(pool.guid)
            {
                // Those that need it know that it comes before any of the tasks has begun.
                turn.begin(Step::Take);
            }
            begun.push((pool, told, turn));
        }
        let up = |(pool, told, turn): (PoolConfig, Option<OpenTold>, Option<Turn>)| {
            let node = node.clone();
            tokio::spawn(async move {
                let turn = match turn {
                    Some(turn) => turn,
                    None => node.turn(pool.guid).await,
                };
                node.bring_up(&pool, told.unwrap_or_default(), &turn).await;
            })
        };
        begun.into_iter().map(up).collect()
    }

    /// The same, and waits for them; not longer than [`PATIENCE`] for those that do not answer.
    pub(in crate::node) async fn open_pools(&self, told: Option<(Uuid, OpenTold)>) {
        let begun = self.begin_opening(told);
        if tokio::time::timeout(PATIENCE, futures_util::future::join_all(begun)).await.is_err() {
            tracing::error!("a pool does not answer while it is being opened: the others do not wait for it");
        }
    }

    fn lacks_something(&self, pool: Uuid) -> bool {
        !self.is_open(pool)
            || self.volumes.lock().values().any(|slot| slot.pool == pool && slot.handle.is_none())
            || self.is_to_get_a_name(pool)
    }

    /// Opens the volumes of an open pool that are not open.
    pub(in crate::node) async fn open_what_is_left(&self, turn: &Turn) {
        let pool = turn.pool;
        let known = self.config.with(|config| config.pools.iter().any(|known| known.guid == pool));
        if known && !self.stops() && self.is_open(pool) && self.lacks_something(pool) {
            // As the reopening of a volume: what is served of the others is not touched.
            self.open_volumes(pool).await;
            self.serve_pool(Some(pool)).await;
        }
    }

    /// Brings a pool up, as far as it comes.
    pub(in crate::node) async fn bring_up(&self, pool: &PoolConfig, told: OpenTold, turn: &Turn) {
        if self.stops() {
            return;
        }
        if !self.is_open(pool.guid)
            && let Err(problem) = self.open_pool(pool, told, turn).await
        {
            self.not_opened(pool, problem);
            turn.begin(Step::Idle);
            // It does not come: whoever was told to come again is told why not.
            self.serve_pool(Some(pool.guid)).await;
            return;
        }
        if self.is_open(pool.guid) {
            turn.begin(Step::Restore);
            self.wait_for_entangled(pool.guid).await;
            self.restore(turn).await;
            self.publish(turn).await;
        }
    }

    /// Take, fence, open.
    async fn open_pool(&self, pool: &PoolConfig, told: OpenTold, turn: &Turn) -> Result<(), Problem> {
        turn.begin(Step::Take);
        self.take_back(pool.guid).await;
        if self.members(pool.guid).is_empty() {
            return Err(self.no_disks(pool.guid));
        }
        let mut above = 0;
        loop {
            turn.begin(Step::Take);
            if !told.take_over {
                self.refuse_another_nodes(turn).await?;
            }
            let epoch = self.backends.owner.take(pool.guid, above).await?;
            let disks = match self.fence(turn, epoch).await? {
                Fenced::Disks(disks) => disks,
                // A disk that was elsewhere knows a later owner than this node, and this node may follow that one.
                Fenced::Held(held) if is_followed(above, held.epoch) => {
                    above = held.epoch;
                    continue;
                }
                Fenced::Held(held) => return Err(held.problem(&pool.name)),
            };
            match self.open_fenced(turn, epoch, disks, told).await? {
                Opened::Open(handle) if self.stops() => return handle.close().await,
                Opened::Open(handle) => return self.took_over(pool.guid, &pool.name, handle).await,
                // It was with another node, or what this node keeps of it is an older state: its disks say how far epochs have come.
                Opened::OldEpoch(known) if is_followed(above, known) => above = known,
                Opened::OldEpoch(known) => {
                    let detail = format!("epoch {known} of it is known, and epoch {epoch} is not above that");
                    return Err(Problem::new(Code::InUse, detail));
                }
            }
        }
    }

    /// Refuses a pool on disks that other machines reach, too, and that is another node's: fencing them would be taking it, which is for
    /// those who were told to. Whoever was fenced finds out here that it has to wait.
    async fn refuse_another_nodes(&self, turn: &Turn) -> Result<(), Problem> {
        let disks: Vec<PoolDisk> = self.members(turn.pool).into_iter().map(|(_, disk)| disk).collect();
        if !disks.iter().any(|disk| disk.disk.is_shared()) {
            return Ok(());
        }
        let held = self.backends.fence.held(&disks).await?;
        let name = self.pool_name(turn.pool).unwrap_or_else(|| turn.pool.to_string());
        match (self.backends.pools.owner(turn.pool, disks).await?, held) {
            (Whose::Free, _) | (Whose::Own, None) => Ok(()),
            (Whose::Own, Some(held)) => Err(held.problem(&name)),
            (Whose::Another { name: node, .. }, _) => {
                Err(another_nodes(&name, &format!("node {node}'s now, which has not let go of it")))
            }
        }
    }

    /// Refuses, in a cluster, a pool that a node of none of its own had last and has not let go of. Asks only: nothing on its disks is changed.
    pub(super) async fn refuse_strangers(&self, turn: &Turn) -> Result<(), Problem> {
        let Some(cluster) = self.cluster.get() else { return Ok(()) };
        cluster.make_known().await?;
        let disks: Vec<PoolDisk> = self.members(turn.pool).into_iter().map(|(_, disk)| disk).collect();
        // Disks of a node that is gone may keep it waiting: then what the others are fenced by decides, as it does in any case.
        let looking = tokio::time::timeout(LOOKED_AT_WITHIN, self.backends.pools.owner(turn.pool, disks));
        let Ok(Ok(Whose::Another { identity, name })) = looking.await else { return Ok(()) };
        if cluster.has_had(identity).await? {
            return Ok(());
        }
        let pool = self.pool_name(turn.pool).unwrap_or_else(|| turn.pool.to_string());
        let detail = format!(
            "node {name}, which is none of this cluster's, had pool {pool} last and has not let go of it"
        );
        Err(Problem::new(Code::WrongState, detail).todo(format!(
            "It may be served there: nothing was changed. To have it here: `holdfast pool export {pool}` there first; where that machine is dead, `holdfast pool import {pool}` here takes it."
        )))
    }

    /// Keeps former owners from the disks that are here; comes back with those where that could be had.
    pub(super) async fn fence(&self, turn: &Turn, epoch: u64) -> Result<Fenced, Problem> {
        turn.begin(Step::Fence);
        let disks = self.members(turn.pool).into_iter().map(|(_, disk)| disk).collect();
        self.backends.fence.fence(turn.pool, epoch, disks).await
    }

    /// The same for a disk that comes to a pool that is open.
    pub(in crate::node) async fn fence_one(
        &self,
        pool: Uuid,
        handle: &dyn PoolHandle,
        disk: PoolDisk,
    ) -> Result<PoolDisk, Problem> {
        let id = disk.id.clone();
        // One that nobody can be kept from is used without; the pool is this node's already.
        if !self.backends.fence.unfenced(std::slice::from_ref(&disk)).await?.is_empty() {
            self.path(pool).unfenced.store(true, Ordering::Release);
        }
        match self.backends.fence.fence(pool, handle.info().epoch, vec![disk]).await? {
            Fenced::Disks(disks) => disks.into_iter().next().ok_or_else(|| {
                Problem::new(Code::Io, format!("disk {id}: other nodes cannot be kept from it"))
                    .todo("The log says why; it is tried again.")
            }),
            Fenced::Held(held) => Err(held.problem(handle.info().name.as_str())),
        }
    }

    /// Opens the pool from fenced disks.
    pub(super) async fn open_fenced(
        &self,
        turn: &Turn,
        epoch: u64,
        disks: Vec<PoolDisk>,
        told: OpenTold,
    ) -> Result<Opened, Problem> {
        turn.begin(Step::Open);
        if self.stops() {
            return Err(Problem::new(Code::Unavailable, "the node is stopping"));
        }
        self.backends.pools.open(turn.pool, epoch, disks, told).await
    }

    /// Takes an open pool in: limits repair and lets it run.
    pub(in crate::node) async fn took_over(
        &self,
        guid: Uuid,
        name: &str,
        handle: Arc<dyn PoolHandle>,
    ) -> Result<(), Problem> {
        handle.called(name);
        handle.set_upkeep(self.upkeep());
        self.name_disks(guid, &*handle);
        if let Err(problem) = handle.repair().await {
            tracing::error!(pool = name, %problem, "repair can't run");
        }
        tracing::info!(pool = name, "pool is open");
        self.pools.lock().insert(guid, crate::node::PoolSlot::open(name, handle));
        Ok(())
    }

    /// Says why a pool is not open.
    pub(super) fn not_opened(&self, pool: &PoolConfig, problem: Problem) {
        if problem.code == Code::InUse {
            self.let_go(pool.guid);
        }
        let problem = with_verb(problem, &pool.name);
        let mut pools = self.pools.lock();
        let Some(slot) = pools.get_mut(&pool.guid) else { return };
        // Once, not at every try.
        if slot.reason.as_ref() != Some(&problem.detail) {
            tracing::error!(pool = pool.name, %problem, "pool can't be opened");
        }
        slot.lacks_disks = problem.code == Code::NotEnoughDisks;
        (slot.reason, slot.todo) = (Some(problem.detail), problem.todo);
    }

    /// Opens the volumes of a pool that is open, and brings back what clients had open in them.
    pub(super) async fn restore(&self, turn: &Turn) {
        turn.begin(Step::Restore);
        self.open_volumes(turn.pool).await;
        self.serve_pool(Some(turn.pool)).await;
    }

    /// Lets clients in.
    pub(in crate::node) async fn publish(&self, turn: &Turn) {
        turn.begin(Step::Publish);
        self.serve_pool(Some(turn.pool)).await;
        turn.begin(Step::Serving);
        // For when one of its disks goes while a copy of it is there.
        self.note_used(turn.pool);
        self.settle_cluster_names_later(turn);
        self.look_at_addresses();
        self.say_pool_disks();
        self.delete_leftovers().await;
        // Volumes of other pools may have waited for a log in this one.
        self.wake_entangled(turn.pool);
    }

    /// Pools that have, or may have, a log for a volume of this pool, a volume for a log of this pool, or a volume of the same name.
    fn entangled(&self, pool: Uuid) -> Vec<Uuid> {
        let holders = self.holders();
        let Some(own) = holders.iter().find(|holder| holder.guid == pool) else { return Vec::new() };
        let with = |other: &&crate::node::log_homes::Holder| {
            other.guid != pool
                && (other.spaces.is_none()
                    || own.spaces.is_none()
                    || other.volumes().any(|name| own.volumes().any(|own| own == name))
                    || other.logs().any(|(log, _)| own.is_home_of(&log.name))
                    || own.logs().any(|(log, _)| other.is_home_of(&log.name)))
        };
        holders.iter().filter(with).map(|holder| holder.guid).collect()
    }

    /// Waits for pools that this one's volumes need or share a name with, as far as these are on their way: where they hang, what needs
    /// them stays closed until they come.
    pub(super) async fn wait_for_entangled(&self, pool: Uuid) {
        let others = self.entangled(pool).into_iter().map(|other| self.path(other));
        let looked_into = others.map(|path| async move { path.wait_looked_into().await });
        // Over when they are; else what is there goes on.
        let _ = tokio::time::timeout(PATIENCE / 2, join_all(looked_into.collect())).await;
    }

    /// Goes on with volumes of pools that have waited for this one.
    fn wake_entangled(&self, pool: Uuid) {
        let lacks = |other: &Uuid| {
            let volumes = self.volumes.lock();
            self.is_open(*other) && volumes.values().any(|slot| slot.pool == *other && slot.lacks_log)
        };
        if self.entangled(pool).iter().any(lacks) {
            // Each in a task of its own.
            drop(self.begin_opening(None));
        }
    }
}
