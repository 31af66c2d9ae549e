//! Disks that vanish, return, fail, are replaced and drained.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Durability};
use shard_runtime::sleep;

use super::bench_disk::TestDisk;
use super::promises::{cut_power, open};
use super::{Bench, DISK, SLAB, on_shard};
use crate::{
    DiskDescription, DiskId, DiskUse, NewDisk, OpenOptions, Pool, PoolErrorKind, RepairParams, Resiliency,
    Space, SpaceSpec,
};

pub(super) async fn mirror(pool: &Pool, rows: u64) -> Arc<Space> {
    let mut spec = SpaceSpec::thin("s", Resiliency::Mirror(2), rows * SLAB);
    spec.interleave = 4096;
    pool.create_space(spec).await.expect("space")
}

pub(super) async fn fill(space: &Space, rows: u64, salt: u8) {
    for row in 0..rows {
        for block in 0..SLAB / 4096 {
            let data = IoBuf::copy_from(&[(row * 31 + block) as u8 ^ salt; 4096]).freeze();
            space.write(row * SLAB + block * 4096, data, Durability::Volatile).await.expect("write");
        }
    }
    space.flush().await.expect("flush");
}

pub(super) async fn verify(space: &Space, rows: u64, salt: u8) {
    for row in 0..rows {
        let read = space.read(row * SLAB, IoBuf::new(SLAB as usize)).await.expect("read");
        for (block, bytes) in read.chunks(4096).enumerate() {
            let expected = (row * 31 + block as u64) as u8 ^ salt;
            assert!(bytes.iter().all(|b| *b == expected), "row {row} block {block}");
        }
    }
}

pub(super) async fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..600 {
        if done() {
            return;
        }
        sleep(std::time::Duration::from_secs(1)).await;
    }
    panic!("did not come to pass: {what}");
}

#[test]
fn a_returned_disk_gets_only_what_it_missed() {
    on_shard(async {
        let bench = Bench::new(2);
        let pool = bench.create().await;
        let space = mirror(&pool, 8).await;
        fill(&space, 8, 0).await;
        sleep(std::time::Duration::from_secs(30)).await; // all clean
        bench.disks[1].gone.store(true, Ordering::SeqCst);
        let changed = IoBuf::copy_from(&[0xee; 4096]).freeze();
        space.write(3 * SLAB, changed.clone(), Durability::Durable).await.expect("one copy is enough");
        space.write(5 * SLAB + 8192, changed, Durability::Durable).await.expect("one copy is enough");
        let status = pool.status();
        assert!(!status.is_fully_redundant());
        assert_eq!(status.spaces[0].copies_now, 1);
        assert_eq!(status.disks[1].stale_bytes, 2 * SLAB / 64);
        bench.disks[1].gone.store(false, Ordering::SeqCst);
        let before = bench.disks[1].written.load(Ordering::SeqCst);
        pool.disk_returned(bench.device(1)).await.expect("it is ours");
        until("fully redundant", || pool.status().is_fully_redundant()).await;
        let metadata = 256 << 10;
        let copied = bench.disks[1].written.load(Ordering::SeqCst) - before;
        assert!(copied <= 2 * SLAB / 64 + metadata, "{copied} bytes went to the returned disk");
        assert_eq!(pool.status().copied_bytes, 2 * SLAB / 64);
        assert_eq!(pool.status().balanced_bytes, 0);
        // Now the returned one must be able to serve alone.
        bench.disks[0].gone.store(true, Ordering::SeqCst);
        let read = space.read(3 * SLAB, IoBuf::new(4096)).await.expect("read");
        assert!(read.iter().all(|b| *b == 0xee));
    });
}

#[test]
fn a_lost_disk_is_rebuilt_on_others_and_can_be_removed() {
    on_shard(async {
        let bench = Bench::new(4);
        let pool = bench.create().await;
        let space = mirror(&pool, 10).await;
        fill(&space, 10, 1).await;
        bench.disks[2].gone.store(true, Ordering::SeqCst);
        fill(&space, 10, 2).await;
        assert!(!pool.status().is_fully_redundant());
        pool.set_disk_use(DiskId(2), DiskUse::Retired).await.expect("retire");
        until("rebuilt", || pool.status().is_fully_redundant() && pool.slabs_on(DiskId(2)) == 0).await;
        pool.remove_disk(DiskId(2)).await.expect("nothing is on it");
        verify(&space, 10, 2).await;
        // Any one of the others may go now.
        bench.disks[0].gone.store(true, Ordering::SeqCst);
        verify(&space, 10, 2).await;
    });
}

