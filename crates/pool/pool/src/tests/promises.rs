//! Promises that a fault at an unlucky moment must not break: each test stands for one way to lose data.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockErrorKind, Durability};
use pool_format::SUPERBLOCK_BYTES;
use shard_runtime::sleep;

use super::bench_disk::TestDisk;
use super::{Bench, DISK, SLAB, on_shard};
use crate::{
    CreateOptions, DiskId, Guid, OpenOptions, Pool, PoolError, PoolErrorKind, Resiliency, Space, SpaceSpec,
};

fn block(byte: u8) -> SharedBuf {
    IoBuf::copy_from(&[byte; 4096]).freeze()
}

fn spec(name: &str, resiliency: Resiliency) -> SpaceSpec {
    let mut spec = SpaceSpec::thin(name, resiliency, 4 * SLAB);
    spec.interleave = 4096;
    spec
}

pub(super) async fn open(bench: &Bench, guid: Guid) -> Result<Pool, PoolError> {
    Pool::open(guid, bench.devices(), OpenOptions::default(), bench.surroundings.clone()).await
}

async fn first_byte(space: &Space, offset: u64) -> u8 {
    space.read(offset, IoBuf::new(4096)).await.expect("read")[0]
}

/// Everything that was not flushed is lost, on all disks.
pub(super) fn cut_power(bench: &Bench) {
    bench.disks.iter().for_each(|disk| disk.restore_power(|| false));
}

#[test]
fn the_log_of_an_earlier_pool_on_the_same_disks_is_never_replayed() {
    let bench = Bench::new(1);
    // A shard that ends is what kill -9 is to a pool.
    on_shard(async {
        let pool = bench.create().await;
        for name in ["old0", "old1", "old2", "old3"] {
            pool.create_space(spec(name, Resiliency::Simple)).await.expect("space");
        }
    });
    let guid = on_shard(async {
        let options = CreateOptions { name: "q".into(), slab_size: SLAB, overwrite_foreign: true };
        let pool = Pool::create(vec![bench.new_disk(0)], options, bench.surroundings.clone()).await;
        let pool = pool.expect("told to overwrite");
        pool.create_space(spec("new", Resiliency::Simple)).await.expect("space");
        pool.guid()
    });
    on_shard(async {
        let pool = open(&bench, guid).await.expect("open");
        let names: Vec<String> = pool.spaces().iter().map(|space| space.name()).collect();
        assert_eq!(names, ["new"]);
    });
}

#[test]
fn a_power_cut_while_the_pool_opens_loses_nothing() {
    for checkpoints in 0..3 {
        for cut in 1..12 {
            let bench = Bench::new(1);
            let guid = on_shard(async {
                let pool = bench.create().await;
                for index in 0..40 {
                    // Long names: a checkpoint of several blocks can be torn.
                    let name = format!("{index:0200}");
                    pool.create_space(spec(&name, Resiliency::Simple)).await.expect("space");
                }
                for _ in 0..checkpoints {
                    pool.core.meta.checkpoint().await.expect("checkpoint");
                }
                // A change in every block of the state, so that a half of it is no whole.
                for space in pool.spaces() {
                    pool.grow_space(space.id(), 5 * SLAB).await.expect("grow");
                }
                pool.guid()
            });
            bench.power.store(cut, Ordering::SeqCst);
            on_shard(async {
                let _ = open(&bench, guid).await;
            });
            bench.power.store(u64::MAX, Ordering::SeqCst);
            let mut odd = false;
            bench.disks[0].restore_power(|| {
                odd = !odd;
                odd
            });
            on_shard(async {
                let pool = open(&bench, guid).await.expect("open");
                let grown = pool.spaces().iter().filter(|space| space.size() == 5 * SLAB).count();
                assert_eq!(grown, 40, "{checkpoints} checkpoints, power cut at write {cut}");
            });
        }
    }
}

