//! Opening: everything is checked before anything is used.
//!
//! ```text
//!   identifier ──► headers ──► log: replayed (to be written) or laid over (to be read) ──► region tables ──► metadata
//!                                          table checked, space claimed (to be written) ◄── parent compared ◄──┘
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use aligned_buffer::IoBuf;
use block_device::{Durability, Geometry, UnmapBehavior};
use file_store::OpenFile;
use shard_runtime::Entropy;
use vhdx_format::{
    BatLayout, Change, FileIdentifier, FormatError, HEADER_OFFSETS, HEADER_SIZE, Header, LOG_REPLAY_MAX,
    METADATA_TABLE_SIZE, MIB, Metadata, MetadataTable, ParentLocator, REGION_OFFSETS, REGION_TABLE_SIZE,
    Region, RegionTable, Replay, Uuid, current_header, find_replay,
};

use crate::error::{ImageError, ImageErrorKind, Result};
use crate::image::{Image, ImageInfo, Inner, Regions, creator_of, entry_at};
use crate::journal::{Journal, new_id};
use crate::memory::{Memory, Taken, unlimited};
use crate::pages::Pages;
use crate::source::{Overlay, Source};
use crate::space::{Extent, FILE_MAX, Space};
use crate::write::{is_anchored, is_present};

/// How much of the table is read at once, in bytes: others have their turn before what it says of 8,192 blocks is marked.
const PIECE: u64 = 64 << 10;

/// What an image is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The file is not changed: what a log says that was not closed is used in memory.
    Read,
    /// What a log says is done in the file first.
    Write,
}

/// An image whose structures are read, before its parent is known.
pub struct Opening {
    source: Source,
    mode: Mode,
    entropy: Arc<dyn Entropy>,
    memory: Arc<dyn Memory>,
    creator: String,
    journal: Journal,
    log: Region,
    regions: RegionTable,
    items: MetadataTable,
    metadata: Metadata,
    had_log: bool,
}

impl Opening {
    /// Reads the structures of a file. To be written, its log is replayed in it now.
    ///
    /// # Errors
    /// When it is no image, or one that cannot be used.
    pub async fn read(file: Arc<dyn OpenFile>, mode: Mode, entropy: &Arc<dyn Entropy>) -> Result<Self> {
        Self::read_within(file, mode, entropy, unlimited()).await
    }

    /// As [`Opening::read`], with what the image holds in memory taken from there.
    ///
    /// # Errors
    /// As [`Opening::read`], and when there is no memory for its log.
    pub async fn read_within(
        file: Arc<dyn OpenFile>,
        mode: Mode,
        entropy: &Arc<dyn Entropy>,
        memory: Arc<dyn Memory>,
    ) -> Result<Self> {
        let mut source = Source::new(file);
        if source.size() > FILE_MAX {
            return Err(ImageError::new(
                ImageErrorKind::NotAnImage,
                "the file is larger than an image can be",
            ));
        }
        let start = source.file.read(0, IoBuf::new(FileIdentifier::SIZE)).await?;
        let creator = creator_of(&start)?;
        let (mut current, mut header) = current_header(headers(&source).await?)?;
        let log = Region { offset: header.log_offset, length: header.log_length };
        let had_log = !header.log_guid.is_nil();
        let mut journal = Journal::new(current, header);
        if had_log {
            // The log, and what it says: for an image that is read, that stays.
            let mut taken = Taken::nothing(memory.clone());
            taken.need(2 * log.length.min(LOG_REPLAY_MAX) as usize)?;
            let replay = read_log(&source, &header, log).await?;
            match mode {
                Mode::Read => {
                    taken.shrink_to(log.length as usize);
                    source.lay_over(replay.changes, replay.last_file_offset, taken);
                }
                Mode::Write => {
                    (current, header) = replay_into(&source, replay, current, header, &**entropy).await?;
                    journal = Journal::new(current, header);
                }
            }
        }
        let [first, second] = region_tables(&source).await?;
        let regions = first.or(second)?;
        for region in regions.all() {
            if region.overlaps(&log) {
                return Err(ImageError::damaged(format!(
                    "the region at {:#x} lies over the log",
                    region.offset
                )));
            }
        }
        for region in regions.all().chain([log]) {
            if region.end() > source.size() {
                let told = format!("the region at {:#x} lies beyond the file's end", region.offset);
                return Err(ImageError::damaged(told));
            }
        }
        let (items, metadata) = read_metadata(&source, regions.metadata).await?;
        let layout = BatLayout::new(&metadata.parameters, metadata.logical_sector, metadata.disk_size);
        layout.fits(regions.bat.length)?;
        let entropy = Arc::clone(entropy);
        Ok(Self { source, mode, entropy, memory, creator, journal, log, regions, items, metadata, had_log })
    }

