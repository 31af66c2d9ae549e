//! An open image: a block device over a file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockError, BlockErrorKind, BlockFuture, Durability, Geometry, check_range};
use parking_lot::Mutex;
use shard_runtime::{Entropy, RangeLocks, finish_anyway};
use vhdx_format::{
    BatEntry, BatLayout, FIRST_REGION, FileIdentifier, Header, LOG_SECTOR, Metadata, MetadataTable,
    PayloadState, Region, RegionTable, Uuid,
};

use crate::error::{ImageError, Result, printable};
use crate::journal::Journal;
use crate::pages::Pages;
use crate::source::Source;
use crate::space::Space;

/// A virtual disk in a file.
pub struct Image {
    pub(crate) inner: Arc<Inner>,
}

/// What is known of an image.
#[derive(Clone, Debug)]
pub struct ImageInfo {
    /// The program that made it.
    pub creator: String,
    /// What its metadata says.
    pub metadata: Metadata,
    /// Its header.
    pub header: Header,
    /// Where its table and its metadata are.
    pub regions: RegionTable,
    /// Whether the log had entries when it was opened.
    pub had_log: bool,
    /// Bytes of the file.
    pub file_size: u64,
}

/// Where regions and log are.
pub(crate) struct Regions {
    pub(crate) table: RegionTable,
    /// All of them by their places; none overlaps another.
    by_place: Vec<Region>,
}

impl Regions {
    pub(crate) fn new(table: RegionTable, log: Region) -> Self {
        let mut by_place: Vec<Region> = table.all().chain([log]).collect();
        by_place.sort_by_key(|region| region.offset);
        Self { table, by_place }
    }

    /// Whether a range has a byte of one of them. A hostile file may have two thousand, and asks for each entry of its table.
    fn hit(&self, offset: u64, end: u64) -> bool {
        let before = self.by_place.partition_point(|region| region.offset < end);
        before > 0 && self.by_place[before - 1].end() > offset
    }
}

pub(crate) struct Inner {
    pub(crate) source: Source,
    pub(crate) creator: String,
    pub(crate) metadata: Metadata,
    pub(crate) items: MetadataTable,
    pub(crate) had_log: bool,
    pub(crate) geometry: Geometry,
    pub(crate) parent: Option<Image>,
    pub(crate) entropy: Arc<dyn Entropy>,
    /// Size of the disk in bytes; the metadata has the one at the opening.
    pub(crate) disk_size: AtomicU64,
    pub(crate) regions: Mutex<Regions>,
    pub(crate) log: Region,
    pub(crate) pages: Pages,
    pub(crate) space: Space,
    pub(crate) journal: tokio::sync::Mutex<Journal>,
    /// Payload blocks that get a place, or lose it.
    pub(crate) blocks: RangeLocks,
    /// Bitmap blocks that get a place, and growing of the file.
    pub(crate) growing: tokio::sync::Mutex<()>,
    /// One change of the size at a time.
    pub(crate) resizing: tokio::sync::Mutex<()>,
    /// What changes where everything is holds it alone.
    pub(crate) shape: Arc<tokio::sync::RwLock<()>>,
    pub(crate) stopped: AtomicBool,
    /// Told when it has.
    pub(crate) stop_told: tokio::sync::Notify,
    /// The file says that what users see has changed.
    pub(crate) begun: AtomicBool,
    pub(crate) resized: tokio::sync::Notify,
}

impl Inner {
    pub(crate) fn layout(&self) -> BatLayout {
        let size = self.disk_size.load(Ordering::Acquire);
        BatLayout::new(&self.metadata.parameters, self.metadata.logical_sector, size)
    }

    pub(crate) fn block_size(&self) -> u64 {
        u64::from(self.metadata.parameters.block_size)
    }

    pub(crate) fn sector(&self) -> u64 {
        u64::from(self.metadata.logical_sector)
    }

    pub(crate) fn bat(&self) -> Region {
        self.regions.lock().table.bat
    }

    /// The sector of the file that an entry of the table is in, and where in it.
    fn entry_place(&self, entry: u64) -> (u64, usize) {
        let at = entry * 8;
        let sector = LOG_SECTOR as u64;
        (self.bat().offset + at / sector * sector, (at % sector) as usize)
    }

    pub(crate) async fn entry(&self, entry: u64) -> Result<BatEntry> {
        let (page, at) = self.entry_place(entry);
        self.pages.look(&self.source, page, |bytes| entry_at(bytes, at)).await
    }

