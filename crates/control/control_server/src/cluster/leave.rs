//! Tokens for others, and leaving: what a member of a cluster is told about who belongs to it.

use cluster_identity::{CLUSTER_DIR, ClusterIdentity};
use cluster_join::{
    Standing, check_leave, check_member, check_remove, depart, last_beat, make_token, nodes, patiently,
    remove, standing,
};
use cluster_store::keys::NodeId;
use cluster_store::{ClusterStore, Range, Revision, StoreError};
use cluster_store_etcd::EtcdStore;
use control_api::{ClusterPlace, ClusterToken, Code, Config, Done, NodeDisk, Problem};
use uuid::Uuid;

use super::init::place_of;
use super::membership::store_here as etcd_store;
use super::order::{self, Place};
use super::told::{removed, told};
use crate::node::Node;

/// A node that was removed asks etcd for so long to forget it, and goes then.
const FINISHED_WITHIN: std::time::Duration = std::time::Duration::from_secs(5);
/// A node whose beats are not seen for so long is not there: members take its pools after 3.3 s.
const SILENT: std::time::Duration = std::time::Duration::from_secs(5);

impl Node {
    /// This node's identity and its cluster's store, for what only a member may do.
    ///
    /// # Errors
    /// When it is on its own, the cluster has removed it, or etcd does not answer.
    async fn as_member(&self) -> Result<(ClusterIdentity, EtcdStore), Problem> {
        let is_removed = || self.place().is_some_and(|place| place.is_removed());
        if is_removed() {
            return Err(removed());
        }
        let (identity, store) = self.own_place().await?;
        // It may not have heard of it yet.
        let record = &identity.record;
        let asked = patiently(|| standing(&store, &record.cluster, record.node));
        let standing = asked.await.map_err(told)?;
        if standing == Standing::Removed || is_removed() { Err(removed()) } else { Ok((identity, store)) }
    }

    /// This node's identity and its cluster's store, also where the cluster has removed it.
    ///
    /// # Errors
    /// When it is on its own.
    async fn own_place(&self) -> Result<(ClusterIdentity, EtcdStore), Problem> {
        let folder = self.data_dir().join(CLUSTER_DIR);
        let loaded = tokio::task::spawn_blocking(move || ClusterIdentity::load(&folder)).await;
        let loaded = loaded.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        let identity = loaded.map_err(|error| Problem::new(Code::Damaged, format!("{error}.")))?;
        let identity = identity.ok_or_else(|| {
            Problem::new(Code::WrongState, "This node belongs to no cluster.")
                .todo("`holdfast cluster init` makes one of it, `holdfast cluster join` lets it join one.")
        })?;
        let store = etcd_store(&identity)?;
        Ok((identity, store))
    }

    /// Whether this node belongs to a cluster.
    pub(crate) async fn cluster_place(&self) -> Result<ClusterPlace, Problem> {
        let data = self.data_dir().to_owned();
        let changing = self.changing().is_busy();
        let looking = tokio::task::spawn_blocking(move || {
            let identity = ClusterIdentity::load(&data.join(CLUSTER_DIR));
            let failed = order::failed(&data);
            identity.map(|identity| ClusterPlace {
                failed,
                ..identity.map_or_else(
                    || ClusterPlace { changing, ..ClusterPlace::default() },
                    |identity| place_of(&identity, changing),
                )
            })
        });
        let place = looking.await.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        place.map_err(|error| Problem::new(Code::Damaged, format!("{error}.")))
    }

    /// Makes a token with which one node can join.
    pub(crate) async fn cluster_token(&self) -> Result<ClusterToken, Problem> {
        let (identity, store) = self.as_member().await?;
        // Whoever joins takes over the users that are there, and must not be the first to have some.
        let users = store.get(Range::Key(super::users::key(&identity.record.cluster))).await;
        if users.map_err(|error| away(&error))?.found.is_empty() {
            return Err(Problem::new(Code::Unavailable, "This node has not shared its users yet.")
                .todo("Try again in a moment."));
        }
        let (token, expires) = make_token(&store, &identity, self.clocks().1).await.map_err(told)?;
        Ok(ClusterToken { token: token.to_text().to_string(), expires, address: token.address().to_string() })
    }

    /// Takes this node out of its cluster, and orders the change.
    ///
    /// # Errors
    /// When it owns pools, is the last one, or etcd does not answer. The node takes part as before, after a restart where it had stopped.
    pub(crate) async fn cluster_leave(&self) -> Result<ClusterPlace, Problem> {
        let preparing = self.changing().begin()?;
        let (identity, store) = self.own_place().await?;
        let record = &identity.record;
        if self.place().is_some_and(|place| place.is_removed()) {
            self.leave_service().await;
            finish(&store, &identity).await;
            preparing.order(self.data_dir(), Place::Alone, self.clocks().1);
            return Ok(ClusterPlace { changing: true, ..ClusterPlace::default() });
        }
        self.forget_unknown().await?;
        self.refuse_lent(&record.name.to_string())?;
        check_leave(&store, &record.cluster, record.node)
            .await
            .map_err(|error| self.with_pool_names(told(error)))?;
        // What would be refused is refused while the node serves.
        check_member(&store, &record.cluster, record.node).await.map_err(told)?;
        tracing::info!(cluster = %record.cluster, "this node leaves its cluster");
        // One that takes part still would come back by itself when it misses its entry among the members.
        self.leave_service().await;
        let left = depart(&store, &record.cluster, record.node).await.map_err(told);
        let now = self.clocks().1;
        if let Err(problem) = left {
            preparing.order(self.data_dir(), Place::Same(Box::new(problem.clone())), now);
            return Err(problem);
        }
        preparing.order(self.data_dir(), Place::Alone, now);
        Ok(ClusterPlace { changing: true, ..ClusterPlace::default() })
    }

