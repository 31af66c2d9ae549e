//! Pages of checksums in memory: one checksum for each block of a column (`sums.rs`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use pool_format::{BLOCK, Checksum, DiskId, SUMS_PER_PAGE};

/// Bytes of data that a page covers.
pub(crate) const PAGE_SPAN: u64 = SUMS_PER_PAGE * BLOCK;

/// The checksums of a column.
pub(crate) struct Sums {
    pub(crate) pages: Box<[RwLock<Option<Arc<Page>>>]>,
    /// One load at a time.
    pub(crate) loading: tokio::sync::Mutex<()>,
}

/// A page in memory.
pub(crate) struct Page {
    pub(crate) sums: Box<[AtomicU32]>,
    /// What they are calculated with.
    pub(crate) checksum: Checksum,
    /// The copies do not have it yet.
    pub(crate) dirty: AtomicBool,
    /// It differs from what has the generation that was given last.
    pub(crate) changed: AtomicBool,
    /// The generation that copies were given last, and the one that the metadata knows.
    pub(crate) generation: AtomicU8,
    pub(crate) told: AtomicU8,
    /// Regions whose checksums are not known.
    pub(crate) unknown: AtomicU64,
    /// Those of them of which the column's disk has lost writes with their checksums, in a row with parity.
    pub(crate) old: AtomicU64,
    /// Those of them that a disk's page speaks of which may be older than its data: believed where nobody knows better.
    pub(crate) hinted: AtomicU64,
    /// Disks that are known to have a damaged one: they are written first.
    pub(crate) damaged: Mutex<Vec<DiskId>>,
    /// Used since the cache last looked.
    pub(crate) used: AtomicBool,
    /// One writing to disks at a time: what a later one has read from memory must not be overtaken by what an earlier one had.
    /// Whoever reads the page from a disk while it is in memory holds it too: half a write would pass for damage.
    pub(crate) writing: tokio::sync::Mutex<()>,
}

impl Sums {
    pub(crate) fn new(pages: usize) -> Self {
        Self {
            pages: (0..pages).map(|_| RwLock::default()).collect(),
            loading: tokio::sync::Mutex::default(),
        }
    }

    pub(crate) fn in_memory(&self, index: usize) -> Option<Arc<Page>> {
        self.pages.get(index)?.read().clone()
    }

    /// The pages in memory that cover a part of the slab.
    pub(crate) fn loaded(&self, offset: u64, len: u64) -> Vec<(usize, Arc<Page>)> {
        let pages = (offset / PAGE_SPAN) as usize..(offset + len).div_ceil(PAGE_SPAN) as usize;
        pages.filter_map(|index| Some((index, self.in_memory(index)?))).collect()
    }
}

impl Page {
    pub(crate) fn at(&self, block: u64) -> Option<&AtomicU32> {
        self.sums.get((block % SUMS_PER_PAGE) as usize)
    }

    /// Whether the block with this number in its slab has this checksum.
    pub(crate) fn is(&self, block: u64, sum: u32) -> bool {
        self.at(block).is_some_and(|known| known.load(Ordering::Acquire) == sum)
    }

    /// Whether the block with this number in its slab is as the page says.
    pub(crate) fn fits(&self, number: u64, block: &[u8]) -> bool {
        self.is(number, self.checksum.of(block))
    }

    /// Whether all of `data`, which begins at `offset` of the slab, is as the page says.
    pub(crate) fn matches(&self, offset: u64, data: &[u8]) -> bool {
        let blocks = data.chunks_exact(BLOCK as usize);
        blocks.zip(offset / BLOCK..).all(|(block, number)| self.fits(number, block))
    }

    /// Whether `count` blocks from `offset` are known to be zeros.
    pub(crate) fn says_zero(&self, offset: u64, count: u64) -> bool {
        (offset / BLOCK..offset / BLOCK + count).all(|block| self.is(block, self.checksum.of_zeros()))
    }

    /// Whether the column's disk has lost writes to these regions that nobody has made again yet.
    pub(crate) fn lacks(&self, mask: u64) -> bool {
        self.old.load(Ordering::Acquire) & self.unknown.load(Ordering::Acquire) & mask != 0
    }

    /// From now on the block has this checksum. The caller has marked its region dirty.
    pub(crate) fn set(&self, block: u64, sum: u32) {
        if let Some(known) = self.at(block) {
            known.store(sum, Ordering::Release);
        }
        self.changed.store(true, Ordering::Release);
        self.dirty.store(true, Ordering::Release);
    }

    /// The block has the checksum of this, as the page of a copy says that has the generation given last: what is in memory was wrong.
    /// Copies that have it wrong, too, are given it with the next region of the page that becomes clean.
    pub(crate) fn correct(&self, number: u64, block: &[u8]) {
        if let Some(known) = self.at(number) {
            known.store(self.checksum.of(block), Ordering::Release);
        }
        self.dirty.store(true, Ordering::Release);
    }

    /// From now on the blocks from `offset` have these checksums. The caller has marked their region dirty.
    pub(crate) fn set_all(&self, offset: u64, sums: &[u32]) {
        sums.iter().zip(offset / BLOCK..).for_each(|(sum, number)| self.set(number, *sum));
    }

    /// From now on the block has the checksum of this. The caller has marked its region dirty.
    pub(crate) fn learn(&self, number: u64, block: &[u8]) {
        self.set(number, self.checksum.of(block));
    }

    /// From now on the blocks from `offset` have the checksums of this. The caller has marked their region dirty.
    pub(crate) fn learn_all(&self, offset: u64, data: &[u8]) {
        let blocks = data.chunks_exact(BLOCK as usize).zip(offset / BLOCK..);
        blocks.for_each(|(block, number)| self.learn(number, block));
    }

    /// From now on the blocks from `offset` are zeros. The caller has marked their region dirty.
    pub(crate) fn learn_zeros(&self, offset: u64, len: u64) {
        let zeros = self.checksum.of_zeros();
        (offset / BLOCK..(offset + len) / BLOCK).for_each(|number| self.set(number, zeros));
    }
}
