//! How many regions are dirty, and for how long: what a crash costs, against what a write pays.
//!
//! ```text
//!   a write to a clean region ─► one durable mark, for it and for as many neighbours as its slab has dirty already
//!   stays dirty while warm    ─► later writes there pay nothing
//!   cleaned                   ─► when nothing has written there for `warm` to twice as long      (age)
//!                             ─► the coldest first, when more is dirty than `resync_bytes`       (pressure)
//! ```
//! Marking is a durable write of the metadata, cleaning writes a page of checksums to each copy. A write to a region that is dirty
//! pays neither, so the regions that a load works on stay dirty for as long as a crash may cost their settling. Marks double with what
//! a slab has dirty: one block that is written marks 1 region, random writes all over a slab of 64 regions mark it with 7 commits.
//!
//! Invariants:
//! * While more than half of the limit is dirty, nothing is marked ahead of need but a few regions of a sequential write; beyond it,
//!   nothing at all.
//! * Beyond the limit and an eighth, a write that needs a mark waits for a pass of the cleaner. It is a soft bound: what cannot be
//!   cleaned, because it waits for disks or to be settled, is not counted.
//! * A page of checksums that its disks lack stays in memory, and each of them lies under a dirty region. So the regions that are dirty
//!   are limited by the memory for checksums as well.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use pool_format::REGIONS;
use shard_runtime::Monotonic;
use tokio::sync::Notify;

use crate::at::At;
use crate::core::Core;
use crate::row::{Group, Order, Row};
use crate::space::Space;
use crate::sums::PAGE_SPAN;
use crate::write::REGIONS_AHEAD;

/// How long a write that waits for the cleaner sleeps before it looks again whether the pool is still open.
const PATIENCE: Duration = Duration::from_secs(1);

/// How much a crash may leave to be settled, and what that buys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyParams {
    /// Bytes of columns that may be dirty at a time: what a crash leaves to be settled at most, and what a disk that drops out
    /// has to be given again at most. Above, what has been written longest ago is cleaned.
    pub resync_bytes: u64,
    /// A region becomes clean when nothing has been written there for so long, or for up to twice as long.
    pub warm: Duration,
}

impl Default for DirtyParams {
    fn default() -> Self {
        // Random writes of a busy guest come back to each region of a span of 128 GiB in less than the half minute. Two disks
        // that copy 1 GB/s settle that much in little more than two minutes.
        Self { resync_bytes: 128 << 30, warm: Duration::from_secs(30) }
    }
}

/// Counts what is dirty in a pool.
#[derive(Default)]
pub(crate) struct Dirty {
    params: RwLock<DirtyParams>,
    /// What is dirty and can be cleaned, as the cleaner last counted it, and what has been marked since.
    bytes: AtomicU64,
    /// Pages of checksums that it keeps in memory at most, counted in the same way.
    pages: AtomicU64,
    /// More is dirty than may be, and: so much more that writes wait.
    pressed: AtomicBool,
    over: AtomicBool,
    /// Passes of the cleaner that have begun, and that have ended.
    begun: AtomicU64,
    ended: AtomicU64,
    /// Wakes writes that wait for the end of one.
    passed: Notify,
    /// When regions last grew colder.
    cooled: Mutex<Option<Monotonic>>,
    /// The group at which a pass goes on that takes warm regions.
    cursor: AtomicUsize,
}

impl Dirty {
    pub(crate) fn params(&self) -> DirtyParams {
        *self.params.read()
    }

    /// Whether the cleaner has to work before its time.
    pub(crate) fn is_pressed(&self) -> bool {
        self.pressed.load(Ordering::Acquire)
    }

    /// Wakes whoever waits for the cleaner: the pool ends.
    pub(crate) fn let_go(&self) {
        self.passed.notify_waiters();
    }
}

/// From now on so much may be dirty.
pub(crate) fn set_params(core: &Core, params: DirtyParams) {
    *core.dirty.params.write() = params;
    judge(core);
}

/// What may be dirty: bytes, and pages in memory.
fn limits(core: &Core) -> (u64, u64) {
    (core.dirty.params().resync_bytes, core.sums.limit() / 4 * 3)
}

/// Whether more is dirty than this many eighths of what may be.
fn exceeds(core: &Core, eighths: u64) -> bool {
    let (bytes, pages) = limits(core);
    let above =
        |count: &AtomicU64, limit: u64| count.load(Ordering::Acquire) > (limit / 8).saturating_mul(eighths);
    above(&core.dirty.bytes, bytes) || above(&core.dirty.pages, pages)
}

