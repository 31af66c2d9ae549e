//! Disks of this machine: opened alone, looked at, named; units of iSCSI targets; and images of Ceph.

mod iscsi;
mod rbd;

use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use block_device::{BlockDevice, Device};
use block_iscsi::IscsiDisk;
use block_local::{LocalDisk, OpenMode};
use block_rbd::{Access, RbdDisk};
use block_wrappers::{Fault, WatchedDisk};
use control_api::{
    Code, DiskConfig, DiskLogin, FaultKind, FaultOperation, FaultRule, MediaType, NodeDisk, Problem, RBD_DISK,
};
use disk_gate::GatedDisk;
use iscsi_protocol::IscsiName;
use iscsi_protocol::url::Url;
use parking_lot::Mutex;

use observe::IoTotals;
use shard_runtime::Clock;

use super::bus::Bus;
use super::content::look;
use super::shards::SystemShards;
use crate::backend::{DiskBackend, DiskContent, FoundDisk, NodeSeen, OpenDisk, Work};
use iscsi::{For, Initiator};

/// A disk that this node has open.
pub struct SystemDisk {
    id: String,
    device: Arc<WatchedDisk>,
    /// The same, where it is a file or device of this machine.
    local: Option<Arc<LocalDisk>>,
    /// The same, where it is a unit of an iSCSI target.
    unit: Option<Arc<IscsiDisk>>,
    /// The same, where it is an image of Ceph.
    image: Option<Arc<RbdDisk>>,
    /// The same, where it is lent to other nodes.
    gated: Option<GatedDisk>,
    /// It lacked what fencing needs when that was tried last, though it keeps reservations.
    unfenceable: AtomicBool,
    shards: Arc<SystemShards>,
    shard: usize,
}

impl SystemDisk {
    /// Whether the disk can keep others from writing to it, as far as is known.
    pub(super) fn keeps_reservations(&self) -> bool {
        self.device.reservations().is_some() && !self.unfenceable.load(Ordering::Acquire)
    }

    /// Whether it is a disk of the kernel's that other machines may reach, and that cannot keep them from writing to it.
    pub(super) fn is_unfenced(&self) -> bool {
        self.local.as_ref().is_some_and(|local| local.may_be_shared()) && !self.keeps_reservations()
    }

    /// It was tried whether others can be kept from it. What one look has found the next one may not: the device may have been in trouble.
    pub(super) fn can_be_fenced(&self, can: bool) {
        self.unfenceable.store(!can, Ordering::Release);
    }