    /// Of a differencing disk: where its parent is.
    #[must_use]
    pub fn parent_locator(&self) -> Option<&ParentLocator> {
        self.metadata.parent.as_ref()
    }

    /// Whether the log had changes that are not in place.
    #[must_use]
    pub fn had_log(&self) -> bool {
        self.had_log
    }

    /// What is known of the image.
    #[must_use]
    pub fn info(&self) -> ImageInfo {
        ImageInfo {
            creator: self.creator.clone(),
            metadata: self.metadata.clone(),
            header: self.journal.header,
            regions: self.regions.clone(),
            had_log: self.had_log,
            file_size: self.source.size(),
        }
    }

    /// The image, with its parent if it has one. The parent must have been opened to be read.
    ///
    /// # Errors
    /// When the parent is not the one; when the table of an image to be written is damaged.
    pub async fn finish(self, parent: Option<Image>) -> Result<Image> {
        let parent = match (&self.metadata.parent, parent) {
            (None, _) => None,
            (Some(_), None) => return Err(ImageError::new(ImageErrorKind::Parent, "the parent is missing")),
            (Some(locator), Some(parent)) => {
                self.check_parent(locator, &parent).await?;
                Some(parent)
            }
        };
        let writable = self.mode == Mode::Write;
        let inner = self.build(parent);
        if writable {
            let mut wrong = None;
            inner
                .claim_all(|error| {
                    wrong.get_or_insert(error);
                })
                .await?;
            if let Some(error) = wrong {
                return Err(error);
            }
        }
        Ok(Image { inner: Arc::new(inner) })
    }

    pub(crate) fn build(self, parent: Option<Image>) -> Inner {
        let metadata = self.metadata;
        let geometry = Geometry {
            block_size: metadata.logical_sector,
            physical_block_size: metadata.physical_sector.max(metadata.logical_sector),
            optimal_io_size: 0,
            unmap: UnmapBehavior::Zeroes,
            rotational: false,
            read_only: self.mode == Mode::Read,
        };
        Inner {
            source: self.source,
            creator: self.creator,
            disk_size: AtomicU64::new(metadata.disk_size),
            metadata,
            items: self.items,
            had_log: self.had_log,
            geometry,
            parent,
            entropy: self.entropy,
            regions: parking_lot::Mutex::new(Regions::new(self.regions, self.log)),
            log: self.log,
            space: Space::within(Taken::nothing(self.memory.clone())),
            pages: Pages::new(self.memory),
            journal: tokio::sync::Mutex::new(self.journal),
            blocks: shard_runtime::RangeLocks::default(),
            growing: tokio::sync::Mutex::new(()),
            resizing: tokio::sync::Mutex::new(()),
            shape: std::sync::Arc::default(),
            stopped: AtomicBool::new(false),
            stop_told: tokio::sync::Notify::new(),
            begun: AtomicBool::new(false),
            resized: tokio::sync::Notify::new(),
        }
    }

    /// The id that the children of this image know it by.
    pub(crate) fn data_write_guid(&self) -> Uuid {
        self.journal.header.data_write_guid
    }

    async fn check_parent(&self, locator: &ParentLocator, parent: &Image) -> Result<()> {
        let wrong = |told: String| Err(ImageError::new(ImageErrorKind::Parent, told));
        check_linkage(locator, parent.data_write_guid().await)?;
        let theirs = parent.inner.metadata.logical_sector;
        if theirs != self.metadata.logical_sector {
            let ours = self.metadata.logical_sector;
            return wrong(format!("the parent has sectors of {theirs} bytes, and this image of {ours}"));
        }
        Ok(())
    }
}