#[test]
fn two_lost_copies_of_three_are_rebuilt() {
    on_shard(async {
        let bench = Bench::new(5);
        let pool = bench.create().await;
        let mut spec = SpaceSpec::thin("s", Resiliency::Mirror(3), 10 * SLAB);
        spec.interleave = 4096;
        let space = pool.create_space(spec).await.expect("space");
        fill(&space, 10, 1).await;
        for disk in [0, 1] {
            bench.disks[disk].gone.store(true, Ordering::SeqCst);
        }
        fill(&space, 10, 2).await;
        for disk in [0, 1] {
            pool.set_disk_use(DiskId(disk), DiskUse::Retired).await.expect("retire");
        }
        until("rebuilt", || {
            pool.status().is_fully_redundant()
                && pool.slabs_on(DiskId(0)) == 0
                && pool.slabs_on(DiskId(1)) == 0
        })
        .await;
        verify(&space, 10, 2).await;
        assert_eq!(
            pool.check(true).await.iter().filter(|f| f.severity != crate::Severity::Warning).count(),
            0
        );
    });
}

#[test]
fn a_disk_is_drained_while_it_serves() {
    on_shard(async {
        let bench = Bench::new(4);
        let pool = bench.create().await;
        let space = mirror(&pool, 6).await;
        fill(&space, 6, 3).await;
        assert_eq!(pool.remove_disk(DiskId(1)).await.err().map(|e| e.kind()), Some(PoolErrorKind::InUse));
        pool.set_disk_use(DiskId(1), DiskUse::Draining).await.expect("drain");
        until("drained", || pool.slabs_on(DiskId(1)) == 0).await;
        assert!(pool.status().is_fully_redundant());
        pool.remove_disk(DiskId(1)).await.expect("empty");
        verify(&space, 6, 3).await;
        assert_eq!(pool.check(true).await, Vec::new());
        assert!(crate::probe(&bench.device(1)).await.expect("readable").is_none(), "it is nobody's now");
    });
}

#[test]
fn a_spare_takes_over() {
    on_shard(async {
        let mut bench = Bench::new(2);
        let pool = bench.create().await;
        let space = mirror(&pool, 4).await;
        fill(&space, 4, 4).await;
        bench.disks.push(Arc::new(TestDisk::new(DISK, Arc::clone(&bench.power))));
        let spare = NewDisk {
            device: bench.device(2),
            name: "spare".into(),
            description: DiskDescription::default(),
        };
        let id = pool.add_disk(spare, true, false).await.expect("add");
        assert_eq!(pool.status().disks[2].used_slabs, 0);
        bench.disks[0].gone.store(true, Ordering::SeqCst);
        fill(&space, 4, 5).await;
        pool.set_disk_use(DiskId(0), DiskUse::Retired).await.expect("retire");
        pool.set_disk_use(id, DiskUse::Active).await.expect("to work");
        until("rebuilt", || pool.status().is_fully_redundant()).await;
        bench.disks[1].gone.store(true, Ordering::SeqCst);
        verify(&space, 4, 5).await;
    });
}

#[test]
fn an_unreadable_block_is_healed_from_the_other_copy() {
    on_shard(async {
        let bench = Bench::new(2);
        let pool = bench.create().await;
        let space = mirror(&pool, 1).await;
        fill(&space, 1, 6).await;
        let mut start = 0;
        pool.core.for_each_column(|_, place, row| start = row.column(place.column).copies()[0].start);
        let victim = pool
            .core
            .meta
            .with_state(|s| s.rows.values().next().map(|r| r.columns[0].copies[0].disk))
            .expect("row");
        bench.disks[victim.0 as usize].fail_reads_at.store(start + 4096, Ordering::SeqCst);
        verify(&space, 1, 6).await;
        until("healed", || bench.disks[victim.0 as usize].fail_reads_at.load(Ordering::SeqCst) == u64::MAX)
            .await;
        assert!(pool.status().disks[victim.0 as usize].healed_blocks > 0);
    });
}

