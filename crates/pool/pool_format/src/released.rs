//! The mark of a disk that has left its pool: free to be taken, although what it held is still behind the mark.

use byte_codec::crc32c;

use crate::superblock::SUPERBLOCK_BYTES;
use crate::{DecodeError, Guid, Reader, Writer};

const MAGIC: [u8; 8] = *b"\x89HFfre\r\n";
const VERSION: u32 = 1;
const CRC_AT: usize = SUPERBLOCK_BYTES - 4;

/// In the place of both superblocks of a disk that was removed from its pool, or whose pool was destroyed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Released {
    /// The pool that the disk belonged to.
    pub pool: Guid,
    /// Its name, for messages.
    pub pool_name: String,
}

impl Released {
    /// The block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(&MAGIC);
        w.u32(VERSION);
        w.u32(0);
        w.raw(&self.pool.0);
        w.text(&self.pool_name.chars().take(255).collect::<String>());
        let mut block = w.finish();
        block.resize(CRC_AT, 0);
        let crc = crc32c(&block);
        block.extend_from_slice(&crc.to_le_bytes());
        block
    }

    /// The mark in a block.
    ///
    /// # Errors
    /// When the block is something else, or anybody has changed a byte of it since.
    pub fn decode(block: &[u8]) -> Result<Self, DecodeError> {
        let block = block.get(..SUPERBLOCK_BYTES).ok_or(DecodeError::Truncated)?;
        let mut r = Reader::new(block);
        if r.raw(MAGIC.len())? != MAGIC {
            return Err(DecodeError::WrongMagic);
        }
        if crc32c(&block[..CRC_AT]).to_le_bytes() != block[CRC_AT..] {
            return Err(DecodeError::WrongChecksum);
        }
        match (r.u32()?, r.u32()?) {
            (VERSION, 0) => Ok(Self { pool: Guid(r.guid()?), pool_name: r.text()? }),
            (VERSION, features) => Err(DecodeError::Unsupported(features)),
            (newer, _) => Err(DecodeError::Unsupported(newer)),
        }
    }
}
