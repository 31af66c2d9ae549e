//! How it is with the cluster, in sentences: who owns what, who is away, and what a further loss would do.

use control_api::{
    ClusterMember, ClusterMemberState, ClusterPool, ClusterPoolState, ClusterStatus, EtcdAlarm,
    EtcdAlarmKind, many,
};

/// All sentences. `runs_etcd`: the nodes run it themselves.
pub(super) fn summary(of: &ClusterStatus, runs_etcd: bool) -> Vec<String> {
    let mut told: Vec<String> = of.nodes.iter().map(|node| of_node(of, node)).collect();
    let named = |pools: Vec<&ClusterPool>| names(pools.iter().map(|pool| pool.name.as_str()));
    let unserved: Vec<&ClusterPool> = of.pools.iter().filter(|pool| pool.is_unserved()).collect();
    if !unserved.is_empty() {
        told.push(format!("Not served now: {}.", named(unserved)));
    }
    let unknown: Vec<&ClusterPool> =
        of.pools.iter().filter(|pool| pool.state == ClusterPoolState::Unknown).collect();
    if !unknown.is_empty() {
        told.push(format!("Not known: {}.", named(unknown)));
    }
    if of.store_unreadable {
        told.push(
            "The shared state (etcd) cannot be read here: this node can take nothing over until it can, and a node that cannot read it serves its pools only while all other members answer it. Start the nodes that are away."
                .to_owned(),
        );
        return told;
    }
    told.push(of_loss(of, runs_etcd));
    told.extend(of_pools_without_others(of));
    told
}

fn names<'a>(items: impl Iterator<Item = &'a str>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

fn of_node(of: &ClusterStatus, node: &ClusterMember) -> String {
    // What a process of it had that has ended is not its own any more.
    let has = |pool: &&ClusterPool| {
        pool.owner.as_deref() == Some(&node.name)
            && (pool.state != ClusterPoolState::Silent || node.state <= ClusterMemberState::Silent)
    };
    let own: Vec<&ClusterPool> = of.pools.iter().filter(has).collect();
    let has_what = |pools: &[&ClusterPool]| match pools {
        [] => "has no pools".to_owned(),
        pools => format!("has {}", names(pools.iter().map(|pool| pool.name.as_str()))),
    };
    let what = has_what(&own);
    let (stay, go): (Vec<&ClusterPool>, Vec<&ClusterPool>) =
        own.iter().partition(|pool| !has_other_taker(of, pool));
    let name = &node.name;
    match node.state {
        ClusterMemberState::Up => format!("Node {name} is up and {what}."),
        ClusterMemberState::Paused => format!("Node {name} is paused and {what}."),
        ClusterMemberState::Draining if own.is_empty() => {
            format!("Node {name} has given its pools away, and takes none.")
        }
        ClusterMemberState::Draining if !stay.is_empty() => {
            let gives = if go.is_empty() { "is drained" } else { "gives its pools away" };
            let kept = names(stay.iter().map(|pool| pool.name.as_str()));
            format!("Node {name} {gives}, and keeps {kept}: no node that takes pools can open it.")
        }
        ClusterMemberState::Draining => format!("Node {name} gives its pools away; it {what}."),
        ClusterMemberState::Silent => format!("Node {name} is not heard of; it {what}."),
        ClusterMemberState::Away => format!("Node {name} is away."),
    }
}

/// Whether a node that takes pools, other than its owner, can open a pool, as far as is known.
fn has_other_taker(of: &ClusterStatus, pool: &ClusterPool) -> bool {
    let Some(can) = &pool.can_serve else { return true };
    let takes = |name: &String| {
        let is_up = |node: &ClusterMember| node.name == *name && node.state == ClusterMemberState::Up;
        pool.owner.as_ref() != Some(name) && of.nodes.iter().any(is_up)
    };
    can.iter().any(takes)
}

fn of_loss(of: &ClusterStatus, runs_etcd: bool) -> String {
    let nodes = &of.nodes;
    let up = nodes.iter().filter(|node| node.state == ClusterMemberState::Up).count();
    let there = nodes.iter().filter(|node| node.state > ClusterMemberState::Silent).count();
    match (nodes.len(), up) {
        // The nodes' own etcd has a vote on each of three nodes, and on the first one of two.
        (3, 1..) if runs_etcd && there < 3 => {
            "If a further node is lost, etcd has no majority: nothing is taken over, and service ends until a node is back."
                .to_owned()
        }
        (3.., 2..) if runs_etcd && of.etcd_voters.is_some_and(|voters| voters < 3) => format!(
            "etcd has {} so far: if a node is lost that has one, nothing is taken over, and service ends until it is back. Nodes that have joined get a vote by themselves, as soon as their etcd has all that the others have.",
            many(of.etcd_voters.unwrap_or(0), "vote")
        ),
        // Where two were three before, both have a vote.
        (2, 2) if runs_etcd => {
            "If a node is lost that has a vote in etcd (the first one; both, where there were three nodes before), the other one cannot take over, and serves only what it has until that is back: a third node, on any small host, ends that."
                .to_owned()
        }
        (_, 0) => "No node takes pools.".to_owned(),
        (_, 1) => "No other node can take over: a further loss ends service.".to_owned(),
        (_, up) => {
            let others = many(up as u64 - 1, "node");
            let served: Vec<&ClusterPool> = of.pools.iter().filter(|pool| !pool.is_unserved()).collect();
            if !served.is_empty() && served.iter().all(|pool| !has_other_taker(of, pool)) {
                return "If a node is lost, no other one can take its pools over.".to_owned();
            }
            format!("If a node is lost, the others take its pools over: {others} can.")
        }
    }
}

