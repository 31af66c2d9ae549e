//! A space: a resilient block device made of rows of slabs.
//!
//! # Life of a write
//! 1. The range is cut into pieces, each in one region of one column; the pieces run side by side.
//! 2. A row that isn't there is allocated (thin): its slabs are cleared, then committed.
//! 3. The piece's range is locked in its column, so that all copies take overlapping writes in one order.
//! 4. A mirror's region is marked dirty in the metadata, unless it is already (the usual case: one load).
//! 5. Every reachable, up-to-date copy is written, all from the same buffer.
//! 6. A copy that was not written is marked stale in the metadata. Only then is the write acknowledged.
//!
//! Budget of an overwrite of one region on a 2-way mirror: no copy of data, no commit, one range lock, two
//! requests to the engine, and small allocations for the boxed futures (from the allocator's thread cache).
//! A write that began comes to its end even if its caller goes away: the range stays locked until then.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{
    BlockDevice, BlockError, BlockErrorKind, BlockFuture, Durability, Geometry, UnmapBehavior, check_range,
};
use futures_util::future::join_all;
use observe::{IoKind, IoStats};
use parking_lot::RwLock;
use pool_format::{BLOCK, Change, Guid, SpaceId, SpaceRecord};
use pool_layout::{Piece, Striping};
use shard_runtime::finish_anyway;
use tokio::sync::Notify;

use crate::core::Core;
use crate::row::{Column, Copies, CopyState, Place, Row};
use crate::write::{Edit, acknowledge, ensure_dirty, flush_disks, write_copies};

/// A space of an open pool.
pub struct Space {
    core: Weak<Core>,
    this: Weak<Self>,
    geometry: Geometry,
    pub(crate) striping: Striping,
    record: RwLock<SpaceRecord>,
    size: AtomicU64,
    rows: RwLock<BTreeMap<u32, Arc<Row>>>,
    resized: Notify,
    /// Its deletion has begun: no row may be allocated any more.
    deleted: AtomicBool,
    /// How often a disk went away with acknowledged writes that no other copy has.
    losses: AtomicU64,
    /// How many of them a flush has told of.
    losses_told: AtomicU64,
    stats: IoStats,
}

