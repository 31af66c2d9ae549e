//! Where the pages of a block are: in memory, in the overflow file, discarded, or beneath.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Bytes of a page: what is held or not.
pub const PAGE: u64 = 4096;
/// Bytes of a slab: what memory is taken in.
pub const SLAB: u64 = 64 << 10;
/// Bytes of a block: what is used or not, and leaves memory together.
pub const BLOCK: u64 = 2 << 20;

/// Slabs of a block.
pub(crate) const BLOCK_SLABS: u64 = BLOCK / SLAB;
/// Bytes that the budget is charged for the memory of a slab, with what the allocator puts before it.
pub(crate) const SLAB_COST: u64 = SLAB + 16;
/// The same for what is known of a slab.
pub(crate) const SLAB_ENTRY_COST: u64 = size_of::<Slab>() as u64;
/// The same for a block without its slabs: the block, its place in the index and in the order of use, and what the allocator adds.
pub(crate) const BLOCK_COST: u64 = 160;

const _: () = assert!(size_of::<Slab>() == 24);
const _: () = assert!(size_of::<Block>() <= 72);

/// Bytes of the budget that the index of a disk of `size` bytes takes when something of each of its slabs is held, in memory or in the
/// overflow file: they stay in memory.
#[must_use]
pub fn index_bytes(size: u64) -> u64 {
    size.div_ceil(BLOCK).saturating_mul(BLOCK_COST + BLOCK_SLABS * SLAB_ENTRY_COST)
}

/// A slot of the overflow file that there is none of.
const NO_SLOT: u32 = u32::MAX;
const ALL: u16 = u16::MAX;

type Bytes = Box<[u8; SLAB as usize]>;

/// What is known of a slab. A page has a bit in one of `in_ram`, `zero` and `spilled` at most; in none, it is what lies beneath.
pub(crate) struct Slab {
    ram: Option<Bytes>,
    slot: u32,
    in_ram: u16,
    zero: u16,
    spilled: u16,
    /// Pages that were changed since the slab was copied to be written to the overflow file.
    dirtied: u16,
    index: u8,
    /// A copy of it is on its way to the overflow file.
    leaving: bool,
}

/// What a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Ram,
    Zero,
    /// In this slot.
    Spilled(u32),
    Beneath,
}

/// What was freed by a change.
#[derive(Debug, Default)]
pub(crate) struct Freed {
    /// Bytes of the budget.
    pub(crate) bytes: u64,
    /// Slabs that have no memory any more.
    pub(crate) slabs: u64,
    /// Slots of the overflow file.
    pub(crate) slots: Vec<u32>,
}

/// 2 MiB of the disk, of which something is held.
pub(crate) struct Block {
    pub(crate) number: u64,
    /// When it was used last, in the cache's count of uses.
    used: AtomicU64,
    pub(crate) state: Mutex<BlockState>,
}

pub(crate) struct BlockState {
    /// In the order of their indexes.
    slabs: Vec<Slab>,
    /// What lies beneath reads as zeros, and not as the base.
    pub(crate) zero_beneath: bool,
    /// The use by which it is in the order of use; 0 when it is not.
    pub(crate) queued: u64,
    /// It is not in the index any more: whoever has found it there before and wants to change it looks again.
    pub(crate) is_gone: bool,
}

/// Bytes of the budget that pages need to be written, or with `zero` to be discarded, where nothing is known of their slab.
pub(crate) fn slab_cost(zero: bool) -> u64 {
    SLAB_ENTRY_COST + if zero { 0 } else { SLAB_COST }
}

/// The pages from `first` to before `end` of a slab.
pub(crate) fn pages(first: u64, end: u64) -> u16 {
    debug_assert!(first <= end && end <= 16);
    let below = |bit: u64| ((1_u32 << bit) - 1) as u16;
    below(end) & !below(first)
}

impl Block {
    pub(crate) fn new(number: u64, zero_beneath: bool) -> Self {
        let state = BlockState { slabs: Vec::new(), zero_beneath, queued: 0, is_gone: false };
        Self { number, used: AtomicU64::new(0), state: Mutex::new(state) }
    }

    pub(crate) fn touch(&self, now: u64) {
        self.used.store(now, Ordering::Relaxed);
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}

impl Slab {
    fn new(index: u8) -> Self {
        Self { ram: None, slot: NO_SLOT, in_ram: 0, zero: 0, spilled: 0, dirtied: 0, index, leaving: false }
    }

    pub(crate) fn place(&self, page: u64) -> Place {
        let bit = pages(page, page + 1);
        if self.in_ram & bit != 0 {
            Place::Ram
        } else if self.zero & bit != 0 {
            Place::Zero
        } else if self.spilled & bit != 0 {
            Place::Spilled(self.slot)
        } else {
            Place::Beneath
        }
    }

