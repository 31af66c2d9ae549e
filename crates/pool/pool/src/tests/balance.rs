//! Slabs move to disks that have joined, and nothing is at risk meanwhile.

use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Durability};
use shard_runtime::sleep;

use super::disks::{fill, mirror, until, verify};
use super::{Bench, SLAB, on_shard};
use crate::{DiskId, OpenOptions, Pool, RepairParams, Resiliency, SpaceSpec};

fn used(pool: &Pool) -> Vec<u32> {
    pool.status().disks.iter().map(|disk| disk.used_slabs).collect()
}

async fn is_even(pool: &Pool) {
    until("even", || {
        let status = pool.balance_status();
        status.moves_left == 0 && status.moved > 0 && pool.status().is_fully_redundant()
    })
    .await;
}

#[test]
fn a_new_disk_gets_its_share_when_asked_and_every_disk_can_be_lost_then() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create_on(2).await;
        let space = mirror(&pool, 9).await;
        fill(&space, 9, 0).await;
        pool.add_disk(bench.new_disk(2), false, false).await.expect("added");
        sleep(Duration::from_secs(60)).await;
        assert_eq!(used(&pool), [9, 9, 0], "nobody has asked");
        // It is in an enclosure of its own: one copy of each row goes there.
        let plan = pool.balance_plan();
        assert_eq!((plan.moves, plan.bytes), (9, 9 * SLAB));
        assert_eq!(plan.disks[2], (DiskId(2), 0, 9));
        pool.start_balance().expect("writable");
        is_even(&pool).await;
        assert_eq!((used(&pool)[2], pool.balance_status().moved), (9, 9));
        assert_eq!(pool.status().balanced_bytes, 9 * SLAB);
        assert_eq!(pool.balance_plan().moves, 0);
        verify(&space, 9, 0).await;
        for disk in 0..3 {
            bench.disks[disk].gone.store(true, Ordering::SeqCst);
            verify(&space, 9, 0).await;
            bench.disks[disk].gone.store(false, Ordering::SeqCst);
            pool.disk_returned(bench.device(disk)).await.ok();
            until("whole", || pool.status().is_fully_redundant()).await;
        }
        assert_eq!(pool.status().balanced_bytes, 9 * SLAB, "what was restored is not counted as moved");
    });
}

#[test]
fn parity_and_its_journal_move_by_themselves_when_disks_are_uneven_while_clients_write() {
    on_shard(async {
        let bench = Bench::new(6);
        let pool = bench.create_on(4).await;
        pool.set_repair_params(RepairParams { balance_above_percent: 10, ..RepairParams::default() });
        let mut spec = SpaceSpec::thin("s", Resiliency::Parity(1), 16 * SLAB);
        (spec.columns, spec.interleave) = (3, 4096);
        let space = pool.create_space(spec).await.expect("space");
        fill(&space, 16, 1).await;
        for disk in 4..6 {
            pool.add_disk(bench.new_disk(disk), false, false).await.expect("added");
        }
        for round in 0..400u64 {
            let (row, block) = (round % 16, round * 37 % (SLAB / 4096));
            let data = IoBuf::copy_from(&[(row * 31 + block) as u8 ^ 1; 4096]).freeze();
            space.write(row * SLAB + block * 4096, data, Durability::Volatile).await.expect("write");
            sleep(Duration::from_millis(20)).await;
        }
        is_even(&pool).await;
        let (most, least) = (used(&pool).into_iter().max(), used(&pool).into_iter().min());
        assert!(most.zip(least).is_some_and(|(most, least)| most <= least + 1), "{:?}", used(&pool));
        bench.disks[5].gone.store(true, Ordering::SeqCst);
        verify(&space, 16, 1).await;
    });
}

#[test]
fn a_power_cut_in_a_move_leaves_every_copy_sound_and_none_too_many() {
    for cut in (1..400).step_by(7) {
        let bench = Bench::new(3);
        let guid = on_shard(async {
            let pool = bench.create_on(2).await;
            let space = mirror(&pool, 6).await;
            fill(&space, 6, 2).await;
            pool.add_disk(bench.new_disk(2), false, false).await.expect("added");
            pool.start_balance().expect("writable");
            bench.power.store(cut, Ordering::SeqCst);
            sleep(Duration::from_secs(20)).await;
            pool.guid()
        });
        bench.power.store(u64::MAX, Ordering::SeqCst);
        bench.disks.iter().for_each(|disk| disk.restore_power(|| false));
        on_shard(async {
            let options = OpenOptions::default();
            let pool = Pool::open(guid, bench.devices(), options, bench.surroundings.clone()).await;
            let pool = pool.expect("open");
            until("whole", || pool.status().is_fully_redundant()).await;
            until("none too many", || used(&pool).iter().sum::<u32>() == 12).await;
            let space = pool.space("s").expect("space");
            verify(&space, 6, 2).await;
            pool.close().await.expect("close");
        });
    }
}

#[test]
fn a_move_to_a_disk_that_vanishes_is_void() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create_on(2).await;
        let space = mirror(&pool, 6).await;
        fill(&space, 6, 3).await;
        pool.add_disk(bench.new_disk(2), false, false).await.expect("added");
        pool.set_repair_params(RepairParams { bytes_per_second: SLAB / 4, ..RepairParams::default() });
        pool.start_balance().expect("writable");
        until("under way", || used(&pool)[2] > 0).await;
        bench.disks[2].gone.store(true, Ordering::SeqCst);
        until("given up", || used(&pool)[2] == 0).await;
        assert!(pool.status().is_fully_redundant());
        assert_eq!(used(&pool), [6, 6, 0]);
        verify(&space, 6, 3).await;
    });
}
