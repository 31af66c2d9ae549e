//! What a disk says of itself, read by those who ask it. It may say anything.

use crate::be;

/// Largest block size that is taken for one, in bytes.
pub const MAX_BLOCK: u32 = 1 << 16;

/// How large a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Blocks.
    pub blocks: u64,
    /// Bytes of a block, from 512 to [`MAX_BLOCK`], a power of two.
    pub block: u32,
}

impl Capacity {
    /// The answer to READ CAPACITY (10). `None` also for a disk that is too large for this command.
    #[must_use]
    pub fn parse10(bytes: &[u8]) -> Option<Self> {
        let last = be(bytes.get(..8)?, 0, 4);
        Self::new(last, be(bytes, 4, 4)).filter(|_| last < u64::from(u32::MAX))
    }

    /// The answer to READ CAPACITY (16).
    #[must_use]
    pub fn parse16(bytes: &[u8]) -> Option<Self> {
        Self::new(be(bytes.get(..12)?, 0, 8), be(bytes, 8, 4))
    }

    fn new(last: u64, block: u64) -> Option<Self> {
        let block = u32::try_from(block).ok().filter(|block| (512..=MAX_BLOCK).contains(block))?;
        let blocks = last.checked_add(1)?;
        // Its size in bytes is a number, too.
        blocks.checked_mul(u64::from(block))?;
        block.is_power_of_two().then_some(Self { blocks, block })
    }

    /// Bytes in all.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block))
    }
}

/// Most blocks of one transfer, in the vital product data page of block limits (B0h); `None` when it sets no limit.
#[must_use]
pub fn most_blocks(page: &[u8]) -> Option<u32> {
    let known = page.len() >= 12 && page.get(1) == Some(&0xb0);
    Some(be(page, 8, 4) as u32).filter(|most| known && *most > 0)
}

/// The names of the unit itself in the vital product data page of device identification (83h), one after the other as they
/// are; those of the target and its ports are left out, which another way to the same unit has others of.
#[must_use]
pub fn unit_names(page: &[u8]) -> Vec<u8> {
    let mut names = Vec::new();
    let end = 4 + be(page, 2, 2) as usize;
    let mut rest = page.get(4..end.min(page.len())).unwrap_or_default();
    while let [_, kind, _, len, ..] = *rest {
        let Some((name, others)) = rest.split_at_checked(4 + usize::from(len)) else { break };
        // Association 0: the addressed unit.
        if kind & 0x30 == 0 {
            names.extend_from_slice(name);
        }
        rest = others;
    }
    names
}

/// What the header of MODE SENSE (6) says: whether writes are refused, and whether FUA is known.
#[must_use]
pub fn write_protect_and_fua(bytes: &[u8]) -> (bool, bool) {
    let parameter = bytes.get(2).copied().unwrap_or(0);
    (parameter & 0x80 != 0, parameter & 0x10 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities() {
        let ten = [0, 0, 0, 99, 0, 0, 2, 0];
        assert_eq!(Capacity::parse10(&ten), Some(Capacity { blocks: 100, block: 512 }));
        assert_eq!(Capacity::parse10(&[0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0]), None);
        let mut sixteen = [0; 32];
        (sixteen[3], sixteen[7], sixteen[10]) = (1, 1, 0x10);
        let capacity = Capacity::parse16(&sixteen).unwrap();
        assert_eq!(capacity, Capacity { blocks: (1 << 32) + 2, block: 4096 });
        assert_eq!(capacity.bytes(), ((1 << 32) + 2) * 4096);
        for (at, byte) in [(0, 0xff), (9, 1), (10, 0x30), (10, 0)] {
            let mut wrong = sixteen;
            wrong[at] = byte;
            assert_eq!(Capacity::parse16(&wrong), None, "{at}");
        }
        assert_eq!(Capacity::parse16(&sixteen[..11]), None);
    }

    #[test]
    fn names() {
        let page = [0, 0x83, 0, 14, 1, 3, 0, 2, 0xaa, 0xbb, 1, 0x14, 0, 4, 0, 0, 0, 1];
        assert_eq!(unit_names(&page), [1, 3, 0, 2, 0xaa, 0xbb]);
        assert_eq!(unit_names(&[0, 0x83, 0xff, 0xff, 1, 3, 0, 200, 1]), []);
        assert_eq!(unit_names(&[]), []);
    }

    #[test]
    fn limits_and_modes() {
        let mut page = [0; 64];
        (page[1], page[11]) = (0xb0, 8);
        assert_eq!(most_blocks(&page), Some(8));
        assert_eq!(most_blocks(&[0; 64]), None);
        assert_eq!(write_protect_and_fua(&[3, 0, 0x90, 0]), (true, true));
        assert_eq!(write_protect_and_fua(&[]), (false, false));
    }
}
