//! Writing, zeroing and unmapping.
//!
//! ```text
//!   not present ──write──► take space ──► content ──► (sector bitmap) ──► entry in memory ──commit──► durable
//!   present     ──write──► in place
//!   present     ──zero all of it──► entry says zeros ──commit──► its space is free
//! ```
//! What looks a place up may use it until its operation ends (`space`), so content is written without a lock; only who gives a
//! block a place, or takes it away, holds the block.

use aligned_buffer::SharedBuf;
use block_device::Durability;
use std::ops::Range;
use std::sync::atomic::Ordering;
use vhdx_format::{BatEntry, LOG_SECTOR, MIB, PayloadState};

use crate::bits::put_bits;
use crate::error::{ImageError, ImageErrorKind, Result};
use crate::image::Inner;
use crate::space::Extent;

const PAGE: u64 = LOG_SECTOR as u64;
/// Where the numbers of bitmap blocks begin among the blocks that are locked.
const BITMAP_LOCKS: u64 = 1 << 40;

/// A part of a payload block.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) block: u64,
    /// In bytes, from the block's beginning.
    pub(crate) within: u64,
    pub(crate) len: u64,
}

/// What an operation does to its range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Content,
    /// Of a whole block the entry says so, whatever place it has, but in an image whose blocks keep their places.
    Zeros,
}

impl Inner {
    /// The parts of a range, by block.
    fn parts(&self, offset: u64, len: u64) -> impl Iterator<Item = Part> + use<> {
        let (size, end) = (self.block_size(), offset + len);
        (offset / size..end.div_ceil(size)).map(move |block| {
            let (from, to) = (offset.max(block * size), end.min((block + 1) * size));
            Part { block, within: from - block * size, len: to - from }
        })
    }

    /// Whether a part is all of the disk that its block has.
    fn is_whole(&self, part: Part) -> bool {
        let size = self.disk_size.load(Ordering::Acquire) - part.block * self.block_size();
        part.within == 0 && part.len >= size.min(self.block_size())
    }

    /// Before a change: says in the file that what users see changes, before the first time, and makes sure that memory has room for it.
    async fn begin(&self, (offset, len): (u64, u64), change: Change) -> Result<()> {
        self.check_writable()?;
        if !self.begun.load(Ordering::Acquire) {
            self.begin_changes(true).await?;
            self.begun.store(true, Ordering::Release);
        }
        if !self.pages.is_full() {
            return Ok(());
        }
        match self.commit().await {
            // There is no space for what was changed before: until there is, no more comes together in memory. What changes nothing
            // there goes on.
            Err(full) if full.kind() == ImageErrorKind::NoSpace => {
                for part in self.parts(offset, len) {
                    let stays = self.metadata.parameters.leave_allocated;
                    let goes = change == Change::Zeros && self.is_whole(part) && !stays;
                    if goes || !self.is_in_place(part).await? {
                        return Err(full);
                    }
                }
                Ok(())
            }
            other => other,
        }
    }

    /// Makes durable what an operation has done to this range, where that is asked for, or enough has come together. What others have
    /// done and the operation does not rely on is none of its business: there may be no space for that.
    async fn end(&self, (offset, len): (u64, u64), durability: Durability) -> Result<()> {
        if durability == Durability::Durable {
            for part in self.parts(offset, len) {
                if !self.is_settled(part).await? {
                    return self.commit().await;
                }
            }
        }
        if !self.pages.is_full() {
            return Ok(());
        }
        match self.commit().await {
            // Whoever changes more is told.
            Err(full) if full.kind() == ImageErrorKind::NoSpace => Ok(()),
            other => other,
        }
    }

    /// Whether writes to a part of a block change nothing but the content of its place.
    async fn is_in_place(&self, part: Part) -> Result<bool> {
        match self.payload(part.block).await?.0 {
            PayloadState::FullyPresent => Ok(true),
            PayloadState::PartiallyPresent => {
                let (first, count) = (part.within / self.sector(), part.len / self.sector());
                let bits = self.bits(part.block, first, count).await?;
                Ok(bits.into_iter().all(|(present, _)| present))
            }
            _ => Ok(false),
        }
    }

