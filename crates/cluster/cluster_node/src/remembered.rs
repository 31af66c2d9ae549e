//! How far the store has come, as this node has seen it: in memory, and over its lives on disk, so that a store that has gone back (restored from
//! a backup) is noticed by nodes that were not running then, too.
//!
//! `revision` in the node's folder, one line `CLUSTER REVISION`, replaced as a whole. It may be behind, and what cannot be read says nothing: then
//! less is noticed. `removed` beside it says that the cluster has removed this node: a store that has gone back to before that does not bring the
//! node back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use cluster_store::Revision;
use cluster_store::keys::{ClusterName, NodeId};

/// Bytes that are read of the file at most.
const MAX_BYTES: u64 = 1024;
const NAME: &str = "revision";
/// That the cluster has removed this node: one line `CLUSTER NUMBER`.
const REMOVED: &str = "removed";

/// Where it is kept.
#[derive(Clone, Debug)]
pub(crate) struct Remembered {
    place: PathBuf,
    cluster: ClusterName,
}

impl Remembered {
    pub(crate) fn new(folder: &Path, cluster: &ClusterName) -> Self {
        Self { place: folder.join(NAME), cluster: cluster.clone() }
    }

    /// The highest revision that was kept; 0 where nothing is known. Blocks.
    pub(crate) fn load(&self) -> Revision {
        let read = || {
            let mut text = String::new();
            File::open(&self.place).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
            let (cluster, revision) = text.trim_end().split_once(' ')?;
            (cluster == self.cluster.to_string()).then(|| revision.parse().ok()).flatten()
        };
        Revision(read().unwrap_or(0))
    }

    /// Keeps it. Blocks.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn keep(&self, revision: Revision) -> io::Result<()> {
        let new = self.place.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(format!("{} {}\n", self.cluster, revision.0).as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.place)
    }
}

fn line(cluster: &ClusterName, node: NodeId) -> String {
    format!("{cluster} {node}\n")
}

/// The cluster has removed this node. Blocks; what cannot be written is told of, and noticed again.
pub(crate) fn note_removed(folder: &Path, cluster: &ClusterName, node: NodeId) {
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(folder.join(REMOVED))?;
        file.write_all(line(cluster, node).as_bytes())?;
        file.sync_all()?;
        File::open(folder)?.sync_all()
    };
    if let Err(error) = write() {
        tracing::warn!(%error, "that the cluster has removed this node cannot be kept");
    }
}

/// Whether the cluster has removed this node, as far as this was kept. Blocks.
pub(crate) fn was_removed(folder: &Path, cluster: &ClusterName, node: NodeId) -> bool {
    let mut text = String::new();
    let read =
        File::open(folder.join(REMOVED)).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    read.is_ok() && text == line(cluster, node)
}

/// Takes what a node has kept in this folder of what it has seen of its cluster, which it has left. Blocks.
///
/// # Errors
/// Those of the system.
pub fn forget(folder: &Path) -> io::Result<()> {
    for name in [NAME, REMOVED] {
        match fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_of_one_cluster_and_what_cannot_be_read_says_nothing() {
        let folder = tempfile::tempdir().expect("temp dir");
        let of = |cluster| Remembered::new(folder.path(), &ClusterName::new(cluster).expect("a name"));
        assert_eq!(of("a").load(), Revision(0));
        of("a").keep(Revision(77)).expect("kept");
        assert_eq!((of("a").load(), of("b").load()), (Revision(77), Revision(0)));
        for text in [&b"a\n"[..], b"a x\n", &[0xff; 9], b"", &[b'7'; 5000]] {
            fs::write(folder.path().join(NAME), text).expect("written");
            assert_eq!(of("a").load(), Revision(0));
        }
    }

    #[test]
    fn that_it_was_removed_is_of_one_membership() {
        let folder = tempfile::tempdir().expect("temp dir");
        let cluster = |name| ClusterName::new(name).expect("a name");
        let node = |number| NodeId::new(number).expect("a number");
        let removed = |name, number| was_removed(folder.path(), &cluster(name), node(number));
        assert!(!removed("a", 2));
        note_removed(folder.path(), &cluster("a"), node(2));
        assert!(removed("a", 2));
        assert!(!removed("a", 3) && !removed("b", 2), "it has joined anew since");
        forget(folder.path()).expect("gone");
        assert!(!removed("a", 2));
        forget(folder.path()).expect("gone already");
    }
}
