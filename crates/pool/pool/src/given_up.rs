//! Blocks that a replay can neither find nor calculate: from then on they are an error, until they are written anew.
//!
//! Why this is settled in the replay: what the journal says of them is void with its new anchor, and of a region that is still
//! dirty then, what the columns hold would be taken as right: damage for data, and what is calculated with it for what a
//! missing disk has. So the checksums that the journal has for these blocks come to the pages, the pages to the disks, and
//! the regions count as clean, before the anchor is written. Nothing that can be read fits these checksums, so no
//! read is answered from it, now or after another start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use block_device::{BlockError, BlockErrorKind, Durability};
use pool_format::{BLOCK, Change};

use crate::at::At;
use crate::careful::read_column;
use crate::core::{Core, Space};
use crate::decisions::Decisions;
use crate::generations::{self, Given};
use crate::page::{PAGE_SPAN, Page};
use crate::pages::put_page;
use crate::recall::recall;
use crate::row::{CopyState, Place, bits};
use crate::sums::page_at;

/// A disk that fails meanwhile is left out the next time.
const ATTEMPTS: usize = 3;

/// The checksums that blocks of a row must have, by column and block of the column.
type Lost = BTreeMap<(usize, u64), u32>;

/// What a replay has given up.
#[derive(Default)]
pub(crate) struct GivenUp {
    rows: BTreeMap<u32, Lost>,
    /// Blocks of data among them.
    blocks: u64,
    /// Blocks of data that are what they were before their write, which had not ended.
    torn: u64,
    disks: BTreeSet<String>,
    /// Where decisions are kept until the replay has come to its end.
    decisions: Option<Decisions>,
}

impl GivenUp {
    /// Of a replay whose decisions are kept there, if there are records at all.
    pub(crate) fn of(decisions: Option<Decisions>) -> Self {
        Self { decisions, ..Self::default() }
    }

    /// The end of the chain, with what was decided: where the next record goes, and its number.
    pub(crate) fn end(&self) -> Option<(u64, u64)> {
        match &self.decisions {
            Some(Decisions::Chain(end)) => Some((end.head, end.seq)),
            Some(Decisions::Journal(_)) | None => None,
        }
    }

    /// Gives up a block of a column. `sum` is its checksum by the journal.
    pub(crate) fn add(&mut self, at: At<'_>, block: u64, sum: u32) {
        let (striping, column) = (&at.space.striping, usize::from(at.place.column));
        if striping.unit_of(striping.stripe_at(block * BLOCK), column) < striping.data() {
            self.blocks += 1;
        }
        self.name_missing(at);
        self.rows.entry(at.place.row).or_default().insert((column, block), sum);
    }

    /// Takes blocks of these columns, which are not here, for what they were before their write, which others of its blocks show to
    /// have been torn by the power cut. `false` when that cannot be kept now: nothing is to be made of it then.
    pub(crate) async fn add_torn(
        &mut self,
        at: At<'_>,
        block: u64,
        columns: &[usize],
    ) -> Result<bool, BlockError> {
        self.torn += columns.len() as u64;
        columns.iter().for_each(|column| self.name_missing(at.other(*column)));
        match &mut self.decisions {
            Some(decisions) if !columns.is_empty() => decisions.are_zeros(at, block, columns).await,
            _ => Ok(true),
        }
    }

    /// Whether something is lost.
    pub(crate) fn has_lost(&self) -> bool {
        !self.rows.is_empty()
    }

    fn name_missing(&mut self, at: At<'_>) {
        let copies = at.column().copies();
        let away = copies.iter().filter(|copy| !copy.disk.is_online());
        self.disks.extend(away.map(|copy| format!("disk {}", copy.id())));
    }

    /// Makes it an error that lasts, and says so. What has been brought to its place is durable.
    pub(crate) async fn settle(&self, core: &Arc<Core>, space: &Space) -> Result<(), BlockError> {
        for (number, lost) in &self.rows {
            let Some(row) = space.row(*number) else { continue };
            let place = Place { space: space.id(), row: *number, column: 0 };
            settle_row(At::new(core, space, &row, place), lost).await?;
        }
        let disks: Vec<&str> = self.disks.iter().map(String::as_str).collect();
        let missing = if disks.is_empty() { "none".to_owned() } else { disks.join(", ") };
        let name = space.name();
        if self.torn > 0 {
            tracing::warn!(
                "space {name}: {} bytes of stripes whose first write the crash has torn are on disks that are missing ({missing}): \
                 they read as zeros, as before that write, which was not acknowledged",
                self.torn * BLOCK
            );
        }
        if self.blocks > 0 {
            let bytes = self.blocks * BLOCK;
            tracing::error!(
                "space {name}: {bytes} bytes of stripes that were first written just before the crash are lost: too much of these \
                 stripes is damaged or on disks that are missing ({missing}) to calculate the rest. Reading them is an error \
                 until they are written anew"
            );
        }
        Ok(())
    }
}

/// Keeps the checksums of lost blocks of a row, beside those of everything else in their regions.
async fn settle_row(at: At<'_>, lost: &Lost) -> Result<(), BlockError> {
    let mask = lost.keys().fold(0, |mask, (_, block)| mask | at.regions(block * BLOCK, BLOCK));
    for _ in 0..ATTEMPTS {
        leave_out_missing(at, mask).await?;
        let mut pages = Vec::new();
        for column in 0..at.row.columns.len() {
            pages.extend(learn(at.other(column), mask, lost).await?);
        }
        if let Some(given) = put_pages(pages).await
            && call_clean(at, mask, &given).await?
        {
            return Ok(());
        }
    }
    Err(BlockError::new(BlockErrorKind::Gone, "write checksums of a stripe that cannot be restored"))
}

