//! Where tables are kept: a small file for each disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::record::{DiskIdentity, MAX_RECORD_BYTES};

/// Keeps the records of disks. Both operations block.
pub trait Records: Send + Sync + 'static {
    /// The record of a disk, if there is one.
    ///
    /// # Errors
    /// When nobody knows whether there is one.
    fn load(&self, disk: DiskIdentity) -> io::Result<Option<Vec<u8>>>;

    /// Puts a record in place of the one before, at once and for good: after a loss of power one of both is there, and after success this one.
    ///
    /// # Errors
    /// When it may not be there.
    fn save(&self, disk: DiskIdentity, record: &[u8]) -> io::Result<()>;

    /// Where a person finds the record of a disk.
    fn place(&self, disk: DiskIdentity) -> String;
}

/// Records as files of a folder.
pub struct FileRecords {
    folder: PathBuf,
}

impl FileRecords {
    /// Uses this folder, which is made where it is not there.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(folder: &Path) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        match fs::DirBuilder::new().mode(0o700).create(folder) {
            Ok(()) => sync(folder.parent().unwrap_or(Path::new("/")))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        Ok(Self { folder: folder.to_owned() })
    }

    fn path(&self, disk: DiskIdentity) -> PathBuf {
        self.folder.join(format!("{disk}.gate"))
    }
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

impl Records for FileRecords {
    fn load(&self, disk: DiskIdentity) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.path(disk)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        // One more than there can be: what is too long is seen to be.
        file.take(MAX_RECORD_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn save(&self, disk: DiskIdentity, record: &[u8]) -> io::Result<()> {
        let path = self.path(disk);
        let aside = path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
        file.write_all(record)?;
        file.sync_all()?;
        fs::rename(&aside, &path)?;
        sync(&self.folder)
    }

    fn place(&self, disk: DiskIdentity) -> String {
        self.path(disk).display().to_string()
    }
}
