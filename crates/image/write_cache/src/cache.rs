//! [`WriteCache`]: the disk, and how it is read.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{
    BlockDevice, BlockError, BlockErrorKind, BlockFuture, Device, Durability, Geometry, UnmapBehavior,
    check_range,
};
use file_store::OpenFile;
use parking_lot::Mutex;
use shard_runtime::{RangeLocks, finish_anyway};

use crate::block::{BLOCK, Block, PAGE, Place, SLAB, SLAB_COST, index_bytes};
use crate::budget::{Budget, Evict, NoRoom, Share};
use crate::overflow::{Overflow, Reading};
use crate::runs::Runs;
use crate::status::{CacheStatus, Counts, add};

/// How long a write waits for room before it fails: initiators give a command 30 seconds (Linux) or 60 (Windows).
const PATIENCE: Duration = Duration::from_secs(15);
/// What a cache with an overflow file has for itself whatever others do: one batch on its way to the file, and one that is filled meanwhile.
const PUT_BY: u64 = 2 * BLOCK + BLOCK / 4;
/// Memory beside the index with which writes go on while blocks leave.
const THROUGH: u64 = 4 * BLOCK;
const _: () = assert!(THROUGH >= PUT_BY);

/// Bytes of memory with which a cache that has an overflow file can hold all of a disk of `size` bytes: its index, and what blocks go
/// through on their way to the file.
#[must_use]
pub fn least_ram(size: u64) -> u64 {
    index_bytes(size).saturating_add(THROUGH)
}

/// How a cache keeps what is written.
pub struct Options {
    /// Bytes of the budget that it may have.
    pub ram_bytes: u64,
    /// Takes what there is no memory for, up to so many bytes: an empty file that nobody else has open.
    pub overflow: Option<(Arc<dyn OpenFile>, u64)>,
    /// How long a write waits for room.
    pub patience: Duration,
}

impl Options {
    /// In memory only.
    #[must_use]
    pub fn ram(bytes: u64) -> Self {
        Self { ram_bytes: bytes, overflow: None, patience: PATIENCE }
    }

    /// Bytes of the budget that a cache of up to `ram_bytes` puts by for itself at its beginning, or does not begin.
    #[must_use]
    pub fn put_by(ram_bytes: u64, overflows: bool) -> u64 {
        if overflows { PUT_BY.min(ram_bytes) } else { ram_bytes }
    }

    /// In memory, and in a file of up to `overflow_bytes` what there is no room for.
    #[must_use]
    pub fn overflowing(ram_bytes: u64, file: Arc<dyn OpenFile>, overflow_bytes: u64) -> Self {
        Self { overflow: Some((file, overflow_bytes)), ..Self::ram(ram_bytes) }
    }
}

/// A disk over a base that is never written. What is written is gone when this is dropped.
///
/// It has the size that the base had at its beginning, and keeps it.
pub struct WriteCache {
    inner: Arc<Inner>,
}

/// What of the disk is held.
#[derive(Default)]
pub(crate) struct Map {
    pub(crate) blocks: BTreeMap<u64, Arc<Block>>,
    /// Blocks beneath which are zeros, and not the base: they were discarded once. Of one that something is held of again, too.
    pub(crate) zeros: Runs,
}

pub(crate) struct Inner {
    pub(crate) base: Device,
    geometry: Geometry,
    pub(crate) size: u64,
    pub(crate) overflow: Option<Overflow>,
    pub(crate) share: Share,
    pub(crate) id: u64,
    pub(crate) ram_limit: u64,
    pub(crate) patience: Duration,
    pub(crate) map: Mutex<Map>,
    /// Blocks with something in memory, by a use that is their last or an earlier one. Locked while a block's state is, never the other way round.
    pub(crate) order: Mutex<BinaryHeap<Reverse<(u64, u64)>>>,
    /// Entries of that order that may lead nowhere.
    pub(crate) stale: AtomicUsize,
    uses: AtomicU64,
    /// Held over pages by whoever changes them.
    pub(crate) locks: RangeLocks,
    /// One batch at a time goes to the overflow file.
    pub(crate) leaving: Arc<tokio::sync::Mutex<()>>,
    /// Somebody sees to it already that there is memory for those who come next.
    pub(crate) ahead: AtomicBool,
    pub(crate) counts: Counts,
    /// Slabs in memory. Changed while the state of their block is locked, or later when they have left.
    pub(crate) in_ram: AtomicU64,
    pub(crate) problem: Mutex<Option<Problem>>,
    /// Nobody is to find anything of it any more.
    pub(crate) ended: AtomicBool,
}

/// Why nothing goes to the overflow file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) why: String,
    /// The file is as large as it may be.
    pub(crate) is_limit: bool,
}

/// A part of the disk within one slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) block: u64,
    /// The slab in its block.
    pub(crate) slab: u64,
    /// Where it begins in the slab.
    pub(crate) at: u64,
    pub(crate) len: u64,
}

