//! What the node does by itself: notices lost and returned disks, puts spares in, follows repair.

use std::sync::Arc;
use std::time::Duration;

use control_api::{DiskState, JobKind, RedundancyState, RescanReport};
use uuid::Uuid;

use super::Node;
use super::disks::vanished;
use super::path::{PATIENCE, Turn};
use crate::backend::{PoolDisk, PoolHandle, PoolInfo, SpaceInfo};

/// How often repair is looked at, for progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// How often schedules are looked at: snapshots may be that late.
const SCHEDULES_EVERY: Duration = Duration::from_secs(10);

/// How often it is looked what pools do, and which pool of a cluster should move by itself.
const LOADS_EVERY: Duration = Duration::from_secs(10);

/// How often caches are held against the memory that is left.
const BALANCE_EVERY: Duration = Duration::from_secs(1);

impl Node {
    /// Watches until the node stops.
    pub async fn watch(self: Arc<Self>) {
        let mut last_look = self.clock.now();
        let mut last_schedules = None;
        let mut last_balance = last_look;
        let mut last_loads = last_look;
        loop {
            tokio::select! {
                () = tokio::time::sleep(PROGRESS_EVERY) => {}
                () = self.stopped() => return,
            }
            self.follow_repairs();
            self.reopen_stopped();
            let every = Duration::from_secs(self.config.with(|config| config.policy.rescan_seconds));
            let now = self.clock.now();
            if last_schedules.is_none_or(|last| now.since(last) >= SCHEDULES_EVERY) {
                last_schedules = Some(now);
                self.run_schedules().await;
            }
            if now.since(last_balance) >= BALANCE_EVERY {
                last_balance = now;
                self.balance_caches().await;
            }
            if now.since(last_loads) >= LOADS_EVERY {
                last_loads = now;
                self.look_at_loads();
                self.begin_balance();
            }
            if now.since(last_look) >= every {
                last_look = now;
                self.backends.smb.refresh();
                self.watch_space();
                let upkeep = self.upkeep();
                self.open_handles().iter().for_each(|(_, handle)| handle.set_upkeep(upkeep));
                // Whoever looks now tells the pools, too.
                if let Ok(_looking) = self.looking.try_lock() {
                    self.look_again().await;
                }
                self.look_after_pools();
                self.say_pool_disks();
                self.retry_closed_beside();
            }
        }
    }

    /// Looks for lost and returned disks and tells the pools. Whoever calls has neither the change lock nor a pool's turn.
    pub(super) async fn rescan(&self) -> RescanReport {
        let (new, _gone) = self.look().await;
        let mut report = RescanReport { found: new, ..RescanReport::default() };
        let looks = self.open_handles().into_iter().filter_map(|(guid, _)| {
            let node = self.arc()?;
            Some(tokio::spawn(async move {
                let turn = node.turn(guid).await;
                node.tell_of_members(guid, &turn).await
            }))
        });
        let looks = looks.map(|look| tokio::time::timeout(PATIENCE, look));
        for of_pool in futures_util::future::join_all(looks.collect::<Vec<_>>()).await {
            // A pool that does not answer is told when it does.
            let Ok(Ok(of_pool)) = of_pool else { continue };
            report.found.retain(|found| !of_pool.returned.contains(found));
            report.returned.extend(of_pool.returned);
            report.missing.extend(of_pool.missing);
        }
        report
    }

    /// Looks after each open pool where nobody is at it, in a task of its own: disks that came or went, spares, suspects, and then
    /// volumes that could not be opened. These belong here, since the task has the turn that opening them needs.
    fn look_after_pools(&self) {
        for (guid, handle) in self.open_handles() {
            let (Some(node), Some(turn)) = (self.arc(), self.try_turn(guid)) else { continue };
            tokio::spawn(async move {
                node.tell_of_members(guid, &turn).await;
                node.replace_lost(guid, &handle).await;
                node.retire_suspects(&handle).await;
                node.open_what_is_left(&turn).await;
            });
        }
    }

