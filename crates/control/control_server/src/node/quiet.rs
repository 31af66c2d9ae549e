//! When pools do not move by themselves: before the nodes of the cluster have been what they are for a while, and again soon after they have
//! moved. A pool that its home cannot open, which another node then takes, would go to and fro otherwise.

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

/// The shortest time between two moves of one pool.
const APART: Duration = Duration::from_secs(60);
/// For so long after a pool may move again it is remembered how often it has moved.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);
/// So often that time is doubled at most.
const MOST_DOUBLED: u32 = 8;

/// Pools that have moved by themselves: until when they do not again, and how often they have.
#[derive(Debug, Default)]
pub(super) struct Moved(Mutex<BTreeMap<String, (Monotonic, u32)>>);

impl Moved {
    /// Whether a pool may move by itself.
    pub(super) fn may_move(&self, now: Monotonic, pool: &str) -> bool {
        self.0.lock().get(pool).is_none_or(|(until, _)| now >= *until)
    }

    /// It does: not again for this long, and for twice as long each time.
    pub(super) fn moves(&self, now: Monotonic, pool: &str, apart: Duration) {
        let mut moved = self.0.lock();
        moved.retain(|_, (until, _)| now.since(*until) < REMEMBERED);
        let times = moved.get(pool).map_or(0, |(_, times)| *times);
        let nanos = apart.max(APART).saturating_mul(1 << times.min(MOST_DOUBLED)).as_nanos();
        let until = now.0.saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX));
        moved.insert(pool.to_owned(), (Monotonic(until), times + 1));
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

    #[test]
    fn a_pool_that_comes_back_is_moved_ever_more_seldom() {
        let moved = Moved::default();
        let at = |seconds: u64| Monotonic(seconds * 1_000_000_000);
        let ten = Duration::from_secs(600);
        assert!(moved.may_move(at(0), "p"));
        moved.moves(at(0), "p", ten);
        assert!(!moved.may_move(at(599), "p") && moved.may_move(at(600), "p") && moved.may_move(at(1), "q"));
        moved.moves(at(600), "p", ten);
        assert!(!moved.may_move(at(1799), "p") && moved.may_move(at(1800), "p"));
        for _ in 0..20 {
            moved.moves(at(1800), "p", ten);
        }
        assert!(!moved.may_move(at(1800 + 600 * 255), "p") && moved.may_move(at(1800 + 600 * 256), "p"));
        // It has stayed for long.
        let later = 1800 + 600 * 256 + 24 * 3600;
        moved.moves(at(later), "p", ten);
        assert!(moved.may_move(at(later + 600), "p"));
        moved.moves(at(0), "r", Duration::from_secs(1));
        assert!(!moved.may_move(at(59), "r") && moved.may_move(at(60), "r"));
    }
}