#[test]
fn things_made_at_the_same_time_get_different_numbers() {
    on_shard(async {
        let mut bench = Bench::new(2);
        let pool = bench.create().await;
        let (a, b) = tokio::join!(
            pool.create_space(spec("a", Resiliency::Simple)),
            pool.create_space(spec("b", Resiliency::Simple))
        );
        let (a, b) = (a.expect("space"), b.expect("space"));
        assert_ne!(a.id(), b.id());
        a.write(0, block(1), Durability::Durable).await.expect("write");
        b.write(0, block(2), Durability::Durable).await.expect("write");
        assert_eq!((first_byte(&a, 0).await, first_byte(&b, 0).await), (1, 2));
        let (one, other) = tokio::join!(
            pool.create_space(spec("same", Resiliency::Simple)),
            pool.create_space(spec("same", Resiliency::Simple))
        );
        assert!(one.is_ok() && other.is_err_and(|e| e.kind() == PoolErrorKind::AlreadyExists));
        for _ in 0..2 {
            bench.disks.push(Arc::new(TestDisk::new(DISK, Arc::clone(&bench.power))));
        }
        let (c, d) = tokio::join!(
            pool.add_disk(bench.new_disk(2), false, false),
            pool.add_disk(bench.new_disk(3), false, false)
        );
        assert_ne!(c.expect("add"), d.expect("add"));
    });
}

#[test]
fn a_write_that_meets_a_deletion_leaves_a_pool_that_opens() {
    let bench = Bench::new(2);
    let guid = on_shard(async {
        let pool = bench.create().await;
        for _ in 0..20 {
            let space = pool.create_space(spec("s", Resiliency::Mirror(2))).await.expect("space");
            let writes = (0..4).map(|row| space.write(row * SLAB, block(1), Durability::Durable));
            let _ = tokio::join!(
                futures_util::future::join_all(writes),
                pool.delete_space(space.id()),
                pool.grow_space(space.id(), 5 * SLAB)
            );
        }
        pool.guid()
    });
    on_shard(async {
        let pool = open(&bench, guid).await.expect("no row without a space is left");
        assert!(pool.spaces().is_empty());
        assert_eq!(pool.status().free, pool.status().capacity, "slabs came back");
    });
}

#[test]
fn a_disk_counts_for_the_metadata_only_when_it_has_all_of_it() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        bench.disks[2].gone.store(true, Ordering::SeqCst);
        pool.create_space(spec("missed", Resiliency::Simple)).await.expect("two of three");
        bench.disks[2].gone.store(false, Ordering::SeqCst);
        // Back, but without the checkpoint that fills its gap: what it gets now could never be replayed.
        let disk = pool.core.disk(DiskId(2)).expect("disk");
        disk.bring_online(bench.device(2));
        let before = bench.disks[2].written.load(Ordering::SeqCst);
        pool.create_space(spec("next", Resiliency::Simple)).await.expect("two of three");
        assert_eq!(bench.disks[2].written.load(Ordering::SeqCst), before);
        bench.disks[1].gone.store(true, Ordering::SeqCst);
        pool.create_space(spec("last", Resiliency::Simple)).await.err().expect("one of three");
    });
}

#[test]
fn a_flush_tells_of_a_simple_spaces_writes_that_went_with_their_disk() {
    on_shard(async {
        let bench = Bench::new(1);
        let pool = bench.create().await;
        let space = pool.create_space(spec("s", Resiliency::Simple)).await.expect("space");
        space.write(0, block(1), Durability::Durable).await.expect("write");
        space.write(0, block(2), Durability::Volatile).await.expect("write");
        // Power goes from the disk for a moment; it is back before anybody flushes.
        bench.disks[0].gone.store(true, Ordering::SeqCst);
        pool.disk_lost(DiskId(0), "test").await.expect("lost");
        cut_power(&bench);
        bench.disks[0].gone.store(false, Ordering::SeqCst);
        pool.disk_returned(bench.device(0)).await.expect("returned");
        assert_eq!(first_byte(&space, 0).await, 1);
        space.flush().await.expect_err("the second write is lost");
        space.flush().await.expect("told once, and nothing was lost since");
    });
}