    /// Tells a pool which of its disks came back or are gone.
    pub(super) async fn tell_of_members(&self, guid: Uuid, _turn: &Turn) -> RescanReport {
        let mut report = RescanReport::default();
        let handle = self.pools.lock().get(&guid).and_then(|slot| slot.handle.clone());
        let Some(handle) = handle else { return report };
        self.name_disks(guid, &*handle);
        for member in handle.info().members {
            let claimants = self.claimants(member.guid);
            let known = claimants.first();
            // The one that was in use has gone, and a copy of it is there.
            let gone = claimants.iter().any(|known| known.served && !known.present)
                && !known.is_some_and(|known| self.is_used(known));
            let there = known.is_some_and(|known| known.present && !vanished(known));
            let name = known.map_or_else(|| member.guid.to_string(), |known| known.found.id.clone());
            match (member.state, there) {
                (DiskState::Missing, true) => {
                    // Looks again what is on it: a path may lead to another disk by now.
                    self.probe(&name).await;
                    // That one, and no other that says the same of itself.
                    let is_back = |(disk, found): &(Uuid, PoolDisk)| *disk == member.guid && found.id == name;
                    let Some((_, disk)) = self.members(guid).into_iter().find(is_back) else { continue };
                    let returned = async {
                        let disk = self.fence_one(guid, &*handle, disk).await?;
                        handle.returned(member.guid, disk).await
                    };
                    match returned.await {
                        Ok(()) => {
                            tracing::info!(disk = name, "disk of a pool is back");
                            self.unusable.lock().remove(&name);
                            report.returned.push(name);
                        }
                        Err(problem) => {
                            let why = problem.to_string();
                            let said = self.unusable.lock().insert(name.clone(), why.clone());
                            if said.as_ref() != Some(&why) {
                                tracing::warn!(disk = name, %problem, "disk is back but not usable");
                            }
                        }
                    }
                }
                (DiskState::Missing | DiskState::Failed, _) => {}
                (_, true) if !gone => {}
                _ => {
                    report.missing.push(name.clone());
                    match handle.lost(member.guid).await {
                        Ok(()) => tracing::info!(disk = name, "disk of a pool is gone"),
                        Err(problem) => {
                            tracing::error!(disk = name, %problem, "a lost disk could not be noted")
                        }
                    }
                }
            }
        }
        report
    }

    /// Pools that are open.
    pub(super) fn open_handles(&self) -> Vec<(Uuid, Arc<dyn PoolHandle>)> {
        let pools = self.pools.lock();
        pools.iter().filter_map(|(guid, slot)| Some((*guid, slot.handle.clone()?))).collect()
    }

    /// Keeps the jobs of repairs up to date.
    fn follow_repairs(&self) {
        let (now_ms, wall) = self.times();
        for (_, handle) in self.open_handles() {
            let info = handle.info();
            let subject = format!("pool {}", info.name);
            let left: u64 = info.spaces.iter().map(|space| space.state.repair_bytes).sum();
            match self.jobs.running(JobKind::Repair, &subject) {
                None if info.repairing && left > 0 => {
                    let id = self.jobs.start(JobKind::Repair, &subject, now_ms, wall);
                    self.jobs.progress(id, left, "copies are being restored", now_ms);
                }
                Some(id) if left == 0 => {
                    let lacking = |space: &SpaceInfo| space.state.redundancy < RedundancyState::Restoring;
                    let said = if info.spaces.iter().any(lacking) {
                        "All copies are restored for which there are disks with room; `holdfast status` says what is missing."
                    } else {
                        "Every copy is restored."
                    };
                    self.jobs.end(id, Ok(said.into()));
                }
                Some(id) if info.repairing => {
                    self.jobs.progress(id, left, "copies are being restored", now_ms)
                }
                Some(id) => self.jobs.progress(id, left, "waits for a disk to copy to", now_ms),
                None => {}
            }
            self.follow_rebalance(&info, &subject);
        }
    }

    fn follow_rebalance(&self, info: &PoolInfo, subject: &str) {
        let (now_ms, wall) = self.times();
        let left = info.balance.bytes_left;
        let id = match self.jobs.running(JobKind::Rebalance, subject) {
            None if left > 0 => self.jobs.start(JobKind::Rebalance, subject, now_ms, wall),
            Some(id) if left == 0 && !info.balance.waiting => {
                return self.jobs.end(id, Ok("The disks are as even as can be.".into()));
            }
            Some(id) => id,
            None => return,
        };
        self.jobs.progress(id, left, "slabs are being moved", now_ms);
    }

    /// Tries again what could not be opened or served: disks may be back, an address may be free. Waits for pools that answer.
    pub(super) async fn retry_closed(&self) {
        self.open_pools(None).await;
        self.serve_again().await;
    }

    /// The same, and waits for nothing.
    fn retry_closed_beside(&self) {
        // Each in a task of its own.
        drop(self.begin_opening(None));
        if let Some(node) = self.arc().filter(|node| !node.unserved.lock().is_empty()) {
            tokio::spawn(async move { node.serve_again().await });
        }
    }
}
