//! Rules of pools of a cluster that no node serves now: most are on their way from one node to another, and need nothing.
//!
//! What a pool holds cannot be looked into meanwhile, so nothing is said of its redundancy. It is not known, and clients wait: the sentence above all
//! lines says so, and is never better.

use std::collections::BTreeMap;

use control_api::{ClusterMemberState, ClusterPool, ClusterPoolState, ClusterStatus, Issue, Severity};

use crate::apart::not_known_as_cut_off;
use crate::{FindingCode, issue};

/// Seconds that a pool may be on its way without anything being wrong. The longest takeover that was measured took 4.1 s, and 5.1 s with an unoptimised
/// build (docs/results/failover.md); three times as much is left for machines that do much else.
pub const TAKES_AT_MOST: u64 = 15;

/// How what is said of a volume begins whose pool is not served.
const WAITS_FOR: &str = "it waits for pool ";

/// What was seen of a pool.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The node that served it last.
    by: Option<String>,
    /// Since when none has, in seconds by a clock that nobody sets.
    since: Option<u64>,
}

/// Who served pools last, and since when none serves them, as far as they have been looked at.
#[derive(Clone, Debug, Default)]
pub struct UnservedWatch(BTreeMap<String, Seen>);

impl UnservedWatch {
    /// Looks at all pools, and says of those that are not served from which node they come and for how long they have waited. `now` is in seconds, by a
    /// clock that nobody sets.
    pub fn look(&mut self, now: u64, pools: &mut [ClusterPool]) {
        self.0.retain(|name, _| pools.iter().any(|pool| pool.name == *name));
        for pool in pools {
            let seen = self.0.entry(pool.name.clone()).or_default();
            (pool.from, pool.waits_seconds) = (None, None);
            match pool.state {
                ClusterPoolState::Online => *seen = Seen { by: pool.owner.clone(), since: None },
                // It may be served: nothing that was seen before changes by that.
                ClusterPoolState::Unknown => {}
                ClusterPoolState::Unowned | ClusterPoolState::Silent | ClusterPoolState::Moving => {
                    let since = *seen.since.get_or_insert(now);
                    pool.waits_seconds = Some(now.saturating_sub(since));
                    pool.from = seen.by.clone().filter(|by| pool.owner.as_ref() != Some(by));
                }
            }
        }
    }
}

/// Whether a node that is there can take the pool, as far as is known.
fn can_be_taken(cluster: &ClusterStatus, pool: &ClusterPool) -> bool {
    let sees = |name: &String| pool.can_serve.as_ref().is_none_or(|can| can.contains(name));
    let takes = |node: &control_api::ClusterMember| {
        node.state == ClusterMemberState::Up
            && sees(&node.name)
            && (pool.state != ClusterPoolState::Silent || pool.owner.as_ref() != Some(&node.name))
    };
    !cluster.store_unreadable && cluster.nodes.iter().any(takes)
}

/// Where a pool is that is not served, as the end of a sentence that begins with it.
fn whereabouts(cluster: &ClusterStatus, pool: &ClusterPool, reason: Option<&str>) -> String {
    let taken = can_be_taken(cluster, pool);
    let is_up = |name: &str| {
        cluster.nodes.iter().any(|node| node.name == name && node.state > ClusterMemberState::Silent)
    };
    if let Some(with) = with_away(pool) {
        return format!("is served by no node: its disks are with {with}");
    }
    match (pool.state, pool.owner.as_deref(), pool.from.as_deref(), reason) {
        (ClusterPoolState::Moving, Some(owner), _, Some(why)) => {
            format!("is with node {owner}, which could not open it when it last tried ({why})")
        }
        (_, _, _, Some(why)) => format!("is served by no node ({why})"),
        (ClusterPoolState::Moving, Some(owner), Some(from), None) => {
            format!("is on its way from {from} to {owner}")
        }
        (ClusterPoolState::Moving, Some(owner), None, None) => {
            format!("is being opened or closed by node {owner}")
        }
        (ClusterPoolState::Silent, Some(owner), _, None) if is_up(owner) => {
            format!("was with a process of node {owner} that has ended, and goes to that node or another one")
        }
        (ClusterPoolState::Silent, Some(owner), _, None) if taken => {
            format!("is on its way from {owner} to another node")
        }
        (ClusterPoolState::Silent, Some(owner), _, None) => {
            format!("is served by no node, as {owner} is not heard of and no other one can take it now")
        }
        (_, _, Some(from), None) if taken => format!("is on its way from {from} to another node"),
        (_, _, None, None) if taken => "has no node now, and is on its way to one".to_owned(),
        _ if pool.can_serve.as_ref().is_some_and(Vec::is_empty) => {
            "has no node now, as none can open it".to_owned()
        }
        _ => "has no node now, and none can take it".to_owned(),
    }
}

