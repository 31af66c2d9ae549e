//! What kind of target a path names, and how it is opened.

use std::path::Path;
use std::slice;

use spd_engine::{Backend, Confirm, EngineError, Joined, LocalBackend, Login, Preparation};
use spd_iscsi::{IscsiBackend, is_url, without_secrets};
use spd_profile::windows_path::Drives;
use spd_profile::{Profile, ProfileError, Run, Target, TimeSpan};
use spd_smb::SmbBackend;

use super::local_volume::{self, VolumeBackend};

/// Where a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A file or device of this machine.
    Local(String),
    /// A file of an SMB server.
    Smb(String),
    /// A LUN of an iSCSI target.
    Iscsi(String),
    /// A file of a volume of this machine.
    Volume(String),
}

/// Whether a path names a file of an SMB server.
pub(crate) fn is_remote(path: &str) -> bool {
    path.starts_with(r"\\") || path.starts_with("smb://")
}

/// Where the target with this path is.
pub(crate) fn place(path: &str, drives: &Drives) -> Result<Place, ProfileError> {
    let mut resolved = drives.resolve(path)?;
    if resolved != path {
        resolved = in_any_case(resolved);
    }
    Ok(match resolved {
        path if is_remote(&path) => Place::Smb(path),
        path if is_url(&path) => Place::Iscsi(path),
        path if local_volume::is_url(&path) => Place::Volume(path),
        path => Place::Local(path),
    })
}

/// The file that a Windows path means, whose names make no difference between `TestFile.DAT` and `testfile.dat`: the one
/// with exactly this name, else the first one with this name in other letters, else (it is to be made) this one.
fn in_any_case(path: String) -> String {
    let whole = Path::new(&path);
    let (Some(folder), Some(name), false) = (whole.parent(), whole.file_name(), whole.exists()) else {
        return path;
    };
    let mut alike: Vec<_> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().eq_ignore_ascii_case(name))
        .filter_map(|entry| entry.path().into_os_string().into_string().ok())
        .collect();
    alike.sort_unstable();
    alike.into_iter().next().unwrap_or(path)
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
    // A copy's second target may have a user of its own; whoever is asked for is looked up only where a server is.
    let login_at = |index: usize| login(run, span.copy && index == 1);
    let alike = |targets: &[Target], places: &[Place], first: usize| {
        let logins = || (first..first + targets.len()).map(login_at).collect();
        open_alike(targets, places, how, &logins, run.data.as_deref(), confirm)
    };
    if let Some(opened) = alike(&span.targets, places, 0)? {
        return Ok(opened);
    }
    // A copy may go from one kind to another, but not to or from volumes whose node does not run meanwhile.
    if span.copy && !places.iter().any(|place| matches!(place, Place::Volume(_))) {
        let each = span.targets.iter().zip(places).enumerate();
        let each =
            each.map(|(at, (target, place))| alike(slice::from_ref(target), slice::from_ref(place), at));
        let mut opened = each.collect::<Result<Vec<_>, _>>()?.into_iter().flatten();
        if let (Some(from), Some(to)) = (opened.next(), opened.next()) {
            return Ok(Box::new(Joined::new(from, to)));
        }
    }
    Err(EngineError(if span.copy {
        "--copy to or from a volume of a node that does not run takes two holdfast:// targets: start the node and copy over its share or LUN, or copy within its volumes".into()
    } else {
        "one time span measures files of this machine, files of SMB servers, LUNs of iSCSI targets or files of volumes, one kind of them: run them one after the other".into()
    }))
}

/// Prepares and opens targets of one kind; `None` when they are not.
fn open_alike(
    targets: &[Target],
    places: &[Place],
    how: Preparation,
    logins: &dyn Fn() -> Result<Vec<Option<Login>>, EngineError>,
    data: Option<&str>,
    confirm: &dyn Confirm,
) -> Result<Option<Box<dyn Backend>>, EngineError> {
    let paths = |of: fn(&Place) -> Option<&String>| -> Option<Vec<String>> {
        places.iter().map(|place| of(place).cloned()).collect()
    };
    if let Some(paths) = paths(|place| if let Place::Local(path) = place { Some(path) } else { None }) {
        spd_engine::prepare(targets, &paths, how, confirm)?;
        return Ok(Some(Box::new(LocalBackend::open(targets, &paths, how.verify)?)));
    }
    if let Some(paths) = paths(|place| if let Place::Smb(path) = place { Some(path) } else { None }) {
        return Ok(Some(Box::new(SmbBackend::open(targets, &paths, &logins()?, how, confirm)?)));
    }
    if let Some(paths) = paths(|place| if let Place::Iscsi(path) = place { Some(path) } else { None }) {
        return Ok(Some(Box::new(IscsiBackend::open(targets, &paths, &logins()?, how, confirm)?)));
    }
    if let Some(paths) = paths(|place| if let Place::Volume(path) = place { Some(path) } else { None }) {
        let data = data.map(str::to_owned).or_else(|| std::env::var("HOLDFAST_SPD_DATA").ok());
        return Ok(Some(Box::new(VolumeBackend::open(targets, &paths, data.as_deref(), how, confirm)?)));
    }
    Ok(None)
}

/// Who logs in to servers: the options, or the environment. Passwords are never options. What the destination of a copy has
/// none of its own of is as at its source.
fn login(run: &Run, is_destination: bool) -> Result<Option<Login>, EngineError> {
    let variable = |name: &str| std::env::var(name).ok();
    let (mut user, mut file) = (run.user.clone(), run.password_file.as_ref().map(|path| ("", path)));
    user = user.or_else(|| variable("HOLDFAST_SPD_USER"));
    let mut password = variable("HOLDFAST_SPD_PASSWORD");
    if is_destination {
        user = run.to_user.clone().or_else(|| variable("HOLDFAST_SPD_TO_USER")).or(user);
        if let Some(path) = &run.to_password_file {
            file = Some(("to-", path));
        } else if let Some(own) = variable("HOLDFAST_SPD_TO_PASSWORD") {
            (file, password) = (None, Some(own));
        }
    }
    if let Some((end, path)) = file {
        let text = std::fs::read_to_string(path)
            .map_err(|error| EngineError(format!("cannot read '{path}' (--{end}password-file): {error}")))?;
        password = Some(text.trim_end_matches(['\r', '\n']).to_owned());
    }
    // A URL may name the user.
    Ok(password.map(|password| Login { user: user.unwrap_or_default(), password }))
}
