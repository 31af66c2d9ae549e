//! Pools go home, and to where there is less to do: what should move, and the moves that nobody has to ask for.
//!
//! ```text
//!   who takes pools (the cluster) ─┐
//!   what pools do (each owner) ────┼─► pool_balance::plan ─► shown, moved by hand ── or, by the first node, one at a time, once no node has come or gone for a while
//!   where they should be (config) ─┘
//! ```
//! A pool that is not as redundant as promised stays: a move would only be in the way of its repair. One with write caches that hold what hosts
//! have written stays as well, unless somebody says that this may go.

use std::collections::BTreeSet;
use std::time::Duration;

use control_api::{
    AuditEntry, BalanceMove, BalanceNode, BalanceReason, BalanceStay, ClusterBalance, ClusterMemberState,
    ClusterPool, ClusterPoolState, ClusterStatus, Code, Pool, PoolConfig, PoolMove, PoolMoves, PoolState,
    Problem, Proof, RedundancyState, Role, check_home,
};
use pool_balance::{Why, plan};
use uuid::Uuid;

use super::Node;
use super::pool_load::normalised;
use crate::backend::PoolInfo;
use crate::cluster::By;

/// Who moves pools by themselves, as the record of changes names it.
fn by_itself() -> By {
    By { who: "balance".into(), proof: Some(Proof::Socket), role: Some(Role::Operator) }
}

impl Node {
    /// What should move, and what stays.
    ///
    /// # Errors
    /// On a node of its own.
    pub(crate) async fn cluster_balance(&self, by: &By) -> Result<ClusterBalance, Problem> {
        let status = self.cluster_show().await?;
        let known = self.pools_of_all(by).await?;
        Ok(planned(&status, &known, Asked::ByHand))
    }

    /// What each owner says of its pools; of those of a node that does not answer nothing.
    async fn pools_of_all(&self, by: &By) -> Result<Vec<Pool>, Problem> {
        let (peers, _) = self.others().unwrap_or_default();
        let asking = peers.iter().map(|peer| self.list_of::<Pool>(peer, by, "/pools"));
        let (own, others) = tokio::join!(self.pool_list(), futures_util::future::join_all(asking));
        let mut all = own?;
        all.extend(others.into_iter().flatten().flatten());
        all.retain(|pool| pool.state != PoolState::Elsewhere);
        Ok(all)
    }

    /// Why a pool of this node stays here whatever there is to do: a volume and its log have one owner.
    pub(super) fn why_stays(&self, pool: Uuid, info: &PoolInfo) -> Option<String> {
        self.cluster().ok()?;
        let refused =
            self.refuse_log_elsewhere(pool, info).and_then(|()| self.refuse_log_of_another(pool, info));
        refused.err().map(|problem| problem.detail)
    }

    /// A home is of nodes that the cluster has.
    pub(super) fn refuse_no_home(&self, wanted: &PoolConfig, home: &[String]) -> Result<(), Problem> {
        check_home(wanted)?;
        if home.is_empty() {
            return Ok(());
        }
        let cluster = self.cluster()?;
        home.iter().try_for_each(|node| match cluster.number_of(node)? {
            number if cluster.name_of(number) == *node => Ok(()),
            number => {
                let detail = format!("Node {node} is called {}.", cluster.name_of(number));
                Err(Problem::new(Code::InvalidRequest, detail)
                    .todo("Name the nodes of a home as `holdfast node list` does."))
            }
        })
    }

    /// Looks what the open pools have done. To be called every few seconds.
    pub(super) fn look_at_loads(&self) {
        let totals = self.open_handles().into_iter();
        let totals = totals.map(|(pool, handle)| (pool, normalised(&handle.space_counters()))).collect();
        self.pool_loads.look(self.clock.now(), &totals);
    }

    /// Does what [`Node::balance_by_itself`] does in a task of its own, unless that is still at it.
    pub(super) fn begin_balance(&self) {
        let Some(node) = self.arc() else { return };
        tokio::spawn(async move {
            if let Ok(_balancing) = node.balancing.try_lock() {
                node.balance_by_itself().await;
            }
        });
    }

