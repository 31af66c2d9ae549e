//! Content that says where it belongs.
//!
//! ```text
//!   sector of 512 bytes
//!   0        8         16        24           32                                  512
//!   ├ magic ─┼ device ─┼ offset ─┼ generation ┼ words that follow from the first four ┤
//! ```
//!
//! `device` names the device or file under test, `offset` is the sector's own byte offset, `generation` the
//! write that put it there. A sector of another place, another write or another device is therefore
//! recognised as such, and one damaged bit anywhere makes it [`Found::Garbage`].

use crate::Rng;

/// Unit of the pattern, and of tearing.
pub const SECTOR: usize = 512;
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
    }
}

/// Says what one sector holds.
#[must_use]
pub fn identify(sector: &[u8]) -> Found {
    if sector.iter().all(|byte| *byte == 0) {
        return Found::Zero;
    }
    let mut words = sector.chunks_exact(8).map(|chunk| {
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
    if sector.len() == SECTOR && words.all(|word| word == body.next_u64()) {
        Found::Written { device, offset, generation }
    } else {
        Found::Garbage
    }
}

fn body_of(device: u64, offset: u64, generation: u64) -> Rng {
    Rng::new(device.rotate_left(40) ^ offset.rotate_left(20) ^ generation.wrapping_mul(0x2545_f491_4f6c_dd1d))
}
