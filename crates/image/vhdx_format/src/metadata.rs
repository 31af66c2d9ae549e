//! The metadata region (MS-VHDX 2.6): a table of items at its beginning, and the items from 64 KiB on.
//!
//! ```text
//!   0            8       10           12        32
//!   | "metadata" | zeros | EntryCount | zeros   | entries of 32 bytes, at most 2047 … | zeros to 64 KiB | items …
//!                                               0        16       20       24      28
//!                                               | ItemId | Offset | Length | flags | zeros |   flags: 1 user, 2 disk, 4 required
//!
//!   FileParameters:  0           4
//!                    | BlockSize | flags: 1 leave blocks allocated (a fixed disk), 2 has a parent |
//!   VirtualDiskSize: 8 bytes    Page83Data (the disk's id): a GUID    LogicalSectorSize, PhysicalSectorSize: 4 bytes
//! ```
//! A system item that is not known and required makes the file unusable.

use byte_codec::{DecodeError, Reader, Writer};
use uuid::Uuid;

use crate::error::at;
use crate::{FormatError, MIB, ParentLocator};

const TABLE: &str = "metadata table";
const SIGNATURE: &[u8; 8] = b"metadata";
/// Entries that fit, of system and user together.
const ENTRIES_MAX: u16 = 2047;
/// Of these, those of users.
const USER_ENTRIES_MAX: usize = 1024;
/// Bytes of an item at most.
const ITEM_MAX: u32 = 1 << 20;
const FLAG_USER: u32 = 1;
const FLAG_DISK: u32 = 2;
const FLAG_REQUIRED: u32 = 4;

const FILE_PARAMETERS: Uuid = Uuid::from_u128(0xcaa1_6737_fa36_4d43_b3b6_33f0_aa44_e76b);
const DISK_SIZE: Uuid = Uuid::from_u128(0x2fa5_4224_cd1b_4876_b211_5dbe_d83b_f4b8);
const PAGE_83: Uuid = Uuid::from_u128(0xbeca_12ab_b2e6_4523_93ef_c309_e000_c746);
const LOGICAL_SECTOR: Uuid = Uuid::from_u128(0x8141_bf1d_a96f_4709_ba47_f233_a8fa_ab5f);
const PHYSICAL_SECTOR: Uuid = Uuid::from_u128(0xcda3_48c7_445d_4471_9cc9_e988_5251_c556);
const PARENT_LOCATOR: Uuid = Uuid::from_u128(0xa8d3_5f2d_b30b_454d_abf7_d3d8_4834_ab0c);

/// Items that have a meaning here.
const KNOWN: [Uuid; 6] =
    [FILE_PARAMETERS, DISK_SIZE, PAGE_83, LOGICAL_SECTOR, PHYSICAL_SECTOR, PARENT_LOCATOR];

/// Bytes of the table; items begin behind it.
pub const METADATA_TABLE_SIZE: usize = 64 << 10;
/// Smallest payload block, in bytes.
pub const BLOCK_SIZE_MIN: u32 = 1 << 20;
/// Largest payload block, in bytes.
pub const BLOCK_SIZE_MAX: u32 = 256 << 20;
/// Largest disk, in bytes: 64 TiB.
pub const DISK_SIZE_MAX: u64 = 64 << 40;

/// Where an item lies in the metadata region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemPlace {
    /// Its id.
    pub id: Uuid,
    /// Whether a user, not the format, gives it its meaning.
    pub user: bool,
    /// From the region's beginning, in bytes; 0 when the item is empty.
    pub offset: u32,
    /// Its length in bytes.
    pub length: u32,
}

/// Which items there are, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataTable {
    /// In the order of the table.
    pub items: Vec<ItemPlace>,
}

