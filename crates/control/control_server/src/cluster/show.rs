//! The cluster at a glance.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster_node::{MemberState, Order, Phase, Settings, Status, boot_time};
use cluster_store::Range;
use cluster_store::keys::{Key, NodeId, PoolId};
use cluster_store::values::{Beat, Owner, Served, Value as _, VolumeName};
use control_api::{ClusterMember, ClusterMemberState, ClusterPool, ClusterPoolState, ClusterStatus};
use uuid::Uuid;

use super::Cluster;
use super::summary::{apart, summary, told_of_alarm};

/// The shared state is waited for so long when somebody wants to see it.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the shared state says of a pool, all at one moment.
#[derive(Default)]
struct ReadPool {
    owner: Option<Owner>,
    /// In which epoch it was let clients in.
    served: Option<u64>,
}

/// What the shared state says that is not watched.
pub(crate) struct Read {
    pools: BTreeMap<PoolId, ReadPool>,
    /// Nodes that have ever taken part.
    known: BTreeSet<NodeId>,
    /// The names of the volumes of each pool.
    volumes: BTreeMap<Uuid, Vec<String>>,
}

impl Cluster {
    async fn read_all(&self) -> Option<Read> {
        let mut read = Read { pools: BTreeMap::new(), known: BTreeSet::new(), volumes: BTreeMap::new() };
        for part in ["pools/", "beats/"] {
            let snapshot = self.store.get(Range::Prefix(self.name.root() + part)).await.ok()?;
            for found in snapshot.found {
                match Key::parse(&self.name, &found.key) {
                    Some(Key::Served(pool)) => {
                        let of = read.pools.entry(pool).or_default();
                        of.served = Served::decode(&found.value).ok().map(|value| value.epoch);
                    }
                    Some(Key::Owner(pool)) => {
                        read.pools.entry(pool).or_default().owner = Owner::decode(&found.value).ok();
                    }
                    Some(Key::Beat(node)) if Beat::decode(&found.value).is_ok() => {
                        read.known.insert(node);
                    }
                    _ => {}
                }
            }
        }
        Some(read)
    }

    /// The same with the names of volumes, where some pool is not served: they are many, and asked for then only.
    async fn read_with_volumes(&self) -> Option<Read> {
        let mut read = self.read_all().await?;
        let is_served = |of: &ReadPool| of.owner.as_ref().is_some_and(|owner| of.served == Some(owner.epoch));
        let all_live = {
            let now = self.now();
            // One that is silent still counts as a member for a moment.
            let heard =
                |node: NodeId| now.members.iter().any(|seen| seen.node == node && self.is_heard(seen));
            let is_there =
                |owner: &Owner| lives(&now, owner) && owner.holder.is_some_and(|holder| heard(holder.node));
            read.pools.values().all(|of| of.owner.as_ref().is_some_and(is_there))
        };
        if all_live && read.pools.values().all(is_served) {
            return Some(read);
        }
        let snapshot = self.store.get(Range::Prefix(self.name.root() + "volumes/")).await.ok()?;
        for found in snapshot.found {
            if let (Some(Key::Volume(name)), Ok(holder)) =
                (Key::parse(&self.name, &found.key), VolumeName::decode(&found.value))
            {
                read.volumes.entry(holder.pool.0).or_default().push(name);
            }
        }
        Some(read)
    }

    /// What the shared state says that is not watched; none when it cannot be read soon.
    pub(crate) async fn read(&self, patience: Duration) -> Option<Read> {
        tokio::time::timeout(patience, self.read_with_volumes()).await.ok().flatten()
    }

    /// The pools that this node serves now, each with the epoch in which it does.
    pub(crate) fn served_here(&self) -> BTreeMap<Uuid, u64> {
        let now = self.now();
        let served = now.pools.iter().filter(|pool| pool.order == Order::Publish && pool.done);
        served.map(|pool| (pool.pool.0, pool.epoch)).collect()
    }

    /// Whether the process that owns a pool is heard of still.
    pub(crate) fn is_owner_heard(&self, pool: Uuid) -> bool {
        let now = self.now();
        let owner = now.owners.iter().find(|(of, _)| of.0 == pool).and_then(|(_, owner)| owner.as_ref());
        owner.filter(|owner| lives(&now, owner)).and_then(|owner| owner.holder).is_some_and(|holder| {
            now.members.iter().any(|seen| seen.node == holder.node && self.is_heard(seen))
        })
    }

    /// How far a pool is, as far as is known.
    pub(crate) async fn state_of(&self, pool: Uuid) -> Option<ClusterPoolState> {
        let read = self.read(PATIENCE).await;
        let shown = self.shown(read.as_ref(), BTreeMap::from([(pool, pool.to_string())]), |_| None);
        shown.pools.into_iter().find(|of| of.guid == pool).map(|of| of.state)
    }

