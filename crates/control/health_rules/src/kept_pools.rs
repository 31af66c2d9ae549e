//! Pools that would go home by themselves, and do not.

use control_api::{ClusterMemberState, ClusterStatus, Issue, Pool, Severity};

use crate::{FindingCode, issue};

/// Pools of this node that stay for what hosts lose that have written to write caches, though a node of their home that comes before this one takes
/// pools. For a cluster whose pools go home by themselves.
#[must_use]
pub fn of_kept_pools(cluster: &ClusterStatus, pools: &[Pool]) -> Vec<Issue> {
    let takes = |name: &String| {
        cluster.nodes.iter().any(|node| node.name == *name && node.state == ClusterMemberState::Up)
    };
    let of = |pool: &Pool| {
        let lost = pool.discards.first()?;
        let here = pool.home.iter().position(|node| *node == cluster.node).unwrap_or(pool.home.len());
        let home = pool.home[..here].iter().find(|node| takes(node))?;
        let more = pool.discards.len() - 1;
        let more = if more > 0 { format!(" And {more} more.") } else { String::new() };
        Some(issue(
            FindingCode::PoolAwayFromHome,
            Severity::Info,
            format!("pool {}", pool.name),
            format!(
                "it is with node {} and does not go home to node {home} by itself, as hosts would lose what they have written: {lost}{more}",
                cluster.node
            ),
            format!(
                "Shut these hosts down, and `holdfast pool move {} {home}`: it asks before anything is given up.",
                pool.name
            ),
        ))
    };
    pools.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pool_that_write_caches_keep_from_home_is_told_of() {
        let node = |name: &str, state: &str| json!({ "name": name, "number": 1, "state": state, "pools": 0, "addresses": [] });
        let cluster = json!({
            "cluster": "c", "node": "n2", "takes_part": true, "summary": [], "pools": [],
            "nodes": [node("n1", "up"), node("n2", "up"), node("n3", "paused")],
        });
        let cluster: ClusterStatus = serde_json::from_value(cluster).expect("a status");
        let pool = |home: &[&str], discards: &[&str]| -> Pool {
            serde_json::from_value(json!({
                "name": "p", "guid": uuid::Uuid::nil(), "state": "online", "redundancy": "full", "capacity_bytes": 0,
                "allocated_bytes": 0, "free_bytes": 0, "disks": 2, "disks_missing": 0, "volumes": 1, "repair_bytes": 0,
                "slab_bytes": 1, "epoch": 1, "home": home, "discards": discards,
            }))
            .expect("a pool")
        };
        let told = |home: &[&str], discards: &[&str]| {
            let issues = of_kept_pools(&cluster, &[pool(home, discards)]);
            issues.first().map(|issue| issue.detail.clone())
        };
        assert!(told(&["n1"], &["A.", "B."]).is_some_and(|told| told.ends_with("written: A. And 1 more.")));
        assert_eq!(told(&["n1"], &[]), None, "it goes by itself");
        for home in [&[][..], &["n2", "n1"], &["n3", "n2"], &["n3"]] {
            assert_eq!(told(home, &["A."]), None, "{home:?}");
        }
    }
}
