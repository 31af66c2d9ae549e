//! What this node and the others see of the disks of pools.

use std::collections::BTreeSet;

use cluster_store::keys::{NodeId, PoolId};
use cluster_store::values::NodeSees;
use uuid::Uuid;

use super::Node;
use crate::sight::{NodeSight, PoolSight, Reach};

impl Node {
    /// Who sees what of each pool whose owner has said which disks it needs.
    pub fn sights(&self) -> impl Iterator<Item = PoolSight> {
        self.view.disks.iter().map(|(pool, (_, disks))| {
            let of = |(node, sees): (&NodeId, &NodeSees)| {
                let is_seen = |disk: &Uuid| sees.disks.contains(disk);
                let voters = disks.voters.iter().map(|voter| voter.disk).filter(is_seen);
                NodeSight {
                    node: *node,
                    voters: voters.collect(),
                    is_now: self.view.lives(*node, sees.incarnation) == Some(true),
                    is_enough: disks.can_be_opened(is_seen),
                    has_failed: sees.failed.contains(pool),
                }
            };
            let said = self.view.sees.iter();
            let nodes = said.filter_map(|(node, (_, sees))| Some(of((node, sees.as_ref()?)))).collect();
            PoolSight { pool: *pool, disks: disks.clone(), nodes }
        })
    }

    /// How much of a pool's disks a member sees.
    pub(crate) fn reach(&self, node: NodeId, pool: PoolId) -> Reach {
        let own = || {
            let own = self.sight.as_ref()?;
            Some((own.failed.contains(&pool), self.seen_by(pool, |disk| own.disks.contains(disk))))
        };
        let said = || match self.view.sees.get(&node) {
            Some((_, Some(sees))) if self.view.lives(node, sees.incarnation) == Some(true) => {
                Some((sees.failed.contains(&pool), self.seen_by(pool, |disk| sees.disks.contains(disk))))
            }
            // What a process saw that has ended says nothing of the next one.
            Some((_, Some(_))) => Some((false, Reach::Nothing)),
            // One of an earlier release never says it.
            _ => None,
        };
        match if node == self.me { own() } else { said() } {
            None => Reach::Enough,
            Some((true, Reach::Enough)) => Reach::Failed,
            Some((_, reach)) => reach,
        }
    }

    fn seen_by(&self, pool: PoolId, is_seen: impl Fn(&Uuid) -> bool) -> Reach {
        match self.view.disks.get(&pool) {
            None => Reach::Enough,
            Some((_, disks)) if disks.can_be_opened(&is_seen) => Reach::Enough,
            Some((_, disks)) if disks.seen(is_seen) > 0 => Reach::Part,
            Some(_) => Reach::Nothing,
        }
    }

    /// What this node has to say of what it sees and has not said yet.
    pub(crate) fn unsaid(&self) -> Option<NodeSees> {
        let own = self.sight.as_ref()?;
        let voters = self.view.disks.values().flat_map(|(_, disks)| &disks.voters);
        let seen: BTreeSet<Uuid> =
            voters.map(|voter| voter.disk).filter(|disk| own.disks.contains(disk)).collect();
        let failed = own.failed.iter().copied().filter(|pool| self.view.owners.contains_key(pool));
        let sees = NodeSees::that_fits(self.incarnation, seen, failed);
        (self.said.as_ref() != Some(&sees)).then_some(sees)
    }
}
