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

#[cfg(test)]
mod tests {
    use cluster_store::LocalStore;

    use super::*;

    #[tokio::test]
    async fn only_the_life_that_is_over_and_those_before_it_are_given_up() {
        let dir = tempfile::tempdir().expect("temp dir");
        let store = LocalStore::open(dir.path()).expect("a store");
        let (cluster, node) = (ClusterName::new("c").expect("a name"), NodeId::new(2).expect("a number"));
        let key = Key::Member(node).path(&cluster);
        let put = async |incarnation: u64| {
            let member = Member {
                incarnation: Incarnation(incarnation),
                addresses: Vec::new(),
                paused: false,
                draining: false,
                release: String::new(),
                name: String::new(),
                api: String::new(),
                bus: String::new(),
            };
            let steps = vec![Step::Put(key.clone(), member.encode().expect("a member"))];
            store.transact(Transaction { steps, ..Transaction::default() }).await.expect("written");
        };
        let there = async || !store.get(Range::Key(key.clone())).await.expect("readable").found.is_empty();
        let over =
            async |life: u64| give_up(&store, &cluster, node, Incarnation(life)).await.expect("answered");
        assert!(!over(9).await, "there is none");
        put(7).await;
        assert!(!over(6).await && there().await, "a later life has taken its place");
        assert!(over(7).await && !there().await);
        put(3).await;
        assert!(over(7).await && !there().await, "one before it is over, too");
    }
}
