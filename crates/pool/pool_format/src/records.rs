//! The records that the pool's metadata is made of, each with its encoding.

use crate::{Checksum, DecodeError, DiskId, Guid, Reader, SpaceId, Writer};

/// Regions of a slab, one bit each in the dirty and stale masks: 1 MiB for slabs of 64 MiB.
pub const REGIONS: u32 = 64;
/// Rows a space may have: their numbers have 32 bits.
pub const ROWS_MAX: u64 = 1 << 32;
/// The row of a parity space that holds its journal: one column, a copy more than the parity columns of a stripe.
pub const JOURNAL_ROW: u32 = u32::MAX;
/// Kinds of resiliency on disk.
const KIND_COPIES: u8 = 0;
const KIND_PARITY: u8 = 1;
/// Features of a space on disk: its blocks have checksums, and these are XXH3 instead of CRC-32C.
const FEATURE_INTEGRITY: u32 = 1;
const FEATURE_XXH3: u32 = 1 << 1;
/// What a column's record has besides copies and dirty regions.
const COLUMN_GENERATIONS: u8 = 1;
/// Bytes of a row's space and number in a checkpoint.
const ROW_KEY_LEN: usize = 8;
/// Copies a column may have: three, and one being made.
pub const MAX_COPIES: usize = 4;

/// What a disk is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskUse {
    /// Holds slabs and takes new ones.
    Active,
    /// Waits to replace another.
    Spare,
    /// Its slabs are being moved away; takes no new ones.
    Draining,
    /// Declared lost; its slabs are being rebuilt elsewhere.
    Retired,
}

/// A disk of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskRecord {
    /// Its number.
    pub id: DiskId,
    /// Its identity, as in its superblock.
    pub guid: Guid,
    /// What it is used for.
    pub usage: DiskUse,
    /// Whether it carries the pool's metadata.
    pub metadata: bool,
    /// How many slabs it has.
    pub slab_count: u32,
    /// Where they start, in bytes.
    pub data_start: u64,
    /// Size in bytes.
    pub size: u64,
    /// Media type: 0 unspecified, 1 SSD, 2 HDD.
    pub media: u8,
    /// Enclosure, empty when unknown: a fault domain.
    pub enclosure: String,
    /// Slot in the enclosure.
    pub slot: String,
    /// Node the disk is attached to, empty for this one: a fault domain.
    pub node: String,
    /// Model, for people.
    pub model: String,
    /// Serial number, for people.
    pub serial: String,
}

/// How a space keeps its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resiliency {
    /// One copy.
    Simple,
    /// This many copies, 2 or 3.
    Mirror(u8),
    /// One copy, and in each stripe this many columns, 1 or 2, from which lost ones are calculated.
    Parity(u8),
}

impl Resiliency {
    /// Copies of each byte.
    #[must_use]
    pub fn copies(self) -> usize {
        match self {
            Self::Simple | Self::Parity(_) => 1,
            Self::Mirror(copies) => usize::from(copies),
        }
    }

    /// Columns of each stripe that hold parity.
    #[must_use]
    pub fn parity(self) -> u8 {
        match self {
            Self::Parity(count) => count,
            Self::Simple | Self::Mirror(_) => 0,
        }
    }

    /// Disks of a row that may be lost with no data lost.
    #[must_use]
    pub fn failures(self) -> usize {
        self.copies() - 1 + usize::from(self.parity())
    }
}

/// When a space takes its slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provisioning {
    /// At the first write.
    Thin,
    /// At its creation.
    Fixed,
}

/// A space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceRecord {
    /// Its number.
    pub id: SpaceId,
    /// Its identity.
    pub guid: Guid,
    /// Its name, unique in the pool.
    pub name: String,
    /// How it keeps its data.
    pub resiliency: Resiliency,
    /// When it takes slabs.
    pub provisioning: Provisioning,
    /// Disks that a row is striped over, those with parity among them.
    pub columns: u8,
    /// Bytes that go to one column before the next, a power of two.
    pub interleave: u32,
    /// Size in bytes, a multiple of 4 KiB.
    pub size: u64,
    /// How every block's checksum is calculated, if blocks have one.
    pub checksum: Option<Checksum>,
}

/// One copy of a column: a slab on a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRecord {
    /// The disk.
    pub disk: DiskId,
    /// Which of its slabs.
    pub slab: u32,
    /// Regions whose content is older than acknowledged writes.
    pub stale: u64,
}