impl Space {
    pub(crate) fn new(
        core: &Weak<Core>,
        record: SpaceRecord,
        striping: Striping,
        read_only: bool,
    ) -> Arc<Self> {
        let geometry = Geometry {
            block_size: BLOCK as u32,
            physical_block_size: BLOCK as u32,
            optimal_io_size: record.interleave.saturating_mul(u32::from(record.columns)),
            unmap: UnmapBehavior::Zeroes,
            rotational: false,
            read_only,
        };
        Arc::new_cyclic(|this| Self {
            core: Weak::clone(core),
            this: Weak::clone(this),
            geometry,
            striping,
            size: AtomicU64::new(record.size),
            record: RwLock::new(record),
            rows: RwLock::default(),
            resized: Notify::new(),
            deleted: AtomicBool::new(false),
            losses: AtomicU64::new(0),
            losses_told: AtomicU64::new(0),
            stats: IoStats::default(),
        })
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> SpaceId {
        self.record.read().id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.record.read().name.clone()
    }

    /// Its identity.
    #[must_use]
    pub fn guid(&self) -> Guid {
        self.record.read().guid
    }

    /// How it is made.
    #[must_use]
    pub fn record(&self) -> SpaceRecord {
        self.record.read().clone()
    }

    /// Counters of its I/O.
    #[must_use]
    pub fn stats(&self) -> &IoStats {
        &self.stats
    }

    /// Rows that have slabs, and rows it could have.
    #[must_use]
    pub fn allocation(&self) -> (u64, u64) {
        (self.rows.read().len() as u64, self.striping.rows(self.size.load(Ordering::Acquire)))
    }

    pub(crate) fn rows(&self) -> Vec<(u32, Arc<Row>)> {
        self.rows.read().iter().map(|(number, row)| (*number, Arc::clone(row))).collect()
    }

    pub(crate) fn row(&self, number: u32) -> Option<Arc<Row>> {
        self.rows.read().get(&number).cloned()
    }

    pub(crate) fn put_row(&self, number: u32, row: Row) -> Arc<Row> {
        let row = Arc::new(row);
        self.rows.write().insert(number, Arc::clone(&row));
        row
    }

    pub(crate) fn take_row(&self, number: u32) -> Option<Arc<Row>> {
        self.rows.write().remove(&number)
    }

    pub(crate) fn set_record(&self, record: SpaceRecord) {
        self.size.store(record.size, Ordering::Release);
        *self.record.write() = record;
        self.resized.notify_waiters();
    }

    /// Refuses rows from now on. Called under [`Core::allocating`].
    pub(crate) fn set_deleted(&self) {
        self.deleted.store(true, Ordering::Release);
    }

    /// Acknowledged writes may be lost: the flushes that are under way, or the next one, will fail.
    pub(crate) fn tell_loss(&self) {
        self.losses.fetch_add(1, Ordering::AcqRel);
    }

    fn core(&self) -> Result<Arc<Core>, BlockError> {
        self.core
            .upgrade()
            .ok_or_else(|| BlockError::new(BlockErrorKind::Gone, "use a space of a closed pool"))
    }

    /// The row, allocated if need be.
    pub(crate) async fn row_for_write(&self, core: &Core, number: u32) -> Result<Arc<Row>, BlockError> {
        if let Some(row) = self.row(number) {
            return Ok(row);
        }
        let _one = core.allocating.lock().await;
        if let Some(row) = self.row(number) {
            return Ok(row);
        }
        if self.deleted.load(Ordering::Acquire) {
            return Err(BlockError::new(BlockErrorKind::Gone, "write to a deleted space"));
        }
        let record = core.allocate_row(&self.record(), number).await?;
        Ok(self.put_row(number, Row::new(&record, &|id| core.disk(id), false)))
    }

    async fn read_range(&self, offset: u64, mut buf: IoBuf) -> Result<IoBuf, BlockError> {
        check_range(offset, buf.len() as u64, BLOCK as u32, self.size())?;
        let mut pieces = self.striping.pieces(offset, buf.len() as u64);
        let Some(first) = pieces.next() else { return Ok(buf) };
        if first.len == buf.len() as u64 {
            return self.read_piece(first, buf).await;
        }
        let mut reads = vec![self.read_piece(first, buf.split_to(first.len as usize))];
        reads.extend(pieces.map(|piece| self.read_piece(piece, buf.split_to(piece.len as usize))));
        let parts = join_all(reads).await.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(join(parts))
    }

    async fn read_piece(&self, piece: Piece, mut buf: IoBuf) -> Result<IoBuf, BlockError> {
        let Some(row) = self.row(piece.row) else {
            buf.fill(0);
            return Ok(buf);
        };
        let column = &row.columns[usize::from(piece.column)];
        let mask = self.striping.regions(piece.offset, piece.len);
        let len = buf.len();
        let mut failed: Vec<Arc<CopyState>> = Vec::new();
        let mut last_error = None;
        // Looked for anew after each failure: a slow one leaves time for another copy to become good.
        // The list is held during the read: whoever gives a copy's slab up waits for that.
        while let Some((_list, copy)) = self.copy_to_read(column, piece, mask, &failed) {
            let attempt = if last_error.is_none() {
                std::mem::replace(&mut buf, IoBuf::new(0))
            } else {
                IoBuf::new(len)
            };
            match copy.disk.read(copy.start + piece.offset, attempt).await {
                Ok(read) => {
                    if !failed.is_empty() {
                        self.heal(piece);
                    }
                    return Ok(read);
                }
                Err(error) => {
                    tracing::warn!("space {}: {error}; trying another copy", self.name());
                    failed.push(copy);
                    last_error = Some(error);
                }
            }
        }
        let error =
            BlockError::new(BlockErrorKind::Media, "read: no good copy is left").at(piece.offset, piece.len);
        Err(match last_error {
            Some(cause) => error.because(cause),
            None => error,
        })
    }

    /// The good copy whose turn it is, of those that have not failed.
    fn copy_to_read(
        &self,
        column: &Column,
        piece: Piece,
        mask: u64,
        failed: &[Arc<CopyState>],
    ) -> Option<(Copies, Arc<CopyState>)> {
        let copies = column.copies();
        // One copy serves a region, so that a stream stays on one disk; another region, another copy. After a
        // crash the first good one answers until the copies have been made equal.
        let settled = column.unsettled.load(Ordering::Acquire) & mask == 0;
        let turn = if settled { (piece.offset / self.striping.region_size()) as usize } else { 0 };
        let in_turn = (0..copies.len()).map(|step| &copies[(turn + step) % copies.len()]);
        let mut usable =
            in_turn.filter(|copy| copy.is_good(mask) && !failed.iter().any(|other| Arc::ptr_eq(copy, other)));
        let copy = usable.next().cloned();
        copy.map(|copy| (copies, copy))
    }

    /// Rewrites a piece on the copies that could not read it.
    fn heal(&self, piece: Piece) {
        let Some(this) = self.this.upgrade() else { return };
        shard_runtime::detach(async move {
            if let Some(row) = this.row(piece.row) {
                crate::resync::heal(&this, &row.columns[usize::from(piece.column)], piece).await;
            }
        });
    }

    async fn change_range(
        self: Arc<Self>,
        offset: u64,
        len: u64,
        change: Edit,
        durability: Durability,
    ) -> Result<(), BlockError> {
        let core = self.core()?;
        core.check_writable()?;
        check_range(offset, len, BLOCK as u32, self.size())?;
        let mut pieces = self.striping.pieces(offset, len);
        let Some(first) = pieces.next() else { return Ok(()) };
        if first.len == len {
            return self.change_piece(&core, first, change, durability).await;
        }
        let mut at = 0;
        let writes = self.striping.pieces(offset, len).map(|piece| {
            let part = match &change {
                Edit::Data(data) => Edit::Data(data.slice(at..at + piece.len as usize)),
                zero => zero.clone(),
            };
            at += piece.len as usize;
            self.change_piece(&core, piece, part, durability)
        });
        // All of them end before the first error is told: none may be under way when the caller goes on.
        join_all(writes).await.into_iter().collect()
    }

    async fn change_piece(
        &self,
        core: &Core,
        piece: Piece,
        change: Edit,
        durability: Durability,
    ) -> Result<(), BlockError> {
        let row = match (&change, self.row(piece.row)) {
            (_, Some(row)) => row,
            // What was never allocated is zero already.
            (Edit::Zero { .. }, None) => return Ok(()),
            (Edit::Data(_), None) => self.row_for_write(core, piece.row).await?,
        };
        let column = &row.columns[usize::from(piece.column)];
        let place = Place { space: self.id(), row: piece.row, column: piece.column };
        let mask = self.striping.regions(piece.offset, piece.len);
        let _range = column.locks.lock(piece.offset, piece.len).await;
        let _count = column.begin_write();
        // Looked at under the lock: whoever changes the list takes the whole column's lock afterwards.
        let copies = column.copies();
        if copies.len() > 1 {
            ensure_dirty(core, place, column, mask).await?;
        } else if durability == Durability::Volatile {
            column.mark_volatile(mask);
        }
        column.touched.fetch_or(mask, Ordering::AcqRel);
        let written = write_copies(&copies, piece, mask, &change, durability).await;
        acknowledge(core, place, column, &copies, mask, written).await
    }

    async fn flush_all(self: Arc<Self>) -> Result<(), BlockError> {
        let core = self.core()?;
        core.check_writable()?;
        if core.faults.skip_flush.load(Ordering::Relaxed) {
            return Ok(());
        }
        // Looked at first: every flush that began before the loss was told of must tell of it.
        let told = self.losses_told.load(Ordering::Acquire);
        flush_disks(&core).await?;
        let losses = self.losses.load(Ordering::Acquire);
        if losses == told {
            return Ok(());
        }
        self.losses_told.fetch_max(losses, Ordering::AcqRel);
        Err(BlockError::new(BlockErrorKind::Gone, "flush: a disk went away with data that no other copy has"))
    }

    async fn unmap_range(self: Arc<Self>, offset: u64, len: u64) -> Result<(), BlockError> {
        check_range(offset, len, BLOCK as u32, self.size())?;
        let row_size = self.striping.row_size();
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let step = (row_size - at % row_size).min(end - at);
            let whole = step == row_size && self.free_row((at / row_size) as u32).await?;
            if !whole {
                let this = Arc::clone(&self);
                this.change_range(at, step, Edit::Zero { unmap: true }, Durability::Volatile).await?;
            }
            at += step;
        }
        Ok(())
    }

