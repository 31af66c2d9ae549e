//! Space that is reserved below the volume: what fails leaves nothing behind, and nothing waits for what takes long.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use aligned_buffer::SharedBuf;
use block_device::{BlockDevice, BlockError, BlockErrorKind, BlockFuture};
use file_store::{NewSnapshot, SnapshotStore};
use parking_lot::Mutex;
use test_layers::{DeviceLayer, Layered};
use tokio::sync::Semaphore;

use super::*;

const ROW: u64 = 1 << 20;

/// Rows that several devices take from, as spaces do from their pool.
struct Pool {
    free: AtomicU64,
}

/// A device that takes rows when they are written, or asked for, and gives whole ones back.
struct Thin {
    disk: MemoryDisk,
    pool: Arc<Pool>,
    rows: Mutex<BTreeSet<u64>>,
    /// As if others had taken the room since it was asked for.
    boasts: AtomicBool,
    /// How many more of its own are allocated before somebody waits.
    gate: Semaphore,
}

impl Thin {
    fn take(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        let mut rows = self.rows.lock();
        for row in offset / ROW..(offset + len).div_ceil(ROW) {
            if rows.contains(&row) {
                continue;
            }
            let taken =
                self.pool.free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |free| free.checked_sub(1));
            taken.map_err(|_| BlockError::new(BlockErrorKind::NoSpace, "allocate a row"))?;
            rows.insert(row);
        }
        Ok(())
    }
}

impl DeviceLayer for Thin {
    fn below(&self) -> &dyn BlockDevice {
        &self.disk
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.take(offset, data.len() as u64)?;
            self.disk.write(offset, data, durability).await
        })
    }
    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.disk.unmap(offset, len).await?;
            let mut rows = self.rows.lock();
            for row in offset.div_ceil(ROW)..(offset + len) / ROW {
                if rows.remove(&row) {
                    self.pool.free.fetch_add(1, Ordering::SeqCst);
                }
            }
            Ok(())
        })
    }
    fn has_room_for(&self, ranges: Vec<(u64, u64)>) -> BlockFuture<'_, bool> {
        let rows = self.rows.lock();
        let wanted: BTreeSet<u64> =
            ranges.iter().flat_map(|(at, len)| at / ROW..(at + len).div_ceil(ROW)).collect();
        let lacking = wanted.difference(&rows).count() as u64;
        let fits = lacking <= self.pool.free.load(Ordering::SeqCst) || self.boasts.load(Ordering::SeqCst);
        Box::pin(std::future::ready(Ok(fits)))
    }
    fn allocate(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            for row in offset / ROW..(offset + len).div_ceil(ROW) {
                self.gate.acquire().await.expect("open").forget();
                self.take(row * ROW, ROW)?;
            }
            Ok(())
        })
    }
}

/// A volume with a file of 24 MiB, nothing of it allocated, on a device of a pool.
async fn thin(pool: &Arc<Pool>, gate: usize) -> (Arc<Layered<Thin>>, Arc<Volume>, Arc<dyn OpenFile>) {
    let thin = Thin {
        disk: MemoryDisk::new(SIZE, 4096),
        pool: Arc::clone(pool),
        rows: Mutex::default(),
        boasts: AtomicBool::new(false),
        gate: Semaphore::new(gate),
    };
    let disk = Arc::new(Layered(thin));
    let device: Device = disk.clone();
    let volume = super::thin::fresh_on(&device, &environment()).await;
    let id = volume.create(volume.root(), "f", file()).await.expect("create");
    let handle = open(&volume, id).await;
    handle.set_size(24 << 20).await.expect("size");
    (disk, volume, handle)
}

fn pool(free: u64) -> Arc<Pool> {
    Arc::new(Pool { free: AtomicU64::new(free) })
}

const OPEN: usize = 1 << 16;

async fn until(what: &str, mut reached: impl AsyncFnMut() -> bool) {
    for _ in 0..2000 {
        if reached().await {
            return;
        }
        shard_runtime::sleep(Duration::from_millis(5)).await;
    }
    panic!("{what}");
}

#[test]
fn an_allocation_takes_nothing_of_the_pool() {
    on_shard(async {
        let pool = pool(24);
        let (_disk, volume, handle) = thin(&pool, 0).await;
        write(&handle, 0, &[1; 4096], Durability::Durable).await;
        let free = pool.free.load(Ordering::SeqCst);
        handle.allocate(0, 30 << 20, true).await.expect("the volume has the room");
        assert_eq!(volume.info(handle.file()).await.expect("info").allocated, 30 << 20);
        assert!(free - pool.free.load(Ordering::SeqCst) <= 1, "its metadata may take a row");
    });
}

