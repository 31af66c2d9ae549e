//! Calls regions clean that have not been written for a while: what a crash need not look at.
//!
//! ```text
//!  regions leave `dirty_durable` ─► pages of checksums, in rounds ─► flush ─► submitted as clean
//!
//!  a mirror         round 1        round 2            single parity    round 1        round 2        round 3
//!     copy 0        page ─► flush                        column 0      page ─► flush
//!     copy 1                       page ─► flush         column 1                     page ─► flush
//!                                                        parity                                      page ─► flush
//! ```
//! Why rounds: a page is written in place and covers clean regions too. A power cut may tear every page that is on its way,
//! and of a torn page what its clean regions should be is known only from another copy's page, or from what the other
//! columns hold by theirs. So at no time is more than one page on its way of those that stand in for each other, and one
//! that is known to be damaged goes first. A copy that catches up is given its page apart from this, durably, and never beside a
//! round of its group ([`crate::row::Group::pages`]). (A slab of one copy has nothing beside it: see docs/formats/pool.md.)

use std::sync::Arc;
use std::sync::atomic::Ordering;

use block_device::{BlockError, Durability};
use futures_util::StreamExt;
use pool_format::Change;

use crate::at::At;
use crate::core::{Core, Space};
use crate::generations::{self, Given, Put};
use crate::page::{PAGE_SPAN, Page};
use crate::pages::put_page;
use crate::row::{Column, Copies, CopyState, Place, Row, bits};
use crate::sums::page_at;

/// Pages that are written at once.
const AT_ONCE: usize = 16;

/// A group with regions that have been quiet.
struct Quiet {
    space: Arc<Space>,
    row: Arc<Row>,
    place: Place,
    /// Those to be called clean.
    regions: u64,
    /// The copies of its columns when the cleaning began.
    copies: Vec<Copies>,
    /// How often each of their disks had gone offline then.
    outages: Vec<u64>,
}

impl Quiet {
    fn at<'a>(&'a self, core: &'a Arc<Core>) -> At<'a> {
        At::new(core, &self.space, &self.row, self.place)
    }

    fn columns<'a>(row: &'a Row, place: &'a Place) -> impl Iterator<Item = (usize, &'a Column)> {
        row.columns.iter().enumerate().filter(|(index, _)| row.lead(*index as u8) == place.column)
    }

    fn outages_of(copies: &[Copies]) -> Vec<u64> {
        copies.iter().flat_map(|copies| copies.iter()).map(|copy| copy.disk.outages()).collect()
    }

    /// Whether a disk went offline meanwhile, and may have lost what it was given with its cache, without its copy being known to
    /// lack these regions: nothing else holds them, or that is about to be noted.
    fn has_lost(&self) -> bool {
        let copies = self.copies.iter().flat_map(|copies| copies.iter());
        copies.zip(&self.outages).any(|(copy, before)| {
            copy.disk.outages() != *before && self.regions & !copy.stale_durable.load(Ordering::Acquire) != 0
        })
    }

    /// See [`generations::is_accounted_for`]: of all its pages in memory. For assertions.
    fn is_accounted_for(&self, core: &Arc<Core>) -> bool {
        Self::columns(&self.row, &self.place).all(|(number, column)| {
            let mut pages = column.sums.iter().flat_map(|sums| sums.loaded(0, core.slab_size));
            pages
                .all(|(index, page)| generations::is_accounted_for(self.at(core).other(number), index, &page))
        })
    }

    /// Whether a copy has joined that may not have been given what the others were.
    fn has_grown(&self) -> bool {
        let before = |copy: &Arc<CopyState>| {
            self.copies.iter().flat_map(|copies| copies.iter()).any(|old| Arc::ptr_eq(old, copy))
        };
        Self::columns(&self.row, &self.place).any(|(_, column)| !column.copies().iter().all(before))
    }
}

/// Calls regions clean that have not been written for a while, whose copies are durably equal and whose checksums are
/// on disk.
///
/// Why a write in between is safe: the regions leave `dirty_durable` (a later write finds them
/// missing), writes that had looked before are counted in `writing` (then the regions go back), their checksums are
/// written, the disks are flushed, and what no write has taken back is submitted as clean, before any later `Dirty` of it.
pub(crate) async fn clean(core: &Arc<Core>, everything: bool) -> Result<(), BlockError> {
    let _one = core.cleaning.lock().await;
    while clean_once(core, everything).await? && everything {}
    Ok(())
}

