//! Who belongs to the cluster: nodes, their names, tokens to join with, and where etcd's members are.

use serde::{Deserialize, Serialize};

use uuid::Uuid;

use super::{Value, ValueError, list, text};
use crate::keys::{NodeId, PoolId};

/// The most members of etcd that nodes run: more make it slower, and two of three may not fail either way.
pub const MAX_SEATS: usize = 3;

/// A node that was let in. Its number is its own for ever: the entry stays when the node is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    /// What people call it.
    pub name: String,
    /// Where it answers other members, `HOST:PORT`.
    pub api: String,
    /// Its release when it was let in.
    pub release: String,
    /// When, in seconds since 1970.
    pub joined: u64,
    /// It belongs to the cluster no more: it left, or was removed.
    #[serde(default)]
    pub removed: bool,
    /// The hash of the token that it came with; empty for the first node.
    #[serde(default)]
    pub token: String,
    /// SHA-256 of its public key in hexadecimal: who asks again with the same token and key gets the same answer.
    #[serde(default)]
    pub key: String,
}

impl Value for NodeEntry {
    fn check(&self) -> Result<(), ValueError> {
        text(&self.name, "name")?;
        text(&self.api, "address")?;
        text(&self.release, "release")?;
        text(&self.token, "token")?;
        text(&self.key, "key")
    }
}

/// Whose a name is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The node.
    pub node: NodeId,
}

impl Value for Named {
    fn check(&self) -> Result<(), ValueError> {
        Ok(())
    }
}

/// Whose the name of a volume is, in the whole cluster: nodes serve volumes by their names, and one node may come to have the pools of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeName {
    /// The pool of the volume.
    pub pool: PoolId,
    /// The volume's own identity; none while it is being made.
    #[serde(default)]
    pub space: Option<Uuid>,
}

impl Value for VolumeName {
    fn check(&self) -> Result<(), ValueError> {
        Ok(())
    }
}

/// The longest text of an order: who asks, and what is answered.
const MAX_ORDER_TEXT: usize = 16 << 10;

/// What a node is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeVerb {
    /// To give a pool that it owns to another node.
    Move {
        /// The pool.
        pool: PoolId,
        /// Who is to have it.
        to: NodeId,
        /// What hosts have written to LUNs that give that up with the move is given up. A node of an earlier release gives it up unasked.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        discards: bool,
    },
    /// To take no pools, or to give away those that it has, or neither.
    Mode {
        /// It takes no pools.
        paused: bool,
        /// It gives them away.
        draining: bool,
        /// As of a pool that moves.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        discards: bool,
    },
}

/// What a node is asked to do by somebody who has asked another one. It is gone when whoever asked has its answer, or waits no longer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOrder {
    /// The node that passes it on.
    pub through: NodeId,
    /// Who asks, as that node knows it; for the record of changes.
    pub by: String,
    /// What.
    pub verb: NodeVerb,
    /// The node has begun with it.
    #[serde(default)]
    pub begun: bool,
    /// What came of it, as the two nodes tell it; none yet.
    #[serde(default)]
    pub answer: Option<String>,
}

impl Value for NodeOrder {
    fn check(&self) -> Result<(), ValueError> {
        let longest = self.by.len().max(self.answer.as_ref().map_or(0, String::len));
        if longest > MAX_ORDER_TEXT { Err(ValueError::Invalid("text of an order")) } else { Ok(()) }
    }
}

/// A token that was made and not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenEntry {
    /// Until when it counts, in seconds since 1970.
    pub expires: u64,
    /// The node that has made it.
    pub made_by: NodeId,
}

impl Value for TokenEntry {
    fn check(&self) -> Result<(), ValueError> {
        Ok(())
    }
}

/// The nodes that run a member of the cluster's etcd, or are about to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seats {
    /// Each with where its member is reached by the others.
    pub seats: Vec<(NodeId, String)>,
}

impl Value for Seats {
    fn check(&self) -> Result<(), ValueError> {
        list(self.seats.len(), "list of seats")?;
        self.seats.iter().try_for_each(|(_, url)| text(url, "URL of a seat"))
    }
}

/// The store has gone back in time: it was restored from a backup. What it had until then may be older than what is on the pools' disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WentBack {
    /// The store's revision when that was noticed: votes up to this one count for nothing.
    pub up_to: u64,
}

impl Value for WentBack {
    fn check(&self) -> Result<(), ValueError> {
        Ok(())
    }
}
