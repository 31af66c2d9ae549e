//! Checksums of data: where they lie on a disk, and the page that holds some of them.
//!
//! Every slab has its own pages, one after another, in the checksum area of its disk: one checksum ([`Checksum`](crate::Checksum)) for each
//! block of 4 KiB of the slab. A page says whose it is, so that one that was written elsewhere, or left by an earlier owner of the slab, is
//! never believed:
//!
//! ```text
//!  0     4        8       16            32    36     40    44      48                    64
//!  | crc | magic  | epoch | space GUID  | row | col. | page| count | gen | zeros         | count checksums of 4 bytes, zeros …
//! ```
//! `crc` is the CRC-32C of the rest of the page. The generation, a byte, tells a page from an older one of the same place: a disk that lost the
//! write of a page has the older one, whole. 0 is a page that was written by a release that knew no
//! generations.

use byte_codec::crc32c;

use crate::{BLOCK, DecodeError, Epoch, Guid, Reader, Writer};

/// Checksums in one page at most: a power of two, so that pages and regions never overlap by halves.
pub const SUMS_PER_PAGE: u64 = 512;
/// Bytes of the largest slab that a pool is made with. The metadata counts a slab's pages of checksums with 16 bits, and a slab is a
/// power of two: of a larger one, the last pages would have no generation, and a write that a disk lost there would go unnoticed.
pub const SLAB_BYTES_MAX: u64 = (1 << 15) * SUMS_PER_PAGE * BLOCK;
const MAGIC: [u8; 4] = *b"HFcs";
const HEAD: usize = 64;

/// Pages that a slab of this many bytes has.
#[must_use]
pub fn sums_pages(slab_size: u64) -> u64 {
    (slab_size / BLOCK).div_ceil(SUMS_PER_PAGE)
}

/// A page of checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SumsPage {
    /// The epoch in which it was written.
    pub epoch: Epoch,
    /// The space it belongs to.
    pub space: Guid,
    /// Row.
    pub row: u32,
    /// Column.
    pub column: u32,
    /// Which page of the slab.
    pub page: u32,
    /// Its generation.
    pub generation: u8,
    /// The checksum of each block, in order.
    pub sums: Vec<u32>,
}

impl SumsPage {
    /// The page as a block.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.raw(&MAGIC);
        w.u64(self.epoch.0);
        w.raw(&self.space.0);
        w.u32(self.row);
        w.u32(self.column);
        w.u32(self.page);
        w.u32(self.sums.len() as u32);
        w.u8(self.generation);
        w.raw(&[0; 15]);
        self.sums.iter().for_each(|sum| w.u32(*sum));
        let mut body = w.finish();
        body.resize(BLOCK as usize - 4, 0);
        let mut block = crc32c(&body).to_le_bytes().to_vec();
        block.extend_from_slice(&body);
        block
    }

    /// The page in a block.
    ///
    /// # Errors
    /// When the block is damaged or something else.
    pub fn decode(block: &[u8]) -> Result<Self, DecodeError> {
        let block = block.get(..BLOCK as usize).ok_or(DecodeError::Truncated)?;
        let (crc, body) = block.split_at(4);
        let mut r = Reader::new(body);
        if r.raw(MAGIC.len())? != MAGIC {
            return Err(DecodeError::WrongMagic);
        }
        if crc32c(body).to_le_bytes() != crc {
            return Err(DecodeError::WrongChecksum);
        }
        let (epoch, space) = (Epoch(r.u64()?), Guid(r.guid()?));
        let (row, column, page, count) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        let generation = r.u8()?;
        if u64::from(count) > SUMS_PER_PAGE {
            return Err(DecodeError::Invalid("count of checksums"));
        }
        let sums = body[HEAD - 4..].chunks_exact(4).take(count as usize);
        let sums = sums.map(|sum| u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]])).collect();
        Ok(Self { epoch, space, row, column, page, generation, sums })
    }
}
