//! Content that says where it belongs.
//!
//! ```text
//!   sector of 512 bytes
//!   0        8         16        24           32                                      508      512
//!   ├ magic ─┼ device ─┼ offset ─┼ generation ┼ words that follow from the first four ┼ CRC-32C ┤
//! ```
//!
//! `device` names the device or file under test, `offset` is the sector's own byte offset, `generation` the
//! write that put it there. A sector of another place, another write or another device is therefore
//! recognised as such, and one damaged bit anywhere makes it [`Found::Garbage`].
//!
//! The CRC-32C of all that precedes it is what many structures end with. It makes the CRC-32C of all sectors, and of all blocks of such
//! sectors, equal: whoever tells old data from new by that alone is found out.

use byte_codec::crc32c;

use crate::Rng;

/// Unit of the pattern, and of tearing.
pub const SECTOR: usize = 512;
/// Where the CRC-32C of what precedes it lies in a sector.
const CRC_AT: usize = SECTOR - 4;
const MAGIC: u64 = u64::from_le_bytes(*b"HfPattrn");

/// What a sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// Nothing but zeros.
    Zero,
    /// An intact sector of a pattern.
    Written {
        /// The device or file it was written to.
        device: u64,
        /// The byte offset it was written to.
        offset: u64,
        /// The write that wrote it.
        generation: u64,
    },
    /// Anything else: damaged or foreign content.
    Garbage,
}

/// Fills `buf`, whole sectors that lie at `offset` of `device`, with the pattern of `generation`.
pub fn fill(buf: &mut [u8], device: u64, offset: u64, generation: u64) {
    for (index, sector) in buf.chunks_mut(SECTOR).enumerate() {
        let at = offset.wrapping_add((index * SECTOR) as u64);
        let mut body = body_of(device, at, generation);
        for (slot, word) in sector.chunks_mut(8).zip([MAGIC, device, at, generation]) {
            slot.copy_from_slice(&word.to_le_bytes()[..slot.len()]);
        }
        for slot in sector.chunks_mut(8).skip(4) {
            slot.copy_from_slice(&body.next_u64().to_le_bytes()[..slot.len()]);
        }
        if let Some((body, crc)) = sector.split_at_mut_checked(CRC_AT) {
            crc.copy_from_slice(&crc32c(body).to_le_bytes()[..crc.len()]);
        }
    }
}

/// Says what one sector holds.
#[must_use]
pub fn identify(sector: &[u8]) -> Found {
    if sector.iter().all(|byte| *byte == 0) {
        return Found::Zero;
    }
    let Some((said, crc)) = sector.split_at_checked(CRC_AT) else { return Found::Garbage };
    let mut words = said.chunks_exact(8).map(|chunk| {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    let (Some(MAGIC), Some(device), Some(offset), Some(generation)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Found::Garbage;
    };
    let mut body = body_of(device, offset, generation);
    let intact = words.all(|word| word == body.next_u64())
        && said[SECTOR - 8..] == body.next_u64().to_le_bytes()[..4]
        && crc == crc32c(said).to_le_bytes();
    if intact { Found::Written { device, offset, generation } } else { Found::Garbage }
}

fn body_of(device: u64, offset: u64, generation: u64) -> Rng {
    Rng::new(device.rotate_left(40) ^ offset.rotate_left(20) ^ generation.wrapping_mul(0x2545_f491_4f6c_dd1d))
}
