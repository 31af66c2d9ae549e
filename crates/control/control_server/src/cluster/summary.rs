//! The cluster in sentences: who owns what, who is away, and what a further loss would do.

use control_api::{
    ClusterMember, ClusterMemberState, ClusterPool, ClusterPoolState, ClusterStatus, EtcdAlarm,
    EtcdAlarmKind, many,
};

fn names<'a>(items: impl Iterator<Item = &'a str>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// Of a node that is apart from the others.
pub(super) fn apart(shown: &ClusterStatus) -> Vec<String> {
    if shown.removed {
        return vec![
            "The cluster has removed this node: nothing of the cluster is served here.".to_owned(),
            "`holdfast cluster leave` makes it a node on its own, which may join again.".to_owned(),
        ];
    }
    let word = if shown.cut_off.len() == 1 { "node" } else { "nodes" };
    let mut told = vec![format!(
        "This node is cut off: it reaches neither etcd nor {word} {}. What they serve is not known here; they may have its pools.",
        shown.cut_off.join(", ")
    )];
    let in_state = |online: bool| {
        shown.pools.iter().filter(move |pool| (pool.state == ClusterPoolState::Online) == online)
    };
    if in_state(true).next().is_some() {
        told.push(format!("Served here still: {}.", names(in_state(true).map(|pool| pool.name.as_str()))));
    }
    if in_state(false).next().is_some() {
        told.push(format!("Not known: {}.", names(in_state(false).map(|pool| pool.name.as_str()))));
    }
    told
}

/// What an alarm of etcd means.
pub(super) fn told_of_alarm(alarm: &EtcdAlarm) -> String {
    let told = match alarm.kind {
        EtcdAlarmKind::Full => "etcd takes no changes, as a database of its has reached its quota",
        EtcdAlarmKind::Damaged => "etcd answers nothing, as the databases of its members differ",
    };
    format!("{told}: nothing is taken over, and nothing can be changed. `holdfast status` says what to do.")
}

/// Who owns what, who is away, and what a further loss would do.
pub(super) fn summary(
    pools: &[ClusterPool],
    nodes: &[ClusterMember],
    readable: bool,
    runs_etcd: bool,
) -> Vec<String> {
    let mut told = Vec::new();
    for node in nodes {
        // What a process of it had that has ended is not its own any more.
        let has = |pool: &&ClusterPool| {
            pool.owner.as_deref() == Some(&node.name)
                && (pool.state != ClusterPoolState::Silent || node.state <= ClusterMemberState::Silent)
        };
        let own: Vec<&str> = pools.iter().filter(has).map(|pool| pool.name.as_str()).collect();
        let what = if own.is_empty() { "has no pools".to_owned() } else { format!("has {}", own.join(", ")) };
        told.push(match node.state {
            ClusterMemberState::Up => format!("Node {} is up and {what}.", node.name),
            ClusterMemberState::Paused => format!("Node {} is paused and {what}.", node.name),
            ClusterMemberState::Draining if own.is_empty() => {
                format!("Node {} has given its pools away, and takes none.", node.name)
            }
            ClusterMemberState::Draining => format!("Node {} gives its pools away; it {what}.", node.name),
            ClusterMemberState::Silent => format!("Node {} is not heard of; it {what}.", node.name),
            ClusterMemberState::Away => format!("Node {} is away.", node.name),
        });
    }
    let unserved: Vec<&ClusterPool> = pools.iter().filter(|pool| pool.is_unserved()).collect();
    if !unserved.is_empty() {
        told.push(format!("Not served now: {}.", names(unserved.iter().map(|pool| pool.name.as_str()))));
    }
    let unknown: Vec<&ClusterPool> =
        pools.iter().filter(|pool| pool.state == ClusterPoolState::Unknown).collect();
    if !unknown.is_empty() {
        told.push(format!("Not known: {}.", names(unknown.iter().map(|pool| pool.name.as_str()))));
    }
    if !readable {
        told.push(
            "The shared state (etcd) cannot be read here: this node can take nothing over until it can, and a node that cannot read it serves its pools only while all other members answer it. Start the nodes that are away."
                .to_owned(),
        );
        return told;
    }
    let up = nodes.iter().filter(|node| node.state == ClusterMemberState::Up).count();
    let there = nodes.iter().filter(|node| node.state > ClusterMemberState::Silent).count();
    told.push(match (nodes.len(), up) {
        // The nodes' own etcd has a vote on each of three nodes, and on the first one of two.
        (3, 1..) if runs_etcd && there < 3 => {
            "If a further node is lost, etcd has no majority: nothing is taken over, and service ends until a node is back."
                .to_owned()
        }
        // Where two were three before, both have a vote.
        (2, 2) if runs_etcd => {
            "If a node is lost that has a vote in etcd (the first one; both, where there were three nodes before), the other one cannot take over, and serves only what it has until that is back: a third node, on any small host, ends that."
                .to_owned()
        }
        (_, up) => further_loss(up),
    });
    told
}

fn further_loss(up: usize) -> String {
    match up {
        0 => "No node takes pools.".to_owned(),
        1 => "No other node can take over: a further loss ends service.".to_owned(),
        _ => {
            format!("If a node is lost, the others take its pools over: {} can.", many(up as u64 - 1, "node"))
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn node(number: u16, state: ClusterMemberState) -> ClusterMember {
        ClusterMember {
            name: format!("n{number}"),
            number,
            state,
            beat_age_ms: Some(1),
            pools: 0,
            addresses: Vec::new(),
            api: String::new(),
            release: String::new(),
            trouble: None,
        }
    }

    #[test]
    fn the_summary_says_what_a_further_loss_would_do() {
        let pool = ClusterPool {
            name: "p".into(),
            guid: Uuid::nil(),
            owner: Some("n1".into()),
            epoch: 3,
            state: ClusterPoolState::Online,
            address: None,
            reason: None,
            from: None,
            waits_seconds: None,
            volumes: Vec::new(),
        };
        let (up, away) = (ClusterMemberState::Up, ClusterMemberState::Away);
        let all =
            summary(std::slice::from_ref(&pool), &[node(1, up), node(2, up), node(3, away)], true, false);
        assert_eq!(
            all,
            [
                "Node n1 is up and has p.",
                "Node n2 is up and has no pools.",
                "Node n3 is away.",
                "If a node is lost, the others take its pools over: 1 node can."
            ]
        );
        let own =
            summary(std::slice::from_ref(&pool), &[node(1, up), node(2, up), node(3, away)], true, true);
        assert!(own.iter().any(|told| told.contains("no majority")), "{own:?}");
        let (drained, still) =
            (node(1, ClusterMemberState::Draining), "Node n1 gives its pools away; it has p.");
        let told = |pools: &[ClusterPool]| summary(pools, &[drained.clone(), node(2, up)], true, false);
        assert_eq!(told(std::slice::from_ref(&pool))[0], still);
        assert_eq!(told(&[])[0], "Node n1 has given its pools away, and takes none.");
        let moving = ClusterPool { state: ClusterPoolState::Moving, ..pool };
        let alone = summary(&[moving], &[node(1, up), node(2, away)], false, true);
        assert!(alone.iter().any(|told| told.contains("Not served now: p")), "{alone:?}");
        assert!(alone.iter().any(|told| told.contains("etcd")), "{alone:?}");
        let alone = summary(&[], &[node(1, up), node(2, away)], true, false);
        assert!(alone.iter().any(|told| told.contains("ends service")), "{alone:?}");
    }
}
