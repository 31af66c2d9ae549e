//! Checks without a node: the disks of a pool are opened read-only here.

use std::path::PathBuf;

use control_api::CheckReport;

use crate::error::CliResult;

/// Verifies the structures of the pool that is on `disks`.
pub(crate) fn check_pool(disks: &[PathBuf], deep: bool) -> CliResult<CheckReport> {
    Ok(runtime_free(|| control_server::offline::check_pool(disks, deep))?)
}

/// Verifies the structures of `volume`, of the pool that is on `disks`.
pub(crate) fn check_volume(volume: &str, disks: &[PathBuf], deep: bool) -> CliResult<CheckReport> {
    Ok(runtime_free(|| control_server::offline::check_volume(volume, disks, deep))?)
}

/// Runs blocking work on a thread that no runtime owns: the caller is inside one.
fn runtime_free<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
