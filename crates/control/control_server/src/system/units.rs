//! Logical units: files of volumes as SCSI disks, and which target shows which of them to whom.

mod apply;
mod cached;
mod file;
mod held;
mod medium;
mod overflow_file;
mod reserved;
mod shared;
#[cfg(test)]
mod tests;
mod views;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use block_device::BlockDevice as _;
use control_api::{
    Code, LunConfig, LunFormat, LunReservations, LunState, LunWriteCache, LunWriteCacheNow, Problem,
};
use file_store::{FileId, OpenFile};
use observe::IoTotals;
use parking_lot::Mutex;
use scsi_core::ScsiDevice;
use scsi_disk::{
    AbsentBacking, Forward, Group, LogicalUnit, NoReservationStore, PortGroup, TargetDevice, UnitConfig,
    UnitState, WaitingRoom,
};
use shard_runtime::Clock;
use uuid::Uuid;
use vhdx::{Held, Memory};

use self::file::{Kept, Refused, Watch, end_watch, watch};
use self::medium::{Disk, Source, watch_medium};
pub(super) use self::shared::SharedVirtualDisks;
use self::views::view;
use super::gates::Gates;
use super::iscsi::UnitBackend;
use super::shards::SystemShards;
use crate::backend::{CacheRoom, Current, FlowOn, ImageNow, QueueOf, ServedLun, VolumeHandle, Work};

/// How long is waited, when the service stops, for what is under way at a pool.
const TURNS_WAIT: Duration = Duration::from_secs(10);
/// Shown as the product of every unit.
const PRODUCT: &str = "DISK";

/// What makes a unit the one it is: when any of it changes, the unit is made anew.
#[derive(Clone, PartialEq, Eq)]
struct Identity {
    guid: [u8; 16],
    /// Which volume its file is in.
    space: Option<Uuid>,
    path: String,
    format: LunFormat,
    parents_anywhere: bool,
    block_size: u32,
    write_cache_in: Option<LunWriteCache>,
}

/// A unit in service.
struct Entry {
    identity: Identity,
    /// The pool that it is served from, as far as that is known.
    pool: Option<Uuid>,
    /// Absent for a unit whose file is not there.
    volume: Option<Arc<dyn VolumeHandle>>,
    /// Its file in that volume.
    file: Option<FileId>,
    /// It had its file, and waits for the volume to come back; its initiators are told that it becomes ready.
    away: bool,
    unit: Arc<LogicalUnit>,
    /// The image that its file is, if it is one.
    disk: Arc<Disk>,
    watch: Option<Watch>,
    /// The file of one that could not be opened.
    kept: Option<Kept>,
}

#[derive(Default)]
struct State {
    devices: BTreeMap<String, Arc<TargetDevice>>,
    units: BTreeMap<String, Entry>,
    /// The newest configuration that anybody has come with.
    config: Option<Current>,
    /// The one by which initiators are let in: what a newer one adds is not seen before that is in effect, what it takes away goes at once.
    admitted: Option<Current>,
    /// Nothing is opened any more.
    closed: bool,
    /// Who is to be told, by units that are closed, that cached writes may be lost, where that could not be kept with their data.
    lost_writes: BTreeMap<[u8; 16], Vec<String>>,
}

/// The units of this node.
pub(super) struct SystemUnits {
    shards: Arc<SystemShards>,
    clock: Arc<dyn Clock>,
    /// Where commands wait for their turn at their volume.
    gates: Arc<Gates>,
    /// Of which images hold some.
    memory: Arc<dyn Memory>,
    /// Of which write caches have theirs.
    caches: write_cache::Budget,
    state: Mutex<State>,
    /// Brings commands for units of other nodes there; nothing on a node of its own.
    forward: OnceLock<Arc<dyn Forward>>,
    /// Commands of this node whose LUNs are on the way.
    waiting: Arc<WaitingRoom>,
    /// One change at a time of each pool's units.
    turns: Mutex<BTreeMap<Option<Uuid>, Arc<tokio::sync::Mutex<()>>>>,
}

impl SystemUnits {
    /// No units yet.
    pub(super) fn new(
        shards: Arc<SystemShards>,
        clock: Arc<dyn Clock>,
        gates: Arc<Gates>,
        memory: Arc<dyn Memory>,
        caches: write_cache::Budget,
    ) -> Self {
        Self {
            shards,
            clock,
            gates,
            memory,
            caches,
            state: Mutex::default(),
            forward: OnceLock::new(),
            waiting: Arc::default(),
            turns: Mutex::default(),
        }
    }