/// The same, once; whether there are pages that must be given again with a new generation before their regions are clean.
async fn clean_once(core: &Arc<Core>, everything: bool) -> Result<bool, BlockError> {
    let mut groups = Vec::new();
    core.for_each_column(|space, place, row| {
        if row.lead(place.column) != place.column {
            return;
        }
        let group = row.group(place.column);
        let touched = group.touched.swap(0, Ordering::AcqRel);
        let recent = if everything { 0 } else { touched };
        let quiet = !recent & !group.unsettled.load(Ordering::Acquire);
        let mut order = group.order.lock();
        let dirty = group.dirty_durable.load(Ordering::SeqCst) & quiet;
        let volatile = group.volatile.load(Ordering::SeqCst) & !recent;
        if dirty | volatile == 0 {
            return;
        }
        group.dirty_durable.fetch_and(!dirty, Ordering::SeqCst);
        group.volatile.fetch_and(!volatile, Ordering::SeqCst);
        if group.writing.load(Ordering::SeqCst) > 0 {
            group.dirty_durable.fetch_or(dirty, Ordering::SeqCst);
            group.volatile.fetch_or(volatile, Ordering::SeqCst);
            return;
        }
        order.cleaning |= dirty;
        order.cleaning_volatile |= volatile;
        let copies: Vec<_> = Quiet::columns(row, &place).map(|(_, column)| column.copies()).collect();
        let (space, row, outages) = (Arc::clone(space), Arc::clone(row), Quiet::outages_of(&copies));
        groups.push(Quiet { space, row, place, regions: dirty, copies, outages });
    });
    if groups.is_empty() {
        return Ok(false);
    }
    let mut alone = Vec::with_capacity(groups.len());
    for Quiet { row, place, .. } in &groups {
        alone.push(row.group(place.column).pages.write().await);
    }
    let put = put_sums(core, &groups).await;
    let flushed = core.flush_disks().await;
    drop(alone);
    let mut commits = Vec::new();
    let mut told: Vec<Given> = Vec::new();
    let mut more = false;
    for (quiet, Round { lacking, given }) in groups.iter().zip(put) {
        let Quiet { row, place, regions, .. } = quiet;
        let group = row.group(place.column);
        let mut order = group.order.lock();
        let lacking = lacking || quiet.has_grown() || quiet.has_lost();
        let again = given.iter().any(|given| given.put.again);
        let without = if lacking || again { *regions } else { 0 };
        let taken = std::mem::take(&mut order.cleaning);
        let volatile = std::mem::take(&mut order.cleaning_volatile);
        let copies: Vec<_> =
            Quiet::columns(row, place).flat_map(|(_, column)| column.copies().to_vec()).collect();
        if flushed.is_err() || copies.iter().any(|copy| !copy.disk.is_online()) {
            group.volatile.fetch_or(volatile, Ordering::SeqCst);
        }
        let equal = copies.iter().fold(taken & !without, |mask, copy| {
            let known = copy.stale_durable.load(Ordering::Acquire);
            if copy.disk.is_online() { mask } else { mask & known }
        });
        // A disk that went away and came back meanwhile may have lost what the checksums say.
        let equal = equal & !group.unsettled.load(Ordering::Acquire);
        let equal = if flushed.is_ok() { equal } else { 0 };
        group.dirty_durable.fetch_or(taken & !equal, Ordering::SeqCst);
        let mut changes = Vec::new();
        if lacking || flushed.is_err() {
            // Given anew, and told then.
            given.iter().for_each(|given| given.page.dirty.store(true, Ordering::Release));
        } else {
            let at = quiet.at(core);
            changes = generations::told(at, &given);
            let span = core.slab_size.min(PAGE_SPAN);
            order.telling =
                given.iter().fold(0, |mask, given| mask | at.regions(given.index as u64 * PAGE_SPAN, span));
            told.extend(given);
            more |= again;
        }
        // Flushed, and no write has come in between.
        group.zeroed.fetch_and(!equal, Ordering::AcqRel);
        if equal != 0 {
            let Place { space, row, column } = *place;
            changes.push(Change::Clean { space, row, column, mask: equal });
        }
        if !changes.is_empty() {
            commits.push(core.meta.submit(changes));
        }
    }
    for commit in commits {
        commit.done().await?;
    }
    told.iter().for_each(|given| given.page.tell(given.put.generation));
    groups.iter().for_each(|quiet| quiet.row.group(quiet.place.column).order.lock().telling = 0);
    debug_assert!(
        groups.iter().all(|quiet| quiet.is_accounted_for(core)),
        "pages are ahead of what was told"
    );
    flushed.map(|()| more)
}

/// A page on its way to copies.
struct PageWrite {
    /// Which of the groups it is of.
    group: usize,
    column: usize,
    index: usize,
    page: Arc<Page>,
    copies: Vec<Arc<CopyState>>,
    /// The list that they are of: whoever gives a copy's slab up waits for those who hold it.
    _list: Copies,
}

/// What came of the pages of a group.
#[derive(Default)]
struct Round {
    /// A copy lacks one: it is tried again at the next cleaning, without the disk that failed.
    lacking: bool,
    given: Vec<Given>,
}

