//! Which pools of a cluster should move to which nodes.
//!
//! ```text
//!   nodes, pools with load and home ─► [`plan`] ─┬─ 1. pools that are not at home, and whose home can take them, go home
//!                                                └─ 2. from the node with the most to do, whatever relieves it most goes to another one
//! ```
//! The plan is pure: the same state gives the same plan on each node, whatever the order of what it is given.
//!
//! Rules:
//! * A pool weighs its load, in normalised I/Os (of 8 KiB) a second, and [`BASE`] for being there: without load, nodes get equally many.
//! * A move interrupts clients for a moment, which a difference that the next minute takes back is not worth: both nodes have to differ by
//!   a tenth of the heavier one, and the heavier of them has to get lighter by a tenth of the pool. Each plan thus makes the sorted list of
//!   weights smaller, and plans come to an end. A pool is moved at most once in a plan.
//! * What has a home is moved there and nowhere else. While none of its homes can take it, it stays where it is.
//! * What may not move (it is not as redundant as promised, for one) stays, and counts where it is.
//! * A pool goes only to a node that sees its disks; home as well.
//! * Nodes that take no pools get none, and what they have stays there unless it has a home elsewhere; a node that is drained gives its pools away by itself.

use std::collections::BTreeMap;

/// What a pool weighs for being there, in normalised I/Os a second.
pub const BASE: u64 = 100;

/// The part of a weight that counts for something: a tenth.
const PART: u64 = 10;

/// A pool as the plan sees it. `N` names a node, `P` a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool<P, N> {
    /// Which one.
    pub pool: P,
    /// The node that has it.
    pub owner: N,
    /// Normalised I/Os a second, averaged over minutes.
    pub load: u64,
    /// Where it should be: the first of these that takes pools. Empty: anywhere.
    pub home: Vec<N>,
    /// The nodes that can have it, as far as its disks go; none where that is not known, and all may.
    pub can: Option<Vec<N>>,
    /// Whether it may be moved now.
    pub may_move: bool,
}

impl<P, N: PartialEq> Pool<P, N> {
    fn can_be_at(&self, node: &N) -> bool {
        self.can.as_ref().is_none_or(|can| can.contains(node))
    }

    fn weight(&self) -> u64 {
        self.load.saturating_add(BASE)
    }
}

/// Why a pool moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It is not at home.
    Home,
    /// Its node has more to do than the other one.
    Load,
}

/// A pool that should move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move<P, N> {
    /// Which one.
    pub pool: P,
    /// The node that has it.
    pub from: N,
    /// The node that should have it.
    pub to: N,
    /// Why.
    pub why: Why,
}

/// What each node of those that take pools, or have some, weighs.
fn weights<P, N: Ord + Clone>(nodes: &[N], pools: &[Pool<P, N>]) -> BTreeMap<N, u64> {
    let mut weights: BTreeMap<N, u64> = nodes.iter().map(|node| (node.clone(), 0)).collect();
    for pool in pools {
        let weight = weights.entry(pool.owner.clone()).or_default();
        *weight = weight.saturating_add(pool.weight());
    }
    weights
}

/// The moves that should be made, in this order. `nodes` are those that take pools now.
#[must_use]
pub fn plan<P: Ord + Clone, N: Ord + Clone>(nodes: &[N], pools: &[Pool<P, N>]) -> Vec<Move<P, N>> {
    let mut pools: Vec<Pool<P, N>> = pools.to_vec();
    pools.sort_by(|a, b| a.pool.cmp(&b.pool));
    let mut moves = Vec::new();
    for pool in &mut pools {
        let home = pool.home.iter().find(|home| nodes.contains(home) && pool.can_be_at(home)).cloned();
        if let Some(home) = home.filter(|home| pool.may_move && *home != pool.owner) {
            moves.push(go(pool, home, Why::Home));
        }
        pool.may_move &= pool.home.is_empty();
    }
    while let Some((index, to)) = relief(nodes, &pools) {
        let Some(pool) = pools.get_mut(index) else { break };
        moves.push(go(pool, to, Why::Load));
        pool.may_move = false;
    }
    moves
}

fn go<P: Clone, N: Clone>(pool: &mut Pool<P, N>, to: N, why: Why) -> Move<P, N> {
    let from = std::mem::replace(&mut pool.owner, to.clone());
    Move { pool: pool.pool.clone(), from, to, why }
}

/// The move that relieves the heaviest node most; where none can, the next heaviest.
fn relief<P, N: Ord + Clone>(nodes: &[N], pools: &[Pool<P, N>]) -> Option<(usize, N)> {
    let weights = weights(nodes, pools);
    let mut heaviest: Vec<(&N, u64)> = weights
        .iter()
        .filter(|(node, _)| nodes.contains(node))
        .map(|(node, weight)| (node, *weight))
        .collect();
    heaviest.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    heaviest.iter().find_map(|(from, weight)| {
        let movable = pools.iter().enumerate().filter(|(_, pool)| pool.may_move && pool.owner == **from);
        // For each pool it is enough to look at the lightest of those that can have it: whatever goes elsewhere relieves as much, and burdens a
        // heavier one.
        let with_target = movable.filter_map(|(index, pool)| {
            let (to, least) = heaviest.iter().rev().copied().find(|(node, _)| pool.can_be_at(node))?;
            Some((index, pool, to, least))
        });
        let left = |pool: &Pool<P, N>, least: u64| {
            weight.saturating_sub(pool.weight()).max(least.saturating_add(pool.weight()))
        };
        let (index, best, to, least) = with_target.min_by_key(|(_, pool, _, least)| left(pool, *least))?;
        let gained = weight.checked_sub(left(best, least))?;
        let differ = weight.saturating_sub(least) >= weight / PART;
        (differ && gained > 0 && gained >= best.weight() / PART).then(|| (index, to.clone()))
    })
}

#[cfg(test)]
mod tests;
