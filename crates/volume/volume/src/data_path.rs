//! The data path of a stream: reads and writes.
//!
//! # Life of a write
//! 1. Its blocks are locked in the stream, so that overlapping changes happen one after another.
//! 2. Holes are mapped: the clusters that the write touches, and where it goes on behind others what comes next (`ahead.rs`).
//!    The clusters are zero (the free list's invariant), so mapped means readable, and later first writes to what was mapped
//!    ahead cost nothing more than overwrites.
//! 3. Blocks that are only partly written are read first.
//! 4. Clusters that others may use are replaced by ones that have the data, and a copy of what is around it.
//! 5. Data goes in place elsewhere.
//! 6. A durable write ends when the size is durable too; otherwise the next flush does it.
//!
//! Budget of an aligned overwrite: one range lock, one look at the map, one device write per extent, no
//! transaction, no copy. A write that began comes to its end even if its caller goes away.
//!
//! Bytes beyond the size, in mapped clusters, are undefined; whoever grows a stream zeroes them first.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::Durability;
use file_store::{StoreError, StoreErrorKind};
use futures_util::future::join_all;
use volume_format::{BLOCK, CLUSTER};

use crate::ahead::Clusters;
use crate::core::Core;
use crate::database_error::no_room_to_grow;
use crate::extents::Segment;
use crate::stream::{Stream, check_range};
use crate::unshare::Written;

impl Stream {
    /// Data changes now.
    pub(crate) fn touch(&self, core: &Core) {
        self.written.store(core.clock.wall().0.max(1), Ordering::Release);
    }

    /// Reads what lies before the end of the stream.
    pub(crate) async fn read(&self, core: &Core, offset: u64, mut buf: IoBuf) -> Result<IoBuf, StoreError> {
        check_range(offset, buf.len() as u64)?;
        let room = self.size().saturating_sub(offset);
        if (buf.len() as u64) > room {
            buf.truncate(room as usize);
        }
        self.read_mapped(core, offset, buf).await
    }

    /// Reads from the device and from holes, whatever the size says.
    pub(crate) async fn read_mapped(
        &self,
        core: &Core,
        offset: u64,
        mut buf: IoBuf,
    ) -> Result<IoBuf, StoreError> {
        let len = buf.len() as u64;
        if len == 0 {
            return Ok(buf);
        }
        let _reading = core.gate.enter();
        if !(offset | len).is_multiple_of(BLOCK) {
            let first = offset / BLOCK * BLOCK;
            let end = (offset + len).next_multiple_of(BLOCK);
            let around = Box::pin(self.read_aligned(core, first, IoBuf::new((end - first) as usize))).await?;
            let at = (offset - first) as usize;
            buf.copy_from_slice(&around[at..at + len as usize]);
            return Ok(buf);
        }
        self.read_aligned(core, offset, buf).await
    }

    async fn read_aligned(&self, core: &Core, offset: u64, mut buf: IoBuf) -> Result<IoBuf, StoreError> {
        let segments = self.map.read().segments(offset, buf.len() as u64);
        if let [only] = segments[..] {
            return read_segment(core, only, buf).await;
        }
        let parts = segments
            .into_iter()
            .map(|segment| read_segment(core, segment, buf.split_to(segment.len as usize)));
        let mut whole = IoBuf::new(0);
        for part in join_all(parts).await {
            if let Err(part) = whole.join(part?) {
                // A device gave back another buffer: rare, and worth a copy.
                let mut copy = IoBuf::new(whole.len() + part.len());
                copy[..whole.len()].copy_from_slice(&whole);
                copy[whole.len()..].copy_from_slice(&part);
                whole = copy;
            }
        }
        Ok(whole)
    }

    /// Writes `data`, growing the stream as needed. If it `lends`, as those of an open with volatile changes do, holes get clusters that
    /// are ready.
    pub(crate) async fn write(
        &self,
        core: &Core,
        offset: u64,
        data: SharedBuf,
        durability: Durability,
        lends: bool,
    ) -> Result<(), StoreError> {
        let end = check_range(offset, data.len() as u64)?;
        if data.is_empty() {
            return Ok(());
        }
        if end > self.size() {
            return self.write_growing(core, offset, data, durability, lends).await;
        }
        {
            let _blocks = self.lock_blocks(offset, end).await;
            self.write_locked(core, offset, data, durability, lends).await?;
        }
        self.touch(core);
        if durability == Durability::Durable { self.cover(core, end).await } else { Ok(()) }
    }

