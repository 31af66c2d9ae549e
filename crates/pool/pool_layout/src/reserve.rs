//! Room that is kept for repair, so that what a lost disk held can be made again without a spare.
//!
//! ```text
//!   disk 0  ████████░░░░      free on all of them ≥ all of the largest disk:
//!   disk 1  ███████░░░░░      whichever is lost, what it held (its slabs less its free ones) fits
//!   disk 2  ████████░░░░      into what is free on the others
//!   disk 3  ███████░░░░░
//! ```
//! It is kept from new rows only; repair, resync and moves use it. A lost disk uses its share of it up: then only what
//! has still to be made again is kept, never more than before, so that clients are not stopped by a loss.
//!
//! Room is counted, not placed: where disks differ much, or fault domains are few, a copy may still find no disk that its row
//! does not use.

/// What a member has, in slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stock {
    /// In use.
    pub used: u32,
    /// In all.
    pub total: u32,
    /// It is here and in use. Otherwise it is lost, or leaves.
    pub stays: bool,
}

/// Slabs that new rows must leave free on the disks that stay, for the loss of `wanted` disks.
#[must_use]
pub fn reserve(disks: &[Stock], wanted: usize) -> u64 {
    let lost = disks.iter().filter(|disk| !disk.stays).count();
    let owed: u64 = disks.iter().filter(|disk| !disk.stays).map(|disk| u64::from(disk.used)).sum();
    let left = wanted.saturating_sub(lost);
    let kept = owed + largest(disks.iter().filter(|disk| disk.stays), left);
    kept.min(largest(disks.iter(), wanted))
}

/// The slabs of the `count` largest disks.
fn largest<'a>(disks: impl Iterator<Item = &'a Stock>, count: usize) -> u64 {
    let mut totals: Vec<u32> = disks.map(|disk| disk.total).collect();
    totals.sort_unstable_by(|a, b| b.cmp(a));
    totals.into_iter().take(count).map(u64::from).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stock(used: u32, total: u32, stays: bool) -> Stock {
        Stock { used, total, stays }
    }

    #[test]
    fn a_loss_uses_the_reserve_up() {
        let mut disks =
            vec![stock(60, 100, true), stock(60, 100, true), stock(50, 80, true), stock(60, 100, true)];
        assert_eq!([0, 1, 2].map(|wanted| reserve(&disks, wanted)), [0, 100, 200]);
        disks[0].stays = false;
        assert_eq!([0, 1, 2].map(|wanted| reserve(&disks, wanted)), [0, 60, 160]);
        disks[0].used = 10; // most of it has been made again
        assert_eq!(reserve(&disks, 1), 10);
        // An enclosure that is away for a while does not stop clients more than the reserve did.
        disks[1].stays = false;
        disks[2].stays = false;
        assert_eq!(reserve(&disks, 1), 100);
    }

    proptest! {
        /// Whichever disks are lost: the others have room for what those held.
        #[test]
        fn what_so_many_lost_disks_held_fits_on_the_others(
            sizes in proptest::collection::vec((1u32..50, 0u32..=50), 1..8), wanted in 0usize..4, which in 0usize..8,
        ) {
            let mut disks: Vec<Stock> = sizes.iter().map(|(total, used)| stock(*used.min(total), *total, true)).collect();
            let free = |disks: &[Stock]| disks.iter().map(|disk| u64::from(disk.total - disk.used)).sum::<u64>();
            // As full as new data may make them.
            while free(&disks) < reserve(&disks, wanted) {
                disks.iter_mut().max_by_key(|disk| disk.used).into_iter().for_each(|disk| disk.used -= 1);
            }
            let lost = wanted.min(disks.len());
            let first = which % disks.len();
            disks.rotate_left(first);
            let here = disks.split_off(lost);
            let gone = disks;
            let held: u64 = gone.iter().map(|disk| u64::from(disk.used)).sum();
            prop_assert!(free(&here) >= held);
        }
    }
}
