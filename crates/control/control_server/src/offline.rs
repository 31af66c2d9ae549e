//! Checks without a node: the disks of a pool are opened read-only by the caller's process.

use std::path::PathBuf;

use control_api::{CheckReport, Problem};

/// Verifies the structures of the pool that is on `disks`.
///
/// # Errors
/// When the disks can't be opened or hold no pool.
pub fn check_pool(disks: &[PathBuf], deep: bool) -> Result<CheckReport, Problem> {
    crate::system::offline_pool(disks, deep)
}

/// Verifies the structures of `volume`, of the pool that is on `disks`.
///
/// # Errors
/// When the disks can't be opened, or there is no such volume.
pub fn check_volume(volume: &str, disks: &[PathBuf], deep: bool) -> Result<CheckReport, Problem> {
    crate::system::offline_volume(volume, disks, deep)
}