    async fn write_growing(
        &self,
        core: &Core,
        offset: u64,
        data: SharedBuf,
        durability: Durability,
        lends: bool,
    ) -> Result<(), StoreError> {
        let end = offset + data.len() as u64;
        let _sizing = self.sizing.lock().await;
        let size = self.size();
        if end > size && core.full {
            return Err(no_room_to_grow());
        }
        // Everything from the old end on changes its meaning. To the end of its last cluster, which goes if this fails.
        let _blocks = self.lock_blocks(offset.min(size), end.max(size).next_multiple_of(CLUSTER)).await;
        if end > size {
            self.zero_beyond(core, size, offset).await?;
        }
        let mut mapped = Vec::new();
        let written = self.write_mapping(core, offset, data, (durability, lends), &mut mapped).await;
        if let Err(error) = written {
            // Beyond the size nobody else has written to them.
            let from = offset.max(size.next_multiple_of(CLUSTER)) / CLUSTER;
            self.unmap_again(core, &error, &mapped, from, end.div_ceil(CLUSTER)).await;
            return Err(error);
        }
        self.touch(core);
        match durability {
            Durability::Durable => self.commit_size(core, end.max(size)).await,
            Durability::Volatile => {
                self.show_grown(core, end.max(size));
                Ok(())
            }
        }
    }

    pub(crate) async fn write_locked(
        &self,
        core: &Core,
        offset: u64,
        data: SharedBuf,
        durability: Durability,
        lends: bool,
    ) -> Result<(), StoreError> {
        let (first, last) = (offset.div_ceil(CLUSTER), (offset + data.len() as u64) / CLUSTER);
        let mut mapped = Vec::new();
        let written = self.write_mapping(core, offset, data, (durability, lends), &mut mapped).await;
        if let Err(error) = &written {
            // Others may have written to the rest of clusters that this has in part.
            self.unmap_again(core, error, &mapped, first, last).await;
        }
        written
    }

    /// Writes blocks that are locked; the holes that were mapped for that are `mapped`, whether it works or not.
    async fn write_mapping(
        &self,
        core: &Core,
        offset: u64,
        data: SharedBuf,
        (durability, lends): (Durability, bool),
        mapped: &mut Vec<Clusters>,
    ) -> Result<(), StoreError> {
        let (offset, data) = self.to_blocks(core, offset, data).await?;
        let written = Written { offset, data };
        let replaced = self.make_writable(core, &written, lends, mapped).await?;
        let Written { data, .. } = written;
        let mut segments = self.map.read().segments(offset, data.len() as u64);
        if !replaced.is_empty() {
            segments = without(segments, &replaced);
        }
        if let [Segment { device: Some(device), len, .. }] = segments[..]
            && len == data.len() as u64
        {
            return Ok(core.device.write(core.at(device), data, durability).await?);
        }
        let writes = segments.into_iter().map(|segment| {
            let from = (segment.offset - offset) as usize;
            let part = data.slice(from..from + segment.len as usize);
            async move {
                let Some(device) = segment.device else {
                    return Err(StoreError::new(
                        StoreErrorKind::Io,
                        "a hole is left where a write was prepared",
                    ));
                };
                Ok(core.device.write(core.at(device), part, durability).await?)
            }
        });
        // All end before the first error is told.
        join_all(writes).await.into_iter().collect()
    }

    /// After a write for which there was no space below: what was mapped for it becomes holes again, as far as it lies in the
    /// clusters `first..last`, which nobody else can have written. What fails here stays mapped, and reads as it did.
    async fn unmap_again(&self, core: &Core, why: &StoreError, mapped: &[Clusters], first: u64, last: u64) {
        if why.kind() != StoreErrorKind::NoSpace {
            return;
        }
        for (from, to) in mapped.iter().map(|(from, to)| (first.max(*from), last.min(*to))) {
            if from < to && self.drop_clusters(core, from, to, true).await.is_err() {
                return;
            }
        }
    }

