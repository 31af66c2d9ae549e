//! The status of all nodes as one: of one picture, never better than the worst of them, or than what is not known.

use control_api::{
    ClusterMemberState, ClusterPoolState, ClusterStatus, CountedPool, Counts, Issue, RedundancyState,
    Severity, Status, UncountedPool, Verdict,
};
use health_rules::{FindingCode, Known, issue};
use serde_json::Value;

use super::picture;
use crate::node::Node;

/// The status of the node that is asked, with what the others have told, and what those did not tell that are silent.
pub(super) fn merged(node: &Node, own: Value, others: Vec<(String, Value)>, silent: &[String]) -> Value {
    let Ok(own) = serde_json::from_value::<Status>(own.clone()) else { return own };
    // One of another release may say it in another way.
    let told = others.into_iter().map(|(name, status)| {
        serde_json::from_value::<Status>(status).map_err(|_| name.clone()).map(|told| (name, told))
    });
    let (mut heard, mut mute) = (Vec::new(), silent.to_vec());
    for each in told {
        match each {
            Ok(told) => heard.push(told),
            Err(name) => mute.push(name),
        }
    }
    let place = node.place();
    let sum_up = |cluster: &mut ClusterStatus| {
        if let Some(place) = &place {
            place.sum_up(cluster);
        }
    };
    let all = together(own, heard, &mute, &sum_up);
    tracing::trace!(node = %node.name(), verdict = ?all.verdict, "status of all nodes");
    serde_json::to_value(all).unwrap_or_default()
}

/// What all have told. `mute` are the nodes that have not; `sum_up` says in sentences how it is with the cluster.
fn together(
    mut own: Status,
    others: Vec<(String, Status)>,
    mute: &[String],
    sum_up: &dyn Fn(&mut ClusterStatus),
) -> Status {
    // Who is cut off hears of nobody: that is told of it, and not of each of the others.
    let is_cut_off = own.cluster.as_ref().is_some_and(|cluster| !cluster.cut_off.is_empty());
    let mute = if is_cut_off { &[] } else { mute };
    let redundancy = others.iter().map(|(_, status)| status).chain([&own]).filter_map(redundancy_of).min();
    let views: Vec<&ClusterStatus> =
        others.iter().filter_map(|(_, status)| status.cluster.as_ref()).collect();
    let mut cluster = own.cluster.as_ref().map(|cluster| picture::merged(cluster, &views, mute));
    if let Some(cluster) = &mut cluster {
        sum_up(cluster);
    }
    let empty = own.counts.pools == 0 && others.iter().all(|(_, status)| status.counts.pools == 0);
    total(&mut own, &others, cluster.as_ref(), mute);
    // Who is away, and which pools no node serves, each node has said of what it saw; here it is said of the one picture.
    let has_picture = cluster.is_some();
    let is_said_anew = |issue: &Issue| has_picture && is_of_the_picture(issue);
    let gone: Vec<&String> = {
        let views = own.cluster.iter().chain(others.iter().filter_map(|(_, status)| status.cluster.as_ref()));
        let nodes: Vec<_> = views.flat_map(|view| &view.nodes).collect();
        let is_gone = |name: &&String| {
            nodes.iter().any(|node| node.name == **name && node.state <= ClusterMemberState::Silent)
        };
        mute.iter().filter(is_gone).collect()
    };
    let not_gone: Vec<String> = mute.iter().filter(|name| !gone.contains(name)).cloned().collect();
    let (mut seen, kept): (Vec<Issue>, Vec<Issue>) = own.issues.into_iter().partition(is_said_anew);
    own.issues = kept;
    for (name, other) in others {
        for issue in other.issues {
            if is_said_anew(&issue) {
                merge(&mut seen, &name, issue, |known, issue| {
                    (&known.code, &known.subject) == (&issue.code, &issue.subject)
                });
            } else {
                merge(&mut own.issues, &name, issue, |known, issue| {
                    known.subject == issue.subject && known.detail == issue.detail
                });
            }
        }
        for mut job in other.jobs {
            job.subject = format!("{} on node {name}", job.subject);
            own.jobs.push(job);
        }
    }
    if let Some(cluster) = &cluster {
        let mut told = health_rules::of_nodes_seen(cluster);
        // Of those whose signs of life are heard of it is not known that they are away.
        let is_silent_only = |issue: &Issue| {
            issue.code == FindingCode::NodeAway.name()
                && not_gone.iter().any(|name| issue.subject == format!("node {name}"))
        };
        told.retain(|issue| !is_silent_only(issue));
        told.extend(health_rules::of_unserved(cluster));
        told.extend(health_rules::of_waiting_volumes(cluster));
        own.issues.extend(told.into_iter().map(|issue| with_what_is_known(issue, &seen)));
    }
    own.issues.extend(not_gone.iter().map(|name| of_mute(name, cluster.as_ref())));
    health_rules::sort(&mut own.issues);
    let waits = cluster.as_ref().map(health_rules::waits).unwrap_or_default();
    let not_known = cluster.as_ref().map(|cluster| health_rules::not_known(cluster, &cluster.pools, mute));
    let not_known = not_known.unwrap_or_default();
    let removed = cluster.as_ref().is_some_and(|cluster| cluster.removed);
    let known = Known { ready: own.ready, empty, removed, redundancy, waits: &waits, not_known: &not_known };
    (own.verdict, own.summary) = health_rules::headline(&known, &own.issues);
    (own.redundancy, own.cluster) = (redundancy, cluster);
    own
}

