//! Rules of a node that is apart from its cluster: one that the cluster has removed, and one that is cut off. What the others do it cannot know, and
//! what it hears of nobody is no news of them.

use control_api::{ClusterPool, ClusterPoolState, ClusterStatus, Issue, Severity};

use crate::{FindingCode, issue};

/// What is to be said of a node that the cluster has removed, or that is cut off; none of one that has its place among the others.
pub(crate) fn of_apart(cluster: &ClusterStatus) -> Option<Issue> {
    if cluster.removed {
        return Some(issue(
            FindingCode::NodeRemoved,
            Severity::Error,
            format!("node {}", cluster.node),
            format!(
                "the cluster {} has removed it: it takes no part any more, and serves nothing of the cluster",
                cluster.cluster
            ),
            "`holdfast cluster leave` on it makes it a node on its own, which may join again with a new token.",
        ));
    }
    if cluster.cut_off.is_empty() {
        return None;
    }
    let detail = format!(
        "it reaches neither etcd nor {}: what they serve is not known here, and what is shown of them is how it was before",
        others(cluster)
    );
    let todo = "Look at the network of this node: the others may go on without it, and have its pools. Ask one of them with `holdfast status`; if they do not answer there either, they are down, and are to be started.";
    Some(issue(FindingCode::NodeCutOff, Severity::Error, format!("node {}", cluster.node), detail, todo))
}

fn others(cluster: &ClusterStatus) -> String {
    let word = if cluster.cut_off.len() == 1 { "node" } else { "nodes" };
    format!("{word} {}", cluster.cut_off.join(", "))
}

/// What a node does not know that is cut off, as a part of the sentence above all lines; none of one that is not, or where nothing is unknown.
pub(crate) fn not_known_as_cut_off<'a>(
    cluster: &ClusterStatus,
    pools: impl IntoIterator<Item = &'a ClusterPool>,
) -> Option<String> {
    if cluster.cut_off.is_empty() {
        return None;
    }
    let unknown = pools.into_iter().filter(|pool| pool.state == ClusterPoolState::Unknown);
    let unknown: Vec<&str> = unknown.map(|pool| pool.name.as_str()).collect();
    (!unknown.is_empty()).then(|| {
        format!(
            "this node, {}, reaches neither etcd nor {}: how it is with {} is not known",
            cluster.node,
            others(cluster),
            unknown.join(", ")
        )
    })
}
