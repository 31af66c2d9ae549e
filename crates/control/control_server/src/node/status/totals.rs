//! Which pools the totals of a status are of.

use control_api::{CountedPool, Pool, PoolState, UncountedPool};

use super::super::pools_away::PoolsAway;

/// The pools that can be looked into here, and those that cannot, though no other node has them.
pub(super) fn counted(pools: &[Pool], away: &PoolsAway) -> (Vec<CountedPool>, Vec<UncountedPool>) {
    let (mut counted, mut not) = (Vec::new(), Vec::new());
    for pool in pools {
        let why = match pool.state {
            PoolState::Elsewhere => continue,
            PoolState::Opening | PoolState::Closed if away.is_waiting(pool.guid) => "no node serves it now",
            PoolState::Opening => "it is not open yet",
            PoolState::Closed => "it is not open",
            PoolState::Online | PoolState::Degraded | PoolState::ReadOnly => {
                counted.push(CountedPool {
                    pool: pool.name.clone(),
                    epoch: pool.epoch,
                    disks: pool.disks,
                    volumes: pool.volumes,
                    capacity_bytes: pool.capacity_bytes,
                    free_bytes: pool.free_bytes,
                });
                continue;
            }
        };
        not.push(UncountedPool { pool: pool.name.clone(), why: why.to_owned() });
    }
    (counted, not)
}