/// The worst redundancy of what a node has open; one of an earlier release says it by its verdict.
fn redundancy_of(status: &Status) -> Option<RedundancyState> {
    if status.redundancy.is_some() || !is_earlier(status) {
        return status.redundancy;
    }
    match status.verdict {
        Verdict::Unavailable => Some(RedundancyState::Unavailable),
        Verdict::Reduced => Some(RedundancyState::Reduced),
        Verdict::Restoring => Some(RedundancyState::Restoring),
        Verdict::FullyRedundant => Some(RedundancyState::Full),
        Verdict::Empty => None,
    }
}

/// Whether a node is of a release that does not say which pools its totals are of.
fn is_earlier(status: &Status) -> bool {
    status.counted.is_empty() && status.counts.disks > 0
}

/// Whether an issue is said anew of what all nodes have told together.
fn is_of_the_picture(issue: &Issue) -> bool {
    let of_nodes =
        [FindingCode::NodeAway, FindingCode::QuorumThin, FindingCode::NodeCutOff, FindingCode::NodeRemoved];
    health_rules::is_of_unserved(issue) || of_nodes.iter().any(|code| issue.code == code.name())
}

/// What nodes have in their books of an issue that is said anew.
fn with_what_is_known(issue: Issue, seen: &[Issue]) -> Issue {
    let known = seen.iter().find(|known| (&known.code, &known.subject) == (&issue.code, &issue.subject));
    match known {
        Some(known) => {
            let acknowledged = known.acknowledged.clone().filter(|_| known.severity == issue.severity);
            Issue { id: known.id.clone(), since: known.since, acknowledged, ..issue }
        }
        None => issue,
    }
}

/// Takes what another node says up among what is said already.
fn merge(into: &mut Vec<Issue>, name: &str, issue: Issue, is_same: impl Fn(&Issue, &Issue) -> bool) {
    match into.iter_mut().find(|known| is_same(known, &issue)) {
        // Whoever knows of it knows of what all nodes see, and it is there since the first of them saw it.
        Some(known) => {
            known.since = known.since.into_iter().chain(issue.since).min();
            // Who knows of a line knows of nothing worse than that.
            let worst = known.severity.min(issue.severity);
            if known.severity != worst {
                (known.severity, known.acknowledged) = (worst, None);
            }
            if known.acknowledged.is_none() && issue.acknowledged.is_some() && issue.severity == worst {
                // It is taken back where it was said.
                (known.id, known.acknowledged) = (id_at(name, &issue.id), issue.acknowledged);
            }
        }
        None => {
            let id = id_at(name, &issue.id);
            let subject =
                if is_of_the_picture(&issue) { issue.subject } else { of_node(name, issue.subject) };
            into.push(Issue { id, subject, ..issue });
        }
    }
}

/// A node that has not answered, though it takes part as far as is known.
fn of_mute(name: &str, cluster: Option<&ClusterStatus>) -> Issue {
    let unknown = |pool: &&control_api::ClusterPool| {
        pool.owner.as_deref() == Some(name) && pool.state == ClusterPoolState::Unknown
    };
    let pools = cluster.into_iter().flat_map(|cluster| &cluster.pools).filter(unknown);
    let pools: Vec<&str> = pools.map(|pool| pool.name.as_str()).collect();
    let (severity, detail) = if pools.is_empty() {
        (Severity::Warning, "it does not answer; it has no pools".to_owned())
    } else {
        let pools = pools.join(", ");
        (Severity::Error, format!("it does not answer; what is wrong with its pools ({pools}) is not shown"))
    };
    let todo = format!(
        "Ask again; if that stays so, look at node {name} itself. `holdfast cluster status` says whether the others hear of it."
    );
    issue(FindingCode::NodeSilent, severity, format!("node {name}"), detail, todo)
}

