//! The number of a node's life, on disk before it is used.
//!
//! `incarnation` in a folder of the data directory, replaced as a whole: `HFINCARN`, version (4 bytes), the number of the last life
//! (8), the machine on which it was given out (16), XXH3 of all before. Little-endian. See `docs/formats/cluster_store.md`.
//!
//! `incarnation.lock` beside it is locked as long as a process uses the number, also while it stands still.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use byte_codec::{DecodeError, Reader, Writer, xxh3};
use cluster_store::keys::{ClusterName, NodeId};
use cluster_store::values::Incarnation;
use thiserror::Error;
use uuid::Uuid;

use crate::remembered;

const MAGIC: &[u8; 8] = b"HFINCARN";
const VERSION: u32 = 1;
const LENGTH: usize = 8 + 4 + 8 + 16 + 8;
const NAME: &str = "incarnation";

/// Why there is no number.
#[derive(Debug, Error)]
pub enum IncarnationError {
    /// The system says no.
    #[error("{0}: {1}")]
    Io(String, io::Error),
    /// The file cannot be believed.
    #[error(
        "{0}: the number of this node's life {1}; if no process of this node runs anywhere, remove the file: the next number \
         then comes from the cluster's state"
    )]
    Damaged(String, DecodeError),
    /// Another process has it.
    #[error("{0}: another process lives as this node, with the same data directory")]
    InUse(String),
    /// There are no more numbers.
    #[error("{0}: there is no number after the last one")]
    Exhausted(String),
}

/// Gives out numbers; there is one for a data directory at a time.
#[derive(Debug)]
pub struct Incarnations {
    folder: PathBuf,
    last: Incarnation,
    /// The process that had the last number is certainly gone: it was on this machine, and had the lock.
    last_is_gone: bool,
    /// An administrator has said so of all others.
    all_are_gone: bool,
    machine: Uuid,
    _lock: File,
}

impl Incarnations {
    /// Opens what the folder has, which is made when it is not there. Blocks on its disk.
    ///
    /// # Errors
    /// When another process has it, when it cannot be read, or cannot be believed.
    pub fn open(folder: &Path) -> Result<Self, IncarnationError> {
        Self::open_on(folder, this_machine())
    }

    fn open_on(folder: &Path, machine: Uuid) -> Result<Self, IncarnationError> {
        let place = folder.join(NAME);
        let failed = |error| IncarnationError::Io(place.display().to_string(), error);
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        // A folder that is gone after a power cut knows nothing of the life before.
        if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)?;
        }
        let lock = folder.join(format!("{NAME}.lock"));
        let lock_file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock)
            .map_err(failed)?;
        match lock_file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(IncarnationError::InUse(lock.display().to_string())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let (last, of) = match read(&place)? {
            Some((last, of)) => (last, Some(of)),
            None => (Incarnation(0), None),
        };
        let last_is_gone = of == Some(machine) && machine != Uuid::nil();
        Ok(Self {
            folder: folder.to_owned(),
            last,
            last_is_gone,
            all_are_gone: false,
            machine,
            _lock: lock_file,
        })
    }

    /// The last number that was given out here; 0 before the first.
    #[must_use]
    pub fn last(&self) -> Incarnation {
        self.last
    }

    /// Where they are kept.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the cluster has removed this node, as far as was kept in the same folder. Blocks.
    #[must_use]
    pub fn was_removed(&self, cluster: &ClusterName, node: NodeId) -> bool {
        remembered::was_removed(&self.folder, cluster, node)
    }

    /// Keeps that the cluster has removed this node: it does not come back with a store that was restored from a backup. Blocks.
    pub fn note_removed(&self, cluster: &ClusterName, node: NodeId) {
        remembered::note_removed(&self.folder, cluster, node);
    }

    /// Whether the process of this life of the node is certainly gone: it began on this machine, with this data directory, whose lock
    /// is ours now; a process does not outlive its machine's restart either.
    #[must_use]
    pub fn is_gone(&self, life: Incarnation) -> bool {
        self.all_are_gone || (self.last_is_gone && life <= self.last)
    }

    /// An administrator says that no other process of this node runs anywhere: after the data directory was moved to another
    /// machine, and there are no other nodes to find out.
    pub fn all_are_gone(&mut self) {
        self.all_are_gone = true;
    }

    /// The next number, higher than all that were given out here and than `above`. Blocks until it is durable.
    ///
    /// # Errors
    /// Those of the system: the number is not used then.
    pub fn next(&mut self, above: Incarnation) -> Result<Incarnation, IncarnationError> {
        let place = self.folder.join(NAME);
        let number = self.last.0.max(above.0).checked_add(1);
        let number = number.ok_or_else(|| IncarnationError::Exhausted(place.display().to_string()))?;
        let failed = |error| IncarnationError::Io(place.display().to_string(), error);
        let new = self.folder.join(format!("{NAME}.new"));
        let write = || -> io::Result<()> {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&encode(Incarnation(number), self.machine))?;
            file.sync_all()?;
            fs::rename(&new, &place)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(failed)?;
        // From now on it is this process's own: what comes after it in here knows that it is over.
        (self.last, self.last_is_gone, self.all_are_gone) = (Incarnation(number), true, false);
        Ok(self.last)
    }
}

/// The last life that began in this folder on this machine, when no process has the number now: that one, and all before it, are over.
/// None while one has it, or nothing is known. Blocks on its disk, and makes nothing.
#[must_use]
pub fn life_that_is_over(folder: &Path) -> Option<Incarnation> {
    let lock = OpenOptions::new().write(true).open(folder.join(format!("{NAME}.lock"))).ok()?;
    lock.try_lock().ok()?;
    let (last, of) = read(&folder.join(NAME)).ok()??;
    let machine = this_machine();
    (of == machine && machine != Uuid::nil()).then_some(last)
}

