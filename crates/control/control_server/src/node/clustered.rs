//! What is different on a node of a cluster: pools that others have, pools that are made or taken in, and the verbs of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster_store::values::NodeVerb;
use control_api::{ClusterPool, ClusterPoolState, ClusterStatus, Code, PoolCreate, Problem};
use tokio::time::timeout;
use uuid::Uuid;

use super::disk_table::Known;
use super::disks::{BUSY_LOOKS, BUSY_PAUSE};
use super::path::{Step, Turn};
use super::pools::join_all;
use super::ties::OnVolume;
use super::{Node, NodeDriver};
use crate::backend::{Current, DiskContent, NodeSeen, OpenTold, PoolDisk, PoolHandle, is_followed};
use crate::cluster::{By, Cluster, Follows, Obeys, Read};

/// How long somebody waits for a pool to come up, or to go, by orders.
const COMES_WITHIN: Duration = Duration::from_secs(60);
/// A pool is looked at so often meanwhile, and asked to move so often.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The shared state is waited for so long when somebody wants to see it.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);

impl Node {
    /// Is a node of a cluster from now on: pools come by orders. To be called before it begins.
    pub(crate) fn joins(self: &Arc<Self>, place: Arc<Cluster>) -> NodeDriver {
        if let Ok(users) = &self.backends.users {
            place.share_users(users);
            if let Err(error) = users.catch_up() {
                tracing::warn!(%error, "the node begins with the users that it knew last");
            }
        }
        let of = place.clone();
        self.backends
            .iscsi
            .join(Box::new(move |shards, targets| crate::cluster::forward::begin(&of, shards, targets)));
        let _ = self.cluster.set(place);
        NodeDriver::new(self.clone())
    }

    /// Takes part in its cluster no more: all pools are stopped.
    pub(crate) async fn leave_service(&self) {
        if let Some(cluster) = self.cluster.get() {
            cluster.stop().await;
        }
    }

    /// The cluster has removed this node: it has nothing of the cluster from now on, and changes nothing of it.
    pub(crate) fn is_removed_now(&self) {
        if let Some(cluster) = self.cluster.get() {
            cluster.note_removed();
        }
    }

    /// Whether pools are brought up and stopped by orders.
    pub(super) fn is_driven(&self) -> bool {
        self.driven.load(Ordering::Acquire)
    }

    pub(super) fn cluster(&self) -> Result<&Arc<Cluster>, Problem> {
        self.cluster.get().ok_or_else(|| {
            Problem::new(Code::WrongState, "This node is on its own: it belongs to no cluster.")
                .todo("`holdfast cluster init` makes it the first node of one.")
        })
    }

    /// Why a pool cannot be used at this node: another one has it.
    pub(super) fn not_here(&self, pool: Uuid) -> Option<Problem> {
        self.cluster.get()?.not_here(pool)
    }

    /// Whether a thing on a volume may be served by another node: its volume is in no pool that is here, and not all pools are.
    pub(super) fn may_be_elsewhere(&self, item: &(impl OnVolume + ?Sized)) -> bool {
        self.cluster.get().is_some()
            && match self.pool_of(item) {
                Some(pool) => self.not_here(pool).is_some(),
                None => self.config.with(|config| {
                    config
                        .pools
                        .iter()
                        .any(|pool| !self.is_open(pool.guid) && self.not_here(pool.guid).is_some())
                }),
            }
    }

    /// Closes the disks of a pool that another node has: who may not use them does not keep them from it.
    pub(super) fn let_go(&self, pool: Uuid) {
        for known in self.disks_of(pool) {
            self.disks.change(&known.found.id, |known| known.open = None);
        }
    }

    /// Opens the disks of a pool again that were let go of.
    pub(super) async fn take_back(&self, pool: Uuid) {
        let closed: Vec<Known> = self.disks_of(pool);
        let closed = closed.iter().filter(|known| known.present && known.open.is_none());
        join_all(closed.map(|known| self.probe(&known.found.id)).collect()).await;
    }

    /// Looks at disks on which nothing was found when they were looked at last: the pool may have been made on them since, on another
    /// node, or whoever had them may be gone only now.
    pub(super) async fn look_for_members(&self, pool: Uuid) {
        let blank = |known: &Known| {
            known.present && known.open.is_none() && matches!(known.content, None | Some(DiskContent::Empty))
        };
        let busy = |known: &Known| known.present && known.busy;
        for _ in 0..BUSY_LOOKS {
            let all = self.disks.all();
            join_all(
                all.iter().filter(|known| blank(known)).map(|known| self.probe(&known.found.id)).collect(),
            )
            .await;
            let ours = self.disks_of(pool);
            // Disks of other pools stay busy for as long as their owners live.
            let wait = match ours.as_slice() {
                [] => self.disks.all().iter().any(|known| blank(known) && busy(known)),
                ours => ours.iter().any(busy),
            };
            if !wait {
                return;
            }
            tokio::time::sleep(BUSY_PAUSE).await;
            self.take_back(pool).await;
        }
    }

