//! One picture of the cluster, of what its nodes see of it each by itself. Which node has a pool, and whether it serves it, that node knows best; of two
//! owners the later one counts. A node that has not answered is none that is up, and how it is with its pools is not known, unless its signs of life have
//! ended as well.

use control_api::{ClusterMember, ClusterMemberState, ClusterPool, ClusterPoolState, ClusterStatus};

/// What the node that is asked and the others see, in the words of the former. `mute` are nodes that have not answered.
pub(super) fn merged(own: &ClusterStatus, others: &[&ClusterStatus], mute: &[String]) -> ClusterStatus {
    let views: Vec<&ClusterStatus> = std::iter::once(own).chain(others.iter().copied()).collect();
    let mut nodes = own.nodes.clone();
    for node in others.iter().flat_map(|view| &view.nodes) {
        if nodes.iter().all(|known| known.number != node.number) {
            nodes.push(node.clone());
        }
    }
    nodes.sort_by_key(|node| node.number);
    for node in &mut nodes {
        let view = views.iter().find(|view| view.node == node.name);
        settle_node(node, view.copied(), mute);
    }
    let mut pools: Vec<ClusterPool> = own.pools.clone();
    for pool in others.iter().flat_map(|view| &view.pools) {
        if pools.iter().all(|known| known.guid != pool.guid) {
            pools.push(pool.clone());
        }
    }
    for pool in &mut pools {
        let seen: Vec<(&str, &ClusterPool)> = views
            .iter()
            .filter_map(|view| {
                let of = view.pools.iter().find(|of| of.guid == pool.guid)?;
                Some((view.node.as_str(), of))
            })
            .collect();
        *pool = settled(pool, &seen, mute);
    }
    pools.sort_by(|a, b| a.name.cmp(&b.name));
    ClusterStatus { nodes, pools, ..own.clone() }
}

/// A node that has answered is as it says itself; one that has not is not heard of.
fn settle_node(node: &mut ClusterMember, view: Option<&ClusterStatus>, mute: &[String]) {
    if let Some(view) = view {
        let itself = view.nodes.iter().find(|of| of.number == node.number);
        let state = itself.map(|itself| itself.state).filter(|state| *state > ClusterMemberState::Silent);
        node.state = state.unwrap_or(node.state);
    } else if mute.contains(&node.name) && node.state > ClusterMemberState::Silent {
        node.state = ClusterMemberState::Silent;
        node.trouble = Some("it does not answer".to_owned());
    }
}