/// # Errors
/// When a parent whose data has this id is not the one.
pub(crate) fn check_linkage(locator: &ParentLocator, guid: Uuid) -> Result<()> {
    if locator.is_parent(guid) {
        return Ok(());
    }
    let linkage = locator.get("parent_linkage").unwrap_or("none");
    Err(ImageError::new(
        ImageErrorKind::Parent,
        format!(
            "the parent was changed after this image was made from it, or is another one: its data has the id {{{guid}}}, and {linkage} is expected"
        ),
    ))
}

/// Both headers, each as it is.
pub(crate) async fn headers(source: &Source) -> Result<[Result<Header, FormatError>; 2]> {
    let mut both = Vec::new();
    for offset in HEADER_OFFSETS {
        let bytes = source.file.read(offset, IoBuf::new(HEADER_SIZE)).await?;
        both.push(Header::decode(&bytes));
    }
    <[_; 2]>::try_from(both).map_err(|_| ImageError::damaged("there are two headers"))
}

/// Both region tables, each as it is.
pub(crate) async fn region_tables(source: &Source) -> Result<[Result<RegionTable, FormatError>; 2]> {
    let mut both = Vec::new();
    for offset in REGION_OFFSETS {
        let bytes = source.bytes(offset, REGION_TABLE_SIZE).await?;
        both.push(RegionTable::decode(&bytes));
    }
    <[_; 2]>::try_from(both).map_err(|_| ImageError::damaged("there are two region tables"))
}

async fn read_log(source: &Source, header: &Header, log: Region) -> Result<Replay> {
    if log.length > LOG_REPLAY_MAX {
        let told = format!(
            "the log has {} MiB with changes that were not finished; at most {} MiB are replayed here: open and close it with the program that wrote it",
            u64::from(log.length) / MIB,
            u64::from(LOG_REPLAY_MAX) / MIB
        );
        return Err(ImageError::new(ImageErrorKind::Unsupported, told));
    }
    let bytes = source.bytes(log.offset, log.length as usize).await?;
    let replay = find_replay(&bytes, header.log_guid)?;
    if replay.flushed_file_offset > source.size() {
        return Err(ImageError::damaged(format!(
            "the file has {} bytes, and had {} when its log was written: it was cut",
            source.size(),
            replay.flushed_file_offset
        )));
    }
    let reach = source.size().max(replay.last_file_offset);
    if reach > FILE_MAX {
        return Err(ImageError::damaged("the log leads beyond the largest file"));
    }
    for change in &replay.changes {
        let (offset, len) = match change {
            Change::Data { offset, bytes } => (*offset, bytes.len() as u64),
            Change::Zero { offset, len } => (*offset, *len),
        };
        let end = offset.saturating_add(len);
        let over_log = offset < log.end() && log.offset < end;
        if offset < REGION_OFFSETS[0] || end > reach || over_log {
            return Err(ImageError::damaged(format!(
                "the log changes {offset:#x}+{len:#x}, where it may not"
            )));
        }
    }
    Ok(replay)
}

/// Does in the file what its log says, and then says that it is done. Which header is in force then, and what it says.
async fn replay_into(
    source: &Source,
    replay: Replay,
    current: usize,
    header: Header,
    entropy: &dyn Entropy,
) -> Result<(usize, Header)> {
    let file = &source.file;
    // The file gets another id before it is changed.
    let begun = Header { file_write_guid: new_id(entropy), ..header };
    let (mut current, mut header) = (current, header);
    let mut put = async |new: Header| -> Result<(usize, Header)> {
        let sequence = header
            .sequence
            .checked_add(1)
            .ok_or_else(|| ImageError::damaged("the header has the highest sequence number"))?;
        (current, header) = (1 - current, Header { sequence, ..new });
        let bytes = IoBuf::copy_from(&header.encode()).freeze();
        file.write(HEADER_OFFSETS[current], bytes, Durability::Volatile).await?;
        file.flush().await?;
        Ok((current, header))
    };
    put(begun).await?;
    if file.size() < replay.last_file_offset {
        file.set_size(replay.last_file_offset).await?;
    }
    let changes = Overlay::of(replay.changes);
    for range in changes.zeros() {
        file.punch_hole(range.start, range.end - range.start).await?;
    }
    for (offset, bytes) in changes.sectors {
        file.write(offset, IoBuf::copy_from(&bytes).freeze(), Durability::Volatile).await?;
    }
    file.flush().await?;
    // In both places: one that still led to the log would be in force if the other were damaged.
    let ended = Header { log_guid: Uuid::nil(), ..begun };
    put(ended).await?;
    put(ended).await
}

