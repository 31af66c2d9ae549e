//! Volumes: one on each space of each open pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use control_api::{
    Code, Done, LogCreate, LogMode, Problem, RedundancyState, Volume, VolumeCache, VolumeCreate,
    VolumeUpdate, check_name, human_bytes,
};
use futures_util::StreamExt as _;
use uuid::Uuid;

use super::pools::join_all;
use super::ties::lies_in;
use super::{LOOKED_AT_ONCE, Node, VolumeSlot, confirm, missing, taken, within_patience};
use crate::backend::{LOG_SUFFIX, NewLog, NewSpace, SpaceInfo, VolumeHandle};
use crate::files;

/// Smallest volume: below this its own structures would take most of it.
const LEAST_VOLUME_BYTES: u64 = 64 << 20;

/// Smallest log: below this a burst fills it at once.
const LEAST_LOG_BYTES: u64 = 64 << 20;

impl Node {
    /// Opens volumes of an open pool that aren't open, in parallel. Whoever calls has the pool's turn.
    pub(super) async fn open_volumes(&self, of: Uuid) {
        let mut opening = Vec::new();
        let mut names: BTreeMap<String, Uuid> = BTreeMap::new();
        for (guid, pool, space) in self.settle_names().await {
            let log = space.log_name();
            let (name, id) = (space.state.name, space.guid);
            // Who comes first by precedence has the name, whichever pool is the faster one; each is opened on its own pool's path.
            let first = *names.entry(name.clone()).or_insert(guid);
            if guid != of {
                continue;
            }
            let slot = {
                let mut volumes = self.volumes.lock();
                let known = volumes.get(&name).cloned();
                if known.is_none() && first == of {
                    volumes.insert(name.clone(), VolumeSlot::closed(guid, id, "it is being opened"));
                }
                known
            };
            if slot.as_ref().is_some_and(|slot| slot.handle.is_some() || slot.kept_closed) {
                continue;
            }
            let away = space.state.redundancy == RedundancyState::Unavailable;
            let held = || self.restarts.holds(guid, &name, self.clock.now());
            if slot.as_ref().is_some_and(|slot| slot.waits && (away || held())) {
                continue;
            }
            let other = slot.as_ref().map_or(first, |slot| slot.pool);
            if other != guid {
                tracing::error!(volume = name, pool = %guid, %other, "two pools have a volume of this name; the second stays closed");
                continue;
            }
            let before = slot.and_then(|slot| slot.reason);
            let pool = pool.clone();
            opening.push(async move {
                let slot = match pool.open_volume(&name).await {
                    Ok(handle) => {
                        tracing::info!(volume = name, "volume is open");
                        self.restarts.opened(guid, &name, self.clock.now());
                        VolumeSlot::open(guid, id, handle)
                    }
                    Err(problem) => {
                        let lacks_log = problem.code == Code::NotEnoughDisks;
                        let problem =
                            if lacks_log { self.explain_missing_log(&name, &log, problem) } else { problem };
                        if before.as_ref() != Some(&problem.detail) {
                            tracing::error!(volume = name, %problem, "volume can't be opened");
                        }
                        let damaged = problem.code == Code::Damaged;
                        let todo = problem.todo;
                        VolumeSlot {
                            damaged,
                            lacks_log,
                            todo,
                            ..VolumeSlot::closed(guid, id, problem.detail)
                        }
                    }
                };
                self.volumes.lock().insert(name, slot);
            });
        }
        join_all(opening).await;
        self.note_logs();
    }

    /// An open volume.
    pub(super) fn volume(&self, name: &str) -> Result<Arc<dyn VolumeHandle>, Problem> {
        let volumes = self.volumes.lock();
        let slot = volumes.get(name).ok_or_else(|| self.no_volume(name))?;
        slot.handle.clone().ok_or_else(|| {
            let why = slot.reason.as_deref().unwrap_or("it is being opened");
            Problem::new(Code::WrongState, format!("volume {name} is not open: {why}."))
                .todo(slot.todo.as_deref().unwrap_or("`holdfast status` says what to do."))
        })
    }

