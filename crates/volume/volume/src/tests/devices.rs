//! Disks for tests: one that lets others go first, one that loses power.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use aligned_buffer::{IoBuf, SharedBuf};
use block_conformance::Rng;
use block_device::{
    BlockDevice, BlockError, BlockErrorKind, BlockFuture, Durability, Geometry, MemoryDisk, UnmapBehavior,
    check_range,
};
use parking_lot::Mutex;

/// A disk in memory whose operations take turns with everything else: each gives way a few times before and
/// after it takes effect, as a seed says.
pub(super) struct Turns {
    inner: MemoryDisk,
    rng: Mutex<Rng>,
}

async fn give_way(rng: &Mutex<Rng>) {
    let turns = rng.lock().below(4);
    for _ in 0..turns {
        shard_runtime::yield_now().await;
    }
}

impl Turns {
    pub(super) fn new(size: usize, seed: u64) -> Self {
        Self { inner: MemoryDisk::new(size, 4096), rng: Mutex::new(Rng::new(seed)) }
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
            give_way(&self.rng).await;
            let read = self.inner.read(offset, buf).await;
            give_way(&self.rng).await;
            read
        })
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            give_way(&self.rng).await;
            let written = self.inner.write(offset, data, durability).await;
            give_way(&self.rng).await;
            written
        })
    }
    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            give_way(&self.rng).await;
            Ok(())
        })
    }
    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            give_way(&self.rng).await;
            self.inner.unmap(offset, len).await
        })
    }
    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            give_way(&self.rng).await;
            self.inner.write_zeroes(offset, len, durability).await
        })
    }
}

/// A disk in memory that has only what was written to it, and so may be of any size. Everything is durable at once.
pub(super) struct Sparse {
    geometry: Geometry,
    size: u64,
    /// By number, those that are not zero.
    blocks: Mutex<BTreeMap<u64, Box<[u8]>>>,
}

impl Sparse {
    const BLOCK: u64 = 4096;

    pub(super) fn new(size: u64) -> Self {
        let geometry = MemoryDisk::new(0, 4096).geometry().clone();
        Self { geometry, size, blocks: Mutex::default() }
    }

    /// The disk as a power cut now would leave it.
    pub(super) fn image(&self) -> Self {
        let blocks = Mutex::new(self.blocks.lock().clone());
        Self { geometry: self.geometry.clone(), size: self.size, blocks }
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        check_range(offset, len, self.geometry.block_size, self.size)?;
        let (first, end) = (offset / Self::BLOCK, (offset + len) / Self::BLOCK);
        self.blocks.lock().retain(|block, _| !(first..end).contains(block));
        Ok(())
    }
}

impl BlockDevice for Sparse {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn size(&self) -> u64 {
        self.size
    }
    fn read(&self, offset: u64, mut buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            check_range(offset, buf.len() as u64, self.geometry.block_size, self.size)?;
            let blocks = self.blocks.lock();
            for (part, block) in buf.chunks_mut(Self::BLOCK as usize).zip(offset / Self::BLOCK..) {
                match blocks.get(&block) {
                    Some(bytes) => part.copy_from_slice(bytes),
                    None => part.fill(0),
                }
            }
            Ok(buf)
        })
    }
    fn write(&self, offset: u64, data: SharedBuf, _durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            check_range(offset, data.len() as u64, self.geometry.block_size, self.size)?;
            shard_runtime::yield_now().await;
            let mut blocks = self.blocks.lock();
            for (part, block) in data.chunks(Self::BLOCK as usize).zip(offset / Self::BLOCK..) {
                blocks.insert(block, part.into());
            }
            Ok(())
        })
    }
    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }
    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move { self.zero(offset, len) })
    }
    fn write_zeroes(&self, offset: u64, len: u64, _durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move { self.zero(offset, len) })
    }
}

/// Unit of tearing.
const SECTOR: usize = 512;

/// A disk that forgets, at a power cut, any part of what was written and not flushed: of each sector, one of the
/// versions written since it was last durable is left, or the one before.
pub(super) struct Fickle {
    geometry: Geometry,
    state: Mutex<Sectors>,
    rng: Mutex<Rng>,
    /// Requests that change something, until the power goes.
    left: AtomicU64,
    /// Requests that have changed something.
    changed: AtomicU64,
}

struct Sectors {
    /// What reads see.
    now: Vec<u8>,
    /// Of sectors that are not durable: what they held when they last were, and what was written since.
    loose: BTreeMap<u64, Vec<Box<[u8]>>>,
}

