//! Checksums of data while the pool is open: one for each block of a column, for all its copies alike.
//!
//! ```text
//!  write ─► data on all copies ─► sums in the page in memory (the region is dirty)
//!  cleaner ─► page to all copies, flush ─► region clean           so a page on disk is right for every clean region
//!  read ─► data from a copy ─► equal to the page in memory?       no: the careful way, `careful.rs`
//! ```
//! Nothing is added to a write's way to disk. After a crash the pages lag behind the data of dirty regions: until
//! these have been settled (`resync.rs`) nothing in them is compared.
//!
//! Invariants:
//! * A column's page is in memory once: it leaves only when nobody else holds it.
//! * A page in memory that is not `dirty` is on every copy that is here, except in regions that are dirty or stale.
//! * On every copy that lacks nothing of a page it has the generation that the metadata knows, or a later one while a region of it
//!   is dirty (`generations.rs`).
//! * `unknown` regions of a page are those of which no copy with a sound page was here; nothing in them is compared.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use pool_format::{BLOCK, DiskId, SUMS_PER_PAGE};

use crate::at::At;
use crate::dirty::ensure_dirty;
use crate::generations::{self, Age};
use crate::page::{PAGE_SPAN, Page, Sums};
use crate::pages::{NoPage, read_page, read_page_and_age};
use crate::row::CopyState;

impl Page {
    /// Whether a copy is known to have it damaged.
    pub(crate) fn is_damaged_on(&self, copies: &[Arc<CopyState>]) -> bool {
        let damaged = self.damaged.lock();
        copies.iter().any(|copy| damaged.contains(&copy.id()))
    }

    /// A copy has it damaged: it is written anew with the next region of it that becomes clean. `true` when that is news.
    fn damaged_on(&self, copy: &CopyState) -> bool {
        self.dirty.store(true, Ordering::Release);
        let mut damaged = self.damaged.lock();
        let news = !damaged.contains(&copy.id());
        if news {
            damaged.push(copy.id());
            copy.disk.checksum_errors.fetch_add(1, Ordering::Relaxed);
        }
        news
    }
}

/// Whether a part of a column is known to be zeros. Under its lock.
pub(crate) fn is_zero(at: At<'_>, page: Option<&Arc<Page>>, offset: u64, len: u64) -> bool {
    let mask = at.regions(offset, len);
    page.is_some_and(|page| {
        !at.group().is_unsettled(mask)
            && page.unknown.load(Ordering::Acquire) & mask == 0
            && page.says_zero(offset, len / BLOCK)
    })
}

/// The page that covers a part of a column, from memory or from a copy. `None` in a space without checksums.
/// What is read or written at `offset` lies in one page.
pub(crate) async fn page_at(at: At<'_>, offset: u64) -> Option<Arc<Page>> {
    let sums = at.column().sums.as_ref()?;
    let index = (offset / PAGE_SPAN) as usize;
    if let Some(page) = sums.in_memory(index) {
        if !page.used.load(Ordering::Relaxed) {
            page.used.store(true, Ordering::Relaxed);
        }
        let unknown = page.unknown.load(Ordering::Acquire);
        let forgotten = at.group().forgotten.load(Ordering::Acquire);
        if unknown == 0 || unknown & at.column().good() & !forgotten == 0 {
            return Some(page);
        }
    }
    load(at, sums, index).await
}

/// Before a write that has come to its copies tells `page` of it: asks for what is unknown there, in case a copy that was
/// away when the write began has come back in time to take part in it. (Asked for later, its page would bring old
/// checksums over the new. A copy that did not take part is marked stale by now, and is not asked.)
pub(crate) async fn renew(at: At<'_>, page: &Page, offset: u64, len: u64) {
    if page.unknown.load(Ordering::Acquire) & at.regions(offset, len) != 0 {
        page_at(at, offset).await;
    }
}