    /// The name of the volume that is meant: this one, or the only one.
    pub(super) fn volume_or_only(&self, name: Option<&str>) -> Result<String, Problem> {
        if let Some(name) = name {
            return Ok(name.to_owned());
        }
        let names: Vec<String> = self.volumes.lock().keys().cloned().collect();
        match names.as_slice() {
            [only] => Ok(only.clone()),
            [] => Err(Problem::new(Code::NotFound, "There is no volume yet.")
                .todo("Make one with `holdfast volume create`.")),
            _ => Err(Problem::new(
                Code::InvalidRequest,
                format!("There are several volumes: {}.", names.join(", ")),
            )
            .todo("Say which one with --volume.")),
        }
    }

    /// What a volume is now; `lost` says why none of its data can be had, where the pool does not know yet.
    async fn describe_volume(&self, pool: &str, space: SpaceInfo, lost: Option<String>) -> Volume {
        let name = space.state.name.clone();
        let slot = self.volumes.lock().get(&name).cloned();
        let other = slot.as_ref().filter(|slot| slot.space != space.guid);
        let other = other.map(|slot| {
            let away = if self.is_open(slot.pool) { "" } else { ", which is not open," };
            format!("{}{away}", self.pool_name(slot.pool).unwrap_or_else(|| slot.pool.to_string()))
        });
        let (slot, lost) = match other {
            Some(other) => {
                let why =
                    format!("pool {other} has a volume of this name as well, and of two the node serves one");
                (None, Some(why))
            }
            None => (slot, lost),
        };
        let lacks_log = slot.as_ref().is_some_and(|slot| slot.lacks_log);
        let handle = slot.as_ref().and_then(|slot| slot.handle.clone());
        let (mut used, mut free) = (0, 0);
        let policy = self.cache_policy(&name, space.guid);
        let stopped = handle.as_ref().and_then(|handle| handle.why_stopped());
        let stopped = stopped.map(|why| format!("it has stopped: {why}"));
        let working = handle.as_ref().filter(|_| stopped.is_none() && lost.is_none());
        let mut reason = stopped
            .or_else(|| slot.and_then(|slot| slot.reason))
            .or(lost)
            .or_else(|| space.state.reason.clone());
        if let Some(handle) = working {
            let store = handle.store();
            let usage = self.on_shard(handle.shard(), move || async move {
                store.usage().await.map_err(|error| files::problem(&error))
            });
            match within_patience(&name, usage).await {
                Ok(usage) => (used, free) = (usage.used, handle.free(&usage)),
                Err(problem) => reason = Some(problem.detail),
            }
        }
        let log = handle.as_ref().and_then(|handle| handle.log());
        Volume {
            log_place: self.log_place(&space, handle.is_some(), log.is_some(), lacks_log),
            name,
            guid: space.guid,
            pool: pool.into(),
            online: working.is_some(),
            reason,
            resiliency: space.state.resiliency,
            redundancy: space.state.redundancy,
            provisioning: space.provisioning,
            columns: space.columns,
            interleave_bytes: space.interleave_bytes,
            integrity: space.integrity,
            size_bytes: space.size_bytes,
            used_bytes: used,
            free_bytes: free,
            allocated_bytes: space.allocated_bytes,
            cache: VolumeCache {
                read_cache: policy.read_cache,
                read_ahead: policy.read_ahead,
                counters: handle.as_ref().and_then(|handle| handle.cache()),
            },
            log,
        }
    }

