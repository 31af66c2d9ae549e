//! Which MiB of the file are used, and which can be given to new blocks.
//!
//! ```text
//!   used ──free()──► freed, not committed ──commit──► limbo ──everybody who may still use it is gone──► free ──take()──► used
//! ```
//! A block that is given up keeps its place until the BAT that does not lead to it any more is durable: before, a crash would
//! bring back a BAT that leads to what another block has written there. And until each operation that began before has ended: it
//! may have looked its place up already.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use vhdx_format::MIB;

use crate::error::{ImageError, ImageErrorKind, Result};
use crate::memory::{Taken, unlimited};
pub(crate) use crate::used::Extent;
use crate::used::Used;

/// Files are not longer than this, in bytes: the largest disk, its table and its bitmaps need less.
pub(crate) const FILE_MAX: u64 = 256 << 40;

pub(crate) struct Space {
    inner: Mutex<Inner>,
}

struct Inner {
    used: Used,
    /// Memory for what was in use when the file was opened, whatever that may say. What is taken later is filled with as much as a block has.
    taken: Taken,
    /// Where the file's used part ends, in MiB.
    end: u64,
    /// Of the MiB before `end`, those that are not used.
    free: u64,
    /// By how many MiB are taken at once: before this place no so many lie free beside each other.
    hints: BTreeMap<u64, u64>,
    freed: Vec<(u64, Extent)>,
    limbo: Vec<(u64, Extent)>,
    operations: u64,
    active: BTreeSet<u64>,
}

impl Inner {
    fn settle(&mut self) {
        let oldest = self.active.first().copied().unwrap_or(u64::MAX);
        let (ready, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.limbo).into_iter().partition(|(stamp, _)| *stamp < oldest);
        self.limbo = kept;
        for (_, extent) in ready {
            self.used.set(extent, false);
            self.free += extent.count;
            self.is_free(extent);
        }
    }

    /// An extent has become free: with what lies free before it, it may be room for more.
    fn is_free(&mut self, extent: Extent) {
        for (count, hint) in &mut self.hints {
            *hint = (*hint).min(extent.at.saturating_sub(count - 1));
        }
    }

    /// The first `count` free MiB beside each other, before `limit`.
    fn find(&mut self, count: u64, limit: u64) -> Option<u64> {
        let mut at = self.hints.get(&count).copied().unwrap_or(0);
        let mut run = 0;
        while at < limit && run < count {
            let word = self.used.word(at);
            if at.is_multiple_of(64) && word == u64::MAX {
                (at, run) = (at + 64, 0);
                continue;
            }
            let end = limit.min((at / 64 + 1) * 64);
            while at < end && run < count {
                run = if word >> (at % 64) & 1 == 1 { 0 } else { run + 1 };
                at += 1;
            }
        }
        // The next search begins behind what is found now, or where this one has found no end.
        let found = run == count;
        self.hints.insert(count, if found { at } else { at - run });
        found.then(|| at - count)
    }
}

/// An operation that may use what it has looked up, until it is dropped.
pub(crate) struct Operation<'a> {
    space: &'a Space,
    number: u64,
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.space.inner.lock().active.remove(&self.number);
    }
}

impl Default for Space {
    fn default() -> Self {
        Self::within(Taken::nothing(unlimited()))
    }
}

impl Space {
    /// A file nothing of which is in use; what is known of it is taken from there.
    pub(crate) fn within(taken: Taken) -> Self {
        let inner = Inner {
            used: Used::default(),
            taken,
            end: 0,
            free: 0,
            hints: BTreeMap::new(),
            freed: Vec::new(),
            limbo: Vec::new(),
            operations: 0,
            active: BTreeSet::new(),
        };
        Self { inner: Mutex::new(inner) }
    }

