//! A volume whose device fails for a while: it stops as a whole, and goes on from what is durable when it is opened again.

use std::sync::atomic::{AtomicBool, Ordering};

use aligned_buffer::SharedBuf;
use block_device::{BlockDevice, BlockError, BlockErrorKind, BlockFuture};
use test_layers::{DeviceLayer, Layered};

use super::*;

/// A disk that can be away for a while, or without space.
struct Away {
    disk: MemoryDisk,
    away: AtomicBool,
    full: AtomicBool,
}

impl Away {
    fn check(&self) -> Result<(), BlockError> {
        match (self.away.load(Ordering::SeqCst), self.full.load(Ordering::SeqCst)) {
            (true, _) => Err(BlockError::new(BlockErrorKind::Gone, "reach the disk")),
            (_, true) => Err(BlockError::new(BlockErrorKind::NoSpace, "allocate a slab")),
            _ => Ok(()),
        }
    }
}

impl DeviceLayer for Away {
    fn below(&self) -> &dyn BlockDevice {
        &self.disk
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.check()?;
            self.disk.write(offset, data, durability).await
        })
    }
    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.check()?;
            self.disk.flush().await
        })
    }
}

fn disk() -> Arc<Layered<Away>> {
    let disk = MemoryDisk::new(SIZE, 4096);
    Arc::new(Layered(Away { disk, away: AtomicBool::new(false), full: AtomicBool::new(false) }))
}

async fn volume(device: &Device) -> (Arc<Volume>, FileId) {
    Volume::format(Arc::clone(device), FormatOptions { name: "v".into() }, environment())
        .await
        .expect("format");
    let volume = Volume::open(Arc::clone(device), environment()).await.expect("open");
    let id = volume.create(volume.root(), "file", file()).await.expect("create");
    (volume, id)
}

/// After `fail` the volume says that it has stopped, does nothing more, and everything promised is there after reopening.
fn stops(fail: impl AsyncFnOnce(&Volume, &Arc<dyn OpenFile>) -> StoreErrorKind) {
    on_shard(async {
        let disk = disk();
        let device: Device = disk.clone();
        let (volume, id) = volume(&device).await;
        let opened = open(&volume, id).await;
        write(&opened, 0, &[7; 8192], Durability::Durable).await;
        assert_eq!(volume.why_stopped(), None);
        disk.0.away.store(true, Ordering::SeqCst);
        assert_eq!(fail(&volume, &opened).await, StoreErrorKind::Stopped);
        // That the disk is back changes nothing: what it has lost nobody knows before the volume is opened again.
        disk.0.away.store(false, Ordering::SeqCst);
        assert!(volume.why_stopped().is_some());
        let kind = |result: Result<(), file_store::StoreError>| result.map_err(|error| error.kind());
        let stopped = Err(StoreErrorKind::Stopped);
        assert_eq!(kind(opened.read(0, IoBuf::new(4096)).await.map(drop)), stopped);
        let data = IoBuf::copy_from(&[8; 4096]).freeze();
        assert_eq!(kind(opened.write(0, data, Durability::Durable).await), stopped);
        assert_eq!(kind(opened.flush().await), stopped);
        assert_eq!(kind(volume.close().await), stopped);
        drop((opened, volume));
        let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open again");
        assert_eq!(volume.why_stopped(), None);
        let id = volume.lookup(volume.root(), "file").await.expect("the file").file;
        assert_eq!(read(&open(&volume, id).await, 0, 8192).await, [7; 8192]);
        assert_eq!(volume.check().await.expect("check"), Vec::new());
        volume.close().await.expect("close");
    });
}

#[test]
fn a_failed_flush_stops_the_volume_until_it_is_opened_again() {
    stops(async |_, opened| opened.flush().await.expect_err("no disk").kind());
}

#[test]
fn a_failed_commit_stops_the_volume_until_it_is_opened_again() {
    stops(async |volume, _| volume.create(volume.root(), "other", file()).await.expect_err("no disk").kind());
}

#[test]
fn metadata_that_finds_no_space_says_so() {
    on_shard(async {
        let disk = disk();
        disk.0.full.store(true, Ordering::SeqCst);
        let device: Device = disk.clone();
        let made = Volume::format(device, FormatOptions { name: "v".into() }, environment()).await;
        assert_eq!(made.map_err(|error| error.kind()), Err(StoreErrorKind::NoSpace));
        disk.0.full.store(false, Ordering::SeqCst);
        let device: Device = disk.clone();
        let (volume, _) = volume(&device).await;
        disk.0.full.store(true, Ordering::SeqCst);
        let error = crate::database::database_error(redb::StorageError::Io(std::io::Error::other(
            BlockError::new(BlockErrorKind::NoSpace, "allocate a slab"),
        )));
        assert_eq!(error.kind(), StoreErrorKind::NoSpace);
        assert!(error.to_string().contains("allocate a slab"), "{error}");
        drop(volume);
    });
}
