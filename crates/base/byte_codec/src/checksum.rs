//! The functions that give users' data its checksum.

use twox_hash::XxHash3_64;

use crate::crc32c;

/// Bytes of a block.
const BLOCK: usize = 4096;

/// What the checksums of data are calculated with. A space of a pool, or a write log, keeps for ever the one it was made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checksum {
    /// CRC-32C, of what earlier releases made.
    ///
    /// It is blind to structures that end with their own CRC-32C: what a CRC is appended to gives one and the same remainder,
    /// whatever it is. A disk that loses the write of such a block still holds one that fits, the older.
    Crc32c,
    /// The low half of XXH3's 64 bits (seed 0; the xxHash specification, XXH3 algorithm). It is not linear, so nothing that a block
    /// holds of its own checksums cancels out.
    #[default]
    Xxh3,
}

impl Checksum {
    /// The checksum of a part of data.
    #[must_use]
    pub fn of(self, data: &[u8]) -> u32 {
        match self {
            Self::Crc32c => crc32c(data),
            // Each bit of the hash depends on each bit of the data: half of them are as good as any other half.
            Self::Xxh3 => xxh3(data) as u32,
        }
    }

    /// The checksum of a block of 4096 zeros.
    #[must_use]
    pub const fn of_zeros(self) -> u32 {
        match self {
            Self::Crc32c => 0x98f9_4189,
            Self::Xxh3 => 0x48c6_89ba,
        }
    }

    /// The checksums of the blocks of `data`, each of 4096 bytes.
    #[must_use]
    pub fn of_each(self, data: &[u8]) -> Vec<u32> {
        data.chunks_exact(BLOCK).map(|block| self.of(block)).collect()
    }
}

/// All 64 bits of XXH3 (seed 0; the xxHash specification, XXH3 algorithm): for structures that hold what others have given a
/// CRC-32C already.
#[must_use]
pub fn xxh3(data: &[u8]) -> u64 {
    XxHash3_64::oneshot(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_zeros_is_true() {
        for checksum in [Checksum::Crc32c, Checksum::Xxh3] {
            assert_eq!(checksum.of(&[0; BLOCK]), checksum.of_zeros(), "{checksum:?}");
        }
    }

    #[test]
    fn a_checksum_in_a_block_hides_its_content_from_the_same_function_alone() {
        let sealed = |fill: u8| {
            let mut block = [fill; BLOCK];
            let crc = crc32c(&block[..4092]);
            block[4092..].copy_from_slice(&crc.to_le_bytes());
            block
        };
        let equal = |checksum: Checksum| checksum.of(&sealed(1)) == checksum.of(&sealed(2));
        assert!(equal(Checksum::Crc32c) && !equal(Checksum::Xxh3));
    }

    #[test]
    fn xxh3_is_what_the_specification_says() {
        // XXH3 of nothing, as the reference implementation has it.
        assert_eq!(xxh3(b""), 0x2d06_8005_38d3_94c2);
    }
}
