//! Which slabs of which disk are free.

use std::collections::BTreeMap;

use pool_format::{DiskId, PoolState};

/// Free slabs of all disks. A slab is taken before the change that uses it is submitted and given back when
/// that change failed, or when the change that frees it is durable and no I/O on it is left.
#[derive(Default)]
pub(crate) struct Slabs {
    disks: BTreeMap<DiskId, DiskSlabs>,
}

struct DiskSlabs {
    used: Vec<bool>,
    free: u32,
    /// Where to look first.
    hint: usize,
}

impl Slabs {
    pub(crate) fn new(state: &PoolState) -> Self {
        let mut slabs = Self::default();
        for disk in state.disks.values() {
            slabs.add_disk(disk.id, disk.slab_count);
        }
        for copy in state.rows.values().flat_map(|row| &row.columns).flat_map(|column| &column.copies) {
            slabs.mark(copy.disk, copy.slab);
        }
        slabs
    }

    pub(crate) fn add_disk(&mut self, disk: DiskId, count: u32) {
        let used = vec![false; count as usize];
        self.disks.insert(disk, DiskSlabs { used, free: count, hint: 0 });
    }

    pub(crate) fn remove_disk(&mut self, disk: DiskId) {
        self.disks.remove(&disk);
    }

    fn mark(&mut self, disk: DiskId, slab: u32) {
        if let Some(slabs) = self.disks.get_mut(&disk)
            && let Some(used) = slabs.used.get_mut(slab as usize)
            && !std::mem::replace(used, true)
        {
            slabs.free -= 1;
        }
    }

    pub(crate) fn take(&mut self, disk: DiskId) -> Option<u32> {
        let slabs = self.disks.get_mut(&disk)?;
        let count = slabs.used.len();
        let at = (slabs.hint..count).chain(0..slabs.hint).find(|at| !slabs.used[*at])?;
        slabs.used[at] = true;
        slabs.free -= 1;
        slabs.hint = at + 1;
        Some(at as u32)
    }

    pub(crate) fn give_back(&mut self, disk: DiskId, slab: u32) {
        if let Some(slabs) = self.disks.get_mut(&disk)
            && let Some(used) = slabs.used.get_mut(slab as usize)
            && std::mem::replace(used, false)
        {
            slabs.free += 1;
            slabs.hint = slabs.hint.min(slab as usize);
        }
    }

    /// Free and all slabs of a disk.
    pub(crate) fn count(&self, disk: DiskId) -> (u32, u32) {
        self.disks.get(&disk).map_or((0, 0), |slabs| (slabs.free, slabs.used.len() as u32))
    }
}
