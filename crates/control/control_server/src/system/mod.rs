//! The parts of this machine behind the node's seams.

mod discovery;
mod disks;
mod iscsi;
mod shards;
mod witness;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use control_api::{CheckReport, Code, Problem};
use shard_runtime::Clock;

use crate::backend::{Backends, PoolBackend};
pub use disks::{SystemDisk, SystemDisks};
pub use iscsi::{Iscsi, UnitBackend};
pub use shards::SystemShards;
pub use witness::WitnessFiles;

/// The parts of this machine, around the two that are given: pools (with their volumes) and logical units.
/// `data` is the node's data directory.
///
/// # Errors
/// When the system doesn't give what a part needs.
pub fn assemble(
    data: &Path,
    shards: Option<usize>,
    pools: impl FnOnce(Arc<SystemShards>, WitnessFiles) -> Result<Arc<dyn PoolBackend>, Problem>,
    units: impl FnOnce(Arc<SystemShards>) -> Result<Arc<dyn UnitBackend>, Problem>,
) -> Result<Backends, Problem> {
    let witness = WitnessFiles::open(data.join("witness"))
        .map_err(|error| Problem::new(Code::Io, format!("witness files in {}: {error}", data.display())))?;
    let shards = SystemShards::start(shards)?;
    Ok(Backends {
        disks: Arc::new(SystemDisks::new(shards.clone())),
        pools: pools(shards.clone(), witness)?,
        iscsi: Arc::new(Iscsi::new(shards.clone(), units(shards.clone())?)?),
        shards,
    })
}

fn absent<T>() -> Result<T, Problem> {
    Err(Problem::new(Code::Unsupported, "Pools, volumes and logical units are not wired in this build.")
        .todo("See control_server::system: `assemble` takes their parts."))
}

pub(crate) fn backends(
    data: &Path,
    shards: Option<usize>,
    _clock: Arc<dyn Clock>,
) -> Result<Backends, Problem> {
    assemble(data, shards, |_, _| absent(), |_| absent())
}

pub(crate) fn offline_pool(_disks: &[PathBuf], _deep: bool) -> Result<CheckReport, Problem> {
    absent()
}

pub(crate) fn offline_volume(_volume: &str, _disks: &[PathBuf], _deep: bool) -> Result<CheckReport, Problem> {
    absent()
}
