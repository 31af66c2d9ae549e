//! What kind of target a path names, and how it is opened.

use spd_engine::{Backend, Confirm, EngineError, LocalBackend, Preparation};
use spd_profile::windows_path::Drives;
use spd_profile::{ProfileError, Run, TimeSpan};
use spd_smb::{Login, SmbBackend};

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
    run: &Run,
    confirm: &dyn Confirm,
) -> Result<Box<dyn Backend>, EngineError> {
    let (mut local, mut remote) = (Vec::new(), Vec::new());
    for place in places {
        match place {
            Place::Local(path) => local.push(path.clone()),
            Place::Smb(path) => remote.push(path.clone()),
        }
    }
    if remote.is_empty() {
        spd_engine::prepare(&span.targets, &local, how, confirm)?;
        return Ok(Box::new(LocalBackend::open(&span.targets, &local, how.verify)?));
    }
    if !local.is_empty() {
        return Err(EngineError(
            "one time span measures files of this machine or of servers, not both: run them one after the other".into(),
        ));
    }
    let login = login(run)?;
    Ok(Box::new(SmbBackend::open(&span.targets, &remote, login.as_ref(), how, confirm)?))
}

/// Who logs in to servers: the options, or the environment. Passwords are never options.
fn login(run: &Run) -> Result<Option<Login>, EngineError> {
    let user = run.user.clone().or_else(|| std::env::var("HOLDFAST_SPD_USER").ok());
    let password = match &run.password_file {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|error| EngineError(format!("cannot read '{path}' (--password-file): {error}")))?;
            Some(text.trim_end_matches(['\r', '\n']).to_owned())
        }
        None => std::env::var("HOLDFAST_SPD_PASSWORD").ok(),
    };
    // A URL may name the user.
    Ok(password.map(|password| Login { user: user.unwrap_or_default(), password }))
}
