//! The data path of a stream, continued: zeroes, holes, space ahead, and what is mapped.

use aligned_buffer::IoBuf;
use block_device::Durability;
use file_store::{Range, StoreError};
use volume_format::{BLOCK, CLUSTER};

use crate::ahead::Clusters;
use crate::background::EXTENTS_PER_ROUND;
use crate::clusters::ROW;
use crate::core::Core;
use crate::extents::Segment;
use crate::session::Session;
use crate::stream::{Stream, check_range};

impl Stream {
    /// Zeroes what lies mapped between the old end and where new data begins. The blocks are locked.
    pub(crate) async fn zero_beyond(&self, core: &Core, size: u64, until: u64) -> Result<(), StoreError> {
        // The whole blocks from the old end on; the block with the end itself is put together by the write
        // path, so its tail is zeroed here too.
        let until = until.max(size).next_multiple_of(BLOCK);
        self.zero_mapped(core, size, until.max(size.next_multiple_of(BLOCK)), Durability::Durable).await
    }

    /// Zeroes the mapped parts of a range in place; holes are zero already. The blocks are locked.
    async fn zero_mapped(
        &self,
        core: &Core,
        offset: u64,
        end: u64,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let mut at = offset;
        while at < end {
            let Some(segment) = self.map.read().first_mapped(at, end) else { return Ok(()) };
            let (from, to) = (segment.offset, segment.offset + segment.len);
            if segment.shared {
                crate::unshare::unshare(self, core, (from / CLUSTER, to.div_ceil(CLUSTER)), None).await?;
                at = from;
                continue;
            }
            let (whole_from, whole_to) = (from.next_multiple_of(BLOCK), to / BLOCK * BLOCK);
            if whole_from < whole_to {
                let device = segment.device.unwrap_or_default() + (whole_from - from);
                core.device.write_zeroes(core.at(device), whole_to - whole_from, durability).await?;
            }
            for (edge_from, edge_to) in [(from, whole_from.min(to)), (whole_to.max(from), to)] {
                if edge_from < edge_to && (edge_from < whole_from || whole_to >= whole_from) {
                    self.zero_edge(core, edge_from, edge_to, durability).await?;
                }
            }
            at = to;
        }
        Ok(())
    }

    /// Zeroes a part of one block.
    async fn zero_edge(
        &self,
        core: &Core,
        from: u64,
        to: u64,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let zeros = IoBuf::zeroed((to - from) as usize).freeze();
        let (offset, block) = self.to_blocks(core, from, zeros).await?;
        let segments = self.map.read().segments(offset, block.len() as u64);
        if let [Segment { device: Some(device), .. }] = segments[..] {
            core.device.write(core.at(device), block, durability).await?;
        }
        Ok(())
    }

    /// Gives whole clusters of a range back and zeroes the rest.
    pub(crate) async fn punch_hole(&self, core: &Core, offset: u64, len: u64) -> Result<(), StoreError> {
        let end = check_range(offset, len)?.min(self.size().next_multiple_of(CLUSTER));
        if offset >= end {
            return Ok(());
        }
        let _blocks = self.lock_blocks(offset / CLUSTER * CLUSTER, end.next_multiple_of(CLUSTER)).await;
        self.touch(core);
        let (first, last) = (offset.div_ceil(CLUSTER), end / CLUSTER);
        if first < last {
            self.zero_mapped(core, offset, first * CLUSTER, Durability::Durable).await?;
            self.zero_mapped(core, last * CLUSTER, end, Durability::Durable).await?;
            self.drop_clusters(core, first, last, true).await
        } else {
            self.zero_mapped(core, offset, end, Durability::Durable).await?;
            self.settle(core).await
        }
    }

