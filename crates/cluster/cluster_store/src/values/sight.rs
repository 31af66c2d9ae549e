//! Which nodes can open which pools: the disks that decide a pool's metadata, as its owner knows them, and the disks that each node sees.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Incarnation, Value, ValueError, list, text};
use crate::keys::PoolId;

/// The most disks that a node says it sees: an identity takes 39 bytes of a value of 64 KiB.
const MAX_DISKS: usize = 1200;

/// A disk with a vote on its pool's metadata.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PoolVoter {
    /// Its identity.
    pub disk: Uuid,
    /// Its stable name at the owner; empty when that was not known.
    #[serde(default)]
    pub name: String,
}

/// The disks without which a pool cannot be opened, as its owner knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolDisks {
    /// Those with a vote on the metadata.
    pub voters: Vec<PoolVoter>,
    /// How many of them are needed, where the witness votes with them.
    pub needed: u32,
}

impl PoolDisks {
    /// Whether a node that sees these disks can open the pool.
    pub fn can_be_opened(&self, is_seen: impl Fn(&Uuid) -> bool) -> bool {
        self.seen(is_seen) >= self.needed as usize
    }

    /// How many of the voters are seen.
    pub fn seen(&self, is_seen: impl Fn(&Uuid) -> bool) -> usize {
        self.voters.iter().filter(|voter| is_seen(&voter.disk)).count()
    }
}

impl Value for PoolDisks {
    fn check(&self) -> Result<(), ValueError> {
        list(self.voters.len(), "list of disks")?;
        self.voters.iter().try_for_each(|voter| text(&voter.name, "name of a disk"))
    }
}

/// What a node sees of the disks of pools. It stays when the node is away: then it says what went away with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSees {
    /// The life in which it sees them: in another one it has not said yet.
    pub incarnation: Incarnation,
    /// Disks with votes that it sees.
    pub disks: Vec<Uuid>,
    /// Pools that it could not open when it last tried, though it sees their disks.
    #[serde(default)]
    pub failed: Vec<PoolId>,
}

impl NodeSees {
    /// What of these fits into one value.
    #[must_use]
    pub fn that_fits(
        incarnation: Incarnation,
        disks: impl IntoIterator<Item = Uuid>,
        failed: impl IntoIterator<Item = PoolId>,
    ) -> Self {
        let disks = disks.into_iter().take(MAX_DISKS).collect();
        Self { incarnation, disks, failed: failed.into_iter().take(super::MAX_LIST).collect() }
    }
}

impl Value for NodeSees {
    fn check(&self) -> Result<(), ValueError> {
        list(self.failed.len(), "list of pools")?;
        if self.disks.len() > MAX_DISKS { Err(ValueError::Invalid("list of disks")) } else { Ok(()) }
    }
}