    /// Whether an entry of the table is durably what it is in memory.
    pub(crate) fn is_entry_settled(&self, entry: u64) -> bool {
        let (page, at) = self.entry_place(entry);
        self.pages.is_settled(page, at..at + 8)
    }

    pub(crate) async fn set_entry(&self, entry: u64, value: BatEntry) -> Result<()> {
        let (page, at) = self.entry_place(entry);
        let put = |bytes: &mut [u8]| bytes[at..at + 8].copy_from_slice(&value.0.to_le_bytes());
        self.pages.change(&self.source, page, put).await
    }

    /// What a payload block is, and where.
    pub(crate) async fn payload(&self, block: u64) -> Result<(PayloadState, u64)> {
        let number = self.layout().payload_entry(block);
        let entry = self.entry(number).await?;
        let state = entry.payload_state(number, self.metadata.parameters.has_parent)?;
        if matches!(state, PayloadState::FullyPresent | PayloadState::PartiallyPresent) {
            self.check_place(number, entry.offset(), self.block_size())?;
        }
        Ok((state, entry.offset()))
    }

    /// Where the bitmap block of a payload block is.
    pub(crate) async fn bitmap(&self, block: u64) -> Result<Option<u64>> {
        let number = self.layout().bitmap_entry(block);
        let offset = self.entry(number).await?.bitmap_offset(number)?;
        if let Some(offset) = offset {
            self.check_place(number, offset, vhdx_format::MIB)?;
        }
        Ok(offset)
    }

    /// # Errors
    /// When an entry of the table leads where no block can be.
    pub(crate) fn check_place(&self, entry: u64, offset: u64, len: u64) -> Result<()> {
        let wrong =
            |what: &str| ImageError::damaged(format!("BAT entry {entry} leads to {offset:#x}, which {what}"));
        let end = offset.checked_add(len).ok_or_else(|| wrong("is nowhere"))?;
        if offset < FIRST_REGION {
            return Err(wrong("is the file's beginning"));
        }
        if end > self.source.size() {
            return Err(wrong("lies beyond the file's end"));
        }
        if self.regions.lock().hit(offset, end) {
            return Err(wrong("lies in a region"));
        }
        Ok(())
    }

    /// Looks again, while the shape stays as it is: the disk may have become smaller while an operation waited for that.
    ///
    /// # Errors
    /// When a range does not lie within the disk any more.
    pub(crate) fn check_within(&self, offset: u64, len: u64) -> Result<()> {
        let size = self.disk_size.load(Ordering::Acquire);
        if offset.checked_add(len).is_some_and(|end| end <= size) {
            return Ok(());
        }
        let told = format!("{offset}+{len} lies beyond the end of the disk, which has become smaller");
        Err(ImageError::new(crate::ImageErrorKind::OutOfRange, told))
    }

    /// # Errors
    /// When nothing may be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.geometry.read_only {
            let told = "the image was opened to be read";
            return Err(ImageError::new(crate::ImageErrorKind::ReadOnly, told));
        }
        self.check_stopped()
    }
}

/// An image that nobody reads or writes, and whose file is whole without its log, until this is dropped.
#[derive(Debug)]
pub struct Held {
    _alone: tokio::sync::OwnedRwLockWriteGuard<()>,
}

pub(crate) fn entry_at(bytes: &[u8], at: usize) -> BatEntry {
    let mut entry = [0; 8];
    entry.copy_from_slice(&bytes[at..at + 8]);
    BatEntry(u64::from_le_bytes(entry))
}

impl Image {
    /// What is known of it.
    pub async fn info(&self) -> ImageInfo {
        let inner = &self.inner;
        let header = inner.journal.lock().await.header;
        let disk_size = inner.disk_size.load(Ordering::Acquire);
        ImageInfo {
            creator: inner.creator.clone(),
            metadata: Metadata { disk_size, ..inner.metadata.clone() },
            header,
            regions: inner.regions.lock().table.clone(),
            had_log: inner.had_log,
            file_size: inner.source.size(),
        }
    }

    /// The id that children know it by; it changes with the first write after an opening.
    pub async fn data_write_guid(&self) -> Uuid {
        self.inner.journal.lock().await.header.data_write_guid
    }

    /// Whether the places of blocks that were written are in memory only: the next flush, or a write that is to be durable, puts them
    /// into the file.
    #[must_use]
    pub fn is_unsettled(&self) -> bool {
        self.inner.pages.is_dirty()
    }

    /// Gives back memory that others need more, of its parents too. Whoever has many images open asks for it now and then.
    pub fn trim_memory(&self) {
        let mut next = Some(self);
        while let Some(image) = next {
            image.inner.pages.trim_if_tight();
            next = image.inner.parent.as_ref();
        }
    }

