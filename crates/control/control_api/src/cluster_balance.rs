//! Which pools of a cluster should move to which nodes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What should move, and what comes of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterBalance {
    /// What should move, in this order; `pool_move` moves each.
    pub moves: Vec<BalanceMove>,
    /// Pools that stay whatever their node has to do, and why.
    pub stay: Vec<BalanceStay>,
    /// Nodes that take pools, by name.
    pub nodes: Vec<BalanceNode>,
}

/// A pool that should move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BalanceMove {
    /// Its name.
    pub pool: String,
    /// The node that has it.
    pub from: String,
    /// The node that should have it.
    pub to: String,
    /// Why.
    pub reason: BalanceReason,
    /// What it does, in normalised I/Os a second; absent while it is not known, which counts as none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<u64>,
    /// What hosts lose by it that they have written to LUNs with `write_cache_in`, a sentence for each LUN: it is not moved by itself then, and
    /// `pool_move` needs `confirm`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub discards: Vec<String>,
}

/// Why a pool should move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BalanceReason {
    /// It is not at home.
    Home,
    /// Its node has more to do than the other one.
    Load,
}

/// A pool that stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BalanceStay {
    /// Its name.
    pub pool: String,
    /// The node that has it; absent while none has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Why.
    pub reason: String,
}

/// A node that takes pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BalanceNode {
    /// Its name.
    pub node: String,
    /// Pools that it has.
    pub pools: u64,
    /// What they do, in normalised I/Os (of 8 KiB) a second.
    pub load: u64,
    /// Pools that it has after the moves.
    pub pools_then: u64,
    /// What those do.
    pub load_then: u64,
}
