//! An open pool of this machine.

mod destroy;
mod given_up;
mod logs;
mod names;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use control_api::{CheckFinding, Code, Problem, Provisioning, Resiliency};
use observe::IoTotals;
use parking_lot::Mutex;
use pool::{DiskId, DiskUse, Guid, Pool, PoolError, RepairParams, ScrubParams, SpaceSpec, Surroundings};
use read_cache::ReadCache;
use uuid::Uuid;

use super::room::explain_no_room;
use super::{Opened, describe, device, finding, new_disk, problem};
use crate::backend::{
    BalancePlan, NewLog, NewSpace, OpenDisk, PoolDisk, PoolHandle, PoolInfo, Quiet, Repair, SpaceName,
    Upkeep, VolumeHandle, Work,
};
use crate::system::disks::SystemDisk;
use crate::system::shards::SystemShards;
use crate::system::storage::Storage;
use crate::system::volumes::{self, SystemVolume};

/// How often a member may fail and come back before it is left out until the node starts again: a disk that
/// answers probes but not writes would else be copied to for ever.
const COMEBACKS: u32 = 5;
/// Columns of a space at most unless told otherwise: more disks in one row means more disks whose loss
/// concerns it, and eight already outrun one initiator.
const COLUMNS: usize = 8;
/// Bytes on one column before the next, unless told otherwise.
const INTERLEAVE: u64 = 256 << 10;
/// With parity a smaller one: a write fills a whole stripe sooner.
const PARITY_INTERLEAVE: u64 = 64 << 10;
/// How long requests to the disks of a pool that is abandoned may take to end; then it is tried again later.
const STRAGGLERS: Duration = Duration::from_secs(2);

/// An open pool.
pub(super) struct SystemPool {
    pool: Arc<Pool>,
    home: usize,
    shards: Arc<SystemShards>,
    surroundings: Surroundings,
    cache: Arc<ReadCache>,
    opened: Opened,
    comebacks: Mutex<BTreeMap<Uuid, u32>>,
    /// What people call its disks, by their identities.
    names: Mutex<BTreeMap<Uuid, String>>,
    /// What this node calls it, if that is not the name on its disks.
    called: Mutex<Option<String>>,
    /// Volumes that are open, by name.
    volumes: Mutex<BTreeMap<String, Weak<SystemVolume>>>,
}

impl SystemPool {
    /// Takes an open pool in, and begins to look after it.
    pub(super) fn start(
        pool: Arc<Pool>,
        home: usize,
        shards: Arc<SystemShards>,
        surroundings: Surroundings,
        cache: Arc<ReadCache>,
        opened: Opened,
    ) -> Arc<Self> {
        let watched = Arc::downgrade(&pool);
        if let Some(shard) = shards.shard(home) {
            // A shard that has just stopped has no pool to look after either.
            let _ = shard.spawn(move || given_up::remove(watched));
        }
        let (comebacks, names, called) = (Mutex::default(), Mutex::default(), Mutex::default());
        let volumes = Mutex::default();
        Arc::new(Self { pool, home, shards, surroundings, cache, opened, comebacks, names, called, volumes })
    }