#[test]
fn a_quiet_simple_space_keeps_its_promise_to_flush() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let space = pool.create_space(spec("s", Resiliency::Simple)).await.expect("space");
        space.write(0, block(1), Durability::Volatile).await.expect("write");
        let mut disk = 0;
        pool.core.for_each_column(|_, place, row| {
            disk = row.column(place.column).copies()[0].id().0 as usize;
        });
        sleep(std::time::Duration::from_secs(30)).await;
        bench.disks[disk].gone.store(true, Ordering::SeqCst);
        bench.disks[disk].restore_power(|| false);
        let flushed = space.flush().await;
        bench.disks[disk].gone.store(false, Ordering::SeqCst);
        if !pool.status().disks[disk].online {
            pool.disk_returned(bench.device(disk)).await.expect("returned");
        }
        let kept = first_byte(&space, 0).await == 1;
        assert!(flushed.is_err() || kept, "flush said that lost data is durable");
    });
}

#[test]
fn a_mirror_whose_disks_all_blink_flushes_what_it_still_can_and_tells_what_it_cannot() {
    for power_lost in [false, true] {
        on_shard(async {
            let bench = Bench::new(2);
            let pool = bench.create().await;
            let space = pool.create_space(spec("s", Resiliency::Mirror(2))).await.expect("space");
            space.write(0, block(1), Durability::Durable).await.expect("write");
            space.write(0, block(2), Durability::Volatile).await.expect("write");
            for disk in 0..2 {
                bench.disks[disk].gone.store(true, Ordering::SeqCst);
                // No metadata can be written now: the disks are found offline one by one.
                pool.core.disk(DiskId(disk as u32)).expect("disk").take_offline("test");
            }
            if power_lost {
                cut_power(&bench);
            }
            bench.disks.iter().for_each(|disk| disk.gone.store(false, Ordering::SeqCst));
            for disk in 0..2 {
                // The pool may have stopped for want of a quorum: then nothing is promised any more.
                let _ = pool.disk_returned(bench.device(disk)).await;
            }
            let flushed = space.flush().await;
            cut_power(&bench);
            let guid = pool.guid();
            drop(pool);
            let pool = open(&bench, guid).await.expect("open");
            let now = first_byte(&pool.space("s").expect("space"), 0).await;
            assert!(flushed.is_err() || now == 2, "power lost: {power_lost}; flushed but {now}");
        });
    }
}

#[test]
fn the_first_flush_after_a_kill_covers_the_writes_before_it() {
    for resiliency in [Resiliency::Simple, Resiliency::Mirror(2)] {
        let bench = Bench::new(2);
        let guid = on_shard(async {
            let pool = bench.create().await;
            let space = pool.create_space(spec("s", resiliency)).await.expect("space");
            space.write(0, block(1), Durability::Durable).await.expect("write");
            space.write(0, block(2), Durability::Volatile).await.expect("write");
            pool.guid()
        });
        on_shard(async {
            let pool = open(&bench, guid).await.expect("open");
            let space = pool.space("s").expect("space");
            assert_eq!(first_byte(&space, 0).await, 2, "still in the disks' caches");
            space.flush().await.expect("flush");
        });
        cut_power(&bench);
        on_shard(async {
            let pool = open(&bench, guid).await.expect("open");
            assert_eq!(first_byte(&pool.space("s").expect("space"), 0).await, 2, "{resiliency:?}");
        });
    }
}

#[test]
fn copies_that_call_themselves_equal_after_a_crash_are_durably_so() {
    let bench = Bench::new(2);
    let guid = on_shard(async {
        let pool = bench.create().await;
        let space = pool.create_space(spec("s", Resiliency::Mirror(2))).await.expect("space");
        space.write(0, block(1), Durability::Durable).await.expect("write");
        space.write(0, block(2), Durability::Volatile).await.expect("write");
        pool.guid()
    });
    on_shard(async {
        let pool = open(&bench, guid).await.expect("open");
        sleep(std::time::Duration::from_secs(60)).await; // settled and clean
        assert!(pool.status().is_fully_redundant());
    });
    cut_power(&bench);
    on_shard(async {
        let pool = open(&bench, guid).await.expect("open");
        sleep(std::time::Duration::from_secs(60)).await;
        assert_eq!(pool.check(true).await, Vec::new());
    });
}

