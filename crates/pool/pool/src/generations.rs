//! Generations of pages of checksums: how a write is noticed that a disk lost together with its checksums.
//!
//! Such a disk has older data and an older page that fit each other. So a page carries a generation, another one each time that its
//! content has changed, and with the regions that become clean the metadata is told the generation that all copies have. A copy
//! with an older one has lost writes: its page is as good as damaged, and what is right is known from other copies or parity. Where
//! nothing else knows, blocks of the page are an error until they are written: which of them are old cannot be told.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pool_format::{BLOCK, Change, SUMS_PER_PAGE, Seq, next_generation};

use crate::at::At;
use crate::page::{PAGE_SPAN, Page};
use crate::row::CopyState;

/// How far pages may be ahead of what the metadata knows: a crash, or copies that could not be written, kept it from being told.
const AHEAD_MAX: u8 = 8;
/// Pages in one change, so that it stays short.
const PAGES_TOLD: usize = 32;

/// What the generation of a page on a disk says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// It is the one that the copies should have.
    Current,
    /// The copy misses regions of it, and may lack what was written to the page for those.
    Unchecked,
    /// The disk has lost writes of it that it had acknowledged.
    Old,
}

/// How many generations `to` is after `from`; neither is 0.
pub(crate) fn distance(from: u8, to: u8) -> u8 {
    // There are 255, from 1 on.
    ((i32::from(to) - i32::from(from)).rem_euclid(255)) as u8
}

/// The generation with which the pages of a row begin that is allocated after this change, unless its slabs have pages of an earlier life
/// of the same row (`earlier_life.rs`). It is not always the same, as a disk that is away may have some, too.
pub(crate) fn first(after: Seq) -> u8 {
    (after.0 % 255) as u8 + 1
}

/// The generation of a page that the metadata knows, 0 for none.
pub(crate) fn known(at: At<'_>, index: usize) -> u8 {
    let place = at.place;
    at.core.meta.with_state(|state| {
        let row = state.rows.get(&(place.space, place.row));
        row.and_then(|row| row.columns.get(usize::from(place.column)))
            .map_or(0, |column| column.generation(index))
    })
}

/// Whether a page that is [`Age::Old`] is so because its disk lost writes that it had acknowledged. One that is a little ahead has all that
/// was told of it, and more that a power cut kept from being told.
pub(crate) fn is_behind(known: u8, found: u8) -> bool {
    known != 0 && (found == 0 || distance(known, found) > AHEAD_MAX)
}

/// The regions that a page covers.
fn regions(at: At<'_>, index: usize) -> u64 {
    at.regions(index as u64 * PAGE_SPAN, at.core.slab_size.min(PAGE_SPAN))
}

/// What a page is that a copy has with this generation.
pub(crate) fn age(at: At<'_>, copy: &CopyState, index: usize, found: u8) -> Age {
    let (known, regions) = (known(at, index), regions(at, index));
    if known == 0 || found == known || at.core.faults.skip_generations.load(Ordering::Relaxed) {
        return Age::Current;
    }
    let dirty = {
        let order = at.group().order.lock();
        (at.group().unflushed(&order) | order.telling) & regions
    };
    if found != 0 && dirty != 0 && distance(known, found) <= AHEAD_MAX {
        return Age::Current;
    }
    let stale = copy.stale.load(Ordering::Acquire) | copy.stale_durable.load(Ordering::Acquire);
    if stale & regions != 0 { Age::Unchecked } else { Age::Old }
}

/// A page that was given to all copies of a column that have everything.
pub(crate) struct Given {
    pub(crate) column: u8,
    pub(crate) index: usize,
    pub(crate) page: Arc<Page>,
    pub(crate) put: Put,
}

/// With what generation a page was written to disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Put {
    pub(crate) generation: u8,
    /// An earlier content had it, too: it could not be raised, as the metadata did not know of the ones before. So no region is called
    /// clean with it, but it is told, and given anew with the next one.
    pub(crate) again: bool,
}

/// Whether the metadata accounts for a page as copies may have it now: the generation is the one that it knows and nothing has changed since,
/// or it calls a region of it dirty. Otherwise a crash would leave a page that says something new of regions which are clean.
pub(crate) fn is_accounted_for(at: At<'_>, index: usize, page: &Page) -> bool {
    let dirty = at.core.meta.with_state(|state| {
        let row = state.rows.get(&(at.place.space, at.place.row));
        row.and_then(|row| row.columns.get(usize::from(at.lead().column))).map_or(u64::MAX, |lead| lead.dirty)
    });
    let known = known(at, index);
    known == 0
        || dirty & regions(at, index) != 0
        || (page.generation.load(Ordering::Acquire) == known && !page.changed.load(Ordering::Acquire))
        || at.core.faults.skip_dirty_mark.load(Ordering::Relaxed)
}