    /// Runs work on the pool's home.
    async fn at_home<T, F, R>(&self, work: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(Arc<Pool>) -> R + Send + 'static,
        R: Future<Output = Result<T, PoolError>> + 'static,
    {
        let pool = self.pool.clone();
        let run = self
            .shards
            .run(self.home, move || async move { work(pool).await.map_err(|error| problem(&error)) });
        run.await.map_err(|mut problem| {
            problem.detail = self.named(&problem.detail);
            problem
        })
    }

    /// What the pool says, with the names of its disks in place of its own numbers for them, and sizes as people read them.
    fn named(&self, text: &str) -> String {
        let names = self.names.lock();
        let disks = self.pool.status().disks;
        let text = names::with_sizes(text);
        names::with_names(&text, &|number| {
            let disk = disks.iter().find(|disk| disk.record.id.to_string() == number)?;
            names.get(&Uuid::from_bytes(disk.record.guid.0)).cloned()
        })
    }

    fn id(&self, guid: Uuid) -> Result<DiskId, Problem> {
        let disks = self.pool.status().disks;
        let found = disks.into_iter().find(|disk| disk.record.guid == Guid(guid.into_bytes()));
        found.map(|disk| disk.record.id).ok_or_else(|| {
            Problem::new(Code::NotFound, format!("pool {} has no disk {guid}.", self.pool.name()))
        })
    }

    async fn set_use(&self, guid: Uuid, usage: DiskUse) -> Result<(), Problem> {
        let id = self.id(guid)?;
        self.at_home(move |pool| async move { pool.set_disk_use(id, usage).await }).await
    }

    /// Columns for a space that doesn't ask for any: as many as leave one disk out, so that the copies of a
    /// lost disk have somewhere to go; all disks when they would not suffice otherwise.
    fn columns(&self, copies: usize, parity: usize) -> u8 {
        let disks = self.pool.status().disks;
        let active = disks.iter().filter(|disk| disk.record.usage == DiskUse::Active).count();
        if parity == 0 {
            return (active.saturating_sub(1) / copies).clamp(1, COLUMNS) as u8;
        }
        // Data columns by powers of two, so that what is written in powers of two fills whole stripes.
        let data = [8, 4, 2].into_iter().find(|data| data + parity < active).unwrap_or(2);
        (data + parity) as u8
    }

    fn spec(&self, new: &NewSpace) -> Result<SpaceSpec, Problem> {
        let invalid = |what: &str| Problem::new(Code::InvalidRequest, format!("{what} is too large."));
        let copies = usize::from(new.resiliency.copies());
        let columns = match new.columns {
            Some(columns) => u8::try_from(columns).map_err(|_| invalid("the number of columns"))?,
            None => self.columns(copies, usize::from(new.resiliency.parity())),
        };
        // Small slabs have small regions, which an interleave must fit in.
        let most = self.pool.slab_size() / u64::from(pool_format::REGIONS);
        let usual = if new.resiliency.parity() > 0 { PARITY_INTERLEAVE } else { INTERLEAVE };
        let interleave = new.interleave_bytes.unwrap_or(usual.min(most));
        Ok(SpaceSpec {
            name: new.name.clone(),
            resiliency: match new.resiliency {
                Resiliency::Simple => pool::Resiliency::Simple,
                Resiliency::Parity1 | Resiliency::Parity2 => {
                    pool::Resiliency::Parity(new.resiliency.parity())
                }
                mirror => pool::Resiliency::Mirror(mirror.copies()),
            },
            provisioning: match new.provisioning {
                Provisioning::Thin => pool::Provisioning::Thin,
                Provisioning::Fixed => pool::Provisioning::Fixed,
            },
            columns,
            interleave: u32::try_from(interleave).map_err(|_| invalid("the interleave"))?,
            size: new.size_bytes,
            integrity: new.integrity.unwrap_or(true),
        })
    }

    fn space(&self, name: &str) -> Result<Arc<pool::Space>, Problem> {
        self.pool.space(name).ok_or_else(|| {
            if let Some(why) = self.pool.why_closed(name) {
                let detail =
                    format!("Volume {name} is closed: {why}. Bring back the disks that are missing.");
                return Problem::new(Code::WrongState, detail);
            }
            Problem::new(Code::NotFound, format!("pool {} has no space {name}.", self.pool.name()))
        })
    }
}

impl PoolHandle for SystemPool {
    fn info(&self) -> PoolInfo {
        let comebacks = self.comebacks.lock();
        let failed = |guid: Uuid| comebacks.get(&guid).is_some_and(|count| *count > COMEBACKS);
        let info = describe::info(&self.pool, self.pool.repair_params().paused, &failed);
        PoolInfo { name: self.called.lock().clone().unwrap_or(info.name), ..info }
    }

    fn called(&self, name: &str) {
        *self.called.lock() = Some(name.to_owned());
    }

    fn space_names(&self) -> Vec<SpaceName> {
        let of = |(name, guid): (String, Guid)| SpaceName { name, guid: Some(Uuid::from_bytes(guid.0)) };
        self.pool.space_names().into_iter().map(of).collect()
    }

