//! Whether a node may begin a life: not while somebody else may live under its number.
//!
//! Rule 4 of `pool_ownership` takes pools from a life that is replaced without waiting, as its process is gone. That is known of a life that
//! this data directory began on this machine ([`Incarnations::is_gone`](crate::Incarnations::is_gone)). Of any other (a copy of the
//! directory on another machine, a number given twice) nothing is known, and silence in the store proves nothing: it may go on by what
//! the other members promise it, or alone. So it is left to the other members, who keep their promises, to evict it; or to an
//! administrator, who says that it is gone. Until then this node says why it does not take part.
//!
//! What is not known: of two copies of a directory that have taken the same number before either joined, the one that gave way takes the other's
//! life for its own when it looks again, and replaces it. Epochs keep their writes apart on disks; answers are not. A life needs an identity
//! in `members/N` beside its number before the control plane uses this.

use cluster_store::Snapshot;
use cluster_store::keys::{ClusterName, Key, NodeId};
use cluster_store::values::{Beat, Incarnation, Member, NodeEntry, Value as _};

/// Whether there is a way in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// There is, with a number above this one.
    Open {
        /// The highest number that was used.
        above: Incarnation,
    },
    /// There is not, and why.
    Closed(String),
    /// The cluster has removed this node; the same for people.
    Removed(String),
}

/// What a reading of the whole state says; `called` is the node's name.
pub(crate) fn look(
    (me, called): (NodeId, &str),
    cluster: &ClusterName,
    snapshot: &Snapshot,
    is_gone: impl FnOnce(Incarnation) -> bool,
) -> Gate {
    let find = |key: Key| {
        let path = key.path(cluster);
        snapshot.found.iter().find(|found| found.key == path)
    };
    match belongs((me, called), cluster, snapshot) {
        Ok(true) => {}
        Ok(false) => return Gate::Removed(removed(me)),
        Err(why) => return Gate::Closed(format!("{why}. {LEAVE}")),
    }
    let beat = find(Key::Beat(me)).map(|found| Beat::decode(&found.value));
    let beaten = match beat {
        Some(Err(error)) => return Gate::Closed(format!("the last beat of node {me} is {error}")),
        Some(Ok(beat)) => beat.incarnation,
        None => Incarnation(0),
    };
    // Whoever had the number and is no member was evicted.
    let Some(member) = find(Key::Member(me)) else { return Gate::Open { above: beaten } };
    let life = match Member::decode(&member.value) {
        Ok(member) => member.incarnation,
        Err(error) => return Gate::Closed(format!("node {me} is there already, with {error}")),
    };
    if is_gone(life) {
        return Gate::Open { above: beaten.max(life) };
    }
    Gate::Closed(format!(
        "node {me} is there already, in its life {}, which this data directory did not begin on this machine: the other nodes remove it \
         when they have not heard of it for a while; if it is another machine, give this one another number",
        life.0
    ))
}

/// What a node does that does not belong to the cluster any more.
const LEAVE: &str = "`holdfast cluster leave` makes this node one on its own, which may join again";

/// That the cluster has removed a node.
pub(crate) fn removed(node: NodeId) -> String {
    format!("the cluster has removed node {node}. {LEAVE}")
}

