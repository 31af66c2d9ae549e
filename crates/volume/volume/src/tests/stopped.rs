//! A volume whose device fails for a while: it stops as a whole, and goes on from what is durable when it is opened again.

use std::sync::atomic::{AtomicBool, Ordering};

use aligned_buffer::SharedBuf;
use block_device::{BlockDevice, BlockError, BlockErrorKind, BlockFuture};
use test_layers::{DeviceLayer, Layered};

use super::*;
use crate::database_error::database_error;
use crate::session::Session;
use crate::tables::STATE;
use redb::ReadableTable;

/// A disk that can be away for a while, or for reads only, or without space.
pub(super) struct Away {
    disk: MemoryDisk,
    pub(super) away: AtomicBool,
    pub(super) unread: AtomicBool,
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
    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            match self.unread.load(Ordering::SeqCst) {
                true => Err(BlockError::new(BlockErrorKind::Gone, "reach the disk")),
                false => self.disk.read(offset, buf).await,
            }
        })
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

pub(super) fn disk() -> Arc<Layered<Away>> {
    let off = || AtomicBool::new(false);
    Arc::new(Layered(Away { disk: MemoryDisk::new(SIZE, 4096), away: off(), unread: off(), full: off() }))
}

async fn volume(device: &Device) -> (Arc<Volume>, FileId) {
    Volume::format(Arc::clone(device), FormatOptions { name: "v".into() }, environment())
        .await
        .expect("format");
    let volume = Volume::open(Arc::clone(device), environment()).await.expect("open");
    let id = volume.create(volume.root(), "file", file()).await.expect("create");
    (volume, id)
}

fn row(key: u8) -> StateChange {
    StateChange { table: "t".into(), key: vec![key], value: Some(vec![key; 100]) }
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
        // Names, too, which need no flush to be durable.
        assert_eq!(kind(volume.create(volume.root(), "later", file()).await.map(drop)), stopped);
        assert_eq!(kind(volume.state_write(vec![row(1)]).await), stopped);
        assert_eq!(kind(volume.close().await), stopped);
        drop((opened, volume));
        let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open again");
        assert_eq!(volume.why_stopped(), None);
        let id = volume.lookup(volume.root(), "file").await.expect("the file").file;
        assert_eq!(read(&open(&volume, id).await, 0, 8192).await, [7; 8192]);
        assert!(volume.lookup(volume.root(), "later").await.is_err());
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
        let error = database_error(redb::StorageError::Io(std::io::Error::other(BlockError::new(
            BlockErrorKind::NoSpace,
            "allocate a slab",
        ))));
        assert_eq!(error.kind(), StoreErrorKind::NoSpace);
        assert!(error.to_string().contains("allocate a slab"), "{error}");
        drop(volume);
    });
}

/// A volume with rows of state that do not all fit in what the database keeps in memory.
async fn unread(device: &Device) -> Arc<Volume> {
    let (volume, _) = volume(device).await;
    for n in 0..6 {
        volume.state_write(large(n).collect()).await.expect("state");
    }
    reopen(device, volume).await
}

/// Rows that are much together.
fn large(n: u8) -> impl Iterator<Item = StateChange> {
    (0..20).map(move |key| StateChange { key: vec![n, key], value: Some(vec![n; 8000]), ..row(0) })
}

/// The database is of no use after a failed read, whether or not anything was changed before.
#[test]
fn a_failed_read_of_metadata_stops_the_volume_until_it_is_opened_again() {
    for pending in [false, true] {
        on_shard(async {
            let disk = disk();
            let device: Device = disk.clone();
            let volume = unread(&device).await;
            if pending {
                volume.state_write(vec![row(1)]).await.expect("state");
            }
            disk.unread.store(true, Ordering::SeqCst);
            let mut failed = 0;
            for n in 0..6 {
                failed += u32::from(volume.state_get("t", &[n, 7]).await.is_err());
            }
            assert!(failed > 0);
            disk.unread.store(false, Ordering::SeqCst);
            assert!(volume.why_stopped().is_some_and(|why| why.contains("reach the disk")), "{pending}");
            let again = volume.state_get("t", &[0, 7]).await.map(drop);
            assert_eq!(again.map_err(|error| error.kind()), Err(StoreErrorKind::Stopped));
            assert!(volume.close().await.is_err());
            drop(volume);
            let volume = Volume::open(device, environment()).await.expect("open again");
            for n in 0..6 {
                assert!(volume.state_get("t", &[n, 7]).await.expect("state").is_some());
            }
            assert_eq!(volume.state_get("t", &[1]).await.expect("state").is_some(), pending);
        });
    }
}

