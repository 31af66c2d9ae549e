//! Files of their owner only, replaced as a whole and read within bounds. All of it blocks on the disk.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// The longest file here, in bytes: a record and certificates take a few thousand.
const MAX_BYTES: u64 = 64 << 10;

/// Makes a folder for its owner only, durably.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    match folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// The text of a file; none when it is not there.
pub(crate) fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("it is longer than {MAX_BYTES} bytes")));
    }
    Ok(Some(text))
}

/// Replaces a file, durably: a reader, also after a crash, sees what was there or this.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
    // One that an earlier crash left there keeps its mode.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    sync_folder_of(path)
}

/// Takes a file away, durably, if it is there.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    sync_folder_of(path)
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.parent().map(File::open) {
        Some(Err(error)) if error.kind() == ErrorKind::NotFound => Ok(()),
        Some(folder) => folder?.sync_all(),
        None => Ok(()),
    }
}
