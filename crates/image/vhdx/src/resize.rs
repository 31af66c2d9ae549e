//! Another size of the disk, while it is open.
//!
//! Growing prepares what the larger disk needs where the present one does not look; one entry of the log then changes size and
//! place of the table together. Shrinking gives up what lies behind the new end first: whoever shrinks a disk has said that
//! nobody needs it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use block_device::{BlockDevice, Durability};
use shard_runtime::finish_anyway;
use vhdx_format::{BatEntry, BatLayout, LOG_SECTOR, MIB, PayloadState, REGION_OFFSETS, Region};

use crate::create::check_size;
use crate::error::{ImageError, ImageErrorKind, Result};
use crate::image::{Image, Inner, Regions};
use crate::space::Extent;
use crate::write::{Part, is_anchored, is_present};

const SECTOR: u64 = LOG_SECTOR as u64;
/// Bytes of a moved table that are copied at once.
const PIECE: u64 = 1 << 20;

/// Space that was taken for the blocks of a larger disk, and how much of it blocks have got.
#[derive(Default)]
struct Room {
    extents: Vec<Extent>,
    /// The extent that the next block is in, and how many MiB of it are given.
    next: (usize, u64),
}

impl Room {
    /// Of a disk of many blocks most lie one behind the other.
    fn add(&mut self, extent: Extent) {
        match self.extents.last_mut() {
            Some(last) if last.at + last.count == extent.at => last.count += extent.count,
            _ => self.extents.push(extent),
        }
    }

    /// Where the next block has its place, in MiB.
    fn next(&mut self, count: u64) -> Option<u64> {
        let (index, given) = self.next;
        let extent = self.extents.get(index)?;
        let at = extent.at + given;
        self.next = if given + count < extent.count { (index, given + count) } else { (index + 1, 0) };
        Some(at)
    }
}

impl Image {
    /// Gives the disk another size, durably. What lies behind the end of a smaller one is lost; what a larger one has more reads
    /// as zeros.
    ///
    /// # Errors
    /// When no disk has that size, or the file fails; then the disk has the size that it had.
    pub async fn resize(&self, size: u64) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        finish_anyway(async move { inner.resize(size, None).await }).await
    }

    /// Gives the disk a size that is no smaller than the one it has then, durably: what a larger one has more reads as zeros. Of two
    /// sizes that are asked for at once, the smaller one takes nothing away from the larger. It is asked between blocks whether that is still
    /// `wanted`.
    ///
    /// # Errors
    /// [`ImageErrorKind::InvalidArgument`] when the disk is larger already, [`ImageErrorKind::Cancelled`] when it is not wanted any more, and
    /// those of [`Image::resize`].
    pub async fn grow(&self, size: u64, wanted: impl Fn() -> bool + 'static) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        finish_anyway(async move { inner.resize(size, Some(&wanted)).await }).await
    }
}

/// # Errors
/// When a growing is not wanted any more.
fn check_wanted(wanted: Option<&dyn Fn() -> bool>) -> Result<()> {
    if wanted.is_none_or(|wanted| wanted()) {
        return Ok(());
    }
    Err(ImageError::new(ImageErrorKind::Cancelled, "the disk was growing, and is not to grow any more"))
}

impl Inner {
    /// With `wanted` it only grows, and only as long as that is wanted.
    async fn resize(&self, size: u64, wanted: Option<&dyn Fn() -> bool>) -> Result<()> {
        let _one = self.resizing.lock().await;
        self.check_writable()?;
        check_size(size, self.metadata.logical_sector)?;
        // Nobody else changes it.
        let old = self.layout();
        if size == old.disk_size {
            return Ok(());
        }
        if wanted.is_some() && size < old.disk_size {
            let told = format!("the disk has {} bytes already, and is not to become smaller", old.disk_size);
            return Err(ImageError::new(ImageErrorKind::InvalidArgument, told));
        }
        let mut room = Room::default();
        if size > old.disk_size && self.metadata.parameters.leave_allocated && !old.has_parent {
            // Before the others stand still: zeros for terabytes take their time.
            self.begin_changes(false).await?;
            let new = BatLayout { disk_size: size, ..old };
            let blocks = new.payload_blocks() - old.payload_blocks();
            if let Err(error) = self.make_room(blocks, wanted, &mut room).await {
                let _alone = self.shape.write().await;
                self.give_back_all(room.extents).await;
                return Err(error);
            }
        }
        let _alone = self.shape.write().await;
        self.check_writable()?;
        self.begin_changes(true).await?;
        self.begun.store(true, Ordering::Release);
        let new = BatLayout { disk_size: size, ..old };
        if size < old.disk_size {
            self.give_up_behind(&old, &new).await?;
            self.commit().await?;
            self.put_shape(size, None).await?;
        } else {
            let mut table = None;
            let grown = async {
                self.zero_behind(&old, size).await?;
                let moved = self.prepare_table(&old, &new, wanted, (&mut room, &mut table)).await?;
                self.commit().await?;
                self.put_shape(size, moved).await
            };
            if let Err(error) = grown.await {
                self.give_back_all(room.extents.into_iter().chain(table).collect()).await;
                return Err(error);
            }
        }
        self.disk_size.store(size, Ordering::Release);
        self.resized.notify_waiters();
        if size < old.disk_size && self.metadata.parameters.leave_allocated {
            // Its blocks lie in their order, so what it had behind the new end lies at the file's end. The disk has its new size
            // already: a file that stays longer is cut by the next who compacts it.
            let _ = self.cut_file().await;
        }
        Ok(())
    }