/// The nodes that are away with the pool's disks, as the end of a sentence; none where there is no such node.
fn with_away(pool: &ClusterPool) -> Option<String> {
    match pool.with_away.as_slice() {
        [] => None,
        [node] => Some(format!("node {node}, which is away")),
        nodes => Some(format!("nodes {}, which are away", nodes.join(", "))),
    }
}

/// Whether a pool is merely being opened, or goes to where it will be: it is there again in a moment, and nobody has to do anything.
fn is_on_its_way(cluster: &ClusterStatus, pool: &ClusterPool) -> bool {
    let is_late = pool.waits_seconds.is_some_and(|seconds| seconds >= TAKES_AT_MOST);
    let comes = pool.state == ClusterPoolState::Moving
        || can_be_taken(cluster, pool)
        || is_started_again(cluster, pool);
    !is_late && comes && pool.reason.is_none() && pool.with_away.is_empty()
}

/// Whether the process that had the pool has ended, and its node has begun anew: it takes the pool back as soon as it can open it.
fn is_started_again(cluster: &ClusterStatus, pool: &ClusterPool) -> bool {
    let is_owner = |node: &control_api::ClusterMember| pool.owner.as_ref() == Some(&node.name);
    let is_there = |node: &control_api::ClusterMember| node.state > ClusterMemberState::Silent;
    pool.state == ClusterPoolState::Silent
        && cluster.nodes.iter().any(|node| is_owner(node) && is_there(node))
}

/// What is to be done: nothing while it takes no longer than it may.
fn todo(cluster: &ClusterStatus, pool: &ClusterPool) -> String {
    let is_late = pool.waits_seconds.is_some_and(|seconds| seconds >= TAKES_AT_MOST);
    let moves = pool.state == ClusterPoolState::Moving;
    match &pool.owner {
        _ if !pool.with_away.is_empty() => {
            let nodes = pool.with_away.join(", ");
            format!("Bring {nodes} back: what the pool holds is there, and it is served again by itself then. `holdfast cluster status` shows who is away.")
        }
        _ if pool.reason.is_some() => {
            "It is tried again by itself; `holdfast status` of the node that tries says what is in its way.".to_owned()
        }
        _ if !moves && !can_be_taken(cluster, pool) && !is_started_again(cluster, pool) => {
            "Start the nodes that are away, or resume those that are paused: `holdfast cluster status` names them.".to_owned()
        }
        Some(owner) if is_late && moves => format!(
            "This takes longer than the {TAKES_AT_MOST} s that it may. Look at node {owner}: its log says what the pool waits for there; `holdfast cluster status` says how far it is."
        ),
        _ if is_late => format!(
            "This takes longer than the {TAKES_AT_MOST} s that it may. `holdfast cluster status` says who is away; the logs of the nodes that are up say what keeps them from it."
        ),
        _ => "Nothing needs to be done: it goes on by itself, within seconds.".to_owned(),
    }
}

fn unserved(cluster: &ClusterStatus) -> impl Iterator<Item = &ClusterPool> {
    cluster.pools.iter().filter(|pool| pool.is_unserved())
}

