//! The file identifier, by which a VHDX file is known (MS-VHDX 2.2.1).
//!
//! ```text
//!   0            8                                 520
//!   | "vhdxfile" | creator: UTF-16LE, zero-filled  | zeros to 64 KiB
//! ```
//! It is written once, and last, when a file is made: a file without it was never finished.

use byte_codec::{DecodeError, Reader, Writer};

use crate::FormatError;
use crate::error::at;

const PLACE: &str = "file identifier";
const SIGNATURE: &[u8; 8] = b"vhdxfile";
/// UTF-16 units that the creator may have.
const CREATOR_UNITS: usize = 256;

/// Who made the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileIdentifier {
    /// The program that made the file; for people only.
    pub creator: String,
}

impl FileIdentifier {
    /// Bytes of it that are looked at.
    pub const SIZE: usize = 520;

    /// From the first bytes of a file.
    ///
    /// # Errors
    /// When it is no VHDX file.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes);
        if reader.raw(SIGNATURE.len()).map_err(at(PLACE))? != SIGNATURE {
            return Err(FormatError::new(PLACE, DecodeError::WrongMagic));
        }
        let units = reader.raw(CREATOR_UNITS * 2).map_err(at(PLACE))?;
        let units: Vec<u16> = units
            .chunks_exact(2)
            .map(|unit| u16::from_le_bytes([unit[0], unit[1]]))
            .take_while(|unit| *unit != 0)
            .collect();
        Ok(Self { creator: String::from_utf16_lossy(&units) })
    }

    /// The first bytes of a file. A creator that is too long is cut.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.raw(SIGNATURE);
        let mut units = 0;
        for character in self.creator.chars().filter(|character| *character != '\0') {
            let mut buf = [0; 2];
            let encoded = character.encode_utf16(&mut buf);
            if units + encoded.len() > CREATOR_UNITS {
                break;
            }
            units += encoded.len();
            encoded.iter().for_each(|unit| writer.u16(*unit));
        }
        let mut bytes = writer.finish();
        bytes.resize(Self::SIZE, 0);
        bytes
    }
}
