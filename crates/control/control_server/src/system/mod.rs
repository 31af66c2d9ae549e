//! The parts of this machine behind the node's seams.

mod iscsi;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use control_api::{CheckReport, Code, Problem};
use shard_runtime::Clock;

use crate::backend::Backends;
pub use iscsi::{Iscsi, UnitBackend};

fn absent<T>() -> Result<T, Problem> {
    Err(Problem::new(Code::Unsupported, "The data path is not wired in this build."))
}

pub(crate) fn backends(
    _data: &Path,
    _shards: Option<usize>,
    _clock: Arc<dyn Clock>,
) -> Result<Backends, Problem> {
    absent()
}

pub(crate) fn offline_pool(_disks: &[PathBuf], _deep: bool) -> Result<CheckReport, Problem> {
    absent()
}

pub(crate) fn offline_volume(_volume: &str, _disks: &[PathBuf], _deep: bool) -> Result<CheckReport, Problem> {
    absent()
}