/// Looks at what is dirty now: whether the cleaner is to come, and whether writes begin to wait for it.
fn judge(core: &Core) {
    let pressed = exceeds(core, 8);
    core.dirty.pressed.store(pressed, Ordering::Release);
    core.dirty.over.fetch_or(pressed && exceeds(core, 9), Ordering::AcqRel);
    if pressed {
        core.upkeep_attention.notify_one();
    }
}

/// A pass of the cleaner ends. What it has picked is clean only now: until then no write goes on that waits.
pub(crate) fn end_pass(core: &Core) {
    let dirty = &core.dirty;
    dirty.over.store(exceeds(core, 9), Ordering::Release);
    dirty.ended.fetch_add(1, Ordering::AcqRel);
    dirty.passed.notify_waiters();
}

/// Bytes of columns that regions of a group are, and the pages of checksums over them.
fn weight(space: &Space, row: &Row, regions: u64) -> (u64, u64) {
    let size = space.striping.region_size();
    // A row with parity is one group: each region is one of every column.
    let columns = if row.shape.parity > 0 { row.columns.len() as u64 } else { 1 };
    let bytes = u64::from(regions.count_ones()) * size * columns;
    if row.shape.sums_pages == 0 {
        return (bytes, 0);
    }
    let shared = (PAGE_SPAN / size).clamp(1, u64::from(REGIONS));
    let under = u64::MAX >> (u64::from(REGIONS) - shared);
    let pages =
        (0..u64::from(REGIONS) / shared).filter(|page| regions & (under << (page * shared)) != 0).count();
    (bytes, pages as u64 * (size / PAGE_SPAN).max(1) * columns)
}

/// Bytes that a crash now would leave to be settled.
pub(crate) fn bytes(core: &Core) -> u64 {
    let mut bytes = 0;
    core.for_each_column(|space, place, row| {
        if row.lead(place.column) == place.column {
            let group = row.group(place.column);
            // What is being cleaned is not clean yet.
            let order = group.order.lock();
            let dirty = group.dirty_durable.load(Ordering::SeqCst) | order.marking | order.cleaning;
            bytes += weight(space, row, dirty).0;
        }
    });
    bytes
}

/// Before a write that may need a mark, with nothing locked: waits for the cleaner while more is dirty than may be, to the end of
/// one pass at the most.
pub(crate) async fn admit(at: At<'_>, mask: u64) {
    let (core, dirty) = (at.core, &at.core.dirty);
    if !dirty.over.load(Ordering::Relaxed)
        || !at.group().marks
        || at.group().dirty_durable.load(Ordering::SeqCst) & mask == mask
    {
        return;
    }
    // One that has begun may have passed by already.
    let enough = dirty.begun.load(Ordering::Acquire) + 1;
    loop {
        let passed = dirty.passed.notified();
        if !dirty.over.load(Ordering::Acquire)
            || dirty.ended.load(Ordering::Acquire) >= enough
            || core.is_over()
        {
            return;
        }
        core.upkeep_attention.notify_one();
        shard_runtime::timeout(PATIENCE, passed).await;
    }
}

/// Regions behind this one that a sequential write may have marked ahead: all where little is dirty, a few up to the limit.
pub(crate) fn ahead(core: &Core, region: u32) -> u64 {
    let few = ((1 << REGIONS_AHEAD) - 1) << region << 1;
    match (exceeds(core, 4), exceeds(core, 8)) {
        (false, _) => u64::MAX,
        (true, false) => few,
        (true, true) => 0,
    }
}

/// Regions that a mark of `mask` takes in, where `dirty` is dirty or about to be: as many as there are dirty, in an aligned group of a
/// power of two around the first of `mask`. None while a crash would cost much already.
pub(crate) fn neighbours(core: &Core, mask: u64, dirty: u64) -> u64 {
    if mask == 0 || dirty == 0 || exceeds(core, 4) {
        return 0;
    }
    let count = (dirty.count_ones() + 1).next_power_of_two().min(REGIONS);
    let first = mask.trailing_zeros() / count * count;
    (u64::MAX >> (REGIONS - count)) << first
}

/// A mark of these regions is on its way.
pub(crate) fn count_mark(at: At<'_>, regions: u64) {
    let (bytes, pages) = weight(at.space, at.row, regions);
    at.core.dirty.bytes.fetch_add(bytes, Ordering::AcqRel);
    at.core.dirty.pages.fetch_add(pages, Ordering::AcqRel);
    judge(at.core);
}