impl Fickle {
    pub(super) fn new(size: usize, seed: u64) -> Self {
        Self::with(vec![0; size], seed)
    }

    fn with(now: Vec<u8>, seed: u64) -> Self {
        Self {
            geometry: MemoryDisk::new(0, 4096).geometry().clone(),
            state: Mutex::new(Sectors { now, loose: BTreeMap::new() }),
            rng: Mutex::new(Rng::new(seed)),
            left: AtomicU64::new(u64::MAX),
            changed: AtomicU64::new(0),
        }
    }

    /// A disk that says of unmapped blocks that they hold anything, and keeps that promise.
    pub(super) fn forgetful(mut self) -> Self {
        self.geometry.unmap = UnmapBehavior::Unspecified;
        self
    }

    /// The power goes when `requests` more have changed something.
    pub(super) fn cut_after(&self, requests: u64) {
        self.left.store(requests, Ordering::SeqCst);
    }

    /// Requests that have changed something so far.
    pub(super) fn requests(&self) -> u64 {
        self.changed.load(Ordering::SeqCst)
    }

    /// The disk as it is when the power is back.
    pub(super) fn after_power_cut(&self, seed: u64) -> Self {
        let state = self.state.lock();
        let mut rng = Rng::new(seed);
        let mut now = state.now.clone();
        for (sector, versions) in &state.loose {
            let at = *sector as usize * SECTOR;
            // What it held last counts as a version, too.
            let which = rng.below(versions.len() as u64 + 1) as usize;
            if let Some(version) = versions.get(which) {
                now[at..at + SECTOR].copy_from_slice(version);
            }
        }
        let mut disk = Self::with(now, seed);
        disk.geometry = self.geometry.clone();
        disk
    }

    fn has_power(&self, op: &'static str) -> Result<(), BlockError> {
        match self.left.load(Ordering::SeqCst) {
            0 => Err(BlockError::new(BlockErrorKind::Gone, op)),
            _ => Ok(()),
        }
    }

    fn change(
        &self,
        offset: u64,
        len: u64,
        durability: Durability,
        content: impl Fn(usize) -> u8,
    ) -> Result<(), BlockError> {
        check_range(offset, len, self.geometry.block_size, self.size())?;
        self.has_power("write")?;
        self.changed.fetch_add(1, Ordering::SeqCst);
        let last = self.left.fetch_sub(1, Ordering::SeqCst) == 1;
        let mut state = self.state.lock();
        let Sectors { now, loose } = &mut *state;
        for sector in offset / SECTOR as u64..(offset + len) / SECTOR as u64 {
            let at = sector as usize * SECTOR;
            let before: Box<[u8]> = now[at..at + SECTOR].into();
            for (byte, place) in now[at..at + SECTOR].iter_mut().zip(at - offset as usize..) {
                *byte = content(place);
            }
            if durability == Durability::Durable && !last {
                loose.remove(&sector);
            } else {
                loose.entry(sector).or_default().push(before);
            }
        }
        // The power goes while this request is under way: nobody hears of its end.
        if last { Err(BlockError::new(BlockErrorKind::Gone, "write")) } else { Ok(()) }
    }
}

impl BlockDevice for Fickle {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    fn size(&self) -> u64 {
        self.state.lock().now.len() as u64
    }
    fn read(&self, offset: u64, mut buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            give_way(&self.rng).await;
            self.has_power("read")?;
            check_range(offset, buf.len() as u64, self.geometry.block_size, self.size())?;
            let len = buf.len();
            buf.copy_from_slice(&self.state.lock().now[offset as usize..][..len]);
            Ok(buf)
        })
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            give_way(&self.rng).await;
            self.change(offset, data.len() as u64, durability, |at| data[at])?;
            give_way(&self.rng).await;
            Ok(())
        })
    }
    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            // What completes while the flush is under way need not be durable.
            let before = std::mem::take(&mut self.state.lock().loose);
            give_way(&self.rng).await;
            let power = self.has_power("flush");
            if power.is_err() {
                let mut state = self.state.lock();
                for (sector, versions) in before {
                    let later = state.loose.remove(&sector).unwrap_or_default();
                    state.loose.insert(sector, versions.into_iter().chain(later).collect());
                }
            }
            power
        })
    }
    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            give_way(&self.rng).await;
            let byte = if self.geometry.unmap == UnmapBehavior::Zeroes { 0 } else { 0xdb };
            self.change(offset, len, Durability::Volatile, |_| byte)
        })
    }
    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            give_way(&self.rng).await;
            self.change(offset, len, durability, |_| 0)
        })
    }
}
