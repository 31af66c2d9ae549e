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

mod commands;
mod opened;
#[cfg(test)]
mod tests;
mod told;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use block_device::BlockDevice as _;
use control_api::{Code, Problem};
use file_store::FileId;
use observe::IoTally;
use parking_lot::Mutex;
use scsi_core::{Nexus, ScsiCommand, ScsiDevice as _, TaskAttribute, WireLun};
use scsi_disk::{Group, LogicalUnit, MappedUnit, PortGroup, TargetDevice, UnitConfig};
use shard_runtime::{Entropy, SystemEntropy, finish_anyway};
use smb_files::FileSystem;
use smb_protocol::{Guid, NtStatus};
use smb_server::{DiskFacts, DiskFile, DiskFuture, SharedDisk, SharedDisks};
use tcp_service::Throttle;
use uuid::Uuid;
use vhdx::{Memory, Mode, Opening};

use self::commands::Commands;
use self::opened::Opened;
use self::told::status;
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
/// How many disks of a volume are open at most: whoever may write to a share can open those in its files.
const DISKS_MAX: usize = 1024;
/// Memory in bytes that a disk takes, besides what its image asks for: the sectors of its table that are its own, what is changed of them, and
/// the unit.
const DISK_BYTES: usize = 2 << 20;

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

/// The memory of a disk, until this is dropped.
struct Room(Arc<dyn Memory>);

impl Room {
    fn take(memory: &Arc<dyn Memory>) -> Result<Self, Problem> {
        if memory.take(DISK_BYTES) {
            return Ok(Self(memory.clone()));
        }
        let told = "there is no memory for one more shared virtual disk now";
        Err(Problem::new(Code::Unavailable, told))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.0.give_back(DISK_BYTES);
    }
}

/// A disk that is open.
struct Shared {
    parts: Arc<Parts>,
    /// Of its file in the volume.
    path: String,
    /// Taken while the unit is there.
    room: Mutex<Option<Room>>,
    shard: usize,
    device: TargetDevice,
    unit: Arc<LogicalUnit>,
    disk: Arc<Disk>,
    watch: Mutex<Option<Watch>>,
    users: Mutex<Users>,
    facts: DiskFacts,
    /// The size in bytes that was seen last: it is told while the image is opened again.
    size: AtomicU64,
    /// Changes of the size under way: they write to the file as commands do, and end with the unit as these do.
    growing: Commands,
    /// The unit ends: what it has not carried out is to be asked for again, of whoever has the disk then.
    ended: AtomicBool,
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
    ///
    /// # Errors
    /// FILE_NOT_AVAILABLE when the volume is not served here, INSUFFICIENT_RESOURCES when too many disks of it are open.
    fn slot(&self, file: &DiskFile) -> Result<(Arc<Slot>, Arc<dyn VolumeHandle>), NtStatus> {
        let mut volumes = self.volumes.lock();
        let volume = volumes.iter_mut().find(|volume| volume.files.is(&file.files));
        let volume = volume.ok_or(NtStatus::FILE_NOT_AVAILABLE)?;
        // Those that nobody has are forgotten.
        volume.disks.retain(|id, slot| *id == file.file || Arc::strong_count(slot) > 1);
        if volume.disks.len() >= DISKS_MAX && !volume.disks.contains_key(&file.file) {
            return Err(NtStatus::INSUFFICIENT_RESOURCES);
        }
        Ok((volume.disks.entry(file.file).or_default().clone(), volume.handle.clone()))
    }

    /// Whether a line may go into the log: whoever may open files can cause these at will.
    fn may_tell(&self, kind: &'static str) -> bool {
        self.throttle.admits(kind, ANYWHERE)
    }

    async fn open(self: Arc<Self>, file: DiskFile) -> Result<Arc<Opened>, NtStatus> {
        let (slot, handle) = self.slot(&file)?;
        let mut place = slot.shared.lock().await;
        // The volume may have gone meanwhile: who takes it away has looked here already, or waits for this.
        if !self.volumes.lock().iter().any(|volume| Arc::ptr_eq(&volume.handle, &handle)) {
            return Err(NtStatus::FILE_NOT_AVAILABLE);
        }
        let shared = match &*place {
            Some(shared) => shared.clone(),
            None => {
                let opened = Arc::clone(&self).open_unit(&file, handle).await.map_err(|problem| {
                    if self.may_tell("shared disk refused") {
                        let (path, reason) = (&file.path, &problem.detail);
                        tracing::info!(path, reason, "a shared virtual disk cannot be opened");
                    }
                    status(&problem)
                })?;
                if self.may_tell("shared disk open") {
                    tracing::info!(path = file.path, "a shared virtual disk is open");
                }
                place.insert(Arc::new(opened)).clone()
            }
        };
        let initiator = shared.enter(file.initiator).await;
        drop(place);
        Ok(Arc::new(Opened::new(slot, shared, initiator)))
    }

    /// Opens a file's image as a unit, on the shard of its volume.
    async fn open_unit(
        self: Arc<Self>,
        file: &DiskFile,
        handle: Arc<dyn VolumeHandle>,
    ) -> Result<Shared, Problem> {
        let shard = handle.shard();
        let room = Room::take(&self.memory)?;
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
        Ok(Shared {
            parts: self,
            path: file.path.clone(),
            room: Mutex::new(Some(room)),
            shard,
            device,
            unit,
            disk,
            watch: Mutex::new(Some(watch)),
            users: Mutex::default(),
            facts,
            size: AtomicU64::new(metadata.disk_size),
            growing: Commands::default(),
            ended: AtomicBool::new(false),
        })
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

    /// Ends the unit: what runs is waited for, everything is in its place in the file, and the file is anybody's. What has not been carried
    /// out by then is told to come again: the disk may be at another node.
    async fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        self.unit.moves();
        self.growing.end().await;
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
            tracing::warn!(path = self.path, reason = problem.detail, "a shared virtual disk was not closed");
        }
        let room = self.room.lock().take();
        drop(room);
    }

    fn say_closed(&self) {
        if self.parts.may_tell("shared disk closed") {
            tracing::info!(path = self.path, "a shared virtual disk is closed");
        }
    }

    /// Whether the unit ends, or has.
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// The size in bytes now; while the image is opened again, what it was before.
    fn size(&self) -> u64 {
        if let Some(image) = self.disk.image() {
            self.size.store(image.size(), Ordering::Relaxed);
        }
        self.size.load(Ordering::Relaxed)
    }

    fn bytes(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(u64::from(self.facts.sector))
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