    /// Takes space for so many blocks of a fixed disk, as zeros. Nothing leads there yet, so others go on meanwhile.
    async fn make_room(&self, blocks: u64, wanted: Option<&dyn Fn() -> bool>, room: &mut Room) -> Result<()> {
        let size = self.block_size();
        for _ in 0..blocks {
            check_wanted(wanted)?;
            let (extent, old) = self.room(size / MIB).await?;
            room.add(extent);
            if old {
                self.source.file.zero_range(extent.at * MIB, size, Durability::Volatile).await?;
            } else {
                self.source.file.allocate(extent.at * MIB, size, false).await?;
            }
        }
        Ok(())
    }

    /// After a growing that failed: what was taken for it is free, and the file as long as before. Nothing led there that counts:
    /// entries behind the last block of the disk mean nothing.
    async fn give_back_all(&self, taken: Vec<Extent>) {
        // After a failure of durability it is not known which size the file's structures say.
        if self.check_stopped().is_ok() {
            taken.into_iter().for_each(|extent| self.space.give_back(extent));
            // The error that is told is that of the growing; a file that stays longer is cut by the next who compacts it.
            let _ = self.cut_file().await;
        }
    }

    /// Cuts the file where its last used part ends. Nothing else goes on meanwhile, and nothing is dirty that leads behind it.
    pub(crate) async fn cut_file(&self) -> Result<()> {
        self.settle().await?;
        let end = self.space.end();
        if end < self.source.size() {
            // Entries of the log say how long the file is at least: none may count when it gets shorter.
            self.end_log().await?;
            self.source.file.set_size(end).await?;
            self.or_stop(self.sync().await)?;
        }
        // Not before: space that was not cut still holds what was there, and may not be taken for new.
        self.space.cut();
        Ok(())
    }

    /// Blocks behind the new end go; what their last one has behind it becomes zeros.
    async fn give_up_behind(&self, old: &BatLayout, new: &BatLayout) -> Result<()> {
        let within = new.disk_size % self.block_size();
        if within > 0 {
            let block = new.disk_size / self.block_size();
            let (state, place) = self.payload(block).await?;
            if is_present(state) {
                let len = self.block_size() - within;
                self.source.file.zero_range(place + within, len, Durability::Volatile).await?;
            }
        }
        // Until the size changes they can be seen: as zeros, not as what a parent has there.
        let gone = if old.has_parent { PayloadState::Zero } else { PayloadState::NotPresent };
        for block in new.payload_blocks()..old.payload_blocks() {
            let (state, offset) = self.payload(block).await?;
            let number = old.payload_entry(block);
            if self.entry(number).await? != BatEntry::payload(gone, 0) {
                self.set_entry(number, BatEntry::payload(gone, 0)).await?;
            }
            if is_present(state) || is_anchored(state, offset) {
                self.space.free(Extent::of(offset, self.block_size()));
            }
            if self.pages.is_full() {
                self.commit().await?;
            }
        }
        // A block that is partially present always has its bitmap: those go when no such block is left.
        self.commit().await?;
        for chunk in if old.has_parent { new.chunks()..old.chunks() } else { 0..0 } {
            let number = old.bitmap_entry(chunk * old.chunk_ratio());
            if let Some(offset) = self.entry(number).await?.bitmap_offset(number)? {
                self.set_entry(number, BatEntry(0)).await?;
                self.space.free(Extent::of(offset, MIB));
            }
            if self.pages.is_full() {
                self.commit().await?;
            }
        }
        Ok(())
    }

    /// What the last block has behind the old end becomes zeros, also where the parent has something.
    async fn zero_behind(&self, old: &BatLayout, size: u64) -> Result<()> {
        let within = old.disk_size % self.block_size();
        if within == 0 {
            return Ok(());
        }
        let block = old.disk_size / self.block_size();
        let parents = self.parent.as_ref().is_some_and(|parent| parent.size() > old.disk_size);
        let (state, _) = self.payload(block).await?;
        if is_present(state) || state == PayloadState::NotPresent && parents {
            let len = (self.block_size() - within).min(size - old.disk_size);
            self.zero_part(Part { block, within, len }, false, Durability::Volatile).await?;
        }
        Ok(())
    }

