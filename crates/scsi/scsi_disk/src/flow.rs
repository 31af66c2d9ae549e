//! Where a unit's commands wait for their turn, and the flows of its nexuses there.

use std::collections::BTreeMap;
use std::sync::Arc;

use qos_gate::{Disk, Flow};

/// Where the unit's commands wait, and the flows of its nexuses.
#[derive(Default)]
pub(crate) struct Flows {
    pub(crate) disk: Option<Arc<Disk>>,
    pub(crate) of: BTreeMap<u64, Arc<Flow>>,
}
