//! What a node does as one of a cluster.
//!
//! ```text
//!   DATA/cluster/identity.toml ──► Membership ──► Cluster ─┬─ ClusterNode (cluster_node)   beats, permit, claims; orders ──► NodeDriver
//!   (none: a node on its own)                              ├─ store                         owners, votes, configuration
//!                                                          └─ Life                          who this node is when it writes itself as an owner
//!   part: its member of etcd, and listener, which answers nodes that join
//!   init, join, leave: prepared while the node serves ──► change: carried out while it is stopped
//! ```
//! Invariants:
//! * A node of a cluster opens no pool by itself: orders say which are its own, and in which epoch.
//! * A pool that is made or imported is written down with this node's present life as its holder, and comes up by orders as any other.
//! * A node on its own has none of this: no task, no store but its own, and a permit that looks at no clock.

mod address;
mod calls;
mod change;
mod clients;
pub(crate) mod config;
mod etcd;
mod follow;
pub(crate) mod forward;
mod homes;
mod init;
mod join;
mod leave;
mod life;
pub(crate) mod listener;
mod membership;
mod mode;
pub(crate) mod order;
mod orders;
pub(crate) mod part;
mod paths;
mod removal;
mod seal;
mod show;
mod sight;
mod strangers;
mod summary;
pub mod supervised;
mod told;
mod users;
mod verbs;
mod volume_names;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cluster_join::{Standing, standing};
use cluster_node::{
    Aside, ClusterNode, LinkTls, MemberState, NodeOptions, NodePermit, Permit, PoolDriver, Sight, Status,
};
use cluster_store::keys::{ClusterName, Key, NodeId, PoolId};
use cluster_store::values::{Owner, Served, Value as _};
use cluster_store::{ClusterStore, Condition, Range, Revision, Step, Transaction};
use control_api::{Code, Problem};
use parking_lot::Mutex;
use qos_exchange::Exchange;
use smb_users::{SealingKey, Users};
use tcp_service::{AnswerPermit, Answers};
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, RwLock, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

pub(crate) use calls::Peer as NodePeer;
pub(crate) use follow::Follows;
pub(crate) use life::Life;
pub use membership::{Membership, OwnRuntime};
pub(crate) use membership::{load, refuse_offline};
pub use mode::NodeMode;
pub use order::{Carried, ChangeOver, START_AGAIN};
pub(crate) use orders::{By, Obeys};
pub(crate) use removal::Removal;
pub(crate) use seal::ConfigSeal;
pub(crate) use show::Read;
pub(crate) use told::removed;

use crate::backend::NodeSeen;
use etcd::SharedEtcd;
use paths::Paths;
use users::UsersInStore;

/// That a pool is served is said again after this, when it could not be said.
const SAY_AGAIN: Duration = Duration::from_millis(500);

/// The store is asked for so long whether this node belongs to the cluster still, before it takes part.
const STANDING: Duration = Duration::from_secs(5);

/// Asks the node's permit.
struct May(NodePermit);

impl AnswerPermit for May {
    fn life(&self) -> Option<u64> {
        self.0.life()
    }
}

/// Nodes tell each other of the demand for policies that they share.
fn aside(qos: &Arc<Exchange>) -> Aside {
    const _: () = assert!(qos_exchange::MOST_BYTES <= Aside::MOST_BYTES);
    let heard = qos.clone();
    Aside { says: qos.says(), hears: Arc::new(move |node, bytes| heard.hear(node.number(), bytes)) }
}

/// A node's place in its cluster, while it runs.
pub(crate) struct Cluster {
    name: ClusterName,
    me: NodeId,
    called: String,
    store: Arc<dyn ClusterStore>,
    life: Life,
    permit: NodePermit,
    /// Whether it is paused, over its lives; before it has begun nothing.
    mode: OnceLock<NodeMode>,
    users_key: SealingKey,
    config_seal: ConfigSeal,
    runs_etcd: bool,
    /// None where what is shared is not in etcd.
    etcd: Option<Arc<SharedEtcd>>,
    watching_etcd: OnceLock<JoinHandle<()>>,
    control: Handle,
    running: RwLock<Option<ClusterNode>>,
    /// Held for as long as the node takes part, and until its last connection to the store is not needed any more.
    runtime: Mutex<Option<OwnRuntime>>,
    status: OnceLock<watch::Receiver<Status>>,
    /// What nodes are called, also those that are away by now.
    names: Mutex<BTreeMap<NodeId, String>>,
    /// Whether the cluster has removed this node.
    removal: Removal,
    following: OnceLock<[JoinHandle<()>; 10]>,
    /// By what pools know this node, and that the cluster does.
    known_as: OnceLock<Uuid>,
    is_written: OnceCell<()>,
    saying: clients::Saying,
    /// How initiators reach what the nodes serve.
    paths: Paths,
    /// Certificates for connections between nodes.
    tls: LinkTls,
    /// Where links of other nodes arrive.
    links_at: Option<SocketAddr>,
    /// To other nodes, for what is passed on to them.
    kept_calls: calls::Kept,
}