/// A database may keep a failure of its storage to itself, and what it reads from then on may be old.
#[test]
fn what_follows_a_failure_that_nobody_was_told_of_is_not_promised() {
    on_shard(async {
        let disk = disk();
        let device: Device = disk.clone();
        let volume = unread(&device).await;
        let below = Arc::clone(&disk);
        let changed = volume.core.metadata.change(move |session| {
            session.changed = true;
            let mut rows = session.txn.open_table(STATE).map_err(database_error)?;
            rows.insert(("t", [1].as_slice()), [2].as_slice()).map_err(database_error)?;
            below.unread.store(true, Ordering::SeqCst);
            let read = |n| rows.get(("t", [n, 7].as_slice())).map(drop);
            assert!((0..6).any(|n| read(n).is_err()));
            below.unread.store(false, Ordering::SeqCst);
            Ok(())
        });
        assert_eq!(changed.await.map_err(|error| error.kind()), Err(StoreErrorKind::Stopped));
        assert!(volume.why_stopped().is_some());
        assert!(volume.close().await.is_err());
        let volume = Volume::open(device, environment()).await.expect("open again");
        assert_eq!(volume.state_get("t", &[1]).await.expect("state"), None);
    });
}

/// A change that ends in the middle.
fn gives_up(_: &mut Session<'_>) -> Result<(), file_store::StoreError> {
    std::panic::resume_unwind(Box::new(()))
}

/// Says when it is dropped whether the volume had stopped by then.
struct Looks(Arc<crate::core::Core>, Arc<AtomicBool>);

impl Drop for Looks {
    fn drop(&mut self) {
        self.1.store(self.0.metadata.why_stopped().is_some(), Ordering::SeqCst);
    }
}

/// Whoever hears of a failure can see that the volume has stopped: also one whose change was not begun, or gave up.
#[test]
fn nobody_learns_of_a_failure_before_the_volume_says_so() {
    for panics in [false, true] {
        on_shard(async {
            let disk = disk();
            let device: Device = disk.clone();
            let (volume, _) = volume(&device).await;
            disk.away.store(true, Ordering::SeqCst);
            let seen = Arc::new(AtomicBool::new(false));
            let looks = Looks(Arc::clone(&volume.core), Arc::clone(&seen));
            let never_begun = move |_: &mut Session<'_>| {
                drop(looks);
                Ok(())
            };
            let asked = if panics {
                let first = volume.core.metadata.change(gives_up);
                let (first, second) = futures_util::join!(first, volume.core.metadata.change(never_begun));
                assert!(first.is_err());
                second
            } else {
                volume.core.metadata.change_committed(never_begun).await
            };
            assert!(asked.is_err() && volume.why_stopped().is_some());
            assert!(seen.load(Ordering::SeqCst), "{panics}");
            assert!(volume.close().await.is_err());
        });
    }
}

#[test]
fn a_volume_whose_last_changes_give_up_is_not_closed_well() {
    on_shard(async {
        let (device, volume) = fresh().await;
        volume.core.metadata.submit(gives_up);
        assert!(volume.core.metadata.close().await.is_err());
        assert!(volume.why_stopped().is_some());
        assert!(volume.close().await.is_err());
        drop(volume);
        Volume::open(device, environment()).await.expect("open again");
    });
}

/// A disk on which the batch fails whose changes have made the database grow.
struct Growing {
    disk: MemoryDisk,
    lengths: std::ops::Range<u64>,
    /// Where the database's header is: a commit ends with it.
    header: u64,
    log: std::ops::Range<u64>,
    /// The database has grown since the last commit.
    grown: AtomicBool,
    failed: AtomicBool,
    /// Something was written after the failure.
    written: AtomicBool,
}

impl DeviceLayer for Growing {
    fn below(&self) -> &dyn BlockDevice {
        &self.disk
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        if self.lengths.contains(&offset) || offset == self.header {
            self.grown.store(offset != self.header, Ordering::SeqCst);
        }
        if self.failed.load(Ordering::SeqCst) {
            self.written.store(true, Ordering::SeqCst);
        }
        if self.grown.load(Ordering::SeqCst) && self.log.contains(&offset) {
            self.failed.store(true, Ordering::SeqCst);
            return Box::pin(async { Err(BlockError::new(BlockErrorKind::Gone, "reach the disk")) });
        }
        self.disk.write(offset, data, durability)
    }
}

/// What the database does when it takes back its growth is nothing that the device should see.
#[test]
fn nothing_is_written_after_a_batch_has_failed() {
    on_shard(async {
        let layout = volume_format::layout_for(SIZE as u64).expect("layout");
        let (log, size) = layout.metadata_log().expect("a log");
        let off = || AtomicBool::new(false);
        let disk = Arc::new(Layered(Growing {
            disk: MemoryDisk::new(SIZE, 4096),
            lengths: layout.length_start..layout.length_start + 2 * volume_format::BLOCK,
            header: layout.metadata_start,
            log: log..log + size,
            grown: off(),
            failed: off(),
            written: off(),
        }));
        let device: Device = disk.clone();
        let (volume, _) = volume(&device).await;
        let mut told = 0;
        while volume.state_write(large(told).take(4).collect()).await.is_ok() {
            told += 1;
            assert!(told < 250, "it never grows");
        }
        assert!(disk.failed.load(Ordering::SeqCst));
        assert!(volume.close().await.is_err());
        drop(volume);
        assert!(!disk.written.load(Ordering::SeqCst), "something was written");
        let volume = Volume::open(device, environment()).await.expect("open again");
        for n in 0..told {
            assert!(volume.state_get("t", &[n, 3]).await.expect("state").is_some());
        }
        assert_eq!(volume.check().await.expect("check"), Vec::new());
    });
}
