//! How initiators reach LUNs, whichever node serves them: each node says where its portals are, each owner which volumes its pools have, and
//! all know it of all.
//!
//! A portal's target portal group tag is the node's number times 16 plus its group: of all nodes no two have the same, and it stays what it
//! is when nodes come and go. What a node has said stays while it is away, so that paths come back as what they were.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use cluster_node::Status;
use cluster_store::keys::{Key, NodeId, PATHS, PoolId};
use cluster_store::values::{MAX_PORTALS, NodePaths, NodePortal, PoolVolumes, Value as _};
use cluster_store::{Condition, Range};
use control_api::{Code, Problem};
use parking_lot::Mutex;
use scsi_disk::AccessState;
use uuid::Uuid;

use super::{Cluster, SAY_AGAIN};

/// Tags of target portal groups that each node has.
const TAGS: u16 = 16;

/// What the nodes have said.
#[derive(Default)]
struct Told {
    nodes: BTreeMap<NodeId, NodePaths>,
    /// The pool of each volume.
    pools: BTreeMap<Uuid, Uuid>,
}

/// What this node says of its own ways.
#[derive(Clone, Default, PartialEq, Eq)]
struct Own {
    /// Its portals. None until they are known in this life of the node: those of the life before stand until then, so that a restart takes no
    /// way from any initiator.
    portals: Option<Vec<NodePortal>>,
    /// Where other nodes bring commands.
    forward: String,
}

/// What is known of the ways to LUNs, and what this node has said of its own.
pub(super) struct Paths {
    /// Where other nodes reach this one: stands for its portals that listen on all addresses.
    own_address: Option<IpAddr>,
    told: Mutex<Told>,
    own: Mutex<Own>,
    own_volumes: Mutex<BTreeMap<Uuid, Vec<Uuid>>>,
}

impl Paths {
    /// Nothing is known yet. `address` is where the other nodes find this one, `HOST:PORT`.
    pub(super) fn new(address: &str) -> Self {
        let own_address =
            address.rsplit_once(':').and_then(|(host, _)| host.trim_matches(['[', ']']).parse().ok());
        Self { own_address, told: Mutex::default(), own: Mutex::default(), own_volumes: Mutex::default() }
    }
}

/// Who owns which pool, and who takes part: what says which way is the good one.
#[derive(PartialEq, Eq)]
pub(super) struct Owners {
    owners: BTreeMap<Uuid, Option<NodeId>>,
    members: BTreeSet<NodeId>,
}

impl Owners {
    pub(super) fn of(status: &Status) -> Self {
        let owners = status.owners.iter().map(|(pool, _)| (pool.0, Cluster::owner_in(status, pool.0)));
        Self { owners: owners.collect(), members: status.members.iter().map(|seen| seen.node).collect() }
    }
}

/// The target portal group tag of a node's portals with this group in its configuration. There are 15 groups on each node; those beyond share
/// their tags.
fn tag_of(node: NodeId, group: u16) -> u16 {
    node.number().wrapping_mul(TAGS).wrapping_add((group.max(1) - 1) % (TAGS - 1) + 1)
}

/// The node of a tag.
pub(super) fn node_of(tag: u16) -> Option<NodeId> {
    NodeId::new(tag / TAGS)
}

/// How a LUN is reached over a node.
fn access(owner: Option<NodeId>, members: &BTreeSet<NodeId>, over: NodeId) -> AccessState {
    match members.contains(&over) {
        true if owner == Some(over) => AccessState::Optimized,
        true => AccessState::NonOptimized,
        false => AccessState::Unavailable,
    }
}

impl Cluster {
    /// The tag of a portal of this node with this group.
    pub(crate) fn portal_tag(&self, group: u16) -> u16 {
        tag_of(self.me, group)
    }

    /// The tags of a group's portals on all nodes.
    pub(crate) fn portal_tags(&self, group: u16) -> Vec<u16> {
        let mut nodes: BTreeSet<NodeId> = self.paths.told.lock().nodes.keys().copied().collect();
        nodes.insert(self.me);
        nodes.into_iter().map(|node| tag_of(node, group)).collect()
    }

    /// The portals of other nodes, each with its tag.
    pub(crate) fn remote_portals(&self) -> Vec<(SocketAddr, u16)> {
        let told = self.paths.told.lock();
        let others = told.nodes.iter().filter(|(node, _)| **node != self.me);
        let portals = others.flat_map(|(node, paths)| {
            paths
                .portals
                .iter()
                .filter_map(|portal| Some((portal.address.parse().ok()?, tag_of(*node, portal.group))))
        });
        portals.collect()
    }

    /// How a LUN of this pool is reached through the portal group with this tag, by what is known of owners now.
    pub(crate) fn access_through(&self, pool: Option<Uuid>) -> impl Fn(u16) -> AccessState + use<> {
        let status = self.now();
        let owner = pool.and_then(|pool| Self::owner_in(&status, pool));
        let members: BTreeSet<NodeId> = status.members.iter().map(|seen| seen.node).collect();
        move |tag| match node_of(tag) {
            Some(over) => access(owner, &members, over),
            None => AccessState::Unavailable,
        }
    }

    /// In which pool each volume is that any owner has told of.
    pub(crate) fn volume_places(&self) -> BTreeMap<Uuid, Uuid> {
        self.paths.told.lock().pools.clone()
    }

