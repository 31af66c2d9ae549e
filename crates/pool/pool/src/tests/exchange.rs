//! A slab of another row makes room for a copy that leaves.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use block_device::{BlockDevice, Durability};
use shard_runtime::sleep;

use super::bench_disk::TestDisk;
use super::disks::{until, verify};
use super::promises::{cut_power, open};
use super::{Bench, SLAB, on_shard};
use crate::{
    CreateOptions, DiskDescription, DiskId, DiskUse, NewDisk, Pool, RepairParams, Resiliency, Space,
    SpaceSpec,
};

/// Disks with room for so many slabs each.
fn bench(slabs: &[u64]) -> Bench {
    let mut bench = Bench::new(0);
    let disk = |slabs: &u64| Arc::new(TestDisk::new(((slabs + 4) * SLAB) as usize, Arc::clone(&bench.power)));
    bench.disks = slabs.iter().map(disk).collect();
    bench
}

async fn create(bench: &Bench) -> Pool {
    let disk = |index| NewDisk {
        device: bench.device(index),
        name: format!("disk{index}"),
        description: DiskDescription::default(),
    };
    let disks = (0..bench.disks.len()).map(disk).collect();
    let options = CreateOptions { name: "p".into(), slab_size: SLAB, overwrite_foreign: false };
    Pool::create(disks, options, bench.surroundings.clone()).await.expect("create")
}

/// Only these disks are given new rows.
async fn use_only(pool: &Pool, active: &[u32]) {
    for disk in 0..pool.status().disks.len() as u32 {
        let usage = if active.contains(&disk) { DiskUse::Active } else { DiskUse::Spare };
        pool.set_disk_use(DiskId(disk), usage).await.expect("use");
    }
}

/// One row, with one byte for the whole of it.
async fn fill_row(space: &Space, row: u64, salt: u8) {
    let size = space.striping.row_size();
    for at in (row * size..(row + 1) * size).step_by(4096) {
        let (slab, block) = (at / SLAB, at % SLAB / 4096);
        let data = aligned_buffer::IoBuf::copy_from(&[(slab * 31 + block) as u8 ^ salt; 4096]);
        space.write(at, data.freeze(), Durability::Volatile).await.expect("write");
    }
    space.flush().await.expect("flush");
}

fn used(pool: &Pool) -> Vec<u32> {
    pool.status().disks.iter().map(|disk| disk.used_slabs).collect()
}

/// The disks of a row, in order.
fn disks_of(space: &Space, row: u32) -> Vec<u32> {
    let row = space.row(row).expect("row");
    let mut disks: Vec<u32> = row
        .columns
        .iter()
        .flat_map(|column| column.copies().iter().map(|copy| copy.id().0).collect::<Vec<_>>())
        .collect();
    disks.sort_unstable();
    disks
}

/// Slabs of each disk in [`crowded`].
const MIRROR: [u64; 4] = [2, 3, 3, 1];

/// Row 0 on disks 0 and 3, rows 1 to 3 on disks 1 and 2. Those are full, and disk 0 has a free slab: without disk 3 row 0 can have
/// two copies only if another row moves.
async fn crowded(bench: &Bench) -> (Pool, Arc<Space>) {
    let pool = create(bench).await;
    use_only(&pool, &[0, 3]).await;
    let mut spec = SpaceSpec::thin("s", Resiliency::Mirror(2), 4 * SLAB);
    spec.interleave = 4096;
    let space = pool.create_space(spec).await.expect("space");
    fill_row(&space, 0, 5).await;
    use_only(&pool, &[1, 2]).await;
    for row in 1..4 {
        fill_row(&space, row, 5).await;
    }
    use_only(&pool, &[0, 1, 2, 3]).await;
    assert_eq!((used(&pool), disks_of(&space, 0)), (vec![1, 3, 3, 1], vec![0, 3]));
    (pool, space)
}

#[test]
fn the_last_slab_of_a_drained_disk_finds_room() {
    for usage in [DiskUse::Draining, DiskUse::Retired] {
        on_shard(async {
            let bench = bench(&MIRROR);
            let (pool, space) = crowded(&bench).await;
            pool.set_disk_use(DiskId(3), usage).await.expect("leaves");
            until("empty", || pool.slabs_on(DiskId(3)) == 0).await;
            assert!(pool.status().is_fully_redundant());
            // Disks 1 and 2 are as full as before, and one row has gone from one of them to disk 0.
            assert_eq!(used(&pool), [2, 3, 3, 0]);
            assert_eq!((1..4).filter(|row| disks_of(&space, *row).contains(&0)).count(), 1);
            assert_eq!(pool.balance_status().moved, 0, "that was no rebalancing");
            pool.remove_disk(DiskId(3)).await.expect("nothing is on it");
            assert_eq!(pool.check(true).await, Vec::new());
            // Any one of the others may go now.
            for disk in 0..3 {
                bench.disks[disk].gone.store(true, Ordering::SeqCst);
                verify(&space, 4, 5).await;
                bench.disks[disk].gone.store(false, Ordering::SeqCst);
                pool.disk_returned(bench.device(disk)).await.ok();
                until("whole", || pool.status().is_fully_redundant()).await;
            }
        });
    }
}