/// Brings a page to memory, or asks again for its unknown regions.
async fn load(at: At<'_>, sums: &Sums, index: usize) -> Option<Arc<Page>> {
    let _one = sums.loading.lock().await;
    let span = at.core.slab_size.min(PAGE_SPAN);
    let regions = at.regions(index as u64 * PAGE_SPAN, span);
    let known = sums.in_memory(index);
    let asked = known.as_ref().map_or(regions, |page| page.unknown.load(Ordering::Acquire));
    let mut need = asked;
    let count = (span / BLOCK) as usize;
    let told = generations::known(at, index);
    let page = known.clone().unwrap_or_else(|| {
        Arc::new(Page {
            sums: (0..count).map(|_| AtomicU32::new(0)).collect(),
            checksum: at.space.checksum,
            dirty: AtomicBool::new(false),
            changed: AtomicBool::new(false),
            generation: AtomicU8::new(told),
            told: AtomicU8::new(told),
            unknown: AtomicU64::new(regions),
            old: AtomicU64::new(0),
            hinted: AtomicU64::new(0),
            damaged: Mutex::default(),
            used: AtomicBool::new(true),
            writing: tokio::sync::Mutex::default(),
        })
    });
    let _still = match &known {
        Some(page) => Some(page.writing.lock().await),
        None => None,
    };
    let (mut lost, mut lacking) = (0, 0);
    // Where a crash may have come while it was written, any copy's may be torn: whoever writes them must know.
    let doubted = at.group().dirty_durable.load(Ordering::SeqCst) & regions != 0;
    let mut unchecked = Vec::new();
    let mut old = None;
    // Of pages without a generation no copy's is known to be the newest: all of them are asked.
    let all = told == 0 && known.is_none() && at.row.inherited;
    let mut disowned = BTreeSet::new();
    for copy in at.column().copies().iter().filter(|copy| copy.disk.is_online()) {
        let stale = copy.stale.load(Ordering::Acquire);
        let good = need & !stale;
        if good == 0 && !((doubted || all) && regions & !stale != 0) {
            continue;
        }
        match read_page_and_age(at, copy, index).await {
            Ok((found, Age::Current)) if found.sums.len() == count => {
                if all {
                    page.compare(at, index, regions & !need & !stale, (&found.sums, copy), &mut disowned);
                }
                page.take(at, index, good & page.unknown.load(Ordering::Acquire), &found.sums);
                need &= !good;
                page.was_given(found.generation, told);
            }
            Ok((found, Age::Unchecked)) if found.sums.len() == count => unchecked.push((!stale, found.sums)),
            Ok((found, Age::Old)) if found.sums.len() == count => {
                lost |= good;
                if generations::is_behind(told, found.generation) {
                    lacking |= good;
                }
                if page.damaged_on(copy) {
                    tracing::warn!(
                        "{at}: page {index} of the checksums on disk {} is generation {}, and {told} was written to it",
                        copy.id(),
                        found.generation
                    );
                }
                old.get_or_insert(found.sums);
            }
            // The disk has left meanwhile. What its page says is as unknown as if it had left before.
            Err(NoPage::Away) => {}
            _ => {
                lost |= good;
                if page.damaged_on(copy) {
                    tracing::warn!("{at}: page {index} of the checksums on disk {} is damaged", copy.id());
                }
            }
        }
    }
    for (good, sums) in unchecked {
        // Where the other columns can say what is right, they are asked: this page may lack writes that its disk has lost.
        let doubtful = need & good & at.row.covered_by_parity(at.place.column);
        lost |= doubtful;
        // What has been written since it was asked first stays.
        let again = page.hinted.fetch_or(doubtful, Ordering::AcqRel) & doubtful;
        page.take(at, index, need & good & !again & page.unknown.load(Ordering::Acquire), &sums);
        need &= !(good & !doubtful);
    }
    if let Some(sums) = old.filter(|_| at.row.shape.parity == 0) {
        // Nothing else is there that knows what of it is old. (Regions that are dirty are settled as a whole.)
        let nowhere = need & at.column().good() & !at.group().unsettled.load(Ordering::Acquire);
        if nowhere != 0 {
            page.disown(at, index, nowhere, &sums);
            need &= !nowhere;
            tracing::error!(
                "{at}: writes were lost together with their checksums between bytes {} and {}, and nothing else holds them",
                index as u64 * PAGE_SPAN,
                index as u64 * PAGE_SPAN + span
            );
        }
    }
    if page.is_damaged_on(&at.column().copies()) && !at.core.read_only {
        at.group().suspect.fetch_or(regions, Ordering::AcqRel);
        at.core.attention.notify_one();
    }
    if at.row.shape.parity > 0 {
        page.old.fetch_and(!asked, Ordering::AcqRel);
        page.old.fetch_or(lacking & need, Ordering::AcqRel);
    }
    // Others may have learnt more of it meanwhile.
    let need = need & page.unknown.fetch_and(!(asked & !need), Ordering::AcqRel);
    page.hinted.fetch_and(need, Ordering::AcqRel);
    let damaged = need & lost;
    if damaged != 0 {
        // No copy has a sound page of regions whose data is there: parity says what it must be; without, what it is now
        // has to be believed.
        let group = at.group();
        let settled = if at.row.shape.parity > 0 { !group.unsettled.load(Ordering::Acquire) } else { 0 };
        group.forgotten.fetch_or(damaged & settled, Ordering::AcqRel);
        group.unsettled.fetch_or(damaged & !settled, Ordering::AcqRel);
        at.core.attention.notify_one();
    }
    if known.is_none() {
        *sums.pages.get(index)?.write() = Some(Arc::clone(&page));
        at.core.sums.admit(at.row, at.place.column, index);
    }
    Some(page)
}

