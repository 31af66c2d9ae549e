//! What has gone bad on disks without a word, or was not kept, until it is healed or matters no more.

use pool::{Pool, SlabInUse, SpaceId};
use sim::Rot;

use super::{Rig, Slot};

/// Regions of a slab.
pub(crate) const REGIONS: u64 = 64;

/// A sector that has gone bad.
pub(crate) struct Spoiled {
    pub(crate) slot: usize,
    /// Where the sector is on its disk, in bytes.
    pub(crate) at: u64,
    pub(crate) rot: Rot,
    pub(crate) group: Group,
    /// The slab on its disk, in bytes.
    pub(crate) start: u64,
    /// The region of the slab; `None` for a page of its checksums.
    pub(crate) region: Option<u64>,
}

pub(crate) type Group = (SpaceId, u32, u8);

pub(crate) fn group_of(slab: &SlabInUse) -> Group {
    (slab.space, slab.row, slab.group)
}

/// A sector of a pool's structure that has gone bad.
pub(crate) struct SpoiledMetadata {
    pub(crate) slot: usize,
    pub(crate) rot: Rot,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Superblock,
    Checkpoint,
    Log,
}

/// Whether a disk lacks writes that it has acknowledged, or does not keep what is written now.
pub(crate) fn has_losses(slots: &[Slot]) -> bool {
    slots.iter().any(|slot| slot.disk.is_losing() || !slot.disk.lost().is_empty())
}

impl Rig {
    /// Whether a disk has sectors that have gone bad.
    pub(crate) fn is_spoiled(&self, slot: usize) -> bool {
        let metadata = self.spoiled_metadata.borrow();
        self.spoiled.borrow().iter().any(|bad| bad.slot == slot)
            || metadata.iter().any(|bad| bad.slot == slot)
    }

    /// Forgets lost writes that do not matter any more: their slab is in use no more. At an opening, what a region lacks that was
    /// under way is put there.
    fn forget_losses(&self, pool: &Pool, opening: bool) {
        if !has_losses(&self.slots.borrow()) {
            return;
        }
        let slabs = pool.slabs_in_use();
        for slot in 0..self.slots.borrow().len() {
            let (disk, id) = (self.disk(slot), self.id(pool, slot));
            for at in disk.lost() {
                let holds = |(start, len): (u64, u64)| (start..start + len).contains(&at);
                let here = |slab: &&SlabInUse| Some(slab.disk) == id;
                let slab = slabs.iter().filter(here).find(|slab| holds((slab.start, slab.len)));
                let is_page = || slabs.iter().filter(here).any(|slab| slab.sums.is_some_and(holds));
                match slab {
                    Some(slab) => {
                        let region = (at - slab.start) / (slab.len / REGIONS);
                        if opening && slab.unsettled & (1 << region) != 0 {
                            disk.put_back(at);
                        }
                    }
                    None if is_page() => {}
                    None => disk.forget_loss(at),
                }
            }
        }
    }

    /// Forgets what has been healed, or does not matter any more.
    pub(crate) fn forget_healed(&self, pool: &Pool, opening: bool) {
        self.forget_losses(pool, opening);
        if self.spoiled.borrow().is_empty() {
            return;
        }
        let slabs = pool.slabs_in_use();
        let matters = |bad: &Spoiled| {
            let id = self.id(pool, bad.slot);
            let slab = slabs.iter().find(|slab| Some(slab.disk) == id && slab.start == bad.start);
            let Some(slab) = slab.filter(|slab| group_of(slab) == bad.group) else { return false };
            !opening || bad.region.is_none_or(|region| slab.unsettled & (1 << region) == 0)
        };
        self.spoiled.borrow_mut().retain(|bad| {
            let disk = self.disk(bad.slot);
            let kept = matters(bad) && disk.is_rotten(&bad.rot);
            if !kept {
                disk.unrot(&bad.rot);
            }
            kept
        });
    }
}
