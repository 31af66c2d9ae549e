//! Which of several volumes of one name the node serves.
//!
//! A name is one volume's at a time. It is given
//! 1. to a volume that LUNs or shares are on, before one that nothing is on;
//! 2. to that of the pool that is first in the configuration, at each start the same.
//!
//! While the pool of a volume that something is on is away, its name is kept for it. Who has a name keeps it; only a volume that
//! nothing is on makes way for one that something is on.

use std::collections::BTreeSet;
use std::sync::Arc;

use control_api::{Code, Problem};
use uuid::Uuid;

use super::path::{PATIENCE, Turn};
use super::pool_summary::bring_back;
use super::{Node, VolumeSlot, missing};
use crate::backend::{PoolHandle, SpaceInfo, VolumeHandle};

/// A volume of an open pool: the pool, and its space.
pub(super) type Found = (Uuid, Arc<dyn PoolHandle>, SpaceInfo);

impl Node {
    /// The identities of the volumes that LUNs and shares are on.
    fn tied(&self) -> BTreeSet<Uuid> {
        self.config.with(|config| {
            let luns = config.luns.iter().filter_map(|lun| lun.volume_guid);
            luns.chain(config.shares.iter().filter_map(|share| share.volume_guid)).collect()
        })
    }

    /// The volumes of open pools, in the order in which they get names.
    fn by_precedence(&self, tied: &BTreeSet<Uuid>) -> Vec<Found> {
        let order: Vec<Uuid> = self.config.with(|config| config.pools.iter().map(|pool| pool.guid).collect());
        let mut found = Vec::new();
        for (guid, pool) in self.open_handles() {
            let spaces = pool.info().spaces.into_iter().filter(|space| space.log_of.is_none());
            found.extend(spaces.map(|space| (guid, pool.clone(), space)));
        }
        found.sort_by_key(|(guid, _, space)| {
            (!tied.contains(&space.guid), order.iter().position(|each| each == guid))
        });
        found
    }

    /// Whether a volume of an open pool is to get a name that it has not: nobody has it, or who has it is to make way.
    pub(super) fn is_to_get_a_name(&self, pool: Uuid) -> bool {
        let handle = self.pools.lock().get(&pool).and_then(|slot| slot.handle.clone());
        let Some(handle) = handle else { return false };
        let tied = self.tied();
        let volumes = self.volumes.lock();
        handle.space_names().iter().filter(|space| space.log_of().is_none()).any(|space| {
            let is_tied = space.guid.is_some_and(|guid| tied.contains(&guid));
            volumes.get(&space.name).is_none_or(|slot| {
                let stays =
                    slot.pool == pool || slot.kept_closed || (tied.contains(&slot.space) && !slot.reserved);
                is_tied && !stays
            })
        })
    }

    /// Settles who has which name, closes volumes that have to make way, and returns the volumes of open pools in the order in
    /// which they get the names that are left.
    pub(super) async fn settle_names(&self) -> Vec<Found> {
        let tied = self.tied();
        let found = self.by_precedence(&tied);
        self.keep_names(&tied, &found);
        self.make_way(&tied, &found).await;
        found
    }

    /// Keeps names from volumes that nothing is on, for those that something is on and whose pools are away.
    fn keep_names(&self, tied: &BTreeSet<Uuid>, found: &[Found]) {
        let holders = self.holders();
        let is_away =
            |pool: Uuid| holders.iter().any(|holder| holder.guid == pool && holder.closed.is_some());
        let mut volumes = self.volumes.lock();
        volumes.retain(|_, slot| !slot.reserved || (tied.contains(&slot.space) && is_away(slot.pool)));
        for holder in holders.iter().filter(|holder| holder.closed.is_some()) {
            let spaces = holder.spaces.iter().flatten().filter(|space| space.log_of().is_none());
            for (space, guid) in spaces.filter_map(|space| Some((space, space.guid?))) {
                let mut here = found.iter().filter(|(_, _, there)| there.state.name == space.name).peekable();
                let is_wanted =
                    here.peek().is_some() && here.all(|(_, _, there)| !tied.contains(&there.guid));
                if tied.contains(&guid) && is_wanted && !volumes.contains_key(&space.name) {
                    let why = format!("its pool {} is not open", holder.name);
                    let slot = VolumeSlot::closed(holder.guid, guid, why);
                    let todo = Some(bring_back(&holder.name));
                    volumes.insert(space.name.clone(), VolumeSlot { reserved: true, todo, ..slot });
                }
            }
        }
    }

