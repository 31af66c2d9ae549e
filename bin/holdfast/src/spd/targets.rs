//! What kind of target a path names, and how it is opened.

use spd_engine::{Backend, Confirm, EngineError, LocalBackend, Login, Preparation};
use spd_iscsi::{IscsiBackend, is_url, without_secrets};
use spd_profile::windows_path::Drives;
use spd_profile::{Profile, ProfileError, Run, TimeSpan};
use spd_smb::SmbBackend;

/// Where a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A file or device of this machine.
    Local(String),
    /// A file of an SMB server.
    Smb(String),
    /// A LUN of an iSCSI target.
    Iscsi(String),
}

/// Whether a path names a file of an SMB server.
pub(crate) fn is_remote(path: &str) -> bool {
    path.starts_with(r"\\") || path.starts_with("smb://")
}

/// Where the target with this path is.
pub(crate) fn place(path: &str, drives: &Drives) -> Result<Place, ProfileError> {
    let path = drives.resolve(path)?;
    Ok(match path {
        path if is_remote(&path) => Place::Smb(path),
        path if is_url(&path) => Place::Iscsi(path),
        path => Place::Local(path),
    })
}

/// Takes secrets out of addresses before anything is shown or written; the places keep them.
pub(crate) fn hide_secrets(profile: &mut Profile) {
    let Profile { spans, command_line, .. } = profile;
    for target in spans.iter_mut().flat_map(|span| &mut span.targets) {
        hide(&target.path, command_line);
        target.path = without_secrets(&target.path);
    }
}

/// Takes the secrets of an address out of a text that it stands in.
pub(crate) fn hide(path: &str, text: &mut String) {
    let shown = without_secrets(path);
    if shown != path {
        *text = text.replace(path, &shown);
    }
}

/// Prepares and opens the targets of a time span.
pub(crate) fn open(
    span: &TimeSpan,
    places: &[Place],
    how: Preparation,
    run: &Run,
    confirm: &dyn Confirm,
) -> Result<Box<dyn Backend>, EngineError> {
    let (mut local, mut smb, mut iscsi) = (Vec::new(), Vec::new(), Vec::new());
    for place in places {
        match place {
            Place::Local(path) => local.push(path.clone()),
            Place::Smb(path) => smb.push(path.clone()),
            Place::Iscsi(path) => iscsi.push(path.clone()),
        }
    }
    match (local.is_empty(), smb.is_empty(), iscsi.is_empty()) {
        (_, true, true) => {
            spd_engine::prepare(&span.targets, &local, how, confirm)?;
            Ok(Box::new(LocalBackend::open(&span.targets, &local, how.verify)?))
        }
        (true, false, true) => {
            Ok(Box::new(SmbBackend::open(&span.targets, &smb, login(run)?.as_ref(), how, confirm)?))
        }
        (true, true, false) => {
            Ok(Box::new(IscsiBackend::open(&span.targets, &iscsi, login(run)?.as_ref(), how, confirm)?))
        }
        _ => Err(EngineError(
            "one time span measures files of this machine, files of SMB servers or LUNs of iSCSI targets, one kind of them: run them one after the other".into(),
        )),
    }
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