/// Reads the pages of a clean region from every copy, although they are in memory: what is on the disks counts at the next
/// opening. Which disks have one that does not say of the region what memory says, once for each. They are written anew with
/// the next cleaning when `healing`. Under the region's lock.
/// What `disputed` disks have is not compared: their data fits it, and nobody knows whether that or memory is right.
pub(crate) async fn damaged_pages(
    at: At<'_>,
    (offset, len): (u64, u64),
    healing: bool,
    disputed: &[DiskId],
) -> Vec<DiskId> {
    let Some(sums) = &at.column().sums else { return Vec::new() };
    let mask = at.regions(offset, len);
    let lags = {
        let order = at.group().order.lock();
        at.group().unflushed(&order) & mask != 0
    };
    // What is to be written anew must be known before the cleaner comes to the region.
    let _count = at.group().begin_write();
    let mut damaged = Vec::new();
    for (index, page) in if lags { Vec::new() } else { sums.loaded(offset, len) } {
        if page.unknown.load(Ordering::Acquire) & mask != 0 || page.dirty.load(Ordering::Acquire) {
            // What the region holds has just been compared: now its page may be written.
            // (Not, where its checksums are lost: `recall.rs` does that, and calls the region dirty when its data is right.)
            let known = page.unknown.load(Ordering::Acquire) & mask == 0;
            if healing && known && page.is_damaged_on(&at.column().copies()) {
                let _ = ensure_dirty(at, mask).await;
            }
            continue;
        }
        let blocks = (index as u64 * SUMS_PER_PAGE).max(offset / BLOCK)
            ..((index as u64 + 1) * SUMS_PER_PAGE).min((offset + len) / BLOCK);
        let _still = page.writing.lock().await;
        let told = |copy: &&Arc<CopyState>| copy.is_good(mask) && !disputed.contains(&copy.id());
        for copy in at.column().copies().iter().filter(told) {
            let found = match read_page(at, copy, index).await {
                Err(NoPage::Away) => continue,
                found => found.ok(),
            };
            let says = |block: u64| found.as_ref()?.get((block % SUMS_PER_PAGE) as usize).copied();
            if blocks.clone().all(|block| says(block).is_some_and(|sum| page.is(block, sum))) {
                continue;
            }
            damaged.push(copy.id());
            if !healing {
                copy.disk.checksum_errors.fetch_add(1, Ordering::Relaxed);
            } else if ensure_dirty(at, mask).await.is_ok() {
                page.damaged_on(copy);
                copy.disk.healed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    damaged
}