/// How bad it is: clients wait for a moment, or until somebody does something.
fn severity(cluster: &ClusterStatus, pool: &ClusterPool) -> Severity {
    if is_on_its_way(cluster, pool) { Severity::Warning } else { Severity::Critical }
}

/// Pools that no node serves: nothing of them can be read or written now, also where that is over in a moment.
pub fn of_unserved(cluster: &ClusterStatus) -> Vec<Issue> {
    let told = |pool: &ClusterPool| {
        let place = whereabouts(cluster, pool, pool.reason.as_deref());
        let detail = format!("it {place}: its volumes wait");
        let subject = format!("pool {}", pool.name);
        issue(FindingCode::PoolUnserved, severity(cluster, pool), subject, detail, todo(cluster, pool))
    };
    unserved(cluster).map(told).collect()
}

/// Why the volumes of a pool that no node serves wait.
#[must_use]
pub fn why_waiting(cluster: &ClusterStatus, pool: &ClusterPool) -> String {
    format!("{WAITS_FOR}{}, which {}", pool.name, whereabouts(cluster, pool, None))
}

/// The volumes of those pools, as far as they are known.
pub fn of_waiting_volumes(cluster: &ClusterStatus) -> Vec<Issue> {
    let told = |pool: &ClusterPool| {
        let detail = why_waiting(cluster, pool);
        let of = |volume: &String| {
            let subject = format!("volume {volume}");
            let todo = "It is open again when its pool is.";
            issue(FindingCode::VolumeClosed, severity(cluster, pool), subject, detail.clone(), todo)
        };
        pool.volumes.iter().map(of).collect::<Vec<_>>()
    };
    unserved(cluster).flat_map(told).collect()
}

/// Whether an issue is one of these rules: about a pool that no node serves, or a volume that waits for such a pool.
#[must_use]
pub fn is_of_unserved(issue: &Issue) -> bool {
    issue.code == FindingCode::PoolUnserved.name()
        || (issue.code == FindingCode::VolumeClosed.name() && issue.detail.starts_with(WAITS_FOR))
}

/// Each pool that no node serves, as a part of the sentence above all lines.
#[must_use]
pub fn waits(cluster: &ClusterStatus) -> Vec<String> {
    let told = |pool: &ClusterPool| {
        format!("pool {} {}: its volumes wait", pool.name, whereabouts(cluster, pool, None))
    };
    unserved(cluster).map(told).collect()
}

/// What is not known of pools of a cluster, as parts of the sentence above all lines. `mute` are nodes that have not answered what they were asked.
#[must_use]
pub fn not_known<'a>(
    cluster: &ClusterStatus,
    pools: impl IntoIterator<Item = &'a ClusterPool>,
    mute: &[String],
) -> Vec<String> {
    if !cluster.cut_off.is_empty() {
        return not_known_as_cut_off(cluster, &cluster.pools).into_iter().collect();
    }
    let mut of_nodes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut told = Vec::new();
    for pool in pools {
        if pool.state == ClusterPoolState::Online {
            // It was not noticed yet that they are gone, or they are there.
            let nodes = pool.disk_nodes.iter().filter(|node| mute.contains(node));
            told.extend(nodes.map(|node| {
                format!(
                    "node {node} does not answer: whether the disks that it has of {} are there is not known",
                    pool.name
                )
            }));
        }
        if pool.state != ClusterPoolState::Unknown {
            continue;
        }
        match pool.owner.as_ref().filter(|owner| mute.contains(owner)) {
            Some(owner) => of_nodes.entry(owner).or_default().push(&pool.name),
            None => told.push(format!("how it is with {} is not known", pool.name)),
        }
    }
    let of_node = |(node, pools): (&str, Vec<&str>)| {
        format!("node {node} does not answer: how it is with {} is not known", pools.join(", "))
    };
    of_nodes.into_iter().map(of_node).chain(told).collect()
}

#[cfg(test)]
mod tests;