    /// Volumes, those in trouble first.
    pub async fn volume_list(&self) -> Result<Vec<Volume>, Problem> {
        let mut describing = Vec::new();
        for (pool, spaces, lost) in self.known_spaces() {
            for space in spaces.into_iter().filter(|space| space.log_of.is_none()) {
                let (pool, lost) = (pool.clone(), lost.clone());
                describing.push(async move {
                    match self.is_made(&space.state.name) {
                        true => Some(self.describe_volume(&pool, space, lost).await),
                        false => None,
                    }
                });
            }
        }
        // One that does not answer keeps nobody from being told of the others.
        let volumes: Vec<Option<Volume>> =
            futures_util::stream::iter(describing).buffered(LOOKED_AT_ONCE).collect().await;
        let mut volumes: Vec<Volume> = volumes.into_iter().flatten().collect();
        if volumes.iter().any(|volume| !volume.online) {
            // One that has gone since its pool was looked at is none that is closed.
            let spaces = self.known_spaces().into_iter().flat_map(|(_, spaces, _)| spaces);
            let there: BTreeSet<Uuid> = spaces.map(|space| space.guid).collect();
            volumes.retain(|volume| volume.online || there.contains(&volume.guid));
        }
        volumes.sort_by(|a, b| (a.online, a.redundancy, &a.name).cmp(&(b.online, b.redundancy, &b.name)));
        Ok(volumes)
    }

    /// Whether a space of this name is a volume, open or closed: not while it is being made or destroyed.
    fn is_made(&self, name: &str) -> bool {
        // Held for both looks: what is made is open before it is taken out of these, and what is destroyed is put into them before it closes.
        let changing = self.changing_volumes.lock();
        self.volumes.lock().contains_key(name) || !changing.contains(name)
    }

    /// A volume. Of several of one name, it is the one of the pool that is named, or the one that the node serves.
    pub async fn volume_show(&self, name: &str, pool: Option<&str>) -> Result<Volume, Problem> {
        let served = self.volume_guid(name);
        let mut found = self.known_volumes(name);
        found.retain(|(of, _)| pool.is_none_or(|pool| pool == of));
        found.sort_by_key(|(_, (space, _))| Some(space.guid) != served);
        match found.into_iter().next() {
            Some((pool, (space, lost))) => Ok(self.describe_volume(&pool, space, lost).await),
            None => Err(self.no_volume(name)),
        }
    }

    /// The volumes of a name in all pools that are known: the pool, the space, and why none of its data can be had, where that is so.
    pub(super) fn known_volumes(&self, name: &str) -> Vec<(String, (SpaceInfo, Option<String>))> {
        let mut found = Vec::new();
        for (of, spaces, lost) in self.known_spaces() {
            let mut volumes = spaces.into_iter().filter(|space| space.log_of.is_none());
            let space = volumes.find(|space| space.state.name == name);
            found.extend(space.map(|space| (of, (space, lost))));
        }
        found
    }

    /// Nobody knows this volume, or not yet.
    pub(super) fn no_volume(&self, name: &str) -> Problem {
        if let Some(problem) = self.elsewhere() {
            let detail = format!("There is no volume {name} in the pools of this node; {}.", problem.detail);
            return Problem { detail, ..problem };
        }
        if *self.ready.borrow() {
            return missing("volume", name, "holdfast volume list");
        }
        let detail =
            format!("Volume {name} is not open yet: the node has just started, and opens its pools.");
        Problem::new(Code::WrongState, detail)
            .todo("Try again in a moment; `holdfast status` shows when all is open.")
    }

    /// Refuses a name that no volume can have, or that one of a pool has, open or not.
    pub(super) fn check_new_name(&self, name: &str) -> Result<(), Problem> {
        check_name("volume", name)?;
        if name.ends_with(LOG_SUFFIX) {
            let why = format!("Names that end with {LOG_SUFFIX} are those of logs.");
            return Err(Problem::new(Code::InvalidRequest, why).todo("Choose another name."));
        }
        if self.space(name).is_ok() {
            return Err(taken("volume", name));
        }
        let closed = self.holders().into_iter().filter(|holder| holder.closed.is_some());
        if let Some(holder) = closed.into_iter().find(|holder| holder.volumes().any(|of| *of == name)) {
            if self.not_here(holder.guid).is_some() {
                let why =
                    format!("There is a volume {name} in pool {}, which another node has.", holder.name);
                return Err(Problem::new(Code::AlreadyExists, why).todo("Choose another name."));
            }
            let why = format!("There is a volume {name} in pool {}, which is not open.", holder.name);
            let todo = format!(
                "Choose another name. If the pool is lost for good: `holdfast pool forget {}`.",
                holder.name
            );
            return Err(Problem::new(Code::AlreadyExists, why).todo(todo));
        }
        Ok(())
    }