    /// The configuration by which this node serves, also at service addresses that are here: its portals have tags that no other node's have, though the target is the same.
    pub(super) fn serving_config(&self) -> Current {
        let current = self.config.current();
        let listeners = self.addresses.listeners(&current.config.smb.listen);
        let portals = self.addresses.portals(&current.config.portals);
        if self.cluster.get().is_none() && listeners.is_empty() && portals.is_empty() {
            return current;
        }
        let mut config = (*current.config).clone();
        config.smb.listen.extend(listeners);
        config.portals.extend(portals);
        let current = Current { config: Arc::new(config.clone()), ..current };
        let Some(cluster) = self.cluster.get() else { return current };
        // One name for shares, whichever node they are on.
        if config.smb.name.is_empty() {
            config.smb.name = cluster.name().to_string();
        }
        config.portals.iter_mut().for_each(|portal| portal.group = cluster.portal_tag(portal.group));
        for target in &mut config.targets {
            target.portal_groups =
                target.portal_groups.iter().flat_map(|group| cluster.portal_tags(*group)).collect();
        }
        Current { config: Arc::new(config), ..current }
    }

    /// Gives a pool that was just made to the cluster as this node's, and waits until it is served: it comes up by orders, with its disks
    /// fenced, as it will ever after.
    pub(super) async fn hand_in(
        &self,
        request: &PoolCreate,
        disks: &[PoolDisk],
        handle: Arc<dyn PoolHandle>,
        turn: Turn,
    ) -> Result<(), Problem> {
        let (guid, epoch) = (turn.pool(), handle.info().epoch);
        let given = match handle.close().await {
            Ok(()) => self.backends.owner.made(guid, epoch + 1).await,
            Err(problem) => Err(problem),
        };
        let named = given.and_then(|()| self.name_pool(&request.name, guid));
        if let Err(problem) = named {
            // The configuration of all nodes may have it though nobody has answered: then it is not undone.
            let certain = self.config.catch_up().is_ok();
            if self.config.with(|config| config.pools.iter().any(|pool| pool.guid == guid)) {
                tracing::info!(%problem, "a pool was made, which was not known at first");
            } else if !certain {
                return Err(problem.todo(format!(
                    "Whether pool {} was made is not known, so it stays on its disks. When etcd can be reached, look with `holdfast pool list`; \
                     what is not there is made again with `--overwrite-foreign`.",
                    request.name
                )));
            } else {
                // Nobody knows of it yet.
                if let Err(problem) = self.backends.owner.forget(guid).await {
                    tracing::warn!(%problem, "what the cluster keeps of a pool that was not made stays");
                }
                if let Err(problem) = handle.destroy(disks.to_vec()).await {
                    tracing::warn!(%problem, "a pool that was not made is left on its disks");
                }
                return Err(problem);
            }
        }
        drop(handle);
        // It comes up: its disks stay open.
        turn.begin(Step::Take);
        for disk in disks {
            self.probe(&disk.id).await;
        }
        drop(turn);
        self.surpassed.lock().remove(&guid);
        let came = self.comes_up(guid).await;
        // Disks that had a pool before may keep the registration of its owner, of a higher epoch.
        let surpassed = self.surpassed.lock().remove(&guid);
        match surpassed {
            Some(known) if came.is_err() && is_followed(epoch, known) => {
                self.take_in_above(guid, OpenTold::default(), known).await
            }
            _ => came,
        }
    }

    /// Takes a pool whose disks are here into the cluster as this node's, and waits until it is served.
    pub(super) async fn take_in(&self, pool: Uuid, told: OpenTold) -> Result<(), Problem> {
        if self.is_open(pool) { Ok(()) } else { self.take_in_above(pool, told, 0).await }
    }

    /// The same in an epoch above this one.
    async fn take_in_above(&self, pool: Uuid, told: OpenTold, mut above: u64) -> Result<(), Problem> {
        // What was accepted now is for this opening, and for none that comes of itself later.
        let _told = Told { node: self, pool };
        loop {
            self.told.lock().insert(pool, told);
            self.pools.lock().entry(pool).or_default().reason = None;
            self.surpassed.lock().remove(&pool);
            self.backends.owner.take(pool, above).await?;
            let came = self.comes_up(pool).await;
            // It was with others, or what the cluster keeps of it is older than its disks: they say how far epochs have come.
            match self.surpassed.lock().remove(&pool) {
                Some(known) if came.is_err() && is_followed(above, known) => above = known,
                _ => return came,
            }
        }
    }