    /// What a unit's medium is to be.
    fn source(&self, lun: &LunConfig, volume: &Arc<dyn VolumeHandle>) -> Source {
        Source::of(lun, volume, self.memory.clone(), &self.caches)
    }

    /// Opens a LUN's file as a unit.
    async fn open(
        &self,
        lun: &LunConfig,
        identity: Identity,
        pool: Option<Uuid>,
        groups: Vec<PortGroup>,
        volume: Arc<dyn VolumeHandle>,
        kept: Option<Arc<dyn OpenFile>>,
    ) -> Result<Entry, Refused> {
        let config = self.unit_config(&identity, lun, groups);
        let (source, name) = (self.source(lun, &volume), lun.name.clone());
        let (watch, watched) = watch();
        let served = self.served_of(&volume);
        let (swept, store) = (self.to_be_swept(lun, &volume), volume.store());
        let opened = self.shards.run(volume.shard(), move || async move {
            if let Some((folder, known)) = swept {
                overflow_file::sweep(&*store, &folder, &known).await;
            }
            let mut medium = match source.open(&served, kept).await {
                Ok(medium) => medium,
                Err(failed) => return Ok(Err(failed)),
            };
            let disk = Arc::<Disk>::default();
            disk.is_of(&mut medium);
            let store = source.rows();
            let opened = LogicalUnit::open(config, medium.backing, store).await;
            match &opened {
                Ok(unit) => {
                    shard_runtime::spawn_local(watch_medium(unit.clone(), source, disk.clone(), watched));
                }
                // Nobody has written to it: there is nothing to close.
                Err(_) => disk.let_go(),
            }
            Ok(Ok((opened, medium.file, disk)))
        });
        let (opened, file, disk) = match opened.await? {
            Ok(opened) => opened,
            Err(failed) => return Err(failed.of(volume)),
        };
        let unit = match opened {
            Ok(unit) => unit,
            Err(why) => {
                let problem = Problem::new(Code::Damaged, format!("LUN {name}: {why}."));
                return Err(Refused { problem, kept: Some(Kept { volume, file }) });
            }
        };
        let lost = self.state.lock().lost_writes.remove(&identity.guid);
        unit.tell_lost_writes(lost.unwrap_or_default());
        let id = file.file();
        self.drop_on(volume.shard(), file).await?;
        unit.count_with(self.clock.clone());
        let (file, watch) = (Some(id), Some(watch));
        Ok(Entry { identity, pool, volume: Some(volume), file, away: false, unit, disk, watch, kept: None })
    }

    fn unit_config(&self, identity: &Identity, lun: &LunConfig, port_groups: Vec<PortGroup>) -> UnitConfig {
        UnitConfig {
            id: identity.guid,
            product: PRODUCT.into(),
            block_size: identity.block_size,
            write_cache: lun.write_cache,
            discards_writes: lun.write_cache_in.is_some(),
            initiator_write_cache: lun.initiator_write_cache,
            // Another node may go on with it, and initiators see no loss of power then.
            keep_reservations: self.forward.get().is_some(),
            port_groups,
        }
    }

    /// The files of a volume that are served, with the names of their units.
    fn served_of(&self, volume: &Arc<dyn VolumeHandle>) -> BTreeMap<FileId, String> {
        let state = self.state.lock();
        let of = state.units.iter().filter(|(_, entry)| same_volume(entry.volume.as_ref(), Some(volume)));
        of.filter_map(|(name, entry)| Some((entry.file?, name.clone()))).collect()
    }

    /// Gives a unit that waits its file back.
    async fn attach(
        &self,
        lun: &LunConfig,
        (unit, disk): (Arc<LogicalUnit>, Arc<Disk>),
        volume: &Arc<dyn VolumeHandle>,
        kept: Option<Arc<dyn OpenFile>>,
    ) -> Result<(Watch, FileId), Refused> {
        let source = self.source(lun, volume);
        let (watch, watched) = watch();
        let served = self.served_of(volume);
        let attached = self.shards.run(volume.shard(), move || async move {
            let mut medium = match source.open(&served, kept).await {
                Ok(medium) => medium,
                Err(failed) => return Ok(Err(failed)),
            };
            disk.is_of(&mut medium);
            unit.attach(medium.backing, source.rows());
            shard_runtime::spawn_local(watch_medium(unit, source, disk, watched));
            Ok(Ok(medium.file.file()))
        });
        match attached.await? {
            Ok(file) => Ok((watch, file)),
            Err(failed) => Err(failed.of(volume.clone())),
        }
    }