impl MetadataTable {
    /// From the first bytes of a metadata region of `region` bytes.
    ///
    /// # Errors
    /// When it is damaged, has items outside of the region or over each other, or needs what is not known.
    pub fn decode(bytes: &[u8], region: u32) -> Result<Self, FormatError> {
        let wrong = at(TABLE);
        let bytes = bytes.get(..METADATA_TABLE_SIZE).ok_or_else(|| wrong(DecodeError::Truncated))?;
        let mut reader = Reader::new(bytes);
        if reader.raw(8).map_err(&wrong)? != SIGNATURE {
            return Err(wrong(DecodeError::WrongMagic));
        }
        reader.u16().map_err(&wrong)?;
        let count = reader.u16().map_err(&wrong)?;
        reader.raw(20).map_err(&wrong)?;
        if count > ENTRIES_MAX {
            return Err(wrong(DecodeError::Invalid("number of entries")));
        }
        let mut items: Vec<ItemPlace> = Vec::with_capacity(usize::from(count));
        for number in 0..u64::from(count) {
            let entry = |why| FormatError::new("metadata item", why).number(number);
            let id = Uuid::from_bytes_le(reader.guid().map_err(entry)?);
            let (offset, length) = (reader.u32().map_err(entry)?, reader.u32().map_err(entry)?);
            let flags = reader.u32().map_err(entry)?;
            reader.u32().map_err(entry)?;
            let user = flags & FLAG_USER != 0;
            if flags & FLAG_REQUIRED != 0 && (user || !KNOWN.contains(&id)) {
                return Err(entry(DecodeError::Unsupported(id.as_fields().0)));
            }
            let end = offset.checked_add(length);
            let inside = offset as usize >= METADATA_TABLE_SIZE && end.is_some_and(|end| end <= region);
            let empty = offset == 0 && length == 0;
            if length > ITEM_MAX || !(inside && length > 0 || empty) {
                return Err(entry(DecodeError::Invalid("place")));
            }
            items.push(ItemPlace { id, user, offset, length });
        }
        if items.iter().filter(|item| item.user).count() > USER_ENTRIES_MAX {
            return Err(wrong(DecodeError::Invalid("number of users' entries")));
        }
        let mut ids: Vec<(Uuid, bool)> = items.iter().map(|item| (item.id, item.user)).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(wrong(DecodeError::Invalid("pair of items: they have the same id")));
        }
        let mut places: Vec<(u32, u32)> =
            items.iter().filter(|item| item.length > 0).map(|item| (item.offset, item.length)).collect();
        places.sort_unstable();
        if places.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            return Err(wrong(DecodeError::Invalid("pair of items: they overlap")));
        }
        Ok(Self { items })
    }

    /// The items that have a meaning here: six at most.
    pub fn known(&self) -> impl Iterator<Item = ItemPlace> + '_ {
        self.items.iter().filter(|item| !item.user && KNOWN.contains(&item.id)).copied()
    }

    fn system(&self, id: Uuid) -> Option<ItemPlace> {
        self.items.iter().find(|item| item.id == id && !item.user).copied()
    }

    /// Where the disk's size is, to change it in place.
    #[must_use]
    pub fn disk_size_place(&self) -> Option<ItemPlace> {
        self.system(DISK_SIZE)
    }

    /// Where the disk's own id is.
    #[must_use]
    pub fn disk_id_place(&self) -> Option<ItemPlace> {
        self.system(PAGE_83)
    }

    /// Where the file parameters are.
    #[must_use]
    pub fn file_parameters_place(&self) -> Option<ItemPlace> {
        self.system(FILE_PARAMETERS)
    }

    /// Where the parent locator is.
    #[must_use]
    pub fn parent_locator_place(&self) -> Option<ItemPlace> {
        self.system(PARENT_LOCATOR)
    }
}

/// What the blocks of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileParameters {
    /// Bytes of a payload block: a power of two, 1 MiB to 256 MiB.
    pub block_size: u32,
    /// Blocks keep their space whatever happens to their content: a fixed disk.
    pub leave_allocated: bool,
    /// What is not here is in a parent: a differencing disk.
    pub has_parent: bool,
}

/// What the metadata says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The blocks.
    pub parameters: FileParameters,
    /// Size of the disk in bytes, whole logical sectors.
    pub disk_size: u64,
    /// The disk's identity as SCSI shows it (VPD page 83).
    pub disk_id: Uuid,
    /// Unit of transfer in bytes: 512 or 4096.
    pub logical_sector: u32,
    /// Unit that the disk is better written in, in bytes: 512 or 4096.
    pub physical_sector: u32,
    /// Of a differencing disk: its parent.
    pub parent: Option<ParentLocator>,
}

