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

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use pool_format::{BLOCK, Checksum, DiskId, SUMS_PER_PAGE};

use crate::at::At;
use crate::generations::{self, Age};
use crate::pages::{NoPage, read_page, read_page_and_age};
use crate::row::{CopyState, Row};
use crate::write::ensure_dirty;

/// Bytes of data that a page covers.
pub(crate) const PAGE_SPAN: u64 = SUMS_PER_PAGE * BLOCK;
/// Bytes of pages in memory at most, unless told otherwise: enough for 256 GiB of data in use.
const CACHE_BYTES: usize = 256 << 20;
/// Memory of one page.
const PAGE_BYTES: usize = SUMS_PER_PAGE as usize * 4;
/// Pages that one more page in memory may cost a look at.
const LOOKS: usize = 16;

/// The checksums of a column.
pub(crate) struct Sums {
    pages: Box<[RwLock<Option<Arc<Page>>>]>,
    /// One load at a time.
    loading: tokio::sync::Mutex<()>,
}

/// A page in memory.
pub(crate) struct Page {
    pub(crate) sums: Box<[AtomicU32]>,
    /// What they are calculated with.
    checksum: Checksum,
    /// The copies do not have it yet.
    pub(crate) dirty: AtomicBool,
    /// It differs from what has the generation that was given last.
    pub(crate) changed: AtomicBool,
    /// The generation that copies were given last, and the one that the metadata knows.
    pub(crate) generation: AtomicU8,
    pub(crate) told: AtomicU8,
    /// Regions whose checksums are not known.
    pub(crate) unknown: AtomicU64,
    /// Those of them of which the column's disk has lost writes with their checksums, in a row with parity.
    pub(crate) old: AtomicU64,
    /// Those of them that a disk's page speaks of which may be older than its data: believed where nobody knows better.
    pub(crate) hinted: AtomicU64,
    /// Disks that are known to have a damaged one: they are written first.
    pub(crate) damaged: Mutex<Vec<DiskId>>,
    /// Used since the cache last looked.
    used: AtomicBool,
    /// One writing to disks at a time: what a later one has read from memory must not be overtaken by what an earlier one had.
    /// Whoever reads the page from a disk while it is in memory holds it too: half a write would pass for damage.
    pub(crate) writing: tokio::sync::Mutex<()>,
}

impl Sums {
    pub(crate) fn new(pages: usize) -> Self {
        Self {
            pages: (0..pages).map(|_| RwLock::default()).collect(),
            loading: tokio::sync::Mutex::default(),
        }
    }

    fn in_memory(&self, index: usize) -> Option<Arc<Page>> {
        self.pages.get(index)?.read().clone()
    }

    /// The pages in memory that cover a part of the slab.
    pub(crate) fn loaded(&self, offset: u64, len: u64) -> Vec<(usize, Arc<Page>)> {
        let pages = (offset / PAGE_SPAN) as usize..(offset + len).div_ceil(PAGE_SPAN) as usize;
        pages.filter_map(|index| Some((index, self.in_memory(index)?))).collect()
    }
}

impl Page {
    pub(crate) fn at(&self, block: u64) -> Option<&AtomicU32> {
        self.sums.get((block % SUMS_PER_PAGE) as usize)
    }

    /// Whether the block with this number in its slab has this checksum.
    pub(crate) fn is(&self, block: u64, sum: u32) -> bool {
        self.at(block).is_some_and(|known| known.load(Ordering::Acquire) == sum)
    }

    /// Whether the block with this number in its slab is as the page says.
    pub(crate) fn fits(&self, number: u64, block: &[u8]) -> bool {
        self.is(number, self.checksum.of(block))
    }

    /// Whether all of `data`, which begins at `offset` of the slab, is as the page says.
    pub(crate) fn matches(&self, offset: u64, data: &[u8]) -> bool {
        let blocks = data.chunks_exact(BLOCK as usize);
        blocks.zip(offset / BLOCK..).all(|(block, number)| self.fits(number, block))
    }

    /// Whether `count` blocks from `offset` are known to be zeros.
    fn says_zero(&self, offset: u64, count: u64) -> bool {
        (offset / BLOCK..offset / BLOCK + count).all(|block| self.is(block, self.checksum.of_zeros()))
    }

