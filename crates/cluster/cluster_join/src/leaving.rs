//! A node leaves, or is removed.

use std::time::Duration;

use cluster_store::keys::{ClusterName, Key, NodeId, PoolId};
use cluster_store::values::{Owner, Seats, Value as _};
use cluster_store::{ClusterStore, Condition, Range, Revision, Step, StoreError, Transaction};
use cluster_store_etcd::{EtcdMember, EtcdStore};
use tokio::time::Instant;

use crate::error::{JoinError, Kind};
use crate::roll::{Standing, nodes, standing};

/// So often it is tried anew when others write at the same time, or an answer was lost.
const TRIES: u32 = 8;
/// etcd refuses changes of its members for a few seconds after the one before.
const ETCD_PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(500);
/// What does not answer is asked again for so long.
const AWAY_PATIENCE: Duration = Duration::from_secs(15);

/// A pool of a node: its epoch, and when its owner was written.
struct Owned {
    pool: PoolId,
    epoch: u64,
    modified: Revision,
}

/// Pools whose owner this node is.
async fn pools_of(
    store: &dyn ClusterStore,
    cluster: &ClusterName,
    node: NodeId,
) -> Result<Vec<Owned>, JoinError> {
    let mut pools = Vec::new();
    for found in store.get(Range::Prefix(format!("{}pools/", cluster.root()))).await?.found {
        let Some(Key::Owner(pool)) = Key::parse(cluster, &found.key) else { continue };
        let owner =
            Owner::decode(&found.value).map_err(|why| JoinError::damaged(format!("{}: {why}", found.key)))?;
        if owner.holder.is_some_and(|holder| holder.node == node) {
            pools.push(Owned { pool, epoch: owner.epoch, modified: found.modified });
        }
    }
    Ok(pools)
}

/// The last sign of life of a node: the revision that it was written by, 0 where there is none.
///
/// # Errors
/// When etcd does not answer.
pub async fn last_beat(
    store: &dyn ClusterStore,
    cluster: &ClusterName,
    node: NodeId,
) -> Result<Revision, JoinError> {
    let found = store.get(Range::Key(Key::Beat(node).path(cluster))).await?.found;
    Ok(found.first().map_or(Revision(0), |found| found.modified))
}

/// Whether a node can go: it owns no pool, and is not the last one.
///
/// # Errors
/// Why not; when etcd does not answer.
pub async fn check_leave(
    store: &dyn ClusterStore,
    cluster: &ClusterName,
    node: NodeId,
) -> Result<(), JoinError> {
    check(store, cluster, node, false).await
}

/// Whether a node can be taken out that is gone for good: it is not the last one.
///
/// # Errors
/// Why not; when etcd does not answer.
pub async fn check_remove(
    store: &dyn ClusterStore,
    cluster: &ClusterName,
    node: NodeId,
) -> Result<(), JoinError> {
    check(store, cluster, node, true).await
}

/// The same; pools that a node has which is `gone` are nobody's with its removal, where no other node sees their disks.
async fn check(
    store: &dyn ClusterStore,
    cluster: &ClusterName,
    node: NodeId,
    gone: bool,
) -> Result<(), JoinError> {
    let all = nodes(store, cluster).await?;
    let others = all.iter().any(|(id, _, entry)| *id != node && !entry.removed);
    // The cluster does not know it (its state may be that of before the node joined, restored from a backup): nothing keeps it.
    let Some((_, _, entry)) = all.iter().find(|(id, ..)| *id == node) else { return Ok(()) };
    if entry.removed {
        return Ok(());
    }
    if !others {
        return Err(JoinError::new(
            Kind::State,
            format!("Node {} is the last one of the cluster.", entry.name),
            "Everything that the cluster has would be gone with it. Let another node join first.",
        ));
    }
    if gone {
        return Ok(());
    }
    let pools = pools_of(store, cluster, node).await?;
    if pools.is_empty() {
        return Ok(());
    }
    let pools: Vec<String> = pools.iter().map(|owned| owned.pool.to_string()).collect();
    Err(JoinError::new(
        Kind::State,
        format!("Node {} has the pools {}.", entry.name, pools.join(", ")),
        "Move them to other nodes first: `holdfast node pause --drain` on that node. Those of a node that is gone are taken by others; `holdfast cluster status` says who owns what, and `holdfast node list` which nodes take none.",
    ))
}