    /// Makes entries for the blocks that a larger disk has more: in the region of the table if they fit, else in a new one, which
    /// is given back.
    async fn prepare_table(
        &self,
        old: &BatLayout,
        new: &BatLayout,
        wanted: Option<&dyn Fn() -> bool>,
        (room, table): (&mut Room, &mut Option<Extent>),
    ) -> Result<Option<Region>> {
        let bat = self.bat();
        // The first that is not of a block that the disk has.
        let first = old.payload_entry(old.payload_blocks());
        if new.fits(bat.length).is_ok() {
            for number in first..new.entries() {
                let entry = self.new_entry(old, new, number, room).await?;
                if self.entry(number).await? != entry {
                    self.set_entry(number, entry).await?;
                }
                if self.pages.is_full() {
                    self.commit().await?;
                    check_wanted(wanted)?;
                }
            }
            return Ok(None);
        }
        // What is copied is what is in place.
        self.commit().await?;
        // Twice as much as needed, so that a disk that grows often does not move its table each time.
        let needed = (new.entries() * 8).next_multiple_of(MIB) as u32;
        let length = needed.max(bat.length.saturating_mul(2));
        let (extent, dirty) = self.room(u64::from(length) / MIB).await?;
        *table = Some(extent);
        let region = Region { offset: extent.at * MIB, length };
        if dirty {
            self.source.file.punch_hole(region.offset, u64::from(length)).await?;
        }
        let mut done = 0;
        while done < new.entries() * 8 {
            let step = PIECE.min(new.entries() * 8 - done);
            let mut bytes = vec![0; step as usize];
            let known = (first * 8).saturating_sub(done).min(step);
            let copied = self.source.bytes(bat.offset + done, known as usize).await?;
            bytes[..known as usize].copy_from_slice(&copied);
            for number in (done + known) / 8..(done + step) / 8 {
                let entry = self.new_entry(old, new, number, room).await?.0.to_le_bytes();
                bytes[(number * 8 - done) as usize..][..8].copy_from_slice(&entry);
            }
            self.put(region.offset + done, &bytes).await?;
            check_wanted(wanted)?;
            done += step;
        }
        Ok(Some(region))
    }

    /// The entry of a block that the disk has not had, or of a bitmap block that it may have.
    async fn new_entry(
        &self,
        old: &BatLayout,
        new: &BatLayout,
        number: u64,
        room: &mut Room,
    ) -> Result<BatEntry> {
        let block = match new.block_of(number) {
            None if old.has_parent && number < old.entries() => return self.entry(number).await,
            Some(block) if block < new.payload_blocks() => block,
            _ => return Ok(BatEntry(0)),
        };
        if self.metadata.parameters.leave_allocated && !new.has_parent {
            let at = room.next(self.block_size() / MIB);
            let at =
                at.ok_or_else(|| ImageError::damaged("there is no room for a block of the larger disk"))?;
            return Ok(BatEntry::payload(PayloadState::FullyPresent, at * MIB));
        }
        let parents = self.parent.as_ref().map_or(0, |parent| parent.size());
        let state =
            if block * self.block_size() < parents { PayloadState::Zero } else { PayloadState::NotPresent };
        Ok(BatEntry::payload(state, 0))
    }

    /// Puts another size, and maybe another place of the table, in force at once.
    async fn put_shape(&self, size: u64, bat: Option<Region>) -> Result<()> {
        let item = self.items.disk_size_place().ok_or_else(|| ImageError::damaged("the disk has no size"))?;
        let mut batch = Vec::new();
        let mut regions = self.regions.lock().table.clone();
        self.patch(&mut batch, regions.metadata.offset + u64::from(item.offset), &size.to_le_bytes()).await?;
        let before = bat.map(|bat| std::mem::replace(&mut regions.bat, bat));
        if bat.is_some() {
            for offset in REGION_OFFSETS {
                // All sectors: the checksum is over what lies behind the entries, too, which others may have left there.
                let bytes = regions.encode();
                let sectors = (offset..).step_by(LOG_SECTOR).zip(bytes.chunks(LOG_SECTOR));
                batch.extend(sectors.map(|(at, sector)| (at, sector.into())));
            }
        }
        {
            let mut journal = self.journal.lock().await;
            self.check_stopped()?;
            self.or_stop(self.commit_batch(&mut journal, batch).await)?;
        }
        if let Some(before) = before {
            *self.regions.lock() = Regions::new(regions, self.log);
            self.pages.forget()?;
            self.space.free(Extent::of(before.offset, u64::from(before.length)));
            let freed = self.space.take_freed();
            self.space.committed(freed);
        }
        Ok(())
    }

    /// Adds the sectors that `bytes` at `offset` change.
    pub(crate) async fn patch(
        &self,
        batch: &mut Vec<(u64, Box<[u8]>)>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<()> {
        let first = offset / SECTOR * SECTOR;
        let last = (offset + bytes.len() as u64).next_multiple_of(SECTOR);
        let mut sectors = self.source.bytes(first, (last - first) as usize).await?.to_vec();
        sectors[(offset - first) as usize..][..bytes.len()].copy_from_slice(bytes);
        let offsets = (first..).step_by(LOG_SECTOR);
        batch.extend(offsets.zip(sectors.chunks(LOG_SECTOR)).map(|(at, sector)| (at, sector.into())));
        Ok(())
    }
}
