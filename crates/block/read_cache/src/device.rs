//! A device with its part of the cache in front.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockError, BlockFuture, Device, Durability, Geometry, check_range};
use parking_lot::Mutex;
use shard_runtime::{can_detach, detach, finish_anyway};

use crate::ahead::{ReadAhead, Streams};
use crate::cache::ReadCache;
use crate::fifo::Key;
use crate::fills::Fills;
use crate::shard::{Left, Moment};
use crate::stats::DeviceStats;
use crate::{PAGE, RUN};

/// Changes longer than this forget their range in every shard at once in place of run by run, in bytes.
const WIDE: u64 = 64 << 20;
/// What one read of a read-ahead asks for, in bytes: a reader that catches up waits for this much.
const AHEAD_PIECE: u64 = 512 << 10;

/// What a window takes of the cache at most, as a divisor: what is read ahead passes through the small queue, and must not
/// drive itself out of it.
const AHEAD_PART: u64 = 32;

/// A device whose reads a [`ReadCache`] answers where it can.
///
/// All users of the device must go through this one: what changes behind its back is not noticed.
pub struct CachedDevice {
    core: Arc<Core>,
}

/// What operations that go on without their caller keep.
struct Core {
    cache: Arc<ReadCache>,
    inner: Device,
    /// The device in the cache.
    number: u32,
    on: AtomicBool,
    stats: Arc<DeviceStats>,
    /// [`ReadAhead`] as a number: 0 none, 1 adaptive, else fixed bytes.
    mode: AtomicU64,
    streams: Mutex<Streams>,
    fills: Arc<Fills>,
}

impl Drop for Core {
    fn drop(&mut self) {
        self.cache.leave(self.number);
    }
}

impl CachedDevice {
    /// Puts a cache in front of a device; `name` is what its counters are shown under. Cached from the beginning, not read
    /// ahead.
    #[must_use]
    pub fn new(cache: &Arc<ReadCache>, inner: Device, name: &str) -> Self {
        let stats = Arc::new(DeviceStats::default());
        let number = cache.join(name, &stats);
        let core = Core {
            cache: Arc::clone(cache),
            inner,
            number,
            on: AtomicBool::new(true),
            stats,
            mode: AtomicU64::new(0),
            streams: Mutex::default(),
            fills: Arc::default(),
        };
        Self { core: Arc::new(core) }
    }

    /// Shows its counters under another name from now on.
    pub fn rename(&self, name: &str) {
        self.core.cache.rename(self.core.number, name);
    }

    /// Switches caching of this device on or off, while running. Off gives its memory back to the others.
    pub fn set_on(&self, on: bool) {
        self.core.on.store(on, Ordering::Release);
        if !on {
            self.core.cache.forget(self.core.number);
        }
    }

    /// Whether it is cached.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.core.on.load(Ordering::Acquire)
    }

    /// Sets how it is read ahead, while running. Only a device that is cached is.
    pub fn set_read_ahead(&self, mode: ReadAhead) {
        let number = match mode {
            ReadAhead::None => 0,
            ReadAhead::Adaptive => 1,
            ReadAhead::Fixed(bytes) => bytes.next_multiple_of(PAGE).max(PAGE),
        };
        self.core.mode.store(number, Ordering::Release);
        *self.core.streams.lock() = Streams::default();
    }

    /// How it is read ahead.
    #[must_use]
    pub fn read_ahead(&self) -> ReadAhead {
        self.core.mode()
    }

    /// What the cache did for it.
    #[must_use]
    pub fn stats(&self) -> &DeviceStats {
        &self.core.stats
    }
}

/// A change that the device is asked for, from before it until after it (R1, R2).
struct Change {
    core: Arc<Core>,
    bytes: Range<u64>,
    wide: bool,
    /// Whether pages of the range were held at the beginning, so that what is written is worth keeping for the end.
    held: bool,
    ended: bool,
}

impl Change {
    fn begin(core: &Arc<Core>, offset: u64, len: u64) -> Self {
        let bytes = offset..offset + len;
        let wide = len > WIDE;
        let mut held = false;
        if wide {
            let pages = offset / PAGE..bytes.end.div_ceil(PAGE);
            core.cache.shards().iter().for_each(|shard| shard.lock().begin_wide(core.number, pages.clone()));
        } else {
            for (run, part) in runs_of(&bytes) {
                let (shard, stripe) = core.cache.place(core.number, run);
                let pages = part.start / PAGE..part.end.div_ceil(PAGE);
                held |= shard.lock().begin_write(stripe, core.number, pages);
            }
        }
        Self { core: Arc::clone(core), bytes, wide, held, ended: false }
    }

    fn end(mut self, left: &Left<'_>) {
        self.settle(left);
    }

