//! Volumes and pools that have stopped: closed, and opened again as soon as that can be.
//!
//! ```text
//!   disks are away ──► a flush or commit fails ──► the volume stops; without a majority of voters the pool stops, too
//!        who serves lets go: LUNs become not ready, and their commands wait; clients of shares come back to what they had open
//!        volumes close, then pools let go of their disks, both as a crash would leave them
//!   disks are back ──► pools open, volumes open (what was promised is there, the rest is an error that was told) ──► served again
//! ```
//! Closing never says "clean" of what has stopped: what was promised is found at the opening as after a crash, and no flush that
//! failed is called good afterwards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use control_api::{Code, Done, Problem};
use uuid::Uuid;

use super::path::Turn;
use super::{Node, VolumeSlot, confirm};
use crate::backend::{OpenTold, PoolHandle, PoolInfo, VolumeHandle};

/// What is said of a volume that waits for its disks.
const WAITS: &str = "it is opened again by itself when its disks are there";

/// A volume that had no space for its metadata is opened again when it can hold so many bytes more.
const ROOM_BYTES: u64 = 64 << 20;

/// An open volume that has stopped, or whose pool has.
struct StoppedVolume {
    name: String,
    pool: Uuid,
    why: String,
    gave_up: bool,
}

/// Whether a pool finds room for what a space needs, as far as anybody knows: no member's file system is full.
fn has_room_for(pool: &PoolInfo, space: Uuid) -> bool {
    pool.members.iter().all(|member| member.full_seconds == 0)
        && pool.spaces.iter().any(|known| known.guid == space && !known.out_of_room)
}

impl Node {
    /// Closes what has stopped and opens what can be opened of it: each pool on its own path, in a task of its own. Whoever is at a
    /// pool comes first.
    pub(super) fn reopen_stopped(&self) {
        // Looked at without turns: nearly always there is none.
        let stopped = self.stopped_pools();
        let guids: Vec<Uuid> = stopped.into_iter().map(|(guid, _)| guid).collect();
        let volumes = self.stopped_volumes(&guids).into_iter().map(|volume| volume.pool);
        let roomy = self.roomy_volumes(None).into_iter().map(|(_, pool)| pool);
        let pools: BTreeSet<Uuid> = guids.iter().copied().chain(volumes).chain(roomy).collect();
        for pool in pools {
            let (Some(node), Some(turn)) = (self.arc(), self.try_turn(pool)) else { continue };
            tokio::spawn(async move {
                node.close_stopped(&turn).await;
                node.close_roomy(&turn).await;
                node.look().await;
                node.tell_of_members(pool, &turn).await;
                let config =
                    node.config.with(|config| config.pools.iter().find(|known| known.guid == pool).cloned());
                let driven = node.driven.load(Ordering::Acquire) && !node.is_open(pool);
                if let Some(config) = config.filter(|_| !driven) {
                    node.bring_up(&config, OpenTold::default(), &turn).await;
                }
            });
        }
    }

    /// Open pools that have stopped. Where orders come from elsewhere, a pool that has stopped waits for one.
    fn stopped_pools(&self) -> Vec<(Uuid, Arc<dyn PoolHandle>)> {
        if self.driven.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.open_handles().into_iter().filter(|(_, handle)| handle.has_stopped()).collect()
    }

    /// Open volumes that have stopped, or whose pool has.
    fn stopped_volumes(&self, pools: &[Uuid]) -> Vec<StoppedVolume> {
        let volumes = self.volumes.lock();
        let stopped = |(name, slot): (&String, &VolumeSlot)| {
            let handle = slot.handle.as_ref()?;
            let why = handle.why_stopped();
            let why =
                why.or_else(|| pools.contains(&slot.pool).then(|| "its pool has stopped".to_owned()))?;
            Some(StoppedVolume { name: name.clone(), pool: slot.pool, why, gave_up: handle.has_given_up() })
        };
        volumes.iter().filter_map(stopped).collect()
    }

    /// Open volumes, of a pool or of all, that had no space for their metadata when they were opened, and for which there may be some
    /// now: their pools have more, or the file systems of the members are not full any more.
    fn roomy_volumes(&self, of: Option<Uuid>) -> Vec<(String, Uuid)> {
        let lacking: Vec<(String, VolumeSlot, bool)> = {
            let volumes = self.volumes.lock();
            let of_these = volumes.iter().filter(|(_, slot)| of.is_none_or(|pool| slot.pool == pool));
            let lacking = |(name, slot): (&String, &VolumeSlot)| {
                let handle = slot.handle.as_ref().filter(|handle| handle.lacks_space())?;
                let more = handle.can_hold() >= slot.held_full.saturating_add(ROOM_BYTES);
                Some((name.clone(), slot.clone(), more))
            };
            of_these.filter_map(lacking).collect()
        };
        let now = self.clock.now();
        // That members have room is known only when something is written to them: trying costs the volume's clients a moment, so what
        // did not help is tried again less and less often.
        let may_have = |name: &str, slot: &VolumeSlot| {
            let pool = self.pools.lock().get(&slot.pool).and_then(|pool| pool.handle.clone());
            !self.full_restarts.holds(slot.pool, name, now)
                && pool.is_some_and(|pool| has_room_for(&pool.info(), slot.space))
        };
        let roomy = lacking.into_iter().filter(|(name, slot, more)| *more || may_have(name, slot));
        roomy.map(|(name, slot, _)| (name, slot.pool)).collect()
    }

