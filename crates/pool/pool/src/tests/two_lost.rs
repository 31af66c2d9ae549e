//! Two disks are lost, and are replaced one after the other.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::disks::{fill, until, verify};
use super::{Bench, SLAB, on_shard};
use crate::{DiskId, DiskUse, Pool, RepairParams, Resiliency, Space, SpaceSpec};

const ROWS: u64 = 4;

async fn filled(pool: &Pool, resiliency: Resiliency) -> Arc<Space> {
    let mut spec = SpaceSpec::thin("s", resiliency, 8 * SLAB);
    spec.interleave = 4096;
    spec.columns = if resiliency.parity() > 0 { 4 } else { 1 };
    let space = pool.create_space(spec).await.expect("space");
    fill(&space, ROWS, 1).await;
    space
}

/// The source and the target of a slab that moves, and whether the target has some of it already.
fn under_way(pool: &Pool) -> Option<(DiskId, DiskId, bool)> {
    let mut found = None;
    pool.core.for_each_column(|_, place, row| {
        let copies = row.column(place.column).copies();
        let from = copies.iter().find(|copy| copy.moves_for().is_some());
        let to = copies.iter().find(|copy| copy.stale.load(Ordering::SeqCst) != 0);
        if let (Some(from), Some(to)) = (from, to) {
            found = Some((from.id(), to.id(), to.stale.load(Ordering::SeqCst) != u64::MAX));
        }
    });
    found
}

/// Loses both disks of a move, and has them replaced one after the other.
fn lose_and_replace(resiliency: Resiliency, target_first: bool, partly: bool) {
    on_shard(async {
        let what = format!("{resiliency:?}, target first {target_first}, partly there {partly}");
        let bench = Bench::new(8);
        let pool = bench.create_on(5).await;
        let space = filled(&pool, resiliency).await;
        pool.add_disk(bench.new_disk(5), false, false).await.expect("added");
        // One slab at a time, and slowly.
        let params = RepairParams { bytes_per_second: SLAB / 16, parallel: 1, ..RepairParams::default() };
        pool.set_repair_params(params);
        if !partly {
            bench.disks[5].delay.store(60_000, Ordering::SeqCst);
        }
        pool.start_balance().expect("writable");
        until("under way", || under_way(&pool).is_some_and(|(_, _, some)| some == partly)).await;
        let (from, to, _) = under_way(&pool).expect("it is");
        for disk in [from, to] {
            bench.disks[disk.0 as usize].gone.store(true, Ordering::SeqCst);
            pool.disk_lost(disk, "taken out").await.expect("known");
        }
        bench.disks[5].delay.store(0, Ordering::SeqCst);
        pool.set_repair_params(RepairParams::default());
        fill(&space, ROWS, 2).await;
        for (index, lost) in if target_first { [to, from] } else { [from, to] }.into_iter().enumerate() {
            pool.add_disk(bench.new_disk(6 + index), false, false).await.expect("added");
            pool.empty_disk(lost, DiskUse::Retired).await.expect("it can end");
            until(&format!("{what}: {lost} is replaced"), || pool.slabs_on(lost) == 0).await;
            pool.remove_disk(lost).await.expect("nothing is on it");
            verify(&space, ROWS, 2).await;
        }
        until("whole", || pool.status().is_fully_redundant()).await;
        assert_eq!(pool.check(true).await, Vec::new(), "{what}");
        // Any two of the others may go now.
        let left: Vec<usize> =
            (0..8).filter(|disk| ![from, to].contains(&DiskId(*disk as u32))).take(2).collect();
        left.iter().for_each(|disk| bench.disks[*disk].gone.store(true, Ordering::SeqCst));
        verify(&space, ROWS, 2).await;
    });
}

#[test]
fn both_disks_of_a_move_are_replaced_one_after_the_other() {
    for resiliency in [Resiliency::Parity(2), Resiliency::Mirror(3)] {
        for target_first in [true, false] {
            for partly in [false, true] {
                lose_and_replace(resiliency, target_first, partly);
            }
        }
    }
}

/// What a disk holds that is to leave and is away is kept for as long as nothing else has it.
#[test]
fn the_last_copy_is_not_given_up_with_its_disk() {
    on_shard(async {
        let bench = Bench::new(6);
        let pool = bench.create_on(4).await;
        let space = filled(&pool, Resiliency::Mirror(2)).await;
        let first = pool.core.meta.with_state(|state| {
            let row = state.rows.values().next().expect("row");
            [row.columns[0].copies[0].disk, row.columns[0].copies[1].disk]
        });
        for disk in first {
            bench.disks[disk.0 as usize].gone.store(true, Ordering::SeqCst);
            pool.disk_lost(disk, "taken out").await.expect("known");
        }
        for (index, lost) in first.into_iter().enumerate() {
            pool.add_disk(bench.new_disk(4 + index), false, false).await.expect("added");
            pool.set_disk_use(lost, DiskUse::Retired).await.expect("known");
        }
        shard_runtime::sleep(std::time::Duration::from_secs(60)).await;
        assert!(first.iter().any(|disk| pool.slabs_on(*disk) > 0), "somebody may find one of them");
        // The one that was lost last: it has everything.
        let found = first[1].0 as usize;
        bench.disks[found].gone.store(false, Ordering::SeqCst);
        pool.disk_returned(bench.device(found)).await.expect("it is ours");
        until("all elsewhere", || first.iter().all(|disk| pool.slabs_on(*disk) == 0)).await;
        assert!(pool.status().is_fully_redundant());
        verify(&space, ROWS, 1).await;
    });
}
