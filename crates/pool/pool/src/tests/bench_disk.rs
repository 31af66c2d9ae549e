//! A disk in memory that can vanish, and that keeps volatile writes apart until they are flushed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{
    BlockDevice, BlockError, BlockErrorKind, BlockFuture, Durability, Geometry, UnmapBehavior, check_range,
};
use parking_lot::Mutex;

const BLOCK: usize = 4096;

pub(super) struct TestDisk {
    geometry: Geometry,
    inner: Mutex<Inner>,
    pub(super) gone: AtomicBool,
    pub(super) fail_reads_at: AtomicU64,
    pub(super) fail_flush: AtomicBool,
    /// Once this byte has been written, flushes fail.
    pub(super) fail_flush_from: AtomicU64,
    /// Milliseconds that reads, writes and flushes take.
    pub(super) delay: AtomicU64,
    /// Writes that touch this byte find no space, as in a sparse file on a full file system.
    pub(super) full_at: AtomicU64,
    /// Writes from this byte on are acknowledged and lost.
    pub(super) lose_from: AtomicU64,
    /// Writes to blocks that nothing was written to find no space, as in a sparse file on a full file system.
    pub(super) full: AtomicBool,
    /// How many of those there were.
    pub(super) refused: AtomicU64,
    pub(super) written: AtomicU64,
    /// Writes until the power of all disks goes; then nothing works until it is back.
    writes_left: Arc<AtomicU64>,
}

struct Inner {
    durable: Vec<u8>,
    volatile: BTreeMap<usize, Vec<u8>>,
    /// Where the blocks are that take space.
    allocated: BTreeSet<usize>,
}

impl TestDisk {
    pub(super) fn new(size: usize, writes_left: Arc<AtomicU64>) -> Self {
        let geometry = Geometry {
            block_size: BLOCK as u32,
            physical_block_size: BLOCK as u32,
            optimal_io_size: 0,
            unmap: UnmapBehavior::Zeroes,
            rotational: false,
            read_only: false,
        };
        Self {
            geometry,
            inner: Mutex::new(Inner {
                durable: vec![0; size],
                volatile: BTreeMap::new(),
                allocated: BTreeSet::new(),
            }),
            gone: AtomicBool::new(false),
            fail_reads_at: AtomicU64::new(u64::MAX),
            fail_flush: AtomicBool::new(false),
            fail_flush_from: AtomicU64::new(u64::MAX),
            delay: AtomicU64::new(0),
            full_at: AtomicU64::new(u64::MAX),
            lose_from: AtomicU64::new(u64::MAX),
            full: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            written: AtomicU64::new(0),
            writes_left,
        }
    }