    /// Closes volumes that need to be opened again to take changes, once their pool has space for that.
    async fn close_roomy(&self, turn: &Turn) {
        let roomy = self.roomy_volumes(Some(turn.pool()));
        for (volume, pool) in &roomy {
            self.full_restarts.gave_up(*pool, volume, self.clock.now());
        }
        let closing = roomy.iter().map(|(volume, _)| {
            tracing::info!(volume, "there is more space for a full volume: it is opened again");
            (volume.clone(), "it is being opened again, as there is space for its metadata".to_owned())
        });
        self.close_volumes(turn, closing.collect()).await;
        let mut volumes = self.volumes.lock();
        for (volume, _) in roomy {
            // Nothing is away.
            volumes.entry(volume).and_modify(|slot| slot.waits = false);
        }
    }

    /// Closes volumes of a pool that have stopped, and the pool if it has.
    async fn close_stopped(&self, turn: &Turn) {
        let pool = turn.pool();
        let stopped = self.stopped_pools().into_iter().find(|(guid, _)| *guid == pool);
        let guids: Vec<Uuid> = stopped.iter().map(|(guid, _)| *guid).collect();
        let volumes = self.stopped_volumes(&guids).into_iter().filter(|volume| volume.pool == pool);
        let now = self.clock.now();
        let closing = volumes.map(|StoppedVolume { name, pool, why, gave_up }| {
            tracing::error!(volume = name, why, "a volume has stopped and is closed");
            let wait = if gave_up { self.restarts.gave_up(pool, &name, now).as_secs() } else { 0 };
            let then = match wait {
                0 => WAITS.to_owned(),
                wait => format!(
                    "that comes again each time soon after it is opened, so it stays closed for {wait} s; `holdfast volume check {name}` says what is damaged, `holdfast volume reopen {name}` opens it now"
                ),
            };
            (name, format!("it had stopped ({why}); {then}"))
        });
        self.close_volumes(turn, closing.collect()).await;
        let Some((_, handle)) = stopped else { return };
        let held = handle.info().spaces;
        let abandoned = handle.abandon().await;
        let mut slots = self.pools.lock();
        let Some(slot) = slots.get_mut(&pool) else { return };
        match abandoned {
            Ok(()) => {
                tracing::error!(pool = slot.name, "a pool has stopped and is closed");
                slot.handle = None;
                slot.held = Some(held);
                (slot.reason, slot.todo) = (Some(format!("it had stopped; {WAITS}")), None);
            }
            Err(problem) => {
                // Once, not at every try.
                if slot.reason.as_ref() != Some(&problem.detail) {
                    tracing::error!(pool = slot.name, %problem, "a pool that has stopped can't be closed yet");
                    slot.reason = Some(problem.detail);
                }
            }
        }
    }

    /// Closes volumes of a pool, with what is said of each meanwhile; who serves lets go of them first.
    async fn close_volumes(&self, turn: &Turn, closing: Vec<(String, String)>) {
        let mut handles: Vec<(String, Arc<dyn VolumeHandle>)> = Vec::new();
        {
            let mut volumes = self.volumes.lock();
            for (name, why) in closing {
                let Some(slot) = volumes.get_mut(&name) else { continue };
                let closed = VolumeSlot { waits: true, ..VolumeSlot::closed(slot.pool, slot.space, why) };
                let open = std::mem::replace(slot, closed);
                handles.extend(open.handle.map(|handle| (name, handle)));
            }
        }
        if !handles.is_empty() {
            self.close_volumes_of(turn, handles).await;
        }
    }

    /// Closes a volume if it is open, and opens it, though some of its data may not be there.
    ///
    /// # Errors
    /// When it cannot be opened, or serves and that it is interrupted was not confirmed.
    pub async fn volume_reopen(&self, name: &str, confirmed: Option<String>) -> Result<Done, Problem> {
        let turns = self.turn_of_volume(name).await?;
        let of = self.volumes.lock().get(name).map(|slot| slot.pool);
        if let (Err(_), Some(of)) = (self.space(name), of) {
            let pool = self.pool_name(of).unwrap_or_else(|| of.to_string());
            return Err(Problem::new(
                Code::WrongState,
                format!("pool {pool}, which volume {name} lies in, is not open."),
            )
            .todo("`holdfast status` says what it waits for; the volume is opened with it."));
        }
        let (pool, ..) = self.space(name)?;
        let Some(turn) = turns.iter().find(|turn| turn.is_of(pool)) else {
            return Err(Problem::new(Code::WrongState, format!("volume {name} has just changed its pool."))
                .todo("Try again."));
        };
        if let Ok(handle) = self.volume(name) {
            if handle.why_stopped().is_none() {
                confirm(name, confirmed.as_deref(), || {
                    let waits = format!(
                        "Volume {name} serves; its clients wait while it is closed and opened again, and what some have open is lost."
                    );
                    std::iter::once(waits).chain(self.discards_of_volume(name)).collect()
                })?;
            }
            self.close_volumes(turn, vec![(name.to_owned(), "it is being opened again".to_owned())]).await;
        }
        if let Some(slot) = self.volumes.lock().get_mut(name) {
            slot.waits = false;
            self.restarts.forget(slot.pool, name);
        }
        self.open_volumes(pool).await;
        self.serve_pool(Some(pool)).await;
        self.volume(name)?;
        Ok(Done::new(format!("Volume {name} is open.")))
    }
}
