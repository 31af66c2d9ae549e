//! The data path of a stream, continued: zeroes, holes and what is mapped.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::Durability;
use file_store::{Range, StoreError};
use volume_format::{BLOCK, CLUSTER};

use crate::core::Core;
use crate::extents::Segment;
use crate::stream::{Stream, check_range};

impl Stream {
    /// Zeroes what lies mapped between the old end and where new data begins.
    pub(crate) async fn zero_beyond(&self, core: &Core, size: u64, until: u64) -> Result<(), StoreError> {
        // The whole blocks from the old end on; the block with the end itself is put together by the write
        // path, so its tail is zeroed here too.
        let until = until.max(size).next_multiple_of(BLOCK);
        self.zero_mapped(core, size, until.max(size.next_multiple_of(BLOCK)), Durability::Durable).await
    }

    /// Zeroes the mapped parts of a range in place; holes are zero already. The range is locked.
    pub(crate) async fn zero_mapped(
        &self,
        core: &Core,
        offset: u64,
        end: u64,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let mut at = offset;
        while at < end {
            let segments = self.map.read().segments(at, end - at);
            let Some(segment) = segments.into_iter().find(|segment| segment.device.is_some()) else {
                return Ok(());
            };
            let (from, to) = (segment.offset, segment.offset + segment.len);
            if segment.shared {
                crate::copy::unshare(self, core, from / CLUSTER, to.div_ceil(CLUSTER)).await?;
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
    pub(crate) async fn punch_hole(
        self: Arc<Self>,
        core: Arc<Core>,
        offset: u64,
        len: u64,
    ) -> Result<(), StoreError> {
        let end = check_range(offset, len)?.min(self.size().next_multiple_of(CLUSTER));
        if offset >= end {
            return Ok(());
        }
        let _range = self.lock_blocks(offset / CLUSTER * CLUSTER, end.next_multiple_of(CLUSTER)).await;
        let (first, last) = (offset.div_ceil(CLUSTER), end / CLUSTER);
        if first < last {
            self.zero_mapped(&core, offset, first * CLUSTER, Durability::Durable).await?;
            self.zero_mapped(&core, last * CLUSTER, end, Durability::Durable).await?;
            self.drop_clusters(&core, first, last).await
        } else {
            self.zero_mapped(&core, offset, end, Durability::Durable).await
        }
    }

    /// Makes holes of whole clusters. They leave the map first: a read that starts when they may be zeroed and
    /// reused must not find them there any more.
    pub(crate) async fn drop_clusters(&self, core: &Core, first: u64, last: u64) -> Result<(), StoreError> {
        if self.map.read().meeting(first, last).is_empty() {
            return Ok(());
        }
        self.map.write().remove(first, last);
        let key = self.key;
        core.metadata.change(move |session| session.unmap(key, first, last)).await?;
        core.attention.notify_one();
        Ok(())
    }

    /// Zeroes a range, keeping its clusters.
    pub(crate) async fn zero_range(
        self: Arc<Self>,
        core: Arc<Core>,
        offset: u64,
        len: u64,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let end = check_range(offset, len)?;
        if end > self.size() {
            Arc::clone(&self).set_size(Arc::clone(&core), end).await?;
        }
        let _range = self.lock_blocks(offset, end).await;
        self.zero_mapped(&core, offset, end, durability).await
    }

    /// The parts of a range that are mapped.
    pub(crate) fn allocated_ranges(
        &self,
        offset: u64,
        len: u64,
        limit: usize,
    ) -> Result<Vec<Range>, StoreError> {
        let end = check_range(offset, len)?.min(self.size());
        let mut ranges: Vec<Range> = Vec::new();
        if offset >= end {
            return Ok(ranges);
        }
        for segment in self.map.read().segments(offset, end - offset) {
            if segment.device.is_none() {
                continue;
            }
            if let Some(last) = ranges.last_mut()
                && last.offset + last.len == segment.offset
            {
                last.len += segment.len;
            } else if ranges.len() == limit {
                break;
            } else {
                ranges.push(Range { offset: segment.offset, len: segment.len });
            }
        }
        Ok(ranges)
    }
}