/// Writes the pages of checksums of quiet regions that the copies do not have yet, in rounds with a flush between two.
async fn put_sums(core: &Arc<Core>, groups: &[Quiet]) -> Vec<Round> {
    let mut put_of: Vec<Round> = groups.iter().map(|_| Round::default()).collect();
    let mut rounds: Vec<Vec<PageWrite>> = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        put_of[number].lacking = !plan(group.at(core), group.regions, number, &mut rounds).await;
    }
    for (number, round) in rounds.iter().enumerate() {
        let between = if number > 0 { core.flush_disks().await } else { Ok(()) };
        let flushed = between.is_ok();
        let each = futures_util::stream::iter(round).map(|write| async move {
            let group = &groups[write.group];
            let put = async { put(group.at(core), group.regions, write).await };
            (write, if flushed { put.await } else { None })
        });
        let done: Vec<_> = each.buffer_unordered(AT_ONCE).collect().await;
        for (write, put) in done {
            let Round { lacking, given } = &mut put_of[write.group];
            let Some(put) = put else {
                write.page.dirty.store(true, Ordering::Release);
                *lacking = true;
                continue;
            };
            let (column, index) = (write.column as u8, write.index);
            match given.iter_mut().find(|given| (given.column, given.index) == (column, index)) {
                // The copies of a mirror come one after the other, and its data may have changed in between.
                Some(first) if first.put.generation != put.generation => {
                    write.page.dirty.store(true, Ordering::Release)
                }
                Some(first) => first.put.again |= put.again,
                None => given.push(Given { column, index, page: Arc::clone(&write.page), put }),
            }
        }
    }
    put_of
}

/// Adds what the copies lack of a group's pages to the rounds. `false` when some of it cannot be written yet.
async fn plan(at: At<'_>, regions: u64, group: usize, rounds: &mut Vec<Vec<PageWrite>>) -> bool {
    let size = at.space.striping.region_size();
    let pages = |region: u32| {
        let start = u64::from(region) * size;
        (start / PAGE_SPAN) as usize..(start + size).div_ceil(PAGE_SPAN) as usize
    };
    let mut indexes: Vec<_> = bits(regions).flat_map(pages).collect();
    indexes.dedup();
    let mut whole = true;
    for index in indexes {
        match plan_page(at, index, group).await {
            Some(mut turns) => {
                turns.sort_by_key(|write| !write.page.is_damaged_on(&write.copies));
                for (round, write) in turns.into_iter().enumerate() {
                    if rounds.len() == round {
                        rounds.push(Vec::new());
                    }
                    rounds[round].push(write);
                }
            }
            None => whole = false,
        }
    }
    whole
}

/// The pages with this number of columns that stand in for each other, one write for each round. `None` while checksums
/// are not known in one of them that another may be needed for.
async fn plan_page(at: At<'_>, index: usize, group: usize) -> Option<Vec<PageWrite>> {
    let span = at.core.slab_size.min(PAGE_SPAN);
    let columns = (0..at.row.columns.len()).filter(|column| at.row.lead(*column as u8) == at.place.column);
    let mut pages = Vec::new();
    for column in columns {
        let at = at.other(column);
        let Some(sums) = &at.column().sums else { continue };
        for (_, page) in sums.loaded(index as u64 * PAGE_SPAN, span) {
            // Asks again for what a disk knew that was away.
            page_at(at, index as u64 * PAGE_SPAN).await;
            if page.unknown.load(Ordering::Acquire) & at.column().good() != 0 {
                return None;
            }
            pages.push((column, page));
        }
    }
    pages.retain(|(_, page)| page.dirty.swap(false, Ordering::AcqRel));
    let write = |column, page: &Arc<Page>, copies: &[Arc<CopyState>], list: &Copies| PageWrite {
        group,
        column,
        index,
        page: Arc::clone(page),
        copies: copies.to_vec(),
        _list: Arc::clone(list),
    };
    let mut writes = Vec::new();
    for (column, page) in &pages {
        let list = at.row.columns[*column].copies();
        match at.row.shape.parity {
            0 => writes.extend(list.chunks(1).map(|one| write(*column, page, one, &list))),
            // While a column's slab moves it has two copies, which no other column needs both.
            _ => writes.push(write(*column, page, &list, &list)),
        }
    }
    Some(writes)
}

/// Writes a page to its copies; as what, if all have it that need it.
async fn put(at: At<'_>, regions: u64, write: &PageWrite) -> Option<Put> {
    // A copy that is away and not stale brings these regions back as they are: they stay dirty until then, and it must be
    // given the page. Looked at first: it may be back when the others have it.
    let span = at.core.slab_size.min(PAGE_SPAN);
    let cleaned = regions & at.regions(write.index as u64 * PAGE_SPAN, span);
    let away =
        |copy: &Arc<CopyState>| !copy.disk.is_online() && cleaned & !copy.stale.load(Ordering::Acquire) != 0;
    let owed = write.copies.iter().any(away);
    // One that is full and lacks these regions gets the page with them.
    let takes =
        |copy: &&Arc<CopyState>| copy.disk.has_room() || cleaned & !copy.stale.load(Ordering::Acquire) != 0;
    let copies: Vec<_> = write.copies.iter().filter(takes).cloned().collect();
    let page = (write.index, &*write.page);
    let put = put_page(at.other(write.column), page, &copies, Durability::Volatile).await;
    put.ok().filter(|_| !owed)
}
