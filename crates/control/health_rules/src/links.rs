//! Links between nodes that take part: two that hear of each other by etcd alone go on, and lack something all the same.

use std::collections::BTreeMap;

use control_api::{ClusterMember, ClusterMemberState, ClusterStatus, Issue, Severity};

use crate::{FindingCode, issue};

/// Seconds for which a link may be broken before it is told of. A node that is started again is reached within some seconds, and one that is gone is
/// not heard of by then.
pub const BROKEN_AFTER: u64 = 15;

/// Since when links of this node to others are broken, in seconds by a clock that nobody sets, as far as they have been looked at.
#[derive(Clone, Debug, Default)]
pub struct LinkWatch(BTreeMap<String, u64>);

impl LinkWatch {
    /// Looks at the links of the node whose view this is. `now` is in seconds, by a clock that nobody sets.
    pub fn look(&mut self, now: u64, view: &ClusterStatus) {
        // Of a node that is not heard of it is told that; one that is cut off hears of nobody.
        let is_broken = |node: &&ClusterMember| {
            node.name != view.node && node.state > ClusterMemberState::Silent && node.trouble.is_some()
        };
        let apart = view.removed || !view.takes_part || !view.cut_off.is_empty();
        let broken = view.nodes.iter().filter(is_broken).filter(|_| !apart);
        let before = std::mem::take(&mut self.0);
        self.0 =
            broken.map(|node| (node.name.clone(), before.get(&node.name).copied().unwrap_or(now))).collect();
    }

    /// The links of node `me` that have been broken for longer than a start takes.
    #[must_use]
    pub fn issues(&self, now: u64, me: &str) -> Vec<Issue> {
        let lasting = self.0.iter().filter(|(_, since)| now.saturating_sub(**since) >= BROKEN_AFTER);
        lasting.map(|(other, _)| of_link(me, other)).collect()
    }
}

/// Both nodes may see it, and say it of the same pair in the same words.
fn of_link(me: &str, other: &str) -> Issue {
    let (first, second) = if me < other { (me, other) } else { (other, me) };
    let detail = "the link between them is broken, in one direction at least, though both take part: a pool that one of them serves does without disks of the other, so mirrors over both have fewer copies; policies of storage QoS that are divided among nodes go on with what the other said last (LostCommunication); and neither passes requests on to the other";
    let todo = format!(
        "Look at the network between {first} and {second}: addresses, cables, firewalls. `holdfast cluster status` on each of them says what is in the way."
    );
    let subject = format!("nodes {first} and {second}");
    issue(FindingCode::NodeLinkBroken, Severity::Warning, subject, detail, todo)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(me: &str, others: &[(&str, ClusterMemberState, bool)]) -> ClusterStatus {
        let member = |(name, state, broken): &(&str, ClusterMemberState, bool)| {
            serde_json::json!({
                "name": name, "number": 1, "state": state, "beat_age_ms": 20, "pools": 0, "addresses": [],
                "trouble": broken.then_some("10.0.0.3:7400: no route"),
            })
        };
        let nodes: Vec<_> = others.iter().map(member).collect();
        let view = serde_json::json!({
            "cluster": "c", "node": me, "takes_part": true, "summary": [], "pools": [], "nodes": nodes,
        });
        serde_json::from_value(view).expect("a view")
    }

    #[test]
    fn a_broken_link_is_told_of_after_a_while_and_clears_at_once() {
        use ClusterMemberState::{Silent, Up};
        let all = |broken| [("n1", Up, false), ("n2", Up, false), ("n3", Up, broken)];
        let mut watch = LinkWatch::default();
        watch.look(100, &view("n1", &all(true)));
        watch.look(110, &view("n1", &all(true)));
        assert_eq!(watch.issues(100 + BROKEN_AFTER - 1, "n1"), []);
        let told = watch.issues(100 + BROKEN_AFTER, "n1");
        assert_eq!((told.len(), told[0].code.as_str()), (1, "node-link-broken"));
        assert_eq!(told[0].severity, Severity::Warning);
        assert_eq!(told[0].subject, "nodes n1 and n3");
        assert!(told[0].detail.contains("LostCommunication") && told[0].detail.contains("mirrors"));
        watch.look(120, &view("n1", &all(false)));
        assert_eq!(watch.issues(1000, "n1"), [], "it is mended");
        watch.look(121, &view("n1", &all(true)));
        assert_eq!(watch.issues(122, "n1"), [], "it counts anew");
        watch.look(130, &view("n1", &[("n1", Up, false), ("n3", Silent, true)]));
        assert_eq!(watch.issues(1000, "n1"), [], "it is not heard of: that is told");
        let cut_off = ClusterStatus { cut_off: vec!["n3".into()], ..view("n1", &all(true)) };
        watch.look(140, &cut_off);
        assert_eq!(watch.issues(1000, "n1"), [], "this node is cut off: that is told");
    }

    #[test]
    fn both_nodes_say_the_same_of_their_link() {
        assert_eq!(of_link("n1", "n3"), of_link("n3", "n1"));
    }
}
