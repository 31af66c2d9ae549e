//! A file that gets its name when it is complete: what was there under the name stays until then, and no half of the new one is
//! ever found there.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use io_engine::{image_locks, plain_file};

/// Characters of the name that the file beside it has, too: names have 255 bytes at most.
const NAME_PART: usize = 50;

/// A new file beside the name that it shall have; it goes if it is dropped before it is kept.
pub(crate) struct PartFile {
    to: PathBuf,
    part: PathBuf,
    replaces: bool,
    /// What has the name: its mode, and its lock, which nobody else gets meanwhile.
    there: Option<(Permissions, Option<File>)>,
    kept: bool,
}

impl PartFile {
    /// Makes one, empty, that becomes `to`: in place of a plain file that is there, if `replaces`; through a link, which stays.
    ///
    /// # Errors
    /// When something is there that shall stay, is no plain file, or is used by another program; when no file can be made.
    pub(crate) fn beside(to: &Path, replaces: bool) -> io::Result<Self> {
        let there = match fs::symlink_metadata(to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
            Ok(_) if !replaces => {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists already"));
            }
            Ok(_) => Some(fs::metadata(to).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => io::Error::other("it is a link that leads nowhere"),
                _ => error,
            })?),
        };
        if there.as_ref().is_some_and(|there| !there.is_file()) {
            let told = "it is a folder, a device or a pipe; only a plain file can be replaced";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, told));
        }
        let to = if there.is_some() { fs::canonicalize(to)? } else { to.to_owned() };
        let there = match there {
            Some(there) => Some((there.permissions(), lock(&to)?)),
            None => None,
        };
        let name = to.file_name().ok_or_else(|| io::Error::other("it has no name"))?;
        let name: String = name.to_string_lossy().chars().take(NAME_PART).collect();
        let part = format!(".{name}.part{}", std::process::id());
        // One of an earlier process of this number may have stayed.
        let part = (0..)
            .map(|number| to.with_file_name(format!("{part}.{number}")))
            .find(|path| path.symlink_metadata().is_err())
            .ok_or_else(|| io::Error::other("it has no name"))?;
        // Until it is kept nobody may read it who may not read what is there.
        let mode = if there.is_some() { 0o600 } else { 0o666 };
        OpenOptions::new().write(true).create_new(true).mode(mode).open(&part)?;
        Ok(Self { to, part, replaces, there, kept: false })
    }

    /// Where it is until it is kept.
    pub(crate) fn path(&self) -> &Path {
        &self.part
    }

    /// Gives it its name, durably; its content has to be durable already.
    ///
    /// # Errors
    /// When it cannot have it: then what was there is still there, and the file goes.
    pub(crate) fn keep(mut self) -> io::Result<()> {
        if let Some((permissions, _)) = &self.there {
            fs::set_permissions(&self.part, permissions.clone())?;
        }
        if self.replaces {
            fs::rename(&self.part, &self.to)?;
        } else {
            // A second name is given only where there is none; the first then goes.
            match fs::hard_link(&self.part, &self.to) {
                Ok(()) => fs::remove_file(&self.part)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
                // A file system without second names: looking and renaming are not one step there.
                Err(_) if self.to.symlink_metadata().is_err() => fs::rename(&self.part, &self.to)?,
                Err(error) => return Err(error),
            }
        }
        self.kept = true;
        plain_file::sync_parent(&self.to)
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// Takes the lock of a file that is to be replaced; none of one that may not be opened, nor where the file system has none.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let open = |write: bool| plain_file::open(path, OpenOptions::new().read(!write).write(write));
    let file = match open(false) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => match open(true) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
            opened => opened?,
        },
        opened => opened?,
    };
    match image_locks::take(&file, true) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(Some(file)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

    use super::*;

    fn make(to: &Path, replaces: bool, content: &str) -> io::Result<PartFile> {
        let part = PartFile::beside(to, replaces)?;
        fs::write(part.path(), content)?;
        Ok(part)
    }

    #[test]
    fn a_name_is_given_when_the_file_is_complete() {
        let dir = tempfile::tempdir().expect("temp dir");
        let to = dir.path().join("x".repeat(255));
        drop(make(&to, false, "one").expect("made"));
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 0);
        let (first, second) = (make(&to, false, "two"), make(&to, false, "three"));
        first.expect("made").keep().expect("kept");
        let late = second.expect("made").keep().expect_err("somebody was first");
        assert_eq!(late.kind(), io::ErrorKind::AlreadyExists);
        assert!(make(&to, false, "four").is_err());
        assert_eq!(fs::read_to_string(&to).expect("there"), "two");
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1);
    }

    #[test]
    fn who_is_replaced_gives_its_mode_and_keeps_its_links() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (to, link) = (dir.path().join("file"), dir.path().join("link"));
        fs::write(&to, "old").expect("made");
        fs::set_permissions(&to, Permissions::from_mode(0o640)).expect("set");
        symlink("file", &link).expect("linked");
        let part = make(&link, true, "new").expect("made");
        assert_eq!(fs::metadata(part.path()).expect("there").permissions().mode() & 0o777, 0o600);
        part.keep().expect("kept");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        assert_eq!(fs::read_to_string(&to).expect("there"), "new");
        assert_eq!(fs::metadata(&to).expect("there").permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn what_is_no_plain_file_or_is_used_stays() {
        let dir = tempfile::tempdir().expect("temp dir");
        let (pipe, used, nowhere) = (dir.path().join("pipe"), dir.path().join("used"), dir.path().join("n"));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs");
        assert!(made.success());
        symlink("nothing", &nowhere).expect("linked");
        let file = File::create(&used).expect("made");
        file.lock_shared().expect("locked");
        for (path, told) in [
            (pipe.as_path(), "plain file"),
            (dir.path(), "plain file"),
            (&used, "another program"),
            (&nowhere, "leads nowhere"),
        ] {
            let refused = PartFile::beside(path, true).err().expect("refused");
            assert!(refused.to_string().contains(told), "{}: {refused}", path.display());
        }
        assert!(fs::metadata(&pipe).expect("there").file_type().is_fifo());
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 3);
    }
}
