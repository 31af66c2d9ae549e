//! The two headers (MS-VHDX 2.2.2): which log is in force, and whether file or data have changed since somebody looked.
//!
//! ```text
//!   0        4       8          16              32              48         64            66        68          72
//!   | "head" | crc32c | sequence | FileWriteGuid | DataWriteGuid | LogGuid | LogVersion | Version | LogLength | LogOffset |
//!   80 … 4096: zeros; the CRC-32C is over all 4096 bytes with itself as zeros
//! ```
//! They lie at 64 KiB and 128 KiB. The sound one with the higher sequence number is in force; a new one is written over the other,
//! so that a torn write leaves the old one.

use byte_codec::{DecodeError, Reader, Writer, crc32c};
use uuid::Uuid;

use crate::error::at;
use crate::{FIRST_REGION, FormatError, MIB};

const PLACE: &str = "header";
const SIGNATURE: &[u8; 4] = b"head";

/// Bytes of a header.
pub const HEADER_SIZE: usize = 4096;

/// Where the headers lie, in bytes.
pub const HEADER_OFFSETS: [u64; 2] = [64 << 10, 128 << 10];

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The higher one is in force.
    pub sequence: u64,
    /// Changes with the first change of the file after it was opened.
    pub file_write_guid: Uuid,
    /// Changes before the first change of what users see; children know their parent by it.
    pub data_write_guid: Uuid,
    /// The id that entries of the log have that count; nil when none does.
    pub log_guid: Uuid,
    /// Bytes of the log, whole MiB.
    pub log_length: u32,
    /// Where the log lies, in bytes, whole MiB.
    pub log_offset: u64,
}

impl Header {
    /// From its bytes.
    ///
    /// # Errors
    /// When it is damaged, newer than what is known, or places the log where none can be.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let wrong = at(PLACE);
        let bytes = bytes.get(..HEADER_SIZE).ok_or_else(|| wrong(DecodeError::Truncated))?;
        let mut reader = Reader::new(bytes);
        if reader.raw(4).map_err(&wrong)? != SIGNATURE {
            return Err(wrong(DecodeError::WrongMagic));
        }
        let checksum = reader.u32().map_err(&wrong)?;
        if checksum != checksum_of(bytes) {
            return Err(wrong(DecodeError::WrongChecksum));
        }
        let sequence = reader.u64().map_err(&wrong)?;
        let mut guid = || reader.guid().map(Uuid::from_bytes_le);
        let (file_write_guid, data_write_guid, log_guid) =
            (guid().map_err(&wrong)?, guid().map_err(&wrong)?, guid().map_err(&wrong)?);
        let log_version = reader.u16().map_err(&wrong)?;
        let version = reader.u16().map_err(&wrong)?;
        let log_length = reader.u32().map_err(&wrong)?;
        let log_offset = reader.u64().map_err(&wrong)?;
        if version != 1 {
            return Err(wrong(DecodeError::Unsupported(u32::from(version))));
        }
        if log_version != 0 && !log_guid.is_nil() {
            return Err(wrong(DecodeError::Unsupported(u32::from(log_version))));
        }
        if log_length == 0 || !u64::from(log_length).is_multiple_of(MIB) {
            return Err(wrong(DecodeError::Invalid("length of the log")));
        }
        let end = log_offset.checked_add(u64::from(log_length));
        if !log_offset.is_multiple_of(MIB) || log_offset < FIRST_REGION || end.is_none() {
            return Err(wrong(DecodeError::Invalid("place of the log")));
        }
        Ok(Self { sequence, file_write_guid, data_write_guid, log_guid, log_length, log_offset })
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.raw(SIGNATURE);
        writer.u32(0);
        writer.u64(self.sequence);
        for guid in [self.file_write_guid, self.data_write_guid, self.log_guid] {
            writer.raw(&guid.to_bytes_le());
        }
        writer.u16(0);
        writer.u16(1);
        writer.u32(self.log_length);
        writer.u64(self.log_offset);
        let mut bytes = writer.finish();
        bytes.resize(HEADER_SIZE, 0);
        let checksum = crc32c(&bytes);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

/// The CRC-32C of a structure whose checksum lies at byte 4 and counts as zeros.
pub(crate) fn checksum_of(bytes: &[u8]) -> u32 {
    let mut copy = bytes.to_vec();
    if let Some(field) = copy.get_mut(4..8) {
        field.fill(0);
    }
    crc32c(&copy)
}

/// Which of two headers is in force, and its number (0 or 1).
///
/// # Errors
/// What is wrong with the first, when neither is sound, and when both have the same number but differ.
pub fn current_header(both: [Result<Header, FormatError>; 2]) -> Result<(usize, Header), FormatError> {
    match both {
        [Ok(a), Ok(b)] if a.sequence == b.sequence && a != b => {
            Err(FormatError::invalid("headers", "sequence number: both have the same and differ"))
        }
        [Ok(a), Ok(b)] if b.sequence > a.sequence => Ok((1, b)),
        [Ok(a), _] => Ok((0, a)),
        [_, Ok(b)] => Ok((1, b)),
        [Err(a), Err(_)] => Err(a),
    }
}