impl Cluster {
    /// The place that a membership gives. Nothing runs yet.
    pub(crate) fn new(of: &Membership) -> Arc<Self> {
        let removal = Removal::default();
        // Known from an earlier life: nothing is changed before the node finds that it may not take part.
        if of.incarnations.was_removed(&of.cluster, of.node) {
            removal.note();
        }
        Arc::new(Self {
            name: of.cluster.clone(),
            me: of.node,
            called: of.name.clone(),
            store: of.store.clone(),
            life: Life::new(of.node),
            permit: NodePermit::default(),
            mode: OnceLock::new(),
            control: Handle::current(),
            users_key: users::sealing_key(&of.secret),
            config_seal: ConfigSeal::new(&of.secret, &of.cluster),
            runs_etcd: of.runs_etcd,
            etcd: of.etcd.clone().map(|store| Arc::new(SharedEtcd::new(store, of.runs_etcd))),
            watching_etcd: OnceLock::new(),
            running: RwLock::new(None),
            runtime: Mutex::new(None),
            status: OnceLock::new(),
            names: Mutex::new(BTreeMap::from([(of.node, of.name.clone())])),
            removal,
            following: OnceLock::new(),
            known_as: OnceLock::new(),
            is_written: OnceCell::new(),
            saying: clients::Saying::default(),
            paths: Paths::new(of.addresses.first().map_or("", String::as_str)),
            tls: of.tls.clone(),
            links_at: of.listener.local_addr().ok(),
            kept_calls: calls::Kept::default(),
        })
    }

    /// Who this node is when it writes itself as an owner.
    pub(crate) fn life(&self) -> Life {
        self.life.clone()
    }

    /// What connections with clients ask before anything leaves.
    pub(crate) fn answers(&self) -> Answers {
        Answers::while_permitted(self.answer_permit())
    }

    /// Whether this node may answer now, and in which life.
    pub(crate) fn answer_permit(&self) -> Arc<dyn AnswerPermit> {
        Arc::new(May(self.permit.clone()))
    }

    /// Whether the node may answer for its pools now.
    pub(crate) fn may_answer(&self) -> bool {
        self.permit.life().is_some()
    }

    /// What this node is called.
    pub(crate) fn called(&self) -> &str {
        &self.called
    }

    /// Its name.
    pub(crate) fn name(&self) -> &ClusterName {
        &self.name
    }

    /// What seals the configuration that is shared.
    pub(crate) fn config_seal(&self) -> ConfigSeal {
        self.config_seal.clone()
    }

    /// Has these users in common with the other nodes from now on.
    pub(crate) fn share_users(&self, users: &Users) {
        let place =
            UsersInStore::new(self.store.clone(), &self.name, Handle::current(), self.removal.clone());
        users.share(self.users_key.clone(), Arc::new(place));
    }

    /// Whether the cluster has removed this node: it has nothing of the cluster any more, and is asked for nothing of it.
    pub(crate) fn is_removed(&self) -> bool {
        self.removal.is_so()
    }

    /// The cluster has removed this node.
    pub(crate) fn note_removed(&self) {
        self.removal.note();
    }

    /// What says whether the cluster has removed this node.
    pub(crate) fn removal(&self) -> Removal {
        self.removal.clone()
    }

    /// What is shared.
    pub(crate) fn store(&self) -> &Arc<dyn ClusterStore> {
        &self.store
    }

