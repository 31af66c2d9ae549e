//! Entries of the log (MS-VHDX 2.3): changes that happen as a whole or not at all.
//!
//! ```text
//!   0        4        8             12     16         24               28      32        48                  56
//!   | "loge" | crc32c | EntryLength | Tail | Sequence | DescriptorCount | zeros | LogGuid | FlushedFileOffset | LastFileOffset |
//!   64: descriptors of 32 bytes, up to the next 4 KiB; then a data sector of 4 KiB for each data descriptor, in their order
//!
//!   "desc":  0        4               8              16           24
//!            | "desc" | TrailingBytes | LeadingBytes | FileOffset | Sequence |     sector = 8 + 4084 + 4 bytes:
//!   "zero":  | "zero" | zeros         | ZeroLength   | FileOffset | Sequence |     leading, those in the data sector, trailing
//!
//!   data sector:  0        4              8              4092
//!                 | "data" | SequenceHigh | 4084 bytes   | SequenceLow |
//! ```
//! The CRC-32C is over the whole entry with itself as zeros. The sequence number is in every sector, so that an entry that was
//! written in part is not taken for whole.

use byte_codec::{DecodeError, Reader, Writer, crc32c};
use uuid::Uuid;

use crate::FormatError;
use crate::error::at;

const PLACE: &str = "log entry";
const ENTRY: &[u8; 4] = b"loge";
const DESCRIPTOR: &[u8; 4] = b"desc";
const ZERO: &[u8; 4] = b"zero";
const DATA: &[u8; 4] = b"data";
const HEADER_LEN: usize = 64;
const DESCRIPTOR_LEN: usize = 32;

/// Bytes of the log's unit, and of what a data descriptor changes.
pub const LOG_SECTOR: usize = 4096;

/// A change of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// These bytes at `offset`, a multiple of 4 KiB.
    Data {
        /// Where, in bytes.
        offset: u64,
        /// 4096 bytes.
        bytes: Box<[u8]>,
    },
    /// Zeros.
    Zero {
        /// Where, in bytes, a multiple of 4 KiB.
        offset: u64,
        /// How many, a multiple of 4 KiB.
        len: u64,
    },
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Its number; the next entry has the next. Never 0.
    pub sequence: u64,
    /// Where, from the log's beginning, the oldest entry lies that still counts, in bytes.
    pub tail: u32,
    /// Whose log it is.
    pub log_guid: Uuid,
    /// The file had at least so many bytes, durably, when it was written.
    pub flushed_file_offset: u64,
    /// The file must have so many bytes for all that is in it.
    pub last_file_offset: u64,
    /// The changes, in order.
    pub changes: Vec<Change>,
}

/// Descriptors that an entry of `len` bytes may have, each with its data sector.
#[must_use]
pub fn descriptors_in(len: usize) -> usize {
    let sectors = len / LOG_SECTOR;
    (0..sectors).rev().find(|count| entry_len(*count, *count) <= len).unwrap_or(0)
}

/// Bytes of an entry with so many descriptors, `data` of which have a data sector.
#[must_use]
pub fn entry_len(descriptors: usize, data: usize) -> usize {
    (HEADER_LEN + descriptors * DESCRIPTOR_LEN).next_multiple_of(LOG_SECTOR) + data * LOG_SECTOR
}

/// The fields of an entry's header.
pub(crate) struct EntryHeader {
    pub(crate) checksum: u32,
    pub(crate) len: usize,
    pub(crate) tail: u32,
    pub(crate) sequence: u64,
    pub(crate) descriptors: usize,
    pub(crate) log_guid: Uuid,
    flushed_file_offset: u64,
    last_file_offset: u64,
}

impl EntryHeader {
    /// From the first sector of an entry. `log` is the log's length.
    pub(crate) fn decode(sector: &[u8], log: usize) -> Result<Self, FormatError> {
        let wrong = at(PLACE);
        let mut reader = Reader::new(sector);
        if reader.raw(4).map_err(&wrong)? != ENTRY {
            return Err(wrong(DecodeError::WrongMagic));
        }
        let checksum = reader.u32().map_err(&wrong)?;
        let len = reader.u32().map_err(&wrong)? as usize;
        let tail = reader.u32().map_err(&wrong)?;
        let sequence = reader.u64().map_err(&wrong)?;
        let descriptors = reader.u32().map_err(&wrong)? as usize;
        reader.u32().map_err(&wrong)?;
        let log_guid = Uuid::from_bytes_le(reader.guid().map_err(&wrong)?);
        let flushed_file_offset = reader.u64().map_err(&wrong)?;
        let last_file_offset = reader.u64().map_err(&wrong)?;
        if len < LOG_SECTOR || len > log || !len.is_multiple_of(LOG_SECTOR) {
            return Err(wrong(DecodeError::Invalid("length")));
        }
        if tail as usize >= log || !(tail as usize).is_multiple_of(LOG_SECTOR) {
            return Err(wrong(DecodeError::Invalid("tail")));
        }
        if sequence == 0 {
            return Err(wrong(DecodeError::Invalid("sequence number")));
        }
        // Compared before it is multiplied; then it is bounded by the entry's length.
        if descriptors > len / DESCRIPTOR_LEN || entry_len(descriptors, 0) > len {
            return Err(wrong(DecodeError::Invalid("number of descriptors")));
        }
        Ok(Self {
            checksum,
            len,
            tail,
            sequence,
            descriptors,
            log_guid,
            flushed_file_offset,
            last_file_offset,
        })
    }