/// The parts of a range by slabs.
pub(crate) fn parts(offset: u64, len: u64) -> impl Iterator<Item = Part> {
    let mut at = offset;
    std::iter::from_fn(move || {
        let left = (offset + len).checked_sub(at).filter(|left| *left > 0)?;
        let within = at % SLAB;
        let part =
            Part { block: at / BLOCK, slab: at % BLOCK / SLAB, at: within, len: left.min(SLAB - within) };
        at += part.len;
        Some(part)
    })
}

/// The pages of a part, each with where its bytes begin in the part, and how many they are.
pub(crate) fn pages_of(part: Part) -> impl Iterator<Item = (u64, u64, u64)> {
    let end = part.at + part.len;
    (part.at / PAGE..end.div_ceil(PAGE)).map(move |page| {
        let (from, until) = ((page * PAGE).max(part.at), ((page + 1) * PAGE).min(end));
        (page, from - part.at, until - from)
    })
}

/// Bytes that the overflow file has of a read.
struct Elsewhere {
    /// Where in the read they begin.
    at: u64,
    slot: u32,
    within: u64,
    len: u64,
}

impl WriteCache {
    /// Begins a cache over `base`, which nobody writes to while it is there.
    ///
    /// # Errors
    /// When what is put by of the budget for other caches leaves too little: without an overflow file all of `ram_bytes` is put by.
    pub fn new(base: Device, budget: &Budget, options: Options) -> Result<Self, NoRoom> {
        let put_by = Options::put_by(options.ram_bytes, options.overflow.is_some());
        let share = budget.join(put_by, options.ram_bytes)?;
        let of_base = base.geometry();
        let geometry = Geometry {
            physical_block_size: of_base.physical_block_size.max(PAGE as u32),
            unmap: UnmapBehavior::Zeroes,
            read_only: false,
            ..of_base.clone()
        };
        let inner = Inner {
            size: base.size(),
            base,
            geometry,
            overflow: options.overflow.map(|(file, limit)| Overflow::new(file, limit)),
            id: share.id(),
            share,
            ram_limit: options.ram_bytes,
            patience: options.patience,
            map: Mutex::default(),
            order: Mutex::default(),
            stale: AtomicUsize::new(0),
            uses: AtomicU64::new(1),
            locks: RangeLocks::default(),
            leaving: Arc::default(),
            ahead: AtomicBool::new(false),
            counts: Counts::default(),
            in_ram: AtomicU64::new(0),
            problem: Mutex::default(),
            ended: AtomicBool::new(false),
        };
        let inner = Arc::new(inner);
        if inner.overflow.is_some() {
            let weak: Weak<dyn Evict> = Arc::downgrade(&(Arc::clone(&inner) as Arc<dyn Evict>));
            inner.share.gives_by(weak);
        }
        Ok(Self { inner })
    }

    /// What it has, and what it has done.
    #[must_use]
    pub fn status(&self) -> CacheStatus {
        let inner = &self.inner;
        let problem = inner.problem.lock().clone();
        CacheStatus {
            ram_bytes: inner.share.used(),
            ram_limit_bytes: inner.ram_limit,
            overflow_bytes: inner.overflow.as_ref().map_or(0, Overflow::used),
            overflow_is_full: problem.as_ref().is_some_and(|problem| problem.is_limit),
            problem: problem.map(|problem| problem.why),
            ..inner.counts.status()
        }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        check_range(offset, len, self.inner.geometry.block_size, self.inner.size)
    }
}

impl Inner {
    /// A block, and whether zeros lie beneath where there is none.
    pub(crate) fn block(&self, number: u64) -> Result<Arc<Block>, bool> {
        let map = self.map.lock();
        map.blocks.get(&number).cloned().ok_or_else(|| map.zeros.contains(number))
    }

