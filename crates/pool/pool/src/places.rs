//! Where everything lies on the disks: for tests that damage it, and for those who look at a disk themselves.

use std::sync::atomic::Ordering;

use pool_format::{BLOCK, DiskId, SpaceId};

use crate::pool::Pool;

/// A slab that holds a copy of a column, as it stands at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlabInUse {
    /// The space that it belongs to.
    pub space: SpaceId,
    /// The row of the space; its journal has the highest number.
    pub row: u32,
    /// The first of the columns that stand in for each other: with parity 0, else the slab's own.
    pub group: u8,
    /// The disk that it is on.
    pub disk: DiskId,
    /// Where it begins on the disk, in bytes.
    pub start: u64,
    /// Bytes of it.
    pub len: u64,
    /// Where its pages of checksums begin on the disk, in bytes, and how many bytes they take; `None` without checksums.
    pub sums: Option<(u64, u64)>,
    /// Regions (one bit each, all of the same size) in which it has everything that was written, and is here.
    pub good: u64,
    /// Regions in which nothing is under way: what is there is on the disk, and so are its checksums.
    pub quiet: u64,
    /// Regions whose copies may differ and whose checksums lag, after a crash.
    pub unsettled: u64,
}

impl Pool {
    /// All slabs that are in use.
    #[must_use]
    pub fn slabs_in_use(&self) -> Vec<SlabInUse> {
        let mut slabs = Vec::new();
        self.core.for_each_column(|_, place, row| {
            let group = row.group(place.column);
            let order = group.order.lock();
            let unsettled = group.unsettled.load(Ordering::Acquire) | group.torn.load(Ordering::Acquire);
            let writing = group.writing.load(Ordering::SeqCst) > 0;
            let busy = if writing { u64::MAX } else { group.unflushed(&order) | unsettled };
            for copy in row.column(place.column).copies().iter() {
                let here = if copy.disk.is_online() { u64::MAX } else { 0 };
                slabs.push(SlabInUse {
                    space: place.space,
                    row: place.row,
                    group: row.lead(place.column),
                    disk: copy.id(),
                    start: copy.start,
                    len: self.core.slab_size,
                    sums: copy.sums_start.map(|start| (start, row.shape.sums_pages as u64 * BLOCK)),
                    good: here & !copy.stale.load(Ordering::Acquire),
                    quiet: !busy,
                    unsettled,
                });
            }
        });
        slabs
    }
}