/// Whether the cluster has this node among those that belong to it, and has not removed it; or why it has another one there, or none.
fn belongs((me, called): (NodeId, &str), cluster: &ClusterName, snapshot: &Snapshot) -> Result<bool, String> {
    let mut all = snapshot.found.iter().filter_map(|found| match Key::parse(cluster, &found.key) {
        Some(Key::Node(node)) => Some((node, found)),
        _ => None,
    });
    let Some((first, _)) = all.clone().next() else { return Ok(true) };
    let Some((_, found)) = all.find(|(node, _)| *node == me) else {
        return Err(format!(
            "the cluster has node {first} and does not know node {me}: its shared state is that of before this node joined, restored from a backup perhaps"
        ));
    };
    let entry =
        NodeEntry::decode(&found.value).map_err(|error| format!("the entry of node {me} is {error}"))?;
    if entry.removed {
        return Ok(false);
    }
    if !called.is_empty() && entry.name != called {
        return Err(format!(
            "number {me} is that of node {}, and this node is called {called}: the number was given a second time, after the shared state was restored from a backup perhaps",
            entry.name
        ));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use cluster_store::{Found, Revision};

    use super::*;

    fn name() -> ClusterName {
        ClusterName::new("c").expect("a name")
    }

    fn me() -> NodeId {
        NodeId::new(2).expect("a number")
    }

    fn found(key: Key, value: Vec<u8>) -> Found {
        Found { key: key.path(&name()), value, created: Revision(1), modified: Revision(9) }
    }

    fn state(member: Option<u64>, beat: u64) -> Snapshot {
        let beat =
            Beat { incarnation: Incarnation(beat), counter: 1, membership: 0 }.encode().expect("a beat");
        let mut all = vec![found(Key::Beat(me()), beat)];
        if let Some(member) = member {
            let member = Member {
                incarnation: Incarnation(member),
                addresses: Vec::new(),
                paused: false,
                draining: false,
                release: String::new(),
                name: String::new(),
                api: String::new(),
                bus: String::new(),
            };
            all.push(found(Key::Member(me()), member.encode().expect("a member")));
        }
        Snapshot { revision: Revision(9), found: all }
    }

    fn looked(snapshot: &Snapshot, gone: u64) -> Gate {
        look((me(), "beta"), &name(), snapshot, |life| life.0 <= gone)
    }

    #[test]
    fn only_who_is_gone_or_evicted_is_replaced() {
        assert_eq!(looked(&Snapshot::default(), 0), Gate::Open { above: Incarnation(0) });
        assert_eq!(looked(&state(None, 7), 0), Gate::Open { above: Incarnation(7) });
        assert_eq!(looked(&state(Some(6), 7), 6), Gate::Open { above: Incarnation(7) });
        assert!(matches!(looked(&state(Some(7), 6), 6), Gate::Closed(_)));
    }

    /// The state with the entries of nodes that belong to the cluster.
    fn with(entries: &[(u16, &str, bool)]) -> Snapshot {
        let mut state = state(None, 7);
        state.found.extend(entries.iter().map(|(node, name, removed)| {
            let entry = NodeEntry {
                name: (*name).into(),
                api: String::new(),
                release: String::new(),
                joined: 0,
                removed: *removed,
                token: String::new(),
                key: String::new(),
            };
            found(Key::Node(NodeId::new(*node).expect("a number")), entry.encode().expect("an entry"))
        }));
        state
    }

    #[test]
    fn only_who_belongs_to_the_cluster_comes_in() {
        let open = Gate::Open { above: Incarnation(7) };
        assert_eq!(looked(&with(&[(1, "alpha", false), (2, "beta", false)]), 0), open);
        let closed = |entries: &[(u16, &str, bool)], why: &str| {
            let gate = looked(&with(entries), 9);
            assert!(matches!(&gate, Gate::Closed(said) if said.contains(why)), "{gate:?}");
        };
        let gate = looked(&with(&[(1, "alpha", false), (2, "beta", true)]), 9);
        assert!(matches!(&gate, Gate::Removed(said) if said.contains("removed node 2")), "{gate:?}");
        // A store that was restored from a backup of before it joined, and one in which its number was given to another since.
        closed(&[(1, "alpha", false)], "does not know node 2");
        closed(&[(1, "alpha", false), (2, "gamma", false)], "is that of node gamma");
    }

    #[test]
    fn what_is_not_understood_is_not_replaced() {
        for at in [0, 1] {
            let mut newer = state(Some(3), 3);
            newer.found[at].value = br#"{"version":9}"#.to_vec();
            assert!(matches!(looked(&newer, 3), Gate::Closed(why) if why.contains("newer release")), "{at}");
        }
    }
}
