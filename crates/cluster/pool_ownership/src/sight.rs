//! Which nodes see enough of a pool's disks to open it, as far as they have said.
//!
//! What nodes see decides only who *should* take a pool: an epoch and a fence keep two from having it, whatever was said. So what is old here costs
//! time and never data, and what is not known speaks against nobody.

use std::collections::BTreeSet;

use cluster_store::keys::{NodeId, PoolId};
use cluster_store::values::PoolDisks;
use uuid::Uuid;

/// What a node sees of the disks of pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// Disks, by their identities.
    pub disks: BTreeSet<Uuid>,
    /// Pools that it could not open when it last tried, though it sees their disks.
    pub failed: BTreeSet<PoolId>,
}

/// How much of a pool's disks a node sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// Nothing of them, or it has not said so in its present life.
    Nothing,
    /// Too few.
    Part,
    /// Enough, but it could not open the pool when it last tried.
    Failed,
    /// Enough, as far as is known.
    Enough,
}

/// What a node that takes part, or did, sees of the disks that decide a pool's metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSight {
    /// The node.
    pub node: NodeId,
    /// The disks with votes that it sees, or saw last.
    pub voters: BTreeSet<Uuid>,
    /// It has said so in its present life.
    pub is_now: bool,
    /// That is enough to open the pool.
    pub is_enough: bool,
    /// It could not open the pool when it last tried, though it sees enough.
    pub has_failed: bool,
}

/// Who sees what of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSight {
    /// The pool.
    pub pool: PoolId,
    /// The disks that decide its metadata, as its owner has said.
    pub disks: PoolDisks,
    /// What each node has said, also of those that are away.
    pub nodes: Vec<NodeSight>,
}
