//! What a slab still has of an earlier life of the row that it is given to: pages of checksums with the same names, which fit the data
//! beside them.
//!
//! A disk that loses what the row is given now goes on showing those, and nothing but their generation tells that they are older
//! (`generations.rs`). The generation is a byte: left to chance, one row in some hundred would begin where an earlier life has ended. So
//! the slabs are looked at before they are written, and a new row begins where none of them is taken for its own. A copy that
//! joins a row later has to live with the generations that the row has: where its slab has one of these, its page is read back.

use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use block_device::{BlockError, Durability};
use futures_util::future::join_all;
use pool_format::{BLOCK, RowRecord, SpaceRecord, SumsPage, next_generation};

use crate::at::At;
use crate::core::Core;
use crate::generations::{self, Put, distance};
use crate::pages::{put_page, read_own_page};
use crate::row::{CopyState, Shape};
use crate::sums::{PAGE_SPAN, Page};
use crate::write::ensure_dirty;

/// So many generations after the one that the metadata knows a copy's page may be, and the copy is made sure of. What is taken for the
/// column's own is no more than eight after it, and by then it may have come closer.
const NEAR: u8 = 64;

impl Core {
    /// Gives the pages of a new row generations that none of its slabs has a page of. Before anything is written there.
    pub(crate) async fn begin_generations(
        &self,
        space: &SpaceRecord,
        (row, shape): (u32, Shape),
        record: &mut RowRecord,
    ) {
        for (number, column) in record.columns.iter_mut().enumerate() {
            // On a disk that is away, or full, nothing is written now: it is looked at when it catches up.
            let slabs = column.copies.iter().filter(|copy| copy.stale == 0).filter_map(|copy| {
                let disk = self.disk(copy.disk)?;
                let start = disk.layout.read().sums_offset(copy.slab)?;
                Some((disk, start))
            });
            let reads = slabs.map(|(disk, start)| async move {
                // One that cannot be read, and goes on showing what it has when it is written, is a disk with two faults.
                disk.read(start, IoBuf::new(shape.sums_pages * BLOCK as usize)).await.ok()
            });
            let found: Vec<IoBuf> = join_all(reads).await.into_iter().flatten().collect();
            for (index, generation) in column.generations.iter_mut().enumerate() {
                let at = index * BLOCK as usize;
                let blocks = found.iter().filter_map(|slab| slab.get(at..at + BLOCK as usize));
                let pages = blocks.filter_map(|block| SumsPage::decode(block).ok());
                let ours = pages.filter(|page| {
                    (page.space, page.row) == (space.guid, row)
                        && (page.column, page.page) == (number as u32, index as u32)
                });
                let earlier: Vec<u8> = ours.map(|page| page.generation).collect();
                *generation = apart_from(&earlier, *generation);
            }
        }
    }
}

/// A generation to begin with that takes longest to come to one of the earlier ones, all of which 8-bit numbers do in the end; without
/// any, the one that is wished for.
fn apart_from(earlier: &[u8], wish: u8) -> u8 {
    let known = || earlier.iter().copied().filter(|generation| *generation != 0);
    let soonest = |from: u8| known().map(|generation| distance(from, generation)).min();
    known().map(next_generation).max_by_key(|from| soonest(*from)).unwrap_or(wish)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_earlier_life_it_is_the_one_that_is_wished_for() {
        assert_eq!([apart_from(&[], 9), apart_from(&[0, 0], 9)], [9, 9]);
        assert_eq!([apart_from(&[9], 9), apart_from(&[255], 9), apart_from(&[3, 4], 9)], [10, 1, 5]);
    }

    #[test]
    fn it_is_long_before_an_earlier_one_comes_again() {
        let all = || (1..=255u8).step_by(7);
        for earlier in all().flat_map(|a| all().flat_map(move |b| all().map(move |c| [a, b, c]))) {
            let from = apart_from(&earlier, 1);
            assert!(
                earlier.iter().all(|generation| distance(from, *generation) >= 84),
                "{from} of {earlier:?}"
            );
        }
    }
}