#[test]
fn a_lost_copy_is_made_anew_where_another_row_makes_room() {
    on_shard(async {
        let bench = bench(&MIRROR);
        let (pool, space) = crowded(&bench).await;
        bench.disks[3].gone.store(true, Ordering::SeqCst);
        fill_row(&space, 0, 5).await;
        pool.set_disk_use(DiskId(3), DiskUse::Retired).await.expect("retire");
        until("rebuilt", || pool.status().is_fully_redundant() && pool.slabs_on(DiskId(3)) == 0).await;
        bench.disks[0].gone.store(true, Ordering::SeqCst);
        verify(&space, 4, 5).await;
    });
}

/// With parity: row 0 on disks 0, 1 and 5, rows 1 and 2 on disks 2 to 4, the journal on disks 0 and 1.
#[test]
fn a_column_with_parity_finds_room_while_clients_write() {
    on_shard(async {
        let bench = bench(&[3, 2, 2, 2, 2, 1]);
        let pool = create(&bench).await;
        use_only(&pool, &[0, 1, 5]).await;
        let mut spec = SpaceSpec::thin("s", Resiliency::Parity(1), 6 * SLAB);
        (spec.columns, spec.interleave) = (3, 4096);
        let space = pool.create_space(spec).await.expect("space");
        fill_row(&space, 0, 7).await;
        use_only(&pool, &[2, 3, 4]).await;
        fill_row(&space, 1, 7).await;
        fill_row(&space, 2, 7).await;
        use_only(&pool, &[0, 1, 2, 3, 4, 5]).await;
        assert_eq!((used(&pool), disks_of(&space, 0)), (vec![2, 2, 2, 2, 2, 1], vec![0, 1, 5]));
        pool.set_repair_params(RepairParams { bytes_per_second: SLAB / 2, ..RepairParams::default() });
        pool.set_disk_use(DiskId(5), DiskUse::Retired).await.expect("leaves");
        for round in 0..400u64 {
            let at = round * 37 % (6 * SLAB / 4096);
            let (slab, block) = (at / 256, at % 256);
            let data = aligned_buffer::IoBuf::copy_from(&[(slab * 31 + block) as u8 ^ 7; 4096]).freeze();
            space.write(at * 4096, data, Durability::Volatile).await.expect("write");
            sleep(Duration::from_millis(20)).await;
        }
        until("empty", || pool.slabs_on(DiskId(5)) == 0).await;
        assert!(pool.status().is_fully_redundant());
        assert_eq!(used(&pool), [3, 2, 2, 2, 2, 0]);
        for disk in 0..5 {
            let disks = &bench.disks[disk];
            disks.gone.store(true, Ordering::SeqCst);
            verify(&space, 6, 7).await;
            disks.gone.store(false, Ordering::SeqCst);
            pool.disk_returned(bench.device(disk)).await.ok();
            until("whole", || pool.status().is_fully_redundant()).await;
        }
    });
}

#[test]
fn nothing_moves_while_repair_is_paused_nor_for_nothing() {
    on_shard(async {
        let bench = bench(&MIRROR);
        let (pool, space) = crowded(&bench).await;
        pool.set_repair_params(RepairParams { paused: true, ..RepairParams::default() });
        pool.set_disk_use(DiskId(3), DiskUse::Retired).await.expect("leaves");
        let written = || bench.disks.iter().map(|disk| disk.written.load(Ordering::SeqCst)).sum::<u64>();
        let stays = async |what: &str| {
            sleep(super::CLEAN).await;
            let before = written();
            sleep(Duration::from_secs(300)).await;
            assert_eq!(used(&pool)[3], 1, "{what}");
            assert_eq!(written(), before, "{what}");
        };
        stays("paused").await;
        assert_eq!(used(&pool), [1, 3, 3, 1]);
        // The disks that could take the copy are spares.
        for disk in [1, 2] {
            pool.set_disk_use(DiskId(disk), DiskUse::Spare).await.expect("spare");
        }
        pool.set_repair_params(RepairParams::default());
        stays("nobody may take it").await;
        // They could again, but now nothing is free.
        pool.set_repair_params(RepairParams { paused: true, ..RepairParams::default() });
        let mut spec = SpaceSpec::thin("t", Resiliency::Simple, SLAB);
        spec.interleave = 4096;
        let other = pool.create_space(spec).await.expect("space");
        fill_row(&other, 0, 1).await;
        for disk in [1, 2] {
            pool.set_disk_use(DiskId(disk), DiskUse::Active).await.expect("active");
        }
        pool.set_repair_params(RepairParams::default());
        assert_eq!(used(&pool), [2, 3, 3, 1]);
        stays("nothing is free").await;
        // And now there is.
        pool.delete_space(other.id()).await.expect("delete");
        until("empty", || pool.slabs_on(DiskId(3)) == 0).await;
        assert_eq!(used(&pool), [2, 3, 3, 0]);
        verify(&space, 4, 5).await;
        stays_where_it_is(&pool).await;
    });
}