/// The totals over all nodes: each pool once, as its last owner has told of it, and none that is not served by anybody as far as is known.
fn total(own: &mut Status, others: &[(String, Status)], cluster: Option<&ClusterStatus>, mute: &[String]) {
    let pools = || cluster.into_iter().flat_map(|cluster| &cluster.pools);
    let mut counted: Vec<CountedPool> = Vec::new();
    for pool in others.iter().map(|(_, status)| status).chain([&*own]).flat_map(|status| &status.counted) {
        match counted.iter_mut().find(|known| known.pool == pool.pool) {
            Some(known) if known.epoch < pool.epoch => *known = pool.clone(),
            Some(_) => {}
            None => counted.push(pool.clone()),
        }
    }
    counted.retain(|pool| {
        pools().all(|known| known.name != pool.pool || known.state == ClusterPoolState::Online)
    });
    counted.sort_by(|a, b| a.pool.cmp(&b.pool));
    // A node of an earlier release says one figure for all that it has.
    let earlier: Vec<(&str, &Status)> = others
        .iter()
        .map(|(name, status)| (name.as_str(), status))
        .chain([(own.node.as_str(), &*own)])
        .filter(|(_, status)| is_earlier(status))
        .collect();
    let is_counted = |pool: &control_api::ClusterPool| {
        let by_earlier = |owner: &String| earlier.iter().any(|(name, _)| *name == owner.as_str());
        counted.iter().any(|known| known.pool == pool.name) || pool.owner.as_ref().is_some_and(by_earlier)
    };
    let is_cut_off = cluster.is_some_and(|cluster| !cluster.cut_off.is_empty());
    let why = |pool: &control_api::ClusterPool| match (pool.state, &pool.owner) {
        (ClusterPoolState::Unknown, _) if is_cut_off => "this node is cut off".to_owned(),
        (ClusterPoolState::Unknown, Some(owner)) if mute.contains(owner) => {
            format!("node {owner} does not answer")
        }
        (ClusterPoolState::Unknown, _) => "it is not known which node has it".to_owned(),
        (ClusterPoolState::Online, Some(owner)) => format!("node {owner} has not told of it"),
        _ => "no node serves it now".to_owned(),
    };
    let not = pools().filter(|pool| !is_counted(pool));
    let not_counted = not.map(|pool| UncountedPool { pool: pool.name.clone(), why: why(pool) }).collect();
    let sum = |of_pool: fn(&CountedPool) -> u64, of_earlier: fn(&Status) -> u64| -> u64 {
        let earlier: u64 = earlier.iter().map(|(_, status)| of_earlier(status)).sum();
        counted.iter().map(of_pool).sum::<u64>() + earlier
    };
    let disks = sum(|pool| pool.disks, |status| status.counts.disks);
    let volumes = sum(|pool| pool.volumes, |status| status.counts.volumes);
    let capacity = sum(|pool| pool.capacity_bytes, |status| status.capacity_bytes);
    let free = sum(|pool| pool.free_bytes, |status| status.free_bytes);
    let counts = others.iter().fold(own.counts, |counts, (_, status)| both(counts, status.counts));
    own.counts = Counts { disks, volumes, ..counts };
    (own.capacity_bytes, own.free_bytes) = (capacity, free);
    (own.counted, own.not_counted) = (counted, not_counted);
}

/// The id of a finding of another node; none where it has none.
fn id_at(node: &str, id: &str) -> String {
    if id.is_empty() { String::new() } else { format!("{node}:{id}") }
}

/// What an issue is about, where it is about something that each node has of its own.
fn of_node(node: &str, subject: String) -> String {
    let common = ["pool ", "volume ", "lun ", "share ", "disk ", "node ", "nodes ", "clocks of nodes "];
    if common.iter().any(|word| subject.starts_with(word)) {
        subject
    } else {
        format!("node {node}, {subject}")
    }
}

/// Pools, targets, LUNs and shares are in the configuration of all; what is in use, and open, each node counts of its own. Disks and volumes are counted
/// with their pools.
fn both(a: Counts, b: Counts) -> Counts {
    let luns = a.luns.max(b.luns);
    let shares = a.shares.max(b.shares);
    Counts {
        pools: a.pools.max(b.pools),
        targets: a.targets.max(b.targets),
        luns,
        luns_online: luns.min(a.luns_online + b.luns_online),
        sessions: a.sessions + b.sessions,
        shares,
        shares_online: shares.min(a.shares_online + b.shares_online),
        ..a
    }
}

#[cfg(test)]
mod tests;
