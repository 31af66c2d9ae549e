//! The two files, and how they are replaced.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use byte_codec::DecodeError;
use shard_runtime::Entropy;
use zeroize::Zeroizing;

use crate::directory::Directory;
use crate::error::UsersError;
use crate::format::{self, KEY_FILE_BYTES, SealingKey};

/// Both files are their owner's only.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;
/// The largest database that is read: all accounts with texts of common length, many times over.
const DATABASE_BYTES_MAX: u64 = 256 << 20;

/// Where the files are. They need not be in one directory: a key on a medium that is not backed up with the data, or
/// that a machine's security module unlocks, protects more.
#[derive(Clone, Debug)]
pub struct Files {
    /// The sealed database.
    pub database: PathBuf,
    /// The key.
    pub key: PathBuf,
}

impl Files {
    /// Both in a node's state directory.
    #[must_use]
    pub fn in_directory(directory: &Path) -> Self {
        Self { database: directory.join("users.db"), key: directory.join("users.key") }
    }

    /// Reads the database; `None` when neither it nor more than a key is there. A database without its key is an error.
    ///
    /// # Errors
    /// When a file cannot be read, is damaged, was changed without the key, or others may read the key.
    pub(crate) fn load(&self) -> Result<Option<(Directory, SealingKey)>, UsersError> {
        let Some(sealed) = read(&self.database, DATABASE_BYTES_MAX)? else { return Ok(None) };
        let key = self.load_key()?.ok_or_else(|| UsersError::Key {
            path: self.key.clone(),
            reason: "it is missing, so the user database cannot be read; restore it from a backup",
        })?;
        let directory = format::open(&sealed, &key)
            .map_err(|reason| UsersError::Damaged { path: self.database.clone(), reason })?;
        Ok(Some((directory, key)))
    }

    /// The key that is there, or a new one, durably written.
    ///
    /// # Errors
    /// When it cannot be read or written, or is not one.
    pub(crate) fn key(&self, entropy: &dyn Entropy) -> Result<SealingKey, UsersError> {
        if let Some(key) = self.load_key()? {
            return Ok(key);
        }
        let (mut id, mut secret) = ([0; 8], Zeroizing::new([0; 32]));
        entropy.fill(&mut id);
        entropy.fill(secret.as_mut_slice());
        let key = SealingKey::new(id, *secret);
        replace(&self.key, &key.encode()).map_err(|failure| failure.error)?;
        Ok(key)
    }

    fn load_key(&self) -> Result<Option<SealingKey>, UsersError> {
        let bad = |reason| UsersError::Key { path: self.key.clone(), reason };
        let Some(bytes) = read(&self.key, KEY_FILE_BYTES as u64)? else { return Ok(None) };
        let mode = fs::metadata(&self.key).map_err(|error| failed(&self.key, "look at it", error))?.mode();
        if mode & 0o077 != 0 {
            return Err(bad(
                "others than its owner may use it; `chmod 600` it, and set new passwords if they did",
            ));
        }
        let key = SealingKey::decode(&bytes).map_err(|reason| {
            bad(match reason {
                DecodeError::Unsupported(_) => "it needs a newer release",
                _ => "it is damaged or no key file; restore it from a backup",
            })
        })?;
        Ok(Some(key))
    }

    /// Replaces the database.
    ///
    /// # Errors
    /// Those of the system, and whether the new content may be there all the same.
    pub(crate) fn store(&self, sealed: &[u8]) -> Result<(), Failure> {
        replace(&self.database, sealed)
    }
}

/// A replacement that failed.
pub(crate) struct Failure {
    pub(crate) error: UsersError,
    /// Whether the new content may be found after a crash.
    pub(crate) unsure: bool,
}

fn failed(path: &Path, what: &'static str, source: io::Error) -> UsersError {
    UsersError::Io { path: path.to_owned(), what, source }
}

/// A whole file; `None` when it is not there.
fn read(path: &Path, most: u64) -> Result<Option<Zeroizing<Vec<u8>>>, UsersError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(path, "open it", error)),
    };
    let mut bytes = Zeroizing::new(Vec::new());
    // One more than may be there tells a file that is too long.
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| failed(path, "read it", error))?;
    Ok(Some(bytes))
}

/// Replaces a file as a whole, durably: a reader, also after a crash, sees the old content or the new.
fn replace(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let sure = |what| move |error| Failure { error: failed(path, what, error), unsure: false };
    let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(parent)
        .map_err(sure("make its directory"))?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let aside = path.with_file_name(name);
    // What an earlier crash left there may have another mode, and pages that a failed flush has lost.
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(sure("replace it")(error)),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(&aside)
        .map_err(sure("write beside it"))?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(sure("write beside it"))?;
    fs::rename(&aside, path).map_err(sure("replace it"))?;
    File::open(parent)
        .and_then(|parent| parent.sync_all())
        .map_err(|error| Failure { error: failed(path, "make it durable", error), unsure: true })
}

#[cfg(test)]
mod tests;
