//! Disks that are replaced without being told to: lost ones by spares or in the room that is kept for it, and suspects before
//! they are lost.

use std::collections::BTreeSet;
use std::sync::Arc;

use control_api::{DiskState, PoolMember};
use uuid::Uuid;

use super::Node;
use super::disk_table::Known;
use crate::backend::{PoolHandle, PoolInfo, SpaceInfo};

/// Where what a lost disk held is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Substitute {
    Spare,
    /// The room on the other disks that new data has left for it.
    Reserve,
}

impl Node {
    /// Gives up members that have been missing for too long, where there is a spare or a reserve for what they held.
    pub(super) async fn replace_lost(&self, guid: Uuid, handle: &Arc<dyn PoolHandle>) {
        let (wait, reserve) =
            self.config.with(|config| (config.policy.spare_after_seconds, config.policy.reserve_disks));
        for member in self.overdue(guid, &handle.info(), wait) {
            // As it is now: the one before has been given up meanwhile.
            let info = handle.info();
            let replaced = match handle.use_spare(member).await {
                Ok(true) => Ok(Some(Substitute::Spare)),
                Ok(false) => {
                    Ok(Some(Substitute::Reserve).filter(|_| is_reserved_for(&info, member, reserve)))
                }
                Err(problem) => Err(problem),
            };
            let replaced = match replaced {
                Ok(Some(by)) => handle.give_up(member).await.map(|()| Some(by)),
                other => other,
            };
            match replaced {
                Ok(Some(Substitute::Spare)) => {
                    tracing::info!(pool = info.name, disk = %member, "a spare takes the place of a lost disk")
                }
                Ok(Some(Substitute::Reserve)) => {
                    tracing::info!(pool = info.name, disk = %member, "what a lost disk held is made again on the others")
                }
                // Nothing to do it with: status says so.
                Ok(None) => {}
                Err(problem) => {
                    tracing::error!(pool = info.name, disk = %member, %problem, "a lost disk cannot be replaced")
                }
            }
        }
    }

    /// Members that have been missing for `wait` seconds. Keeps the times.
    fn overdue(&self, guid: Uuid, info: &PoolInfo, wait: u64) -> Vec<Uuid> {
        let now = self.clock.now();
        let mut pools = self.pools.lock();
        let Some(slot) = pools.get_mut(&guid) else { return Vec::new() };
        let missing: Vec<Uuid> = info
            .members
            .iter()
            .filter(|member| matches!(member.state, DiskState::Missing | DiskState::Failed))
            // One substitute for each: this one has had its own.
            .filter(|member| !info.given_up.contains(&member.guid))
            .map(|member| member.guid)
            .collect();
        slot.missing_since.retain(|member, _| missing.contains(member));
        for member in &missing {
            slot.missing_since.entry(*member).or_insert(now);
        }
        if wait == 0 {
            return Vec::new();
        }
        let due = slot.missing_since.iter().filter(|(_, since)| now.since(**since).as_secs() >= wait);
        due.map(|(member, _)| *member).collect()
    }

    /// Empties members that have shown more errors than the policy bears, or have been slow for too long: one at a time
    /// in each pool, while everything else is as it should be.
    pub(super) async fn retire_suspects(&self, handle: &Arc<dyn PoolHandle>) {
        let (errors, slow) = self
            .config
            .with(|config| (config.policy.retire_after_errors, config.policy.retire_after_slow_seconds));
        let info = handle.info();
        self.remember_members(&info);
        let shown = |member: &PoolMember| self.retirements.shown(member);
        let Some(suspect) = worst(&info, errors, slow, shown) else { return self.forget_retirements() };
        let evidence = suspect.reason.clone().unwrap_or_default();
        let (disk, allocated) = (self.disk_name(suspect.guid), suspect.allocated_bytes);
        match self.make_room(&**handle, &info, suspect).await {
            Ok(true) => match handle.drain(suspect.guid).await {
                Ok(()) => {
                    self.retirements.note(suspect.guid, &evidence);
                    tracing::warn!(
                        pool = info.name,
                        disk,
                        allocated,
                        "a disk is emptied and retired: {evidence}"
                    );
                }
                Err(problem) => {
                    tracing::error!(pool = info.name, disk, %problem, "a suspect disk cannot be retired")
                }
            },
            // Status says what it is suspected of, and that it should be replaced.
            Ok(false) => {}
            Err(problem) => tracing::error!(pool = info.name, disk, %problem, "a spare cannot be used"),
        }
        self.forget_retirements();
    }