    /// The cluster as this node sees it, with what was read of the shared state, or without; not summed up yet. `pools` are those of the configuration,
    /// `why` says why one is not served here.
    pub(crate) fn shown(
        &self,
        read: Option<&Read>,
        pools: BTreeMap<Uuid, String>,
        why: impl Fn(Uuid) -> Option<String>,
    ) -> ClusterStatus {
        if self.is_removed() {
            return self.shown_removed();
        }
        let now = self.now();
        self.learn_names(&now);
        let cut_off = if read.is_none() && !self.may_answer() { self.unreached(&now) } else { Vec::new() };
        let mut nodes: Vec<ClusterMember> = now.members.iter().map(|seen| self.member(&now, seen)).collect();
        if !cut_off.is_empty() {
            // Their signs of life come by etcd.
            let others = nodes.iter_mut().filter(|node| node.name != self.called);
            others.for_each(|node| node.state = node.state.min(ClusterMemberState::Silent));
        }
        let away = read.iter().flat_map(|read| &read.known);
        for node in away.filter(|node| now.members.iter().all(|seen| seen.node != **node)) {
            nodes.push(self.away(*node));
        }
        nodes.sort_by_key(|node| node.number);
        let mut all: BTreeMap<Uuid, String> = pools;
        for (pool, _) in &now.owners {
            all.entry(pool.0).or_insert_with(|| pool.to_string());
        }
        let mut pools: Vec<ClusterPool> =
            all.into_iter().map(|(guid, name)| self.pool(&now, read, &nodes, guid, name, &why)).collect();
        if !cut_off.is_empty() {
            // Others may have them by now, and serve them.
            for pool in pools.iter_mut().filter(|pool| pool.state != ClusterPoolState::Online) {
                (pool.state, pool.reason) = (ClusterPoolState::Unknown, None);
                pool.volumes.clear();
            }
        }
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        let takes_part = now.phase == Some(Phase::Member);
        let etcd = self.etcd.as_ref().map(|etcd| etcd.seen()).unwrap_or_default();
        ClusterStatus {
            cluster: self.name.to_string(),
            node: self.called.clone(),
            takes_part,
            trouble: now.trouble.clone().or_else(|| {
                (!takes_part).then(|| "it has not been let in yet, or is being let go of".to_owned())
            }),
            store_went_back: now.went_back.map(|back| {
                format!(
                    "etcd is at revision {}, and this node had seen {}: it was restored from a backup",
                    back.found.0, back.known.0
                )
            }),
            store_unreadable: read.is_none(),
            removed: false,
            cut_off,
            etcd: etcd.members,
            etcd_voters: etcd.voters,
            etcd_alarms: etcd.alarms,
            summary: Vec::new(),
            pools,
            nodes,
        }
    }

    /// What a node sees that the cluster has removed: nothing of the cluster is its own any more, and nobody tells it of anything.
    fn shown_removed(&self) -> ClusterStatus {
        ClusterStatus {
            cluster: self.name.to_string(),
            node: self.called.clone(),
            takes_part: false,
            trouble: Some("the cluster has removed it".to_owned()),
            store_went_back: None,
            store_unreadable: false,
            removed: true,
            cut_off: Vec::new(),
            etcd: Vec::new(),
            etcd_voters: None,
            etcd_alarms: Vec::new(),
            summary: Vec::new(),
            pools: Vec::new(),
            nodes: Vec::new(),
        }
    }

    /// Whether this node is cut off, as far as that is known without a look at the shared state: it may not answer, and no link reaches any other node.
    pub(crate) fn hears_nobody(&self) -> bool {
        !self.may_answer() && !self.unreached(&self.now()).is_empty()
    }

    /// The other members, where no link reaches any of them.
    fn unreached(&self, now: &Status) -> Vec<String> {
        let is_reached =
            |node: NodeId| now.links.iter().any(|link| link.node == node && link.trouble.is_none());
        let others: Vec<NodeId> =
            now.members.iter().map(|seen| seen.node).filter(|node| *node != self.me).collect();
        if others.iter().any(|node| is_reached(*node)) {
            return Vec::new();
        }
        others.into_iter().map(|node| self.name_of(node)).collect()
    }

    /// Says in sentences how it is with the cluster by what is known of its pools and nodes.
    pub(crate) fn sum_up(&self, shown: &mut ClusterStatus) {
        if shown.removed || !shown.cut_off.is_empty() {
            shown.summary = apart(shown);
            return;
        }
        shown.summary = summary(shown, self.runs_etcd);
        shown.summary.extend(shown.etcd_alarms.iter().map(told_of_alarm));
    }

    fn member(&self, now: &Status, seen: &MemberState) -> ClusterMember {
        let member = seen.member.clone();
        let age = seen.beat.map(|at| boot_time().since(at));
        let silent = !self.is_heard(seen);
        let state = match &member {
            _ if silent => ClusterMemberState::Silent,
            Some(member) if member.draining => ClusterMemberState::Draining,
            Some(member) if member.paused => ClusterMemberState::Paused,
            _ => ClusterMemberState::Up,
        };
        let owns = now.owners.iter().filter(|(pool, _)| Self::owner_in(now, pool.0) == Some(seen.node));
        let link = now.links.iter().find(|link| link.node == seen.node);
        let (addresses, api, release) =
            member.map(|member| (member.addresses, member.api, member.release)).unwrap_or_default();
        ClusterMember {
            name: self.name_of(seen.node),
            number: seen.node.number(),
            state,
            beat_age_ms: age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
            pools: owns.count() as u64,
            addresses,
            api,
            release,
            trouble: link.and_then(|link| link.trouble.clone()),
        }
    }