    /// The device, for a pool.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device.clone()
    }

    /// Runs work on the shard that it was opened for.
    pub(super) async fn run<T, F>(
        &self,
        work: impl FnOnce(Device) -> F + Send + 'static,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Problem>> + 'static,
    {
        let device = self.device();
        self.shards.run(self.shard, move || work(device)).await
    }

    /// Ends when nothing that was begun on it is under way any more; of a disk of this machine, whoever waits for it knows.
    pub(super) async fn settled(&self) -> Result<(), Problem> {
        if let Some(gated) = &self.gated {
            gated.settled().await;
        }
        let (unit, image) = (self.unit.clone(), self.image.clone());
        if unit.is_none() && image.is_none() {
            return Ok(());
        }
        let settled = move || async move {
            if let Some(unit) = unit {
                unit.settled().await;
            }
            if let Some(image) = image {
                image.settled().await;
            }
            Ok(())
        };
        self.shards.run(self.shard, settled).await
    }

    /// The disk's stable id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// Faults as the wrapper wants them: none, when the disk is to return.
fn faults(rules: &[FaultRule]) -> Vec<Fault> {
    use block_wrappers::{FaultKind as Kind, FaultOperation as Concerned};
    let fault = |rule: &FaultRule| {
        let kind = match rule.kind {
            FaultKind::Error => Kind::Error,
            FaultKind::Delay => Kind::Delay(Duration::from_millis(rule.delay_ms)),
            FaultKind::Serial => Kind::Serial(Duration::from_micros(rule.delay_us.unwrap_or(0))),
            FaultKind::Torn => Kind::Torn,
            FaultKind::Lost => Kind::Lost,
            FaultKind::Misdirected => Kind::Misdirected,
            FaultKind::BitRot => Kind::BitRot,
            FaultKind::Vanish => Kind::Vanish,
            FaultKind::Return => return None,
        };
        let operation = match rule.operation {
            FaultOperation::Any => Concerned::Any,
            FaultOperation::Read => Concerned::Read,
            FaultOperation::Write => Concerned::Write,
            FaultOperation::Flush => Concerned::Flush,
        };
        Some(Fault { kind, operation, offset: rule.offset, len: rule.len, count: rule.count })
    };
    rules.iter().map(fault).collect::<Option<Vec<_>>>().unwrap_or_default()
}

fn described(disk: block_local::FoundDisk) -> FoundDisk {
    FoundDisk {
        id: disk.id,
        path: disk.path,
        size_bytes: disk.size_bytes,
        media: match disk.rotational {
            Some(true) => MediaType::Hdd,
            Some(false) => MediaType::Ssd,
            None => MediaType::Unspecified,
        },
        model: disk.model,
        serial: disk.serial,
        vendor: disk.vendor,
        bus: disk.bus,
        enclosure: disk.enclosure,
        slot: disk.slot,
        in_use_by: disk.in_use_by,
        login: None,
    }
}

impl OpenDisk for SystemDisk {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn counters(&self) -> Option<IoTotals> {
        Some(self.device.totals())
    }

    fn set_faults(&self, rules: &[FaultRule]) -> Result<(), Problem> {
        self.device.set_faults(faults(rules));
        Ok(())
    }

    fn probe(&self) -> Work<'_, DiskContent> {
        Box::pin(self.run(look))
    }

    fn is_gone(&self) -> bool {
        self.unit.as_ref().is_some_and(|unit| unit.is_gone())
            || self.image.as_ref().is_some_and(|image| image.is_gone())
    }

    fn is_replaced(&self) -> bool {
        self.local.as_ref().is_some_and(|local| local.is_replaced())
    }

    fn is_shared(&self) -> bool {
        self.unit.is_some() || self.image.is_some() || self.gated.is_some()
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// How a unit is reached, and as whom.
struct Way {
    url: Url,
    login: Option<DiskLogin>,
    initiator: IscsiName,
}

/// A device, with what it is made of.
struct Opened {
    device: Device,
    local: Option<Arc<LocalDisk>>,
    unit: Option<Arc<IscsiDisk>>,
    image: Option<Arc<RbdDisk>>,
    gated: Option<GatedDisk>,
}

impl Opened {
    /// One of which nothing more is known.
    fn new(device: Device) -> Self {
        Self { device, local: None, unit: None, image: None, gated: None }
    }
}

/// This node's own initiator at the gates of its disks.
const OWN_PORT: &str = "own";

/// The disks of this machine.
pub struct SystemDisks {
    shards: Arc<SystemShards>,
    clock: Arc<dyn Clock>,
    initiator: IscsiName,
    /// The way to disks of other nodes, and this node's own that are lent; none on a node of its own.
    bus: Option<Arc<Bus>>,
    /// Units that are open, by their addresses: a second opening under this node's name would end the sessions of the first.
    units: Mutex<BTreeMap<String, Arc<OpenUnit>>>,
    next: AtomicUsize,
}

/// A unit, while somebody has it open; locked by whoever opens it.
type OpenUnit = tokio::sync::Mutex<Weak<IscsiDisk>>;

impl SystemDisks {
    /// Disks that do their I/O on these shards. `initiator` is this node's name at iSCSI targets, and no other's.
    #[must_use]
    pub fn new(shards: Arc<SystemShards>, clock: Arc<dyn Clock>, initiator: IscsiName) -> Self {
        Self { shards, clock, initiator, bus: None, units: Mutex::default(), next: AtomicUsize::new(0) }
    }

    /// The same on the bus of a cluster.
    #[must_use]
    pub(super) fn on_bus(self, bus: Option<Arc<Bus>>) -> Self {
        Self { bus, ..self }
    }

    fn bus(&self, id: &str) -> Result<&Arc<Bus>, Problem> {
        self.bus.as_ref().ok_or_else(|| {
            let detail = format!("disk {id}: this node is on its own, and has its own disks only.");
            Problem::new(Code::InvalidRequest, detail).todo("Name the disk by its path.")
        })
    }

    /// Where a unit is, under which name it is known, and as whom this node logs in there.
    fn way_to(&self, id: &str, login: Option<DiskLogin>) -> Result<(String, Way), Problem> {
        if let Some(disk) = NodeDisk::parse(id) {
            let bus = self.bus(id)?;
            let (url, login) = bus.way_to(id, &disk)?;
            return Ok((id.to_owned(), Way { url, login: Some(login), initiator: bus.initiator()? }));
        }
        let (known, url) = iscsi::address(id)?;
        Ok((known, Way { url, login, initiator: self.initiator.clone() }))
    }

    /// Opens a unit to use it, or shares what is open.
    async fn unit(&self, shard: usize, disk: &FoundDisk) -> Result<Arc<IscsiDisk>, Problem> {
        let (address, way) = self.way_to(&disk.id, disk.login.clone())?;
        let open = self.units.lock().entry(address).or_default().clone();
        let mut open = open.lock().await;
        if let Some(unit) = open.upgrade().filter(|unit| !unit.is_gone()) {
            return Ok(unit);
        }
        let unit = Arc::new(self.open_unit(shard, way, For::Use).await?);
        *open = Arc::downgrade(&unit);
        Ok(unit)
    }

    async fn open_unit(&self, shard: usize, way: Way, wanted: For) -> Result<IscsiDisk, Problem> {
        let initiator = Initiator { name: way.initiator, clock: self.clock.clone() };
        self.shards.run(shard, move || iscsi::open(initiator, way.url, way.login, wanted)).await
    }

    /// The device of a disk, and what else is known of what it is.
    async fn device(&self, shard: usize, disk: &FoundDisk) -> Result<Opened, Problem> {
        if let Some(named) = NodeDisk::parse(&disk.id)
            && let bus = self.bus(&disk.id)?
            && bus.is_ours(&named)
        {
            let (gate, _) = bus.own(&disk.id)?;
            let gated = GatedDisk::new(gate, OWN_PORT)
                .map_err(|error| Problem::new(Code::Io, format!("disk {}: {error}.", disk.id)))?;
            let device = Arc::new(gated.clone());
            return Ok(Opened { gated: Some(gated), ..Opened::new(device) });
        }
        if disk.id.starts_with(RBD_DISK) {
            let image = Arc::new(self.image(shard, &disk.id, Access::ReadWrite).await?);
            return Ok(Opened { image: Some(image.clone()), ..Opened::new(image) });
        }
        if control_api::is_unit(&disk.id) {
            let unit = self.unit(shard, disk).await?;
            return Ok(Opened { unit: Some(unit.clone()), ..Opened::new(unit) });
        }
        let local = Arc::new(Self::open_local(disk)?);
        Ok(Opened { local: Some(local.clone()), ..Opened::new(local) })
    }

    /// Opens an image of Ceph, each time as a client of its own.
    async fn image(&self, shard: usize, id: &str, access: Access) -> Result<RbdDisk, Problem> {
        let address = rbd::address(id)?;
        self.shards.run(shard, move || rbd::open(address, access)).await
    }

    fn open_local(disk: &FoundDisk) -> Result<LocalDisk, Problem> {
        LocalDisk::open(Path::new(&disk.path), OpenMode::ReadWrite).map_err(|error| {
            let code = match (error.is_busy(), error.is_missing()) {
                (true, _) => Code::InUse,
                (_, true) => Code::NotFound,
                _ => Code::Io,
            };
            Problem::new(code, format!("disk {}: {error}.", disk.id))
        })
    }
}

impl DiskBackend for SystemDisks {
    fn discover(&self) -> Work<'_, Vec<FoundDisk>> {
        Box::pin(async {
            let found = tokio::task::spawn_blocking(|| block_local::discover(Path::new("/")));
            let found = found.await.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
            let found = found.map_err(|error| Problem::new(Code::Io, error.to_string()))?;
            Ok(found.into_iter().map(described).collect())
        })
    }

    fn open<'a>(&'a self, disk: &'a FoundDisk) -> Work<'a, Arc<dyn OpenDisk>> {
        Box::pin(async move {
            let shard = self.next.fetch_add(1, Ordering::Relaxed);
            let Opened { device, local, unit, image, gated } = self.device(shard, disk).await?;
            let disk: Arc<dyn OpenDisk> = Arc::new(SystemDisk {
                id: disk.id.clone(),
                device: Arc::new(WatchedDisk::new(device, self.clock.clone())),
                local,
                unit,
                image,
                gated,
                unfenceable: AtomicBool::new(false),
                shards: self.shards.clone(),
                shard,
            });
            Ok(disk)
        })
    }

    fn reach<'a>(&'a self, disk: &'a DiskConfig) -> Work<'a, FoundDisk> {
        Box::pin(async move {
            if let Some(named) = NodeDisk::parse(&disk.id)
                && let bus = self.bus(&disk.id)?
                && bus.is_ours(&named)
            {
                return bus.own(&disk.id).map(|(_, found)| found);
            }
            if disk.id.starts_with(RBD_DISK) {
                let image = self.image(0, &disk.id, Access::ReadOnly).await?;
                return Ok(rbd::found(&image));
            }
            let (id, way) = self.way_to(&disk.id, disk.login.clone())?;
            let unit = self.open_unit(0, way, For::Look).await?;
            Ok(FoundDisk {
                path: id.clone(),
                id,
                size_bytes: unit.size(),
                media: if unit.geometry().rotational { MediaType::Hdd } else { MediaType::Unspecified },
                bus: Some("iscsi".into()),
                login: disk.login.clone(),
                ..FoundDisk::default()
            })
        })
    }

    fn lend<'a>(&'a self, configured: &'a [DiskConfig], found: &'a [FoundDisk]) -> Work<'a, ()> {
        Box::pin(async move {
            if let Some(bus) = &self.bus {
                bus.lend(configured, found).await;
            }
            Ok(())
        })
    }

    fn shut(&self) -> Vec<(String, String)> {
        self.bus.as_ref().map_or_else(Vec::new, |bus| bus.shut())
    }

    fn meet(&self, members: Vec<NodeSeen>) -> Work<'_, bool> {
        Box::pin(async move {
            let Some(bus) = &self.bus else { return Ok(false) };
            let met = bus.meet(&members).await;
            if met.gone.is_empty() {
                return Ok(met.came);
            }
            let theirs = |id: &str| NodeDisk::parse(id).is_some_and(|disk| met.gone.contains(disk.node));
            let open: Vec<Arc<OpenUnit>> = {
                let units = self.units.lock();
                units.iter().filter(|(id, _)| theirs(id)).map(|(_, unit)| unit.clone()).collect()
            };
            for unit in open {
                // One that is being opened now finds out by itself.
                if let Ok(unit) = unit.try_lock()
                    && let Some(unit) = unit.upgrade()
                {
                    unit.end("its node is no member of the cluster any more");
                }
            }
            Ok(true)
        })
    }

    fn stop_lending(&self) -> Work<'_, ()> {
        Box::pin(async move {
            if let Some(bus) = &self.bus {
                bus.stop().await;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::backend::ShardBackend;

    #[tokio::test]
    async fn content_of_file_disks_is_recognised_and_disks_are_taken_alone() {
        let dir = tempfile::tempdir().expect("temp dir");
        let shards = SystemShards::start(Some(1)).expect("shards");
        let name = IscsiName::parse("iqn.2026-01.org.example:node").expect("a name");
        let disks = SystemDisks::new(shards.clone(), Arc::new(shard_runtime::SystemClock::new()), name);
        let path = dir.path().join("disk");
        let found = FoundDisk { id: "d".into(), path: path.to_string_lossy().into(), ..FoundDisk::default() };
        std::fs::File::create(&path).and_then(|file| file.set_len(64 << 20)).expect("sparse file");
        let disk = disks.open(&found).await.expect("opens");
        assert_eq!(disk.probe().await.expect("readable"), DiskContent::Empty);
        assert_eq!(disks.open(&found).await.err().map(|problem| problem.code), Some(Code::InUse));
        drop(disk);
        let mut superblock = pool_format::layout_for(64 << 20, 1 << 20).expect("fits");
        superblock.pool_name = "p".into();
        superblock.pool.0 = [7; 16];
        let encoded = superblock.encode();
        // Only the copy at the end is there.
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options().write(true).open(&path).expect("there");
        file.write_all_at(&encoded, (64 << 20) - encoded.len() as u64).expect("written");
        let disk = disks.open(&found).await.expect("opens");
        match disk.probe().await.expect("readable") {
            DiskContent::Member { pool_name, pool, .. } => {
                assert_eq!((pool_name.as_str(), pool), ("p", Uuid::from_bytes([7; 16])));
            }
            other => panic!("{other:?}"),
        }
        drop(disk);
        file.write_all_at(b"XFSB", 0).expect("written");
        file.write_all_at(&[0; 4096], (64 << 20) - 4096).expect("written");
        let disk = disks.open(&found).await.expect("opens");
        assert!(
            matches!(disk.probe().await.expect("readable"), DiskContent::Foreign(what) if what.to_lowercase().contains("xfs"))
        );
        drop(disk);
        shards.stop().await.expect("stops");
    }
}
