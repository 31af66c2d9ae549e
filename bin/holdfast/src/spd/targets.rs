//! What kind of target a path names, and how it is opened.

use spd_engine::{Backend, Confirm, EngineError, LocalBackend, Preparation};
use spd_profile::windows_path::Drives;
use spd_profile::{ProfileError, TimeSpan};

/// Where a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A file or device of this machine.
    Local(String),
    /// A file of an SMB server.
    Smb(String),
}

/// Whether a path names a file of a server.
pub(crate) fn is_remote(path: &str) -> bool {
    path.starts_with(r"\\") || path.starts_with("smb://")
}

/// Where the target with this path is.
pub(crate) fn place(path: &str, drives: &Drives) -> Result<Place, ProfileError> {
    let path = drives.resolve(path)?;
    Ok(if is_remote(&path) { Place::Smb(path) } else { Place::Local(path) })
}

/// Prepares and opens the targets of a time span.
pub(crate) fn open(
    span: &TimeSpan,
    places: &[Place],
    how: Preparation,
    confirm: &dyn Confirm,
) -> Result<Box<dyn Backend>, EngineError> {
    let mut local = Vec::new();
    for place in places {
        match place {
            Place::Local(path) => local.push(path.clone()),
            Place::Smb(path) => {
                return Err(EngineError(format!(
                    "'{path}': files of an SMB server are not offered yet; mount the share and name the file there"
                )));
            }
        }
    }
    spd_engine::prepare(&span.targets, &local, how, confirm)?;
    Ok(Box::new(LocalBackend::open(&span.targets, &local, how.verify)?))
}
