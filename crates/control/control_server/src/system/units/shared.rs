//! Virtual disks of volumes that clients of shares have open together (MS-RSVD): for each file one unit, which all of its opens have, over the
//! image that the file is.
//!
//! ```text
//!   smb_server ─► open ─► Shared, one for each file that is open so ─► TargetDevice ─► LogicalUnit ─► image ─► the file, nobody else's
//!                  └─► Opened, one for each open ─► nexus of its initiator, which all opens of that initiator have
//! ```
//!
//! The unit is opened with the first open and closed with the last, or when its volume goes away. Its reservations are rows of the volume, by the
//! number of the file: who opens the disk next finds them, on whichever node.

mod told;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aligned_buffer::SharedBuf;
use block_device::BlockDevice as _;
use control_api::{Code, Problem};
use file_store::FileId;
use observe::IoTally;
use parking_lot::Mutex;
use qos_gate::Kind;
use scsi_core::{Nexus, ScsiCommand, ScsiDevice as _, TaskAttribute, WireLun};
use scsi_defs::{Cdb, Effect};
use scsi_disk::{Group, LogicalUnit, MappedUnit, PortGroup, TargetDevice, UnitConfig};
use shard_runtime::{Entropy, SystemEntropy, finish_anyway};
use smb_files::FileSystem;
use smb_protocol::{Guid, NtStatus};
use smb_server::{DiskAnswer, DiskFacts, DiskFile, DiskFuture, SharedDisk, SharedDisks};
use tcp_service::Throttle;
use uuid::Uuid;
use vhdx::{Memory, Mode, Opening};

use self::told::{Data, data_of, status};
use super::file::{Watch, end_watch, watch};
use super::medium::{Disk, Source, watch_medium};
use crate::backend::{OpenVolume, VolumeHandle};
use crate::images::{self, ImagePlace};
use crate::system::shards::SystemShards;

/// Shown as the product of every shared disk.
const PRODUCT: &str = "SHARED DISK";
/// What the initiators' names begin with; their identities follow.
const INITIATOR: &str = "iqn.2026-01.io.holdfast:svhdx.";
/// The target that the disks are behind.
const TARGET: &str = "iqn.2026-01.io.holdfast:svhdx";
/// Whose lines in the log are counted: the disk's, whoever asks.
const ANYWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// The number of each disk.
const LUN: u16 = 0;

/// Numbers of nexuses; their devices have no others.
static NEXT_NEXUS: AtomicU64 = AtomicU64::new(1);

/// A volume whose files can be opened as shared disks.
struct Volume {
    pool: Option<Uuid>,
    files: FileSystem,
    handle: Arc<dyn VolumeHandle>,
    disks: BTreeMap<FileId, Arc<Slot>>,
}

/// The disk of a file, if it is open. Whoever opens or closes it holds the lock.
#[derive(Default)]
struct Slot {
    shared: tokio::sync::Mutex<Option<Arc<Shared>>>,
}

/// The shared disks of this node.
pub(in crate::system) struct SharedVirtualDisks {
    parts: Arc<Parts>,
}

struct Parts {
    shards: Arc<SystemShards>,
    /// Of which images hold some.
    memory: Arc<dyn Memory>,
    volumes: Mutex<Vec<Volume>>,
    throttle: Throttle,
}

/// A disk that is open.
struct Shared {
    parts: Arc<Parts>,
    shard: usize,
    device: TargetDevice,
    unit: Arc<LogicalUnit>,
    disk: Arc<Disk>,
    watch: Mutex<Option<Watch>>,
    users: Mutex<Users>,
    facts: DiskFacts,
}

/// Who has the disk open.
#[derive(Default)]
struct Users {
    opens: usize,
    /// The initiators, each with how many opens it has.
    initiators: BTreeMap<Guid, (Arc<Nexus>, usize)>,
    /// The volume goes away: there is nothing to be closed any more.
    ended: bool,
}

/// The disk as one open has it.
struct Opened {
    slot: Arc<Slot>,
    shared: Arc<Shared>,
    initiator: Option<(Guid, Arc<Nexus>)>,
    closed: std::sync::atomic::AtomicBool,
}

impl SharedVirtualDisks {
    pub(in crate::system) fn new(shards: Arc<SystemShards>, memory: Arc<dyn Memory>) -> Self {
        let (volumes, throttle) = (Mutex::default(), Throttle::default());
        Self { parts: Arc::new(Parts { shards, memory, volumes, throttle }) }
    }

