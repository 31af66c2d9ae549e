//! The vote of the node itself: the newest epoch and change of each pool, in a file of the data directory.
//!
//! A two-disk mirror survives the loss of either disk because of it, and a disk that missed the last changes is
//! never opened alone by mistake.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use std::sync::Arc;

use pool::{Node, QuorumWitness, WitnessFuture};
use pool_format::{Epoch, Guid, Seq};
use shard_runtime::{Entropy, SystemEntropy};
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::data_dir::{make_private_dir, replace_file};

/// First word of the file: what it is, and its version.
const HEADER: &str = "holdfast-witness-1";

/// The file that has the node's own identity.
const NODE: &str = "node";

/// Files `witness/POOL` in the data directory: `holdfast-witness-1 EPOCH SEQ CHECK`, replaced as a whole. And `witness/node`, made once:
/// the identity by which pools know whose they are.
#[derive(Debug)]
pub struct WitnessFiles {
    dir: PathBuf,
}

impl WitnessFiles {
    /// Files in `dir`, which is made if it isn't there.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(dir: PathBuf) -> io::Result<Self> {
        make_private_dir(&dir)?;
        Ok(Self { dir })
    }

    /// What was last stored for the pool. Blocks on the data directory's disk.
    ///
    /// # Errors
    /// When the file is there and cannot be understood: a witness that forgot would let a stale disk in.
    pub fn load(&self, pool: Guid) -> io::Result<Option<(Epoch, Seq)>> {
        let path = self.dir.join(pool.to_string());
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let parsed: Option<((u64, u64), u64)> = match words.as_slice() {
            [HEADER, epoch, seq, sum] => epoch.parse().ok().zip(seq.parse().ok()).zip(sum.parse().ok()),
            _ => None,
        };
        match parsed {
            Some(((epoch, seq), sum)) if sum == check(epoch, seq) => Ok(Some((Epoch(epoch), Seq(seq)))),
            _ => Err(io::Error::new(
                ErrorKind::InvalidData,
                format!("{}: the witness file is damaged", path.display()),
            )),
        }
    }

    /// Remembers durably. Blocks on the data directory's disk.
    ///
    /// # Errors
    /// Those of the system; what was there before is then still there.
    pub fn store(&self, pool: Guid, epoch: Epoch, seq: Seq) -> io::Result<()> {
        let line = format!("{HEADER} {} {} {}\n", epoch.0, seq.0, check(epoch.0, seq.0));
        replace_file(&self.dir.join(pool.to_string()), line.as_bytes())
    }

    /// The identity of the node that has these files, made when there is none yet. Blocks on the data directory's disk.
    ///
    /// # Errors
    /// Those of the system, and when the file cannot be understood.
    pub fn node(&self) -> io::Result<Guid> {
        let path = self.dir.join(NODE);
        match fs::read_to_string(&path) {
            Ok(text) => Uuid::parse_str(text.trim()).map(|id| Guid(id.into_bytes())).map_err(|_| {
                io::Error::new(ErrorKind::InvalidData, format!("{}: no identity is in it", path.display()))
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let id = Uuid::from_bytes(SystemEntropy.next_id());
                replace_file(&path, format!("{id}\n").as_bytes())?;
                Ok(Guid(id.into_bytes()))
            }
            Err(error) => Err(error),
        }
    }

    /// Forgets a pool that is no more. Blocks on the data directory's disk.
    ///
    /// # Errors
    /// Those of the system.
    pub fn forget(&self, pool: Guid) -> io::Result<()> {
        match fs::remove_file(self.dir.join(pool.to_string())) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The witness files as pools use them. Files block, shards must not: the files' threads are the control
/// plane's.
pub(super) struct Witness {
    files: Arc<WitnessFiles>,
    node: Node,
    control: Handle,
}

impl Witness {
    /// Uses the threads of the runtime that `control` belongs to. Blocks on the data directory's disk.
    ///
    /// # Errors
    /// When the node's identity can be neither read nor made.
    pub(super) fn new(files: WitnessFiles, control: Handle) -> io::Result<Self> {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let node = Node { id: files.node()?, name: name.trim().to_owned() };
        Ok(Self { files: Arc::new(files), node, control })
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&WitnessFiles) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let files = self.files.clone();
        self.control.spawn_blocking(move || work(&files)).await.map_err(io::Error::other)?
    }
}

impl QuorumWitness for Witness {
    fn load(&self, pool: Guid) -> WitnessFuture<'_, Option<(Epoch, Seq)>> {
        Box::pin(self.with(move |files| files.load(pool)))
    }

    fn store(&self, pool: Guid, epoch: Epoch, seq: Seq) -> WitnessFuture<'_, ()> {
        Box::pin(self.with(move |files| files.store(pool, epoch, seq)))
    }

    fn node(&self) -> Option<Node> {
        Some(self.node.clone())
    }

    fn forget(&self, pool: Guid) -> WitnessFuture<'_, ()> {
        Box::pin(self.with(move |files| files.forget(pool)))
    }
}

/// So that a digit that rots is noticed: FNV-1a over both numbers.
fn check(epoch: u64, seq: u64) -> u64 {
    let bytes = epoch.to_le_bytes().into_iter().chain(seq.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_and_notices_damage() {
        let dir = tempfile::tempdir().expect("temp dir");
        let files = WitnessFiles::open(dir.path().join("witness")).expect("made");
        let pool = Guid([3; 16]);
        assert_eq!(files.load(pool).expect("readable"), None);
        files.store(pool, Epoch(4), Seq(1234)).expect("stored");
        files.store(pool, Epoch(5), Seq(1235)).expect("stored");
        assert_eq!(files.load(pool).expect("readable"), Some((Epoch(5), Seq(1235))));
        assert_eq!(files.load(Guid([4; 16])).expect("readable"), None);
        let path = dir.path().join("witness").join(pool.to_string());
        let text = fs::read_to_string(&path).expect("there").replace("1235", "1234");
        fs::write(&path, text).expect("written");
        assert!(files.load(pool).is_err(), "a changed digit is noticed");
        fs::write(&path, "").expect("written");
        assert!(files.load(pool).is_err(), "an empty file is not an absent one");
        let node = files.node().expect("made");
        assert_eq!(files.node().expect("readable"), node, "it stays what it is");
        files.forget(pool).expect("removed");
        files.forget(pool).expect("nothing to remove");
        assert_eq!(files.load(pool).expect("readable"), None);
    }
}