    /// Moves one pool where it should be, when pools move by themselves and nothing speaks against it.
    async fn balance_by_itself(&self) {
        let (moves, after, homes) = self.config.with(|config| {
            let homes = config.pools.iter().any(|pool| !pool.home.is_empty());
            (config.policy.pool_moves, config.policy.pool_moves_after_seconds, homes)
        });
        let may_move = moves == PoolMoves::Balance || (moves == PoolMoves::Home && homes);
        if !may_move || self.cluster().is_err() {
            return;
        }
        let Ok(status) = self.cluster_show().await else { return };
        let states = status.nodes.iter().map(|node| (node.name.clone(), node.state)).collect();
        let quiet = self.quiet.lasts(self.clock.now(), states) >= Duration::from_secs(after);
        // One of them does it: the first that can.
        let first = status.nodes.iter().find(|node| node.state == ClusterMemberState::Up);
        let is_first = first.is_some_and(|first| first.name == status.node);
        if !quiet || !is_first || !status.takes_part || !all_is_well(&status) {
            return;
        }
        let by = by_itself();
        let Ok(known) = self.pools_of_all(&by).await else { return };
        // What has just moved begins to be known anew: nothing is decided by half of the loads.
        let is_loaded =
            |seen: &ClusterPool| known.iter().any(|pool| pool.guid == seen.guid && pool.load.is_some());
        if moves == PoolMoves::Balance && !status.pools.iter().all(is_loaded) {
            return;
        }
        let wanted = planned(&status, &known, Asked::ByNobody).moves.into_iter();
        let now = self.clock.now();
        let mut may = wanted.filter(|step| moves == PoolMoves::Balance || step.reason == BalanceReason::Home);
        let Some(step) = may.find(|step| self.moved.may_move(now, &step.pool)) else { return };
        self.moved.moves(now, &step.pool, Duration::from_secs(after));
        let BalanceMove { pool, from, to, .. } = &step;
        let why = match step.reason {
            BalanceReason::Home => "its home",
            BalanceReason::Load => "which has less to do",
        };
        tracing::info!("pool {pool} moves by itself from node {from} to node {to}, {why}");
        // Where somebody has written to a write cache since, it stays as well.
        let done = self.pool_move(pool, &PoolMove { node: to.clone(), confirm: None }, &by).await;
        if let Err(problem) = &done {
            tracing::warn!("pool {pool} has not moved by itself to node {to}: {problem}");
        }
        self.record(AuditEntry {
            who: by.who,
            proof: by.proof,
            role: by.role,
            from: format!("node {}", status.node),
            operation: "pool_move".into(),
            object: format!("{pool} to node {to}"),
            status: done.as_ref().map_or_else(|problem| problem.status, |_| 200),
            reason: done.as_ref().err().map(|problem| problem.detail.clone()).unwrap_or_default(),
            result: done.map_or_else(|problem| problem.code.as_str().to_owned(), |_| "done".into()),
            ..AuditEntry::default()
        });
    }
}

/// Whether nodes that take part are heard of and no pool is on its way.
fn all_is_well(status: &ClusterStatus) -> bool {
    status.nodes.iter().all(|node| node.state != ClusterMemberState::Silent)
        && status.pools.iter().all(|pool| pool.state == ClusterPoolState::Online)
}

/// Who wants pools to move.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Somebody, who is asked before hosts lose anything by it.
    ByHand,
    ByNobody,
}

/// Why a pool stays with its node, by what the cluster and its owner say of it.
fn stays(seen: &ClusterPool, known: Option<&Pool>, asked: Asked) -> Option<String> {
    if seen.state != ClusterPoolState::Online {
        return Some("It is not served now.".into());
    }
    let Some(pool) = known else { return Some("Its node does not say how it is.".into()) };
    if pool.redundancy < RedundancyState::Full || pool.state != PoolState::Online || pool.repair_bytes > 0 {
        return Some("It is not as redundant as promised.".into());
    }
    let discards = || (asked == Asked::ByNobody).then(|| pool.discards.first()).flatten();
    pool.stays.clone().or_else(|| discards().map(|first| format!("It does not move by itself now: {first}")))
}

/// Why a pool stays that is not at home, by how its node is.
fn is_kept(owner: Option<&str>, status: &ClusterStatus, home: &[String]) -> Option<String> {
    let away = owner.filter(|owner| !home.is_empty() && home.first().map(String::as_str) != Some(*owner))?;
    let node = status.nodes.iter().find(|node| node.name == away)?;
    (node.state == ClusterMemberState::Paused).then(|| "Its node is paused, and keeps what it has.".into())
}

/// Why a pool stays that no node could take, for its disks.
fn is_only_there(seen: &ClusterPool, nodes: &[String]) -> Option<String> {
    let can = seen.can_serve.as_ref()?;
    let other = can.iter().any(|node| seen.owner.as_ref() != Some(node) && nodes.contains(node));
    (!other && nodes.len() > 1).then(|| "No other node that takes pools can open it.".into())
}

