//! How it stands with a node and its cluster, for whoever shows it.

use cluster_store::Revision;
use cluster_store::keys::{NodeId, PoolId};
use cluster_store::values::{Member, Owner};
use pool_ownership::{BootTime, Order, Phase, PoolSight};

use crate::links::LinkStatus;

/// A pool on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolState {
    /// The pool.
    pub pool: PoolId,
    /// The epoch in which this node owns it, or did.
    pub epoch: u64,
    /// The last order.
    pub order: Order,
    /// Whether that is carried out.
    pub done: bool,
}

/// A member of the cluster as this node sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberState {
    /// Its number.
    pub node: NodeId,
    /// What it says of itself; none when that is not understood.
    pub member: Option<Member>,
    /// When this node received its last beat.
    pub beat: Option<BootTime>,
}

impl MemberState {
    pub(crate) fn seen((node, member, beat): (NodeId, Option<&Member>, Option<BootTime>)) -> Self {
        Self { node, member: member.cloned(), beat }
    }
}

/// The store was further than it is: it was restored from a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreWentBack {
    /// The revision that this node had seen.
    pub known: Revision,
    /// The revision that it found.
    pub found: Revision,
}

/// How it stands with a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// How far its life is; none between lives.
    pub phase: Option<Phase>,
    /// The number of its life, 0 before the first.
    pub incarnation: u64,
    /// Until when it may answer.
    pub permit: BootTime,
    /// Its pools.
    pub pools: Vec<PoolState>,
    /// All members, also this one, as they were last seen.
    pub members: Vec<MemberState>,
    /// Who owns which pool, as it was last seen; none where that is not understood.
    pub owners: Vec<(PoolId, Option<Owner>)>,
    /// Who sees what of the disks of pools, as far as it was said.
    pub sights: Vec<PoolSight>,
    /// The other members, as far as links go.
    pub links: Vec<LinkStatus>,
    /// What it waits for, for people.
    pub trouble: Option<String>,
    /// The cluster has removed this node: it takes no part any more.
    pub removed: bool,
    /// The store has gone back since this process began, or since the one before it had seen it last.
    pub went_back: Option<StoreWentBack>,
}