    /// Disks in the files of a volume can be opened from now on.
    pub(in crate::system) fn serve(
        &self,
        pool: Option<Uuid>,
        files: &FileSystem,
        handle: &Arc<dyn VolumeHandle>,
    ) {
        let mut volumes = self.parts.volumes.lock();
        // One that could not be served before is served anew.
        volumes.retain(|volume| !Arc::ptr_eq(&volume.handle, handle) || !volume.disks.is_empty());
        let (files, handle) = (files.clone(), handle.clone());
        volumes.push(Volume { pool, files, handle, disks: BTreeMap::new() });
    }

    /// Closes the disks of a pool's volumes that are none of these: nothing of them is held any more when this ends.
    pub(in crate::system) async fn keep(&self, pool: Option<Uuid>, wanted: &[OpenVolume]) {
        self.end(|volume| {
            volume.pool == pool && !wanted.iter().any(|each| Arc::ptr_eq(&each.volume, &volume.handle))
        })
        .await;
    }

    /// Closes all disks.
    pub(in crate::system) async fn stop(&self) {
        self.end(|_| true).await;
    }

    async fn end(&self, which: impl Fn(&Volume) -> bool) {
        let gone: Vec<Arc<Slot>> = {
            let mut volumes = self.parts.volumes.lock();
            let (gone, stay) = std::mem::take(&mut *volumes).into_iter().partition::<Vec<_>, _>(which);
            *volumes = stay;
            gone.into_iter().flat_map(|volume| volume.disks.into_values()).collect()
        };
        for slot in gone {
            if let Some(shared) = slot.shared.lock().await.take() {
                shared.users.lock().ended = true;
                shared.end().await;
            }
        }
    }
}

impl Parts {
    /// Where the disk of a file is, and the volume.
    fn slot(&self, file: &DiskFile) -> Option<(Arc<Slot>, Arc<dyn VolumeHandle>)> {
        let mut volumes = self.volumes.lock();
        let volume = volumes.iter_mut().find(|volume| volume.files.is(&file.files))?;
        // Those that nobody has are forgotten.
        volume.disks.retain(|id, slot| *id == file.file || Arc::strong_count(slot) > 1);
        Some((volume.disks.entry(file.file).or_default().clone(), volume.handle.clone()))
    }

    async fn open(self: Arc<Self>, file: DiskFile) -> Result<Arc<Opened>, NtStatus> {
        let (slot, handle) = self.slot(&file).ok_or(NtStatus::FILE_NOT_AVAILABLE)?;
        let mut place = slot.shared.lock().await;
        // The volume may have gone meanwhile: who takes it away has looked here already, or waits for this.
        if !self.volumes.lock().iter().any(|volume| Arc::ptr_eq(&volume.handle, &handle)) {
            return Err(NtStatus::FILE_NOT_AVAILABLE);
        }
        let shared = match &*place {
            Some(shared) => shared.clone(),
            None => {
                let opened = Arc::clone(&self).open_unit(&file, handle).await.map_err(|problem| {
                    // Whoever may open files can cause this line at will.
                    if self.throttle.admits("shared disk refused", ANYWHERE) {
                        let (path, reason) = (&file.path, &problem.detail);
                        tracing::info!(path, reason, "a shared virtual disk cannot be opened");
                    }
                    status(&problem)
                })?;
                tracing::info!(path = file.path, "a shared virtual disk is open");
                place.insert(Arc::new(opened)).clone()
            }
        };
        let initiator = shared.enter(file.initiator).await;
        drop(place);
        Ok(Arc::new(Opened { slot, shared, initiator, closed: false.into() }))
    }