/// Whether etcd will let go of the member that this node runs, if it runs one: asked before the node stops for that, and decided by etcd when it leaves.
///
/// # Errors
/// Why not; when etcd does not answer.
pub async fn check_member(store: &EtcdStore, cluster: &ClusterName, node: NodeId) -> Result<(), JoinError> {
    let (_, seats) = seats(store, cluster).await?;
    let Some((_, peer_url)) = seats.seats.iter().find(|(id, _)| *id == node) else { return Ok(()) };
    let members = store.members().await?;
    let Some(own) = members.iter().find(|member| member.peer_urls.iter().any(|url| url == peer_url)) else {
        return Ok(());
    };
    if own.learner {
        return Ok(());
    }
    let others: Vec<&EtcdMember> = members.iter().filter(|member| member.id != own.id).collect();
    let votes: Vec<&EtcdMember> = others.iter().copied().filter(|member| !member.learner).collect();
    if votes.is_empty() {
        return if others.iter().any(|other| !other.name.is_empty()) { Ok(()) } else { Err(only_member()) };
    }
    let health = store.health().await;
    let answers = |member: &&&EtcdMember| {
        health.iter().any(|asked| asked.told.is_ok() && member.client_urls.contains(&asked.url))
    };
    let (there, all) = (votes.iter().filter(answers).count(), votes.len());
    // What is left has to have a majority, or etcd refuses.
    if there > all / 2 {
        return Ok(());
    }
    Err(JoinError::new(
        Kind::State,
        format!(
            "etcd does not let this node's member go: of the {all} others with a vote {there} {}, which is no majority.",
            if there == 1 { "answers" } else { "answer" }
        ),
        "Start the nodes that are away first; `holdfast cluster status` names them.",
    ))
}

fn only_member() -> JoinError {
    JoinError::new(
        Kind::State,
        "This node runs the only member of the cluster's etcd, and no other node has taken part in it yet.",
        "Wait until another node has: `holdfast cluster status`.",
    )
}

/// Takes a node out of the cluster that has stopped for it: its member of etcd, its seat, its name; its number stays given. Done already, it
/// does nothing.
///
/// # Errors
/// As [`check_leave`]; when etcd does not answer, or refuses to lose this member.
pub async fn depart(store: &EtcdStore, cluster: &ClusterName, node: NodeId) -> Result<(), JoinError> {
    leave(store, cluster, node, None).await
}

/// Takes another node out of the cluster, which is silent: `last_beat` is its last sign of life, and has not changed for longer than a node that
/// lives is silent. One that gives another one stays, up to the last moment.
///
/// # Errors
/// As [`depart`]; when the node lives.
pub async fn remove(
    store: &EtcdStore,
    cluster: &ClusterName,
    node: NodeId,
    last_beat: Revision,
) -> Result<(), JoinError> {
    leave(store, cluster, node, Some(last_beat)).await
}

async fn leave(
    store: &EtcdStore,
    cluster: &ClusterName,
    node: NodeId,
    beat: Option<Revision>,
) -> Result<(), JoinError> {
    // Its own member of etcd goes on the way, and with it connections, for a moment perhaps the leader: whatever was answered or not, the next
    // look goes on from what is there.
    patiently(|| async {
        check(store, cluster, node, beat.is_some()).await?;
        leave_once(store, cluster, node, beat).await
    })
    .await
}

/// Does again what etcd did not answer, for longer than an election takes: a node that is gone may have led it until a moment ago.
///
/// # Errors
/// Those of `once`.
pub async fn patiently<T, F>(once: impl Fn() -> F) -> Result<T, JoinError>
where
    F: Future<Output = Result<T, JoinError>>,
{
    let began = Instant::now();
    loop {
        match once().await {
            Err(error) if error.kind == Kind::Away && began.elapsed() < AWAY_PATIENCE => {
                tracing::debug!(%error, "etcd is asked again in a moment");
                tokio::time::sleep(PAUSE).await;
            }
            ended => return ended,
        }
    }
}

