//! The first node of a cluster writes itself into etcd, with what it knows of its pools.

use std::time::Duration;

use cluster_identity::NodeRecord;
use cluster_store::keys::{ClusterName, Key, PoolId};
use cluster_store::values::{Named, NodeEntry, Owner, Seats, Value as _, Vote};
use cluster_store::{ClusterStore, Condition, MAX_STEPS, Range, Step, StoreError, Transaction};
use cluster_store_etcd::EtcdStore;

use crate::error::{JoinError, Kind};

/// Between looks whether etcd answers.
const PAUSE: Duration = Duration::from_millis(100);
/// Pools in one transaction: each takes two steps.
const POOLS_AT_ONCE: usize = MAX_STEPS / 2 - 4;

/// Waits until etcd answers; which one it is.
///
/// # Errors
/// When it does not for so long, with what it said last.
pub async fn wait_for_etcd(store: &EtcdStore, limit: Duration) -> Result<u64, JoinError> {
    let mut why = StoreError::NotDone("no answer".into());
    let answered = tokio::time::timeout(limit, async {
        loop {
            match store.get(Range::Key("/holdfast".into())).await {
                Ok(_) => return,
                Err(error) => why = error,
            }
            tokio::time::sleep(PAUSE).await;
        }
    });
    if answered.await.is_err() {
        let what = format!("etcd does not answer within {} s: {why}", limit.as_secs());
        return Err(JoinError::new(Kind::Away, what, "The node's log has what etcd itself says."));
    }
    store
        .cluster_id()
        .ok_or_else(|| JoinError::new(Kind::Away, "etcd does not say which it is", "Try again."))
}

/// What is kept of one pool.
struct Kept {
    pool: PoolId,
    owner: Option<Vec<u8>>,
    vote: Option<Vec<u8>>,
}

/// Writes the first node into an etcd that has no cluster of this name, with the epochs and votes that it kept by itself, as the cluster `alone`
/// in `local`. What an attempt before has left is replaced, as long as no node was written. Nobody may change them meanwhile: no pool is open.
///
/// # Errors
/// When there is such a cluster already, or a store does not answer.
pub async fn found(
    store: &dyn ClusterStore,
    record: &NodeRecord,
    release: &str,
    local: &dyn ClusterStore,
    alone: &ClusterName,
    now: u64,
) -> Result<(), JoinError> {
    let cluster = &record.cluster;
    let there = store.get(Range::Prefix(format!("{}nodes/", cluster.root()))).await?;
    if !there.found.is_empty() {
        return Err(JoinError::new(
            Kind::Taken,
            format!("This etcd has a cluster {cluster} already."),
            "Give the cluster another name, or join the one that is there: `holdfast cluster token` on one of its nodes.",
        ));
    }
    let node = Key::Node(record.node).path(cluster);
    // First what the pools need: without the node's entry none of it counts.
    for part in kept(local, alone).await?.chunks(POOLS_AT_ONCE) {
        let mut steps = Vec::new();
        for Kept { pool, owner, vote } in part {
            let owner_key = Key::Owner(*pool).path(cluster);
            let vote_key = Key::Witness(*pool).path(cluster);
            steps.push(
                owner.clone().map_or(Step::Delete(owner_key.clone()), |value| Step::Put(owner_key, value)),
            );
            steps.push(
                vote.clone().map_or(Step::Delete(vote_key.clone()), |value| Step::Put(vote_key, value)),
            );
        }
        let conditions = vec![Condition::Absent(node.clone())];
        if !store.transact(Transaction { conditions, steps, reads: Vec::new() }).await?.done {
            return Err(meanwhile());
        }
    }
    let entry = NodeEntry {
        name: record.name.to_string(),
        api: record.api_address.to_string(),
        release: release.into(),
        joined: now,
        removed: false,
        token: String::new(),
        key: String::new(),
    };
    let mut steps = vec![
        Step::Put(node.clone(), entry.encode().map_err(JoinError::damaged)?),
        Step::Put(
            Key::NodeName(record.name.to_string()).path(cluster),
            Named { node: record.node }.encode().map_err(JoinError::damaged)?,
        ),
    ];
    if let Some(own) = &record.etcd.managed {
        let seats = Seats { seats: vec![(record.node, own.peer_url.clone())] };
        steps.push(Step::Put(Key::EtcdSeats.path(cluster), seats.encode().map_err(JoinError::damaged)?));
    }
    let conditions = vec![Condition::Absent(node)];
    if store.transact(Transaction { conditions, steps, reads: Vec::new() }).await?.done {
        Ok(())
    } else {
        Err(meanwhile())
    }
}

fn meanwhile() -> JoinError {
    JoinError::new(Kind::Taken, "Another node has made a cluster of this name meanwhile.", "Join that one.")
}

/// All pools of a store. Nothing that cannot be read is left out: a vote that is forgotten lets stale disks in.
async fn kept(local: &dyn ClusterStore, alone: &ClusterName) -> Result<Vec<Kept>, JoinError> {
    let found = local.get(Range::Prefix(format!("{}pools/", alone.root()))).await?.found;
    let mut all: Vec<Kept> = Vec::new();
    for found in found {
        let wrong = |why: &dyn std::fmt::Display| JoinError::damaged(format!("{}: {why}", found.key));
        let (pool, is_owner) = match Key::parse(alone, &found.key) {
            Some(Key::Owner(pool)) => {
                let owner = Owner::decode(&found.value).map_err(|why| wrong(&why))?;
                if owner.holder.is_some() {
                    return Err(wrong(&"a pool of another node"));
                }
                (pool, true)
            }
            Some(Key::Witness(pool)) => {
                Vote::decode(&found.value).map_err(|why| wrong(&why))?;
                (pool, false)
            }
            _ => return Err(wrong(&"a key of a later release")),
        };
        if all.last().is_none_or(|last| last.pool != pool) {
            all.push(Kept { pool, owner: None, vote: None });
        }
        if let Some(last) = all.last_mut() {
            let place = if is_owner { &mut last.owner } else { &mut last.vote };
            *place = Some(found.value);
        }
    }
    Ok(all)
}