    fn has_stopped(&self) -> bool {
        self.pool.has_stopped()
    }

    fn is_superseded(&self) -> bool {
        self.pool.status().superseded
    }

    fn inspect(&self) -> serde_json::Value {
        observe::Inspect::inspect(&*self.pool)
    }

    fn name_disks(&self, names: BTreeMap<Uuid, String>) {
        *self.names.lock() = names;
    }

    fn space_counters(&self) -> Vec<(String, IoTotals)> {
        let spaces = self.pool.spaces();
        spaces.iter().map(|space| (space.name(), space.stats().totals())).collect()
    }

    fn uses(&self, guid: Uuid, disk: &Arc<dyn OpenDisk>) -> bool {
        let disk = disk.clone().as_any().downcast::<SystemDisk>();
        disk.is_ok_and(|disk| self.pool.uses(Guid(guid.into_bytes()), &disk.device()))
    }

    fn returned(&self, guid: Uuid, disk: PoolDisk) -> Work<'_, ()> {
        Box::pin(async move {
            let device = device(&disk)?;
            let id = self.id(guid)?;
            let status = self.pool.status();
            let known = status.disks.iter().find(|disk| disk.record.id == id);
            // Leaving and coming back is no failure of the disk; failing while it is there is.
            if known.is_some_and(|disk| disk.write_errors + disk.read_errors > 0) {
                *self.comebacks.lock().entry(guid).or_default() += 1;
            }
            self.at_home(move |pool| async move { pool.disk_returned(device).await.map(drop) }).await
        })
    }