/// Copies on disks that are not here lack the regions from now on: only then may these be called clean. An error where that
/// cannot be, as more is missing than parity makes up for: the journal is kept until some of it is back.
async fn leave_out_missing(at: At<'_>, mask: u64) -> Result<(), BlockError> {
    for column in (0..at.row.columns.len()).map(|column| at.other(column)) {
        for copy in column.column().copies().iter().filter(|copy| !copy.disk.is_online()) {
            if !at.core.mark_stale(column.place, at.row, copy, mask).await? {
                let what =
                    "restore a stripe that is damaged, with more of its disks missing than it has parity";
                return Err(BlockError::new(BlockErrorKind::Gone, what));
            }
        }
    }
    Ok(())
}

/// A page of a column.
type PageOf<'a> = (At<'a>, usize, Arc<Page>);

/// Takes what a column holds in regions as right, except where it is known to be lost. The pages of these regions; none of a
/// column that is not here.
async fn learn<'a>(at: At<'a>, mask: u64, lost: &Lost) -> Result<Vec<PageOf<'a>>, BlockError> {
    let Some(sums) = &at.column().sums else { return Ok(Vec::new()) };
    let size = at.space.striping.region_size();
    let here = mask & at.column().good();
    let mut pages: Vec<PageOf<'a>> = Vec::new();
    for region in bits(here) {
        learn_region(at, region, lost).await;
        pages.extend(
            sums.loaded(u64::from(region) * size, size).into_iter().map(|(index, page)| (at, index, page)),
        );
    }
    pages.dedup_by_key(|(_, index, _)| *index);
    // A page is written as a whole: where a power cut has torn it, what it says of other regions must be known again, too.
    let span = at.core.slab_size.min(PAGE_SPAN);
    for (_, index, page) in &pages {
        let unknown = || page.unknown.load(Ordering::Acquire) & at.column().good();
        if unknown() != 0 {
            recall(at, unknown() & at.group().forgotten.load(Ordering::Acquire)).await?;
            let covered = at.regions(*index as u64 * PAGE_SPAN, span);
            for region in bits(unknown() & covered) {
                learn_region(at, region, lost).await;
            }
        }
    }
    Ok(pages)
}

async fn learn_region(at: At<'_>, region: u32, lost: &Lost) {
    let size = at.space.striping.region_size();
    let (offset, mask) = (u64::from(region) * size, 1u64 << region);
    let content = read_column(at, offset, size, &[], &mut Vec::new()).await;
    for (index, number) in (offset / BLOCK..(offset + size) / BLOCK).enumerate() {
        let known = lost.get(&(usize::from(at.place.column), number)).copied();
        let mut sum = known.or_else(|| content.block(index).map(|block| at.space.checksum.of(block)));
        if sum.is_none() {
            // One block that a disk cannot read keeps it from giving the others; that one is an error whatever its page says.
            let alone = read_column(at, number * BLOCK, BLOCK, &[], &mut Vec::new()).await;
            sum = alone.block(0).map(|block| at.space.checksum.of(block));
        }
        if let (Some(sum), Some(page)) = (sum, page_at(at, number * BLOCK).await) {
            page.set(number, sum);
        }
    }
    for (_, page) in at.column().sums.iter().flat_map(|sums| sums.loaded(offset, size)) {
        page.unknown.fetch_and(!mask, Ordering::AcqRel);
    }
}

/// Writes pages durably, one after the other, as a power cut may tear the one that is on its way: those that an earlier one has
/// torn come first. `None` when a disk fails.
async fn put_pages(mut pages: Vec<PageOf<'_>>) -> Option<Vec<Given>> {
    let Some((at, ..)) = pages.first() else { return Some(Vec::new()) };
    let _alone = at.group().pages.write().await;
    pages.sort_by_key(|(at, _, page)| !page.is_damaged_on(&at.column().copies()));
    let mut given = Vec::new();
    for (at, index, page) in pages {
        page.dirty.store(false, Ordering::Release);
        let copies = at.column().copies();
        match put_page(at, (index, &page), &copies, Durability::Durable).await {
            Ok(put) => given.push(Given { column: at.place.column, index, page, put }),
            Err(_) => {
                page.dirty.store(true, Ordering::Release);
                return None;
            }
        }
    }
    Some(given)
}

/// Tells the metadata that the regions are clean, and which generations their pages have. `false` when they are not: a disk has left
/// meanwhile that does not count as lacking them, or a page needs another generation first.
async fn call_clean(at: At<'_>, mask: u64, given: &[Given]) -> Result<bool, BlockError> {
    let (group, lead) = (at.group(), at.lead());
    let again = given.iter().any(|given| given.put.again);
    let commit = {
        let _order = group.order.lock();
        let owed = |copy: &Arc<CopyState>| {
            !copy.disk.is_online() && mask & !copy.stale_durable.load(Ordering::Acquire) != 0
        };
        if at.row.columns.iter().any(|column| column.copies().iter().any(owed)) {
            return Ok(false);
        }
        let mut changes = generations::told(at, given);
        if !again {
            changes.push(Change::Clean { space: lead.space, row: lead.row, column: lead.column, mask });
            group.dirty_durable.fetch_and(!mask, Ordering::SeqCst);
            group.unsettled.fetch_and(!mask, Ordering::AcqRel);
            group.mend(mask);
        }
        at.core.meta.submit(changes)
    };
    commit.done().await?;
    given.iter().for_each(|given| given.page.tell(given.put.generation));
    Ok(!again)
}