    /// Gives a row's slabs back to the pool, if nothing is under way on it.
    async fn free_row(&self, number: u32) -> Result<bool, BlockError> {
        let core = self.core()?;
        core.check_writable()?;
        // Fixed spaces keep what they took.
        if self.record().provisioning == pool_format::Provisioning::Fixed {
            return Ok(false);
        }
        let _one = core.allocating.lock().await;
        let row = {
            let mut rows = self.rows.write();
            let Some(row) = rows.get(&number) else { return Ok(true) };
            // Only the map may hold the row, and only the row its lists of copies (and the handle made here for
            // looking): anything else is a request that found them before.
            let busy = row.columns.iter().any(|column| Arc::strong_count(&column.copies()) > 2);
            if busy || Arc::strong_count(row) > 1 {
                return Ok(false);
            }
            let Some(row) = rows.remove(&number) else { return Ok(true) };
            row
        };
        if let Err(failed) = core.meta.commit(vec![Change::FreeRow { space: self.id(), row: number }]).await {
            self.rows.write().insert(number, row);
            return Err(failed.into());
        }
        let mut slabs = core.slabs.lock();
        for column in &row.columns {
            for copy in column.copies().iter() {
                slabs.give_back(copy.id(), copy.slab);
            }
        }
        Ok(true)
    }
}

