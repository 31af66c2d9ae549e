//! Making an image.
//!
//! The identifier is written last, so that what was not finished is not taken for an image.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::Durability;
use file_store::OpenFile;
use shard_runtime::Entropy;
use vhdx_format::{
    BLOCK_SIZE_MAX, BLOCK_SIZE_MIN, BatEntry, BatLayout, DISK_SIZE_MAX, FileIdentifier, FileParameters,
    HEADER_OFFSETS, Header, MIB, Metadata, ParentLocator, PayloadState, REGION_OFFSETS, Region, RegionTable,
    Uuid,
};

use crate::error::{ImageError, Result};
use crate::journal::new_id;

/// Bytes of a block where nothing else is said: of fixed and dynamic disks, as Hyper-V makes them.
pub const BLOCK_SIZE: u32 = 32 << 20;
/// Bytes of a block of a differencing disk where nothing else is said, as Hyper-V makes them.
pub const DIFFERENCING_BLOCK_SIZE: u32 = 2 << 20;
/// Who made the file, for people.
const CREATOR: &str = concat!("Holdfast ", env!("CARGO_PKG_VERSION"));
/// Entries of the table that are written at once.
const ENTRIES_AT_ONCE: u64 = 1 << 16;

/// What kind of image is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All space is the file's from the beginning.
    Fixed,
    /// Blocks get their space with their first write.
    Dynamic,
    /// A dynamic disk over a parent, which it finds by this.
    Differencing(ParentLocator),
}

/// What an image shall be.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Size of the disk in bytes.
    pub size: u64,
    /// How its blocks get their space.
    pub kind: Kind,
    /// Bytes of a block: a power of two from 1 MiB to 256 MiB; a usual one, if there is none.
    pub block_size: Option<u32>,
    /// Bytes of a logical sector: 512 or 4096.
    pub logical_sector: u32,
    /// Bytes of a physical sector: 512 or 4096.
    pub physical_sector: u32,
}

impl CreateOptions {
    /// A disk of `size` bytes as most are: sectors of 512 bytes that lie on some of 4096.
    #[must_use]
    pub fn new(size: u64, kind: Kind) -> Self {
        Self { size, kind, block_size: None, logical_sector: 512, physical_sector: 4096 }
    }

    fn metadata(&self, entropy: &dyn Entropy) -> Result<Metadata> {
        let usual = match self.kind {
            Kind::Differencing(_) => DIFFERENCING_BLOCK_SIZE,
            Kind::Fixed | Kind::Dynamic => BLOCK_SIZE,
        };
        let block_size = self.block_size.unwrap_or(usual);
        if !block_size.is_power_of_two() || !(BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(&block_size) {
            return Err(ImageError::argument("a block has a power of two of bytes, from 1 MiB to 256 MiB"));
        }
        if ![512, 4096].contains(&self.logical_sector) || ![512, 4096].contains(&self.physical_sector) {
            return Err(ImageError::argument("a sector has 512 or 4096 bytes"));
        }
        if self.physical_sector < self.logical_sector {
            return Err(ImageError::argument("a physical sector is not smaller than a logical one"));
        }
        check_size(self.size, self.logical_sector)?;
        let parent = match &self.kind {
            Kind::Differencing(locator) => Some(locator.clone()),
            Kind::Fixed | Kind::Dynamic => None,
        };
        Ok(Metadata {
            parameters: FileParameters {
                block_size,
                leave_allocated: self.kind == Kind::Fixed,
                has_parent: parent.is_some(),
            },
            disk_size: self.size,
            disk_id: new_id(entropy),
            logical_sector: self.logical_sector,
            physical_sector: self.physical_sector,
            parent,
        })
    }
}

/// # Errors
/// When no disk has this size.
pub(crate) fn check_size(size: u64, logical_sector: u32) -> Result<()> {
    if size == 0 || size > DISK_SIZE_MAX {
        return Err(ImageError::argument("a disk has at least one sector and at most 64 TiB"));
    }
    if !size.is_multiple_of(u64::from(logical_sector)) {
        return Err(ImageError::argument(format!(
            "the disk's size is not a multiple of its sectors of {logical_sector} bytes"
        )));
    }
    Ok(())
}

/// Makes an image in an empty file, durably.
///
/// # Errors
/// When no disk can be like that, the file is not empty, or it fails; what is in it then is no image.
pub async fn create(file: &Arc<dyn OpenFile>, options: &CreateOptions, entropy: &dyn Entropy) -> Result<()> {
    if file.size() != 0 {
        return Err(ImageError::argument("the file is not empty"));
    }
    let metadata = options.metadata(entropy)?;
    let layout = BatLayout::new(&metadata.parameters, metadata.logical_sector, metadata.disk_size);
    let region = |offset, len: u64| Region { offset, length: len.next_multiple_of(MIB) as u32 };
    let (log, metadata_region) = (region(MIB, MIB), region(2 * MIB, MIB));
    let bat = region(metadata_region.end(), layout.entries() * 8);
    let table = RegionTable { bat, metadata: metadata_region, others: Vec::new() };
    let items = metadata.encode(metadata_region.length).ok_or_else(|| {
        ImageError::argument("the paths of the parent are too long for the image's metadata")
    })?;
    let put = async |offset: u64, bytes: &[u8]| -> Result<()> {
        Ok(file.write(offset, IoBuf::copy_from(bytes).freeze(), Durability::Volatile).await?)
    };
    let fixed = options.kind == Kind::Fixed;
    let block_size = u64::from(metadata.parameters.block_size);
    let blocks = if fixed { layout.payload_blocks() * block_size } else { 0 };
    file.set_size(bat.end() + blocks).await?;
    if fixed {
        file.allocate(bat.end(), blocks, false).await?;
        put_fixed_table(&layout, bat, put).await?;
    }
    put(metadata_region.offset, &items).await?;
    for offset in REGION_OFFSETS {
        put(offset, &table.encode()).await?;
    }
    let header = Header {
        sequence: 0,
        file_write_guid: new_id(entropy),
        data_write_guid: new_id(entropy),
        log_guid: Uuid::nil(),
        log_length: log.length,
        log_offset: log.offset,
    };
    for (sequence, offset) in (1..).zip(HEADER_OFFSETS) {
        put(offset, &Header { sequence, ..header }.encode()).await?;
    }
    file.flush().await?;
    put(0, &FileIdentifier { creator: CREATOR.into() }.encode()).await?;
    Ok(file.flush().await?)
}

/// Writes a table whose blocks lie one behind the other, right after it.
async fn put_fixed_table(
    layout: &BatLayout,
    bat: Region,
    put: impl AsyncFn(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut first = 0;
    while first < layout.entries() {
        let count = (layout.entries() - first).min(ENTRIES_AT_ONCE);
        let mut bytes = Vec::with_capacity((count * 8) as usize);
        for number in first..first + count {
            let entry = layout.block_of(number).map_or(BatEntry(0), |block| {
                let offset = bat.end() + block * u64::from(layout.block_size);
                BatEntry::payload(PayloadState::FullyPresent, offset)
            });
            bytes.extend(entry.0.to_le_bytes());
        }
        put(bat.offset + first * 8, &bytes).await?;
        first += count;
    }
    Ok(())
}
