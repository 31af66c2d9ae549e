//! The two region tables (MS-VHDX 2.2.3), which are equal: where BAT and metadata are.
//!
//! ```text
//!   0        4        8            12        16
//!   | "regi" | crc32c | EntryCount | zeros   | entries of 32 bytes, at most 2047 … | zeros to 64 KiB
//!                                              0          16          24       28
//!                                              | Guid     | FileOffset | Length | Required (bit 0) |
//! ```
//! They lie at 192 KiB and 256 KiB; the CRC-32C is over all 64 KiB. A region that is not known and required makes the file
//! unusable; one that is not required is left alone.

use byte_codec::{DecodeError, Reader, Writer, crc32c};
use uuid::Uuid;

use crate::error::at;
use crate::header::checksum_of;
use crate::{FIRST_REGION, FormatError, MIB};

const PLACE: &str = "region table";
const SIGNATURE: &[u8; 4] = b"regi";
/// Entries that fit.
const ENTRIES_MAX: u32 = 2047;
const BAT: Uuid = Uuid::from_u128(0x2dc2_7766_f623_4200_9d64_115e_9bfd_4a08);
const METADATA: Uuid = Uuid::from_u128(0x8b7c_a206_4790_4b9a_b8fe_575f_050f_886e);

/// Bytes of a region table.
pub const REGION_TABLE_SIZE: usize = 64 << 10;

/// Where the region tables lie, in bytes.
pub const REGION_OFFSETS: [u64; 2] = [192 << 10, 256 << 10];

/// A part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where it lies, in bytes, whole MiB.
    pub offset: u64,
    /// Its length in bytes, whole MiB.
    pub length: u32,
}

impl Region {
    /// Where it ends, in bytes.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }

    /// Whether the two have a byte in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.offset < other.end() && other.offset < self.end()
    }
}

/// Where everything is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionTable {
    /// The block allocation table.
    pub bat: Region,
    /// The metadata.
    pub metadata: Region,
    /// Regions that are not known and not required: their ids and places.
    pub others: Vec<(Uuid, Region)>,
}

impl RegionTable {
    /// From its bytes.
    ///
    /// # Errors
    /// When it is damaged, needs what is not known, or has regions that overlap or cannot be where they are said to be.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let wrong = at(PLACE);
        let bytes = bytes.get(..REGION_TABLE_SIZE).ok_or_else(|| wrong(DecodeError::Truncated))?;
        let mut reader = Reader::new(bytes);
        if reader.raw(4).map_err(&wrong)? != SIGNATURE {
            return Err(wrong(DecodeError::WrongMagic));
        }
        if reader.u32().map_err(&wrong)? != checksum_of(bytes) {
            return Err(wrong(DecodeError::WrongChecksum));
        }
        let count = reader.u32().map_err(&wrong)?;
        reader.u32().map_err(&wrong)?;
        if count > ENTRIES_MAX {
            return Err(wrong(DecodeError::Invalid("number of entries")));
        }
        let (mut bat, mut metadata, mut others) = (None, None, Vec::new());
        for number in 0..u64::from(count) {
            let entry = |why| FormatError::new("region", why).number(number);
            let guid = Uuid::from_bytes_le(reader.guid().map_err(entry)?);
            let offset = reader.u64().map_err(entry)?;
            let length = reader.u32().map_err(entry)?;
            let required = reader.u32().map_err(entry)? & 1 == 1;
            let region = Region { offset, length };
            if offset < FIRST_REGION || !offset.is_multiple_of(MIB) {
                return Err(entry(DecodeError::Invalid("place")));
            }
            let whole = length > 0 && u64::from(length).is_multiple_of(MIB);
            if !whole || offset.checked_add(u64::from(length)).is_none() {
                return Err(entry(DecodeError::Invalid("length")));
            }
            let twice = match guid {
                BAT => bat.replace(region).is_some(),
                METADATA => metadata.replace(region).is_some(),
                _ if required => return Err(entry(DecodeError::Unsupported(guid.as_fields().0))),
                _ => {
                    others.push((guid, region));
                    false
                }
            };
            if twice {
                return Err(entry(DecodeError::Invalid("id, which another one has")));
            }
        }
        let bat = bat.ok_or(FormatError::invalid(PLACE, "BAT region: there is none"))?;
        let metadata = metadata.ok_or(FormatError::invalid(PLACE, "metadata region: there is none"))?;
        let table = Self { bat, metadata, others };
        // Sorted, two that overlap stand beside each other.
        let mut all: Vec<Region> = table.all().collect();
        all.sort_by_key(|region| region.offset);
        if all.windows(2).any(|pair| pair[0].overlaps(&pair[1])) {
            return Err(wrong(DecodeError::Invalid("pair of regions: they overlap")));
        }
        Ok(table)
    }

    /// All regions.
    pub fn all(&self) -> impl Iterator<Item = Region> + '_ {
        [self.bat, self.metadata].into_iter().chain(self.others.iter().map(|(_, region)| *region))
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.raw(SIGNATURE);
        writer.u32(0);
        writer.u32(self.others.len() as u32 + 2);
        writer.u32(0);
        let known = [(BAT, self.bat, 1), (METADATA, self.metadata, 1)];
        let others = self.others.iter().map(|(guid, region)| (*guid, *region, 0));
        for (guid, region, required) in known.into_iter().chain(others) {
            writer.raw(&guid.to_bytes_le());
            writer.u64(region.offset);
            writer.u32(region.length);
            writer.u32(required);
        }
        let mut bytes = writer.finish();
        bytes.resize(REGION_TABLE_SIZE, 0);
        let checksum = crc32c(&bytes);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}