    /// Opens a file's image as a unit, on the shard of its volume.
    async fn open_unit(
        self: Arc<Self>,
        file: &DiskFile,
        handle: Arc<dyn VolumeHandle>,
    ) -> Result<Shared, Problem> {
        let shard = handle.shard();
        let (memory, path, id) = (self.memory.clone(), file.path.clone(), file.file);
        let opened = self.shards.run(shard, move || async move {
            let store = handle.store();
            if let Some(parentage) = handle.parentage() {
                parentage.refuse(&path).await?;
            }
            let place = ImagePlace { path: path.clone(), parents_anywhere: false };
            let held = images::open_file(&store, &place, Mode::Write).await?;
            if held.file() != id {
                return Err(Problem::new(Code::InUse, format!("{path} is another file by now.")));
            }
            let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
            let looked = Opening::read_within(held.clone(), Mode::Read, &entropy, memory.clone()).await;
            let looked = looked.map_err(|error| images::problem(&error))?;
            if looked.parent_locator().is_some() {
                // Who may write the image says which file its parent is, and need not be allowed to read that.
                let told = format!("{path} has a parent, and so cannot be shared.");
                return Err(Problem::new(Code::Unsupported, told));
            }
            let metadata = looked.info().metadata;
            drop(looked);
            let source = Source::shared(&handle, memory, place, metadata.logical_sector, id);
            let mut medium =
                source.open(&BTreeMap::new(), Some(held)).await.map_err(|failed| failed.problem)?;
            let disk = Arc::<Disk>::default();
            disk.is_of(&mut medium);
            let config = UnitConfig {
                id: *metadata.disk_id.as_bytes(),
                product: PRODUCT.into(),
                block_size: metadata.logical_sector,
                write_cache: false,
                initiator_write_cache: false,
                discards_writes: false,
                // Hosts see no loss of power when the node, or who has its volume, is another one.
                keep_reservations: true,
                port_groups: vec![PortGroup::optimized(1)],
            };
            let unit = match LogicalUnit::open(config, medium.backing, source.rows()).await {
                Ok(unit) => unit,
                Err(why) => {
                    // Nobody has written to it: there is nothing to close.
                    disk.let_go();
                    return Err(Problem::new(Code::Damaged, format!("{path}: {why}.")));
                }
            };
            let (watch, watched) = watch();
            shard_runtime::spawn_local(watch_medium(unit.clone(), source, disk.clone(), watched));
            Ok((unit, disk, watch, metadata))
        });
        let (unit, disk, watch, metadata) = opened.await?;
        let device = TargetDevice::new();
        let mapped = MappedUnit { unit: unit.clone(), read_only: false };
        device.configure(vec![Group { luns: BTreeMap::from([(LUN, mapped)]), ..Group::default() }]);
        let facts = DiskFacts {
            sector: metadata.logical_sector,
            physical_sector: metadata.physical_sector.max(metadata.logical_sector),
            block_size: if metadata.parameters.leave_allocated { 0 } else { metadata.parameters.block_size },
            disk: Guid(metadata.disk_id.to_bytes_le()),
            ..DiskFacts::default()
        };
        let (watch, users) = (Mutex::new(Some(watch)), Mutex::default());
        Ok(Shared { parts: self, shard, device, unit, disk, watch, users, facts })
    }
}

impl Shared {
    /// One more open, of this initiator.
    async fn enter(&self, initiator: Option<Guid>) -> Option<(Guid, Arc<Nexus>)> {
        let (id, nexus) = {
            let mut users = self.users.lock();
            users.opens += 1;
            let id = initiator?;
            if let Some((nexus, opens)) = users.initiators.get_mut(&id) {
                *opens += 1;
                return Some((id, nexus.clone()));
            }
            let nexus = Arc::new(Nexus {
                id: NEXT_NEXUS.fetch_add(1, Ordering::Relaxed),
                initiator: format!("{INITIATOR}{id}"),
                initiator_port: [0; 6],
                target: TARGET.to_owned(),
                target_port: 1,
                io: IoTally::default(),
            });
            users.initiators.insert(id, (nexus.clone(), 1));
            (id, nexus)
        };
        self.device.nexus_established(&nexus);
        // That there is a new disk the open itself says: the attention of a unit that has been switched on would fail the first READ.
        let command = ScsiCommand {
            cdb: vec![0; 6],
            data_out: aligned_buffer::IoBuf::new(0).freeze(),
            data_in_limit: 0,
            attribute: TaskAttribute::Simple,
        };
        let _ = self.device.execute(&nexus, WireLun::from_number(LUN), command).await;
        Some((id, nexus))
    }

    /// One open less; whether it was the last.
    fn leave(&self, initiator: Option<&(Guid, Arc<Nexus>)>) -> bool {
        let (lost, last) = {
            let mut users = self.users.lock();
            let mut lost = None;
            if let Some((id, nexus)) = initiator
                && let Some((_, opens)) = users.initiators.get_mut(id)
            {
                *opens -= 1;
                if *opens == 0 {
                    users.initiators.remove(id);
                    lost = Some(nexus);
                }
            }
            users.opens -= 1;
            (lost, users.opens == 0 && !users.ended)
        };
        if let Some(nexus) = lost {
            self.device.nexus_lost(nexus);
        }
        last
    }

    /// Ends the unit: what runs is waited for, everything is in its place in the file, and the file is anybody's.
    async fn end(&self) {
        let watch = self.watch.lock().take();
        end_watch(watch).await;
        let (unit, disk) = (self.unit.clone(), self.disk.clone());
        let closing = move || async move {
            // Writes are durable when they are answered: nobody has lost any.
            let _ = unit.close().await;
            disk.close().await;
            Ok(())
        };
        if let Err(problem) = self.parts.shards.run(self.shard, closing).await {
            tracing::warn!(reason = problem.detail, "a shared virtual disk was not closed");
        }
        self.device.configure(Vec::new());
    }