    /// Whether all that says where a part of a block is, and what it is, is durable.
    async fn is_settled(&self, part: Part) -> Result<bool> {
        if !self.pages.is_dirty() {
            return Ok(true);
        }
        let layout = self.layout();
        if !self.is_entry_settled(layout.payload_entry(part.block)) {
            return Ok(false);
        }
        if self.payload(part.block).await?.0 != PayloadState::PartiallyPresent {
            return Ok(true);
        }
        if !self.is_entry_settled(layout.bitmap_entry(part.block)) {
            return Ok(false);
        }
        let Some(bitmap) = self.bitmap(part.block).await? else { return Ok(false) };
        Ok(self.bit_places(bitmap, part).all(|(page, bits)| {
            let bytes = bits.start / 8..bits.end.div_ceil(8);
            self.pages.is_settled(page, bytes.start as usize..bytes.end as usize)
        }))
    }

    /// The sectors of a bitmap block that hold the bits of a part, and which of their bits these are.
    fn bit_places(&self, bitmap: u64, part: Part) -> impl Iterator<Item = (u64, Range<u64>)> + use<> {
        let first = self.layout().first_bit(part.block) + part.within / self.sector();
        let end = first + part.len / self.sector();
        let of_page = PAGE * 8;
        (first / of_page..end.div_ceil(of_page)).map(move |page| {
            let (from, to) = (first.max(page * of_page), end.min((page + 1) * of_page));
            (bitmap + page * PAGE, from - page * of_page..to - page * of_page)
        })
    }

    /// Writes `data` at `offset`, whose range lay within the disk when that was asked for.
    pub(crate) async fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> Result<()> {
        let _shape = self.shape.read().await;
        let range = (offset, data.len() as u64);
        self.check_within(offset, data.len() as u64)?;
        self.begin(range, Change::Content).await?;
        let operation = self.space.begin();
        let mut done = 0;
        for part in self.parts(range.0, range.1) {
            let content = data.slice(done..done + part.len as usize);
            done += part.len as usize;
            self.write_part(part, content, durability).await?;
        }
        drop(operation);
        self.end(range, durability).await
    }

    async fn write_part(&self, part: Part, content: SharedBuf, durability: Durability) -> Result<()> {
        let (mut state, mut place) = self.payload(part.block).await?;
        let _held;
        if !is_present(state) {
            _held = self.blocks.lock(part.block, 1).await;
            // Somebody else may have been first.
            (state, place) = self.payload(part.block).await?;
            if !is_present(state) {
                return self.give_place(part, (state, place), Some(content)).await;
            }
        }
        self.source.file.write(place + part.within, content, durability).await?;
        if state == PayloadState::PartiallyPresent {
            self.set_bits(part, true).await?;
        }
        Ok(())
    }

    /// Gives a block that is not present a place, with content in one part of it; zeros, if there is none.
    async fn give_place(
        &self,
        part: Part,
        (state, anchor): (PayloadState, u64),
        content: Option<SharedBuf>,
    ) -> Result<()> {
        let size = self.block_size();
        let (extent, old) = self.room(size / MIB).await?;
        let at = extent.at * MIB;
        let prepared = async {
            let covered = content.as_ref().is_some_and(|content| content.len() as u64 == size);
            if old && !covered {
                self.source.file.punch_hole(at, size).await?;
            }
            if let Some(content) = content {
                self.source.file.write(at + part.within, content, Durability::Volatile).await?;
            }
            let from_parent =
                state == PayloadState::NotPresent && self.parent.is_some() && !self.is_whole(part);
            let state = if from_parent {
                self.give_bitmap(part.block).await?;
                self.set_bits(Part { within: 0, len: size, ..part }, false).await?;
                self.set_bits(part, true).await?;
                PayloadState::PartiallyPresent
            } else {
                PayloadState::FullyPresent
            };
            self.set_entry(self.layout().payload_entry(part.block), BatEntry::payload(state, at)).await
        };
        if let Err(error) = prepared.await {
            self.space.give_back(extent);
            return Err(error);
        }
        if is_anchored(state, anchor) {
            self.space.free(Extent::of(anchor, size));
        }
        Ok(())
    }

    /// Takes space for `count` MiB: where, and whether something else may have been there.
    pub(crate) async fn room(&self, count: u64) -> Result<(Extent, bool)> {
        let (extent, old) = self.space.take(count, None).ok_or_else(|| {
            ImageError::new(ImageErrorKind::NoSpace, "the file is as large as an image can be")
        })?;
        let end = (extent.at + extent.count) * MIB;
        let file = &self.source.file;
        if file.size() < end {
            let _one = self.growing.lock().await;
            if file.size() < end
                && let Err(error) = file.set_size(end).await
            {
                self.space.give_back(extent);
                return Err(error.into());
            }
        }
        Ok((extent, old))
    }