    /// Keeps where members are and what they have shown, for when they are gone or the node was started again.
    fn remember_members(&self, info: &PoolInfo) {
        let (_, now) = self.times();
        for member in &info.members {
            // A disk that is full or has gone back in time is not suspected of anything.
            let evidence = member.reason.as_ref().filter(|reason| reason.starts_with("suspect"));
            if let (DiskState::Online, Some(evidence)) = (member.state, evidence) {
                self.retirements.suspect(member.guid, evidence, now);
            }
            if let Some(known) = self.claimant(member.guid).filter(|known| known.present) {
                self.retirements.is_at(member.guid, &place(&known));
            }
        }
    }

    /// A member's name, and where it is or was last.
    pub(super) fn whereabouts(&self, guid: Uuid) -> (String, Option<String>) {
        (self.disk_name(guid), self.retirements.place(guid))
    }

    /// Forgets why disks were retired that have left their pools. Of a pool that is not open nobody can say.
    fn forget_retirements(&self) {
        let pools: Vec<Uuid> = self.config.with(|config| config.pools.iter().map(|pool| pool.guid).collect());
        let handles: Option<Vec<_>> = {
            let slots = self.pools.lock();
            pools.iter().map(|pool| slots.get(pool)?.handle.clone()).collect()
        };
        let Some(handles) = handles else { return };
        let members: BTreeSet<Uuid> =
            handles.iter().flat_map(|handle| handle.info().members).map(|member| member.guid).collect();
        let (_, now) = self.times();
        self.retirements.forget_unless(now, |disk| members.contains(&disk));
    }

    /// Whether the other members can take what a suspect holds, with a spare's help if need be.
    async fn make_room(
        &self,
        handle: &dyn PoolHandle,
        info: &PoolInfo,
        suspect: &PoolMember,
    ) -> Result<bool, control_api::Problem> {
        let (others, room) = others(info, suspect.guid);
        let needed = disks_needed(info);
        // Copies of one thing go to different disks: one of the others may have more room than it may take.
        if others >= needed && room / 20 * 9 >= suspect.allocated_bytes {
            return Ok(true);
        }
        if others + 1 < needed {
            return Ok(false);
        }
        handle.use_spare(suspect.guid).await
    }
}

/// Where a disk is, as people would look for it.
fn place(known: &Known) -> String {
    let found = &known.found;
    let mut place = found.id.clone();
    if found.path != found.id {
        place.push_str(&format!(" at {}", found.path));
    }
    for (what, value) in [("model", &found.model), ("serial number", &found.serial)] {
        if let Some(value) = value {
            place.push_str(&format!(", {what} {value}"));
        }
    }
    place
}

/// The members beside one that are in use, and the bytes that are free on them.
fn others(info: &PoolInfo, but: Uuid) -> (usize, u64) {
    let others = info.members.iter().filter(|member| member.guid != but && member.state == DiskState::Online);
    let free = |member: &PoolMember| member.size_bytes.saturating_sub(member.allocated_bytes);
    others.fold((0, 0), |(count, room), member| (count + 1, room + free(member)))
}

/// The disks that a row of the widest space is on.
fn disks_needed(info: &PoolInfo) -> usize {
    let disks_of =
        |space: &SpaceInfo| usize::from(space.state.resiliency.copies()) * usize::from(space.columns);
    info.spaces.iter().map(disks_of).max().unwrap_or(0)
}

/// Whether there is room on the other disks for what a lost one held, kept for as many as have been given up and this one.
fn is_reserved_for(info: &PoolInfo, lost: Uuid, reserve: u32) -> bool {
    let Some(held) = info.members.iter().find(|member| member.guid == lost) else { return false };
    let (others, room) = others(info, lost);
    info.given_up.len() < reserve as usize && others >= disks_needed(info) && room >= held.allocated_bytes
}

/// The member that should go first, if any should and can now.
fn worst(
    info: &PoolInfo,
    errors: u64,
    slow_seconds: u64,
    shown: impl Fn(&PoolMember) -> (u64, u64),
) -> Option<&PoolMember> {
    let settled = |member: &PoolMember| matches!(member.state, DiskState::Online | DiskState::Spare);
    if !info.members.iter().all(settled) {
        return None;
    }
    let over = |shown: u64, most: u64| most > 0 && shown >= most;
    info.members
        .iter()
        .filter(|member| member.state == DiskState::Online)
        .filter(|member| over(shown(member).0, errors) || over(shown(member).1, slow_seconds))
        .max_by_key(|member| shown(member))
}
