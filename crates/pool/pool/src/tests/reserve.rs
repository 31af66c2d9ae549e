//! Room that is kept for what lost disks held.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, BlockErrorKind, Durability};

use super::disks::{until, verify};
use super::{Bench, SLAB, TestDisk, on_shard};
use crate::{DiskId, DiskUse, Pool, RepairParams, Resiliency, Space, SpaceSpec};

/// Writes rows until the pool has no room; returns how many.
async fn fill_up(space: &Space) -> u64 {
    for row in 0.. {
        for block in 0..SLAB / 4096 {
            let data = IoBuf::copy_from(&[(row * 31 + block) as u8 ^ 3; 4096]).freeze();
            match space.write(row * SLAB + block * 4096, data, Durability::Volatile).await {
                Ok(()) => {}
                Err(error) => {
                    assert_eq!(error.kind(), BlockErrorKind::NoSpace, "{error}");
                    return row;
                }
            }
        }
    }
    unreachable!("a pool has an end")
}

fn set_reserve(pool: &Pool, reserve_disks: u32) {
    pool.set_repair_params(RepairParams { reserve_disks, ..pool.repair_params() });
}

#[test]
fn a_full_pool_has_room_for_what_a_lost_disk_held() {
    on_shard(async {
        let bench = Bench::new(4);
        let pool = bench.create().await;
        set_reserve(&pool, 1);
        let status = pool.status();
        let largest = u64::from(status.disks[0].record.slab_count) * SLAB;
        assert_eq!((status.reserved, status.free), (largest, status.capacity));
        let mut spec = SpaceSpec::thin("s", Resiliency::Mirror(2), 1 << 30);
        (spec.interleave, spec.columns) = (4096, 1);
        let space = pool.create_space(spec).await.expect("space");
        let rows = fill_up(&space).await;
        space.flush().await.expect("flush");
        let free = pool.status().free;
        assert!((largest..largest + 2 * SLAB).contains(&free), "{free} bytes are free, {largest} are kept");

        bench.disks[1].gone.store(true, Ordering::SeqCst);
        pool.disk_lost(DiskId(1), "vanished").await.expect("lost");
        pool.set_disk_use(DiskId(1), DiskUse::Retired).await.expect("given up");
        until("all is redundant again", || pool.status().is_fully_redundant()).await;
        verify(&space, rows, 3).await;
        // It has been used up: what is left is for data.
        assert_eq!(pool.status().reserved, 0);
        assert!(pool.status().free < 2 * SLAB, "{} bytes are free", pool.status().free);
    });
}

#[test]
fn without_a_reserve_data_takes_all_the_room() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let mut spec = SpaceSpec::thin("s", Resiliency::Simple, 1 << 30);
        spec.columns = 1;
        let space = pool.create_space(spec).await.expect("space");
        fill_up(&space).await;
        assert_eq!((pool.status().free, pool.status().reserved), (0, 0));
    });
}

/// What was allocated can be written however full the pool becomes, whatever takes the rest of it.
/// Whoever reads the status must not wait for copies that nobody makes.
#[test]
fn copies_that_no_disk_has_room_for_are_not_counted_as_being_made() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let mut spec = SpaceSpec::thin("s", Resiliency::Mirror(2), 1 << 30);
        (spec.interleave, spec.columns) = (4096, 1);
        let space = pool.create_space(spec).await.expect("space");
        fill_up(&space).await;
        space.flush().await.expect("flush");
        bench.disks[1].gone.store(true, Ordering::SeqCst);
        pool.disk_lost(DiskId(1), "vanished").await.expect("lost");
        pool.set_disk_use(DiskId(1), DiskUse::Retired).await.expect("given up");
        until("nothing more is copied", || pool.status().repair_bytes() == 0).await;
        let waits = || pool.status().spaces[0].without_room_bytes;
        assert!(!pool.status().is_fully_redundant() && waits() > 0, "{:?}", pool.status());
        // It is, when there is a disk for it.
        let bench =
            Bench { disks: vec![Arc::new(TestDisk::new(64 << 20, Arc::clone(&bench.power)))], ..bench };
        pool.add_disk(bench.new_disk(0), false, false).await.expect("a disk joins");
        until("all is redundant again", || pool.status().is_fully_redundant()).await;
        assert_eq!(waits(), 0);
    });
}

#[test]
fn what_is_allocated_has_room_in_a_full_pool() {
    on_shard(async {
        for (resiliency, columns) in
            [(Resiliency::Simple, 1), (Resiliency::Mirror(2), 1), (Resiliency::Parity(1), 3)]
        {
            let bench = Bench::new(4);
            let pool = bench.create().await;
            let space = |name: &str| {
                let mut spec = SpaceSpec::thin(name, resiliency, 1 << 30);
                (spec.interleave, spec.columns) = (4096, columns);
                spec
            };
            let kept = pool.create_space(space("kept")).await.expect("space");
            let row = SLAB * if columns > 1 { 2 } else { 1 };
            // Two rows, of which each is counted once; and far more than there is.
            let ranges = vec![(row / 2, row / 4), (row * 3 / 4, row), (row, 4096)];
            assert!(kept.has_room_for(ranges.clone()).await.expect("open"));
            assert!(!kept.has_room_for(vec![(0, 1 << 30)]).await.expect("open"));
            kept.allocate(row / 2, 2 * row).await.expect("allocate");
            let other = pool.create_space(space("other")).await.expect("space");
            fill_up(&other).await;
            for at in (row / 2..row / 2 + 2 * row).step_by(row as usize / 4) {
                let data = IoBuf::copy_from(&[7; 4096]).freeze();
                kept.write(at, data, Durability::Durable)
                    .await
                    .unwrap_or_else(|error| panic!("{resiliency:?}: {error}"));
            }
            assert!(kept.has_room_for(ranges).await.expect("open"), "they are there");
            assert!(!kept.has_room_for(vec![(64 * row, row)]).await.expect("open"));
            let error = kept.allocate(64 * row, row).await.expect_err("the pool is full");
            assert_eq!(error.kind(), BlockErrorKind::NoSpace);
            let zeros = kept.read(row / 2 + 4096, IoBuf::new(4096)).await.expect("read");
            assert!(zeros.iter().all(|byte| *byte == 0));
        }
    });
}

#[test]
fn what_a_thin_space_can_hold_behind_its_first_part_is_what_it_has_there_and_the_pools_room() {
    on_shard(async {
        let bench = Bench::new(4);
        let pool = bench.create().await;
        // A volume's own structures come first, and may take more than the whole pool has.
        let mut spec = SpaceSpec::thin("s", Resiliency::Parity(1), 3 << 30);
        (spec.interleave, spec.columns) = (4096, 3);
        let space = pool.create_space(spec).await.expect("space");
        let row = space.striping.row_size();
        let block = IoBuf::zeroed(4096).freeze();
        for number in [0, 1, 300] {
            space.write(number * row, block.clone(), Durability::Durable).await.expect("write");
        }
        let room = space.can_hold() - 3 * row;
        assert!(room > 0 && room < 256 * row, "{room}");
        assert_eq!(space.can_hold_behind(0), space.can_hold());
        assert_eq!(space.can_hold_behind(row / 2), space.can_hold() - row / 2);
        assert_eq!(space.can_hold_behind(256 * row), row + room);
        assert_eq!(space.can_hold_behind(301 * row), room);
        assert_eq!(space.can_hold_behind(space.bytes() - row), row);
        assert_eq!(space.can_hold_behind(space.bytes() + row), 0);
    });
}