/// What the metadata is to be told of pages of a row.
pub(crate) fn told(at: At<'_>, given: &[Given]) -> Vec<Change> {
    let (space, row) = (at.place.space, at.place.row);
    let mut changes: Vec<Change> = Vec::new();
    for Given { column, index, put: Put { generation, .. }, .. } in given {
        let news = known(at.other(usize::from(*column)), *index) != *generation;
        let Some(page) = u16::try_from(*index).ok().filter(|_| news) else { continue };
        match changes.last_mut() {
            Some(Change::Generations { column: last, pages, .. })
                if last == column && pages.len() < PAGES_TOLD =>
            {
                pages.push((page, *generation));
            }
            _ => {
                let pages = vec![(page, *generation)];
                changes.push(Change::Generations { space, row, column: *column, pages });
            }
        }
    }
    changes
}

impl Page {
    /// The generation with which it is written to disks now. Under `writing`.
    pub(crate) fn next_generation(&self) -> Put {
        let (generation, told) = (self.generation.load(Ordering::Acquire), self.told.load(Ordering::Acquire));
        // While it cannot be told what copies have, they must not run away from what is known.
        let ahead = if told == 0 || generation == 0 { 0 } else { distance(told, generation) };
        if ahead >= AHEAD_MAX {
            // What has changed gets one of its own as soon as this one has been told.
            let again = self.changed.load(Ordering::Acquire);
            if again {
                self.dirty.store(true, Ordering::Release);
            }
            return Put { generation, again };
        }
        if !self.changed.swap(false, Ordering::AcqRel) {
            return Put { generation, again: false };
        }
        let generation = next_generation(generation);
        self.generation.store(generation, Ordering::Release);
        Put { generation, again: false }
    }

    /// A copy has it with this generation, which the metadata was not told before a crash, or before that copy's disk left: what comes next
    /// must differ from all that copies may have. `told` is what the metadata knows.
    pub(crate) fn was_given(&self, generation: u8, told: u8) {
        if told == 0 || generation == 0 {
            return;
        }
        let before = self.generation.load(Ordering::Acquire);
        let ahead = distance(told, generation);
        if ahead <= AHEAD_MAX && ahead > distance(told, before) {
            self.generation.store(generation, Ordering::Release);
            self.changed.store(true, Ordering::Release);
            self.dirty.store(true, Ordering::Release);
        }
    }

    /// What it is written with next is another generation. The caller has marked a region of it dirty.
    pub(crate) fn raise(&self) {
        self.changed.store(true, Ordering::Release);
        self.dirty.store(true, Ordering::Release);
    }

    /// The metadata knows a generation of it.
    pub(crate) fn tell(&self, generation: u8) {
        self.told.store(generation, Ordering::Release);
    }

    /// Blocks of clean regions of which another copy's page, as new as this one, says something else are an error until they are
    /// written: nobody knows which copy is right.
    pub(crate) fn compare(
        &self,
        at: At<'_>,
        index: usize,
        regions: u64,
        (sums, copy): (&[u32], &CopyState),
        disowned: &mut BTreeSet<u64>,
    ) {
        let clean = {
            let order = at.group().order.lock();
            regions & !at.group().unflushed(&order)
        };
        let differs = |(sum, block): &(&u32, u64)| {
            at.regions(block * BLOCK, BLOCK) & clean != 0 && !self.is(*block, **sum)
        };
        let blocks: Vec<u64> =
            sums.iter().zip(index as u64 * SUMS_PER_PAGE..).filter(differs).map(|(_, block)| block).collect();
        for block in &blocks {
            if disowned.insert(*block)
                && let Some(known) = self.at(*block)
            {
                known.fetch_xor(u32::MAX, Ordering::AcqRel);
            }
        }
        if let (Some(first), Some(last)) = (blocks.first(), blocks.last()) {
            tracing::error!(
                "{at}: between bytes {} and {} the checksums on disk {} are not those of another copy, and nothing tells which are newer",
                first * BLOCK,
                (last + 1) * BLOCK,
                copy.id()
            );
        }
    }

    /// No copy can say what the blocks of these regions are: whatever a disk has of them is an error, until they are written.
    pub(crate) fn disown(&self, at: At<'_>, index: usize, regions: u64, sums: &[u32]) {
        for (sum, block) in sums.iter().zip(index as u64 * SUMS_PER_PAGE..) {
            if at.regions(block * BLOCK, BLOCK) & regions != 0
                && let Some(known) = self.at(block)
            {
                known.store(!sum, Ordering::Release);
            }
        }
    }

    /// Takes over what a copy's page says of these regions.
    pub(crate) fn take(&self, at: At<'_>, index: usize, regions: u64, sums: &[u32]) {
        for (sum, block) in sums.iter().zip(index as u64 * SUMS_PER_PAGE..) {
            if at.regions(block * BLOCK, BLOCK) & regions != 0
                && let Some(known) = self.at(block)
            {
                known.store(*sum, Ordering::Release);
            }
        }
    }
}
