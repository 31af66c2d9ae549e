//! Bad luck that no error tells of when it happens, or that goes by itself: a disk is what it was before, does not keep what
//! it has acknowledged, or is full for a while.

use std::ops::Range;

use crate::medium::Change;
use crate::{Full, Image, SECTOR, SimDisk};

impl SimDisk {
    /// What the disk shows now, to go back to.
    #[must_use]
    pub fn image(&self) -> Image {
        self.inner.lock().medium.image()
    }

    /// The disk is again what it was at an earlier moment, as a restored virtual disk is. It must be attached anew.
    pub fn roll_back(&self, image: &Image) {
        let mut inner = self.inner.lock();
        inner.forget_users();
        inner.unreadable.clear();
        inner.medium.roll_back(image);
    }

    /// The disk is full from now on, or has space again.
    pub fn set_full(&self, full: Option<Full>) {
        self.inner.lock().full = full;
    }

    /// Whether the disk is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.inner.lock().full.is_some()
    }

    /// What is written to these ranges (in bytes) from now on is acknowledged, and not kept.
    pub fn lose_writes(&self, ranges: &[Range<u64>]) {
        let whole = |range: &Range<u64>| range.start as usize..range.end as usize;
        self.inner.lock().losing.extend(ranges.iter().map(whole));
    }

    /// The disk keeps what is written again.
    pub fn keep_writes(&self) {
        self.inner.lock().losing.clear();
    }

    /// Whether writes to some range are not kept.
    #[must_use]
    pub fn is_losing(&self) -> bool {
        !self.inner.lock().losing.is_empty()
    }

    /// Where the sectors lie, in bytes, that lack what was acknowledged last and have not been written since.
    #[must_use]
    pub fn lost(&self) -> Vec<u64> {
        let sectors = self.inner.lock().medium.lost();
        sectors.into_iter().map(|sector| (sector * SECTOR) as u64).collect()
    }

    /// The sector at `offset` gets what it lacks, as if it had never been lost.
    pub fn put_back(&self, offset: u64) {
        self.inner.lock().medium.end_loss(offset as usize / SECTOR, true);
    }

    /// What the sector at `offset` lacks is of no interest any more.
    pub fn forget_loss(&self, offset: u64) {
        self.inner.lock().medium.end_loss(offset as usize / SECTOR, false);
    }
}

impl crate::disk::Inner {
    /// Whether the disk is full, and has no space for the change.
    pub(crate) fn is_too_full_for(&self, change: &Change) -> bool {
        match self.full {
            None => false,
            Some(Full::Everything) => true,
            Some(Full::New) => self.medium.grows(change),
        }
    }
}
