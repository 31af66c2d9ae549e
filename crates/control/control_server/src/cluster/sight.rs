//! Which nodes can open a pool by what they see of its disks: what this node says of its own, and what it knows of all.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster_node::{MemberState, NodeSight, PoolSight, Sight, Status};
use cluster_store::keys::{Key, NodeId, PoolId};
use cluster_store::values::{PoolDisks, Value as _};
use control_api::{Code, Problem};
use uuid::Uuid;

use super::{Cluster, SAY_AGAIN};

/// What an owner knows of its pool's disks is written so often, when the store does not answer; then again when it looks after the pool.
const SAID_MOST: u32 = 5;

/// Who could serve a pool.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Takers {
    /// Nodes that are heard of and can open it, paused ones as well.
    pub(super) can: Vec<NodeId>,
    /// Nodes that are not heard of, and had disks of it that no other node sees, where nobody sees enough of them.
    pub(super) with_away: Vec<NodeId>,
}

/// Who could serve a pool by what was said of its disks. `is_heard` says whether a node takes part and gives signs of life.
fn takers(of: &PoolSight, is_heard: impl Fn(NodeId) -> bool) -> Takers {
    let is_there = |seen: &&NodeSight| seen.is_now && is_heard(seen.node);
    let can = of.nodes.iter().filter(is_there).filter(|seen| seen.is_enough && !seen.has_failed);
    let can: Vec<NodeId> = can.map(|seen| seen.node).collect();
    let mut with_away = Vec::new();
    // Where a node sees enough and could not open it all the same, it is not for want of disks.
    if !of.nodes.iter().filter(is_there).any(|seen| seen.is_enough) {
        let there: BTreeSet<&Uuid> = of.nodes.iter().filter(is_there).flat_map(|seen| &seen.voters).collect();
        let has_more = |seen: &&NodeSight| seen.voters.iter().any(|disk| !there.contains(disk));
        let away = of.nodes.iter().filter(|seen| !is_heard(seen.node)).filter(has_more);
        with_away.extend(away.map(|seen| seen.node));
    }
    Takers { can, with_away }
}

/// Those of these disks that another node than this one sees, or saw last.
fn seen_by_others(of: &PoolSight, me: NodeId, disks: &BTreeSet<Uuid>) -> BTreeSet<Uuid> {
    let others = of.nodes.iter().filter(|seen| seen.node != me);
    others.flat_map(|seen| seen.voters.intersection(disks)).copied().collect()
}

impl Cluster {
    /// This node sees these disks now.
    pub(crate) async fn set_sight(&self, sight: Sight) -> bool {
        let running = self.running.read().await;
        match running.as_ref() {
            Some(running) => running.set_sight(sight).await.is_ok(),
            None => false,
        }
    }

    /// The disks that decide the metadata of pools, as their owners have said.
    pub(crate) fn pool_disks(&self) -> Vec<(PoolId, PoolDisks)> {
        self.now().sights.into_iter().map(|of| (of.pool, of.disks)).collect()
    }

    /// Says which disks a pool of this node needs, unless that is known.
    pub(crate) fn say_disks(self: &Arc<Self>, pool: Uuid, disks: PoolDisks) {
        let (pool, cluster) = (PoolId(pool), self.clone());
        if self.now().sights.iter().any(|of| of.pool == pool && of.disks == disks) {
            return;
        }
        self.control.spawn(async move {
            let Ok(value) = disks.encode() else { return };
            let own = |owner: &cluster_store::values::Owner| {
                owner.holder.is_some_and(|holder| holder.node == cluster.me)
            };
            for _ in 0..SAID_MOST {
                if cluster.write_as_owner(pool, own, (Key::PoolDisks(pool), value.clone())).await {
                    return;
                }
                tokio::time::sleep(SAY_AGAIN).await;
            }
        });
    }

    /// Who could serve a pool; none where its owner has not said which disks it needs.
    pub(super) fn takers_of(&self, now: &Status, pool: Uuid) -> Option<Takers> {
        let of = now.sights.iter().find(|of| of.pool.0 == pool)?;
        let heard = |node: NodeId| now.members.iter().any(|seen| seen.node == node && self.is_heard(seen));
        let mut told = takers(of, heard);
        // One of an earlier release never says what it sees: it may see all.
        let silent = now
            .members
            .iter()
            .map(|seen| seen.node)
            .filter(|node| of.nodes.iter().all(|of| of.node != *node));
        told.can.extend(silent.filter(|node| heard(*node)));
        told.can.sort();
        if !told.can.is_empty() {
            told.with_away.clear();
        }
        Some(told)
    }

    /// Whether a node is another one than this owner and takes pools now, as far as is known.
    fn may_take(&self, now: &Status, owner: NodeId, node: NodeId) -> bool {
        node != owner && now.members.iter().any(|seen| seen.node == node && self.takes(seen))
    }

    /// Whether another node could take this pool of this node now, as far as is known here.
    pub(crate) fn has_taker(&self, pool: Uuid) -> bool {
        let now = self.now();
        let can = match self.takers_of(&now, pool) {
            Some(takers) => takers.can,
            // Any may see its disks.
            None => now.members.iter().map(|seen| seen.node).collect(),
        };
        can.into_iter().any(|node| self.may_take(&now, self.me, node))
    }