    /// Whole blocks around `data`, the rest of them read back.
    pub(crate) async fn to_blocks(
        &self,
        core: &Core,
        offset: u64,
        data: SharedBuf,
    ) -> Result<(u64, SharedBuf), StoreError> {
        let end = offset + data.len() as u64;
        if (offset | end).is_multiple_of(BLOCK) {
            return Ok((offset, data));
        }
        // Another write may give the stream other clusters meanwhile, of which these are a part.
        let _reading = core.gate.enter();
        let first = offset / BLOCK * BLOCK;
        let last = end.next_multiple_of(BLOCK);
        let mut blocks = IoBuf::new((last - first) as usize);
        let edges = if last - first == BLOCK { vec![first] } else { vec![first, last - BLOCK] };
        for edge in edges {
            let read = self.read_aligned(core, edge, IoBuf::new(BLOCK as usize)).await?;
            let at = (edge - first) as usize;
            blocks[at..at + BLOCK as usize].copy_from_slice(&read);
        }
        let at = (offset - first) as usize;
        blocks[at..at + data.len()].copy_from_slice(&data);
        Ok((first, blocks.freeze()))
    }

    /// Compares and, if equal, writes, under one lock.
    pub(crate) async fn compare_and_write(
        &self,
        core: &Core,
        offset: u64,
        expected: SharedBuf,
        data: SharedBuf,
    ) -> Result<Option<u64>, StoreError> {
        let end = check_range(offset, expected.len() as u64)?;
        if expected.len() != data.len() || end > self.size() {
            return Err(StoreError::new(
                StoreErrorKind::InvalidArgument,
                "compare and write of different lengths, or beyond the end",
            ));
        }
        if data.is_empty() {
            return Ok(None);
        }
        {
            let _blocks = self.lock_blocks(offset, end).await;
            let present = self.read_mapped(core, offset, IoBuf::new(expected.len())).await?;
            if let Some(at) = present.iter().zip(expected.iter()).position(|(a, b)| a != b) {
                return Ok(Some(at as u64));
            }
            self.write_locked(core, offset, data, Durability::Durable, false).await?;
        }
        self.touch(core);
        self.cover(core, end).await?;
        Ok(None)
    }
}

/// What of segments lies outside of some clusters, which are in order.
fn without(segments: Vec<Segment>, clusters: &[Clusters]) -> Vec<Segment> {
    let mut left = Vec::new();
    for mut segment in segments {
        for (first, end) in clusters.iter().map(|(first, end)| (first * CLUSTER, end * CLUSTER)) {
            if end <= segment.offset || segment.offset + segment.len <= first {
                continue;
            }
            if segment.offset < first {
                left.push(Segment { len: first - segment.offset, ..segment });
            }
            let gone = end.min(segment.offset + segment.len) - segment.offset;
            segment.offset += gone;
            segment.len -= gone;
            segment.device = segment.device.map(|device| device + gone);
        }
        if segment.len > 0 {
            left.push(segment);
        }
    }
    left
}

async fn read_segment(core: &Core, segment: Segment, mut buf: IoBuf) -> Result<IoBuf, StoreError> {
    match segment.device {
        Some(device) => Ok(core.device.read(core.at(device), buf).await?),
        None => {
            buf.fill(0);
            Ok(buf)
        }
    }
}

/// Copies bytes of one stream to the other through memory, in pieces. Both ranges are locked.
pub(crate) async fn copy_bytes(
    core: &Core,
    source: &Arc<Stream>,
    from: u64,
    target: &Arc<Stream>,
    to: u64,
    len: u64,
) -> Result<(), StoreError> {
    const PIECE: u64 = 1 << 20;
    let mut done = 0;
    while done < len {
        let step = PIECE.min(len - done);
        let data = source.read_mapped(core, from + done, IoBuf::new(step as usize)).await?;
        target.write_locked(core, to + done, data.freeze(), Durability::Durable, false).await?;
        done += step;
    }
    Ok(())
}
