//! What a slab still has of an earlier life of the row that it is given to: pages of checksums with the same names, which fit the data
//! beside them.
//!
//! A disk that loses what the row is given now goes on showing those, and nothing but their generation tells that they are older
//! (`generations.rs`). The generation is a byte: left to chance, one row in some hundred would begin where an earlier life has ended. So
//! the slabs are looked at before they are written, and a new row begins where none of them is taken for its own. A copy that
//! joins a row later has to live with the generations that the row has: see `pages::give_page`.

use aligned_buffer::IoBuf;
use futures_util::future::join_all;
use pool_format::{BLOCK, RowRecord, SpaceRecord, SumsPage, next_generation};

use crate::core::Core;
use crate::generations::distance;
use crate::row::Shape;

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
