//! Room that is kept for repair, so that what a lost disk held can be made again without a spare.
//!
//! ```text
//!   disk 0  ████████░░░░      data takes no more than all disks have without the largest one:
//!   disk 1  ███████░░░░░      whichever is lost, the others have room for all of it
//!   disk 2  ████████░░░░
//!   disk 3  ███████░░░░░      lost: data takes more than two disks have, so the reserve has been used up
//! ```
//! Only new data is kept from it, and only as long as it is whole. Where a loss has used it up, or it was asked for when data had taken
//! it already, clients go on: they may take what is left when all data is as redundant as promised.
//!
//! Room is counted, not placed: where disks differ much, or fault domains are few, a copy may still find no disk that its row
//! does not use.

/// Slabs that data may take in all, on disks with these `totals`, when it takes `data` and the room of the `wanted` largest
/// disks is to be kept.
#[must_use]
pub fn limit(totals: &[u32], data: u64, wanted: usize) -> u64 {
    let mut totals: Vec<u64> = totals.iter().map(|total| u64::from(*total)).collect();
    totals.sort_unstable();
    let all: u64 = totals.iter().sum();
    let kept: u64 = totals.iter().rev().take(wanted).sum();
    if data <= all - kept { all - kept } else { all }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_loss_uses_the_reserve_up() {
        assert_eq!([0, 1, 2].map(|wanted| limit(&[100, 80, 100, 100], 0, wanted)), [380, 280, 180]);
        assert_eq!(limit(&[100, 80, 100, 100], 280, 1), 280, "data has taken all that it may");
        // One is lost. What was full before may grow as long as there is room for all of it.
        assert_eq!(limit(&[100, 80, 100], 280, 1), 280);
        assert_eq!(limit(&[100, 80, 100], 181, 1), 280);
        assert_eq!(limit(&[100, 80, 100], 180, 1), 180, "there is a reserve again, or still");
        assert_eq!([limit(&[], 0, 1), limit(&[10], 0, 3)], [0, 0]);
    }

    proptest! {
        #[test]
        fn while_it_is_whole_the_others_have_room_for_all_data(
            totals in proptest::collection::vec(1u32..50, 1..8), wanted in 0usize..4, first in 0usize..8, data in 0u64..400,
        ) {
            let all: u64 = totals.iter().map(|total| u64::from(*total)).sum();
            let limit = limit(&totals, data, wanted);
            prop_assert!(limit <= all);
            if data <= limit && limit < all {
                let lost = |at: usize| (at + first) % totals.len() < wanted;
                let left = totals.iter().enumerate().filter(|(at, _)| !lost(*at)).map(|(_, total)| u64::from(*total));
                prop_assert!(left.sum::<u64>() >= limit);
            }
        }
    }
}