/// One column of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnRecord {
    /// Its copies.
    pub copies: Vec<CopyRecord>,
    /// Regions with writes that may not have reached all copies.
    pub dirty: u64,
    /// Of each page of checksums which generation of it all copies have, 0 when that is not known. Empty when none is.
    pub generations: Vec<u8>,
}

impl ColumnRecord {
    /// The generation of a page of checksums, 0 when it is not known.
    #[must_use]
    pub fn generation(&self, page: usize) -> u8 {
        self.generations.get(page).copied().unwrap_or(0)
    }
}

/// The generation after `generation`; never 0 again.
#[must_use]
pub fn next_generation(generation: u8) -> u8 {
    generation.checked_add(1).unwrap_or(1)
}

/// The node that has a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its identity.
    pub node: Guid,
    /// Its name, for messages.
    pub name: String,
    /// It has let go of the pool: any node may take it over.
    pub released: bool,
}

impl Owner {
    pub(crate) fn encode(&self, w: &mut Writer) {
        w.raw(&self.node.0);
        w.u8(u8::from(self.released));
        w.text(&self.name);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { node: Guid(r.guid()?), released: r.u8()? != 0, name: r.text()? })
    }
}

/// A row of slabs: `columns × slab size` bytes of a space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowRecord {
    /// Its columns.
    pub columns: Vec<ColumnRecord>,
}

/// How far a scrub has come and what it found. Times in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubRecord {
    /// When it began; 0 for never.
    pub started: u64,
    /// When it ended; before `started` while it is under way.
    pub finished: u64,
    /// The last row that it has read, if `bytes` is not 0.
    pub space: SpaceId,
    /// Its number.
    pub row: u32,
    /// Bytes read.
    pub bytes: u64,
    /// Blocks that were not what was written.
    pub damaged: u64,
    /// Those of them that could not be restored.
    pub hopeless: u64,
}

impl ScrubRecord {
    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u64(self.started);
        w.u64(self.finished);
        w.u32(self.space.0);
        w.u32(self.row);
        w.u64(self.bytes);
        w.u64(self.damaged);
        w.u64(self.hopeless);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            started: r.u64()?,
            finished: r.u64()?,
            space: SpaceId(r.u32()?),
            row: r.u32()?,
            bytes: r.u64()?,
            damaged: r.u64()?,
            hopeless: r.u64()?,
        })
    }
}

/// Bytes of an encoding.
pub(crate) fn len_of(encode: impl FnOnce(&mut Writer)) -> usize {
    let mut w = Writer::default();
    encode(&mut w);
    w.finish().len()
}

impl DiskRecord {
    /// Bytes that it takes of a checkpoint.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        len_of(|w| self.encode(w))
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u32(self.id.0);
        w.raw(&self.guid.0);
        w.u8(self.usage as u8);
        w.u8(u8::from(self.metadata));
        w.u32(self.slab_count);
        w.u64(self.data_start);
        w.u64(self.size);
        w.u8(self.media);
        for text in [&self.enclosure, &self.slot, &self.node, &self.model, &self.serial] {
            w.text(text);
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            id: DiskId(r.u32()?),
            guid: Guid(r.guid()?),
            usage: match r.u8()? {
                0 => DiskUse::Active,
                1 => DiskUse::Spare,
                2 => DiskUse::Draining,
                3 => DiskUse::Retired,
                newer => return Err(DecodeError::Unsupported(u32::from(newer))),
            },
            metadata: r.u8()? != 0,
            slab_count: r.u32()?,
            data_start: r.u64()?,
            size: r.u64()?,
            media: r.u8()?,
            enclosure: r.text()?,
            slot: r.text()?,
            node: r.text()?,
            model: r.text()?,
            serial: r.text()?,
        })
    }
}

