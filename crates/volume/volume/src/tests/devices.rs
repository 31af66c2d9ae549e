//! Disks for tests: one that lets others go first.

use aligned_buffer::{IoBuf, SharedBuf};
use block_conformance::Rng;
use block_device::{BlockDevice, BlockFuture, Durability, Geometry, MemoryDisk};
use parking_lot::Mutex;

/// A disk in memory whose operations take turns with everything else: each gives way a few times before and
/// after it takes effect, as a seed says.
pub(super) struct Turns {
    inner: MemoryDisk,
    rng: Mutex<Rng>,
}

impl Turns {
    pub(super) fn new(size: usize, seed: u64) -> Self {
        Self { inner: MemoryDisk::new(size, 4096), rng: Mutex::new(Rng::new(seed)) }
    }

    async fn give_way(&self) {
        let turns = self.rng.lock().below(4);
        for _ in 0..turns {
            shard_runtime::yield_now().await;
        }
    }
}

impl BlockDevice for Turns {
    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            self.give_way().await;
            let read = self.inner.read(offset, buf).await;
            self.give_way().await;
            read
        })
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.give_way().await;
            let written = self.inner.write(offset, data, durability).await;
            self.give_way().await;
            written
        })
    }
    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.give_way().await;
            Ok(())
        })
    }
    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.give_way().await;
            self.inner.unmap(offset, len).await
        })
    }
    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.give_way().await;
            self.inner.write_zeroes(offset, len, durability).await
        })
    }
}