async fn leave_once(
    store: &EtcdStore,
    cluster: &ClusterName,
    node: NodeId,
    beat: Option<Revision>,
) -> Result<(), JoinError> {
    let mut last = None;
    for _ in 0..TRIES {
        // Before its member of etcd goes, too.
        if let Some(beat) = beat
            && !matches!(standing(store, cluster, node).await?, Standing::Removed)
            && last_beat(store, cluster, node).await? != beat
        {
            return Err(JoinError::new(
                Kind::State,
                format!("Node {node} has given a sign of life meanwhile."),
                "`holdfast node pause --drain` lets it give its pools away, `holdfast cluster leave` on it takes it out of the cluster.",
            ));
        }
        let (revision, seats) = seats(store, cluster).await?;
        if let Some((_, peer_url)) = seats.seats.iter().find(|(id, _)| *id == node) {
            remove_member(store, peer_url).await?;
        }
        let all = nodes(store, cluster).await?;
        let found = all.into_iter().find(|(id, ..)| *id == node);
        let Some((_, modified, mut entry)) = found else { return Ok(()) };
        if entry.removed {
            return Ok(());
        }
        let (name, key) = (Key::NodeName(entry.name.clone()).path(cluster), Key::Node(node).path(cluster));
        entry.removed = true;
        // Its token is used up in any case.
        let mut steps = vec![
            Step::Put(key.clone(), entry.encode().map_err(JoinError::damaged)?),
            Step::Delete(name),
            Step::Delete(Key::Member(node).path(cluster)),
            Step::Delete(Key::Beat(node).path(cluster)),
            Step::Delete(Key::NodePaths(node).path(cluster)),
            Step::Delete(Key::NodeSees(node).path(cluster)),
        ];
        let seats_key = Key::EtcdSeats.path(cluster);
        if revision != Revision(0) {
            let left = seats.seats.into_iter().filter(|(id, _)| *id != node).collect();
            let left = Seats { seats: left }.encode().map_err(JoinError::damaged)?;
            steps.push(Step::Put(seats_key.clone(), left));
        }
        let mut conditions =
            vec![Condition::Modified(key, modified), Condition::Modified(seats_key, revision)];
        conditions.extend(beat.map(|beat| Condition::Modified(Key::Beat(node).path(cluster), beat)));
        // What nobody else could take is nobody's: it can be imported or forgotten, and who sees its disks one day takes it.
        for Owned { pool, epoch, modified } in pools_of(store, cluster, node).await? {
            let key = Key::Owner(pool).path(cluster);
            let nobody = Owner { epoch, holder: None }.encode().map_err(JoinError::damaged)?;
            steps.push(Step::Put(key.clone(), nobody));
            conditions.push(Condition::Modified(key, modified));
        }
        match store.transact(Transaction { conditions, steps, reads: Vec::new() }).await {
            Ok(outcome) if outcome.done => return Ok(()),
            Ok(_) => {}
            Err(error @ StoreError::Unknown(_)) => last = Some(error),
            Err(error) => return Err(error.into()),
        }
    }
    Err(last.map_or_else(
        || {
            JoinError::new(
                Kind::Away,
                "Other nodes come and go at the same time, again and again.",
                "Try again.",
            )
        },
        JoinError::from,
    ))
}

pub(crate) async fn seats(
    store: &dyn ClusterStore,
    cluster: &ClusterName,
) -> Result<(Revision, Seats), JoinError> {
    let key = Key::EtcdSeats.path(cluster);
    match store.get(Range::Key(key.clone())).await?.found.into_iter().next() {
        None => Ok((Revision(0), Seats::default())),
        Some(found) => {
            let seats =
                Seats::decode(&found.value).map_err(|why| JoinError::damaged(format!("{key}: {why}")))?;
            Ok((found.modified, seats))
        }
    }
}

/// Takes a member out of etcd, by where the others reach it. The last one with a vote gives it to one that has learned first.
async fn remove_member(store: &EtcdStore, peer_url: &str) -> Result<(), JoinError> {
    let mut why = None;
    let trying = async {
        loop {
            let members = match store.members().await {
                Ok(members) => members,
                Err(error) => {
                    why = Some(error);
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let Some(member) =
                members.iter().find(|member| member.peer_urls.iter().any(|url| url == peer_url))
            else {
                return Ok(());
            };
            let other_votes = members.iter().any(|other| other.id != member.id && !other.learner);
            let heir = members.iter().find(|other| other.id != member.id && !other.name.is_empty());
            let done = if other_votes || member.learner {
                store.remove_member(member.id).await
            } else if let Some(heir) = heir {
                store.promote(heir.id).await
            } else {
                return Err(only_member());
            };
            why = done.err().or(why.take());
            tokio::time::sleep(PAUSE).await;
        }
    };
    match tokio::time::timeout(ETCD_PATIENCE, trying).await {
        Ok(ended) => ended,
        Err(_) => Err(JoinError::new(
            Kind::State,
            format!(
                "etcd does not let this node's member go: {}.",
                why.map_or_else(|| "it does not answer".to_owned(), |why| why.to_string())
            ),
            "Too few of its other members may be running: `holdfast cluster status`. Then try again.",
        )),
    }
}