    /// Whether the column's disk has lost writes to these regions that nobody has made again yet.
    pub(crate) fn lacks(&self, mask: u64) -> bool {
        self.old.load(Ordering::Acquire) & self.unknown.load(Ordering::Acquire) & mask != 0
    }

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

    /// From now on the block has this checksum. The caller has marked its region dirty.
    pub(crate) fn set(&self, block: u64, sum: u32) {
        if let Some(known) = self.at(block) {
            known.store(sum, Ordering::Release);
        }
        self.changed.store(true, Ordering::Release);
        self.dirty.store(true, Ordering::Release);
    }

    /// The block has the checksum of this, as the page of a copy says that has the generation given last: what is in memory was wrong.
    /// Copies that have it wrong, too, are given it with the next region of the page that becomes clean.
    pub(crate) fn correct(&self, number: u64, block: &[u8]) {
        if let Some(known) = self.at(number) {
            known.store(self.checksum.of(block), Ordering::Release);
        }
        self.dirty.store(true, Ordering::Release);
    }

    /// From now on the blocks from `offset` have these checksums. The caller has marked their region dirty.
    pub(crate) fn set_all(&self, offset: u64, sums: &[u32]) {
        sums.iter().zip(offset / BLOCK..).for_each(|(sum, number)| self.set(number, *sum));
    }

    /// From now on the block has the checksum of this. The caller has marked its region dirty.
    pub(crate) fn learn(&self, number: u64, block: &[u8]) {
        self.set(number, self.checksum.of(block));
    }

    /// From now on the blocks from `offset` have the checksums of this. The caller has marked their region dirty.
    pub(crate) fn learn_all(&self, offset: u64, data: &[u8]) {
        let blocks = data.chunks_exact(BLOCK as usize).zip(offset / BLOCK..);
        blocks.for_each(|(block, number)| self.learn(number, block));
    }

    /// From now on the blocks from `offset` are zeros. The caller has marked their region dirty.
    pub(crate) fn learn_zeros(&self, offset: u64, len: u64) {
        let zeros = self.checksum.of_zeros();
        (offset / BLOCK..(offset + len) / BLOCK).for_each(|number| self.set(number, zeros));
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

/// Pages in memory of a whole pool, the longest there first.
pub(crate) struct SumsCache {
    queue: Mutex<VecDeque<(Weak<Row>, u8, u32)>>,
    limit: AtomicUsize,
}

impl Default for SumsCache {
    fn default() -> Self {
        Self { queue: Mutex::default(), limit: AtomicUsize::new(CACHE_BYTES / PAGE_BYTES) }
    }
}

impl SumsCache {
    /// Takes at most this many bytes from now on.
    pub(crate) fn set_limit(&self, bytes: usize) {
        self.limit.store((bytes / PAGE_BYTES).max(1), Ordering::Release);
    }

    /// Counts a page, and lets go of those that have not been used for the longest time (second chance).
    fn admit(&self, row: &Arc<Row>, column: u8, page: usize) {
        let mut queue = self.queue.lock();
        queue.push_back((Arc::downgrade(row), column, page as u32));
        for _ in 0..LOOKS {
            if queue.len() <= self.limit.load(Ordering::Acquire) {
                return;
            }
            let Some((row, column, page)) = queue.pop_front() else { return };
            if row.upgrade().is_some_and(|row| !let_go(&row, column, page)) {
                queue.push_back((row, column, page));
            }
        }
    }
}

/// Takes a page out of memory; `false` when it is needed.
fn let_go(row: &Row, column: u8, page: u32) -> bool {
    let Some(slot) = row.column(column).sums.as_ref().and_then(|sums| sums.pages.get(page as usize)) else {
        return true;
    };
    let mut slot = slot.write();
    // Whoever holds it may be about to change it: a second one from disk would lack that.
    let free = slot.as_ref().is_none_or(|page| {
        !page.used.swap(false, Ordering::AcqRel)
            && !page.dirty.load(Ordering::Acquire)
            && page.generation.load(Ordering::Acquire) == page.told.load(Ordering::Acquire)
            && Arc::strong_count(page) == 1
    });
    if free {
        *slot = None;
    }
    free
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
