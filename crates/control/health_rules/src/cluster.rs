//! Rules of the nodes of a cluster.

use std::collections::BTreeMap;

use control_api::{ClusterMember, ClusterMemberState, ClusterStatus, Issue, Severity, many};

use crate::apart::of_apart;
use crate::etcd::of_etcd;
use crate::unserved::of_unserved;
use crate::{FindingCode, issue};

/// Nodes that do not take part, whose pools are with others meanwhile, members of etcd, and pools that no node serves.
pub fn of_nodes(cluster: &ClusterStatus) -> Vec<Issue> {
    let back = cluster.store_went_back.iter().map(|why| of_store_back(&cluster.cluster, why));
    let told = of_nodes_seen(cluster).into_iter().chain(of_paused(cluster)).chain(of_etcd(cluster));
    told.chain(of_unserved(cluster)).chain(back).collect()
}

/// What nodes are away, and what that means for a further loss: of what each node sees of the others by itself.
pub fn of_nodes_seen(cluster: &ClusterStatus) -> Vec<Issue> {
    if let Some(apart) = of_apart(cluster) {
        return vec![apart];
    }
    let away =
        |node: &&ClusterMember| matches!(node.state, ClusterMemberState::Away | ClusterMemberState::Silent);
    let told = cluster.nodes.iter().filter(away).map(|node| {
        let detail = "it gives no sign of life; the other nodes have its pools, or are taking them";
        let todo = format!(
            "Start it again; or, if it is gone for good, `holdfast node remove {}`. A further loss is less likely to be survived meanwhile.",
            node.name
        );
        issue(FindingCode::NodeAway, Severity::Warning, format!("node {}", node.name), detail.to_owned(), todo)
    });
    told.chain(of_quorum(cluster)).collect()
}

/// What nodes share is older than what they have seen.
fn of_store_back(cluster: &str, why: &str) -> Issue {
    let detail = format!(
        "{why}. Epochs of pools go above those that their disks know, and votes from before count for nothing; changes of the configuration and of users since the backup are gone"
    );
    let todo = "Look through configuration, users and nodes. A node that was removed after the backup, and was off since then, is to be removed again: `holdfast node remove`. This is said until the node is started again.";
    issue(FindingCode::StoreWentBack, Severity::Warning, format!("cluster {cluster}"), detail, todo)
}

/// A disk of this node that is lent to others, of which cannot be kept who may write to it.
pub fn of_gate(disk: &str, why: &str) -> Issue {
    let detail = format!("nobody may write to it: {why}");
    let todo = "Make space, or repair the file system of the data directory: it is tried again by itself. Until then pools do without the disk.";
    issue(FindingCode::GateBroken, Severity::Error, format!("disk {disk}"), detail, todo)
}

/// Nodes that take no pools because somebody has said so, and may have forgotten it.
fn of_paused(cluster: &ClusterStatus) -> impl Iterator<Item = Issue> {
    cluster.nodes.iter().filter_map(|node| {
        let detail = match node.state {
            ClusterMemberState::Paused => "it is paused: it takes over no pools of nodes that fail",
            ClusterMemberState::Draining if node.pools == 0 => {
                "it has given its pools away, and takes over none"
            }
            ClusterMemberState::Draining => "it gives its pools away, and takes over none",
            ClusterMemberState::Away | ClusterMemberState::Silent | ClusterMemberState::Up => return None,
        };
        let todo = format!("`holdfast node resume {}` lets it take pools again.", node.name);
        Some(issue(FindingCode::NodePaused, Severity::Info, format!("node {}", node.name), detail, todo))
    })
}

/// Nodes are away, and of those that are left one more may not be lost. A cluster of which all nodes are there is as it was built.
fn of_quorum(cluster: &ClusterStatus) -> Option<Issue> {
    let all = cluster.nodes.len();
    let there = cluster.nodes.iter().filter(|node| node.state > ClusterMemberState::Silent).count();
    if there >= all || there.saturating_sub(1) * 2 > all {
        return None;
    }
    let detail = format!(
        "{there} of {} are there: if one more is lost, there may be no majority that says who owns which pool, and service ends until a node is back",
        many(all as u64, "node")
    );
    let todo = "Start the nodes that are away, before anything else is switched off; `holdfast cluster status` names them.";
    Some(issue(
        FindingCode::QuorumThin,
        Severity::Warning,
        format!("cluster {}", cluster.cluster),
        detail,
        todo,
    ))
}

/// Nodes of different releases: meant for the hours of an upgrade.
pub fn of_versions(cluster: &ClusterStatus) -> Option<Issue> {
    let mut by_release: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in cluster.nodes.iter().filter(|node| !node.release.is_empty()) {
        by_release.entry(&node.release).or_default().push(&node.name);
    }
    if by_release.len() < 2 {
        return None;
    }
    let each = by_release.iter().map(|(release, nodes)| format!("{} on {release}", nodes.join(", ")));
    let detail = format!(
        "its nodes run different releases ({}); what a newer one can do beyond an older one waits until all have it",
        each.collect::<Vec<_>>().join("; ")
    );
    let todo = "Bring all nodes to the same release, one after the other.";
    Some(issue(
        FindingCode::NodeVersion,
        Severity::Warning,
        format!("cluster {}", cluster.cluster),
        detail,
        todo,
    ))
}