    fn bytes(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(u64::from(self.facts.sector))
    }
}

impl Opened {
    /// Ends the open's use, once.
    async fn leave(slot: Arc<Slot>, shared: Arc<Shared>, initiator: Option<(Guid, Arc<Nexus>)>) {
        let mut place = slot.shared.lock().await;
        if shared.leave(initiator.as_ref()) {
            *place = None;
            shared.end().await;
            tracing::info!("a shared virtual disk is closed");
        }
    }

    fn leaving(&self) -> Option<impl Future<Output = ()> + use<>> {
        let first = !self.closed.swap(true, Ordering::AcqRel);
        first.then(|| Self::leave(self.slot.clone(), self.shared.clone(), self.initiator.clone()))
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(leaving) = self.leaving() {
            let shard = self.shared.shard;
            tcp_service::Spawner::spawn(
                &*self.shared.parts.shards,
                shard,
                Box::new(move || Box::pin(leaving)),
            );
        }
    }
}

impl SharedDisk for Opened {
    fn facts(&self) -> DiskFacts {
        let image = self.shared.disk.image();
        let size = image.as_ref().map(|image| image.size());
        DiskFacts {
            size: size.unwrap_or_default(),
            file_size: self.shared.disk.file_size(),
            is_mounted: size.is_some() && self.shared.disk.problem().is_none(),
            ..self.shared.facts
        }
    }

    fn moves(&self, cdb: &[u8]) -> Option<(Kind, u64)> {
        let cdb = Cdb::parse(cdb).ok()?;
        match data_of(&cdb) {
            Data::In(blocks) => Some((Kind::Read, self.shared.bytes(blocks))),
            Data::Out(blocks) => Some((Kind::Write, self.shared.bytes(blocks))),
            Data::Other if cdb.effect == Effect::Write => Some((Kind::Write, 0)),
            Data::Other => None,
        }
    }

    fn execute<'a>(
        &'a self,
        cdb: &'a [u8],
        data: SharedBuf,
        limit: u32,
    ) -> DiskFuture<'a, Result<Option<DiskAnswer>, NtStatus>> {
        Box::pin(async move {
            let (_, nexus) = self.initiator.as_ref().ok_or(NtStatus::INVALID_HANDLE)?;
            if let Ok(parsed) = Cdb::parse(cdb) {
                let fits = match data_of(&parsed) {
                    Data::In(blocks) => self.shared.bytes(blocks) <= u64::from(limit),
                    // A part of what a command writes would be answered as if it were all.
                    Data::Out(blocks) => self.shared.bytes(blocks) == data.len() as u64,
                    Data::Other => true,
                };
                if !fits {
                    return Err(NtStatus::INVALID_PARAMETER);
                }
            }
            let attribute = TaskAttribute::Simple;
            let command = ScsiCommand { cdb: cdb.to_vec(), data_out: data, data_in_limit: limit, attribute };
            let answer = self.shared.device.execute(nexus, WireLun::from_number(LUN), command).await;
            Ok(answer.map(|answer| DiskAnswer {
                status: answer.status as u8,
                sense: answer.sense,
                data: answer.data_in,
            }))
        })
    }

    fn grow(&self, size: u64) -> DiskFuture<'_, Result<(), NtStatus>> {
        Box::pin(async move {
            let image = self.shared.disk.image().ok_or(NtStatus::DEVICE_NOT_READY)?;
            let growing = move || async move {
                if size < image.size() {
                    return Err(Problem::new(Code::InvalidRequest, "it would become smaller"));
                }
                image.resize(size).await.map_err(|error| images::problem(&error))
            };
            self.shared.parts.shards.run(self.shared.shard, growing).await.map_err(|problem| {
                match problem.code {
                    Code::InvalidRequest => NtStatus::INVALID_PARAMETER,
                    Code::NoSpace => NtStatus::DISK_FULL,
                    _ => NtStatus::UNEXPECTED_IO_ERROR,
                }
            })
        })
    }

    fn close(&self) -> DiskFuture<'_, ()> {
        let leaving = self.leaving();
        Box::pin(async move {
            if let Some(leaving) = leaving {
                finish_anyway(leaving).await;
            }
        })
    }
}

impl SharedDisks for SharedVirtualDisks {
    fn are_served(&self) -> bool {
        true
    }

    fn open(&self, file: DiskFile) -> DiskFuture<'_, Result<Arc<dyn SharedDisk>, NtStatus>> {
        let parts = self.parts.clone();
        Box::pin(async move {
            let opened = finish_anyway(parts.open(file)).await?;
            Ok(opened as Arc<dyn SharedDisk>)
        })
    }
}
