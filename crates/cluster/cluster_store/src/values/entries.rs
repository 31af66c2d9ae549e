//! Who belongs to the cluster: nodes, their names, tokens to join with, and where etcd's members are.

use serde::{Deserialize, Serialize};

use super::{Value, ValueError, list, text};
use crate::keys::NodeId;

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