impl Metadata {
    /// From the items; `read` gives the bytes of one by its place.
    ///
    /// # Errors
    /// When an item is missing or impossible, or what `read` says.
    pub fn decode(
        table: &MetadataTable,
        mut read: impl FnMut(ItemPlace) -> Result<Vec<u8>, FormatError>,
    ) -> Result<Self, FormatError> {
        let mut item = |place: &'static str, id: Uuid, length: Option<usize>| {
            let found = table.system(id).ok_or(FormatError::invalid(place, "place: there is none"))?;
            let bytes = read(found)?;
            match length {
                Some(length) if bytes.len() != length => Err(FormatError::invalid(place, "length")),
                _ => Ok(bytes),
            }
        };
        let parameters = file_parameters(&item("file parameters", FILE_PARAMETERS, Some(8))?)?;
        let sector =
            |place: &'static str, bytes: Vec<u8>| match Reader::new(&bytes).u32().map_err(at(place))? {
                size @ (512 | 4096) => Ok(size),
                _ => Err(FormatError::invalid(place, "value")),
            };
        const LOGICAL: &str = "logical sector size";
        const PHYSICAL: &str = "physical sector size";
        let logical_sector = sector(LOGICAL, item(LOGICAL, LOGICAL_SECTOR, Some(4))?)?;
        let physical_sector = sector(PHYSICAL, item(PHYSICAL, PHYSICAL_SECTOR, Some(4))?)?;
        const SIZE: &str = "virtual disk size";
        let disk_size = Reader::new(&item(SIZE, DISK_SIZE, Some(8))?).u64().map_err(at(SIZE))?;
        if disk_size == 0 || disk_size > DISK_SIZE_MAX || !disk_size.is_multiple_of(u64::from(logical_sector))
        {
            return Err(FormatError::invalid(SIZE, "value"));
        }
        const ID: &str = "virtual disk id";
        let disk_id = Reader::new(&item(ID, PAGE_83, Some(16))?).guid().map_err(at(ID))?;
        let parent = if parameters.has_parent {
            Some(ParentLocator::decode(&item("parent locator", PARENT_LOCATOR, None)?)?)
        } else {
            None
        };
        let disk_id = Uuid::from_bytes_le(disk_id);
        Ok(Self { parameters, disk_size, disk_id, logical_sector, physical_sector, parent })
    }

    /// A metadata region with it, of `region` bytes from its beginning; `None` when the parent locator does not fit.
    #[must_use]
    pub fn encode(&self, region: u32) -> Option<Vec<u8>> {
        let mut items: Vec<(Uuid, u32, Vec<u8>)> = Vec::new();
        let parameters = self.parameters;
        let flags = u32::from(parameters.leave_allocated) | u32::from(parameters.has_parent) << 1;
        let mut words = parameters.block_size.to_le_bytes().to_vec();
        words.extend(flags.to_le_bytes());
        items.push((FILE_PARAMETERS, FLAG_REQUIRED, words));
        let disk = FLAG_REQUIRED | FLAG_DISK;
        items.push((DISK_SIZE, disk, self.disk_size.to_le_bytes().to_vec()));
        items.push((PAGE_83, disk, self.disk_id.to_bytes_le().to_vec()));
        items.push((LOGICAL_SECTOR, disk, self.logical_sector.to_le_bytes().to_vec()));
        items.push((PHYSICAL_SECTOR, disk, self.physical_sector.to_le_bytes().to_vec()));
        if let Some(parent) = &self.parent {
            items.push((PARENT_LOCATOR, FLAG_REQUIRED, parent.encode()?));
        }
        let mut table = Writer::default();
        table.raw(SIGNATURE);
        table.u16(0);
        table.u16(items.len() as u16);
        table.raw(&[0; 20]);
        let mut behind = Vec::new();
        for (id, flags, bytes) in &items {
            table.raw(&id.to_bytes_le());
            table.u32((METADATA_TABLE_SIZE + behind.len()) as u32);
            table.u32(bytes.len() as u32);
            table.u32(*flags);
            table.u32(0);
            behind.extend_from_slice(bytes);
            // Items begin at multiples of 8, so that none lies over the end of a sector that the log writes.
            behind.resize(behind.len().next_multiple_of(8), 0);
        }
        let mut bytes = table.finish();
        bytes.resize(METADATA_TABLE_SIZE, 0);
        bytes.extend(behind);
        (bytes.len() <= region as usize && u64::from(region).is_multiple_of(MIB)).then_some(bytes)
    }
}

fn file_parameters(bytes: &[u8]) -> Result<FileParameters, FormatError> {
    let place = "file parameters";
    let mut reader = Reader::new(bytes);
    let block_size = reader.u32().map_err(at(place))?;
    let flags = reader.u32().map_err(at(place))?;
    if !block_size.is_power_of_two() || !(BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX).contains(&block_size) {
        return Err(FormatError::invalid(place, "block size"));
    }
    if flags & !3 != 0 {
        return Err(FormatError::new(place, DecodeError::Unsupported(flags)));
    }
    Ok(FileParameters { block_size, leave_allocated: flags & 1 != 0, has_parent: flags & 2 != 0 })
}