    /// Takes the files of units away whose volume is not `wanted` any more; their initiators wait for it.
    async fn detach(&self, names: Vec<String>) -> Result<(), Problem> {
        for name in names {
            let parts = {
                let mut state = self.state.lock();
                let Some(entry) = state.units.get_mut(&name) else { continue };
                entry.away = true;
                (entry.unit.clone(), entry.disk.clone(), entry.volume.take(), entry.watch.take())
            };
            let (unit, disk, volume, watch) = parts;
            end_watch(watch).await;
            tracing::info!(lun = name, "a LUN waits for its volume");
            let shard = volume.as_ref().map_or(0, |volume| volume.shard());
            let detached = self.shards.run(shard, move || async move {
                unit.detach();
                disk.let_go();
                Ok(())
            });
            detached.await?;
        }
        Ok(())
    }

    /// A unit that is not ready.
    async fn absent(
        &self,
        lun: &LunConfig,
        identity: Identity,
        pool: Option<Uuid>,
        groups: Vec<PortGroup>,
        (state, kept): (UnitState, Option<Kept>),
    ) -> Result<Entry, Problem> {
        let config = self.unit_config(&identity, lun, groups);
        let unit = self.shards.run(0, move || async move {
            let opened =
                LogicalUnit::open(config, Arc::<AbsentBacking>::default(), Arc::new(NoReservationStore))
                    .await;
            opened.map_err(|why| Problem::new(Code::Internal, why))
        });
        let unit = unit.await?;
        unit.set_state(state);
        let disk = Arc::default();
        Ok(Entry { identity, pool, volume: None, file: None, away: false, unit, disk, watch: None, kept })
    }

    /// Closes units, on the shards of their files, and waits for that: whoever removes a file, makes a unit of it anew or gives the
    /// volume away does so when no command of the former unit can reach it any more.
    async fn release(&self, entries: Vec<Entry>) -> Result<(), Problem> {
        for entry in entries {
            let Entry { identity, volume, unit, disk, watch, kept, .. } = entry;
            end_watch(watch).await;
            let shard = volume.as_ref().map_or(0, |volume| volume.shard());
            let closing = move || async move {
                disk.cached_goes();
                let lost = unit.close().await;
                disk.close().await;
                Ok(lost)
            };
            let lost = self.shards.run(shard, closing).await?;
            if !lost.is_empty() {
                tracing::error!(
                    path = identity.path,
                    initiators = lost.len(),
                    "writes to a LUN's write cache may be lost, and its volume cannot keep who is to be told: another node that serves it does not know"
                );
                self.state.lock().lost_writes.insert(identity.guid, lost);
            }
            self.let_go(kept).await?;
        }
        Ok(())
    }

    async fn drop_on<T: Send + 'static>(&self, shard: usize, it: T) -> Result<(), Problem> {
        let dropping = move || async move {
            drop(it);
            Ok(())
        };
        self.shards.run(shard, dropping).await
    }

    /// Lets go of files that were kept, on the shards of their volumes.
    async fn let_go(&self, kept: impl IntoIterator<Item = Kept>) -> Result<(), Problem> {
        for Kept { volume, file } in kept {
            self.drop_on(volume.shard(), file).await?;
        }
        Ok(())
    }

    /// What every target shows to whom, by the newest configuration: a call for a pool that was held up may have an older one.
    fn configure(&self) {
        let mut state = self.state.lock();
        let Some(Current { config, revision }) = state.config.clone() else { return };
        let config = &*config;
        let before = state.admitted.as_ref().filter(|admitted| admitted.revision < revision);
        let narrowed = before.map(|before| views::narrowed(&before.config, config));
        let shown = narrowed.as_ref().unwrap_or(config);
        for target in &config.targets {
            let groups =
                shown.groups.iter().filter_map(|group| view(&state.units, shown, &target.name, group));
            let mut groups: Vec<Group> = groups.collect();
            if narrowed.is_some() {
                groups.extend(views::held(config, &target.name));
            }
            let device =
                || Arc::new(TargetDevice::forwarding(self.forward.get().cloned(), self.waiting.clone()));
            state.devices.entry(target.name.clone()).or_insert_with(device).configure(groups);
        }
        state.devices.retain(|name, device| {
            let wanted = config.targets.iter().any(|target| target.name == *name);
            if !wanted {
                device.configure(Vec::new());
            }
            wanted
        });
    }
}