    /// Waits until a pool of this node is served, or it is known why not.
    async fn comes_up(&self, pool: Uuid) -> Result<(), Problem> {
        let path = self.path(pool);
        let coming = async {
            loop {
                if self.is_open(pool) && path.step() == Step::Serving {
                    return Ok(());
                }
                if let Some(problem) = self.not_here(pool) {
                    return Err(problem);
                }
                let refused = || Problem::new(Code::InUse, "its disks know a higher epoch");
                if self.surpassed.lock().contains_key(&pool) {
                    return Err(refused());
                }
                let slot = self.pools.lock().get(&pool).cloned().unwrap_or_default();
                if let Some(reason) = slot.reason.filter(|_| path.step() == Step::Idle) {
                    let problem =
                        Problem::new(Code::WrongState, format!("pool {} is not open: {reason}.", slot.name));
                    return Err(Problem { todo: slot.todo, ..problem });
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let late = |_| {
            Err(Problem::new(Code::Unavailable, "the pool has not come up yet; it goes on by itself.")
                .todo("`holdfast cluster status` says how far it is."))
        };
        timeout(COMES_WITHIN, coming).await.unwrap_or_else(late)
    }

    /// Those of these pools that no node owns now but one that is gone, as far as is known.
    pub(crate) fn unowned(&self, pools: &[Uuid], gone: cluster_store::keys::NodeId) -> Vec<Uuid> {
        let owner = |pool: &Uuid| Some(self.cluster.get()?.owner_of(*pool)?.0);
        let owned = |pool: &Uuid| owner(pool).is_some_and(|owner| owner != gone);
        pools.iter().copied().filter(|pool| !owned(pool)).collect()
    }

    /// The cluster at a glance.
    ///
    /// # Errors
    /// On a node of its own.
    pub async fn cluster_show(&self) -> Result<ClusterStatus, Problem> {
        let read = self.cluster()?.read(SHOWN_WITHIN).await;
        self.cluster_shown(read.as_ref(), |_, _| true)
    }

    /// The same by what was read of the shared state, or without. Waits for nothing. A pool that is served here now, in this epoch, is on its way all the
    /// same where `is_steady` says that it was not so while it was looked into what it holds.
    ///
    /// # Errors
    /// On a node of its own.
    pub(super) fn cluster_shown(
        &self,
        read: Option<&Read>,
        is_steady: impl Fn(Uuid, u64) -> bool,
    ) -> Result<ClusterStatus, Problem> {
        let cluster = self.cluster()?;
        let pools: BTreeMap<Uuid, String> = self
            .config
            .with(|config| config.pools.iter().map(|pool| (pool.guid, pool.name.clone())).collect());
        // That it is being let go of is no reason: it goes somewhere.
        let why = |pool: Uuid| {
            let reason = self.pools.lock().get(&pool).and_then(|slot| slot.reason.clone());
            reason.filter(|_| !self.path(pool).leaves())
        };
        let mut shown = cluster.shown(read, pools, why);
        self.config.with(|config| {
            for pool in &mut shown.pools {
                let known = config.pools.iter().find(|known| known.guid == pool.guid);
                pool.address = known.and_then(|known| known.address.clone());
            }
        });
        for pool in &mut shown.pools {
            let handle = self.pools.lock().get(&pool.guid).and_then(|slot| slot.handle.clone());
            let members = handle.into_iter().flat_map(|handle| handle.info().members);
            let nodes: BTreeSet<String> = members.filter_map(|member| member.node).collect();
            pool.disk_nodes = nodes.into_iter().collect();
        }
        let is_own = |pool: &&mut ClusterPool| pool.owner.as_deref() == Some(cluster.called());
        let served = shown.pools.iter_mut().filter(|pool| pool.state == ClusterPoolState::Online);
        for pool in served.filter(is_own).filter(|pool| !is_steady(pool.guid, pool.epoch)) {
            pool.state = ClusterPoolState::Moving;
        }
        cluster.sum_up(&mut shown);
        self.unserved_pools.lock().look(self.uptime_seconds(), &mut shown.pools);
        Ok(shown)
    }

    /// Takes what the cluster keeps of pools that it does not have any more, and that this node had last: what is left when etcd was away at the end of
    /// an export or a deletion.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub(crate) async fn forget_unknown(&self) -> Result<(), Problem> {
        let Some(cluster) = self.cluster.get() else { return Ok(()) };
        let _changing = self.changes.lock().await;
        // A pool that another node has just made is in there.
        self.config.catch_up()?;
        let known: Vec<Uuid> = self.config.with(|config| config.pools.iter().map(|pool| pool.guid).collect());
        for pool in cluster.own_pools().into_iter().filter(|pool| !known.contains(pool)) {
            // One that is being made is not there yet.
            let Some(_turn) = self.try_turn(pool) else { continue };
            tracing::info!(%pool, "a pool that the cluster does not have any more is nobody's");
            self.backends.owner.forget(pool).await?;
        }
        Ok(())
    }

    /// Does what somebody has asked another node for, and that one this node.
    async fn obey(&self, through: String, by: By, verb: NodeVerb) -> Result<String, Problem> {
        let (operation, object, done) = match verb {
            NodeVerb::Move { pool, to, discards } => {
                let name = self.pool_name(pool.0).unwrap_or_else(|| pool.to_string());
                let done = self.move_own((pool.0, &name), &to.to_string(), discards).await;
                ("pool_move", format!("{name} to node {to}"), done)
            }
            NodeVerb::Mode { paused, draining, discards } => {
                let done = self.set_own_mode((paused, draining, discards)).await;
                let what = if draining { "drain" } else { "pause" };
                (if paused { "node_pause" } else { "node_resume" }, what.to_owned(), done)
            }
        };
        let (status, result, reason) = match &done {
            Ok(()) => (200, "done".to_owned(), String::new()),
            Err(problem) => (problem.status, problem.code.as_str().to_owned(), problem.detail.clone()),
        };
        self.record(control_api::AuditEntry {
            who: by.who,
            proof: by.proof,
            role: by.role,
            from: format!("node {through}"),
            operation: operation.into(),
            object,
            status,
            result,
            reason,
            ..control_api::AuditEntry::default()
        });
        done.map(|()| String::new())
    }
}

impl Obeys for Node {
    fn order(
        &self,
        through: String,
        by: By,
        verb: NodeVerb,
    ) -> Pin<Box<dyn Future<Output = Result<String, Problem>> + Send + '_>> {
        Box::pin(self.obey(through, by, verb))
    }
}

impl Node {
    /// Takes up what other nodes have changed of the configuration, and serves by it.
    ///
    /// # Errors
    /// When it cannot be read: what was known goes on.
    async fn catch_up(&self) -> Result<(), Problem> {
        let caught_up = self.config.catch_up();
        if self.config.take_news() {
            self.serve_by_new_config().await;
        }
        caught_up
    }

