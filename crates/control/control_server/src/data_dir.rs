//! The data directory: one owner at a time, files replaced as a whole.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use control_api::{Code, Problem};
use io_engine::plain_file::sync_parent;

/// Files of the node are its owner's only: they hold secrets.
const FILE_MODE: u32 = 0o600;

/// So is the directory.
const DIR_MODE: u32 = 0o700;

/// A data directory that this process owns.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    // Held open: the lock goes when it closes.
    _lock: File,
}

impl DataDir {
    /// Makes the directory if it isn't there and takes ownership of it.
    ///
    /// # Errors
    /// [`Code::InUse`], with the process that owns it; [`Code::Io`].
    pub fn open(path: &Path) -> Result<Self, Problem> {
        let failed = |what: &str, error: &io::Error| {
            Problem::new(Code::Io, format!("data directory {}: {what}: {error}", path.display()))
                .todo("Check that the path is right and that this user may write there, or choose another one with --data-dir.")
        };
        make_private_dir(path).map_err(|error| failed("make it", &error))?;
        let path = path.canonicalize().map_err(|error| failed("find it", &error))?;
        let lock_path = path.join("lock");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(&lock_path)
            .map_err(|error| failed("open its lock file", &error))?;
        match lock_soon(&lock) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                let _ = (&lock).take(32).read_to_string(&mut pid);
                let pid = pid.trim();
                let who =
                    if pid.is_empty() { "another process".to_owned() } else { format!("process {pid}") };
                return Err(Problem::new(
                    Code::InUse,
                    format!("The data directory {} is in use by {who}.", path.display()),
                )
                .todo("Stop that node first, or give this one another directory with --data-dir."));
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock it", &error)),
        }
        // For people and for the message above; the lock itself is what counts.
        lock.set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "{}", std::process::id()))
            .map_err(|error| failed("write its lock file", &error))?;
        Ok(Self { path, _lock: lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path inside.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Locks a file that whoever had it may have closed just now: a child that is being started holds everything that was open,
/// until it has become another program.
#[expect(clippy::disallowed_methods, reason = "the node has not begun: there is no shard to block")]
fn lock_soon(file: &File) -> Result<(), TryLockError> {
    const TRIES: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(25);
    for _ in 1..TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
    file.try_lock()
}

/// Makes a directory and those above it, for its owner only.
///
/// # Errors
/// Those of the system.
pub(crate) fn make_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(path)
}

/// Replaces a file as a whole, durably: a reader, also after a crash, sees the old content or the new.
///
/// # Errors
/// Those of the system; the old content is then still there.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let aside = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(&aside)?;
    // A file that an earlier crash left there keeps its mode.
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    sync_parent(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_owner_is_refused_and_told_whom() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("data");
        let first = DataDir::open(&path).expect("free");
        let problem = DataDir::open(&path).expect_err("taken");
        assert_eq!(problem.code, Code::InUse);
        assert!(problem.detail.contains(&std::process::id().to_string()), "{}", problem.detail);
        drop(first);
        DataDir::open(&path).expect("free again");
    }

    #[test]
    fn files_are_private_and_replaced() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("config.toml");
        replace_file(&path, b"one").expect("written");
        replace_file(&path, b"two").expect("replaced");
        assert_eq!(fs::read(&path).expect("there"), b"two");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, FILE_MODE);
        assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 1, "nothing is left aside");
    }
}