    /// The bytes in memory of a range, which lies in pages that are there.
    pub(crate) fn bytes(&self, at: u64, len: u64) -> Option<&[u8]> {
        self.ram.as_ref()?.get(at as usize..(at + len) as usize)
    }

    /// Takes pages from wherever they are; somebody puts them elsewhere.
    fn take_away(&mut self, mask: u16) {
        self.in_ram &= !mask;
        self.zero &= !mask;
        self.spilled &= !mask;
        if self.leaving {
            self.dirtied |= mask;
        }
    }

    /// Gives back what has no page any more.
    fn settle(&mut self, freed: &mut Freed) {
        if self.in_ram == 0 && self.ram.take().is_some() {
            freed.bytes += SLAB_COST;
            freed.slabs += 1;
        }
        if self.spilled == 0 && self.slot != NO_SLOT {
            freed.slots.push(self.slot);
            self.slot = NO_SLOT;
        }
    }

    fn holds_nothing(&self) -> bool {
        self.in_ram | self.zero | self.spilled == 0 && !self.leaving
    }
}

impl BlockState {
    fn at(&self, index: u64) -> Result<usize, usize> {
        self.slabs.binary_search_by_key(&index, |slab| u64::from(slab.index))
    }

    pub(crate) fn slab(&self, index: u64) -> Option<&Slab> {
        self.at(index).ok().map(|at| &self.slabs[at])
    }

    /// The slabs that are in memory, which have something to leave it.
    pub(crate) fn in_memory(&self) -> impl Iterator<Item = u64> {
        self.slabs.iter().filter(|slab| slab.ram.is_some()).map(|slab| u64::from(slab.index))
    }

    pub(crate) fn is_in_memory(&self) -> bool {
        self.slabs.iter().any(|slab| slab.ram.is_some())
    }

    /// Bytes of the budget that are missing for pages of a slab to be written, or with `zero` to be discarded.
    pub(crate) fn lacks(&self, index: u64, zero: bool) -> u64 {
        let slab = self.slab(index);
        let entry = if slab.is_some() { 0 } else { SLAB_ENTRY_COST };
        let memory = if zero || slab.is_some_and(|slab| slab.ram.is_some()) { 0 } else { SLAB_COST };
        entry + memory
    }

    /// Bytes of the budget that the block takes.
    #[cfg(test)]
    pub(crate) fn cost(&self) -> u64 {
        let memory = |slab: &Slab| SLAB_ENTRY_COST + if slab.ram.is_some() { SLAB_COST } else { 0 };
        BLOCK_COST + self.slabs.iter().map(memory).sum::<u64>()
    }

    fn entry(&mut self, index: u64) -> &mut Slab {
        let at = match self.at(index) {
            Ok(at) => at,
            Err(at) => {
                // Not twice as many as there are: each is paid for.
                self.slabs.reserve_exact(1);
                self.slabs.insert(at, Slab::new(index as u8));
                at
            }
        };
        &mut self.slabs[at]
    }

    /// Writes whole pages of a slab from `at` on. What [`BlockState::lacks`] says has been taken. Says whether the slab had no memory.
    pub(crate) fn write(&mut self, index: u64, at: u64, data: &[u8], freed: &mut Freed) -> bool {
        let slab = self.entry(index);
        let mask = pages(at / PAGE, (at + data.len() as u64) / PAGE);
        slab.take_away(mask);
        let is_new = slab.ram.is_none();
        let ram = slab.ram.get_or_insert_with(zeroed);
        ram[at as usize..][..data.len()].copy_from_slice(data);
        slab.in_ram |= mask;
        slab.settle(freed);
        is_new
    }

    /// Makes pages of a slab read as zeros. What [`BlockState::lacks`] says has been taken.
    pub(crate) fn discard(&mut self, index: u64, mask: u16, freed: &mut Freed) {
        let beneath = self.zero_beneath;
        let slab = self.entry(index);
        slab.take_away(mask);
        if !beneath {
            slab.zero |= mask;
        }
        slab.settle(freed);
        if slab.holds_nothing() {
            self.forget(index, freed);
        }
    }

    fn forget(&mut self, index: u64, freed: &mut Freed) {
        if let Ok(at) = self.at(index) {
            self.slabs.remove(at);
            self.slabs.shrink_to_fit();
            freed.bytes += SLAB_ENTRY_COST;
        }
    }

    /// All of the block reads as zeros, nothing of it is held, and it leaves the index.
    pub(crate) fn discard_all(&mut self, freed: &mut Freed) {
        (self.zero_beneath, self.is_gone) = (true, true);
        freed.bytes += BLOCK_COST;
        for mut slab in std::mem::take(&mut self.slabs) {
            slab.take_away(ALL);
            slab.settle(freed);
            freed.bytes += SLAB_ENTRY_COST;
        }
    }