/// Whoever asks for more than the pool has takes nothing from the others.
#[test]
fn a_reservation_that_is_refused_leaves_nothing_behind() {
    on_shard(async {
        let pool = pool(30);
        let (_a, volume, handle) = thin(&pool, OPEN).await;
        let (_b, _other, others) = thin(&pool, OPEN).await;
        write(&handle, 5 << 20, &[1; 4096], Durability::Durable).await;
        let before = volume.info(handle.file()).await.expect("info");
        let free = pool.free.load(Ordering::SeqCst);
        assert!(free < 24, "{free} rows are room enough");
        let refused = handle.reserve(0, 24 << 20).await.expect_err("the pool has less").kind();
        assert_eq!(refused, StoreErrorKind::NoSpace);
        let after = volume.info(handle.file()).await.expect("info");
        assert_eq!((after.allocated, after.size), (before.allocated, before.size));
        assert!(free - pool.free.load(Ordering::SeqCst) <= 1, "its metadata may take a row");
        write(&others, 0, &[2; 4096], Durability::Durable).await;
        // What there is room for is reserved, and found by later writes.
        handle.reserve(0, 8 << 20).await.expect("there is room");
        pool.free.store(0, Ordering::SeqCst);
        write(&handle, 0, &[3; 8 << 20], Durability::Durable).await;
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
    });
}

/// Others take the rest of the pool while it is being reserved. What was written meanwhile stays, all else goes.
#[test]
fn a_reservation_that_fails_half_way_is_undone_but_for_what_was_written() {
    on_shard(async {
        let pool = pool(30);
        let (disk, volume, handle) = thin(&pool, 5).await;
        write(&handle, 20 << 20, &[1; 4096], Durability::Durable).await;
        let before = volume.info(handle.file()).await.expect("info");
        disk.boasts.store(true, Ordering::SeqCst);
        let reserving = handle.reserve(0, 24 << 20);
        let meanwhile = async {
            until("rows are taken", async || disk.gate.available_permits() == 0).await;
            write(&handle, 0, &[7; 4096], Durability::Durable).await;
            write(&handle, (3 << 20) + 4096, &[8; 3 << 20], Durability::Durable).await;
            pool.free.store(0, Ordering::SeqCst);
            disk.gate.add_permits(OPEN);
        };
        let (reserved, ()) = futures_util::join!(reserving, meanwhile);
        assert_eq!(reserved.expect_err("nothing is left").kind(), StoreErrorKind::NoSpace);
        assert_eq!(read(&handle, 0, 4096).await, [7; 4096]);
        assert!(super::thin::holds(&handle, (3 << 20) + 4096, (6 << 20) + 4096, 8).await);
        assert_eq!(read(&handle, 20 << 20, 4096).await, [1; 4096]);
        let after = volume.info(handle.file()).await.expect("info");
        // The clusters that were written: one, and 3 MiB that are not at their borders.
        assert_eq!(after.allocated, before.allocated + CLUSTER + (3 << 20) + CLUSTER);
        assert_eq!(after.size, before.size);
        until("the rows come back", async || {
            volume.core.attention.notify_one();
            pool.free.load(Ordering::SeqCst) > 0
        })
        .await;
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
    });
}

/// A device that takes its time, or hangs, while space is reserved holds nobody up: neither snapshots, nor writes, nor the end.
#[test]
fn nothing_waits_for_what_is_reserved() {
    on_shard(async {
        let pool = pool(100);
        let (disk, volume, handle) = thin(&pool, 2).await;
        let id = volume.create(volume.root(), "other", file()).await.expect("create");
        let other = open(&volume, id).await;
        let before = volume.info(handle.file()).await.expect("info").allocated;
        let reserving = {
            let handle = Arc::clone(&handle);
            tokio::task::spawn_local(async move { handle.reserve(0, 24 << 20).await })
        };
        until("it waits", async || disk.gate.available_permits() == 0).await;
        let new = NewSnapshot {
            name: "s".into(),
            source: volume.root(),
            quiesce: true,
            maker: String::new(),
            path: "/".into(),
        };
        volume.take_snapshot(new).await.expect("a snapshot");
        write(&other, 0, &[1; 8192], Durability::Durable).await;
        write(&handle, 10 << 20, &[2; 8192], Durability::Durable).await;
        handle.flush().await.expect("flush");
        volume.close().await.expect("close");
        assert!(!reserving.is_finished());
        disk.gate.add_permits(OPEN);
        let ended = reserving.await.expect("no panic").expect_err("the volume is closed");
        assert_eq!(ended.kind(), StoreErrorKind::Stopped);
        drop((handle, other, volume));
        let device: Device = disk.clone();
        let volume = Volume::open(device, environment()).await.expect("open");
        let id = volume.lookup(volume.root(), "f").await.expect("there").file;
        let handle = open(&volume, id).await;
        assert_eq!(read(&handle, 10 << 20, 8192).await, [2; 8192]);
        assert_eq!(volume.info(id).await.expect("info").allocated, before + CLUSTER);
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
    });
}
