//! Disks by node and path (`n2:/dev/sdb`), of which pools over several nodes are made: lent by the node that has them, used by whichever
//! node owns the pool.

use std::collections::BTreeMap;
use std::time::Duration;

use control_api::{Code, DiskConfig, DiskState, NodeDisk, PoolMember, Problem, Selector};

use super::disk_table::Known;
use super::{Node, missing};
use crate::backend::{FoundDisk, NodeSeen, PoolInfo};

/// How long another node may take to lend a disk that was just named: it hears of it by the shared configuration.
const LENT_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A node that is killed is known to be away, or takes part again, within this after its disks have gone.
const GOES_WITHIN: Duration = Duration::from_secs(10);

impl Node {
    /// Lends what the configuration says of this node's disks. Those are not used under another name besides.
    pub(super) async fn lend(&self, configured: &[DiskConfig], found: &mut [FoundDisk]) {
        if let Err(problem) = self.backends.disks.lend(configured, found).await {
            tracing::error!(%problem, "disks of this node are not lent to the others");
        }
        for disk in configured.iter().filter(|disk| NodeDisk::parse(&disk.id).is_some()) {
            if !self.is_ours(&disk.id) {
                continue;
            }
            let Ok(lent) = self.backends.disks.reach(disk).await else { continue };
            for same in found.iter_mut().filter(|same| same.path == lent.path) {
                same.in_use_by = Some(format!("it is disk {} of the cluster", disk.id));
            }
        }
    }

    fn is_ours(&self, id: &str) -> bool {
        let own = self.cluster.get().map(|cluster| cluster.called());
        NodeDisk::parse(id).is_some_and(|disk| own == Some(disk.node))
    }

    /// A disk that a person named by node and path: known, in the configuration too, when its node lends it.
    pub(super) async fn node_disk(&self, name: &str) -> Result<Known, Problem> {
        let Some(cluster) = self.cluster.get() else {
            let detail = format!("disk {name}: this node is on its own, and has its own disks only.");
            return Err(Problem::new(Code::InvalidRequest, detail).todo(
                "Name the disk by its path; `holdfast cluster init` makes the node the first of a cluster.",
            ));
        };
        if let Some(disk) = NodeDisk::parse(name)
            && !cluster.is_member(disk.node)
        {
            return Err(missing(
                "node in the cluster that could lend a disk, named",
                disk.node,
                "holdfast cluster status",
            ));
        }
        self.config.change(|config| {
            if !config.disks.iter().any(|disk| disk.id == name) {
                config.disks.push(DiskConfig::new(name));
            }
            Ok(())
        })?;
        let wanted = DiskConfig::new(name);
        let mut waited = Duration::ZERO;
        loop {
            self.look().await;
            if let Some(known) = self.disks.find(name).filter(|known| known.present) {
                return Ok(known);
            }
            match self.backends.disks.reach(&wanted).await {
                Ok(_) => {}
                Err(problem) if self.is_ours(name) || waited >= LENT_WITHIN => return Err(problem),
                Err(_) => {
                    tokio::time::sleep(LOOK_EVERY).await;
                    waited += LOOK_EVERY;
                }
            }
        }
    }

    /// The disks of a pool by the names that all nodes know, as soon as one of them is named so: a path is one of this node then.
    ///
    /// # Errors
    /// When disks of this node are selected for such a pool: other nodes have to know them by name.
    pub(super) fn for_all_nodes(
        &self,
        names: &mut [String],
        with: &[String],
        select: &[Selector],
    ) -> Result<(), Problem> {
        let Some(cluster) = self.cluster.get() else { return Ok(()) };
        if !names.iter().chain(with).any(|name| NodeDisk::parse(name).is_some()) {
            return Ok(());
        }
        if !select.is_empty() {
            let detail =
                "The pool has disks of several nodes, and --select chooses among those of this node only.";
            return Err(Problem::new(Code::InvalidRequest, detail).todo("Name its disks, as in n1:/dev/sdb."));
        }
        for name in names.iter_mut().filter(|name| name.starts_with('/')) {
            *name = format!("{}:{name}", cluster.called());
        }
        Ok(())
    }

    /// Takes disks of nodes that no pool has any more out of the configuration: their nodes have them for themselves again.
    pub(super) async fn lend_no_more(&self, ids: &[String]) {
        if !ids.iter().any(|id| NodeDisk::parse(id).is_some()) {
            return;
        }
        let forgotten = self.config.change(|config| {
            config.disks.retain(|disk| NodeDisk::parse(&disk.id).is_none() || !ids.contains(&disk.id));
            Ok(())
        });
        if let Err(problem) = forgotten {
            tracing::warn!(%problem, "disks that no pool has stay in the configuration, and lent");
        }
        self.look().await;
    }

    /// Nodes that are away, and how many disks of the pool each of them has: all of those are missing with it.
    pub(super) fn nodes_away(&self, info: &PoolInfo) -> BTreeMap<String, usize> {
        let Some(cluster) = self.cluster.get() else { return BTreeMap::new() };
        let mut away: BTreeMap<String, usize> = BTreeMap::new();
        for member in &info.members {
            let is_away = |node: &&String| {
                *node != cluster.called() && (!cluster.is_up(node) || self.is_fresh_loss(info, node))
            };
            if let Some(node) = member.node.as_ref().filter(is_away) {
                *away.entry(node.clone()).or_default() += 1;
            }
        }
        let is_there = |node: &String| {
            let of = |member: &&PoolMember| member.node.as_ref() == Some(node);
            info.members.iter().filter(of).any(|member| member.state != DiskState::Missing)
        };
        away.retain(|node, _| !is_there(node));
        away
    }

    /// Whether the disks that a pool has of a node went only a moment ago: of a process that has ended it is known sooner that it lends nothing than
    /// that it beats no more, and one that is started again lends them again.
    fn is_fresh_loss(&self, info: &PoolInfo, node: &str) -> bool {
        let now = self.clock.now();
        let pools = self.pools.lock();
        let Some(slot) = pools.get(&info.guid) else { return false };
        let missing = info
            .members
            .iter()
            .filter(|member| member.node.as_deref() == Some(node) && member.state == DiskState::Missing);
        let since = missing.map(|member| slot.missing_since.get(&member.guid));
        // Those that nobody has looked at yet have just gone.
        since.fold(None, |fresh: Option<bool>, since| {
            let is_fresh = since.is_none_or(|since| now.since(*since) < GOES_WITHIN);
            Some(fresh.unwrap_or(true) && is_fresh)
        }) == Some(true)
    }

    /// These are the members of the cluster now: disks of others come and go with them.
    pub(super) async fn meet(&self, members: Vec<NodeSeen>) {
        match self.backends.disks.meet(members).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(problem) => {
                return tracing::error!(%problem, "who is a member is not known where disks are lent");
            }
        }
        let Some(node) = self.arc() else { return };
        tokio::spawn(async move {
            node.rescan().await;
            node.retry_closed().await;
        });
    }
}