#[test]
fn a_failed_flush_makes_the_copy_stale_and_not_the_data_lost() {
    on_shard(async {
        let bench = Bench::new(2);
        let pool = bench.create().await;
        let space = mirror(&pool, 2).await;
        bench.disks[0].fail_flush.store(true, Ordering::SeqCst);
        fill(&space, 2, 7).await;
        let status = pool.status();
        assert!(!status.disks[0].online && status.disks[0].stale_bytes > 0);
        verify(&space, 2, 7).await;
        bench.disks[1].fail_flush.store(true, Ordering::SeqCst);
        let data = IoBuf::copy_from(&[1; 4096]).freeze();
        space.write(0, data, Durability::Volatile).await.expect("volatile");
        space.flush().await.expect_err("the last copy cannot promise it");
    });
}

#[test]
fn foreign_disks_are_refused_by_name() {
    on_shard(async {
        let bench = Bench::new(3);
        bench.disks[2].corrupt(1080, b"\x53\xef");
        let pool = Bench {
            disks: bench.disks[..2].to_vec(),
            power: Arc::clone(&bench.power),
            surroundings: bench.surroundings.clone(),
        }
        .create()
        .await;
        let error = pool.add_disk(bench.new_disk(2), false, false).await.expect_err("ext4");
        assert_eq!(error.kind(), PoolErrorKind::ForeignData);
        assert!(error.to_string().contains("disk2 carries an ext2, ext3 or ext4"), "{error}");
        pool.add_disk(bench.new_disk(2), false, true).await.expect("told to");
    });
}

#[test]
fn a_disk_that_answers_slower_than_its_like_is_named() {
    on_shard(async {
        let bench = Bench::new(4);
        let pool = bench.create().await;
        let mut spec = SpaceSpec::thin("s", Resiliency::Mirror(2), 16 * SLAB);
        spec.interleave = 4096;
        let space = pool.create_space(spec).await.expect("space");
        bench.disks.iter().for_each(|disk| disk.delay.store(2, Ordering::SeqCst));
        let work = async |seconds: u64| {
            for round in 0..seconds * 5 {
                for row in 0..8 {
                    space
                        .write(
                            row * SLAB + round % 32 * 4096,
                            IoBuf::zeroed(4096).freeze(),
                            Durability::Durable,
                        )
                        .await
                        .expect("write");
                }
                sleep(std::time::Duration::from_millis(200)).await;
            }
        };
        let lasting = || -> Vec<u64> {
            pool.status().disks.iter().map(|disk| disk.slowness.lasting.as_secs()).collect()
        };
        work(20).await;
        assert_eq!(lasting(), [0; 4]);
        bench.disks[2].delay.store(300, Ordering::SeqCst);
        work(20).await;
        let slow = pool.status().disks[2].slowness;
        assert!(slow.lasting.as_secs() >= 15 && slow.mean > 20 * slow.others, "{slow:?}");
        assert_eq!(lasting().iter().filter(|lasting| **lasting > 0).count(), 1);
        bench.disks[2].delay.store(2, Ordering::SeqCst);
        work(20).await;
        assert_eq!(lasting(), [0; 4]);
    });
}

#[test]
fn a_copy_that_has_caught_up_is_known_to_before_the_other_is_called_stale() {
    // The power goes after so many writes to disks, some of them before the write below is acknowledged.
    let acknowledged = (1..8).filter(|writes| caught_up_and_cut(*writes)).count();
    assert!(acknowledged > 2, "{acknowledged}");
}

fn caught_up_and_cut(writes: u64) -> bool {
    let bench = Bench::new(2);
    let (region, newest) = (SLAB / 64, IoBuf::copy_from(&[0x77; 4096]).freeze());
    let (guid, acknowledged) = on_shard(async {
        let pool = bench.create().await;
        let space = mirror(&pool, 1).await;
        fill(&space, 1, 0).await;
        sleep(Duration::from_secs(30)).await; // all clean
        bench.disks[1].gone.store(true, Ordering::SeqCst);
        for at in 0..20 {
            space.write(at * region, newest.clone(), Durability::Durable).await.expect("one copy is enough");
        }
        // A region a second: the first are there, and told of when the last are.
        pool.set_repair_params(RepairParams { bytes_per_second: region, ..RepairParams::default() });
        bench.disks[1].gone.store(false, Ordering::SeqCst);
        pool.disk_returned(bench.device(1)).await.expect("it is ours");
        until("half of it", || pool.status().disks[1].stale_bytes < 15 * region).await;
        assert!(pool.status().disks[1].stale_bytes > 2 * region);
        sleep(Duration::from_millis(500)).await; // the repair waits for its next second
        bench.disks[0].gone.store(true, Ordering::SeqCst);
        bench.power.store(writes, Ordering::SeqCst);
        let written = space.write(4096, newest, Durability::Durable).await;
        (pool.guid(), written.is_ok())
    });
    cut_power(&bench);
    bench.power.store(u64::MAX, Ordering::SeqCst);
    bench.disks[0].gone.store(false, Ordering::SeqCst);
    on_shard(async {
        let pool = open(&bench, guid).await.expect("open");
        let space = pool.space("s").expect("space");
        let read = space.read(0, IoBuf::new(8192)).await.expect("one of them has it");
        assert!(!acknowledged || read.iter().all(|b| *b == 0x77), "power cut after {writes} writes");
    });
    acknowledged
}

