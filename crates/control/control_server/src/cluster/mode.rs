//! Whether this node takes pools, over its lives: `cluster/mode` of the data directory.
//!
//! One line: the cluster's name, the node's number, and `paused`. Without the file, or with that of another membership, the node takes
//! pools. It is written before the node says so in the shared state: one that was paused for maintenance does not take pools because it was
//! started again meanwhile.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use cluster_store::keys::{ClusterName, NodeId};

use crate::data_dir::replace_file;

/// Bytes that are read of the file at most.
const MAX_BYTES: u64 = 1024;

/// Where it is kept.
#[derive(Debug)]
pub struct NodeMode {
    path: PathBuf,
    /// What the line of a node says that is paused.
    paused: String,
}

impl NodeMode {
    /// That of a node whose folder of its cluster this is.
    #[must_use]
    pub fn new(folder: &Path, cluster: &ClusterName, node: NodeId) -> Self {
        Self { path: folder.join("mode"), paused: format!("{cluster} {node} paused\n") }
    }

    /// Whether the node was paused when that was said last. A file that cannot be read counts as that: it is there for a reason.
    pub(crate) fn is_paused(&self) -> bool {
        let read = File::open(&self.path).and_then(|file| {
            let mut text = String::new();
            file.take(MAX_BYTES).read_to_string(&mut text).map(|_| text)
        });
        match read {
            Ok(text) => text == self.paused,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => {
                tracing::warn!(
                    "{}: {error}; the node takes no pools until it is resumed",
                    self.path.display()
                );
                true
            }
        }
    }

    /// Keeps it.
    ///
    /// # Errors
    /// When the disk says no.
    pub(crate) fn keep(&self, paused: bool) -> io::Result<()> {
        // Replaced, and not removed: a removal is not durable by itself.
        replace_file(&self.path, if paused { self.paused.as_bytes() } else { b"" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_of_one_membership() {
        let dir = tempfile::tempdir().expect("a folder");
        let mode = |cluster: &str, node| {
            let cluster = ClusterName::new(cluster).expect("a name");
            NodeMode::new(dir.path(), &cluster, NodeId::new(node).expect("a number"))
        };
        assert!(!mode("a", 1).is_paused());
        mode("a", 1).keep(true).expect("kept");
        assert!(mode("a", 1).is_paused());
        assert!(!mode("a", 2).is_paused() && !mode("b", 1).is_paused(), "it has left and joined since");
        mode("a", 1).keep(false).expect("kept");
        assert!(!mode("a", 1).is_paused());
        std::fs::write(dir.path().join("mode"), [0xff; 9]).expect("written");
        assert!(mode("a", 1).is_paused(), "it cannot be read");
    }
}