    /// Whether a member takes pools now, as far as is known.
    pub(super) fn takes(&self, seen: &MemberState) -> bool {
        let open = seen.member.as_ref().is_some_and(|member| !member.paused && !member.draining);
        open && self.is_heard(seen)
    }

    /// Refuses to give a pool to a node that cannot open it, as far as is known. Nothing has been given up yet.
    pub(crate) fn refuse_blind(&self, (pool, name): (Uuid, &str), to: NodeId) -> Result<(), Problem> {
        let now = self.now();
        let Some(of) = now.sights.iter().find(|of| of.pool.0 == pool) else { return Ok(()) };
        let node = self.name_of(to);
        let Some(seen) = of.nodes.iter().find(|seen| seen.node == to) else { return Ok(()) };
        let refused = |detail: String| Err(Problem::new(Code::WrongState, detail));
        let (sees, all, needed) = (seen.voters.len(), of.disks.voters.len(), of.disks.needed);
        let lacks = of.disks.voters.iter().filter(|voter| !seen.voters.contains(&voter.disk));
        let lacks: Vec<&str> =
            lacks.map(|voter| voter.name.as_str()).filter(|name| !name.is_empty()).collect();
        let lacks =
            if lacks.is_empty() { String::new() } else { format!(" It does not see {}.", lacks.join(", ")) };
        if !seen.is_now {
            // It is heard of as soon as it has looked, and asked again until then.
            return Ok(());
        }
        if !seen.is_enough {
            let all = control_api::many(all as u64, "disk");
            return refused(format!(
                "Node {node} cannot open pool {name}: it sees {sees} of {all} that decide the pool's metadata, and needs {needed}.{lacks} Nothing was changed."
            ))
            .map_err(|problem| problem.todo(format!(
                "Make the disks reachable for node {node} (a SAN, or disks named by node, as in n1:/dev/sdb, when the pool is made), or move the pool to a node that reaches them: `holdfast cluster status` names those that can take it."
            )));
        }
        if seen.has_failed {
            return refused(format!(
                "Node {node} could not open pool {name} when it last tried, though it sees its disks. Nothing was changed."
            ))
            .map_err(|problem| problem.todo(format!(
                "The log of node {node} says why; it counts as able again when its disks change, or after some minutes."
            )));
        }
        Ok(())
    }

    /// Those of these disks of a pool that some other node sees, or saw last, as far as is known: disks that decide its metadata.
    pub(crate) fn seen_by_others(&self, pool: Uuid, disks: &BTreeSet<Uuid>) -> BTreeSet<Uuid> {
        let now = self.now();
        let of = now.sights.iter().find(|of| of.pool.0 == pool);
        of.map(|of| seen_by_others(of, self.me, disks)).unwrap_or_default()
    }

    /// Those pools of a node that no other one could take now because of their disks.
    pub(crate) fn only_at(&self, owner: NodeId) -> Vec<Uuid> {
        let now = self.now();
        let only = |pool: &Uuid| {
            let can = self.takers_of(&now, *pool);
            can.is_some_and(|takers| !takers.can.iter().any(|node| self.may_take(&now, owner, *node)))
        };
        let own = |pool: &Uuid| Self::owner_in(&now, *pool) == Some(owner);
        now.owners.iter().map(|(pool, _)| pool.0).filter(own).filter(only).collect()
    }
}

#[cfg(test)]
mod tests {
    use cluster_store::values::PoolVoter;

    use super::*;

    fn node(number: u16) -> NodeId {
        NodeId::new(number).expect("a number")
    }

    fn sight(needed: u32, nodes: &[(u16, &[u128], bool)]) -> PoolSight {
        let id = Uuid::from_u128;
        let voters = (0..3).map(|disk| PoolVoter { disk: id(disk), name: format!("d{disk}") }).collect();
        let nodes = nodes.iter().map(|(number, disks, is_now)| NodeSight {
            node: node(*number),
            voters: disks.iter().map(|disk| id(*disk)).collect(),
            is_now: *is_now,
            is_enough: disks.len() >= needed as usize,
            has_failed: false,
        });
        PoolSight { pool: PoolId(id(9)), disks: PoolDisks { voters, needed }, nodes: nodes.collect() }
    }

    #[test]
    fn disks_are_with_the_nodes_that_are_away_and_had_what_nobody_else_sees() {
        let of = sight(2, &[(1, &[0, 1, 2], false), (2, &[2], true), (3, &[2], false)]);
        let told = takers(&of, |number| number == node(2));
        assert_eq!(told, Takers { can: vec![], with_away: vec![node(1)] });
        let back = takers(&sight(2, &[(1, &[0, 1, 2], true), (2, &[2], true)]), |_| true);
        assert_eq!(back, Takers { can: vec![node(1)], with_away: vec![] });
        // A process that has just begun has not said what it sees, and is not away either.
        let begun = takers(&sight(2, &[(1, &[0, 1, 2], false)]), |_| true);
        assert_eq!(begun, Takers::default());
    }
}
