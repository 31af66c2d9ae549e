//! Pages of checksums on the disks: reading one from a copy, writing one to copies, those of a new row.

use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use block_device::{BlockError, BlockErrorKind, Durability};
use pool_format::{BLOCK, SumsPage};

use crate::at::At;
use crate::core::Core;
use crate::dirty::ensure_dirty;
use crate::generations::{self, Age, Put, distance};
use crate::page::{PAGE_SPAN, Page};
use crate::row::CopyState;

/// So many generations after the one that the metadata knows a copy's page may be, and the copy is made sure of. What is taken for the
/// column's own is no more than eight after it, and by then it may have come closer.
const NEAR: u8 = 64;

/// Whether a copy has a page of a part of its column that is older than it should be.
pub(crate) async fn has_old_page(at: At<'_>, copy: &CopyState, (offset, len): (u64, u64)) -> bool {
    at.column().copies().len() > 1 && is_old(at, copy, (offset, len)).await
}

/// The same, also of a column of one copy.
pub(crate) async fn is_old(at: At<'_>, copy: &CopyState, (offset, len): (u64, u64)) -> bool {
    if at.column().sums.is_none() {
        return false;
    }
    for index in offset / PAGE_SPAN..(offset + len).div_ceil(PAGE_SPAN) {
        if read_page_and_age(at, copy, index as usize).await.is_ok_and(|(_, age)| age == Age::Old) {
            return true;
        }
    }
    false
}

/// The checksums in a page as a copy has it, unless it is an older one of the column's.
pub(crate) async fn read_page(at: At<'_>, copy: &CopyState, index: usize) -> Result<Vec<u32>, NoPage> {
    match read_page_and_age(at, copy, index).await? {
        (_, Age::Old) => Err(NoPage::Damaged),
        (page, _) => Ok(page.sums),
    }
}

/// The checksums in a page of the column as each of the copies has it that can be read, and has it whole. `page` is that page.
pub(crate) async fn pages_on_disk(
    at: At<'_>,
    copies: &[&Arc<CopyState>],
    (index, page): (usize, &Page),
) -> Vec<Vec<u32>> {
    let _still = page.writing.lock().await;
    let mut found = Vec::new();
    for copy in copies {
        found.extend(read_page(at, copy, index).await);
    }
    found
}

/// Why a copy has no page.
#[derive(Debug)]
pub(crate) enum NoPage {
    /// Its disk is not here any more: nothing is known of it.
    Away,
    /// It cannot be read, or is not the column's.
    Damaged,
}

/// A page as a copy has it, and what its generation says of it.
pub(crate) async fn read_page_and_age(
    at: At<'_>,
    copy: &CopyState,
    index: usize,
) -> Result<(SumsPage, Age), NoPage> {
    let page = read_own_page(at, copy, index).await?;
    let age = generations::age(at, copy, index, page.generation);
    Ok((page, age))
}

/// The column's page as a copy has it, of whatever generation.
pub(crate) async fn read_own_page(at: At<'_>, copy: &CopyState, index: usize) -> Result<SumsPage, NoPage> {
    let start = copy.sums_start.ok_or(NoPage::Damaged)? + index as u64 * BLOCK;
    let block =
        copy.disk.read(start, IoBuf::new(BLOCK as usize)).await.map_err(|error| match error.kind() {
            BlockErrorKind::Gone | BlockErrorKind::Fenced => NoPage::Away,
            _ => NoPage::Damaged,
        })?;
    let page = SumsPage::decode(&block).map_err(|_| NoPage::Damaged)?;
    let ours = page.space == at.space.guid()
        && page.row == at.place.row
        && page.column == u32::from(at.place.column)
        && page.page == index as u32;
    if ours { Ok(page) } else { Err(NoPage::Damaged) }
}

