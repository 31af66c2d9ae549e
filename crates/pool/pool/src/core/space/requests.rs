//! A space: a resilient block device made of rows of slabs.
//!
//! # Life of a write
//! 1. The range is cut into pieces, each in one region of one column; the pieces run side by side.
//! 2. A row that isn't there is allocated (thin): its slabs are cleared, then committed.
//! 3. The piece's range is locked in its column, so that all copies take overlapping writes in one order.
//! 4. The region is marked dirty in the metadata, unless it is already (the usual case: one load).
//! 5. Every reachable, up-to-date copy is written, all from the same buffer.
//! 6. A copy that was not written is marked stale in the metadata. Only then is the write acknowledged.
//! 7. The new checksums go to their page in memory.
//!
//! With parity the pieces of a stripe go together: `stripe.rs`. Reading: `read.rs`.
//!
//! Budget of an overwrite of one region on a 2-way mirror: no copy of data, no commit, one range lock, two
//! requests to the engine, and small allocations for the boxed futures (from the allocator's thread cache).
//! A write that began comes to its end even if its caller goes away: the range stays locked until then.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockError, BlockErrorKind, BlockFuture, Durability, Geometry, check_range};
use futures_util::future::join_all;
use observe::IoKind;
use pool_format::{BLOCK, Change};
use pool_layout::Piece;
use shard_runtime::finish_anyway;

use super::Space;
use crate::at::At;
use crate::core::Core;
use crate::edit::Edit;
use crate::pace::SMALL;
use crate::row::{Place, Row, Shape};
use crate::write::change_piece;

impl Space {
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
        let space = self.record();
        let record = core.allocate_row(&space, number).await?;
        let shape = Shape::of(&space, number, core.slab_size);
        Ok(self.put_row(number, Row::new(&record, shape, &|id| core.disk(id), false)))
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
        if self.striping.parity() > 0 {
            return self.change_stripes(&core, offset, len, change, durability).await;
        }
        let mut pieces = self.striping.pieces(offset, len);
        let Some(first) = pieces.next() else { return Ok(()) };
        if first.len == len {
            return self.change_piece(&core, first, change, durability).await;
        }
        let mut at = 0;
        let writes = self.striping.pieces(offset, len).map(|piece| {
            let part = change.part(at, piece.len);
            at += piece.len;
            self.change_piece(&core, piece, part, durability)
        });
        // All of them end before the first error is told: none may be under way when the caller goes on.
        join_all(writes).await.into_iter().collect()
    }

    /// The row for a change; `None` when there is nothing to do: what was never allocated is zero already.
    async fn row_for(&self, core: &Core, number: u32, change: &Edit) -> Result<Option<Arc<Row>>, BlockError> {
        match (change, self.row(number)) {
            (_, Some(row)) => Ok(Some(row)),
            (Edit::Zero { .. }, None) => {
                // One that is being given up is not gone before that is durable.
                drop(core.allocating.lock().await);
                Ok(self.row(number))
            }
            (Edit::Data(_), None) => self.row_for_write(core, number).await.map(Some),
        }
    }

    async fn change_piece(
        &self,
        core: &Arc<Core>,
        piece: Piece,
        change: Edit,
        durability: Durability,
    ) -> Result<(), BlockError> {
        let Some(row) = self.row_for(core, piece.row, &change).await? else { return Ok(()) };
        let place = Place { space: self.id(), row: piece.row, column: piece.column };
        change_piece(At::new(core, self, &row, place), piece, change, durability).await
    }

    async fn change_stripes(
        &self,
        core: &Arc<Core>,
        offset: u64,
        len: u64,
        change: Edit,
        durability: Durability,
    ) -> Result<(), BlockError> {
        let mut at = 0;
        let writes = self.striping.stripes(offset, len).map(|pieces| {
            let part = |piece: Piece| {
                at += piece.len;
                (piece, change.part(at - piece.len, piece.len))
            };
            pieces.into_iter().map(part).collect::<Vec<_>>()
        });
        let writes = writes.map(|parts| async {
            let Some((first, edit)) = parts.first() else { return Ok(()) };
            let Some(row) = self.row_for(core, first.row, edit).await? else { return Ok(()) };
            let place = Place { space: self.id(), row: first.row, column: 0 };
            crate::stripe::change(At::new(core, self, &row, place), parts, durability).await
        });
        join_all(writes).await.into_iter().collect()
    }

    async fn flush_all(self: Arc<Self>) -> Result<(), BlockError> {
        let core = self.core()?;
        core.check_writable()?;
        // Looked at first: every flush that began before the loss was told of must tell of it.
        let told = self.losses_told.load(Ordering::Acquire);
        core.flush_disks().await?;
        if core.spaces.read().get(&self.id()).is_none() {
            // Nobody has looked for what it lost, and if its deletion fails it is still there.
            return Err(BlockError::new(BlockErrorKind::Gone, "flush a space that is being deleted"));
        }
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

    async fn forget_row(&self, core: &Arc<Core>, number: u32) -> Result<(), BlockError> {
        if self.striping.parity() > 0 {
            // A later row of this number must not be given what the journal has for this one. Flushed first: if the power
            // goes before the row is free, it is all there is.
            core.flush_disks().await?;
            self.journal()?.void(core, self, number).await?;
        }
        Ok(core.meta.commit(vec![Change::FreeRow { space: self.id(), row: number }]).await?)
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
            // What the journal has for it is needed until that is void.
            *self.going.write() = Some((number, Arc::clone(&row)));
            row
        };
        let forgotten = self.forget_row(&core, number).await;
        if forgotten.is_err() {
            self.rows.write().insert(number, Arc::clone(&row));
        }
        *self.going.write() = None;
        forgotten?;
        if let Ok(journal) = self.journal() {
            // What failed to come to the row is of no concern to the next one of its number.
            for stuck in journal.take_stuck(number, |_| true) {
                journal.unstick(&stuck);
            }
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

    fn has_room_for(&self, ranges: Vec<(u64, u64)>) -> BlockFuture<'_, bool> {
        Box::pin(async move { self.has_rows_for(&ranges) })
    }

    fn allocate(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move { finish_anyway(self.this()?.allocate_range(offset, len)).await })
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
    async fn measure<T>(
        &self,
        kind: IoKind,
        bytes: u64,
        work: impl Future<Output = Result<T, BlockError>>,
    ) -> Result<T, BlockError> {
        let core = self.core()?;
        let _under_way = self.stats.begin();
        let start = core.clock.now();
        let result = core.meta.ownership().guard(work).await;
        let took = core.clock.now().since(start);
        self.stats.record(kind, bytes, took, result.is_ok());
        if bytes <= SMALL && matches!(kind, IoKind::Read | IoKind::Write) {
            core.governor.clients.record(took);
        }
        result.map_err(|error| error.on(&self.name()))
    }
}
