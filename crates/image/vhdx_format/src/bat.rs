//! The block allocation table (MS-VHDX 2.5): where each block lies.
//!
//! ```text
//!   entry of 8 bytes:  bits 0-2 state │ 3-19 zeros │ 20-63 offset in the file, in MiB
//!
//!   | payload 0 | payload 1 | … | payload r-1 | bitmap of chunk 0 | payload r | … | payload 2r-1 | bitmap of chunk 1 | …
//!     r, the chunk ratio = 2^23 * logical sector / block size: as many blocks as a bitmap block of 1 MiB has bits for
//! ```
//! Only differencing disks use bitmap blocks; all have the entries for them between the others.

use byte_codec::DecodeError;

use crate::{FIRST_REGION, FileParameters, FormatError, MIB};

/// Sectors that a bitmap block speaks of.
const CHUNK_SECTORS: u64 = 1 << 23;
const STATE: u64 = 7;
const RESERVED: u64 = 0xf_fff8;

/// What a payload block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadState {
    /// Not here: in the parent, or zeros where there is none.
    NotPresent,
    /// Anything; zeros when it is read here.
    Undefined,
    /// Zeros, whatever the parent has.
    Zero,
    /// Nobody needs its content any more; zeros when it is read here.
    Unmapped,
    /// All of it is here.
    FullyPresent,
    /// The sectors whose bits are set are here, the others in the parent.
    PartiallyPresent,
}

/// An entry as it is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatEntry(pub u64);

impl BatEntry {
    /// Of a payload block at `offset` bytes, whole MiB; 0 for none.
    #[must_use]
    pub fn payload(state: PayloadState, offset: u64) -> Self {
        let state = match state {
            PayloadState::NotPresent => 0,
            PayloadState::Undefined => 1,
            PayloadState::Zero => 2,
            PayloadState::Unmapped => 3,
            PayloadState::FullyPresent => 6,
            PayloadState::PartiallyPresent => 7,
        };
        Self((offset / MIB * MIB) | state)
    }

    /// Of a bitmap block at `offset` bytes, whole MiB.
    #[must_use]
    pub fn bitmap(offset: u64) -> Self {
        Self((offset / MIB * MIB) | 6)
    }

    /// Where the block lies, in bytes; 0 for nowhere.
    #[must_use]
    pub fn offset(self) -> u64 {
        self.0 & !(MIB - 1)
    }

    /// The state of a payload block, and whether the format has it for such a disk.
    ///
    /// # Errors
    /// With the entry's number, when there is no such state, or when it says that the block is where none can be.
    pub fn payload_state(self, number: u64, has_parent: bool) -> Result<PayloadState, FormatError> {
        let wrong = |what| FormatError::invalid("BAT entry", what).number(number);
        if self.0 & RESERVED != 0 {
            return Err(wrong("reserved bit"));
        }
        let state = match self.0 & STATE {
            0 => PayloadState::NotPresent,
            1 => PayloadState::Undefined,
            2 => PayloadState::Zero,
            3 => PayloadState::Unmapped,
            6 => PayloadState::FullyPresent,
            7 if has_parent => PayloadState::PartiallyPresent,
            _ => return Err(wrong("state")),
        };
        let present = matches!(state, PayloadState::FullyPresent | PayloadState::PartiallyPresent);
        if present && self.offset() < FIRST_REGION {
            return Err(wrong("place"));
        }
        Ok(state)
    }

    /// Where a bitmap block lies, in bytes; `None` when there is none.
    ///
    /// # Errors
    /// With the entry's number, as [`BatEntry::payload_state`].
    pub fn bitmap_offset(self, number: u64) -> Result<Option<u64>, FormatError> {
        let wrong = |what| FormatError::invalid("BAT entry of a sector bitmap", what).number(number);
        match self.0 & STATE {
            _ if self.0 & RESERVED != 0 => Err(wrong("reserved bit")),
            0 => Ok(None),
            6 if self.offset() >= FIRST_REGION => Ok(Some(self.offset())),
            6 => Err(wrong("place")),
            _ => Err(wrong("state")),
        }
    }
}

/// Which entry belongs to which block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatLayout {
    /// Bytes of a payload block.
    pub block_size: u32,
    /// Bytes of a logical sector.
    pub logical_sector: u32,
    /// Bytes of the disk.
    pub disk_size: u64,
    /// Whether it is a differencing disk.
    pub has_parent: bool,
}

impl BatLayout {
    /// Of a disk of `disk_size` bytes.
    #[must_use]
    pub fn new(parameters: &FileParameters, logical_sector: u32, disk_size: u64) -> Self {
        let FileParameters { block_size, has_parent, .. } = *parameters;
        Self { block_size, logical_sector, disk_size, has_parent }
    }

    /// Payload blocks of a chunk.
    #[must_use]
    pub fn chunk_ratio(&self) -> u64 {
        (CHUNK_SECTORS * u64::from(self.logical_sector) / u64::from(self.block_size)).max(1)
    }

    /// Payload blocks of the disk.
    #[must_use]
    pub fn payload_blocks(&self) -> u64 {
        self.disk_size.div_ceil(u64::from(self.block_size))
    }

    /// Chunks of the disk, the last of which may be short.
    #[must_use]
    pub fn chunks(&self) -> u64 {
        self.payload_blocks().div_ceil(self.chunk_ratio())
    }

    /// Entries of the table.
    #[must_use]
    pub fn entries(&self) -> u64 {
        if self.has_parent {
            self.chunks() * (self.chunk_ratio() + 1)
        } else {
            let blocks = self.payload_blocks();
            blocks + blocks.saturating_sub(1) / self.chunk_ratio()
        }
    }

    /// The entry of a payload block.
    #[must_use]
    pub fn payload_entry(&self, block: u64) -> u64 {
        block + block / self.chunk_ratio()
    }

    /// The entry of the bitmap block of a payload block's chunk.
    #[must_use]
    pub fn bitmap_entry(&self, block: u64) -> u64 {
        (block / self.chunk_ratio() + 1) * (self.chunk_ratio() + 1) - 1
    }

    /// What an entry is for: its payload block, or `None` for a bitmap block.
    #[must_use]
    pub fn block_of(&self, entry: u64) -> Option<u64> {
        let (chunk, within) = (entry / (self.chunk_ratio() + 1), entry % (self.chunk_ratio() + 1));
        (within < self.chunk_ratio()).then_some(chunk * self.chunk_ratio() + within)
    }

    /// The number, in its bitmap block, of the bit of the first sector of a payload block.
    #[must_use]
    pub fn first_bit(&self, block: u64) -> u64 {
        block % self.chunk_ratio() * self.block_sectors()
    }

    /// Sectors of a payload block.
    #[must_use]
    pub fn block_sectors(&self) -> u64 {
        u64::from(self.block_size / self.logical_sector)
    }

    /// Whether a BAT region of so many bytes has room for all entries.
    ///
    /// # Errors
    /// When it has not.
    pub fn fits(&self, region: u32) -> Result<(), FormatError> {
        if self.entries() * 8 <= u64::from(region) {
            Ok(())
        } else {
            Err(FormatError::new("BAT region", DecodeError::Truncated))
        }
    }
}
