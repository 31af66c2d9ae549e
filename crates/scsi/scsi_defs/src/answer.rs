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

/// How a disk gives up blocks that are no longer needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thin {
    /// It knows UNMAP.
    pub unmap: bool,
    /// It knows WRITE SAME (16) that unmaps.
    pub write_same: bool,
}

/// How a disk unmaps, in the vital product data page of logical block provisioning (B2h).
#[must_use]
pub fn thin(page: &[u8]) -> Thin {
    let flags = if page.get(1) == Some(&0xb2) { page.get(5).copied().unwrap_or(0) } else { 0 };
    Thin { unmap: flags & 0x80 != 0, write_same: flags & 0x40 != 0 }
}

/// Whether blocks that are unmapped read as zeros, in an answer to READ CAPACITY (16).
#[must_use]
pub fn unmapped_are_zeros(bytes: &[u8]) -> bool {
    bytes.get(14).is_some_and(|flags| flags & 0xc0 == 0xc0)
}

/// Logical blocks of a physical one, in an answer to READ CAPACITY (16): a power of two.
#[must_use]
pub fn blocks_per_physical(bytes: &[u8]) -> u32 {
    1 << bytes.get(13).map_or(0, |exponent| exponent & 0x0f)
}

/// Most blocks of one UNMAP range and of one WRITE SAME, in the page of block limits (B0h); `None` where there is no limit.
#[must_use]
pub fn most_unmapped(page: &[u8]) -> (Option<u32>, Option<u64>) {
    if page.get(1) != Some(&0xb0) {
        return (None, None);
    }
    let ranges = Some(be(page, 20, 4) as u32).filter(|most| (1..u32::MAX).contains(most) && page.len() >= 24);
    (ranges, Some(be(page, 36, 8)).filter(|most| *most > 0 && page.len() >= 44))
}

/// Whether the disk's write cache is on (mode page 08h), in an answer to MODE SENSE (6); `None` when it does not say.
#[must_use]
pub fn write_cache(bytes: &[u8]) -> Option<bool> {
    let mut rest = bytes.get(4 + usize::from(*bytes.get(3)?)..)?;
    while let [code, len, ..] = *rest {
        // With the subpage format the length has two bytes.
        let head = if code & 0x40 != 0 { 4 } else { 2 };
        let len = if head == 4 { be(rest, 2, 2) as usize } else { usize::from(len) };
        if code & 0x7f == 0x08 {
            return rest.get(2).map(|flags| flags & 4 != 0);
        }
        rest = rest.get(head + len..)?;
    }
    None
}

/// A bit of the control mode page (0Ah, byte 5): commands that another initiator ends are answered with TASK ABORTED (SPC-4 7.5.8).
const TASK_ABORTED_STATUS: u8 = 0x40;

/// The parameter list that has the disk answer commands that another initiator ends (TAS); from what it says of the control mode page as
/// it is, and of what of that can be changed. `None` where it does so already, or cannot.
#[must_use]
pub fn answering_aborted(current: &[u8], changeable: &[u8]) -> Option<Vec<u8>> {
    fn page(bytes: &[u8]) -> Option<&[u8]> {
        let page = bytes.get(4 + usize::from(*bytes.get(3)?)..)?;
        let whole = page.len() >= 12 && page[0] & 0x7f == 0x0a && page[1] == 10;
        whole.then(|| &page[..12])
    }
    let (now, may) = (page(current)?, page(changeable)?);
    if now[5] & TASK_ABORTED_STATUS != 0 || may[5] & TASK_ABORTED_STATUS == 0 {
        return None;
    }
    let mut list = vec![0; 4];
    list.extend_from_slice(now);
    list[4] &= 0x3f;
    list[4 + 5] |= TASK_ABORTED_STATUS;
    Some(list)
}

/// Whether the disk spins, in the page of block device characteristics (B1h).
#[must_use]
pub fn rotates(page: &[u8]) -> bool {
    page.get(1) == Some(&0xb1) && page.len() >= 6 && be(page, 4, 2) > 1
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
    fn aborted_commands_are_answered_where_that_can_be() {
        let mut current = vec![15, 0, 0x10, 0, 0x8a, 10, 4, 0x10, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut may = vec![15, 0, 0x10, 0, 0x8a, 10, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0];
        let list = answering_aborted(&current, &may).unwrap();
        assert_eq!(list, [0, 0, 0, 0, 0x0a, 10, 4, 0x10, 0, 0x40, 0, 0, 0, 0, 0, 0]);
        for cut in 0..16 {
            assert_eq!(answering_aborted(&current[..cut], &may), None);
            assert_eq!(answering_aborted(&current, &may[..cut]), None);
        }
        current[9] = 0x40;
        assert_eq!(answering_aborted(&current, &may), None, "it does so already");
        (current[9], may[9]) = (0, 0);
        assert_eq!(answering_aborted(&current, &may), None, "it cannot");
    }

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
    fn thin_disks() {
        let page = [0, 0xb2, 0, 4, 0, 0xc0, 0, 0];
        assert_eq!(thin(&page), Thin { unmap: true, write_same: true });
        assert_eq!(thin(&page[..5]), Thin::default());
        let mut capacity = [0; 32];
        (capacity[13], capacity[14]) = (3, 0xc0);
        assert!(unmapped_are_zeros(&capacity) && blocks_per_physical(&capacity) == 8);
        assert!(!unmapped_are_zeros(&[]) && blocks_per_physical(&[]) == 1);
        let mut limits = [0; 64];
        (limits[1], limits[23], limits[43]) = (0xb0, 9, 7);
        assert_eq!(most_unmapped(&limits), (Some(9), Some(7)));
        assert_eq!(most_unmapped(&limits[..30]), (Some(9), None));
        assert_eq!(most_unmapped(&[]), (None, None));
        let modes = [0, 0, 0, 0, 0x01, 2, 0, 0, 0x08, 18, 4, 0];
        assert_eq!(write_cache(&modes), Some(true));
        assert_eq!(write_cache(&modes[..8]), None);
        assert_eq!(write_cache(&[0, 0, 0, 200, 8, 1, 4]), None);
        assert!(rotates(&[0, 0xb1, 0, 60, 0x1c, 0x20]) && !rotates(&[0, 0xb1, 0, 60, 0, 1]));
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
