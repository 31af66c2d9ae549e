//! How long the database is: it grows and shrinks within its area, and must know its length after a crash.
//!
//! Two blocks, written in turn; the sound one with the higher number counts:
//!
//! ```text
//!  0        8        16       24     28
//!  | magic  | number | length | crc  | 0 …
//! ```

use byte_codec::{DecodeError, Reader, Writer, crc32c};

use crate::BLOCK;

const MAGIC: [u8; 8] = *b"\x89HFlen\r\n";
const COVERED: usize = 24;

/// The database's length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LengthRecord {
    /// Rises with each change; its parity says which block it goes to.
    pub number: u64,
    /// Bytes.
    pub length: u64,
}

impl LengthRecord {
    /// The block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(&MAGIC);
        w.u64(self.number);
        w.u64(self.length);
        let mut block = w.finish();
        let crc = crc32c(&block);
        block.extend_from_slice(&crc.to_le_bytes());
        block.resize(BLOCK as usize, 0);
        block
    }

    /// The record in a block.
    ///
    /// # Errors
    /// When there is none, or it is damaged.
    pub fn decode(block: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(block);
        if r.raw(MAGIC.len())? != MAGIC {
            return Err(DecodeError::WrongMagic);
        }
        let record = Self { number: r.u64()?, length: r.u64()? };
        if r.u32()? != crc32c(&block[..COVERED]) {
            return Err(DecodeError::WrongChecksum);
        }
        Ok(record)
    }
}