    /// Makes holes of whole clusters, some thousand extents in a transaction. Their blocks are locked. Where something
    /// may lie behind them (`within`), what remains may need more rows than there were: there must be room for them.
    pub(crate) async fn drop_clusters(
        &self,
        core: &Core,
        first: u64,
        last: u64,
        within: bool,
    ) -> Result<(), StoreError> {
        let _clusters = self.clusters.lock(first, last.saturating_sub(first)).await;
        loop {
            let Some(from) = self.map.read().tail(first, last, EXTENTS_PER_ROUND) else { return Ok(()) };
            let key = self.key;
            let reading = core.gate.enter();
            let unmap = move |session: &mut Session<'_>| {
                if within {
                    session.spend_to_cut(4 * ROW)?;
                }
                session.unmap(key, from, last)
            };
            core.metadata.change(unmap).await?;
            self.ahead.forget(from, last);
            self.map.write().remove(from, last);
            drop(reading);
            core.attention.notify_one();
        }
    }

    /// Zeroes a range, keeping its clusters, for an open.
    pub(crate) async fn zero_range(
        &self,
        core: &Core,
        offset: u64,
        len: u64,
        durability: Durability,
        by: u64,
    ) -> Result<(), StoreError> {
        let end = check_range(offset, len)?;
        if len == 0 {
            return Ok(());
        }
        // What is refused zeroes nothing.
        if end > self.size() {
            self.may_resize(core, Some(by))?;
        }
        {
            let _blocks = self.lock_blocks(offset, end).await;
            self.zero_mapped(core, offset, end, durability).await?;
        }
        // Last: when there is no space to zero what is shared, the file must not have grown.
        if end > self.size() {
            self.grow(core, end, by).await?;
        }
        self.touch(core);
        if durability == Durability::Durable { self.cover(core, end).await } else { Ok(()) }
    }

    async fn grow(&self, core: &Core, size: u64, by: u64) -> Result<(), StoreError> {
        let _sizing = self.sizing.lock().await;
        let old = self.size();
        if size <= old {
            return Ok(());
        }
        self.may_resize(core, Some(by))?;
        let _blocks = self.lock_blocks(old, size).await;
        self.zero_beyond(core, old, size).await?;
        self.commit_size(core, size).await
    }

    /// Maps a range without changing what it reads, for an open. What it lies on may be thin, and takes no space for it.
    pub(crate) async fn allocate(
        &self,
        core: &Core,
        offset: u64,
        len: u64,
        grow: bool,
        by: u64,
    ) -> Result<(), StoreError> {
        self.allocate_held(core, (offset, len), grow, by, false).await.map(drop)
    }

    /// As [`Stream::allocate`]; if `held`, what was mapped now, or was there unused, is held until it is reserved below, too
    /// (`reserve.rs`). What there was of it of which nobody knew whether it was used.
    pub(crate) async fn allocate_held(
        &self,
        core: &Core,
        (offset, len): (u64, u64),
        grow: bool,
        by: u64,
        held: bool,
    ) -> Result<Vec<Clusters>, StoreError> {
        let end = check_range(offset, len)?;
        if len == 0 {
            return Ok(Vec::new());
        }
        let sizing = if grow && end > self.size() { Some(self.sizing.lock().await) } else { None };
        let old = self.size();
        let growing = sizing.is_some() && end > old;
        if growing {
            self.may_resize(core, Some(by))?;
        }
        let _blocks = self.lock_blocks(offset.min(old), end).await;
        if growing {
            // Before new clusters come, which are zero.
            self.zero_beyond(core, old, end).await?;
            self.flush_growth(core).await?;
        }
        let (first, last) = (offset / CLUSTER, end.div_ceil(CLUSTER));
        let _clusters = self.clusters.lock(first, last - first).await;
        let holes = self.map.read().holes(first, last);
        let fresh: Vec<Clusters> = holes.iter().map(|(first, count)| (*first, first + count)).collect();
        let (key, now) = (self.key, core.clock.wall().0);
        // What was there before is wanted from now on, also after a crash: no row that is written meanwhile names it.
        let kept = (self.ahead.keep(first, last), core.leftovers.lock().keep(key, first, last));
        let mapped = core.metadata.change(move |session| {
            let row = session.row_without(key, first, last)?;
            let mapped = if holes.is_empty() { Vec::new() } else { session.map(key, &holes)? };
            let stored = row.map_or(Ok(()), |row| session.put_ahead(key, &row));
            session.fatal(stored)?;
            if growing {
                let saved = session.save_stream(key, end, now);
                session.fatal(saved)?;
            }
            Ok(mapped)
        });
        let mapped = mapped.await.inspect_err(|_| {
            // Nothing has changed.
            self.ahead.add(&kept.0, core.clock.now());
            core.leftovers.lock().add(key, &kept.1);
        });
        let mapped = mapped?;
        if held {
            // Before anybody can find them in the map, and write.
            self.ahead.hold(&fresh);
            self.ahead.hold(&kept.0);
        }
        self.put_extents(&mapped);
        if growing {
            self.size_is_durable(end);
        }
        Ok(kept.1)
    }

    /// The parts of a range that are mapped.
    pub(crate) fn allocated_ranges(
        &self,
        offset: u64,
        len: u64,
        limit: usize,
    ) -> Result<Vec<Range>, StoreError> {
        let end = check_range(offset, len)?.min(self.size());
        if offset >= end {
            return Ok(Vec::new());
        }
        Ok(self.map.read().ranges(offset, end, limit))
    }
}