/// Clocks may differ by so many seconds: what a request takes, and what the answer rounds, is well below.
const CLOCKS_APART: u64 = 5;

/// The clock of another node, which is `ahead` seconds ahead of this one's.
pub fn of_clock(node: &str, other: &str, ahead: i64) -> Option<Issue> {
    if ahead.unsigned_abs() < CLOCKS_APART {
        return None;
    }
    // Both nodes see it, and say it of the same pair in the same words.
    let (first, second, ahead) =
        if node < other { (node, other, ahead) } else { (other, node, ahead.saturating_neg()) };
    let direction = if ahead > 0 { "ahead of" } else { "behind" };
    let detail = format!(
        "the clock of {second} is {} s {direction} that of {first}: times of files, snapshots, logs and logins do not fit together",
        ahead.unsigned_abs()
    );
    let todo = "Have both set their clocks by the same servers (chrony or systemd-timesyncd); `timedatectl` shows whether they do.";
    Some(issue(
        FindingCode::ClockSkew,
        Severity::Warning,
        format!("clocks of nodes {first} and {second}"),
        detail,
        todo,
    ))
}

/// A node that is away has taken its disks along: they have not failed.
pub fn of_nodes_away(pool: &str, node: &str, disks: usize) -> Issue {
    let disks = many(disks as u64, "disk");
    let detail = format!(
        "node {node} is away with its {disks}; what they miss is noted, and copied to them when it is back"
    );
    let todo = format!(
        "Start node {node} again. If it is gone for good: `holdfast pool replace {pool} DISK` for each of its disks."
    );
    issue(FindingCode::NodeDisksAway, Severity::Error, format!("pool {pool}"), detail, todo)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(states: &[(ClusterMemberState, &str)]) -> ClusterStatus {
        let node = |(number, (state, release)): (usize, &(ClusterMemberState, &str))| ClusterMember {
            name: format!("n{}", number + 1),
            number: number as u16 + 1,
            state: *state,
            beat_age_ms: None,
            pools: 0,
            addresses: Vec::new(),
            api: String::new(),
            release: (*release).to_owned(),
            trouble: None,
        };
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
            pools: Vec::new(),
            nodes: states.iter().enumerate().map(node).collect(),
        }
    }

    fn codes(cluster: &ClusterStatus) -> Vec<String> {
        of_nodes(cluster).into_iter().chain(of_versions(cluster)).map(|issue| issue.code).collect()
    }

    #[test]
    fn a_store_that_has_gone_back_is_told_of() {
        use ClusterMemberState::Up;
        let mut back = cluster(&[(Up, "1"), (Up, "1"), (Up, "1")]);
        back.store_went_back = Some("etcd is at revision 5, and this node had seen 9".into());
        let told = of_nodes(&back);
        assert!(
            told.iter().any(|issue| issue.code == "store-went-back" && issue.detail.contains("revision 5"))
        );
    }

    #[test]
    fn a_healthy_cluster_says_nothing_and_a_lost_node_says_what_is_thin() {
        use ClusterMemberState::{Away, Paused, Silent, Up};
        for count in 1..6 {
            assert_eq!(codes(&cluster(&vec![(Up, "1"); count])), [""; 0], "{count} nodes");
        }
        assert_eq!(codes(&cluster(&[(Up, "1"), (Up, "1"), (Away, "")])), ["node-away", "quorum-thin"]);
        assert_eq!(codes(&cluster(&[(Up, "1"), (Silent, "1")])), ["node-away", "quorum-thin"]);
        let five = [(Up, "1"), (Up, "1"), (Up, "1"), (Up, "1"), (Away, "")];
        assert_eq!(codes(&cluster(&five)), ["node-away"]);
        assert_eq!(codes(&cluster(&[(Up, "1"), (Paused, "1")])), ["node-paused"]);
    }

    #[test]
    fn releases_that_differ_are_said_once() {
        use ClusterMemberState::{Away, Up};
        let mixed = cluster(&[(Up, "1.0"), (Up, "1.1"), (Up, "1.0")]);
        assert_eq!(codes(&mixed), ["node-version"]);
        assert!(of_versions(&mixed).expect("said").detail.contains("n1, n3 on 1.0; n2 on 1.1"));
        // Of a node that is away it is not known.
        assert_eq!(of_versions(&cluster(&[(Up, "1.0"), (Away, "")])), None);
    }

    #[test]
    fn both_nodes_say_the_same_of_their_clocks() {
        assert_eq!(of_clock("n1", "n2", 4), None);
        let (here, there) =
            (of_clock("n1", "n2", 90).expect("said"), of_clock("n2", "n1", -90).expect("said"));
        assert_eq!(here, there);
        assert!(here.detail.starts_with("the clock of n2 is 90 s ahead of that of n1"), "{}", here.detail);
        assert_eq!(of_clock("n1", "n2", i64::MIN).map(|issue| issue.code), Some("clock-skew".into()));
    }
}
