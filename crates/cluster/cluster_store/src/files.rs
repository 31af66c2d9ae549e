//! The few operations on files that the local store is made of, so that a test can cut the power at each of them.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Files of one folder, by name.
pub trait Files: Send + 'static {
    /// The content, of at most `limit` bytes; `None` when there is no such file.
    ///
    /// # Errors
    /// Those of the system, and a file over the limit.
    fn read(&self, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>>;
    /// Makes the file hold this; not durable yet.
    ///
    /// # Errors
    /// Those of the system.
    fn write(&mut self, name: &str, content: &[u8]) -> io::Result<()>;
    /// Makes the content of the file durable.
    ///
    /// # Errors
    /// Those of the system.
    fn sync(&mut self, name: &str) -> io::Result<()>;
    /// Takes the name away if it is there.
    ///
    /// # Errors
    /// Those of the system.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Gives the file a second name, which is free.
    ///
    /// # Errors
    /// Those of the system.
    fn link(&mut self, name: &str, second: &str) -> io::Result<()>;
    /// Gives the file another name in place of whatever had it.
    ///
    /// # Errors
    /// Those of the system.
    fn rename(&mut self, name: &str, to: &str) -> io::Result<()>;
    /// Makes the names durable.
    ///
    /// # Errors
    /// Those of the system.
    fn sync_folder(&mut self) -> io::Result<()>;
    /// Where this is, for messages.
    fn place(&self, name: &str) -> String;
}

/// A folder of the system, for its owner only.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// A folder, which is made if it is not there.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Ok(Self(path.to_path_buf()))
    }
}

impl Files for Folder {
    fn read(&self, name: &str, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.0.join(name)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let mut content = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut content)?;
        if content.len() as u64 > limit {
            return Err(io::Error::new(ErrorKind::InvalidData, format!("is larger than {limit} bytes")));
        }
        Ok(Some(content))
    }

    fn write(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let path = self.0.join(name);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        // A file that an earlier crash left there keeps its mode.
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(content)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        File::open(self.0.join(name))?.sync_all()
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn link(&mut self, name: &str, second: &str) -> io::Result<()> {
        fs::hard_link(self.0.join(name), self.0.join(second))
    }

    fn rename(&mut self, name: &str, to: &str) -> io::Result<()> {
        fs::rename(self.0.join(name), self.0.join(to))
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        File::open(&self.0)?.sync_all()
    }

    fn place(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}
