//! How clients reach what the nodes serve: the portals of each node, and which volumes are in which pool.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Value, ValueError, text};

/// The most portals that a node tells of.
pub const MAX_PORTALS: usize = 64;
/// The most volumes of a pool: an identity takes 39 bytes of a value of 64 KiB.
const MAX_VOLUMES: usize = 1500;

/// Where initiators reach a node. It stays when the node is away: paths come back as what they were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePaths {
    /// Its portals.
    pub portals: Vec<NodePortal>,
    /// Where other nodes send commands of their initiators for LUNs of its pools, `ADDRESS:PORT`; empty when it takes none.
    #[serde(default)]
    pub forward: String,
}

/// A portal of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodePortal {
    /// `ADDRESS:PORT`, never a wildcard.
    pub address: String,
    /// Its portal group in the node's configuration.
    pub group: u16,
}

impl Value for NodePaths {
    fn check(&self) -> Result<(), ValueError> {
        if self.portals.len() > MAX_PORTALS {
            return Err(ValueError::Invalid("list of portals"));
        }
        self.portals.iter().try_for_each(|portal| text(&portal.address, "address of a portal"))?;
        if self.portals.iter().any(|portal| portal.group == 0) {
            return Err(ValueError::Invalid("portal group"));
        }
        text(&self.forward, "address for other nodes")
    }
}

/// The volumes of a pool, as its owner knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolVolumes {
    /// The identities of their spaces.
    pub volumes: Vec<Uuid>,
}

impl Value for PoolVolumes {
    fn check(&self) -> Result<(), ValueError> {
        if self.volumes.len() > MAX_VOLUMES { Err(ValueError::Invalid("list of volumes")) } else { Ok(()) }
    }
}
