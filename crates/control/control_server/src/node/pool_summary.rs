//! What is said of a pool in few words: its line in a list, and what brings it back.

use control_api::{DiskState, Pool, RedundancyState};

use crate::backend::PoolInfo;

/// A pool for a list.
pub(super) fn summary(info: &PoolInfo) -> Pool {
    let there = |state: DiskState| matches!(state, DiskState::Online | DiskState::Retiring);
    let capacity = info.members.iter().filter(|m| there(m.state)).map(|m| m.usable_bytes).sum();
    let allocated = info.members.iter().map(|m| m.allocated_bytes).sum();
    let online = info.members.iter().filter(|m| m.state == DiskState::Online);
    let free: u64 = online.map(|m| m.usable_bytes.saturating_sub(m.allocated_bytes)).sum();
    let reserved = info.reserved_bytes.min(free);
    let redundancy = info.spaces.iter().map(|space| space.state.redundancy).min();
    Pool {
        name: info.name.clone(),
        guid: info.guid,
        state: info.state,
        reason: info.reason.clone(),
        redundancy: redundancy.unwrap_or(RedundancyState::Full),
        capacity_bytes: capacity,
        allocated_bytes: allocated,
        free_bytes: free - reserved,
        reserved_bytes: reserved,
        disks: info.members.len() as u64,
        disks_missing: info
            .members
            .iter()
            .filter(|m| matches!(m.state, DiskState::Missing | DiskState::Failed))
            .count() as u64,
        volumes: info.spaces.iter().filter(|space| space.log_of.is_none()).count() as u64,
        repair_bytes: info.spaces.iter().map(|space| space.state.repair_bytes).sum(),
        copied_bytes: info.copied_bytes,
        slab_bytes: info.slab_bytes,
        epoch: info.epoch,
        address: None,
        home: Vec::new(),
        load: None,
        forecast: None,
        stays: None,
        discards: Vec::new(),
    }
}

/// What to do about a pool that too many disks are missing of.
pub(super) fn bring_back(pool: &str) -> String {
    format!(
        "Bring its disks back, the newer ones where older copies of them were put; the node tries again by itself. If some are lost for good: `holdfast pool import {pool} --accept-loss` opens it with those that are there. If all are: `holdfast pool forget {pool}` takes it out of this node's configuration."
    )
}