    /// Takes part from now on: pools come and go by orders to `driver`.
    ///
    /// # Errors
    /// When other nodes cannot reach this one.
    pub(crate) async fn start(
        self: &Arc<Self>,
        of: Membership,
        driver: Arc<dyn PoolDriver>,
        node: Arc<dyn Follows>,
        obeys: Arc<dyn Obeys>,
        (qos, sight): (Arc<Exchange>, Sight),
    ) -> Result<(), Problem> {
        if of.incarnations.was_removed(&of.cluster, of.node) || self.was_removed().await {
            // Also when the shared state should go back to before that.
            of.incarnations.note_removed(&of.cluster, of.node);
            self.note_removed();
            // Connections to the store run there, and it is asked once more when the node leaves.
            *self.runtime.lock() = of.runtime;
            return Err(removed());
        }
        let place = of.runtime.as_ref().map_or_else(Handle::current, OwnRuntime::handle);
        let options = NodeOptions {
            node: of.node,
            cluster: of.cluster,
            addresses: of.addresses,
            release: env!("CARGO_PKG_VERSION").into(),
            name: of.name,
            api: of.api,
            bus: of.bus,
            paused: of.mode.is_paused(),
            sight: Some(sight),
            listener: of.listener,
            tls: of.tls,
            timings: of.timings,
            incarnations: of.incarnations,
            permit: self.permit.clone(),
            aside: aside(&qos),
        };
        let _ = self.mode.set(of.mode);
        // Before the first pool needs it.
        let knowing = self.clone();
        tokio::spawn(async move { knowing.make_known().await });
        let running = ClusterNode::start(options, of.store, driver, &place)
            .map_err(|error| Problem::new(Code::Io, error.to_string()))?;
        let status = running.status();
        self.removal.follow(status.clone());
        *self.running.write().await = Some(running);
        *self.runtime.lock() = of.runtime;
        let _ = self.status.set(status.clone());
        let _ = self.following.set([
            tokio::spawn(follow::life(self.life.clone(), status.clone())),
            tokio::spawn(supervised::tell(status.clone())),
            tokio::spawn(self.clone().serve_orders(obeys)),
            tokio::spawn(follow::members(self.clone(), node.clone(), status)),
            tokio::spawn(follow::config(self.clone(), node.clone())),
            tokio::spawn(follow::users(self.clone(), node.clone())),
            tokio::spawn(follow::paths(self.clone(), node.clone())),
            tokio::spawn(follow::owners(self.clone(), node.clone())),
            tokio::spawn(follow::disks(self.clone(), node)),
            tokio::spawn(follow::qos(self.clone(), qos)),
        ]);
        if let Some(etcd) = &self.etcd {
            let _ = self.watching_etcd.set(tokio::spawn(etcd.clone().watch_over()));
        }
        Ok(())
    }

    /// Whether the cluster has removed this node. Without the store nobody knows, and the node can do nothing either: it is looked at again
    /// while the node runs.
    async fn was_removed(&self) -> bool {
        let looking = async {
            loop {
                match standing(&*self.store, &self.name, self.me).await {
                    Ok(standing) => return standing == Standing::Removed,
                    Err(_) => tokio::time::sleep(SAY_AGAIN).await,
                }
            }
        };
        tokio::time::timeout(STANDING, looking).await.unwrap_or(false)
    }

    /// Stops all pools and takes part no more.
    pub(crate) async fn stop(&self) {
        let running = self.running.write().await.take();
        if let Some(running) = running {
            running.stop().await;
        }
        self.life.set(0);
        if let Some(following) = self.following.get() {
            following.iter().for_each(JoinHandle::abort);
        }
        if let Some(watching) = self.watching_etcd.get() {
            watching.abort();
        }
    }

    /// What is known of the cluster now; nothing before it has begun, and nothing to a node that was removed.
    pub(crate) fn now(&self) -> Status {
        if self.is_removed() {
            return Status { removed: true, ..Status::default() };
        }
        self.status.get().map(|status| status.borrow().clone()).unwrap_or_default()
    }

