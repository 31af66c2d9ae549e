//! The parts of this machine behind the node's seams.

mod absent;
mod disks;
mod iscsi;
mod offline;
mod pools;
mod shards;
mod units;
mod volumes;
mod witness;

use std::path::Path;
use std::sync::Arc;

use control_api::{Code, Problem};
use shard_runtime::Clock;
use tokio::runtime::Handle;

use crate::backend::Backends;
pub use disks::{SystemDisk, SystemDisks};
pub use iscsi::{Iscsi, UnitBackend};
pub(crate) use offline::{offline_pool, offline_volume};
use pools::SystemPools;
pub use shards::SystemShards;
use units::SystemUnits;
use witness::Witness;
pub use witness::WitnessFiles;

/// The parts of this machine, on `count` shards. `data` is the node's data directory. Call on the control
/// plane's runtime.
///
/// # Errors
/// When the system doesn't give what a part needs.
pub(crate) fn backends(
    data: &Path,
    count: Option<usize>,
    clock: Arc<dyn Clock>,
) -> Result<Backends, Problem> {
    let files = WitnessFiles::open(data.join("witness"))
        .map_err(|error| Problem::new(Code::Io, format!("witness files in {}: {error}", data.display())))?;
    let witness = Witness::new(files, Handle::current());
    let shards = SystemShards::start(count)?;
    let units = Arc::new(SystemUnits::new(shards.clone()));
    Ok(Backends {
        disks: Arc::new(SystemDisks::new(shards.clone(), clock.clone())),
        pools: Arc::new(SystemPools::new(shards.clone(), clock, witness)),
        iscsi: Arc::new(Iscsi::new(shards.clone(), units)?),
        shards,
    })
}