    /// The disks of a node that leaves would be missing in the pools of the others.
    fn refuse_lent(&self, name: &str) -> Result<(), Problem> {
        let own = disks_of(&self.config_show(true), name);
        if own.is_empty() {
            return Ok(());
        }
        let detail = format!("Pools of the cluster use disks of this node: {}.", own.join(", "));
        Err(Problem::new(Code::InUse, detail)
            .todo("Take them out of their pools first (`holdfast pool remove-disk`), so that what is on them is copied to other disks."))
    }

    /// The store knows pools by their identities only, people by their names.
    fn with_pool_names(&self, problem: Problem) -> Problem {
        let pools = self.config_show(true).pools;
        let named =
            |text: String, pool: &control_api::PoolConfig| text.replace(&pool.guid.to_string(), &pool.name);
        Problem { detail: pools.iter().fold(problem.detail, named), ..problem }
    }

    /// Takes another node, which is gone for good, out of the cluster.
    pub(crate) async fn node_remove(&self, name: &str, confirmed: Option<&str>) -> Result<Done, Problem> {
        let (identity, store) = self.as_member().await?;
        let cluster = &identity.record.cluster;
        let all = patiently(|| nodes(&store, cluster)).await.map_err(told)?;
        let found = all.iter().find(|(node, _, entry)| {
            !entry.removed && (entry.name == name || node.number().to_string() == name)
        });
        let (node, entry) = found.map(|(node, _, entry)| (*node, entry)).ok_or_else(|| {
            Problem::new(Code::NotFound, format!("The cluster has no node {name}."))
                .todo("`holdfast node list` shows which there are.")
        })?;
        if node == identity.record.node {
            return Err(Problem::new(Code::WrongState, format!("Node {} is this one.", entry.name))
                .todo("`holdfast cluster leave` takes this node out of its cluster."));
        }
        let last = self.silent_since(&store, &identity, node, &entry.name).await?;
        patiently(|| check_remove(&store, cluster, node))
            .await
            .map_err(|error| self.with_pool_names(told(error)))?;
        crate::node::confirm(&entry.name, confirmed, || self.told_of_removal(node, &entry.name))?;
        remove(&store, cluster, node, last).await.map_err(|error| self.with_pool_names(told(error)))?;
        Ok(Done::new(format!("Node {} belongs to the cluster no more.", entry.name)))
    }

    /// What somebody has to know who removes a node.
    fn told_of_removal(&self, node: NodeId, name: &str) -> Vec<String> {
        let mut told = vec![format!(
            "Node {name} is taken out of the cluster for good; it can come back only by joining anew. It keeps the cluster's keys: wipe its data directory."
        )];
        let config = self.config_show(true);
        let all: Vec<Uuid> = config.pools.iter().map(|pool| pool.guid).collect();
        let unserved = self.unowned(&all, node);
        let named =
            |guid: &Uuid| config.pools.iter().find(|pool| pool.guid == *guid).map(|pool| pool.name.as_str());
        let pools: Vec<&str> = unserved.iter().filter_map(named).collect();
        if !pools.is_empty() {
            told.push(format!(
                "No node serves pool {} now. What is on disks in that machine stays on them: `holdfast pool import` on the node that gets them takes it.",
                pools.join(", ")
            ));
        }
        let disks = disks_of(&config, name);
        if !disks.is_empty() {
            told.push(format!(
                "Pools have disks of that machine, which stay missing there: {}. `holdfast pool remove-disk` takes them out.",
                disks.join(", ")
            ));
        }
        told
    }

    /// The last sign of life of a node that has given none for so long that it does not live, or is not heard by anybody.
    ///
    /// # Errors
    /// When it lives, or etcd does not answer.
    async fn silent_since(
        &self,
        store: &EtcdStore,
        identity: &ClusterIdentity,
        node: NodeId,
        name: &str,
    ) -> Result<Revision, Problem> {
        let lives = || {
            Problem::new(Code::InUse, format!("Node {name} is up: it gives signs of life.")).todo(format!(
                "`holdfast node pause --drain {name}` lets it give its pools away, then `holdfast cluster leave` on it takes it out. If it cannot do that any more, stop it first."
            ))
        };
        let cluster = &identity.record.cluster;
        let beat = || patiently(|| last_beat(store, cluster, node));
        let before = beat().await.map_err(told)?;
        tokio::time::sleep(SILENT).await;
        if beat().await.map_err(told)? == before { Ok(before) } else { Err(lives()) }
    }
}

/// Takes what the cluster may have still of a node that it has removed, as where its state went back to before that. The node goes all the same: it
/// has nothing of the cluster, and whoever removes it once more finishes that.
async fn finish(store: &EtcdStore, identity: &ClusterIdentity) {
    let departing = depart(store, &identity.record.cluster, identity.record.node);
    match tokio::time::timeout(FINISHED_WITHIN, departing).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the cluster may have something still of this node"),
        Err(_) => tracing::warn!("etcd does not answer: the cluster may have something still of this node"),
    }
}

/// Disks of a node that pools of the cluster use.
fn disks_of(config: &Config, name: &str) -> Vec<String> {
    let own =
        config.disks.iter().filter(|disk| NodeDisk::parse(&disk.id).is_some_and(|disk| disk.node == name));
    own.map(|disk| disk.id.clone()).collect()
}

fn away(error: &StoreError) -> Problem {
    Problem::new(Code::Unavailable, format!("etcd: {error}.")).todo("Try again when it answers.")
}
