//! Disks of this machine: opened alone, looked at, named; and units of iSCSI targets.

mod iscsi;

use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Device};
use block_iscsi::IscsiDisk;
use block_local::{LocalDisk, OpenMode};
use block_wrappers::{Fault, WatchedDisk};
use control_api::{
    Code, DiskConfig, DiskLogin, FaultKind, FaultOperation, FaultRule, ISCSI_DISK, MediaType, Problem,
};
use iscsi_protocol::IscsiName;
use iscsi_protocol::url::Url;
use parking_lot::Mutex;
use pool_format::{SUPERBLOCK_BYTES, Superblock, foreign};
use uuid::Uuid;

use observe::IoTotals;
use shard_runtime::Clock;

use super::shards::SystemShards;
use crate::backend::{DiskBackend, DiskContent, FoundDisk, OpenDisk, Work};
use iscsi::{For, Initiator};

/// Everything that names data of others lies in this much at either end of a disk (`pool_format::foreign`).
const SAMPLE: u64 = foreign::SAMPLE_BYTES as u64;

/// A disk that this node has open.
pub struct SystemDisk {
    id: String,
    device: Arc<WatchedDisk>,
    /// The same, where it is a file or device of this machine.
    local: Option<Arc<LocalDisk>>,
    /// The same, where it is a unit of an iSCSI target.
    unit: Option<Arc<IscsiDisk>>,
    shards: Arc<SystemShards>,
    shard: usize,
}

impl SystemDisk {
    /// Whether the disk can keep others from writing to it.
    pub(super) fn keeps_reservations(&self) -> bool {
        self.device.reservations().is_some()
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
        let Some(unit) = self.unit.clone() else { return Ok(()) };
        let settled = move || async move {
            unit.settled().await;
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

/// What is on a device.
async fn look(device: Device) -> Result<DiskContent, Problem> {
    let block = u64::from(device.geometry().block_size);
    let size = device.size();
    // Whole blocks, of small disks too.
    let len = SAMPLE.min(size) / block * block;
    let read = async |offset| {
        device
            .read(offset, IoBuf::new(len as usize))
            .await
            .map_err(|error| Problem::new(Code::Io, error.to_string()))
    };
    let head = read(0).await?;
    let tail = read(size - len).await?;
    let last = tail.len().checked_sub(SUPERBLOCK_BYTES).and_then(|at| tail.get(at..));
    for block in [head.get(..SUPERBLOCK_BYTES), last].into_iter().flatten() {
        if let Ok(superblock) = Superblock::decode(block) {
            return Ok(DiskContent::Member {
                pool_name: superblock.pool_name,
                pool: Uuid::from_bytes(superblock.pool.0),
                disk: Uuid::from_bytes(superblock.disk.0),
            });
        }
    }
    Ok(foreign::detect(&head, &tail).map_or(DiskContent::Empty, DiskContent::Foreign))
}

/// Faults as the wrapper wants them: none, when the disk is to return.
fn faults(rules: &[FaultRule]) -> Vec<Fault> {
    use block_wrappers::{FaultKind as Kind, FaultOperation as Concerned};
    let fault = |rule: &FaultRule| {
        let kind = match rule.kind {
            FaultKind::Error => Kind::Error,
            FaultKind::Delay => Kind::Delay(Duration::from_millis(rule.delay_ms)),
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
    }

    fn is_replaced(&self) -> bool {
        self.local.as_ref().is_some_and(|local| local.is_replaced())
    }

    fn is_shared(&self) -> bool {
        self.unit.is_some()
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// The disks of this machine.
pub struct SystemDisks {
    shards: Arc<SystemShards>,
    clock: Arc<dyn Clock>,
    initiator: IscsiName,
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
        Self { shards, clock, initiator, units: Mutex::default(), next: AtomicUsize::new(0) }
    }

    /// Opens a unit to use it, or shares what is open.
    async fn unit(&self, shard: usize, disk: &FoundDisk) -> Result<Arc<IscsiDisk>, Problem> {
        let (address, url) = iscsi::address(&disk.id)?;
        let open = self.units.lock().entry(address).or_default().clone();
        let mut open = open.lock().await;
        if let Some(unit) = open.upgrade().filter(|unit| !unit.is_gone()) {
            return Ok(unit);
        }
        let unit = Arc::new(self.open_unit(shard, (url, disk.login.clone()), For::Use).await?);
        *open = Arc::downgrade(&unit);
        Ok(unit)
    }

    async fn open_unit(
        &self,
        shard: usize,
        (url, login): (Url, Option<DiskLogin>),
        wanted: For,
    ) -> Result<IscsiDisk, Problem> {
        let initiator = Initiator { name: self.initiator.clone(), clock: self.clock.clone() };
        self.shards.run(shard, move || iscsi::open(initiator, url, login, wanted)).await
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
            let (device, local, unit): (Device, _, _) = if disk.id.starts_with(ISCSI_DISK) {
                let unit = self.unit(shard, disk).await?;
                (unit.clone(), None, Some(unit))
            } else {
                let local = Arc::new(Self::open_local(disk)?);
                (local.clone(), Some(local), None)
            };
            let disk: Arc<dyn OpenDisk> = Arc::new(SystemDisk {
                id: disk.id.clone(),
                device: Arc::new(WatchedDisk::new(device, self.clock.clone())),
                local,
                unit,
                shards: self.shards.clone(),
                shard,
            });
            Ok(disk)
        })
    }

    fn reach<'a>(&'a self, disk: &'a DiskConfig) -> Work<'a, FoundDisk> {
        Box::pin(async move {
            let (id, url) = iscsi::address(&disk.id)?;
            let unit = self.open_unit(0, (url, disk.login.clone()), For::Look).await?;
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
}

#[cfg(test)]
mod tests {
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
