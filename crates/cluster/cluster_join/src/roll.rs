//! Who belongs to a cluster: its entries, read.

use cluster_store::keys::{ClusterName, Key, NodeId};
use cluster_store::values::{NodeEntry, Value as _};
use cluster_store::{ClusterStore, Range, Revision};

use crate::error::JoinError;

/// How a node stands with its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It belongs to it.
    Member,
    /// It has left, or was removed.
    Removed,
    /// The cluster never heard of it.
    Unknown,
}

/// All nodes that were ever let in, those that are gone included, with the revision that wrote them last.
///
/// # Errors
/// When etcd does not answer, or an entry cannot be read.
pub async fn nodes(
    store: &dyn ClusterStore,
    cluster: &ClusterName,
) -> Result<Vec<(NodeId, Revision, NodeEntry)>, JoinError> {
    let prefix = format!("{}nodes/", cluster.root());
    let mut nodes = Vec::new();
    for found in store.get(Range::Prefix(prefix)).await?.found {
        let Some(Key::Node(node)) = Key::parse(cluster, &found.key) else { continue };
        let entry = NodeEntry::decode(&found.value)
            .map_err(|why| JoinError::damaged(format!("{}: {why}", found.key)))?;
        nodes.push((node, found.modified, entry));
    }
    Ok(nodes)
}

/// How a node stands with its cluster: one that was removed takes part no more.
///
/// # Errors
/// As [`nodes`].
pub async fn standing(
    store: &dyn ClusterStore,
    cluster: &ClusterName,
    node: NodeId,
) -> Result<Standing, JoinError> {
    let key = Key::Node(node).path(cluster);
    let Some(found) = store.get(Range::Key(key.clone())).await?.found.into_iter().next() else {
        return Ok(Standing::Unknown);
    };
    let entry = NodeEntry::decode(&found.value).map_err(|why| JoinError::damaged(format!("{key}: {why}")))?;
    Ok(if entry.removed { Standing::Removed } else { Standing::Member })
}
