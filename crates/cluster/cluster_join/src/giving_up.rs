//! A life whose process is gone is given up by whoever saw that: its supervisor. The others then take its pools at once, instead of after the silence.

use cluster_store::keys::{ClusterName, Key, NodeId};
use cluster_store::values::{Incarnation, Member, Value as _};
use cluster_store::{ClusterStore, Condition, Range, Step, Transaction};

use crate::error::JoinError;

/// Takes a node's entry among the members away if it is that of this life or an earlier one; whether it did. Rule 4 of `pool_ownership`: only for
/// who knows that the process of that life is gone. A later life that has taken its place meanwhile stays.
///
/// # Errors
/// When etcd does not answer, or the entry cannot be understood.
pub async fn give_up(
    store: &dyn ClusterStore,
    cluster: &ClusterName,
    node: NodeId,
    life: Incarnation,
) -> Result<bool, JoinError> {
    let key = Key::Member(node).path(cluster);
    let Some(found) = store.get(Range::Key(key.clone())).await?.found.into_iter().next() else {
        return Ok(false);
    };
    let member = Member::decode(&found.value).map_err(|why| JoinError::damaged(format!("{key}: {why}")))?;
    if member.incarnation > life {
        return Ok(false);
    }
    let transaction = Transaction {
        conditions: vec![Condition::Modified(key.clone(), found.modified)],
        steps: vec![Step::Delete(key)],
        reads: Vec::new(),
    };
    Ok(store.transact(transaction).await?.done)
}
