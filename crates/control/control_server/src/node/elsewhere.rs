//! Which node has something that a request is about, for who passes requests on to it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use control_api::{BASE_PATH, Code, List, Problem};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::Node;
use super::ties::OnVolume;
use crate::cluster::{By, Cluster, NodePeer};

/// Other nodes have so long to say what they have.
const LISTS_WITHIN: Duration = Duration::from_secs(2);
/// The longest such answer, in bytes.
const MAX_LIST: usize = 64 << 20;

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thing<'a> {
    /// A pool, by its name or GUID.
    Pool(&'a str),
    /// A volume, by its name; the pool, where it is named, too.
    Volume(&'a str, Option<&'a str>),
    /// A LUN.
    Lun(&'a str),
    /// A share.
    Share(&'a str),
    /// What a node numbers itself.
    Of(&'a str),
}

impl Node {
    /// Its place in its cluster, if it has one.
    pub(crate) fn place(&self) -> Option<Arc<Cluster>> {
        self.cluster.get().cloned()
    }

    /// Where pools are that other nodes have, in one problem; none where all are here.
    pub(super) fn elsewhere(&self) -> Option<Problem> {
        let cluster = self.cluster.get()?;
        let pools = self.config.with(|config| config.pools.clone());
        let mut found = pools.iter().filter_map(|pool| Some((pool, cluster.not_here(pool.guid)?))).map(
            |(pool, problem)| Problem {
                detail: format!("pool {}: {}", pool.name, problem.detail),
                ..problem
            },
        );
        let mut first = found.next()?;
        for other in found {
            first.detail = format!("{}; {}", first.detail, other.detail);
            // Whom to ask is known where one has them all.
            first.node = first.node.filter(|node| other.node.as_ref() == Some(node));
        }
        Some(first)
    }

    /// The node that is to be asked about a thing; none when that is this one, or nobody has it.
    ///
    /// # Errors
    /// When the node that has it, as far as is known, takes no part.
    pub(crate) async fn whose(&self, thing: Thing<'_>) -> Result<Option<NodePeer>, Problem> {
        let Some(cluster) = self.cluster.get() else { return Ok(None) };
        let pool = match thing {
            Thing::Of(node) if node == cluster.called() => return Ok(None),
            Thing::Of(node) => return self.peer_called(node).map(Some),
            Thing::Pool(pool) | Thing::Volume(_, Some(pool)) => self.pool_known_as(pool),
            Thing::Volume(volume, None) => self.pool_of_volume(volume).await,
            Thing::Lun(name) => {
                let found =
                    self.config.with(|config| config.luns.iter().find(|lun| lun.name == name).cloned());
                match found.as_ref().map(|lun| (self.pool_of(lun), &lun.volume)) {
                    Some((None, volume)) => self.pool_of_volume(volume).await,
                    found => found.and_then(|(pool, _)| pool),
                }
            }
            Thing::Share(name) => {
                let name = upcase::upper(name);
                let is = |share: &&control_api::ShareConfig| upcase::upper(&share.name) == name;
                let found = self.config.with(|config| config.shares.iter().find(is).cloned());
                match found.as_ref().map(|share| (self.pool_of(share), &share.volume)) {
                    Some((None, volume)) => self.pool_of_volume(volume).await,
                    found => found.and_then(|(pool, _)| pool),
                }
            }
        };
        let owner = pool.filter(|pool| !self.is_open(*pool)).and_then(|pool| cluster.other_owner(pool));
        let Some(owner) = owner else { return Ok(None) };
        let peer = cluster.peers().into_iter().find(|peer| peer.node == owner);
        peer.map(Some).ok_or_else(|| away(&cluster.name_of(owner)))
    }

    /// A node that takes part, by its name.
    ///
    /// # Errors
    /// When none does that is called so.
    pub(crate) fn peer_called(&self, name: &str) -> Result<NodePeer, Problem> {
        let cluster = self.cluster()?;
        let number = cluster.number_of(name)?;
        cluster.peers().into_iter().find(|peer| peer.node == number).ok_or_else(|| away(name))
    }

    /// The other nodes that can be asked for what they have, this node's name, and how a pool's owner is called; none on a node of its own.
    pub(crate) fn others(&self) -> Option<(Vec<NodePeer>, String)> {
        let cluster = self.cluster.get()?;
        Some((cluster.peers(), cluster.called().to_owned()))
    }

    /// What the node of this number is called.
    pub(crate) fn node_called(&self, number: u16) -> String {
        let number = cluster_store::keys::NodeId::new(number);
        let cluster = self.cluster.get().zip(number);
        cluster.map_or_else(|| "of a cluster".to_owned(), |(cluster, number)| cluster.name_of(number))
    }

    /// Passes a request on to another node.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) async fn call(
        &self,
        peer: &NodePeer,
        by: By,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, Problem> {
        self.cluster()?.call(peer, by, request).await
    }

    /// What another node has of its own, as it lists it under this path; none where it does not answer within [`LISTS_WITHIN`].
    pub(super) async fn list_of<T: DeserializeOwned>(
        &self,
        peer: &NodePeer,
        by: &By,
        path: &str,
    ) -> Option<Vec<T>> {
        let asking = async {
            let request = Request::get(format!("{BASE_PATH}{path}")).body(Body::empty()).ok()?;
            let answer = self.call(peer, by.clone(), request).await.ok()?;
            let body = axum::body::to_bytes(Body::new(answer.into_body()), MAX_LIST).await.ok()?;
            serde_json::from_slice::<List<T>>(&body).ok().map(|list| list.items)
        };
        tokio::time::timeout(LISTS_WITHIN, asking).await.ok().flatten()
    }

    /// Names of LUNs that are another node's to tell of.
    pub(crate) fn luns_elsewhere(&self) -> BTreeSet<String> {
        let is_elsewhere = self.what_is_elsewhere();
        self.config.with(|config| {
            config.luns.iter().filter(|lun| is_elsewhere(*lun)).map(|lun| lun.name.clone()).collect()
        })
    }

    /// Names of shares that are another node's to tell of.
    pub(crate) fn shares_elsewhere(&self) -> BTreeSet<String> {
        let is_elsewhere = self.what_is_elsewhere();
        self.config.with(|config| {
            config
                .shares
                .iter()
                .filter(|share| is_elsewhere(*share))
                .map(|share| share.name.clone())
                .collect()
        })
    }

    /// What `may_be_elsewhere` says, for many things at once.
    pub(super) fn what_is_elsewhere(&self) -> impl Fn(&dyn OnVolume) -> bool + use<> {
        let pools: Vec<Uuid> = self.config.with(|config| config.pools.iter().map(|pool| pool.guid).collect());
        let pools = pools.into_iter().filter(|_| self.cluster.get().is_some());
        let elsewhere: BTreeSet<Uuid> = pools.filter(|pool| self.not_here(*pool).is_some()).collect();
        let some_are = elsewhere.iter().any(|pool| !self.is_open(*pool));
        let places = self.places();
        move |item| places.of(item).map_or(some_are, |pool| elsewhere.contains(&pool))
    }

    /// What the owner of a pool is called, as far as is known.
    pub(crate) fn owner_name(&self, pool: &str) -> Option<String> {
        let cluster = self.cluster.get()?;
        let (owner, _) = cluster.owner_of(self.pool_known_as(pool)?)?;
        Some(cluster.name_of(owner))
    }

    fn pool_known_as(&self, name: &str) -> Option<Uuid> {
        let is = |pool: &&control_api::PoolConfig| pool.name == name || pool.guid.to_string() == name;
        self.config.with(|config| config.pools.iter().find(is).map(|pool| pool.guid))
    }

    /// Whether the cluster knows for certain of no volume of this name.
    pub(crate) async fn has_no_volume(&self, name: &str) -> bool {
        match self.cluster.get() {
            Some(cluster) => cluster.has_no_volume(name).await,
            None => false,
        }
    }

    /// What is said of a volume that is nowhere.
    pub(crate) fn no_such_volume(name: &str) -> Problem {
        super::missing("volume", name, "holdfast volume list")
    }

    async fn pool_of_volume(&self, volume: &str) -> Option<Uuid> {
        if let Some(slot) = self.volumes.lock().get(volume) {
            return Some(slot.pool);
        }
        self.cluster.get()?.pool_of_volume(volume).await
    }
}

fn away(node: &str) -> Problem {
    Problem::new(Code::Unavailable, format!("Node {node} has it, and takes no part in the cluster now.")).todo(
        "Another node takes its pools within seconds, where one can; `holdfast cluster status` says how far that is.",
    )
}