    /// Whether a member is this node, or its beats arrive.
    pub(super) fn is_heard(&self, seen: &MemberState) -> bool {
        let late = Settings::default().claim_after;
        seen.node == self.me || seen.beat.is_some_and(|at| boot_time().since(at) <= late)
    }

    fn away(&self, node: NodeId) -> ClusterMember {
        ClusterMember {
            name: self.name_of(node),
            number: node.number(),
            state: ClusterMemberState::Away,
            beat_age_ms: None,
            pools: 0,
            addresses: Vec::new(),
            api: String::new(),
            release: String::new(),
            trouble: None,
        }
    }

    fn pool(
        &self,
        now: &Status,
        read: Option<&Read>,
        nodes: &[ClusterMember],
        guid: Uuid,
        name: String,
        why: &impl Fn(Uuid) -> Option<String>,
    ) -> ClusterPool {
        let watched = now.owners.iter().find(|(pool, _)| pool.0 == guid);
        let is_watched = watched.is_some();
        let watched = watched.and_then(|(_, owner)| owner.clone());
        let read_pool = read.and_then(|read| read.pools.get(&PoolId(guid)));
        // Who owns it and whether that one serves it were read at one moment, and the watch may be ahead of that, or behind.
        let read_owner = read_pool.and_then(|read| read.owner.clone());
        let owner = later(watched, read_owner);
        let epoch = owner.as_ref().map_or(0, |owner| owner.epoch);
        let here = now.pools.iter().find(|pool| pool.pool.0 == guid && pool.epoch == epoch);
        let served = read.map(|_| read_pool.is_some_and(|read| read.served == Some(epoch)));
        let up = |node: NodeId| {
            let found = nodes.iter().find(|member| member.number == node.number());
            found.is_some_and(|member| member.state > ClusterMemberState::Silent)
        };
        let holder = owner.as_ref().and_then(|owner| owner.holder);
        let state = match (&owner, holder, here) {
            // Who has not been told of owners yet does not know that there is none.
            (None, ..) if is_watched || now.phase != Some(Phase::Member) => ClusterPoolState::Unknown,
            (_, None, _) => ClusterPoolState::Unowned,
            (_, Some(holder), Some(here)) if holder.node == self.me => match (here.order, here.done) {
                (Order::Publish, true) if now.permit >= boot_time() => ClusterPoolState::Online,
                // It may not answer: neither etcd nor all members have heard of it lately.
                (Order::Publish, true) => ClusterPoolState::Silent,
                _ => ClusterPoolState::Moving,
            },
            (Some(owner), Some(holder), _) if !up(holder.node) || !lives(now, owner) => {
                ClusterPoolState::Silent
            }
            (_, Some(holder), _) if holder.node == self.me => ClusterPoolState::Moving,
            _ => match served {
                Some(true) => ClusterPoolState::Online,
                Some(false) => ClusterPoolState::Moving,
                None => ClusterPoolState::Unknown,
            },
        };
        let reason = if state == ClusterPoolState::Online { None } else { why(guid) };
        let owner = holder.map(|holder| self.name_of(holder.node));
        let takers = self.takers_of(now, guid);
        let called = |nodes: Vec<NodeId>| nodes.into_iter().map(|node| self.name_of(node)).collect();
        let (can_serve, with_away) = match takers {
            Some(takers) => (Some(called(takers.can)), called(takers.with_away)),
            None => (None, Vec::new()),
        };
        let mut volumes = read.and_then(|read| read.volumes.get(&guid)).cloned().unwrap_or_default();
        volumes.retain(|_| state < ClusterPoolState::Unknown);
        volumes.sort();
        ClusterPool {
            name,
            guid,
            owner,
            epoch,
            state,
            address: None,
            reason,
            from: None,
            waits_seconds: None,
            can_serve,
            with_away,
            disk_nodes: Vec::new(),
            volumes,
        }
    }
}

/// The later of two owners of a pool, as they were learned of by two ways.
fn later(one: Option<Owner>, other: Option<Owner>) -> Option<Owner> {
    match (one, other) {
        (Some(one), Some(other)) if other.epoch > one.epoch => Some(other),
        (one, other) => one.or(other),
    }
}

/// Whether the life of a node goes on in which it became the owner: a later one of the same node has to claim the pool first. Where it is not known,
/// it may.
fn lives(now: &Status, owner: &Owner) -> bool {
    let Some(holder) = owner.holder else { return false };
    let seen = now.members.iter().find(|seen| seen.node == holder.node);
    // An owner that was read may be of a newer life than the members that the watch has told of.
    seen.is_some_and(|seen| {
        seen.member.as_ref().is_none_or(|member| member.incarnation.0 <= holder.incarnation.0)
    })
}
