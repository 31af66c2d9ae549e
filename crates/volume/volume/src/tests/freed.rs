//! Freed clusters of which some lie on a lost disk: the others come back.

use std::ops::Range;
use std::sync::Arc;

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