impl SpaceRecord {
    /// Bytes that it takes of a checkpoint.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        len_of(|w| self.encode(w))
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u32(self.id.0);
        w.raw(&self.guid.0);
        w.text(&self.name);
        match self.resiliency {
            Resiliency::Parity(count) => [KIND_PARITY, count],
            copies => [KIND_COPIES, copies.copies() as u8],
        }
        .into_iter()
        .for_each(|byte| w.u8(byte));
        // Features of the space; a reader that finds one it does not know is too old for it.
        w.u32(match self.checksum {
            None => 0,
            Some(Checksum::Crc32c) => FEATURE_INTEGRITY,
            Some(Checksum::Xxh3) => FEATURE_INTEGRITY | FEATURE_XXH3,
        });
        w.u8(u8::from(self.provisioning == Provisioning::Fixed));
        w.u8(self.columns);
        w.u32(self.interleave);
        w.u64(self.size);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const XXH3: u32 = FEATURE_INTEGRITY | FEATURE_XXH3;
        let space = Self {
            id: SpaceId(r.u32()?),
            guid: Guid(r.guid()?),
            name: r.text()?,
            resiliency: match (r.u8()?, r.u8()?) {
                (KIND_COPIES, 1) => Resiliency::Simple,
                (KIND_COPIES, copies @ (2 | 3)) => Resiliency::Mirror(copies),
                (KIND_PARITY, count @ (1 | 2)) => Resiliency::Parity(count),
                (newer, _) => return Err(DecodeError::Unsupported(u32::from(newer))),
            },
            checksum: match r.u32()? {
                0 => None,
                FEATURE_INTEGRITY => Some(Checksum::Crc32c),
                XXH3 => Some(Checksum::Xxh3),
                newer => return Err(DecodeError::Unsupported(newer)),
            },
            provisioning: match r.u8()? {
                0 => Provisioning::Thin,
                1 => Provisioning::Fixed,
                newer => return Err(DecodeError::Unsupported(u32::from(newer))),
            },
            columns: r.u8()?,
            interleave: r.u32()?,
            size: r.u64()?,
        };
        let parity = space.resiliency.parity();
        if space.columns == 0 || (parity > 0 && space.columns < parity + 2) {
            return Err(DecodeError::Invalid("columns"));
        }
        if parity > 0 && space.checksum.is_none() {
            return Err(DecodeError::Invalid("parity without checksums"));
        }
        if !space.interleave.is_power_of_two() || u64::from(space.interleave) < crate::BLOCK {
            return Err(DecodeError::Invalid("interleave"));
        }
        if !space.size.is_multiple_of(crate::BLOCK) {
            return Err(DecodeError::Invalid("space size"));
        }
        Ok(space)
    }
}

impl CopyRecord {
    /// Bytes that a copy takes of a checkpoint.
    pub const ENCODED_LEN: usize = 16;

    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u32(self.disk.0);
        w.u32(self.slab);
        w.u64(self.stale);
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { disk: DiskId(r.u32()?), slab: r.u32()?, stale: r.u64()? })
    }
}

impl RowRecord {
    /// Bytes that it takes of a checkpoint, with its space and number.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        ROW_KEY_LEN + len_of(|w| self.encode(w))
    }

    /// Bytes that a new row takes of a checkpoint that has `columns` columns, `copies` copies of each, and `pages` pages of
    /// checksums for each.
    #[must_use]
    pub fn encoded_len_of(columns: usize, copies: usize, pages: usize) -> usize {
        let copy = CopyRecord { disk: DiskId(0), slab: 0, stale: 0 };
        let column = ColumnRecord { copies: vec![copy; copies], dirty: 0, generations: vec![0; pages] };
        Self { columns: vec![column; columns] }.encoded_len()
    }

    pub(crate) fn encode(&self, w: &mut Writer) {
        w.u8(self.columns.len() as u8);
        for column in &self.columns {
            let known = !column.generations.is_empty();
            w.u8(if known { COLUMN_GENERATIONS } else { 0 });
            w.u64(column.dirty);
            w.u8(column.copies.len() as u8);
            column.copies.iter().for_each(|copy| copy.encode(w));
            if known {
                w.u16(column.generations.len() as u16);
                w.raw(&column.generations);
            }
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut row = Self::default();
        for _ in 0..r.u8()? {
            let parts = r.u8()?;
            if parts & !COLUMN_GENERATIONS != 0 {
                return Err(DecodeError::Unsupported(u32::from(parts)));
            }
            let mut column = ColumnRecord { dirty: r.u64()?, ..ColumnRecord::default() };
            let copies = usize::from(r.u8()?);
            if copies > MAX_COPIES {
                return Err(DecodeError::Invalid("copies"));
            }
            for _ in 0..copies {
                column.copies.push(CopyRecord::decode(r)?);
            }
            if parts & COLUMN_GENERATIONS != 0 {
                let pages = usize::from(r.u16()?);
                column.generations = r.raw(pages)?.to_vec();
                if pages == 0 {
                    return Err(DecodeError::Invalid("generations"));
                }
            }
            row.columns.push(column);
        }
        Ok(row)
    }
}