#[test]
fn full_disks_under_both_copies_never_cost_a_region() {
    on_shard(async {
        let bench = Bench::new(2);
        let pool = bench.create().await;
        let space = pool.create_space(spec("s", Resiliency::Mirror(2))).await.expect("space");
        space.write(0, block(1), Durability::Durable).await.expect("write");
        space.write(4096, block(1), Durability::Durable).await.expect("write");
        // Sparse files on a full file system: each refuses another block of the same region.
        let mut at = [0, 0];
        pool.core.for_each_column(|_, place, row| {
            row.column(place.column).copies().iter().for_each(|copy| at[copy.id().0 as usize] = copy.start);
        });
        bench.disks[1].full_at.store(at[1], Ordering::SeqCst);
        bench.disks[0].full_at.store(at[0] + 4096, Ordering::SeqCst);
        let results = tokio::join!(
            space.write(0, block(2), Durability::Durable),
            space.write(4096, block(2), Durability::Durable)
        );
        let now = (first_byte(&space, 0).await, first_byte(&space, 4096).await);
        for (written, byte) in [(results.0, now.0), (results.1, now.1)] {
            match written {
                Ok(()) => assert_eq!(byte, 2, "acknowledged"),
                Err(error) => assert!(error.kind() == BlockErrorKind::NoSpace && (1..=2).contains(&byte)),
            }
        }
        bench.disks.iter().for_each(|disk| disk.full_at.store(u64::MAX, Ordering::SeqCst));
        sleep(std::time::Duration::from_secs(60)).await;
        assert!(pool.status().is_fully_redundant(), "{:?}", pool.status());
        assert_eq!((first_byte(&space, 0).await, first_byte(&space, 4096).await), now, "settled");
    });
}

#[test]
fn a_stranger_with_a_members_number_does_not_displace_it() {
    for stranger_last in [false, true] {
        let mut bench = Bench::new(2);
        let guid = on_shard(async {
            let pool = bench.create().await;
            pool.create_space(spec("s", Resiliency::Mirror(2))).await.expect("space");
            pool.close().await.expect("close");
            pool.guid()
        });
        on_shard(async {
            // What is left of a disk whose joining was cut short: the pool's identity, a number that another
            // disk got later, and an identity of its own.
            let mut left = crate::probe(&bench.device(1)).await.expect("read").expect("ours").superblock;
            left.disk = Guid([7; 16]);
            let stranger = Arc::new(TestDisk::new(DISK, Arc::clone(&bench.power)));
            let bytes = left.encode();
            assert_eq!(bytes.len(), SUPERBLOCK_BYTES);
            stranger.corrupt(0, &bytes);
            stranger.corrupt(DISK - SUPERBLOCK_BYTES, &bytes);
            bench.disks.insert(if stranger_last { 2 } else { 0 }, stranger);
            let pool = open(&bench, guid).await.expect("open");
            assert!(pool.status().disks.iter().all(|disk| disk.online), "last: {stranger_last}");
        });
    }
}

#[test]
fn a_space_has_no_more_rows_than_there_are_numbers_for() {
    on_shard(async {
        let bench = Bench::new(1);
        let pool = bench.create().await;
        let mut huge = spec("s", Resiliency::Simple);
        huge.size = (SLAB << 32) + SLAB;
        assert_eq!(
            pool.create_space(huge.clone()).await.err().map(|e| e.kind()),
            Some(PoolErrorKind::Invalid)
        );
        huge.size = SLAB << 32;
        let space = pool.create_space(huge).await.expect("the most there can be");
        let grown = pool.grow_space(space.id(), (SLAB << 32) + SLAB).await;
        assert_eq!(grown.err().map(|e| e.kind()), Some(PoolErrorKind::Invalid));
    });
}