    /// Ends when the image has stopped: what it has not made durable is lost, and it does nothing more until it is opened again.
    pub async fn wait_stopped(&self) {
        loop {
            let told = self.inner.stop_told.notified();
            if self.inner.stopped.load(Ordering::Acquire) {
                return;
            }
            told.await;
        }
    }

    /// Makes everything durable and puts it in its place, so that no log has to be replayed: the last thing to do with it. An image
    /// that is dropped without it has what was flushed; the next opening replays its log.
    ///
    /// # Errors
    /// When the file fails.
    pub async fn close(&self) -> Result<()> {
        if self.inner.geometry.read_only {
            return Ok(());
        }
        self.hold().await.map(drop)
    }

    /// Makes everything durable and puts it in its place, as [`Image::close`] does, and lets nothing be read or written until what this
    /// gives is dropped: the file can be copied, or a snapshot taken of it, that is an image with no log to be replayed.
    ///
    /// # Errors
    /// When the file fails, or the image has stopped.
    pub async fn hold(&self) -> Result<Held> {
        let inner = Arc::clone(&self.inner);
        finish_anyway(async move {
            let alone = Arc::clone(&inner.shape).write_owned().await;
            if !inner.geometry.read_only {
                inner.commit().await?;
                inner.end_log().await?;
            }
            Ok(Held { _alone: alone })
        })
        .await
    }

    /// Where, from `offset` on and before `until`, the disk may hold something else than zeros next, in bytes. Nothing is read but
    /// the tables of the image and its parents.
    ///
    /// # Errors
    /// When a table is damaged, or the file fails.
    pub async fn next_data(&self, offset: u64, until: u64) -> Result<Option<u64>> {
        let _shape = self.inner.shape.read().await;
        self.inner.next_data(offset, until).await
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        check_range(offset, len, self.inner.geometry.block_size, self.size())
    }

    /// Changes the image, to the end even if nobody waits for it.
    fn change<W>(
        &self,
        doing: &'static str,
        (offset, len): (u64, u64),
        work: impl FnOnce(Arc<Inner>) -> W + 'static,
    ) -> BlockFuture<'_, ()>
    where
        W: Future<Output = Result<()>> + 'static,
    {
        Box::pin(async move {
            self.check(offset, len)?;
            if self.inner.geometry.read_only {
                return Err(BlockError::new(BlockErrorKind::ReadOnly, doing).at(offset, len));
            }
            if len == 0 {
                return Ok(());
            }
            let done = finish_anyway(work(Arc::clone(&self.inner))).await;
            done.map_err(|error| error.into_block(doing).at(offset, len))
        })
    }
}

impl BlockDevice for Image {
    fn geometry(&self) -> &Geometry {
        &self.inner.geometry
    }

    fn size(&self) -> u64 {
        self.inner.disk_size.load(Ordering::Acquire)
    }

    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        Box::pin(async move {
            let len = buf.len() as u64;
            self.check(offset, len)?;
            let read = self.inner.read(offset, buf).await;
            read.map_err(|error| error.into_block("read image").at(offset, len))
        })
    }

    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        let range = (offset, data.len() as u64);
        let work = async move |inner: Arc<Inner>| inner.write(offset, data, durability).await;
        self.change("write image", range, work)
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            if self.inner.geometry.read_only {
                return Ok(());
            }
            let inner = Arc::clone(&self.inner);
            let flushed = finish_anyway(async move {
                let _shape = inner.shape.read().await;
                inner.commit().await
            });
            flushed.await.map_err(|error| error.into_block("flush image"))
        })
    }

    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        let work = async move |inner: Arc<Inner>| inner.zero(offset, len, true, Durability::Volatile).await;
        self.change("unmap image", (offset, len), work)
    }

    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        let work = async move |inner: Arc<Inner>| inner.zero(offset, len, false, durability).await;
        self.change("zero image", (offset, len), work)
    }

    fn wait_resize(&self, known: u64) -> BlockFuture<'_, u64> {
        Box::pin(async move {
            loop {
                let resized = self.inner.resized.notified();
                let size = self.size();
                if size != known {
                    return Ok(size);
                }
                resized.await;
            }
        })
    }
}

/// Makes the file identifier's creator readable where it is shown.
pub(crate) fn creator_of(bytes: &[u8]) -> Result<String> {
    let identifier = FileIdentifier::decode(bytes).map_err(|error| {
        ImageError::new(crate::ImageErrorKind::NotAnImage, format!("this is no VHDX file: {error}"))
    })?;
    Ok(printable(&identifier.creator))
}