/// What is in the file; none when there is none.
fn read(place: &Path) -> Result<Option<(Incarnation, Uuid)>, IncarnationError> {
    let failed = |error| IncarnationError::Io(place.display().to_string(), error);
    let file = match File::open(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let mut bytes = Vec::new();
    file.take(LENGTH as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    let found = decode(&bytes);
    found.map(Some).map_err(|error| IncarnationError::Damaged(place.display().to_string(), error))
}

/// Which machine this is, by what its firmware and its system call it, so that neither a copied system nor firmware that calls
/// all of its kind the same makes two machines one. Where one of them is not told (the firmware's name is told to root alone), only
/// this boot is known.
fn this_machine() -> Uuid {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_ascii_lowercase();
    let (firmware, system) = (read("/sys/class/dmi/id/product_uuid"), read("/etc/machine-id"));
    if firmware.is_empty() || system.is_empty() {
        return Uuid::parse_str(&read("/proc/sys/kernel/random/boot_id")).unwrap_or_default();
    }
    Uuid::from_u64_pair(xxh3(firmware.as_bytes()), xxh3(system.as_bytes()))
}

pub(crate) fn encode(number: Incarnation, machine: Uuid) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.raw(MAGIC);
    writer.u32(VERSION);
    writer.u64(number.0);
    writer.raw(machine.as_bytes());
    let mut bytes = writer.finish();
    let sum = xxh3(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// Reads what [`encode`] wrote; any bytes may come.
pub(crate) fn decode(bytes: &[u8]) -> Result<(Incarnation, Uuid), DecodeError> {
    let mut reader = Reader::new(bytes);
    if reader.raw(MAGIC.len())? != MAGIC {
        return Err(DecodeError::WrongMagic);
    }
    let version = reader.u32()?;
    if version != VERSION {
        return Err(DecodeError::Unsupported(version));
    }
    let number = reader.u64()?;
    let machine = Uuid::from_slice(reader.raw(16)?).map_err(|_| DecodeError::Invalid("machine"))?;
    let sum = reader.u64()?;
    if reader.remaining() != 0 {
        return Err(DecodeError::Invalid("length"));
    }
    if xxh3(&bytes[..LENGTH - 8]) != sum {
        return Err(DecodeError::WrongChecksum);
    }
    Ok((Incarnation(number), machine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_only_rise_and_are_kept() {
        let folder = tempfile::tempdir().expect("temp dir");
        let place = folder.path().join("cluster");
        let mut lives = Incarnations::open(&place).expect("opens");
        assert_eq!(lives.last(), Incarnation(0));
        assert_eq!(lives.next(Incarnation(0)).expect("durable"), Incarnation(1));
        assert_eq!(
            lives.next(Incarnation(7)).expect("durable"),
            Incarnation(8),
            "above what others have seen"
        );
        assert!(
            matches!(Incarnations::open(&place), Err(IncarnationError::InUse(_))),
            "one process at a time"
        );
        drop(lives);
        let mut lives = Incarnations::open(&place).expect("opens again");
        assert_eq!(lives.next(Incarnation(3)).expect("durable"), Incarnation(9));
        assert!(lives.next(Incarnation(u64::MAX)).is_err());
    }

    #[test]
    fn only_a_life_of_this_folder_on_this_machine_is_certainly_gone() {
        let folder = tempfile::tempdir().expect("temp dir");
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let open = |machine| Incarnations::open_on(folder.path(), machine).expect("opens");
        assert!(!open(one).is_gone(Incarnation(1)), "a folder that is new knows nothing");
        open(one).next(Incarnation(0)).expect("durable");
        assert!(open(one).is_gone(Incarnation(1)), "the lock says so");
        assert!(!open(one).is_gone(Incarnation(2)), "somebody else's");
        assert!(!open(other).is_gone(Incarnation(1)), "a copy of the folder on another machine");
        assert!(!open(Uuid::nil()).is_gone(Incarnation(1)), "a machine without a name");
        let mut confirmed = open(other);
        confirmed.all_are_gone();
        assert!(confirmed.is_gone(Incarnation(9)), "somebody knows");
    }

    #[test]
    fn a_life_is_over_when_nobody_has_its_number() {
        let folder = tempfile::tempdir().expect("temp dir");
        assert_eq!(life_that_is_over(folder.path()), None, "there was none");
        let mut lives = Incarnations::open(folder.path()).expect("opens");
        lives.next(Incarnation(6)).expect("durable");
        assert_eq!(life_that_is_over(folder.path()), None, "it lives");
        drop(lives);
        assert_eq!(life_that_is_over(folder.path()), Some(Incarnation(7)));
        let elsewhere = encode(Incarnation(9), Uuid::from_u128(3));
        fs::write(folder.path().join(NAME), elsewhere).expect("written");
        assert_eq!(life_that_is_over(folder.path()), None, "another machine's");
    }

    #[test]
    fn damage_is_noticed() {
        let folder = tempfile::tempdir().expect("temp dir");
        let file = folder.path().join(NAME);
        Incarnations::open(folder.path()).expect("opens").next(Incarnation(4)).expect("durable");
        let sound = fs::read(&file).expect("there");
        for at in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 4;
            fs::write(&file, &bytes).expect("written");
            let error = Incarnations::open(folder.path()).expect_err("a changed bit is noticed");
            assert!(error.to_string().contains("remove the file"), "{error}");
            fs::write(&file, &sound[..at]).expect("written");
            assert!(Incarnations::open(folder.path()).is_err(), "a file of {at} bytes is noticed");
        }
        fs::write(&file, [sound.as_slice(), b"x"].concat()).expect("written");
        assert!(Incarnations::open(folder.path()).is_err());
    }
}