    fn settle(&mut self, left: &Left<'_>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let core = &self.core;
        if self.wide {
            core.cache.shards().iter().for_each(|shard| shard.lock().end_wide());
            return;
        }
        for (run, part) in runs_of(&self.bytes) {
            let (shard, stripe) = core.cache.place(core.number, run);
            let from = (part.start - self.bytes.start) as usize;
            let left = match left {
                Left::Data(data) => Left::Data(data.get(from..).unwrap_or_default()),
                Left::Zeros => Left::Zeros,
                Left::Unknown => Left::Unknown,
            };
            shard.lock().end_write(stripe, core.number, part, &left);
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.settle(&Left::Unknown);
    }
}

/// The runs that a range of bytes touches, each with its part of the range.
fn runs_of(bytes: &Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> + use<> {
    let (start, end) = (bytes.start, bytes.end);
    (start / RUN..end.div_ceil(RUN)).map(move |run| (run, start.max(run * RUN)..end.min((run + 1) * RUN)))
}

impl Core {
    fn mode(&self) -> ReadAhead {
        match self.mode.load(Ordering::Acquire) {
            0 => ReadAhead::None,
            1 => ReadAhead::Adaptive,
            bytes => ReadAhead::Fixed(bytes),
        }
    }

    fn is_in_range(&self, offset: u64, len: u64) -> bool {
        check_range(offset, len, self.inner.geometry().block_size, self.inner.size()).is_ok()
    }

    /// Copies what is held of whole pages from `offset` on into `out`; gives the part that is missing between the first
    /// page that is and the last, in bytes from `offset`.
    fn copy_held(&self, offset: u64, out: &mut [u8]) -> Option<Range<usize>> {
        let mut missing: Option<Range<usize>> = None;
        for (run, part) in runs_of(&(offset..offset + out.len() as u64)) {
            let at = (part.start - offset) as usize;
            let piece = &mut out[at..at + (part.end - part.start) as usize];
            let pages = piece.len() / PAGE as usize;
            let (shard, _) = self.cache.place(self.number, run);
            let first = Key { device: self.number, page: part.start / PAGE };
            let found = shard.lock().read(first, piece);
            let gaps = !found & ((1_u32 << pages) - 1);
            if gaps == 0 {
                continue;
            }
            let start = at + gaps.trailing_zeros() as usize * PAGE as usize;
            let end = at + (32 - gaps.leading_zeros()) as usize * PAGE as usize;
            missing = Some(missing.map_or(start, |missing| missing.start)..end);
        }
        missing
    }

    /// Where the writers of a range are now, run by run.
    fn moments(&self, bytes: &Range<u64>) -> Vec<Moment> {
        let moment = |(run, _)| {
            let (shard, stripe) = self.cache.place(self.number, run);
            shard.lock().moment(stripe)
        };
        runs_of(bytes).map(moment).collect()
    }

    /// Puts whole pages that were read since `moments` into the cache.
    fn fill(&self, moments: &[Moment], offset: u64, data: &[u8], ahead: bool) {
        let bytes = offset..offset + data.len() as u64;
        for ((run, part), moment) in runs_of(&bytes).zip(moments) {
            let (shard, stripe) = self.cache.place(self.number, run);
            let first = Key { device: self.number, page: part.start / PAGE };
            let piece = &data[(part.start - offset) as usize..(part.end - offset) as usize];
            shard.lock().fill(stripe, *moment, first, piece, ahead);
        }
    }

    /// Reads whole pages. `offset` and length are multiples of a page and in range.
    async fn read_pages(&self, offset: u64, mut buf: IoBuf) -> Result<IoBuf, BlockError> {
        let Some(mut missing) = self.copy_held(offset, &mut buf) else {
            self.stats.hits.add(1);
            self.stats.hit_bytes.add(buf.len() as u64);
            return Ok(buf);
        };
        let wanted = offset + missing.start as u64..offset + missing.end as u64;
        if self.fills.wait(wanted).await {
            let from = missing.start;
            match self.copy_held(offset + from as u64, &mut buf[missing]) {
                Some(still) => missing = from + still.start..from + still.end,
                None => {
                    self.stats.hits.add(1);
                    self.stats.hit_bytes.add(buf.len() as u64);
                    return Ok(buf);
                }
            }
        }
        self.stats.misses.add(1);
        self.stats.hit_bytes.add((buf.len() - missing.len()) as u64);
        self.stats.miss_bytes.add(missing.len() as u64);
        let start = offset + missing.start as u64;
        let moments = self.moments(&(start..start + missing.len() as u64));
        // Before the first await nothing is split: a dropped future leaves nothing behind either way.
        let mut head = buf.split_to(missing.start);
        let middle = buf.split_to(missing.len());
        let middle = self.inner.read(start, middle).await?;
        self.fill(&moments, start, &middle, false);
        join(&mut head, middle);
        join(&mut head, buf);
        Ok(head)
    }

    /// Reads a range that does not begin and end with pages, by way of those that it touches.
    async fn read_odd(&self, offset: u64, mut buf: IoBuf) -> Result<IoBuf, BlockError> {
        let start = offset / PAGE * PAGE;
        let end = (offset + buf.len() as u64).next_multiple_of(PAGE);
        if end > self.inner.size() / PAGE * PAGE {
            return self.inner.read(offset, buf).await;
        }
        match self.read_pages(start, IoBuf::new((end - start) as usize)).await {
            Ok(pages) => {
                let from = (offset - start) as usize;
                let len = buf.len();
                buf.copy_from_slice(&pages[from..from + len]);
                Ok(buf)
            }
            // What nobody asked for may be what cannot be read.
            Err(_) => self.inner.read(offset, buf).await,
        }
    }

    /// Starts what is to be read ahead of a read.
    fn read_ahead(self: &Arc<Self>, read: Range<u64>) {
        let mode = self.mode();
        if mode == ReadAhead::None || !can_detach() {
            return;
        }
        let fate = (self.stats.ahead_used.get(), self.stats.ahead_wasted.get());
        let room = self.cache.limit_in_force() / AHEAD_PART;
        let Some(window) = self.streams.lock().note(mode, &read, room, fate) else { return };
        let end = window.end.min(self.inner.size()) / PAGE * PAGE;
        let mut at = window.start / PAGE * PAGE;
        while at < end {
            let piece = at..end.min((at + AHEAD_PIECE) / AHEAD_PIECE * AHEAD_PIECE);
            at = piece.end;
            if self.is_held(&piece) {
                continue;
            }
            let Some(fill) = self.fills.begin(piece.clone()) else { continue };
            let core = Arc::clone(self);
            let moments = self.moments(&piece);
            detach(async move {
                let buf = IoBuf::new((piece.end - piece.start) as usize);
                // An error is the reader's to meet, should he come that far.
                if let Ok(data) = core.inner.read(piece.start, buf).await
                    && core.on.load(Ordering::Acquire)
                {
                    core.fill(&moments, piece.start, &data, true);
                }
                drop(fill);
            });
        }
    }

    fn is_held(&self, bytes: &Range<u64>) -> bool {
        runs_of(bytes).all(|(run, part)| {
            let (shard, _) = self.cache.place(self.number, run);
            shard.lock().holds(self.number, part.start / PAGE..part.end / PAGE)
        })
    }
}

/// Puts the parts of a buffer together again.
fn join(head: &mut IoBuf, next: IoBuf) {
    if let Err(next) = head.join(next) {
        // A device that answered with another buffer than it was given.
        let mut both = IoBuf::new(head.len() + next.len());
        both[..head.len()].copy_from_slice(head);
        both[head.len()..].copy_from_slice(&next);
        *head = both;
    }
}

impl BlockDevice for CachedDevice {
    fn geometry(&self) -> &Geometry {
        self.core.inner.geometry()
    }

    fn size(&self) -> u64 {
        self.core.inner.size()
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        let (core, len) = (&self.core, buf.len() as u64);
        if !self.is_on() || len == 0 || !core.is_in_range(offset, len) {
            return core.inner.read(offset, buf);
        }
        Box::pin(async move {
            core.read_ahead(offset..offset + len);
            if (offset | len).is_multiple_of(PAGE) {
                core.read_pages(offset, buf).await
            } else {
                core.read_odd(offset, buf).await
            }
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        let len = data.len() as u64;
        if len == 0 || !self.core.is_in_range(offset, len) {
            return self.core.inner.write(offset, data, durability);
        }
        let core = Arc::clone(&self.core);
        Box::pin(finish_anyway(async move {
            let change = Change::begin(&core, offset, len);
            let kept = change.held.then(|| data.clone());
            core.inner.write(offset, data, durability).await?;
            change.end(&kept.as_deref().map_or(Left::Unknown, Left::Data));
            Ok(())
        }))
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        let core = Arc::clone(&self.core);
        Box::pin(finish_anyway(async move {
            let flushed = core.inner.flush().await;
            if flushed.is_err() {
                core.cache.forget(core.number);
            }
            flushed
        }))
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        if len == 0 || !self.core.is_in_range(offset, len) {
            return self.core.inner.unmap(offset, len);
        }
        let core = Arc::clone(&self.core);
        Box::pin(finish_anyway(async move {
            let change = Change::begin(&core, offset, len);
            core.inner.unmap(offset, len).await?;
            change.end(&Left::Unknown);
            Ok(())
        }))
    }

    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        if len == 0 || !self.core.is_in_range(offset, len) {
            return self.core.inner.write_zeroes(offset, len, durability);
        }
        let core = Arc::clone(&self.core);
        Box::pin(finish_anyway(async move {
            let change = Change::begin(&core, offset, len);
            core.inner.write_zeroes(offset, len, durability).await?;
            change.end(&Left::Zeros);
            Ok(())
        }))
    }

    fn has_room_for(&self, ranges: Vec<(u64, u64)>) -> BlockFuture<'_, bool> {
        self.core.inner.has_room_for(ranges)
    }

    fn allocate(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        self.core.inner.allocate(offset, len)
    }

    fn wait_resize(&self, known: u64) -> BlockFuture<'_, u64> {
        self.core.inner.wait_resize(known)
    }
}