    /// Makes a space and a volume on it.
    pub async fn volume_create(&self, request: VolumeCreate) -> Result<Volume, Problem> {
        let _turns = self
            .turns_of(|node| {
                let pool = node.pool_or_only(request.pool.as_deref()).map(|(pool, _)| pool);
                let log = request.log.iter().filter_map(|log| log.pool.as_deref());
                pool.into_iter().chain(log.flat_map(|log| node.pools_named(log))).collect()
            })
            .await?;
        let _making = ChangingVolume::begin(self, &request.name)?;
        self.check_new_name(&request.name)?;
        if request.size_bytes < LEAST_VOLUME_BYTES {
            return Err(Problem::new(
                Code::InvalidRequest,
                format!(
                    "A volume has at least {}; {} were asked for.",
                    human_bytes(LEAST_VOLUME_BYTES),
                    human_bytes(request.size_bytes)
                ),
            ));
        }
        let (guid, pool) = self.pool_or_only(request.pool.as_deref())?;
        let log = match &request.log {
            Some(log) => Some(self.new_log(guid, log)?),
            None => None,
        };
        let space = NewSpace {
            name: request.name.clone(),
            size_bytes: request.size_bytes,
            resiliency: request.resiliency,
            provisioning: request.provisioning,
            columns: request.columns,
            interleave_bytes: request.interleave_bytes,
            integrity: request.integrity,
            log,
        };
        self.take_name(&request.name, guid).await?;
        let created = pool.create_volume(space).await;
        // Whatever came of it.
        self.settle_cluster_names(guid).await;
        let handle = created?;
        let made = pool.info().spaces.into_iter().find(|space| space.state.name == request.name);
        let Some(made) = made else {
            return Err(Problem::new(Code::Internal, format!("volume {} is gone already.", request.name)));
        };
        let slot = VolumeSlot::open(guid, made.guid, handle);
        self.volumes.lock().insert(request.name.clone(), slot);
        self.note_logs();
        self.set_cache_policy(&request.name, made.guid, request.cache)?;
        self.serve_pool(Some(guid)).await;
        self.volume_show(&request.name, None).await
    }

    /// Where a volume's log is to be made.
    pub(super) fn new_log(&self, pool: Uuid, wanted: &LogCreate) -> Result<NewLog, Problem> {
        if wanted.size_bytes < LEAST_LOG_BYTES {
            let why = format!(
                "A log has at least {}; {} were asked for.",
                human_bytes(LEAST_LOG_BYTES),
                human_bytes(wanted.size_bytes)
            );
            return Err(Problem::new(Code::InvalidRequest, why));
        }
        let pool = match &wanted.pool {
            Some(name) => self.pool_or_only(Some(name))?.0,
            None => pool,
        };
        Ok(NewLog { size_bytes: wanted.size_bytes, pool })
    }

    /// Grows a volume, or changes how it is cached.
    pub async fn volume_update(&self, name: &str, request: VolumeUpdate) -> Result<Volume, Problem> {
        let _turns = self.turn_of_volume(name).await?;
        let (_, pool, space) = self.space(name)?;
        if let Some(size) = request.size_bytes {
            if size < space.size_bytes {
                return Err(Problem::new(
                    Code::Unsupported,
                    format!(
                        "volume {name} has {} and can't shrink to {}.",
                        human_bytes(space.size_bytes),
                        human_bytes(size)
                    ),
                )
                .todo("Make a smaller volume and move the files there."));
            }
            pool.grow(name, size).await?;
        }
        self.set_cache_policy(name, space.guid, request.cache)?;
        self.volume_show(name, None).await
    }

