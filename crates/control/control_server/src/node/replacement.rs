//! Disks that are replaced without being told to: lost ones by spares, and suspects before they are lost.

use control_api::{DiskState, PoolMember};
use uuid::Uuid;

use super::Node;
use crate::backend::{PoolHandle, PoolInfo, SpaceInfo};

impl Node {
    /// Puts spares in the place of members that have been missing for too long.
    pub(super) async fn use_spares(&self) {
        let wait = self.config.with(|config| config.policy.spare_after_seconds);
        for (guid, handle) in self.open_handles() {
            let info = handle.info();
            for member in self.overdue(guid, &info, wait) {
                let replaced = match handle.use_spare(member).await {
                    Ok(true) => handle.give_up(member).await.map(|()| true),
                    other => other,
                };
                match replaced {
                    Ok(true) => {
                        tracing::info!(pool = info.name, disk = %member, "a spare takes the place of a lost disk")
                    }
                    // Nothing to do it with: status says so.
                    Ok(false) => {}
                    Err(problem) => {
                        tracing::error!(pool = info.name, %problem, "a spare could not take a lost disk's place")
                    }
                }
            }
        }
    }

    /// Members that have been missing for `wait` seconds, while there are spares. Keeps the times.
    fn overdue(&self, guid: Uuid, info: &PoolInfo, wait: u64) -> Vec<Uuid> {
        let now = self.clock.now();
        let mut pools = self.pools.lock();
        let Some(slot) = pools.get_mut(&guid) else { return Vec::new() };
        let missing: Vec<Uuid> = info
            .members
            .iter()
            .filter(|member| matches!(member.state, DiskState::Missing | DiskState::Failed))
            // One spare for each: this one has had its own.
            .filter(|member| !info.given_up.contains(&member.guid))
            .map(|member| member.guid)
            .collect();
        slot.missing_since.retain(|member, _| missing.contains(member));
        for member in &missing {
            slot.missing_since.entry(*member).or_insert(now);
        }
        let spares = info.members.iter().any(|member| member.state == DiskState::Spare);
        if wait == 0 || !spares {
            return Vec::new();
        }
        let due = slot.missing_since.iter().filter(|(_, since)| now.since(**since).as_secs() >= wait);
        due.map(|(member, _)| *member).collect()
    }

    /// Empties members that have shown more errors than the policy bears, or have been slow for too long: one at a time
    /// in each pool, while everything else is as it should be.
    pub(super) async fn retire_suspects(&self) {
        let (errors, slow) = self
            .config
            .with(|config| (config.policy.retire_after_errors, config.policy.retire_after_slow_seconds));
        for (_, handle) in self.open_handles() {
            let info = handle.info();
            let Some(suspect) = worst(&info, errors, slow) else { continue };
            let evidence = suspect.reason.clone().unwrap_or_default();
            let (disk, allocated) = (self.disk_name(suspect.guid), suspect.allocated_bytes);
            match self.make_room(&*handle, &info, suspect).await {
                Ok(true) => match handle.drain(suspect.guid).await {
                    Ok(()) => {
                        tracing::warn!(
                            pool = info.name,
                            disk,
                            allocated,
                            "a disk is emptied and retired: {evidence}"
                        )
                    }
                    Err(problem) => {
                        tracing::error!(pool = info.name, disk, %problem, "a suspect disk cannot be retired")
                    }
                },
                // Status says what it is suspected of, and that it should be replaced.
                Ok(false) => {}
                Err(problem) => tracing::error!(pool = info.name, disk, %problem, "a spare cannot be used"),
            }
        }
    }

    /// Whether the other members can take what a suspect holds, with a spare's help if need be.
    async fn make_room(
        &self,
        handle: &dyn PoolHandle,
        info: &PoolInfo,
        suspect: &PoolMember,
    ) -> Result<bool, control_api::Problem> {
        let others: Vec<&PoolMember> = info
            .members
            .iter()
            .filter(|member| member.guid != suspect.guid && member.state == DiskState::Online)
            .collect();
        let disks_of =
            |space: &SpaceInfo| usize::from(space.state.resiliency.copies()) * usize::from(space.columns);
        let needed = info.spaces.iter().map(disks_of).max().unwrap_or(0);
        // Copies of one thing go to different disks: one of the others may have more room than it may take.
        let free = |member: &&PoolMember| member.size_bytes.saturating_sub(member.allocated_bytes) / 10 * 9;
        let room: u64 = others.iter().map(free).sum();
        if others.len() >= needed && room / 2 >= suspect.allocated_bytes {
            return Ok(true);
        }
        if others.len() + 1 < needed {
            return Ok(false);
        }
        handle.use_spare(suspect.guid).await
    }
}

/// The member that should go first, if any should and can now.
fn worst(info: &PoolInfo, errors: u64, slow_seconds: u64) -> Option<&PoolMember> {
    let settled = |member: &PoolMember| matches!(member.state, DiskState::Online | DiskState::Spare);
    if !info.members.iter().all(settled) {
        return None;
    }
    // Each restored block counts once; one that cannot be restored would count at every read.
    let shown = |member: &PoolMember| member.io_errors + member.healed_blocks;
    let over = |shown: u64, most: u64| most > 0 && shown >= most;
    info.members
        .iter()
        .filter(|member| member.state == DiskState::Online)
        .filter(|member| over(shown(member), errors) || over(member.slow_seconds, slow_seconds))
        .max_by_key(|member| (shown(member), member.slow_seconds))
}