/// A pool as it is by what all say of it that have answered: each with its name, the node that is asked first.
fn settled(of: &ClusterPool, seen: &[(&str, &ClusterPool)], mute: &[String]) -> ClusterPool {
    let epoch = seen.iter().map(|(_, pool)| pool.epoch).max().unwrap_or(of.epoch);
    // Who has not heard of the last owner tells of what is past.
    let latest: Vec<&(&str, &ClusterPool)> = seen.iter().filter(|(_, pool)| pool.epoch == epoch).collect();
    let owner = latest.iter().find_map(|(_, pool)| pool.owner.clone());
    let owners_own = latest.iter().find(|(viewer, _)| owner.as_deref() == Some(*viewer));
    let worst = latest.iter().map(|(_, pool)| pool.state).min().unwrap_or(of.state);
    let has_answered = |name: &String| seen.iter().any(|(viewer, _)| viewer == name);
    let is_mute = owner.as_ref().is_some_and(|owner| mute.contains(owner));
    let state = match (owners_own, &owner) {
        (Some((_, own)), _) => own.state,
        // Its signs of life have ended, or the process that had it has: others take it.
        (None, Some(_)) if is_mute && worst == ClusterPoolState::Silent => ClusterPoolState::Silent,
        (None, Some(_)) if is_mute => ClusterPoolState::Unknown,
        // It does not know yet that it has it.
        (None, Some(owner)) if has_answered(owner) => worst.min(ClusterPoolState::Moving),
        (None, _) => worst,
    };
    let first = |part: fn(&ClusterPool) -> Option<String>| latest.iter().find_map(|(_, pool)| part(pool));
    let reason =
        owners_own.and_then(|(_, pool)| pool.reason.clone()).or_else(|| first(|pool| pool.reason.clone()));
    let is_unserved = state < ClusterPoolState::Unknown;
    let from = first(|pool| pool.from.clone()).filter(|from| is_unserved && Some(from) != owner.as_ref());
    let waits = latest.iter().filter_map(|(_, pool)| pool.waits_seconds).max();
    let volumes = latest.iter().map(|(_, pool)| &pool.volumes).max_by_key(|volumes| volumes.len());
    ClusterPool {
        reason: match state {
            ClusterPoolState::Online => None,
            ClusterPoolState::Unknown if is_mute => {
                owner.as_ref().map(|owner| format!("node {owner} does not answer"))
            }
            _ => reason,
        },
        waits_seconds: is_unserved.then(|| waits.unwrap_or(0)),
        volumes: volumes.filter(|_| is_unserved).cloned().unwrap_or_default(),
        disk_nodes: owners_own.map(|(_, own)| own.disk_nodes.clone()).unwrap_or_default(),
        from,
        owner,
        epoch,
        state,
        ..of.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, state: ClusterMemberState) -> ClusterMember {
        ClusterMember {
            name: name.into(),
            number: name.trim_start_matches('n').parse().expect("a number"),
            state,
            beat_age_ms: None,
            pools: 0,
            addresses: Vec::new(),
            api: String::new(),
            release: String::new(),
            trouble: None,
        }
    }

    fn pool(owner: Option<&str>, epoch: u64, state: ClusterPoolState) -> ClusterPool {
        ClusterPool {
            name: "p".into(),
            guid: uuid::Uuid::from_u128(1),
            owner: owner.map(str::to_owned),
            epoch,
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

    fn view(of: &str, nodes: &[(&str, ClusterMemberState)], pools: Vec<ClusterPool>) -> ClusterStatus {
        ClusterStatus {
            cluster: "c".into(),
            node: of.into(),
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
            pools,
            nodes: nodes.iter().map(|(name, state)| node(name, *state)).collect(),
        }
    }

    use ClusterMemberState::{Paused, Silent, Up};
    use ClusterPoolState::{Moving, Online, Unknown, Unowned};

    const ALL: [(&str, ClusterMemberState); 3] = [("n1", Up), ("n2", Up), ("n3", Up)];

    fn one(own: ClusterPool, others: &[(&str, ClusterPool)], mute: &[&str]) -> ClusterPool {
        let own = view("n1", &ALL, vec![own]);
        let others: Vec<ClusterStatus> =
            others.iter().map(|(node, pool)| view(node, &ALL, vec![pool.clone()])).collect();
        let mute: Vec<String> = mute.iter().map(|name| (*name).to_owned()).collect();
        merged(&own, &others.iter().collect::<Vec<_>>(), &mute).pools.remove(0)
    }

    #[test]
    fn the_owner_knows_best_and_the_later_owner_counts() {
        let state = |own, others: &[(&str, ClusterPool)], mute: &[&str]| {
            let pool = one(own, others, mute);
            (pool.owner, pool.state)
        };
        let n = |name: &str| Some(name.to_owned());
        // etcd says it is served, and its owner has just let go of it; or the other way round.
        let online = || pool(Some("n2"), 5, Online);
        assert_eq!(state(online(), &[("n2", pool(Some("n2"), 5, Moving))], &[]), (n("n2"), Moving));
        assert_eq!(
            state(pool(Some("n2"), 5, ClusterPoolState::Silent), &[("n2", online())], &[]),
            (n("n2"), Online)
        );
        assert_eq!(state(pool(Some("n2"), 5, Unknown), &[("n2", online())], &[]), (n("n2"), Online));
        // One of the two is behind.
        let next = || pool(Some("n3"), 6, Online);
        assert_eq!(state(online(), &[("n2", online()), ("n3", next())], &[]), (n("n3"), Online));
        assert_eq!(
            state(next(), &[("n2", online()), ("n3", pool(Some("n2"), 5, Online))], &[]),
            (n("n3"), Moving)
        );
        assert_eq!(
            state(pool(None, 0, Unknown), &[("n2", online())], &[]),
            (n("n2"), Online),
            "it has just started"
        );
        assert_eq!(state(pool(None, 6, Unowned), &[("n2", online())], &[]), (None, Unowned));
        // It does not answer: its signs of life are still heard of, or not any more.
        assert_eq!(state(online(), &[("n3", online())], &["n2"]), (n("n2"), Unknown));
        let silent = pool(Some("n2"), 5, ClusterPoolState::Silent);
        assert_eq!(state(online(), &[("n3", silent)], &["n2"]), (n("n2"), ClusterPoolState::Silent));
        assert_eq!(one(online(), &[], &["n2"]).reason.as_deref(), Some("node n2 does not answer"));
    }

    #[test]
    fn what_any_has_seen_of_a_pool_that_waits_is_said() {
        let mut moving = pool(Some("n3"), 6, Moving);
        moving.volumes = vec!["v".into()];
        let mut seen = pool(Some("n3"), 6, Online);
        (seen.from, seen.waits_seconds) = (Some("n2".into()), Some(7));
        let of = one(seen.clone(), &[("n3", moving.clone())], &[]);
        assert_eq!(
            (of.from.as_deref(), of.waits_seconds, of.volumes),
            (Some("n2"), Some(7), vec!["v".to_owned()])
        );
        moving.state = Online;
        let of = one(seen, &[("n3", moving)], &[]);
        assert_eq!((of.from, of.waits_seconds, of.volumes), (None, None, Vec::new()), "it is served");
    }

    #[test]
    fn who_answers_is_there_and_who_does_not_is_not_up() {
        let own = view("n1", &[("n1", Up), ("n2", Up), ("n3", Silent)], Vec::new());
        let third = view("n3", &[("n1", Silent), ("n3", Paused), ("n4", Up)], Vec::new());
        let all = merged(&own, &[&third], &["n2".into()]);
        let states: Vec<(&str, ClusterMemberState)> =
            all.nodes.iter().map(|node| (node.name.as_str(), node.state)).collect();
        assert_eq!(states, [("n1", Up), ("n2", Silent), ("n3", Paused), ("n4", Up)]);
        assert_eq!(all.nodes[1].trouble.as_deref(), Some("it does not answer"));
    }
}