    /// Destroys a volume.
    pub async fn volume_delete(
        &self,
        name: &str,
        pool: Option<&str>,
        confirmed: Option<String>,
    ) -> Result<Done, Problem> {
        let turns = self.turn_of_volume(name).await?;
        let (guid, pool, space) = self.exact_space(name, pool)?;
        let luns: Vec<String> = self.config.with(|config| {
            let on = config.luns.iter().filter(|lun| lies_in(*lun, name, space.guid));
            on.map(|lun| lun.name.clone()).collect()
        });
        if !luns.is_empty() {
            return Err(Problem::new(
                Code::InUse,
                format!("volume {name} holds the files of LUNs {}.", luns.join(", ")),
            )
            .todo("Delete the LUNs first."));
        }
        let shares: Vec<String> = self.config.with(|config| {
            let on = config.shares.iter().filter(|share| lies_in(*share, name, space.guid));
            on.map(|share| share.name.clone()).collect()
        });
        if !shares.is_empty() {
            return Err(Problem::new(
                Code::InUse,
                format!("volume {name} holds the folders of shares {}.", shares.join(", ")),
            )
            .todo("Delete the shares first."));
        }
        confirm(name, confirmed.as_deref(), || {
            vec![format!(
                "Volume {name} and every file in it is destroyed ({} in pool {}).",
                human_bytes(space.allocated_bytes),
                pool.info().name
            )]
        })?;
        let _going = ChangingVolume::begin(self, name)?;
        let slot = {
            let mut volumes = self.volumes.lock();
            let own = volumes.get(name).is_some_and(|slot| slot.space == space.guid);
            if own { volumes.remove(name) } else { None }
        };
        // Whoever serves files lets go of the volume.
        self.serve_pool(Some(guid)).await;
        if let Some(handle) = slot.and_then(|slot| slot.handle) {
            handle.close().await?;
        }
        pool.delete_space(name).await?;
        self.settle_cluster_names(guid).await;
        self.restarts.forget(pool.info().guid, name);
        self.full_restarts.forget(pool.info().guid, name);
        self.forget_log(name, &space.log_name());
        let has_namesake = !self.known_volumes(name).is_empty();
        self.config.change(|config| {
            config.volumes.retain(|volume| match volume.volume_guid {
                Some(guid) => guid != space.guid,
                None => has_namesake || volume.name != name,
            });
            config.qos_places.retain(|place| match place.volume_guid {
                Some(guid) => guid != space.guid,
                None => has_namesake || place.volume != name,
            });
            Ok(())
        })?;
        self.open_namesake(name, &turns).await;
        Ok(Done::new(format!("Volume {name} of pool {} is destroyed.", pool.info().name)))
    }

    /// Whether all data is as redundant as promised, over all pools.
    pub(super) fn worst_redundancy(&self) -> Option<RedundancyState> {
        let spaces = self.open_handles().into_iter().flat_map(|(_, pool)| pool.info().spaces);
        let worst =
            spaces.filter(|space| !self.is_done_without(space)).map(|space| space.state.redundancy).min();
        // What its log had, and the volume has not yet, is in memory only.
        let handles: Vec<_> = self.volumes.lock().values().filter_map(|slot| slot.handle.clone()).collect();
        let in_memory = |log: control_api::VolumeLog| log.mode != LogMode::Logging && log.waiting_bytes > 0;
        if handles.iter().filter_map(|handle| handle.log()).any(in_memory) {
            return Some(worst.map_or(RedundancyState::Reduced, |worst| worst.min(RedundancyState::Reduced)));
        }
        worst
    }
}

/// The name of a volume that is being made or destroyed, which no other one gets meanwhile in any pool.
struct ChangingVolume<'a>(&'a Node, String);

impl<'a> ChangingVolume<'a> {
    fn begin(node: &'a Node, name: &str) -> Result<Self, Problem> {
        if !node.changing_volumes.lock().insert(name.to_owned()) {
            let detail = format!("Volume {name} is being made, or destroyed.");
            return Err(Problem::new(Code::InUse, detail).todo("Wait for that, or choose another name."));
        }
        Ok(Self(node, name.to_owned()))
    }
}

impl Drop for ChangingVolume<'_> {
    fn drop(&mut self) {
        self.0.changing_volumes.lock().remove(&self.1);
    }
}