    /// Each of its pages is discarded.
    pub(crate) fn is_all_zero(&self) -> bool {
        let all = |slab: &Slab| slab.zero == ALL && !slab.leaving;
        match self.slabs.len() as u64 {
            0 => self.zero_beneath,
            BLOCK_SLABS => self.slabs.iter().all(all),
            _ => false,
        }
    }

    /// Where the overflow file has pages of a slab that is to leave memory, and which.
    pub(crate) fn spilled(&self, index: u64) -> Option<(u32, u16)> {
        self.slab(index).filter(|slab| slab.spilled != 0).map(|slab| (slab.slot, slab.spilled))
    }

    /// Copies what a slab has in memory to `to`, which has the pages `read` from the overflow file already, to be written there. Which pages `to` has then;
    /// `None` where the slab has nothing in memory any more.
    pub(crate) fn leave(&mut self, index: u64, read: u16, to: &mut [u8]) -> Option<u16> {
        let at = self.at(index).ok()?;
        let slab = &mut self.slabs[at];
        let ram = slab.ram.as_ref()?;
        for page in (0..16).filter(|page| slab.in_ram >> page & 1 == 1) {
            let bytes = page * PAGE as usize..(page + 1) * PAGE as usize;
            to[bytes.clone()].copy_from_slice(&ram[bytes]);
        }
        (slab.leaving, slab.dirtied) = (true, 0);
        Some(slab.in_ram | slab.spilled & read)
    }

    /// A slab that was to leave stays.
    pub(crate) fn stay(&mut self, index: u64, freed: &mut Freed) {
        if let Ok(at) = self.at(index) {
            self.slabs[at].leaving = false;
            if self.slabs[at].holds_nothing() {
                self.forget(index, freed);
            }
        }
    }

    /// The pages `written` of a slab are in a slot of the overflow file now. What was changed meanwhile stays as it is.
    pub(crate) fn left(&mut self, index: u64, written: u16, slot: u32, freed: &mut Freed) {
        let found = self.at(index).ok().filter(|at| self.slabs[*at].leaving);
        let Some(at) = found else {
            // Wholly discarded meanwhile.
            freed.slots.push(slot);
            return;
        };
        let slab = &mut self.slabs[at];
        slab.leaving = false;
        let there = written & !slab.dirtied;
        if slab.slot != NO_SLOT {
            // What it had there is in the new slot, or was changed.
            debug_assert_eq!(slab.spilled & !there, 0);
            freed.slots.push(slab.slot);
        }
        slab.slot = slot;
        slab.in_ram &= !there;
        slab.spilled = there;
        slab.settle(freed);
        if slab.holds_nothing() {
            self.forget(index, freed);
        }
    }
}

fn zeroed() -> Bytes {
    // From the heap at once: an array on the stack would be copied there.
    match vec![0; SLAB as usize].into_boxed_slice().try_into() {
        Ok(bytes) => bytes,
        Err(_) => Box::new([0; SLAB as usize]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(fill: u8) -> Vec<u8> {
        vec![fill; PAGE as usize]
    }

    #[test]
    fn what_changes_while_a_slab_leaves_is_not_taken_from_the_file() {
        let mut state = Block::new(0, false).state.into_inner();
        let mut freed = Freed::default();
        assert_eq!(state.lacks(3, false), SLAB_COST + SLAB_ENTRY_COST);
        for at in 0..3 {
            state.write(3, at * PAGE, &page(1), &mut freed);
        }
        assert_eq!(state.lacks(3, false), 0);
        let mut copy = vec![0; SLAB as usize];
        assert_eq!(state.leave(3, 0, &mut copy), Some(0b111));
        state.write(3, 0, &page(2), &mut freed);
        state.discard(3, pages(1, 2), &mut freed);
        state.left(3, 0b111, 7, &mut freed);
        let slab = state.slab(3).expect("held");
        let places = [Place::Ram, Place::Zero, Place::Spilled(7), Place::Beneath];
        assert_eq!([0, 1, 2, 3].map(|page| slab.place(page)), places);
        assert_eq!((freed.bytes, freed.slots.len()), (0, 0));
        // Back again, with what the file has.
        assert_eq!(state.spilled(3), Some((7, 0b100)));
        assert_eq!(state.leave(3, 0b100, &mut copy), Some(0b101));
        state.left(3, 0b101, 8, &mut freed);
        assert_eq!((freed.bytes, freed.slabs, &freed.slots[..]), (SLAB_COST, 1, &[7][..]));
        // Discarded and written anew while it leaves: the copy is nobody's.
        state.write(3, 0, &page(3), &mut freed);
        state.leave(3, 0b100, &mut copy);
        state.discard_all(&mut freed);
        state.write(3, 0, &page(4), &mut freed);
        freed.slots.clear();
        state.left(3, 0b101, 9, &mut freed);
        assert_eq!(freed.slots, [9]);
        assert_eq!(state.slab(3).map(|slab| slab.place(0)), Some(Place::Ram));
    }
}
