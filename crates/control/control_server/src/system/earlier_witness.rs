//! The votes of releases before this one: a file for each pool, and the file with the node's own identity, which is used still.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use pool_format::{Epoch, Guid, Seq};
use shard_runtime::{Entropy, SystemEntropy};
use uuid::Uuid;

use crate::data_dir::{make_private_dir, replace_file};

/// First word of a vote: what it is, and its version.
const HEADER: &str = "holdfast-witness-1";

/// The file that has the node's own identity.
const NODE: &str = "node";

/// No vote is longer; what is has been damaged.
const MAX_BYTES: u64 = 4096;

/// Files `witness/POOL` in the data directory: `holdfast-witness-1 EPOCH SEQ CHECK`. And `witness/node`, made once: the identity by which
/// pools know whose they are.
#[derive(Debug)]
pub(super) struct EarlierVotes {
    dir: PathBuf,
}

impl EarlierVotes {
    /// Files in `dir`, which is made if it isn't there.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn open(dir: PathBuf) -> io::Result<Self> {
        make_private_dir(&dir)?;
        Ok(Self { dir })
    }

    /// The pools that a vote is here for.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn pools(&self) -> io::Result<Vec<Guid>> {
        let mut pools = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let name = entry?.file_name();
            pools.extend(name.to_str().and_then(|name| Uuid::parse_str(name).ok()));
        }
        Ok(pools.into_iter().map(|pool| Guid(pool.into_bytes())).collect())
    }

    /// The vote for a pool, if one is here.
    ///
    /// # Errors
    /// When the file is there and cannot be understood: a witness that forgot would let a stale disk in.
    pub(super) fn load(&self, pool: Guid) -> io::Result<Option<(Epoch, Seq)>> {
        let path = self.dir.join(pool.to_string());
        let text = match fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
            Ok(meta) if meta.len() > MAX_BYTES => String::new(),
            Ok(_) => fs::read_to_string(&path)?,
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

    /// The identity of the node that has these files, made when there is none yet.
    ///
    /// # Errors
    /// Those of the system, and when the file cannot be understood.
    pub(super) fn node(&self) -> io::Result<Guid> {
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

    /// Takes the vote for a pool away.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn forget(&self, pool: Guid) -> io::Result<()> {
        match fs::remove_file(self.dir.join(pool.to_string())) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// So that a digit that rots is noticed: FNV-1a over both numbers.
fn check(epoch: u64, seq: u64) -> u64 {
    let bytes = epoch.to_le_bytes().into_iter().chain(seq.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
pub(super) fn line(epoch: u64, seq: u64) -> String {
    format!("{HEADER} {epoch} {seq} {}\n", check(epoch, seq))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As release 0.1 wrote it.
    const WRITTEN: &str = "holdfast-witness-1 5 1235 ";

    #[test]
    fn reads_what_was_written_and_notices_damage() {
        let dir = tempfile::tempdir().expect("temp dir");
        let files = EarlierVotes::open(dir.path().join("witness")).expect("made");
        let pool = Guid([3; 16]);
        assert_eq!(files.load(pool).expect("readable"), None);
        let path = dir.path().join("witness").join(pool.to_string());
        assert!(line(5, 1235).starts_with(WRITTEN));
        fs::write(&path, line(5, 1235)).expect("written");
        assert_eq!(files.load(pool).expect("readable"), Some((Epoch(5), Seq(1235))));
        assert_eq!(files.load(Guid([4; 16])).expect("readable"), None);
        let node = files.node().expect("made");
        assert_eq!(files.node().expect("readable"), node, "it stays what it is");
        assert_eq!(files.pools().expect("listed"), [pool], "the node's identity is no pool's vote");
        fs::write(&path, line(5, 1235).replace("1235", "1234")).expect("written");
        assert!(files.load(pool).is_err(), "a changed digit is noticed");
        fs::write(&path, "").expect("written");
        assert!(files.load(pool).is_err(), "an empty file is not an absent one");
        files.forget(pool).expect("removed");
        files.forget(pool).expect("nothing to remove");
        assert_eq!(files.load(pool).expect("readable"), None);
    }
}