/// Pools that are lost to their clients with their node, as no other one can open them.
fn of_pools_without_others(of: &ClusterStatus) -> Vec<String> {
    if of.nodes.iter().filter(|node| node.state > ClusterMemberState::Silent).count() < 2 {
        return Vec::new();
    }
    let told = |pool: &ClusterPool| match (pool.can_serve.as_deref()?, pool.owner.as_ref()?) {
        ([only], owner) if only == owner && !pool.is_unserved() => Some(format!(
            "Only node {only} can serve {}: no other one can open it. If {only} is lost, it is not served until {only} is back.",
            pool.name
        )),
        _ => None,
    };
    of.pools.iter().filter_map(told).collect()
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

    fn pool(state: ClusterPoolState) -> ClusterPool {
        ClusterPool {
            name: "p".into(),
            guid: Uuid::nil(),
            owner: Some("n1".into()),
            epoch: 3,
            state,
            address: None,
            reason: None,
            from: None,
            waits_seconds: None,
            can_serve: None,
            with_away: Vec::new(),
            disk_nodes: Vec::new(),
            volumes: Vec::new(),
        }
    }

    fn cluster(pools: &[ClusterPool], nodes: &[ClusterMember]) -> ClusterStatus {
        ClusterStatus {
            cluster: "c".into(),
            node: "n1".into(),
            takes_part: true,
            trouble: None,
            store_went_back: None,
            store_unreadable: false,
            removed: false,
            cut_off: Vec::new(),
            etcd: Vec::new(),
            etcd_voters: None,
            etcd_alarms: Vec::new(),
            summary: Vec::new(),
            pools: pools.to_vec(),
            nodes: nodes.to_vec(),
        }
    }

    const UP: ClusterMemberState = ClusterMemberState::Up;
    const AWAY: ClusterMemberState = ClusterMemberState::Away;

    #[test]
    fn the_summary_says_what_a_further_loss_would_do() {
        let pool = pool(ClusterPoolState::Online);
        let of = cluster(std::slice::from_ref(&pool), &[node(1, UP), node(2, UP), node(3, AWAY)]);
        assert_eq!(
            summary(&of, false),
            [
                "Node n1 is up and has p.",
                "Node n2 is up and has no pools.",
                "Node n3 is away.",
                "If a node is lost, the others take its pools over: 1 node can."
            ]
        );
        let own = summary(&of, true);
        assert!(own.iter().any(|told| told.contains("no majority")), "{own:?}");
        let (drained, still) =
            (node(1, ClusterMemberState::Draining), "Node n1 gives its pools away; it has p.");
        let told = |pools: &[ClusterPool]| summary(&cluster(pools, &[drained.clone(), node(2, UP)]), false);
        assert_eq!(told(std::slice::from_ref(&pool))[0], still);
        assert_eq!(told(&[])[0], "Node n1 has given its pools away, and takes none.");
        let moving = ClusterPool { state: ClusterPoolState::Moving, ..pool };
        let unreadable =
            ClusterStatus { store_unreadable: true, ..cluster(&[moving], &[node(1, UP), node(2, AWAY)]) };
        let alone = summary(&unreadable, true);
        assert!(alone.iter().any(|told| told.contains("Not served now: p")), "{alone:?}");
        assert!(alone.iter().any(|told| told.contains("etcd")), "{alone:?}");
        let alone = summary(&cluster(&[], &[node(1, UP), node(2, AWAY)]), false);
        assert!(alone.iter().any(|told| told.contains("ends service")), "{alone:?}");
    }

    /// The sentence on a loss promises nothing that the disks of a pool do not allow.
    #[test]
    fn a_pool_that_only_its_node_can_serve_is_told_of() {
        let only = ClusterPool { can_serve: Some(vec!["n1".into()]), ..pool(ClusterPoolState::Online) };
        let nodes = [node(1, UP), node(2, UP), node(3, UP)];
        let told = summary(&cluster(std::slice::from_ref(&only), &nodes), true);
        assert!(told.iter().all(|told| !told.contains("take its pools over: 2")), "{told:?}");
        assert!(told.iter().any(|told| told.starts_with("Only node n1 can serve p")), "{told:?}");
        let drained = [node(1, ClusterMemberState::Draining), node(2, UP)];
        let told = summary(&cluster(&[only], &drained), false);
        assert!(told[0].starts_with("Node n1 is drained, and keeps p"), "{told:?}");
        let shared =
            ClusterPool { can_serve: Some(vec!["n1".into(), "n3".into()]), ..pool(ClusterPoolState::Online) };
        let told = summary(&cluster(&[shared], &nodes), true);
        assert!(told.iter().any(|told| told.contains("take its pools over: 2 nodes can")), "{told:?}");
    }

    /// A third node gets its vote when its etcd has all that the others have: until then one loss may stop everything.
    #[test]
    fn before_all_votes_are_there_no_takeover_is_promised() {
        let of = |voters| ClusterStatus {
            etcd_voters: voters,
            ..cluster(&[pool(ClusterPoolState::Online)], &[node(1, UP), node(2, UP), node(3, UP)])
        };
        let told = summary(&of(Some(1)), true);
        assert!(told.iter().any(|told| told.starts_with("etcd has 1 vote so far")), "{told:?}");
        assert!(told.iter().all(|told| !told.contains("take its pools over")), "{told:?}");
        for (voters, runs_etcd) in [(Some(3), true), (None, true), (Some(1), false)] {
            let told = summary(&of(voters), runs_etcd);
            assert!(told.iter().any(|told| told.contains("2 nodes can")), "{told:?}");
        }
    }
}
