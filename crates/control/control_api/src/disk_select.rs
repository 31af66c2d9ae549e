//! Asking which disks selectors choose.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Selector;

/// Asks which disks selectors choose; nothing is done with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskSelect {
    /// What to choose: each selector of what those before it left.
    #[serde(default)]
    pub select: Vec<Selector>,
    /// Ids or paths of disks that are chosen already: they come first in the answer.
    #[serde(default)]
    pub disks: Vec<String>,
    /// Ids or paths of disks that are not to be chosen.
    #[serde(default)]
    pub except: Vec<String>,
    /// For a new pool of this name, of which `except` are the spares: refused is then what its creation would refuse.
    #[serde(default)]
    pub new_pool: Option<String>,
    /// The slab size of the new pool, in bytes.
    #[serde(default)]
    pub slab_bytes: Option<u64>,
    /// For this pool, by name or GUID: refused is then what adding disks to it would refuse.
    #[serde(default)]
    pub pool: Option<String>,
    /// Disks that are named for a pool may carry something else.
    #[serde(default)]
    pub overwrite_foreign: bool,
}