    pub(super) fn corrupt(&self, offset: usize, bytes: &[u8]) {
        let mut inner = self.inner.lock();
        inner.volatile.clear();
        inner.durable[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// All that it holds, as a copy of the disk would have it.
    pub(super) fn image(&self) -> Vec<u8> {
        let inner = self.inner.lock();
        let mut bytes = inner.durable.clone();
        for (at, block) in &inner.volatile {
            bytes[*at..*at + BLOCK].copy_from_slice(block);
        }
        bytes
    }

    /// The disk is what the copy says again, and as large as that.
    pub(super) fn put_back(&self, image: &[u8]) {
        let mut inner = self.inner.lock();
        inner.volatile.clear();
        inner.durable = image.to_vec();
    }

    /// Loses what was not flushed, except the blocks that `keep` says made it.
    pub(super) fn restore_power(&self, mut keep: impl FnMut() -> bool) {
        let mut inner = self.inner.lock();
        for (at, block) in std::mem::take(&mut inner.volatile) {
            if keep() {
                inner.durable[at..at + BLOCK].copy_from_slice(&block);
            }
        }
    }

    /// Tears what was not flushed: the first 512 bytes of each block are new.
    pub(super) fn restore_power_torn(&self) {
        let mut inner = self.inner.lock();
        for (at, block) in std::mem::take(&mut inner.volatile) {
            inner.durable[at..at + 512].copy_from_slice(&block[..512]);
        }
    }

    async fn wait(&self) {
        match self.delay.load(Ordering::SeqCst) {
            0 => shard_runtime::yield_now().await,
            millis => shard_runtime::sleep(std::time::Duration::from_millis(millis)).await,
        }
    }

    fn power(&self) -> Result<(), BlockError> {
        let gone = self.gone.load(Ordering::SeqCst) || self.writes_left.load(Ordering::SeqCst) == 0;
        if gone { Err(BlockError::new(BlockErrorKind::Gone, "test disk")) } else { Ok(()) }
    }

    /// Takes space for what is written, if there is any.
    pub(super) fn allocate(&self, offset: u64, len: usize) -> Result<(), BlockError> {
        let blocks = (offset as usize..offset as usize + len).step_by(BLOCK);
        let mut inner = self.inner.lock();
        if self.full.load(Ordering::SeqCst) && !blocks.clone().all(|at| inner.allocated.contains(&at)) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err(BlockError::new(BlockErrorKind::NoSpace, "test disk"));
        }
        inner.allocated.extend(blocks);
        Ok(())
    }

    fn put(&self, offset: u64, data: &[u8], durability: Durability) -> Result<(), BlockError> {
        self.power()?;
        check_range(offset, data.len() as u64, BLOCK as u32, self.size())?;
        let full = self.full_at.load(Ordering::SeqCst);
        if (offset..offset + data.len() as u64).contains(&full) {
            // What lies before it is in the cache.
            let mut inner = self.inner.lock();
            for (at, block) in (offset as usize..).step_by(BLOCK).zip(data.chunks(BLOCK)) {
                if at + BLOCK <= full as usize {
                    inner.volatile.insert(at, block.to_vec());
                }
            }
            return Err(BlockError::new(BlockErrorKind::NoSpace, "test disk"));
        }
        if (offset..offset + data.len() as u64).contains(&self.fail_flush_from.load(Ordering::SeqCst)) {
            self.fail_flush.store(true, Ordering::SeqCst);
        }
        // Superblocks are at both ends.
        if offset >= self.lose_from.load(Ordering::SeqCst) && offset + (BLOCK as u64) < self.size() {
            return Ok(());
        }
        self.written.fetch_add(data.len() as u64, Ordering::SeqCst);
        let left = self.writes_left.load(Ordering::SeqCst);
        let mut inner = self.inner.lock();
        for (index, block) in data.chunks(BLOCK).enumerate() {
            let at = offset as usize + index * BLOCK;
            if durability == Durability::Durable && left > 1 {
                inner.volatile.remove(&at);
                inner.durable[at..at + BLOCK].copy_from_slice(block);
            } else {
                inner.volatile.insert(at, block.to_vec());
            }
        }
        drop(inner);
        if left != u64::MAX {
            self.writes_left.store(left.saturating_sub(1), Ordering::SeqCst);
        }
        self.power()
    }
}

impl BlockDevice for TestDisk {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn size(&self) -> u64 {
        self.inner.lock().durable.len() as u64
    }

    fn read(&self, offset: u64, mut buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            self.wait().await;
            self.power()?;
            check_range(offset, buf.len() as u64, BLOCK as u32, self.size())?;
            let bad = self.fail_reads_at.load(Ordering::SeqCst);
            if (offset..offset + buf.len() as u64).contains(&bad) {
                return Err(BlockError::new(BlockErrorKind::Media, "test disk"));
            }
            let inner = self.inner.lock();
            let len = buf.len();
            buf.copy_from_slice(&inner.durable[offset as usize..][..len]);
            for (at, block) in inner.volatile.range(offset as usize..offset as usize + len) {
                let to = at - offset as usize;
                buf[to..to + BLOCK].copy_from_slice(block);
            }
            Ok(buf)
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.wait().await;
            let result = match self.allocate(offset, data.len()) {
                Ok(()) => self.put(offset, &data, durability),
                refused => refused,
            };
            // A write heals a block that could not be read.
            let bad = self.fail_reads_at.load(Ordering::SeqCst);
            if result.is_ok() && (offset..offset + data.len() as u64).contains(&bad) {
                self.fail_reads_at.store(u64::MAX, Ordering::SeqCst);
            }
            result
        })
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.wait().await;
            self.power()?;
            if self.fail_flush.load(Ordering::SeqCst) {
                return Err(BlockError::new(BlockErrorKind::Io, "test flush"));
            }
            let mut inner = self.inner.lock();
            for (at, block) in std::mem::take(&mut inner.volatile) {
                inner.durable[at..at + BLOCK].copy_from_slice(&block);
            }
            Ok(())
        })
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        self.write_zeroes(offset, len, Durability::Volatile)
    }

    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            shard_runtime::yield_now().await;
            check_range(offset, len, BLOCK as u32, self.size())?;
            self.put(offset, &vec![0; len as usize], durability)?;
            // As a hole that is punched.
            let holes = offset as usize..(offset + len) as usize;
            let mut inner = self.inner.lock();
            inner.allocated.retain(|at| !holes.contains(at));
            Ok(())
        })
    }
}