    /// An operation begins.
    pub(crate) fn begin(&self) -> Operation<'_> {
        let mut inner = self.inner.lock();
        inner.operations += 1;
        let number = inner.operations;
        inner.active.insert(number);
        Operation { space: self, number }
    }

    /// Marks a part that is in use, while the file is opened. False when a part of it is in use already, or it lies where no part
    /// of a file can.
    ///
    /// # Errors
    /// When there is no memory for what is known of it.
    pub(crate) fn claim(&self, extent: Extent) -> Result<bool> {
        let Some(end) = extent.at.checked_add(extent.count).filter(|end| *end <= FILE_MAX / MIB) else {
            return Ok(false);
        };
        let inner = &mut *self.inner.lock();
        if inner.used.any(extent) {
            return Ok(false);
        }
        let more = inner.used.bytes_more(extent);
        if more > 0 && !inner.taken.grow(more) {
            let told = "there is no memory now for what is known of its space";
            return Err(ImageError::new(ImageErrorKind::NoMemory, told));
        }
        inner.used.set(extent, true);
        inner.end = inner.end.max(end);
        Ok(true)
    }

    /// All that is in use of a file of `size` bytes has been claimed: the rest of it is free.
    pub(crate) fn settle_claims(&self, size: u64) {
        let mut inner = self.inner.lock();
        inner.end = inner.end.max(size.min(FILE_MAX).div_ceil(MIB));
        inner.free = inner.end - inner.used.count();
        inner.hints.clear();
    }

    /// MiB before the end that nothing uses.
    pub(crate) fn free_count(&self) -> u64 {
        let mut inner = self.inner.lock();
        inner.settle();
        inner.free
    }

    /// Where the last used part ends, in bytes.
    pub(crate) fn end(&self) -> u64 {
        let mut inner = self.inner.lock();
        inner.settle();
        inner.used.end() * MIB
    }

    /// What lies behind the last used part is the file's no more.
    pub(crate) fn cut(&self) {
        let end = self.end() / MIB;
        let mut inner = self.inner.lock();
        inner.free -= inner.end - end;
        inner.end = end;
        inner.hints.values_mut().for_each(|hint| *hint = (*hint).min(end));
    }

    /// Takes `count` MiB: where they are, and whether something else may have been written there before. `below`, given, is where
    /// they must lie before; then they are not taken from beyond the end.
    pub(crate) fn take(&self, count: u64, below: Option<u64>) -> Option<(Extent, bool)> {
        let mut inner = self.inner.lock();
        inner.settle();
        let limit = below.map_or(inner.end, |below| below.min(inner.end));
        if inner.free >= count
            && let Some(at) = inner.find(count, limit)
        {
            let extent = Extent { at, count };
            inner.used.set(extent, true);
            inner.free -= count;
            return Some((extent, true));
        }
        let extent = Extent { at: inner.end, count };
        if below.is_some() || inner.end + count > FILE_MAX / MIB {
            return None;
        }
        inner.used.set(extent, true);
        inner.end += count;
        Some((extent, false))
    }

    /// Gives back what was taken and never led to.
    pub(crate) fn give_back(&self, extent: Extent) {
        let mut inner = self.inner.lock();
        inner.used.set(extent, false);
        inner.free += extent.count;
        inner.is_free(extent);
    }

    /// The BAT in memory leads there no more.
    pub(crate) fn free(&self, extent: Extent) {
        let mut inner = self.inner.lock();
        let stamp = inner.operations;
        inner.freed.push((stamp, extent));
    }

    /// Takes what was freed before the changes that are committed next.
    pub(crate) fn take_freed(&self) -> Vec<(u64, Extent)> {
        std::mem::take(&mut self.inner.lock().freed)
    }

    /// It could not be committed.
    pub(crate) fn put_back(&self, freed: Vec<(u64, Extent)>) {
        self.inner.lock().freed.extend(freed);
    }

    /// The BAT in the file leads there no more.
    pub(crate) fn committed(&self, freed: Vec<(u64, Extent)>) {
        self.inner.lock().limbo.extend(freed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_space_is_used_again_only_when_nobody_can_reach_it() {
        let space = Space::default();
        assert!(space.claim(Extent { at: 0, count: 4 }).expect("memory"));
        for (at, count) in [(3, 2), (u64::MAX, 2)] {
            assert!(!space.claim(Extent { at, count }).expect("memory"));
        }
        space.settle_claims(0);
        let (first, old) = space.take(2, None).expect("space");
        assert_eq!((first, old), (Extent { at: 4, count: 2 }, false));
        let reader = space.begin();
        space.free(first);
        assert_eq!(space.take(2, None), Some((Extent { at: 6, count: 2 }, false)), "not committed");
        let freed = space.take_freed();
        space.committed(freed);
        assert_eq!(space.take(2, None), Some((Extent { at: 8, count: 2 }, false)), "somebody reads it");
        drop(reader);
        let _later = space.begin();
        assert_eq!(space.take(1, None), Some((Extent { at: 4, count: 1 }, true)));
        assert_eq!(space.take(2, None), Some((Extent { at: 10, count: 2 }, false)), "only one is left");
        assert_eq!(space.take(1, Some(4)), None);
        assert_eq!(space.take(1, Some(6)), Some((Extent { at: 5, count: 1 }, true)));
        assert_eq!((space.free_count(), space.end()), (0, 12 * MIB));
        space.give_back(Extent { at: 10, count: 2 });
        assert_eq!((space.free_count(), space.end()), (2, 10 * MIB));
        space.cut();
        assert_eq!((space.free_count(), space.end()), (0, 10 * MIB));
    }

    /// Hints find what looking at everything finds.
    #[test]
    fn the_first_room_is_found_whatever_was_taken_before() {
        let dice = sim::Dice::new(9);
        let space = Space::default();
        assert!(space.claim(Extent { at: 0, count: 1 }).expect("memory"));
        space.settle_claims(400 * MIB);
        let mut used = vec![false; 400];
        used[0] = true;
        let mut taken: Vec<Extent> = Vec::new();
        for _ in 0..20_000 {
            if dice.one_in(2) && !taken.is_empty() {
                let extent = taken.swap_remove(dice.below(taken.len() as u64) as usize);
                used[extent.at as usize..][..extent.count as usize].fill(false);
                space.give_back(extent);
                continue;
            }
            let (count, below) = (*dice.pick(&[1, 2, 8, 32]).expect("one"), dice.between(1, 500));
            let room = used[..used.len().min(below as usize)].windows(count as usize);
            let first = room.into_iter().position(|window| window.iter().all(|used| !used));
            let found = space.take(count, Some(below));
            assert_eq!(found.map(|(extent, _)| extent.at as usize), first);
            if let Some((extent, _)) = found {
                used[extent.at as usize..][..extent.count as usize].fill(true);
                taken.push(extent);
            }
        }
    }
}