fn state(lun: &LunConfig) -> UnitState {
    match lun.state {
        LunState::Online => UnitState::Online,
        LunState::ReadOnly => UnitState::ReadOnly(lun.reason.clone()),
        LunState::Offline => UnitState::Offline(lun.reason.clone()),
    }
}

fn same_volume(a: Option<&Arc<dyn VolumeHandle>>, b: Option<&Arc<dyn VolumeHandle>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}

impl UnitBackend for SystemUnits {
    fn narrow(&self, config: &Current) {
        self.notice(config);
        self.configure();
    }

    fn admit(&self, config: &Current) {
        self.notice(config);
        {
            let mut state = self.state.lock();
            if state.admitted.as_ref().is_none_or(|known| known.revision <= config.revision) {
                state.admitted = Some(config.clone());
            }
        }
        self.configure();
    }

    fn apply_pool<'a>(
        &'a self,
        config: &'a Current,
        pool: Option<Uuid>,
        luns: Vec<ServedLun>,
    ) -> Work<'a, Vec<(String, String)>> {
        Box::pin(self.apply_to(config, pool, luns))
    }

    fn device(&self, target: &str) -> Arc<dyn ScsiDevice> {
        let device = || Arc::new(TargetDevice::forwarding(self.forward.get().cloned(), self.waiting.clone()));
        self.state.lock().devices.entry(target.to_owned()).or_insert_with(device).clone()
    }

    fn target(&self, target: &str) -> Option<Arc<TargetDevice>> {
        self.state.lock().devices.get(target).cloned()
    }

    fn forward_by(&self, forward: Arc<dyn Forward>) {
        // Only a node that begins does this.
        let _ = self.forward.set(forward);
    }

    fn close(&self) -> Work<'_, ()> {
        Box::pin(async move {
            self.state.lock().closed = true;
            let turns: Vec<_> = self.turns.lock().values().cloned().collect();
            // A pool that does not answer is not waited for.
            let taken = turns.into_iter().map(|turn| tokio::time::timeout(TURNS_WAIT, turn.lock_owned()));
            let _turns = futures_util::future::join_all(taken).await;
            let entries: Vec<Entry> = {
                let mut state = self.state.lock();
                state.devices.values().for_each(|device| device.configure(Vec::new()));
                std::mem::take(&mut state.units).into_values().collect()
            };
            self.release(entries).await
        })
    }

    fn counters(&self) -> Vec<(String, IoTotals)> {
        let state = self.state.lock();
        state.units.iter().map(|(name, entry)| (name.clone(), entry.unit.totals())).collect()
    }

    fn write_caches(&self) -> Vec<(String, bool)> {
        let state = self.state.lock();
        state.units.iter().map(|(name, entry)| (name.clone(), entry.unit.caches_writes())).collect()
    }

    fn images(&self) -> Vec<(String, ImageNow)> {
        let state = self.state.lock();
        let now = |entry: &Entry| {
            let (image, problem) = (entry.disk.image(), entry.disk.problem());
            let size = image.map(|image| image.size());
            (size.is_some() || problem.is_some())
                .then(|| ImageNow { size_bytes: size.unwrap_or_default(), problem })
        };
        state.units.iter().filter_map(|(name, entry)| Some((name.clone(), now(entry)?))).collect()
    }

    fn caches(&self) -> Vec<(String, LunWriteCacheNow)> {
        self.caches_now()
    }

    fn cache_room(&self) -> Option<CacheRoom> {
        Some(self.cache_room_now())
    }

    fn resize_image<'a>(&'a self, lun: &'a str, size: u64) -> Work<'a, ()> {
        Box::pin(self.resize(lun, size))
    }

    fn hold_images(&self, luns: Vec<String>) -> Work<'_, Vec<Held>> {
        Box::pin(self.hold(luns))
    }

    fn flows(&self) -> Vec<FlowOn> {
        self.gates.flows()
    }

    fn queues(&self) -> Vec<QueueOf> {
        self.gates.queues()
    }

    fn reservations(&self) -> Vec<(String, LunReservations)> {
        self.reserved()
    }

    fn lost_writes(&self) -> Vec<(String, Vec<String>)> {
        self.not_told()
    }

    fn forget_lost_writes<'a>(&'a self, lun: &'a str, host: Option<String>) -> Work<'a, Vec<String>> {
        Box::pin(self.forget(lun, host))
    }

    fn clear_reservations<'a>(&'a self, lun: &'a str) -> Work<'a, LunReservations> {
        Box::pin(self.clear(lun))
    }

    fn inspect(&self) -> serde_json::Value {
        self.inspected()
    }
}
