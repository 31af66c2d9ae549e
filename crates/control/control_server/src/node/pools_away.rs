//! Pools that this node does not have now: another node serves them, or none does, as they are on their way. What is on them is not missing here, and
//! of pools on their way it is said once, and as that (`health_rules::of_unserved`).

use std::collections::BTreeSet;

use control_api::{
    ClusterMemberState, ClusterPoolState, ClusterStatus, Issue, Pool, PoolState, Provisioning,
    RedundancyState, Resiliency, Severity, Volume, VolumeCache,
};
use health_rules::{FindingCode, issue};
use uuid::Uuid;

use super::Node;
use super::slots::BEING_CLOSED;
use super::ties::OnVolume;

/// The pools that a node does not have, as far as is known at one moment.
#[derive(Debug, Default)]
pub(super) struct PoolsAway {
    /// No node serves them.
    waiting: BTreeSet<Uuid>,
    /// Another node has them.
    elsewhere: BTreeSet<Uuid>,
    /// Those of which the disks are with nodes that are away: what else is in their way here is of no consequence.
    with_away: BTreeSet<Uuid>,
    /// The names of all.
    names: BTreeSet<String>,
}

impl PoolsAway {
    /// Whether the pool of this name is one of them.
    pub(super) fn has(&self, pool: &str) -> bool {
        self.names.contains(pool)
    }

    /// Whether no node serves this pool.
    pub(super) fn is_waiting(&self, pool: Uuid) -> bool {
        self.waiting.contains(&pool)
    }

    /// Whether all that is wrong with a pool is that it is away. Why it could not be opened here is told besides.
    pub(super) fn explain(&self, pool: &Pool) -> bool {
        let is_open = !matches!(pool.state, PoolState::Closed | PoolState::Opening);
        let has_failed = pool.reason.as_deref().is_some_and(|why| why != BEING_CLOSED);
        let has_failed = has_failed && !self.with_away.contains(&pool.guid);
        !is_open && (self.elsewhere.contains(&pool.guid) || (self.is_waiting(pool.guid) && !has_failed))
    }
}

impl Node {
    /// The pools that are not here, by what is seen of the cluster.
    pub(super) fn pools_away(&self, cluster: Option<&ClusterStatus>) -> PoolsAway {
        let mut away = PoolsAway::default();
        if cluster.is_some_and(|cluster| cluster.removed) {
            let pools = self.config.with(|config| config.pools.clone());
            away.elsewhere = pools.iter().map(|pool| pool.guid).collect();
            away.names = pools.into_iter().map(|pool| pool.name).collect();
            return away;
        }
        let is_cut_off = cluster.is_some_and(|cluster| !cluster.cut_off.is_empty());
        for pool in cluster.into_iter().flat_map(|cluster| &cluster.pools) {
            if pool.is_unserved() {
                away.waiting.insert(pool.guid);
                if !pool.with_away.is_empty() {
                    away.with_away.insert(pool.guid);
                }
            } else if self.not_here(pool.guid).is_some()
                || (is_cut_off && pool.state == ClusterPoolState::Unknown)
            {
                away.elsewhere.insert(pool.guid);
            } else {
                continue;
            }
            away.names.insert(pool.name.clone());
        }
        away
    }

    /// Whether a thing lies on a pool that is away, or may.
    pub(super) fn is_with_pools_away(&self, away: &PoolsAway, item: &impl OnVolume) -> bool {
        let is_away = |pool: Uuid| away.is_waiting(pool) || away.elsewhere.contains(&pool);
        self.may_be_elsewhere(item) || self.pool_of(item).map_or(!away.waiting.is_empty(), is_away)
    }

    /// Volumes of pools that no node serves, as far as they are known: their names, and nothing of what is in them.
    pub(crate) async fn waiting_volumes(&self) -> Vec<Volume> {
        let Ok(cluster) = self.cluster_show().await else { return Vec::new() };
        let mut waiting = Vec::new();
        for pool in cluster.pools.iter().filter(|pool| pool.is_unserved()) {
            let why = health_rules::why_waiting(&cluster, pool);
            waiting.extend(pool.volumes.iter().map(|name| unseen(name, &pool.name, why.clone())));
        }
        waiting
    }

    /// What is to be done about a pool of a cluster that is not open, where other nodes are away: never what gives up data that they have.
    pub(super) fn start_others(&self, cluster: Option<&ClusterStatus>, pool: &Pool) -> Option<String> {
        let cluster = cluster.filter(|_| pool.state == PoolState::Closed)?;
        let away = cluster.nodes.iter().filter(|node| node.state <= ClusterMemberState::Silent);
        let away: Vec<&str> = away.map(|node| node.name.as_str()).collect();
        (!away.is_empty()).then(|| {
            let away = away.join(", ");
            format!("Bring {away} back first: disks that are missing may be there, and nothing is lost as long as they are. The pool is opened by itself then.")
        })
    }

    /// What is said of what to do about a pool that somebody is at just now; none where nobody is, or it serves.
    pub(super) fn under_way(&self, pool: Uuid) -> Option<String> {
        if self.path(pool).leaves() {
            return Some(
                "Nothing needs to be done: it is let go of, and what comes then is said then.".to_owned(),
            );
        }
        let step = self.coming(pool)?;
        Some(format!("Wait: {step}. `holdfast status` names disks that do not answer."))
    }

    /// Volumes of pools that are being opened, as far as it is known what these held when they were open last.
    pub(super) fn volumes_of_pools_that_open(&self, pools: &[Pool], ready: bool) -> Vec<Issue> {
        let opening = pools.iter().filter(|pool| ready && pool.state == PoolState::Opening);
        let opening: BTreeSet<Uuid> = opening.map(|pool| pool.guid).collect();
        // What it held in this life of the node is listed, and told of with all volumes.
        let listed = |pool: Uuid| self.pools.lock().get(&pool).is_some_and(|slot| slot.held.is_some());
        let holders = self.holders().into_iter();
        let of = holders.filter(|holder| opening.contains(&holder.guid) && !listed(holder.guid));
        let told = of.flat_map(|holder| {
            let todo = self.under_way(holder.guid).unwrap_or_default();
            let of = |name: &String| {
                let detail = format!("it is not open: pool {} is not open yet", holder.name);
                let subject = format!("volume {name}");
                issue(FindingCode::VolumeClosed, Severity::Critical, subject, detail, todo.clone())
            };
            holder.volumes().map(of).collect::<Vec<_>>()
        });
        told.collect()
    }
}

/// A volume of which nothing is known but its name.
fn unseen(name: &str, pool: &str, why: String) -> Volume {
    Volume {
        name: name.to_owned(),
        guid: Uuid::nil(),
        pool: pool.to_owned(),
        online: false,
        reason: Some(why),
        resiliency: Resiliency::default(),
        redundancy: RedundancyState::Unavailable,
        provisioning: Provisioning::default(),
        columns: 0,
        interleave_bytes: 0,
        integrity: false,
        size_bytes: 0,
        used_bytes: 0,
        free_bytes: 0,
        allocated_bytes: 0,
        cache: VolumeCache::default(),
        log: None,
        log_place: None,
    }
}