    /// Gives a block's chunk a sector bitmap, if it has none.
    async fn give_bitmap(&self, block: u64) -> Result<()> {
        let entry = self.layout().bitmap_entry(block);
        let _held = self.blocks.lock(BITMAP_LOCKS + entry, 1).await;
        if self.bitmap(block).await?.is_some() {
            return Ok(());
        }
        let (extent, old) = self.room(1).await?;
        let at = extent.at * MIB;
        let given = async {
            if old {
                self.source.file.punch_hole(at, MIB).await?;
            }
            self.set_entry(entry, BatEntry::bitmap(at)).await
        };
        let given = given.await;
        if given.is_err() {
            self.space.give_back(extent);
        }
        given
    }

    /// Says of a part of a block whether it is in this file.
    async fn set_bits(&self, part: Part, value: bool) -> Result<()> {
        let bitmap = self.bitmap(part.block).await?.ok_or_else(|| {
            ImageError::damaged(format!("block {} is partially present and has no sector bitmap", part.block))
        })?;
        for (page, bits) in self.bit_places(bitmap, part) {
            let (first, count) = (bits.start, bits.end - bits.start);
            self.pages.change(&self.source, page, |bytes| put_bits(bytes, first, count, value)).await?;
        }
        Ok(())
    }

    /// Makes a range read as zeros; with `unmap`, its space goes where that is possible. The range lay within the
    /// disk when that was asked for.
    pub(crate) async fn zero(
        &self,
        offset: u64,
        len: u64,
        unmap: bool,
        durability: Durability,
    ) -> Result<()> {
        let _shape = self.shape.read().await;
        self.check_within(offset, len)?;
        for part in self.parts(offset, len) {
            let range = (part.block * self.block_size() + part.within, part.len);
            self.begin(range, Change::Zeros).await?;
            let operation = self.space.begin();
            self.zero_part(part, unmap, durability).await?;
            drop(operation);
        }
        self.end((offset, len), durability).await
    }

    pub(crate) async fn zero_part(&self, part: Part, unmap: bool, durability: Durability) -> Result<()> {
        let keeps = self.metadata.parameters.leave_allocated;
        let whole = self.is_whole(part);
        let (mut state, mut place) = self.payload(part.block).await?;
        let _held;
        if !is_present(state) || whole && !keeps {
            _held = self.blocks.lock(part.block, 1).await;
            (state, place) = self.payload(part.block).await?;
        }
        match state {
            PayloadState::Undefined | PayloadState::Zero | PayloadState::Unmapped => Ok(()),
            PayloadState::NotPresent if self.parent.is_none() => Ok(()),
            PayloadState::NotPresent if whole => self.set_zero(part.block).await,
            PayloadState::NotPresent => self.give_place(part, (state, place), None).await,
            PayloadState::FullyPresent | PayloadState::PartiallyPresent if whole && !keeps => {
                self.set_zero(part.block).await?;
                self.space.free(Extent::of(place, self.block_size()));
                Ok(())
            }
            PayloadState::FullyPresent | PayloadState::PartiallyPresent => {
                let (file, at) = (&self.source.file, place + part.within);
                if unmap && !keeps {
                    file.punch_hole(at, part.len).await?;
                } else {
                    file.zero_range(at, part.len, durability).await?;
                }
                if state == PayloadState::PartiallyPresent {
                    self.set_bits(part, true).await?;
                }
                Ok(())
            }
        }
    }

    /// A block is zeros. `Zero`, not `Unmapped`: others may show anything for that, and our users were promised zeros.
    pub(crate) async fn set_zero(&self, block: u64) -> Result<()> {
        self.set_entry(self.layout().payload_entry(block), BatEntry::payload(PayloadState::Zero, 0)).await
    }
}

/// Whether a block has a place that its content is read from.
pub(crate) fn is_present(state: PayloadState) -> bool {
    matches!(state, PayloadState::FullyPresent | PayloadState::PartiallyPresent)
}

/// Whether a block that is not present keeps a place all the same. For `Zero` the place is reserved, and means nothing.
pub(crate) fn is_anchored(state: PayloadState, offset: u64) -> bool {
    offset != 0 && matches!(state, PayloadState::Undefined | PayloadState::Unmapped)
}