async fn read_metadata(source: &Source, region: Region) -> Result<(MetadataTable, Metadata)> {
    let table = source.bytes(region.offset, METADATA_TABLE_SIZE).await?;
    let items = MetadataTable::decode(&table, region.length)?;
    // An item has 1 MiB at most, and only those with a meaning here are read.
    let mut read = std::collections::BTreeMap::new();
    for item in items.known().filter(|item| item.length > 0) {
        let bytes = source.bytes(region.offset + u64::from(item.offset), item.length as usize).await?;
        read.insert(item.offset, bytes);
    }
    let metadata = Metadata::decode(&items, |place| {
        Ok(read.get(&place.offset).map(|bytes| bytes.to_vec()).unwrap_or_default())
    })?;
    Ok((items, metadata))
}

impl Inner {
    /// Marks the space of everything; tells what lies over something else or where nothing can, entry by entry. The number of
    /// payload blocks that are present.
    pub(crate) async fn claim_all(&self, mut tell: impl FnMut(ImageError)) -> Result<u64> {
        let (layout, bat) = (self.layout(), self.bat());
        let regions: Vec<Region> = self.regions.lock().table.all().chain([self.log]).collect();
        if !self.space.claim(Extent { at: 0, count: 1 })? {
            tell(ImageError::damaged("the file's beginning is used twice"));
        }
        for region in regions {
            if !self.space.claim(Extent::of(region.offset, u64::from(region.length)))? {
                tell(ImageError::damaged(format!("the region at {:#x} lies over another", region.offset)));
            }
        }
        let (mut number, mut present) = (0, 0);
        let end = bat.offset + layout.entries() * 8;
        // Where the file has nothing, entries are zeros, and lead nowhere: the table of a large disk that is new is not read at all.
        while let Some(at) = self.source.next_data(bat.offset + number * 8, end).await? {
            number = (at - bat.offset) / 8;
            let count = (layout.entries() - number).min(PIECE / 8);
            let bytes = self.source.bytes(bat.offset + number * 8, (count * 8) as usize).await?;
            for index in 0..count {
                let (entry, number) = (entry_at(&bytes, (index * 8) as usize), number + index);
                match self.claim_entry(&layout, number, entry) {
                    Ok(found) => present += u64::from(found),
                    // That is nothing wrong with the file.
                    Err(error) if error.kind() == ImageErrorKind::NoMemory => return Err(error),
                    Err(error) => tell(error),
                }
            }
            number += count;
        }
        self.space.settle_claims(self.source.size());
        Ok(present)
    }

    /// Marks the space of an entry's block; whether it is a payload block that is present.
    fn claim_entry(&self, layout: &BatLayout, number: u64, entry: vhdx_format::BatEntry) -> Result<bool> {
        let has_parent = layout.has_parent;
        let (claim, is_payload) = match layout.block_of(number) {
            Some(block) if block < layout.payload_blocks() => {
                let state = entry.payload_state(number, has_parent)?;
                let there = is_present(state) || is_anchored(state, entry.offset());
                (there.then(|| (entry.offset(), self.block_size())), is_present(state))
            }
            // Without a parent, and behind the last block, entries mean nothing.
            None if has_parent => (entry.bitmap_offset(number)?.map(|offset| (offset, MIB)), false),
            _ => (None, false),
        };
        if let Some((offset, len)) = claim {
            self.check_place(number, offset, len)?;
            if !self.space.claim(Extent::of(offset, len))? {
                return Err(ImageError::damaged(format!(
                    "BAT entry {number} leads to {offset:#x}, where another block is"
                )));
            }
        }
        Ok(is_payload)
    }
}