    fn lost(&self, guid: Uuid) -> Work<'_, ()> {
        Box::pin(async move {
            let id = self.id(guid)?;
            self.at_home(move |pool| async move { pool.disk_lost(id, "it is not on this machine").await })
                .await
        })
    }

    fn add(&self, disk: PoolDisk, overwrite_foreign: bool) -> Work<'_, Uuid> {
        Box::pin(async move {
            let new = new_disk(&disk)?;
            let added = self.at_home(move |pool| async move {
                let id = pool.add_disk(new, disk.spare, overwrite_foreign).await?;
                let record = pool.status().disks.into_iter().find(|disk| disk.record.id == id);
                Ok(record.map(|disk| Uuid::from_bytes(disk.record.guid.0)))
            });
            added.await?.ok_or_else(|| Problem::new(Code::Internal, "the added disk has just left the pool"))
        })
    }

    fn drain(&self, guid: Uuid) -> Work<'_, ()> {
        Box::pin(async move {
            let id = self.id(guid)?;
            let here = self.pool.status().disks.iter().any(|disk| disk.record.id == id && disk.online);
            let usage = if here { DiskUse::Draining } else { DiskUse::Retired };
            self.at_home(move |pool| async move { pool.empty_disk(id, usage).await }).await
        })
    }

    fn keep(&self, guid: Uuid) -> Work<'_, ()> {
        Box::pin(async move {
            let id = self.id(guid)?;
            self.at_home(move |pool| async move { pool.keep_disk(id).await }).await
        })
    }

    fn set_node(&self, guid: Uuid, node: String) -> Work<'_, ()> {
        Box::pin(async move {
            let id = self.id(guid)?;
            self.at_home(move |pool| async move { pool.set_disk_node(id, &node).await }).await
        })
    }

    fn remove(&self, guid: Uuid) -> Work<'_, ()> {
        Box::pin(async move {
            // One that was given up may have left by itself.
            let Ok(id) = self.id(guid) else { return Ok(()) };
            self.at_home(move |pool| async move { pool.remove_disk(id).await }).await
        })
    }

    fn give_up(&self, guid: Uuid) -> Work<'_, ()> {
        Box::pin(self.set_use(guid, DiskUse::Retired))
    }

    fn use_spare(&self, for_member: Uuid) -> Work<'_, bool> {
        Box::pin(async move {
            let status = self.pool.status();
            let id = self.id(for_member)?;
            let enclosure = status.disks.iter().find(|disk| disk.record.id == id);
            let enclosure = enclosure.map(|disk| disk.record.enclosure.as_str()).unwrap_or_default();
            let mut spares =
                status.disks.iter().filter(|disk| disk.online && disk.record.usage == DiskUse::Spare);
            let near = spares.clone().find(|spare| spare.record.enclosure == enclosure);
            let Some(spare) = near.or_else(|| spares.next()).map(|spare| spare.record.id) else {
                return Ok(false);
            };
            self.at_home(move |pool| async move { pool.set_disk_use(spare, DiskUse::Active).await }).await?;
            Ok(true)
        })
    }

    fn set_upkeep(&self, upkeep: Upkeep) {
        let repair = RepairParams {
            bytes_per_second: upkeep.repair_bytes_per_second,
            client_latency: Duration::from_millis(upkeep.client_latency_ms),
            balance_above_percent: upkeep.rebalance_above_percent,
            reserve_disks: upkeep.reserve_disks,
            ..self.pool.repair_params()
        };
        if repair != self.pool.repair_params() {
            self.pool.set_repair_params(repair);
        }
        let scrub = ScrubParams {
            every: Duration::from_secs(u64::from(upkeep.scrub_every_days) * 24 * 3600),
            bytes_per_second: upkeep.scrub_bytes_per_second,
            ..self.pool.scrub_params()
        };
        if scrub != self.pool.scrub_params() {
            self.pool.set_scrub_params(scrub);
        }
    }

    fn repair(&self) -> Work<'_, ()> {
        let params = RepairParams { paused: false, ..self.pool.repair_params() };
        self.pool.set_repair_params(params);
        Box::pin(std::future::ready(Ok(())))
    }

    fn scrub(&self) -> Work<'_, ()> {
        Box::pin(self.at_home(move |pool| async move { pool.start_scrub().await }))
    }

    fn rebalance(&self, dry_run: bool) -> Work<'_, BalancePlan> {
        Box::pin(async move {
            let plan = self.pool.balance_plan();
            if !dry_run {
                self.at_home(move |pool| async move { pool.start_balance() }).await?;
            }
            let guids = self.pool.status().disks;
            let guid = |id| guids.iter().find(|disk| disk.record.id == id).map(|disk| disk.record.guid.0);
            let slab = self.pool.slab_size();
            let member = |(id, used, then): &(pool::DiskId, u32, u32)| {
                Some((Uuid::from_bytes(guid(*id)?), u64::from(*used) * slab, u64::from(*then) * slab))
            };
            let members = plan.disks.iter().filter_map(member).collect();
            Ok(BalancePlan { bytes: plan.bytes, members })
        })
    }

    fn check(&self, deep: bool) -> Work<'_, Vec<CheckFinding>> {
        Box::pin(async move {
            let place = format!("pool {}", self.pool.name());
            let findings = self.at_home(move |pool| async move { Ok(pool.check(deep).await) }).await?;
            let told = |found| {
                let mut found = finding(found, &place);
                found.detail = self.named(&found.detail);
                found
            };
            Ok(findings.into_iter().map(told).collect())
        })
    }

    fn create_volume(&self, space: NewSpace) -> Work<'_, Arc<dyn VolumeHandle>> {
        Box::pin(async move {
            let spec = self.spec(&space)?;
            let shape = spec.clone();
            let made = self.at_home(move |pool| async move { pool.create_space(spec).await }).await;
            let made = made.map_err(|problem| explain_no_room(&self.pool, problem, &shape))?;
            let (id, new) = (made.id(), Arc::clone(&made));
            let volume = async {
                let log = match space.log {
                    Some(log) => Some(self.create_log(&space, &made, log).await?),
                    None => None,
                };
                let storage = Storage::new(made.clone(), log, &self.surroundings);
                let shards = self.shards.clone();
                let made = SystemVolume::format(made, storage, shards, &self.surroundings, &self.cache);
                made.await.map_err(|problem| explain_no_room(&self.pool, problem, &shape))
            };
            match volume.await {
                Ok(volume) => Ok(self.keep_volume(&space.name, volume).await as Arc<dyn VolumeHandle>),
                Err(problem) => {
                    // Nothing half-done. The first problem is the one to tell.
                    let log = self.find_log(&new);
                    drop(new);
                    let _ = self.at_home(move |pool| async move { pool.delete_space(id).await }).await;
                    let _ = self.delete_log(log).await;
                    Err(problem)
                }
            }
        })
    }

    fn open_volume<'a>(&'a self, name: &'a str) -> Work<'a, Arc<dyn VolumeHandle>> {
        Box::pin(async move {
            let (space, storage) = (self.space(name)?, self.storage(name)?);
            let shards = self.shards.clone();
            let volume = SystemVolume::open(space, storage, shards, &self.surroundings, &self.cache).await?;
            Ok(self.keep_volume(name, volume).await as Arc<dyn VolumeHandle>)
        })
    }

    fn verify_volume<'a>(&'a self, name: &'a str, deep: bool, repair: Repair) -> Work<'a, Vec<CheckFinding>> {
        Box::pin(async move {
            let (storage, environment) = (self.storage(name)?, volumes::environment(&self.surroundings));
            let work = move || async move { volumes::verify(storage, environment, deep, repair).await };
            self.shards.run(self.home, work).await
        })
    }

    fn add_log<'a>(&'a self, name: &'a str, log: NewLog) -> Work<'a, ()> {
        Box::pin(self.add_log_to(name, log))
    }

    fn remove_log<'a>(&'a self, name: &'a str) -> Work<'a, ()> {
        Box::pin(self.remove_log_of(name))
    }

    fn delete_leftovers(&self) -> Quiet<'_> {
        Box::pin(self.delete_leftover_logs())
    }

    fn give_up_log<'a>(&'a self, name: &'a str) -> Work<'a, ()> {
        Box::pin(async move {
            let storage = self.storage(name)?;
            self.shards.run(self.home, move || async move { storage.give_up_log().await }).await
        })
    }

    fn grow<'a>(&'a self, name: &'a str, size_bytes: u64) -> Work<'a, ()> {
        Box::pin(async move {
            let id = self.space(name)?.id();
            self.at_home(move |pool| async move { pool.grow_space(id, size_bytes).await }).await
        })
    }

    fn rename_space<'a>(&'a self, name: &'a str, new: &'a str) -> Work<'a, ()> {
        Box::pin(async move {
            let id = self.pool.closed_space(name).map_or_else(|| self.space(name), Ok)?.id();
            let to = new.to_owned();
            self.at_home(move |pool| async move { pool.rename_space(id, &to).await }).await?;
            let mut volumes = self.volumes.lock();
            if let Some(volume) = volumes.remove(name) {
                if let Some(volume) = volume.upgrade() {
                    volume.renamed(new);
                }
                volumes.insert(new.to_owned(), volume);
            }
            Ok(())
        })
    }

    fn delete_space<'a>(&'a self, name: &'a str) -> Work<'a, ()> {
        Box::pin(async move {
            // One that is closed too: what it waits for may be lost for good.
            let closed = self.pool.closed_space(name);
            let space = closed.map_or_else(|| self.space(name), Ok)?;
            // Looked for while the volume can still say which is its own.
            let (id, log) = (space.id(), self.find_log(&space));
            drop(space);
            self.at_home(move |pool| async move { pool.delete_space(id).await }).await?;
            if let Err(problem) = self.delete_log(log).await {
                // The volume is gone; the node deletes what is left when the pool of the log takes writes again.
                tracing::warn!(volume = name, %problem, "the space of the log of a volume that was deleted stays");
            }
            Ok(())
        })
    }

    fn close(&self) -> Work<'_, ()> {
        Box::pin(self.at_home(|pool| async move { pool.close().await }))
    }

    fn close_and_release(&self) -> Work<'_, ()> {
        Box::pin(self.at_home(|pool| async move { pool.close_and_release().await }))
    }

    fn abandon(&self) -> Work<'_, ()> {
        // Nobody finds a log in it any more.
        self.opened.lock().retain(|other| !std::ptr::eq(other.as_ptr(), self));
        Box::pin(self.at_home(|pool| async move { pool.abandon(STRAGGLERS).await }))
    }

    fn destroy(&self, disks: Vec<PoolDisk>) -> Work<'_, ()> {
        Box::pin(self.destroyed(disks))
    }
}