/// Writes a page to copies. A copy that fails is offline then, as after any write. One that knows more than the page
/// (a disk that has just come back) does not get it: that is an error too, until the page has been asked for again. The
/// generation that they have now.
pub(crate) async fn put_page(
    at: At<'_>,
    (index, page): (usize, &Page),
    copies: &[Arc<CopyState>],
    durability: Durability,
) -> Result<Put, BlockError> {
    let _one = page.writing.lock().await;
    let put = page.next_generation();
    debug_assert!(generations::is_accounted_for(at, index, page), "{at}: page {index} on its way as {put:?}");
    let block = SumsPage {
        epoch: at.core.meta.epoch(),
        space: at.space.guid(),
        row: at.place.row,
        column: u32::from(at.place.column),
        page: index as u32,
        generation: put.generation,
        sums: page.sums.iter().map(|sum| sum.load(Ordering::Acquire)).collect(),
    };
    let block = IoBuf::copy_from(&block.encode()).freeze();
    let writes = copies.iter().filter(|copy| copy.disk.is_online()).filter_map(|copy| {
        let (start, block) = (copy.sums_start? + index as u64 * BLOCK, block.clone());
        Some(async move {
            if page.unknown.load(Ordering::Acquire) & !copy.stale.load(Ordering::Acquire) != 0 {
                return Err(BlockError::new(BlockErrorKind::Gone, "write checksums that are not all known"));
            }
            copy.disk.write(start, block, durability).await?;
            page.damaged.lock().retain(|disk| *disk != copy.id());
            Ok(())
        })
    });
    futures_util::future::join_all(writes).await.into_iter().collect::<Result<(), _>>()?;
    Ok(put)
}

/// Gives a copy that catches up a page. `false` when it does not have it for certain. Under the lock of the regions in `mask`, which the
/// page covers, and beside no round of the cleaner.
///
/// Where the copy has a page that would pass for this one, and it is of an earlier life, this one gets a generation of its own, and is read
/// back: a disk that loses it must not count as having caught up.
pub(crate) async fn give_page(
    at: At<'_>,
    copy: &Arc<CopyState>,
    (index, page): (usize, &Page),
    mask: u64,
) -> Result<bool, BlockError> {
    let Some(earlier) = earlier_generation(at, copy, index).await else {
        return Ok(put_page(at, (index, page), from_ref(copy), Durability::Durable).await.is_ok());
    };
    // A new generation is told with the next cleaning of its regions, which must not come in between.
    let _count = at.group().begin_write();
    // The next one may be that of the earlier life.
    for _ in 0..2 {
        ensure_dirty(at, mask).await?;
        page.raise();
        let put = put_page(at, (index, page), from_ref(copy), Durability::Durable).await;
        let Ok(Put { generation, .. }) = put else { return Ok(false) };
        if generation != earlier {
            let found = read_own_page(at, copy, index).await;
            let kept = found.is_ok_and(|found| found.generation == generation);
            if !kept {
                tracing::debug!("{at}: disk {} does not keep page {index} of the checksums", copy.id());
            }
            return Ok(kept);
        }
    }
    Ok(false)
}

/// The generation of a copy's page, if the copy lacks all that the page covers, so that it may be of an earlier life, and it could be
/// taken for what the column's page is now or will be soon.
async fn earlier_generation(at: At<'_>, copy: &CopyState, index: usize) -> Option<u8> {
    let regions = at.regions(index as u64 * PAGE_SPAN, at.core.slab_size.min(PAGE_SPAN));
    let known = generations::known(at, index);
    if known == 0 || copy.stale.load(Ordering::Acquire) & regions != regions {
        return None;
    }
    let found = read_own_page(at, copy, index).await.ok()?.generation;
    (found != 0 && distance(known, found) <= NEAR).then_some(found)
}

/// The pages of a slab that is all zeros, as they lie on disk, with these generations. `zeros` is the checksum of a block of zeros.
pub(crate) fn fresh_pages(
    core: &Core,
    space: (pool_format::Guid, u32, u8),
    zeros: u32,
    pages: usize,
    generations: &[u8],
) -> Vec<u8> {
    let (guid, row, column) = space;
    let count = (core.slab_size.min(PAGE_SPAN) / BLOCK) as usize;
    let page = |index: usize| {
        let sums = vec![zeros; count];
        let (epoch, column, page) = (core.meta.epoch(), u32::from(column), index as u32);
        let generation = generations.get(index).copied().unwrap_or(0);
        SumsPage { epoch, space: guid, row, column, page, generation, sums }.encode()
    };
    (0..pages).flat_map(page).collect()
}