    /// Bytes of header and descriptors.
    pub(crate) fn head_len(&self) -> usize {
        entry_len(self.descriptors, 0)
    }
}

/// Whether a sector behind an entry's descriptors can be one of its data sectors.
pub(crate) fn is_data_of(sector: &[u8], sequence: u64) -> bool {
    let low = sector.get(LOG_SECTOR - 4..LOG_SECTOR);
    sector.get(..4) == Some(DATA)
        && sector.get(4..8) == Some(&((sequence >> 32) as u32).to_le_bytes())
        && low == Some(&(sequence as u32).to_le_bytes())
}

/// Whether bytes look like a descriptor of this entry.
pub(crate) fn is_descriptor_of(bytes: &[u8], sequence: u64) -> bool {
    matches!(bytes.get(..4), Some(kind) if kind == DESCRIPTOR || kind == ZERO)
        && bytes.get(24..32) == Some(&sequence.to_le_bytes())
}

impl LogEntry {
    /// From the bytes of an entry of a log of `log` bytes.
    ///
    /// # Errors
    /// When it is not whole, or its changes cannot be.
    pub fn decode(bytes: &[u8], log: usize) -> Result<Self, FormatError> {
        let wrong = at(PLACE);
        let header = EntryHeader::decode(bytes, log)?;
        let bytes = bytes.get(..header.len).ok_or_else(|| wrong(DecodeError::Truncated))?;
        if crate::header::checksum_of(bytes) != header.checksum {
            return Err(wrong(DecodeError::WrongChecksum));
        }
        let (head, mut data) = bytes.split_at(header.head_len());
        let mut reader = Reader::new(head.get(HEADER_LEN..).unwrap_or_default());
        let mut changes = Vec::with_capacity(header.descriptors);
        for number in 0..header.descriptors as u64 {
            let wrong = |why| FormatError::new("descriptor of a log entry", why).number(number);
            let raw = reader.raw(DESCRIPTOR_LEN).map_err(wrong)?;
            if !is_descriptor_of(raw, header.sequence) {
                return Err(wrong(DecodeError::WrongMagic));
            }
            let word = |at: usize| Reader::new(&raw[at..]).u64().map_err(wrong);
            let (second, offset) = (word(8)?, word(16)?);
            if !offset.is_multiple_of(LOG_SECTOR as u64) {
                return Err(wrong(DecodeError::Invalid("place")));
            }
            if raw.starts_with(ZERO) {
                if !second.is_multiple_of(LOG_SECTOR as u64) || offset.checked_add(second).is_none() {
                    return Err(wrong(DecodeError::Invalid("length")));
                }
                changes.push(Change::Zero { offset, len: second });
                continue;
            }
            let (sector, rest) =
                data.split_at_checked(LOG_SECTOR).ok_or_else(|| wrong(DecodeError::Truncated))?;
            data = rest;
            if !is_data_of(sector, header.sequence) {
                return Err(wrong(DecodeError::Invalid("data sector")));
            }
            let mut content = vec![0; LOG_SECTOR].into_boxed_slice();
            content[..8].copy_from_slice(&raw[8..16]);
            content[8..LOG_SECTOR - 4].copy_from_slice(&sector[8..LOG_SECTOR - 4]);
            content[LOG_SECTOR - 4..].copy_from_slice(&raw[4..8]);
            changes.push(Change::Data { offset, bytes: content });
        }
        Ok(Self {
            sequence: header.sequence,
            tail: header.tail,
            log_guid: header.log_guid,
            flushed_file_offset: header.flushed_file_offset,
            last_file_offset: header.last_file_offset,
            changes,
        })
    }

    /// Its bytes. Data that has not 4096 bytes is cut, or filled with zeros.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let data = self.changes.iter().filter(|change| matches!(change, Change::Data { .. })).count();
        let mut writer = Writer::default();
        writer.raw(ENTRY);
        writer.u32(0);
        writer.u32(entry_len(self.changes.len(), data) as u32);
        writer.u32(self.tail);
        writer.u64(self.sequence);
        writer.u32(self.changes.len() as u32);
        writer.u32(0);
        writer.raw(&self.log_guid.to_bytes_le());
        writer.u64(self.flushed_file_offset);
        writer.u64(self.last_file_offset);
        let mut sectors = Vec::with_capacity(data * LOG_SECTOR);
        for change in &self.changes {
            match change {
                Change::Data { offset, bytes } => {
                    let mut sector = bytes.to_vec();
                    sector.resize(LOG_SECTOR, 0);
                    writer.raw(DESCRIPTOR);
                    writer.raw(&sector[LOG_SECTOR - 4..]);
                    writer.raw(&sector[..8]);
                    writer.u64(*offset);
                    sector[..4].copy_from_slice(DATA);
                    sector[4..8].copy_from_slice(&((self.sequence >> 32) as u32).to_le_bytes());
                    sector[LOG_SECTOR - 4..].copy_from_slice(&(self.sequence as u32).to_le_bytes());
                    sectors.extend(sector);
                }
                Change::Zero { offset, len } => {
                    writer.raw(ZERO);
                    writer.u32(0);
                    writer.u64(*len);
                    writer.u64(*offset);
                }
            }
            writer.u64(self.sequence);
        }
        let mut bytes = writer.finish();
        bytes.resize(bytes.len().next_multiple_of(LOG_SECTOR), 0);
        bytes.extend(sectors);
        let checksum = crc32c(&bytes);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}