/// The parts of a split buffer as one again; copied only when one of them came from a second attempt and so
/// lies elsewhere.
fn join(parts: Vec<IoBuf>) -> IoBuf {
    let len = parts.iter().map(|part| part.len()).sum();
    let mut whole = IoBuf::new(0);
    let mut parts = parts.into_iter();
    while let Some(part) = parts.next() {
        let Err(part) = whole.join(part) else { continue };
        let mut copy = IoBuf::new(len);
        let mut at = 0;
        for piece in std::iter::once(whole).chain(std::iter::once(part)).chain(parts) {
            copy[at..at + piece.len()].copy_from_slice(&piece);
            at += piece.len();
        }
        return copy;
    }
    whole
}

impl BlockDevice for Space {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            let len = buf.len() as u64;
            self.measure(IoKind::Read, len, self.read_range(offset, buf)).await
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            let len = data.len() as u64;
            let write = self.this()?.change_range(offset, len, Edit::Data(data), durability);
            self.measure(IoKind::Write, len, finish_anyway(write)).await
        })
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            let flush = self.this()?.flush_all();
            self.measure(IoKind::Flush, 0, finish_anyway(flush)).await
        })
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            let unmap = self.this()?.unmap_range(offset, len);
            self.measure(IoKind::Unmap, len, finish_anyway(unmap)).await
        })
    }

    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            let zero = self.this()?.change_range(offset, len, Edit::Zero { unmap: false }, durability);
            self.measure(IoKind::Write, len, finish_anyway(zero)).await
        })
    }

    fn wait_resize(&self, known: u64) -> BlockFuture<'_, u64> {
        Box::pin(async move {
            loop {
                let resized = self.resized.notified();
                let size = self.size();
                if size != known {
                    return Ok(size);
                }
                resized.await;
            }
        })
    }
}

impl Space {
    fn this(&self) -> Result<Arc<Self>, BlockError> {
        self.this.upgrade().ok_or_else(|| BlockError::new(BlockErrorKind::Gone, "use a deleted space"))
    }

    async fn measure<T>(
        &self,
        kind: IoKind,
        bytes: u64,
        work: impl Future<Output = Result<T, BlockError>>,
    ) -> Result<T, BlockError> {
        let core = self.core()?;
        let start = core.clock.now();
        let result = work.await;
        self.stats.record(kind, bytes, core.clock.now().since(start), result.is_ok());
        result.map_err(|error| error.on(&self.name()))
    }
}