/// A pass of the cleaner over all groups: what each gives up.
pub(crate) struct Pass {
    everything: bool,
    /// Regions grow colder with this pass.
    cools: bool,
    /// Bytes and pages that have to go beyond what is cold: of idle groups, or where these do not suffice, beyond all of them.
    lack: (u64, u64),
    /// Whether they do not suffice.
    warm_too: bool,
    cursor: usize,
    index: usize,
    /// What has been left dirty so far.
    left: (u64, u64),
}

impl Pass {
    pub(crate) fn begin(core: &Core, everything: bool) -> Self {
        let dirty = &core.dirty;
        dirty.begun.fetch_add(1, Ordering::AcqRel);
        let now = core.clock.now();
        let cools = {
            let mut cooled = dirty.cooled.lock();
            let cools = cooled.is_none_or(|last| now.since(last) >= dirty.params().warm);
            if cools {
                *cooled = Some(now);
            }
            cools
        };
        let mut pass = Self {
            everything,
            cools,
            lack: (0, 0),
            warm_too: false,
            cursor: dirty.cursor.load(Ordering::Relaxed),
            index: 0,
            left: (0, 0),
        };
        if dirty.is_pressed() && !everything {
            pass.look(core);
        }
        pass
    }

    /// Finds how far it has to go: to an eighth below the limit.
    fn look(&mut self, core: &Core) {
        let (mut warm, mut idle) = ((0, 0), (0, 0));
        let add =
            |sum: &mut (u64, u64), weight: (u64, u64)| (sum.0, sum.1) = (sum.0 + weight.0, sum.1 + weight.1);
        core.for_each_column(|space, place, row| {
            if row.lead(place.column) != place.column {
                return;
            }
            let group = row.group(place.column);
            let recent = group.order.lock().recent() | group.touched.load(Ordering::Acquire);
            let kept = cleanable(group) & recent;
            add(&mut warm, weight(space, row, kept));
            if group.touched.load(Ordering::Acquire) == 0 {
                add(&mut idle, weight(space, row, kept));
            }
        });
        let (bytes, pages) = limits(core);
        self.lack = (warm.0.saturating_sub(bytes / 8 * 7), warm.1.saturating_sub(pages / 8 * 7));
        self.warm_too = idle.0 < self.lack.0 || idle.1 < self.lack.1;
        if self.warm_too {
            self.lack = (self.lack.0.saturating_sub(idle.0), self.lack.1.saturating_sub(idle.1));
        }
    }

    /// The dirty regions of a group that are to become clean. Under its order.
    pub(crate) fn pick(&mut self, space: &Space, row: &Row, group: &Group, order: &mut Order) -> Picked {
        self.index += 1;
        let touched = group.touched.swap(0, Ordering::AcqRel);
        order.warm[0] |= touched;
        if self.cools {
            order.warm = [0, order.warm[0]];
        }
        let dirty = cleanable(group);
        let soon = group.soon.swap(0, Ordering::AcqRel);
        let cold = if self.everything { dirty } else { dirty & (!order.recent() | soon) };
        let (bytes, pages) = weight(space, row, dirty & !cold);
        let (idle, lacks) = (touched == 0, self.lack != (0, 0));
        let needed = match (idle, self.warm_too) {
            (true, true) => true,
            (true, false) => lacks,
            (false, warm_too) => warm_too && lacks && self.index > self.cursor,
        };
        if !needed {
            self.left = (self.left.0 + bytes, self.left.1 + pages);
            return Picked { regions: cold, touched, soon };
        }
        if idle != self.warm_too {
            self.lack = (self.lack.0.saturating_sub(bytes), self.lack.1.saturating_sub(pages));
        }
        if !idle {
            self.cursor = self.index;
        }
        Picked { regions: dirty, touched, soon }
    }

    /// All groups have been asked: what is left is counted anew.
    pub(crate) fn end(self, core: &Core) {
        let dirty = &core.dirty;
        // Where warm ones of the first groups are still too many, the next pass begins with them.
        let cursor = if self.lack == (0, 0) && self.warm_too { self.cursor } else { 0 };
        dirty.cursor.store(cursor, Ordering::Relaxed);
        dirty.bytes.store(self.left.0, Ordering::Release);
        dirty.pages.store(self.left.1, Ordering::Release);
        judge(core);
    }
}

/// What a group gives up in a pass.
pub(crate) struct Picked {
    pub(crate) regions: u64,
    /// Regions that have been written since the last pass.
    pub(crate) touched: u64,
    /// Regions that were to be cleaned without waiting to grow cold.
    pub(crate) soon: u64,
}

/// Dirty regions whose copies need not be made equal first.
fn cleanable(group: &Group) -> u64 {
    group.dirty_durable.load(Ordering::SeqCst) & !group.unsettled.load(Ordering::Acquire)
}