    /// Gives names to volumes that something is on: those that nothing is on lose them, and so do those that are away and have
    /// not been open.
    async fn make_way(&self, tied: &BTreeSet<Uuid>, found: &[Found]) {
        let mut closing: Vec<(String, Uuid, Arc<dyn VolumeHandle>)> = Vec::new();
        {
            let mut volumes = self.volumes.lock();
            for (pool, _, space) in found.iter().filter(|(_, _, space)| tied.contains(&space.guid)) {
                let Some(slot) = volumes.get_mut(&space.state.name) else { continue };
                let stays = tied.contains(&slot.space) && !slot.reserved;
                if slot.pool == *pool || slot.kept_closed || stays {
                    continue;
                }
                tracing::warn!(
                    volume = space.state.name, %pool, other = %slot.pool,
                    "LUNs or shares are on the volume of this pool: that of the other one makes way for it"
                );
                let next = VolumeSlot::closed(*pool, space.guid, "it is being opened");
                let before = std::mem::replace(slot, next);
                closing.extend(before.handle.map(|handle| (space.state.name.clone(), before.pool, handle)));
            }
        }
        for (volume, pool, handle) in closing {
            // Who serves lets go of files before their volumes close.
            self.serve_pool(Some(pool)).await;
            if let Err(problem) = handle.close().await {
                tracing::warn!(volume, %problem, "a volume that made way for another one was not closed cleanly");
            }
        }
    }

    /// A volume of an open pool, with its space. Of several of one name it is the one that this node serves or waits for.
    ///
    /// # Errors
    /// When there is none, or the pool of the one that is meant is not open: another volume of its name is never taken for it.
    pub(super) fn space(&self, name: &str) -> Result<Found, Problem> {
        let of = self.volumes.lock().get(name).map(|slot| slot.pool);
        let slot = of.and_then(|of| self.pools.lock().get(&of).cloned());
        if let Some(slot) = slot.filter(|slot| slot.handle.is_none()) {
            let why = slot.reason.unwrap_or_else(|| "it is being opened".into());
            let detail = format!("volume {name} is that of pool {}, which is not open: {why}.", slot.name);
            return Err(Problem::new(Code::WrongState, detail)
                .todo(slot.todo.unwrap_or_else(|| bring_back(&slot.name))));
        }
        let mut pools = self.open_handles();
        pools.sort_by_key(|(guid, _)| Some(*guid) != of);
        for (guid, pool) in pools {
            let info = pool.info();
            // A log is part of its volume, and none of itself.
            let mut volumes = info.spaces.into_iter().filter(|space| space.log_of.is_none());
            if let Some(space) = volumes.find(|space| space.state.name == name) {
                return Ok((guid, pool, space));
            }
        }
        Err(self.no_volume(name))
    }

    /// The volume that is to be destroyed or to get another name: where several pools have one of its name, the pool must be said,
    /// or whoever asks twice does it to two.
    ///
    /// # Errors
    /// As [`Node::space`], and when it is not clear which one is meant.
    pub(super) fn exact_space(&self, name: &str, pool: Option<&str>) -> Result<Found, Problem> {
        let Some(pool) = pool else {
            let found = self.space(name)?;
            let mut pools: Vec<String> = self.known_volumes(name).into_iter().map(|(pool, _)| pool).collect();
            if pools.len() < 2 {
                return Ok(found);
            }
            pools.sort();
            let detail = format!("There is a volume {name} in each of the pools {}.", pools.join(", "));
            return Err(Problem::new(Code::InvalidRequest, detail)
                .todo("Say which one is meant with --pool (in the API: the parameter `pool`)."));
        };
        let (guid, handle) = self.pool(pool)?;
        let mut volumes = handle.info().spaces.into_iter().filter(|space| space.log_of.is_none());
        match volumes.find(|space| space.state.name == name) {
            Some(space) => Ok((guid, handle, space)),
            None => Err(missing("volume", &format!("{name} in pool {pool}"), "holdfast volume list")),
        }
    }

    /// Opens the volume of this name in another pool, which stayed closed beside the one that is gone now. Whoever calls does not have
    /// the change lock. Where it is not to be had at once, the watch does it.
    pub(super) async fn open_namesake(&self, name: &str, turns: &[Turn]) {
        let holders = self.holders().into_iter().filter(|holder| holder.closed.is_none());
        let named = holders.filter(|holder| holder.volumes().any(|of| of == name)).map(|holder| holder.guid);
        for pool in named.collect::<Vec<Uuid>>() {
            let own = match turns.iter().any(|turn| turn.is_of(pool)) {
                true => None,
                false => match tokio::time::timeout(PATIENCE, self.turn(pool)).await {
                    Ok(turn) => Some(turn),
                    Err(_) => continue,
                },
            };
            self.open_volumes(pool).await;
            self.serve_pool(Some(pool)).await;
            drop(own);
        }
    }

    /// Whether a pool is open.
    pub(super) fn is_open(&self, pool: Uuid) -> bool {
        self.pools.lock().get(&pool).is_some_and(|slot| slot.handle.is_some())
    }
}
