//! What a verified sector holds, and what a sector that was read turns out to be.
//!
//! ```text
//!   0        8        16        24          32       36
//!   magic    run      offset    generation  crc32c   bytes that follow from offset and generation
//! ```
//! All little-endian; the checksum covers the whole sector with its own field as zeros. The run's number is random, so that
//! what an earlier run left behind is told from what this one wrote.

use byte_codec::crc32c;

use crate::random::Random;

const MAGIC: u64 = u64::from_le_bytes(*b"HFspdVfy");
const CRC_AT: usize = 32;
/// Bytes before the filling.
pub(crate) const HEADER: usize = 36;

/// What a sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Content of this run that belongs here, of this generation.
    Ours(u64),
    /// Content of this run or another that belongs to this offset of another place.
    Misplaced { run: u64, offset: u64 },
    /// Begins as ours and fails its checksum.
    Damaged,
    /// Nothing that this tool wrote.
    Foreign,
}

/// Fills a sector for `offset` and `generation`.
pub(crate) fn fill(sector: &mut [u8], run: u64, offset: u64, generation: u64) {
    let mut random = Random::new(offset ^ run, generation);
    if let Some(rest) = sector.get_mut(HEADER..) {
        random.fill(rest);
    }
    put(sector, 0, MAGIC);
    put(sector, 8, run);
    put(sector, 16, offset);
    put(sector, 24, generation);
    let crc = checksum(sector);
    if let Some(field) = sector.get_mut(CRC_AT..HEADER) {
        field.copy_from_slice(&crc.to_le_bytes());
    }
}

/// What the sector that was read at `offset` holds.
pub(crate) fn look(sector: &mut [u8], run: u64, offset: u64) -> Found {
    if get(sector, 0) != MAGIC {
        return Found::Foreign;
    }
    let stored = sector.get(CRC_AT..HEADER).and_then(|field| field.try_into().ok()).map(u32::from_le_bytes);
    if stored != Some(checksum(sector)) {
        return Found::Damaged;
    }
    let (its_run, its_offset) = (get(sector, 8), get(sector, 16));
    if its_run == run && its_offset == offset {
        Found::Ours(get(sector, 24))
    } else if its_run != run && its_offset == offset {
        // Left by another run at this very place: for this run it is as if nothing had been written.
        Found::Foreign
    } else {
        Found::Misplaced { run: its_run, offset: its_offset }
    }
}

/// The checksum of a sector, whose field is zeroed meanwhile and for good.
fn checksum(sector: &mut [u8]) -> u32 {
    if let Some(field) = sector.get_mut(CRC_AT..HEADER) {
        field.fill(0);
    }
    crc32c(sector)
}

fn put(sector: &mut [u8], at: usize, value: u64) {
    if let Some(field) = sector.get_mut(at..at + 8) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

fn get(sector: &[u8], at: usize) -> u64 {
    sector.get(at..at + 8).and_then(|field| field.try_into().ok()).map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_says_what_it_is() {
        let mut sector = vec![0; 512];
        fill(&mut sector, 7, 4096, 3);
        assert_eq!(look(&mut sector.clone(), 7, 4096), Found::Ours(3));
        assert_eq!(look(&mut sector.clone(), 7, 8192), Found::Misplaced { run: 7, offset: 4096 });
        assert_eq!(look(&mut sector.clone(), 8, 4096), Found::Foreign);
        assert_eq!(look(&mut [0; 512], 7, 4096), Found::Foreign);
        for bit in 64..512 * 8 {
            let mut damaged = sector.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(look(&mut damaged, 7, 4096), Found::Damaged, "bit {bit}");
        }
    }
}