    /// Bytes of the budget that its index takes: nothing of them can leave memory.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.share.used().saturating_sub(self.in_ram.load(Ordering::Relaxed) * SLAB_COST)
    }

    /// Counts a use.
    pub(crate) fn now(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    /// What it has of the budget, counted anew.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> u64 {
        let map = self.map.lock();
        map.blocks.values().map(|block| block.state.lock().cost()).sum()
    }

    /// The first and the last byte of a range that are the base's, if any are. They are only ever fewer.
    fn of_base(&self, offset: u64, len: u64) -> Option<(u64, u64)> {
        let mut found: Option<(u64, u64)> = None;
        let mut block: Option<(u64, Result<Arc<Block>, bool>)> = None;
        let mut done = 0;
        for part in parts(offset, len) {
            if block.as_ref().is_none_or(|(number, _)| *number != part.block) {
                block = Some((part.block, self.block(part.block)));
            }
            let mut beneath = |from: u64, len: u64| {
                let first = found.map_or(done + from, |(first, _)| first);
                found = Some((first, done + from + len));
            };
            match &block {
                Some((_, Ok(block))) => {
                    let state = block.state.lock();
                    let slab = state.slab(part.slab);
                    for (page, from, len) in pages_of(part) {
                        let place = slab.map_or(Place::Beneath, |slab| slab.place(page));
                        if place == Place::Beneath && !state.zero_beneath {
                            beneath(from, len);
                        }
                    }
                }
                Some((_, Err(false))) => beneath(0, part.len),
                _ => {}
            }
            done += part.len;
        }
        found
    }

    /// Puts what is held over what the base has. What is only in the overflow file comes back.
    fn overlay(&self, offset: u64, buf: &mut [u8]) -> Vec<Elsewhere> {
        let mut elsewhere: Vec<Elsewhere> = Vec::new();
        let (mut done, mut from_ram) = (0, 0);
        let now = self.now();
        for part in parts(offset, buf.len() as u64) {
            let to = &mut buf[done as usize..(done + part.len) as usize];
            match self.block(part.block) {
                Ok(block) => {
                    let state = block.state.lock();
                    block.touch(now);
                    let slab = state.slab(part.slab);
                    for (page, from, len) in pages_of(part) {
                        let to = &mut to[from as usize..(from + len) as usize];
                        match slab.map_or(Place::Beneath, |slab| slab.place(page)) {
                            Place::Ram => {
                                if let Some(bytes) = slab.and_then(|slab| slab.bytes(part.at + from, len)) {
                                    to.copy_from_slice(bytes);
                                }
                                from_ram += len;
                            }
                            Place::Spilled(slot) => {
                                let (at, within) = (done + from, part.at + from);
                                match elsewhere.last_mut() {
                                    Some(last)
                                        if last.slot == slot
                                            && last.at + last.len == at
                                            && last.within + last.len == within =>
                                    {
                                        last.len += len;
                                    }
                                    _ => elsewhere.push(Elsewhere { at, slot, within, len }),
                                }
                            }
                            Place::Beneath if !state.zero_beneath => {}
                            Place::Zero | Place::Beneath => {
                                to.fill(0);
                                from_ram += len;
                            }
                        }
                    }
                }
                Err(true) => {
                    to.fill(0);
                    from_ram += part.len;
                }
                Err(false) => {}
            }
            done += part.len;
        }
        add(&self.counts.read_ram, from_ram);
        elsewhere
    }

    /// Reads a range that lies in the disk.
    pub(crate) async fn read(&self, offset: u64, mut buf: IoBuf) -> Result<IoBuf, BlockError> {
        let len = buf.len() as u64;
        // From before it is looked where things are.
        let _reading: Option<Reading> = self.overflow.as_ref().map(Overflow::reading);
        if let Some((first, end)) = self.of_base(offset, len) {
            let read = buf.split_to(first as usize);
            let wanted = buf.split_to((end - first) as usize);
            let of_base = self.base.read(offset + first, wanted).await?;
            if of_base.len() as u64 != end - first {
                return Err(BlockError::new(BlockErrorKind::Io, "read base").at(offset + first, end - first));
            }
            add(&self.counts.read_base, end - first);
            buf = join(join(read, of_base), buf);
        }
        for Elsewhere { at, slot, within, len } in self.overlay(offset, &mut buf) {
            let Some(overflow) = &self.overflow else { break };
            let bytes = overflow.read(slot, within, len).await?;
            buf[at as usize..(at + len) as usize].copy_from_slice(&bytes);
            add(&self.counts.read_overflow, len);
        }
        Ok(buf)
    }
}

/// Two buffers that were one, or are one from now on.
fn join(mut first: IoBuf, next: IoBuf) -> IoBuf {
    match first.join(next) {
        Ok(()) => first,
        // A base that gave another buffer back.
        Err(next) => {
            let mut both = IoBuf::new(first.len() + next.len());
            both[..first.len()].copy_from_slice(&first);
            both[first.len()..].copy_from_slice(&next);
            both
        }
    }
}

impl BlockDevice for WriteCache {
    fn geometry(&self) -> &Geometry {
        &self.inner.geometry
    }

    fn size(&self) -> u64 {
        self.inner.size
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            self.check(offset, buf.len() as u64)?;
            let read = self.inner.read(offset, buf).await;
            self.inner.still()?;
            read
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, _durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.check(offset, data.len() as u64)?;
            let written = self.inner.write(offset, data).await;
            self.inner.still()?;
            written
        })
    }

    /// There is nothing to do: nothing outlives the cache.
    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(std::future::ready(self.inner.still()))
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.check(offset, len)?;
            let discarded = self.inner.discard(offset, len).await;
            self.inner.still()?;
            discarded?;
            if self.inner.overflow.as_ref().is_some_and(Overflow::has_spare) {
                let inner = Arc::clone(&self.inner);
                finish_anyway(async move {
                    if let Some(overflow) = &inner.overflow {
                        overflow.punch().await;
                    }
                })
                .await;
            }
            self.inner.still()
        })
    }

    fn write_zeroes(&self, offset: u64, len: u64, _durability: Durability) -> BlockFuture<'_, ()> {
        self.unmap(offset, len)
    }
}