#[test]
fn a_parity_space_whose_journal_is_away_is_closed_and_the_rest_of_the_pool_serves() {
    let bench = Bench::new(7);
    let (guid, journal) = on_shard(async {
        let pool = bench.create().await;
        let mut parity = spec("parity", Resiliency::Parity(1));
        parity.columns = 3;
        let parity = pool.create_space(parity).await.expect("space");
        let mirror = pool.create_space(spec("mirror", Resiliency::Mirror(3))).await.expect("space");
        parity.write(0, block(7), Durability::Durable).await.expect("write");
        mirror.write(0, block(8), Durability::Durable).await.expect("write");
        let row = parity.row(pool_format::JOURNAL_ROW).expect("journal");
        let journal: Vec<DiskId> = row.column(0).copies().iter().map(|copy| copy.id()).collect();
        (pool.guid(), journal)
    });
    assert_eq!(journal.len(), 2);
    cut_power(&bench);
    let at = |id: &DiskId| id.0 as usize;
    journal.iter().for_each(|id| bench.disks[at(id)].gone.store(true, Ordering::SeqCst));
    on_shard(async {
        let pool = open(&bench, guid).await.expect("five of seven disks are enough for the pool");
        assert!(pool.space("parity").is_none());
        assert!(pool.why_closed("parity").is_some_and(|why| why.contains("journal")), "{:?}", pool.status());
        assert!(pool.status().spaces.iter().any(|space| space.closed.is_some()));
        let taken = pool.create_space(spec("parity", Resiliency::Simple)).await;
        assert_eq!(taken.err().map(|error| error.kind()), Some(PoolErrorKind::AlreadyExists));
        let mirror = pool.space("mirror").expect("open");
        assert_eq!(first_byte(&mirror, 0).await, 8);
        mirror.write(0, block(9), Durability::Durable).await.expect("write");
        for id in &journal {
            bench.disks[at(id)].gone.store(false, Ordering::SeqCst);
            pool.disk_returned(bench.device(at(id))).await.expect("returns");
        }
        assert_eq!(pool.why_closed("parity"), None);
        let parity = pool.space("parity").expect("open again");
        assert_eq!(first_byte(&parity, 0).await, 7);
        sleep(std::time::Duration::from_secs(60)).await;
        assert!(pool.status().is_fully_redundant(), "{:?}", pool.status());
        assert_eq!(pool.check(true).await, Vec::new());
        pool.close().await.expect("close");
    });
}

#[test]
fn a_closed_space_can_be_deleted_and_gives_back_what_it_had() {
    let bench = Bench::new(7);
    let (guid, journal, free) = on_shard(async {
        let pool = bench.create().await;
        let free = pool.status().free;
        let mut parity = spec("parity", Resiliency::Parity(1));
        parity.columns = 3;
        let parity = pool.create_space(parity).await.expect("space");
        parity.write(0, block(7), Durability::Durable).await.expect("write");
        let row = parity.row(pool_format::JOURNAL_ROW).expect("journal");
        let journal: Vec<usize> = row.column(0).copies().iter().map(|copy| copy.id().0 as usize).collect();
        (pool.guid(), journal, free)
    });
    cut_power(&bench);
    journal.iter().for_each(|disk| bench.disks[*disk].gone.store(true, Ordering::SeqCst));
    on_shard(async {
        let pool = open(&bench, guid).await.expect("open");
        let closed = pool.closed_space("parity").expect("closed");
        pool.delete_space(closed.id()).await.expect("deleted");
        assert_eq!((pool.closed_space("parity").is_none(), pool.status().free), (true, free));
        pool.create_space(spec("parity", Resiliency::Simple)).await.expect("its name is free");
    });
}

/// What one of two copies lost with its cache was noted in memory, and the pool stopped before it was durable. A flush that was
/// under way must not succeed: the next opening would believe that copy.
#[test]
fn a_flush_does_not_pass_over_a_loss_that_could_not_be_noted() {
    on_shard(async {
        let bench = Bench::new(5);
        let pool = bench.create().await;
        let space = pool.create_space(spec("s", Resiliency::Mirror(2))).await.expect("space");
        space.write(0, block(0x22), Durability::Volatile).await.expect("write");
        let mut copies = Vec::new();
        pool.core.for_each_column(|_, place, row| {
            copies = row.column(place.column).copies().iter().map(|copy| copy.id().0 as usize).collect();
        });
        let disks = pool.core.all_disks();
        // The copy that stays has it durably; the other fails, and so do all disks that the metadata needs.
        disks[copies[1]].flush().await.expect("flush");
        for disk in (0..5).filter(|disk| *disk != copies[1]) {
            bench.disks[disk].gone.store(true, Ordering::SeqCst);
        }
        disks[copies[0]].take_offline("it failed");
        pool.core.mark_losses(&disks[copies[0]]).await.expect_err("no majority is left");
        disks[copies[1]].take_offline("it failed, too");
        pool.core.flush_disks().await.expect_err("nobody knows what the first copy lacks");
    });
}
