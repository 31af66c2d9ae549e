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
use cluster_store::values::{Beat, Incarnation, Member, Value as _};

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
}

/// What a reading of the whole state says.
pub(crate) fn look(
    me: NodeId,
    cluster: &ClusterName,
    snapshot: &Snapshot,
    is_gone: impl FnOnce(Incarnation) -> bool,
) -> Gate {
    let find = |key: Key| {
        let path = key.path(cluster);
        snapshot.found.iter().find(|found| found.key == path)
    };
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
        look(me(), &name(), snapshot, |life| life.0 <= gone)
    }

    #[test]
    fn only_who_is_gone_or_evicted_is_replaced() {
        assert_eq!(looked(&Snapshot::default(), 0), Gate::Open { above: Incarnation(0) });
        assert_eq!(looked(&state(None, 7), 0), Gate::Open { above: Incarnation(7) });
        assert_eq!(looked(&state(Some(6), 7), 6), Gate::Open { above: Incarnation(7) });
        assert!(matches!(looked(&state(Some(7), 6), 6), Gate::Closed(_)));
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