    /// What a node is called.
    pub(crate) fn name_of(&self, node: NodeId) -> String {
        let known = self.names.lock().get(&node).cloned();
        known.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("node-{node}"))
    }

    fn learn_names(&self, status: &Status) {
        let mut names = self.names.lock();
        for seen in &status.members {
            let said = seen.member.as_ref().map(|member| &member.name);
            if let Some(name) = said.filter(|name| !name.is_empty() && seen.node != self.me) {
                names.insert(seen.node, name.clone());
            }
        }
    }

    /// The members, as far as their disks are concerned.
    fn seen(&self, status: &Status) -> Vec<NodeSeen> {
        self.learn_names(status);
        let seen = |state: &MemberState| {
            let bus = state.member.as_ref().map(|member| member.bus.clone()).unwrap_or_default();
            NodeSeen { node: state.node, name: self.name_of(state.node), bus }
        };
        status.members.iter().map(seen).collect()
    }

    /// Whether a node of this name is a member now, as far as is known.
    pub(crate) fn is_member(&self, name: &str) -> bool {
        self.seen(&self.now()).iter().any(|seen| seen.name == name)
    }

    /// Whether a node of this name is a member and gives signs of life.
    pub(crate) fn is_up(&self, name: &str) -> bool {
        let now = self.now();
        now.members.iter().any(|seen| self.name_of(seen.node) == name && self.is_heard(seen))
    }

    /// The node that owns a pool, as far as is known; whether it is this one.
    pub(crate) fn owner_of(&self, pool: Uuid) -> Option<(NodeId, bool)> {
        let owner = Self::owner_in(&self.now(), pool)?;
        Some((owner, owner == self.me))
    }

    /// The node that owns a pool, as far as is known; none when nobody does.
    fn owner_in(status: &Status, pool: Uuid) -> Option<NodeId> {
        let (_, owner) = status.owners.iter().find(|(id, _)| id.0 == pool)?;
        Some(owner.as_ref()?.holder?.node)
    }

    /// The pools whose owner this node is, as far as is known.
    pub(crate) fn own_pools(&self) -> Vec<Uuid> {
        let now = self.now();
        let all = now.owners.iter().map(|(pool, _)| pool.0);
        all.filter(|pool| Self::owner_in(&now, *pool) == Some(self.me)).collect()
    }

    /// The other node that owns a pool, if one does.
    pub(crate) fn other_owner(&self, pool: Uuid) -> Option<NodeId> {
        Self::owner_in(&self.now(), pool).filter(|owner| *owner != self.me)
    }

    /// Why a pool cannot be used at this node: another one has it, or none does yet. None when it is this node's.
    pub(crate) fn not_here(&self, pool: Uuid) -> Option<Problem> {
        if self.is_removed() {
            return Some(removed());
        }
        let status = self.now();
        self.learn_names(&status);
        let owner = Self::owner_in(&status, pool);
        let owner = owner.filter(|owner| *owner != self.me)?;
        let member =
            status.members.iter().find(|seen| seen.node == owner).and_then(|seen| seen.member.as_ref());
        let place = member.map(|member| {
            let links = || member.addresses.first().cloned().unwrap_or_default();
            if member.api.is_empty() { links() } else { member.api.clone() }
        });
        let name = self.name_of(owner);
        let place = place.filter(|place| !place.is_empty()).map(|place| format!(" ({place})"));
        let detail = format!("node {name}{} has it", place.unwrap_or_default());
        let problem = Problem::new(Code::OtherNode, detail).todo(format!(
            "Ask node {name}; or move the pool here with `holdfast pool move`. `holdfast cluster status` says which node has which pool."
        ));
        Some(Problem { node: Some(name), ..problem })
    }

    /// Says in the shared state that a pool is served in this epoch, for those who ask other nodes. Until it is said, or the epoch is over.
    pub(crate) fn say_served(self: &Arc<Self>, pool: PoolId, epoch: u64, permit: Permit) {
        let cluster = self.clone();
        self.control.spawn(async move {
            while !permit.is_revoked() {
                if cluster.write_served(pool, epoch).await {
                    return;
                }
                tokio::time::sleep(SAY_AGAIN).await;
            }
        });
    }

    async fn write_served(&self, pool: PoolId, epoch: u64) -> bool {
        let Ok(value) = (Served { epoch }).encode() else { return true };
        self.write_as_owner(pool, |owner| owner.epoch == epoch, (Key::Served(pool), value)).await
    }

    /// Writes something of a pool if its owner is this one. False: it has to be tried again.
    async fn write_as_owner(
        &self,
        pool: PoolId,
        is: impl Fn(&Owner) -> bool,
        (key, value): (Key, Vec<u8>),
    ) -> bool {
        let (owner, key) = (Key::Owner(pool).path(&self.name), key.path(&self.name));
        let Ok(found) = self.store.get(Range::Key(owner.clone())).await else { return false };
        let Some(found) = found.found.first() else { return true };
        if !Owner::decode(&found.value).is_ok_and(|owner| is(&owner)) {
            return true;
        }
        self.replace(key, value, Condition::Modified(owner, found.modified)).await
    }

    /// Writes a value that only this node writes, on a condition. What an earlier try may still have on its way does not come after this.
    /// False: it has to be tried again.
    async fn replace(&self, key: String, value: Vec<u8>, on: Condition) -> bool {
        let Ok(before) = self.store.get(Range::Key(key.clone())).await else { return false };
        let before = before.found.first().map_or(Revision(0), |found| found.modified);
        let transaction = Transaction {
            conditions: vec![on, Condition::Modified(key.clone(), before)],
            steps: vec![Step::Put(key, value)],
            reads: Vec::new(),
        };
        self.store.transact(transaction).await.is_ok_and(|outcome| outcome.done)
    }
}
