//! Through which target port groups LUNs are reached, and which portals of other nodes initiators are told of.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use control_api::{Config, LunConfig};
use scsi_disk::PortGroup;
use uuid::Uuid;

use super::Node;
use crate::backend::ServedBy;

impl Node {
    /// The groups that a LUN is reached through, of all nodes. `config` is that by which the node serves.
    pub(super) fn groups_of(&self, config: &Config, lun: &LunConfig, pool: Option<Uuid>) -> Vec<PortGroup> {
        let mut tags: BTreeSet<u16> = config.portals.iter().map(|portal| portal.group).collect();
        let cluster = self.cluster.get();
        if let Some(cluster) = cluster {
            tags.extend(cluster.remote_portals().into_iter().map(|(_, tag)| tag));
        }
        let targets: Vec<_> = config
            .targets
            .iter()
            .filter(|target| lun.map.iter().any(|map| map.target == target.name))
            .collect();
        let through = |tag: &u16| {
            targets.iter().any(|target| target.portal_groups.is_empty() || target.portal_groups.contains(tag))
        };
        let tags = tags.into_iter().filter(through);
        match cluster {
            None => tags.map(PortGroup::optimized).collect(),
            Some(cluster) => {
                let access = cluster.access_through(pool);
                tags.map(|tag| PortGroup { tag, access: access(tag) }).collect()
            }
        }
    }

    /// Who serves the LUNs of a pool whose volumes are not open here. One that is let go of goes to another node.
    pub(super) fn served_by(&self, pool: Option<Uuid>, leaves: bool) -> ServedBy {
        let Some(cluster) = self.cluster.get() else { return ServedBy::Here };
        match pool.and_then(|pool| cluster.owner_of(pool)) {
            Some((_, true)) if leaves => ServedBy::Nobody,
            Some((_, true)) => ServedBy::Here,
            Some((owner, false)) => ServedBy::Node(owner.number()),
            None => ServedBy::Nobody,
        }
    }

    /// Whether a pool that the cluster gives to this node has not been brought up yet, and nothing is known to be in its way.
    pub(super) fn is_awaited(&self, pool: Option<Uuid>) -> bool {
        let Some(pool) = pool.filter(|_| self.cluster.get().is_some()) else { return false };
        let slots = self.pools.lock();
        slots.get(&pool).is_none_or(|slot| slot.handle.is_none() && slot.reason.is_none())
    }

    /// Tells initiators of the portals of other nodes.
    pub(super) fn show_remote_portals(&self) {
        if let Some(cluster) = self.cluster.get() {
            self.backends.iscsi.set_remote_portals(cluster.remote_portals());
        }
    }

    /// Tells other nodes of this node's portals.
    pub(super) fn say_portals(&self) {
        let Some(cluster) = self.cluster.get() else { return };
        let listening = self.backends.iscsi.portals();
        let configured = self.config.with(|config| config.portals.clone());
        let portals = configured.into_iter().filter_map(|portal| {
            let at = listening.iter().find(|info| info.address == portal.address)?.listening.as_ref()?;
            Some((at.parse::<SocketAddr>().ok()?, portal.group))
        });
        cluster.say_portals(portals.collect::<Vec<_>>());
    }

    /// Tells other nodes which volumes are in a pool that is served here.
    pub(super) fn say_volumes(&self, pool: Option<Uuid>) {
        let (Some(cluster), Some(pool)) = (self.cluster.get(), pool) else { return };
        if self.is_open(pool) {
            let volumes = self.volumes.lock();
            cluster.say_volumes(
                pool,
                volumes.values().filter(|slot| slot.pool == pool).map(|slot| slot.space).collect(),
            );
        }
    }

    /// Serves everything by the ways that are known now.
    pub(super) async fn take_up_paths(&self) {
        self.reconcile().await;
    }
}