#[test]
fn a_disk_that_could_never_be_emptied_is_not_begun_with_and_a_change_of_mind_is_taken() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create_on(2).await;
        let space = mirror(&pool, 6).await;
        fill(&space, 6, 1).await;
        for disk in [0, 1] {
            let error =
                pool.empty_disk(DiskId(disk), DiskUse::Draining).await.expect_err("a mirror needs two");
            assert_eq!(error.kind(), PoolErrorKind::NoSpace);
            assert!(error.to_string().contains("add 1 disks first"), "{error}");
        }
        pool.add_disk(bench.new_disk(2), false, false).await.expect("add");
        pool.set_repair_params(RepairParams { bytes_per_second: 1 << 20, ..RepairParams::default() });
        pool.empty_disk(DiskId(0), DiskUse::Draining).await.expect("there is a third now");
        let error = pool.empty_disk(DiskId(1), DiskUse::Draining).await.expect_err("one leaves already");
        assert_eq!(error.kind(), PoolErrorKind::NoSpace, "{error}");
        until("some of it has moved", || pool.slabs_on(DiskId(2)) > 2).await;
        pool.keep_disk(DiskId(0)).await.expect("taken back");
        assert!(pool.slabs_on(DiskId(0)) > 0);
        let copies = || {
            pool.core
                .meta
                .with_state(|state| state.rows.values().map(|row| row.columns[0].copies.len()).sum::<usize>())
        };
        until("nothing is surplus", || copies() == 12 && pool.status().is_fully_redundant()).await;
        let left = pool.slabs_on(DiskId(0));
        sleep(Duration::from_secs(60)).await;
        assert_eq!(pool.slabs_on(DiskId(0)), left, "it stays where it is");
        assert_eq!(pool.keep_disk(DiskId(0)).await.err().map(|e| e.kind()), Some(PoolErrorKind::Invalid));
        assert_eq!(pool.keep_disk(DiskId(9)).await.err().map(|e| e.kind()), Some(PoolErrorKind::NotFound));
        verify(&space, 6, 1).await;
    });
}

#[test]
fn a_disk_whose_data_finds_no_room_elsewhere_stays() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let space = mirror(&pool, 30).await;
        fill(&space, 25, 1).await;
        let error = pool.empty_disk(DiskId(0), DiskUse::Draining).await.expect_err("three are needed");
        assert!(error.to_string().contains("no room on the others"), "{error}");
        space.unmap(0, 10 * SLAB).await.expect("unmap");
        pool.empty_disk(DiskId(0), DiskUse::Draining).await.expect("two have room");
        until("empty", || pool.slabs_on(DiskId(0)) == 0).await;
        pool.remove_disk(DiskId(0)).await.expect("remove");
    });
}