/// Nothing moves any more, however a rebalancing is asked for.
async fn stays_where_it_is(pool: &Pool) {
    let copied = pool.status().copied_bytes;
    pool.set_repair_params(RepairParams { balance_above_percent: 1, ..RepairParams::default() });
    pool.start_balance().expect("writable");
    sleep(Duration::from_secs(600)).await;
    assert_eq!((pool.status().copied_bytes, pool.balance_status().moves_left), (copied, 0));
}

#[test]
fn an_exchange_whose_target_vanishes_is_void_and_made_when_it_is_back() {
    on_shard(async {
        let bench = bench(&MIRROR);
        let (pool, space) = crowded(&bench).await;
        pool.set_repair_params(RepairParams { bytes_per_second: SLAB / 4, ..RepairParams::default() });
        pool.set_disk_use(DiskId(3), DiskUse::Draining).await.expect("leaves");
        until("under way", || used(&pool)[0] == 2).await;
        assert_eq!(pool.balance_status().moves_left, 0, "it is not told of as a rebalancing");
        bench.disks[0].gone.store(true, Ordering::SeqCst);
        until("given up", || used(&pool)[0] == 1).await;
        assert_eq!(used(&pool), [1, 3, 3, 1]);
        verify(&space, 4, 5).await;
        bench.disks[0].gone.store(false, Ordering::SeqCst);
        pool.disk_returned(bench.device(0)).await.expect("it is ours");
        until("empty", || pool.slabs_on(DiskId(3)) == 0).await;
        assert_eq!(used(&pool), [2, 3, 3, 0]);
        verify(&space, 4, 5).await;
    });
}

/// Cuts the power after so many writes, and sees everything sound and the exchange made after the next opening. The disks of each
/// row at that opening.
fn cut_and_open(cut: u64) -> Vec<Vec<u32>> {
    let bench = bench(&MIRROR);
    let guid = on_shard(async {
        let (pool, _) = crowded(&bench).await;
        pool.set_disk_use(DiskId(3), DiskUse::Retired).await.expect("leaves");
        bench.power.store(cut, Ordering::SeqCst);
        sleep(Duration::from_secs(20)).await;
        pool.guid()
    });
    cut_power(&bench);
    bench.power.store(u64::MAX, Ordering::SeqCst);
    on_shard(async {
        let pool = open(&bench, guid).await.expect("open");
        let space = pool.space("s").expect("space");
        let found = (0..4).map(|row| disks_of(&space, row)).collect();
        verify(&space, 4, 5).await;
        until("empty", || pool.slabs_on(DiskId(3)) == 0 && pool.status().is_fully_redundant()).await;
        until("none too many", || used(&pool) == [2, 3, 3, 0]).await;
        verify(&space, 4, 5).await;
        pool.close().await.expect("close");
        found
    })
}

#[test]
fn a_power_cut_in_an_exchange_leaves_every_copy_sound_and_none_too_many() {
    const STEP: u64 = 16;
    let mut seen = vec![cut_and_open(1)];
    for cut in (1 + STEP..).step_by(STEP as usize) {
        let found = cut_and_open(cut);
        if seen.last() != Some(&found) {
            // Something was committed meanwhile: every moment of that.
            seen.extend((cut + 1 - STEP..cut).map(cut_and_open));
        }
        let is_done = found[0] == [0, 2] || found[0] == [0, 1];
        seen.push(found);
        if is_done {
            break;
        }
        assert!(cut < 4000, "it does not end");
    }
    seen.dedup();
    let rows = |first: &[u32], second: &[u32]| vec![first.to_vec(), second.to_vec(), vec![1, 2], vec![1, 2]];
    let stages = [
        rows(&[0, 3], &[1, 2]),
        // Row 1 is on its way from disk 1 to disk 0, and has arrived.
        rows(&[0, 3], &[0, 1, 2]),
        rows(&[0, 3], &[0, 2]),
        // Its place is taken.
        rows(&[0, 1, 3], &[0, 2]),
        rows(&[0, 1], &[0, 2]),
    ];
    assert_eq!(seen, stages);
}
