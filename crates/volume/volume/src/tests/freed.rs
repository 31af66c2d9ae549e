//! Freed clusters of which some lie on a lost disk: the others come back. And zeroing that is slow while the volume is closed.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use aligned_buffer::SharedBuf;
use block_device::{BlockDevice, BlockError, BlockErrorKind, BlockFuture};
use parking_lot::Mutex;
use test_layers::{DeviceLayer, Layered};
use volume_format::{CLUSTER, layout_for};

use super::*;

/// A device of which a range cannot be written, as a simple space's whose disk is lost.
struct Patchy {
    inner: MemoryDisk,
    lost: Mutex<Range<u64>>,
}

impl Patchy {
    fn check(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        let lost = self.lost.lock();
        if offset < lost.end && offset + len > lost.start {
            return Err(BlockError::new(BlockErrorKind::Gone, "patchy disk"));
        }
        Ok(())
    }
}

impl DeviceLayer for Patchy {
    fn below(&self) -> &dyn BlockDevice {
        &self.inner
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.check(offset, data.len() as u64)?;
            self.inner.write(offset, data, durability).await
        })
    }
    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.check(offset, len)?;
            self.inner.unmap(offset, len).await
        })
    }
    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.check(offset, len)?;
            self.inner.write_zeroes(offset, len, durability).await
        })
    }
}

async fn comes_to(volume: &Volume, used: u64, what: &str) {
    for _ in 0..1000 {
        if volume.usage().await.expect("usage").used == used {
            return;
        }
        shard_runtime::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("{what}: {:?} is not {used}", volume.usage().await);
}

#[test]
fn one_lost_disk_does_not_keep_what_others_have_from_coming_back() {
    // More parts than a round lets fail, few, and none that lies whole in the first file.
    for (lost_from, lost) in [(2 << 20, 5 << 20), (2 << 20, 3 * CLUSTER), (7 << 20, 6 << 20), (0, 9 << 20)] {
        on_shard(async {
            let disk =
                Arc::new(Layered(Patchy { inner: MemoryDisk::new(SIZE, 4096), lost: Mutex::new(0..0) }));
            let device: Device = Arc::clone(&disk) as Device;
            Volume::format(Arc::clone(&device), FormatOptions { name: "v".into() }, environment())
                .await
                .expect("format");
            let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
            let root = volume.root();
            let before = volume.usage().await.expect("usage").used;
            for name in ["a", "b"] {
                let made = volume.create(root, name, file()).await.expect("file");
                write(&open(&volume, made).await, 0, &[7; 8 << 20], Durability::Durable).await;
            }
            let start = layout_for(SIZE as u64).expect("layout").data_start + lost_from;
            *disk.lost.lock() = start..start + lost;
            for name in ["a", "b"] {
                volume.remove(root, name).await.expect("remove");
            }
            comes_to(&volume, before + lost, "the others' come back").await;
            *disk.lost.lock() = 0..0;
            volume.core.attention.notify_one();
            comes_to(&volume, before, "all comes back").await;
            assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
            volume.close().await.expect("close");
        });
    }
}

/// How long a device takes to zero something while it is slow: longer than anybody would wait for it.
const SLOW: Duration = Duration::from_secs(90);

/// A device that may take long to zero something, and may refuse to zero much at once.
struct Slow {
    inner: MemoryDisk,
    slow: AtomicBool,
    /// The longest range that it zeroes, in bytes.
    most: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
}

impl DeviceLayer for Slow {
    fn below(&self) -> &dyn BlockDevice {
        &self.inner
    }
    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            if len > self.most.load(Ordering::SeqCst) {
                return Err(BlockError::new(BlockErrorKind::Io, "slow disk"));
            }
            self.begun.fetch_add(1, Ordering::SeqCst);
            if self.slow.load(Ordering::SeqCst) {
                shard_runtime::sleep(SLOW).await;
            }
            let unmapped = self.inner.unmap(offset, len).await;
            self.ended.fetch_add(1, Ordering::SeqCst);
            unmapped
        })
    }
}

#[test]
fn nothing_is_zeroed_once_a_volume_is_closed() {
    for most in [u64::MAX, CLUSTER] {
        sim::on_shard(async {
            let disk = Arc::new(Layered(Slow {
                inner: MemoryDisk::new(SIZE, 4096),
                slow: AtomicBool::new(false),
                most: AtomicU64::new(u64::MAX),
                begun: AtomicU64::new(0),
                ended: AtomicU64::new(0),
            }));
            let device: Device = Arc::clone(&disk) as Device;
            Volume::format(Arc::clone(&device), FormatOptions { name: "v".into() }, environment())
                .await
                .expect("format");
            let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
            let root = volume.root();
            let before = volume.usage().await.expect("usage").used;
            let made = volume.create(root, "old", file()).await.expect("file");
            write(&open(&volume, made).await, 0, &[7; 8 << 20], Durability::Durable).await;
            disk.slow.store(true, Ordering::SeqCst);
            disk.most.store(most, Ordering::SeqCst);
            [&disk.begun, &disk.ended].into_iter().for_each(|count| count.store(0, Ordering::SeqCst));
            volume.remove(root, "old").await.expect("remove");
            while disk.begun.load(Ordering::SeqCst) == 0 {
                shard_runtime::sleep(Duration::from_millis(10)).await;
            }
            // The second one waits for the same end, though the first has given up waiting.
            let first = shard_runtime::timeout(Duration::from_secs(1), volume.close()).await;
            assert!(first.is_none(), "it was closed while its space was being zeroed");
            volume.close().await.expect("close");
            let [begun, ended] = [&disk.begun, &disk.ended].map(|count| count.load(Ordering::SeqCst));
            assert_eq!((begun, ended), (1, 1), "no part is begun, and none goes on");
            disk.slow.store(false, Ordering::SeqCst);
            let volume = Volume::open(Arc::clone(&device), environment()).await.expect("reopen");
            comes_to(&volume, before, "what was left is zeroed now").await;
            let made = volume.create(root, "new", file()).await.expect("file");
            let new = open(&volume, made).await;
            write(&new, 0, &[9; 8 << 20], Durability::Durable).await;
            shard_runtime::sleep(2 * SLOW).await;
            assert!(read(&new, 0, 8 << 20).await.iter().all(|byte| *byte == 9), "acknowledged data is gone");
            assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
            drop(new);
            volume.close().await.expect("close");
        })
        .expect("event loop");
    }
}