    async fn serve_by_new_config(&self) {
        tracing::info!("the configuration was changed by another node");
        self.look().await;
        self.close_dropped_pools().await;
        self.open_pools(None).await;
        self.reconcile().await;
    }

    /// Takes up what other nodes have changed, before what clients had open in a pool is brought back: a share that this node has not
    /// heard of yet would be taken for one that is gone, and what clients have open in it with it. Who follows changes may be behind by
    /// now; the rest of what follows from a change goes on beside.
    ///
    /// # Errors
    /// When the shared state cannot be read now; what clients have open stays in the pool. A configuration that this node does not
    /// understand (of a newer release) keeps no pool away: it serves by the one that it knows.
    pub(super) fn catch_up_before_restoring(&self) -> Result<(), Problem> {
        match self.config.catch_up() {
            Ok(()) => {
                if let Some(node) = self.arc().filter(|node| node.config.take_news()) {
                    tokio::spawn(async move { node.serve_by_new_config().await });
                }
            }
            Err(problem) if problem.code == Code::Unavailable => return Err(problem),
            Err(problem) => {
                tracing::error!(%problem, "the node serves by the configuration that it knew last")
            }
        }
        if let Err(problem) = self.catch_up_users() {
            tracing::warn!(%problem, "the node serves the users that it knew last");
        }
        Ok(())
    }

    /// Takes up what other nodes have changed of users and groups.
    ///
    /// # Errors
    /// When it cannot be read: those that were known stay.
    pub(super) fn catch_up_users(&self) -> Result<(), Problem> {
        let Ok(users) = &self.backends.users else { return Ok(()) };
        let before = users.snapshot();
        match users.catch_up() {
            Ok(_) => {
                self.end_sessions_of_strangers(&before);
                Ok(())
            }
            Err(error) => Err(Problem::new(Code::Unavailable, error.to_string())),
        }
    }
}

impl Follows for Node {
    fn configuration(&self) -> Pin<Box<dyn Future<Output = Result<(), Problem>> + Send + '_>> {
        Box::pin(self.catch_up())
    }

    fn users(&self) -> Result<(), Problem> {
        self.catch_up_users()
    }

    fn members(&self, members: Vec<NodeSeen>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.meet(members))
    }

    fn disks(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.look_for_needed())
    }

    fn paths(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.take_up_paths())
    }
}

/// What a person has told of a pool's opening, for as long as that person waits for it.
struct Told<'a> {
    node: &'a Node,
    pool: Uuid,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.node.told.lock().remove(&self.pool);
    }
}
