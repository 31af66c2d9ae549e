//! For how long the nodes of the cluster have been what they are.

use std::collections::BTreeMap;
use std::time::Duration;

use control_api::ClusterMemberState;
use parking_lot::Mutex;
use shard_runtime::Monotonic;

/// The nodes as they were seen last, and since when they have been so.
#[derive(Debug, Default)]
pub(super) struct Quiet(Mutex<Option<(Monotonic, BTreeMap<String, ClusterMemberState>)>>);

impl Quiet {
    /// For how long the nodes have been what they are now.
    pub(super) fn lasts(&self, now: Monotonic, nodes: BTreeMap<String, ClusterMemberState>) -> Duration {
        let mut seen = self.0.lock();
        match &*seen {
            Some((since, known)) if *known == nodes => now.since(*since),
            _ => {
                *seen = Some((now, nodes));
                Duration::ZERO
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_changes_is_waited_for_anew() {
        let quiet = Quiet::default();
        let nodes = |state| BTreeMap::from([("n1".to_owned(), state)]);
        let lasts =
            |seconds: u64, state| quiet.lasts(Monotonic(seconds * 1_000_000_000), nodes(state)).as_secs();
        assert_eq!(lasts(0, ClusterMemberState::Up), 0);
        assert_eq!(lasts(600, ClusterMemberState::Up), 600);
        assert_eq!(lasts(601, ClusterMemberState::Paused), 0);
        assert_eq!(lasts(1201, ClusterMemberState::Paused), 600);
    }
}