fn planned(status: &ClusterStatus, known: &[Pool], asked: Asked) -> ClusterBalance {
    let up = status.nodes.iter().filter(|node| node.state == ClusterMemberState::Up);
    // Of whose pools nothing is known, nobody knows what it has to do.
    let is_known = |seen: &ClusterPool| known.iter().any(|pool| pool.guid == seen.guid);
    let unknown: BTreeSet<&str> =
        status.pools.iter().filter(|seen| !is_known(seen)).filter_map(|seen| seen.owner.as_deref()).collect();
    let up = up.filter(|node| !unknown.contains(node.name.as_str()));
    let nodes: Vec<String> = up.map(|node| node.name.clone()).collect();
    let there: BTreeSet<&str> = status.nodes.iter().map(|node| node.name.as_str()).collect();
    let mut balance = ClusterBalance::default();
    let mut pools = Vec::new();
    for seen in &status.pools {
        let pool = known.iter().find(|pool| pool.guid == seen.guid);
        let why = stays(seen, pool, asked);
        let (load, home) = pool.map_or_else(Default::default, |pool| (pool.load, pool.home.clone()));
        let strange = home.iter().find(|home| !there.contains(home.as_str()));
        let why = why.or_else(|| is_kept(seen.owner.as_deref(), status, &home));
        let why = why.or_else(|| is_only_there(seen, &nodes));
        let why = why.or_else(|| {
            let none = |home: &String| !nodes.contains(home);
            match strange {
                Some(strange) if home.iter().all(none) => {
                    Some(format!("Its home is node {strange}, which the cluster does not have."))
                }
                _ if !home.is_empty() && home.iter().all(none) => {
                    Some("No node of its home takes pools now.".into())
                }
                _ => None,
            }
        });
        balance.stay.extend(why.clone().map(|reason| BalanceStay {
            pool: seen.name.clone(),
            node: seen.owner.clone(),
            reason,
        }));
        if let Some(owner) = seen.owner.clone() {
            let (load, may_move) = (load.unwrap_or(0), why.is_none());
            let can = seen.can_serve.clone();
            pools.push(pool_balance::Pool { pool: seen.name.clone(), owner, load, home, can, may_move });
        }
    }
    let of = |name: &str| known.iter().find(|pool| pool.name == name);
    let moves = plan(&nodes, &pools);
    balance.moves = moves
        .iter()
        .map(|step| BalanceMove {
            pool: step.pool.clone(),
            from: step.from.clone(),
            to: step.to.clone(),
            reason: match step.why {
                Why::Home => BalanceReason::Home,
                Why::Load => BalanceReason::Load,
            },
            load: of(&step.pool).and_then(|pool| pool.load),
            discards: of(&step.pool).map(|pool| pool.discards.clone()).unwrap_or_default(),
        })
        .collect();
    let sum = |node: &str, then: bool| {
        let at = |pool: &pool_balance::Pool<String, String>| {
            let moved = moves.iter().find(|step| then && step.pool == pool.pool);
            moved.map_or_else(|| pool.owner.clone(), |step| step.to.clone())
        };
        let there = pools.iter().filter(|pool| at(pool) == node);
        there.fold((0, 0_u64), |(count, load), pool| (count + 1, load.saturating_add(pool.load)))
    };
    balance.nodes = nodes
        .iter()
        .map(|node| {
            let ((pools, load), (pools_then, load_then)) = (sum(node, false), sum(node, true));
            BalanceNode { node: node.clone(), pools, load, pools_then, load_then }
        })
        .collect();
    balance
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(nodes: &[(&str, &str)], pools: &[(&str, &str, &str)]) -> ClusterStatus {
        let nodes: Vec<_> = nodes
            .iter()
            .zip(1..)
            .map(|((name, state), number)| json!({ "name": name, "number": number, "state": state, "pools": 0, "addresses": [] }))
            .collect();
        let pools: Vec<_> = pools
            .iter()
            .map(|(name, owner, state)| {
                json!({ "name": name, "guid": guid(name), "owner": owner, "epoch": 1, "state": state })
            })
            .collect();
        serde_json::from_value(json!({
            "cluster": "c", "node": "n1", "takes_part": true, "summary": [], "nodes": nodes, "pools": pools,
        }))
        .expect("a status")
    }

    fn guid(name: &str) -> uuid::Uuid {
        uuid::Uuid::from_u128(u128::from(name.as_bytes()[0]))
    }

    fn pool(name: &str, more: serde_json::Value) -> Pool {
        let mut pool = json!({
            "name": name, "guid": guid(name), "state": "online", "redundancy": "full", "capacity_bytes": 0, "allocated_bytes": 0,
            "free_bytes": 0, "disks": 2, "disks_missing": 0, "volumes": 1, "repair_bytes": 0, "slab_bytes": 1, "epoch": 1,
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            pool[key] = value.clone();
        }
        serde_json::from_value(pool).expect("a pool")
    }

    #[test]
    fn what_is_repaired_or_not_known_stays() {
        let status = status(
            &[("n1", "up"), ("n2", "up")],
            &[("a", "n1", "online"), ("b", "n1", "online"), ("c", "n1", "online"), ("d", "n1", "moving")],
        );
        let known = [
            pool("a", json!({ "redundancy": "restoring" })),
            pool("b", json!({ "stays": "volume v has its log in pool x." })),
        ];
        let told = planned(&status, &known, Asked::ByHand);
        assert_eq!(told.moves, []);
        let why: Vec<(&str, &str)> = told.stay.iter().map(|stay| (&*stay.pool, &*stay.reason)).collect();
        assert_eq!(
            why,
            [
                ("a", "It is not as redundant as promised."),
                ("b", "volume v has its log in pool x."),
                ("c", "Its node does not say how it is."),
                ("d", "It is not served now."),
            ]
        );
        let nodes: Vec<(&str, u64)> = told.nodes.iter().map(|node| (&*node.node, node.pools)).collect();
        assert_eq!(nodes, [("n2", 0)], "what node n1 has to do is not known");
    }

    #[test]
    fn a_home_that_is_not_there_is_told_of() {
        let status = status(
            &[("n1", "up"), ("n2", "paused"), ("n3", "up")],
            &[("a", "n1", "online"), ("b", "n1", "online"), ("c", "n3", "online"), ("d", "n2", "online")],
        );
        let known = [
            pool("a", json!({ "home": ["n2"] })),
            pool("b", json!({ "home": ["n9"] })),
            pool("c", json!({ "home": ["n9", "n1"], "load": 50 })),
            pool("d", json!({ "home": ["n1"] })),
        ];
        let told = planned(&status, &known, Asked::ByHand);
        let stay: Vec<&str> = told.stay.iter().map(|stay| stay.reason.as_str()).collect();
        assert_eq!(
            stay,
            [
                "No node of its home takes pools now.",
                "Its home is node n9, which the cluster does not have.",
                "Its node is paused, and keeps what it has.",
            ]
        );
        let home = BalanceMove {
            pool: "c".into(),
            from: "n3".into(),
            to: "n1".into(),
            reason: BalanceReason::Home,
            load: Some(50),
            discards: Vec::new(),
        };
        assert_eq!(told.moves, [home]);
        let node = &told.nodes[0];
        assert_eq!((node.pools, node.load, node.pools_then, node.load_then), (2, 0, 3, 50));
    }

    #[test]
    fn what_no_other_node_can_open_stays() {
        let mut status = status(
            &[("n1", "up"), ("n2", "up"), ("n3", "up")],
            &[("a", "n1", "online"), ("b", "n1", "online")],
        );
        status.pools[0].can_serve = Some(vec!["n1".into()]);
        status.pools[1].can_serve = Some(vec!["n1".into(), "n3".into()]);
        let known = [pool("a", json!({ "home": ["n2"], "load": 9000 })), pool("b", json!({ "load": 9000 }))];
        let told = planned(&status, &known, Asked::ByNobody);
        let moves: Vec<_> = told.moves.iter().map(|step| (&*step.pool, &*step.to)).collect();
        assert_eq!(moves, [("b", "n3")]);
        let stay: Vec<_> = told.stay.iter().map(|stay| (&*stay.pool, &*stay.reason)).collect();
        assert_eq!(stay, [("a", "No other node that takes pools can open it.")]);
    }

    #[test]
    fn what_hosts_have_written_to_write_caches_is_given_up_only_when_somebody_asks() {
        let status = status(&[("n1", "up"), ("n2", "up")], &[("a", "n1", "online"), ("b", "n1", "online")]);
        let lost = "LUN desk loses all that iqn.h has written.";
        let known = [
            pool("a", json!({ "home": ["n2"], "discards": [lost] })),
            pool("b", json!({ "home": ["n2"], "load": 50 })),
        ];
        let by_hand = planned(&status, &known, Asked::ByHand);
        let moves: Vec<_> = by_hand.moves.iter().map(|step| (&*step.pool, step.discards.len())).collect();
        assert_eq!((moves, by_hand.stay), (vec![("a", 1), ("b", 0)], vec![]));
        let by_itself = planned(&status, &known, Asked::ByNobody);
        assert_eq!(by_itself.moves.iter().map(|step| &*step.pool).collect::<Vec<_>>(), ["b"]);
        assert!(by_itself.stay[0].reason.ends_with(lost), "{:?}", by_itself.stay);
    }
}