#[test]
fn data_that_nobody_knows_is_refused_and_a_disk_that_was_released_is_taken() {
    on_shard(async {
        let bench = Bench::new(3);
        // Somebody's data, without any mark: at the start, in the midst, and at the end.
        for at in [8192, DISK / 2, DISK - 4096] {
            let disk = Arc::new(TestDisk::new(DISK, Arc::clone(&bench.power)));
            for block in 0..64 {
                disk.corrupt((at + block * 4096).min(DISK - 4096), &[7; 4096]);
            }
            let new = NewDisk { device: disk, name: "d".into(), description: DiskDescription::default() };
            let options =
                crate::CreateOptions { name: "q".into(), slab_size: SLAB, overwrite_foreign: false };
            let error = Pool::create(vec![new], options, bench.surroundings.clone()).await.err();
            let error = error.expect("somebody's data");
            assert_eq!(error.kind(), PoolErrorKind::ForeignData, "at {at}");
            assert!(error.to_string().contains("not recognised"), "{error}");
        }
        let pool = bench.create().await;
        let space = mirror(&pool, 6).await;
        fill(&space, 6, 1).await;
        pool.empty_disk(DiskId(0), DiskUse::Draining).await.expect("drain");
        until("empty", || pool.slabs_on(DiskId(0)) == 0).await;
        pool.remove_disk(DiskId(0)).await.expect("remove");
        assert!(crate::probe(&bench.device(0)).await.expect("read").is_none());
        pool.add_disk(bench.new_disk(0), false, false).await.expect("it was ours and is free");
        pool.set_disk_use(DiskId(1), DiskUse::Draining).await.expect("drain");
        until("empty", || pool.slabs_on(DiskId(1)) == 0).await;
        pool.remove_disk(DiskId(1)).await.expect("remove");
        // Whoever uses it meanwhile makes it his.
        bench.disks[1].corrupt(512, &[1]);
        let error = pool.add_disk(bench.new_disk(1), false, false).await.expect_err("not free any more");
        assert_eq!(error.kind(), PoolErrorKind::ForeignData);
    });
}

/// From the moment at which the status shows a disk that has joined as free, rows find its slabs.
#[test]
fn a_disk_that_joins_has_slabs_as_soon_as_it_is_there() {
    on_shard(async {
        let bench = Bench::new(2);
        let pool = bench.create_on(1).await;
        let mut seen = false;
        let watch = std::future::poll_fn(|_| {
            let status = pool.status();
            let candidates = pool.core.candidates(true);
            for disk in &status.disks {
                let free = disk.record.slab_count - disk.used_slabs;
                let found = candidates.iter().find(|candidate| candidate.disk == disk.record.id);
                let found = found.map(|candidate| (candidate.free, candidate.total));
                assert_eq!(found, Some((free, disk.record.slab_count)), "disk {}", disk.record.id);
            }
            seen = status.disks.len() == 2;
            if seen { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        });
        // The watcher is polled first each time that the other goes on.
        let joining = pool.add_disk(bench.new_disk(1), false, false);
        let ((), joined) = futures_util::future::join(watch, joining).await;
        joined.expect("it joins");
        assert!(seen);
    });
}

/// A pool of one machine that has become one of several: its first disks are known to be of one node from then on.
#[test]
fn copies_are_spread_over_the_nodes_that_disks_are_said_to_be_of() {
    on_shard(async {
        let mut bench = Bench::new(3);
        let pool = bench.create().await;
        for index in 3..5 {
            bench.disks.push(Arc::new(TestDisk::new(DISK, Arc::clone(&bench.power))));
            let description = DiskDescription { node: "n2".into(), ..DiskDescription::default() };
            let new = NewDisk { device: bench.device(index), name: format!("n2:{index}"), description };
            pool.add_disk(new, false, false).await.expect("add");
        }
        // Two of the first three are known to be of one node, the third is that of another one.
        for (id, node) in [(0, "n1"), (1, "n1"), (2, "n2")] {
            pool.set_disk_node(DiskId(id), node).await.expect("said");
        }
        let of = |id: u32| if id < 2 { "n1" } else { "n2" };
        let disks = pool.status().disks;
        assert!(disks.iter().all(|disk| disk.record.node == of(disk.record.id.0)), "{disks:?}");
        assert!(pool.set_disk_node(DiskId(9), "n1").await.is_err());
        let space = mirror(&pool, 4).await;
        fill(&space, 4, 3).await;
        pool.core.for_each_column(|_, place, row| {
            let nodes: Vec<&str> =
                row.column(place.column).copies().iter().map(|copy| of(copy.disk.id.0)).collect();
            assert_eq!(nodes.iter().filter(|node| **node == "n1").count(), 1, "{nodes:?}");
        });
        let guid = pool.core.guid;
        drop((space, pool));
        let pool =
            Pool::open(guid, bench.devices(), OpenOptions::default(), bench.surroundings.clone()).await;
        let pool = pool.expect("open");
        assert!(pool.status().disks.iter().all(|disk| disk.record.node == of(disk.record.id.0)));
    });
}
