//! How far the store has come, as this node has seen it: in memory, and over its lives on disk, so that a store that has gone back (restored from
//! a backup) is noticed by nodes that were not running then, too.
//!
//! `revision` in the node's folder, one line `CLUSTER REVISION BEAT`, replaced as a whole: the store's revision, and the one of this node's last
//! beat in it, which earlier releases did not write. It may be behind, and what cannot be read says nothing: then less is noticed. `removed` beside it says that the cluster has removed this node: a store that has gone back to before that does not bring the
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

/// How far the store has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Its revision.
    pub(crate) revision: Revision,
    /// The revision that the last beat of this node had in it. A restored store may be told to count from a higher revision on; what it has
    /// of this node it cannot know.
    pub(crate) beat: Revision,
}

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

    /// What was kept last; 0 where nothing is known. Blocks.
    pub(crate) fn load(&self) -> Reached {
        let read = || {
            let mut text = String::new();
            File::open(&self.place).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
            let mut words = text.trim_end().split(' ');
            let is_ours = words.next()? == self.cluster.to_string();
            let revision = Revision(words.next()?.parse().ok()?);
            let beat = Revision(words.next().map_or(Some(0), |beat| beat.parse().ok())?);
            (is_ours && words.next().is_none()).then_some(Reached { revision, beat })
        };
        read().unwrap_or_default()
    }

    /// Keeps it, durably. Blocks; one at a time.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn keep(&self, reached: Reached) -> io::Result<()> {
        let new = self.place.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let Reached { revision, beat } = reached;
        file.write_all(format!("{} {} {}\n", self.cluster, revision.0, beat.0).as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.place)?;
        self.place.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
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
        let nothing = Reached::default();
        assert_eq!(of("a").load(), nothing);
        let kept = Reached { revision: Revision(77), beat: Revision(75) };
        of("a").keep(kept).expect("kept");
        assert_eq!((of("a").load(), of("b").load()), (kept, nothing));
        for text in [&b"a\n"[..], b"a x\n", b"a 7 x\n", b"a 7 6 5\n", &[0xff; 9], b"", &[b'7'; 5000]] {
            fs::write(folder.path().join(NAME), text).expect("written");
            assert_eq!(of("a").load(), nothing);
        }
        fs::write(folder.path().join(NAME), "a 77\n").expect("as earlier releases did");
        assert_eq!(of("a").load(), Reached { revision: Revision(77), ..nothing });
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
