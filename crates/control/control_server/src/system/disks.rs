//! Disks of this machine: opened alone, looked at, named.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Device};
use block_local::{LocalDisk, OpenMode};
use block_wrappers::{Fault, WatchedDisk};
use control_api::{Code, FaultKind, FaultOperation, FaultRule, MediaType, Problem};
use pool_format::{SUPERBLOCK_BYTES, Superblock, foreign};
use uuid::Uuid;

use observe::IoTotals;
use shard_runtime::Clock;

use super::shards::SystemShards;
use crate::backend::{DiskBackend, DiskContent, FoundDisk, OpenDisk, Work};

/// Everything that names data of others lies in this much at either end of a disk (`pool_format::foreign`).
const SAMPLE: u64 = foreign::SAMPLE_BYTES as u64;

/// A disk that this node has open.
pub struct SystemDisk {
    id: String,
    device: Arc<WatchedDisk>,
    shards: Arc<SystemShards>,
    shard: usize,
}

impl SystemDisk {
    /// The device, for a pool.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device.clone()
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
        let device = self.device();
        Box::pin(self.shards.run(self.shard, move || look(device)))
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// The disks of this machine.
pub struct SystemDisks {
    shards: Arc<SystemShards>,
    clock: Arc<dyn Clock>,
    next: AtomicUsize,
}

impl SystemDisks {
    /// Disks that do their I/O on these shards.
    #[must_use]
    pub fn new(shards: Arc<SystemShards>, clock: Arc<dyn Clock>) -> Self {
        Self { shards, clock, next: AtomicUsize::new(0) }
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

    fn open<'a>(&'a self, id: &'a str, path: &'a Path) -> Work<'a, Arc<dyn OpenDisk>> {
        Box::pin(async move {
            let device = LocalDisk::open(path, OpenMode::ReadWrite).map_err(|error| {
                let code = match (error.is_busy(), error.is_missing()) {
                    (true, _) => Code::InUse,
                    (_, true) => Code::NotFound,
                    _ => Code::Io,
                };
                Problem::new(code, format!("disk {id}: {error}."))
            })?;
            let shard = self.next.fetch_add(1, Ordering::Relaxed);
            let disk: Arc<dyn OpenDisk> = Arc::new(SystemDisk {
                id: id.into(),
                device: Arc::new(WatchedDisk::new(Arc::new(device), self.clock.clone())),
                shards: self.shards.clone(),
                shard,
            });
            Ok(disk)
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
        let disks = SystemDisks::new(shards.clone(), Arc::new(shard_runtime::SystemClock::new()));
        let path = dir.path().join("disk");
        std::fs::File::create(&path).and_then(|file| file.set_len(64 << 20)).expect("sparse file");
        let disk = disks.open("d", &path).await.expect("opens");
        assert_eq!(disk.probe().await.expect("readable"), DiskContent::Empty);
        assert_eq!(disks.open("d", &path).await.err().map(|problem| problem.code), Some(Code::InUse));
        drop(disk);
        let mut superblock = pool_format::layout_for(64 << 20, 1 << 20).expect("fits");
        superblock.pool_name = "p".into();
        superblock.pool.0 = [7; 16];
        let encoded = superblock.encode();
        // Only the copy at the end is there.
        use std::os::unix::fs::FileExt;
        let file = std::fs::File::options().write(true).open(&path).expect("there");
        file.write_all_at(&encoded, (64 << 20) - encoded.len() as u64).expect("written");
        let disk = disks.open("d", &path).await.expect("opens");
        match disk.probe().await.expect("readable") {
            DiskContent::Member { pool_name, pool, .. } => {
                assert_eq!((pool_name.as_str(), pool), ("p", Uuid::from_bytes([7; 16])));
            }
            other => panic!("{other:?}"),
        }
        drop(disk);
        file.write_all_at(b"XFSB", 0).expect("written");
        file.write_all_at(&[0; 4096], (64 << 20) - 4096).expect("written");
        let disk = disks.open("d", &path).await.expect("opens");
        assert!(
            matches!(disk.probe().await.expect("readable"), DiskContent::Foreign(what) if what.to_lowercase().contains("xfs"))
        );
        drop(disk);
        shards.stop().await.expect("stops");
    }
}