    /// Takes up what the nodes have said; whether it is something else than before.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) async fn read_paths(&self) -> Result<bool, Problem> {
        let away = |error: cluster_store::StoreError| Problem::new(Code::Unavailable, error.to_string());
        let snapshot = self.store.get(Range::Prefix(self.name.root() + PATHS)).await.map_err(away)?;
        let mut now = Told::default();
        for found in snapshot.found {
            // What a later release says in another way is left out.
            match Key::parse(&self.name, &found.key) {
                Some(Key::NodePaths(node)) => {
                    now.nodes.extend(NodePaths::decode(&found.value).ok().map(|paths| (node, paths)))
                }
                Some(Key::PoolVolumes(pool)) => {
                    let volumes = PoolVolumes::decode(&found.value).unwrap_or_default().volumes;
                    now.pools.extend(volumes.into_iter().map(|volume| (volume, pool.0)));
                }
                _ => {}
            }
        }
        let mut told = self.paths.told.lock();
        let changed = told.nodes != now.nodes || told.pools != now.pools;
        *told = now;
        Ok(changed)
    }

    /// Says where initiators reach this node: where each portal listens, with its group. Until it is said, or something else is.
    pub(crate) fn say_portals(self: &Arc<Self>, portals: impl IntoIterator<Item = (SocketAddr, u16)>) {
        let address = |at: SocketAddr| match at.ip() {
            ip if ip.is_unspecified() => self.paths.own_address.map(|ip| SocketAddr::new(ip, at.port())),
            ip => Some(SocketAddr::new(ip.to_canonical(), at.port())),
        };
        let portal = |(at, group)| Some(NodePortal { address: address(at)?.to_string(), group });
        let mut portals: Vec<NodePortal> = portals.into_iter().filter_map(portal).collect();
        portals.sort();
        portals.dedup();
        portals.truncate(MAX_PORTALS);
        self.say_own(|own| own.portals = Some(portals));
    }

    /// Says where other nodes bring commands for LUNs of this node's pools.
    pub(super) fn say_forward(self: &Arc<Self>, port: u16) {
        let Some(ip) = self.paths.own_address else { return };
        self.say_own(|own| own.forward = SocketAddr::new(ip, port).to_string());
    }

    /// Where commands for LUNs of a node's pools are brought.
    pub(super) fn forward_address(&self, node: NodeId) -> Option<SocketAddr> {
        self.paths.told.lock().nodes.get(&node)?.forward.parse().ok()
    }

    fn say_own(self: &Arc<Self>, change: impl FnOnce(&mut Own)) {
        let said = {
            let mut own = self.paths.own.lock();
            let before = own.clone();
            change(&mut own);
            if *own == before {
                return;
            }
            own.clone()
        };
        let cluster = self.clone();
        self.control.spawn(async move {
            while *cluster.paths.own.lock() == said && !cluster.write_own(&said).await {
                tokio::time::sleep(SAY_AGAIN).await;
            }
        });
    }

    async fn write_own(&self, said: &Own) -> bool {
        let key = Key::NodePaths(self.me).path(&self.name);
        let portals = match &said.portals {
            Some(portals) => portals.clone(),
            None => {
                let Ok(found) = self.store.get(Range::Key(key.clone())).await else { return false };
                let before = found.found.first().and_then(|found| NodePaths::decode(&found.value).ok());
                before.map(|before| before.portals).unwrap_or_default()
            }
        };
        let Ok(value) = (NodePaths { portals, forward: said.forward.clone() }).encode() else { return true };
        // A node that was removed leaves nothing behind.
        let member = Condition::Present(Key::Member(self.me).path(&self.name));
        self.replace(key, value, member).await
    }

    /// Says which volumes a pool of this node has, for as long as the node owns it.
    pub(crate) fn say_volumes(self: &Arc<Self>, pool: Uuid, mut volumes: Vec<Uuid>) {
        volumes.sort();
        if self.paths.own_volumes.lock().insert(pool, volumes.clone()).as_ref() == Some(&volumes) {
            return;
        }
        let cluster = self.clone();
        self.control.spawn(async move {
            let Ok(value) = (PoolVolumes { volumes: volumes.clone() }).encode() else { return };
            let own = |owner: &cluster_store::values::Owner| {
                owner.holder.is_some_and(|holder| holder.node == cluster.me)
            };
            while cluster.paths.own_volumes.lock().get(&pool) == Some(&volumes) {
                if cluster
                    .write_as_owner(PoolId(pool), own, (Key::PoolVolumes(PoolId(pool)), value.clone()))
                    .await
                {
                    return;
                }
                tokio::time::sleep(SAY_AGAIN).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u16) -> NodeId {
        NodeId::new(number).expect("a node")
    }

    #[test]
    fn tags_of_no_two_nodes_are_the_same() {
        let mut all = BTreeSet::new();
        for number in 1..100 {
            for group in 1..16 {
                let tag = tag_of(node(number), group);
                assert!(all.insert(tag), "{number} {group}");
                assert_eq!(node_of(tag), Some(node(number)));
            }
        }
        assert_eq!((tag_of(node(1), 1), tag_of(node(3), 15), tag_of(node(3), 16)), (17, 63, 49));
    }

    #[test]
    fn the_owners_paths_are_the_good_ones_while_it_is_there() {
        let members = BTreeSet::from([node(1), node(2)]);
        assert_eq!(access(Some(node(1)), &members, node(1)), AccessState::Optimized);
        assert_eq!(access(Some(node(1)), &members, node(2)), AccessState::NonOptimized);
        assert_eq!(
            access(None, &members, node(1)),
            AccessState::NonOptimized,
            "others tell them to come again"
        );
        assert_eq!(access(Some(node(3)), &members, node(3)), AccessState::Unavailable, "it is away");
    }
}
