//! Disks that go back in time: a virtual disk that was rolled back, an image that was restored, an old disk plugged in again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Durability};
use shard_runtime::sleep;

use super::{Bench, SLAB, on_shard};
use crate::{DiskId, Guid, OpenOptions, Pool, PoolError, PoolErrorKind, Resiliency, SpaceSpec};

const BYTES: usize = 2 * SLAB as usize;
const CHUNK: usize = 64 << 10;

fn spec(resiliency: Resiliency) -> SpaceSpec {
    let mut spec = SpaceSpec::thin("s", resiliency, 4 * SLAB);
    spec.interleave = 4096;
    spec.columns = match resiliency.parity() {
        0 => 1,
        parity => parity + 2,
    };
    spec
}

async fn fill(pool: &Pool, byte: u8) {
    let space = pool.space("s").expect("space");
    for at in (0..BYTES).step_by(CHUNK) {
        let data = IoBuf::copy_from(&vec![byte; CHUNK]).freeze();
        space.write(at as u64, data, Durability::Durable).await.expect("write");
    }
}

/// Every byte of the space is this one.
async fn holds(pool: &Pool, byte: u8, what: &str) {
    let space = pool.space("s").expect("space");
    for at in (0..BYTES).step_by(CHUNK) {
        let read = space.read(at as u64, IoBuf::new(CHUNK)).await;
        let read = read.unwrap_or_else(|error| panic!("{what}: at {at}: {error}"));
        let wrong = read.iter().position(|found| *found != byte);
        assert_eq!(wrong, None, "{what}: at {at}: {:#x}", read[wrong.unwrap_or(0)]);
    }
}

async fn open(bench: &Bench, guid: Guid) -> Result<Pool, PoolError> {
    Pool::open(guid, bench.devices(), OpenOptions::default(), bench.surroundings.clone()).await
}

async fn scrubbed(pool: &Pool, what: &str) {
    pool.start_scrub().await.expect("scrub");
    sleep(super::CLEAN).await;
    assert!(!pool.scrub_status().is_running(), "{what}");
}

const LAYOUTS: [(usize, Resiliency); 6] = [
    (2, Resiliency::Mirror(2)),
    (3, Resiliency::Mirror(2)),
    (5, Resiliency::Mirror(2)),
    (5, Resiliency::Mirror(3)),
    (5, Resiliency::Parity(1)),
    (5, Resiliency::Parity(2)),
];

#[test]
fn a_member_that_went_back_in_time_is_not_believed() {
    for (disks, resiliency) in LAYOUTS {
        for back in 0..disks {
            on_shard(async {
                let what = format!("{resiliency:?} on {disks} disks, disk {back} goes back");
                let bench = Bench::new(disks);
                let pool = bench.create().await;
                let guid = pool.guid();
                pool.create_space(spec(resiliency)).await.expect("space");
                fill(&pool, 0x11).await;
                pool.close().await.expect("close");
                let copy = bench.disks[back].image();
                let pool = open(&bench, guid).await.expect("open");
                fill(&pool, 0x22).await;
                pool.close().await.expect("close");
                bench.disks[back].put_back(&copy);
                let pool = open(&bench, guid).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                holds(&pool, 0x22, &what).await;
                scrubbed(&pool, &what).await;
                holds(&pool, 0x22, &what).await;
                let status = pool.status();
                assert!(status.is_fully_redundant(), "{what}: {status:?}");
                assert_eq!(pool.check(true).await, Vec::new(), "{what}");
                // Whichever disk is lost now.
                pool.close().await.expect("close");
                for lost in 0..disks {
                    bench.disks[lost].gone.store(true, Ordering::SeqCst);
                    let pool = open(&bench, guid).await.expect("one is lost");
                    holds(&pool, 0x22, &format!("{what}, {lost} is lost")).await;
                    pool.close().await.expect("close");
                    bench.disks[lost].gone.store(false, Ordering::SeqCst);
                    let pool = open(&bench, guid).await.expect("all are here");
                    sleep(super::CLEAN).await;
                    pool.close().await.expect("close");
                }
            });
        }
    }
}

/// The copy is one of a disk in use, taken a while before; the pool does not end cleanly.
#[test]
fn a_copy_of_a_running_disk_is_noticed_after_a_kill() {
    for (disks, resiliency) in LAYOUTS {
        on_shard(async {
            let what = format!("{resiliency:?} on {disks} disks");
            let bench = Bench::new(disks);
            let pool = bench.create().await;
            let guid = pool.guid();
            pool.create_space(spec(resiliency)).await.expect("space");
            fill(&pool, 0x11).await;
            sleep(Duration::from_secs(5)).await;
            let copy = bench.disks[0].image();
            // It is written to all the time, so it never becomes idle.
            for _ in 0..40 {
                fill(&pool, 0x22).await;
                sleep(Duration::from_secs(2)).await;
            }
            drop(pool);
            sleep(Duration::from_secs(10)).await;
            bench.disks[0].put_back(&copy);
            let pool = open(&bench, guid).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let told = pool.status().disks[0].went_back.clone().unwrap_or_default();
            assert!(told.contains("went back in time"), "{what}: {told}");
            holds(&pool, 0x22, &what).await;
            scrubbed(&pool, &what).await;
            holds(&pool, 0x22, &what).await;
            assert!(pool.status().is_fully_redundant() && pool.status().disks[0].went_back.is_none());
            assert_eq!(pool.check(true).await, Vec::new(), "{what}");
        });
    }
}

/// It was away, nothing else: it gets what it missed, and no more.
#[test]
fn a_disk_that_was_merely_away_is_believed() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let guid = pool.guid();
        pool.create_space(spec(Resiliency::Mirror(3))).await.expect("space");
        fill(&pool, 0x11).await;
        pool.close().await.expect("close");
        bench.disks[2].gone.store(true, Ordering::SeqCst);
        for _ in 0..3 {
            let pool = open(&bench, guid).await.expect("two of three");
            let space = pool.space("s").expect("space");
            let data = IoBuf::copy_from(&[0x22; CHUNK]).freeze();
            space.write(0, data, Durability::Durable).await.expect("write");
            pool.close().await.expect("close");
        }
        bench.disks[2].gone.store(false, Ordering::SeqCst);
        let pool = open(&bench, guid).await.expect("all");
        let disk = &pool.status().disks[2];
        assert!(disk.went_back.is_none() && disk.stale_bytes < SLAB, "{disk:?}");
    });
}

#[test]
fn a_disk_that_returns_to_an_open_pool_after_going_back_is_made_anew() {
    for (disks, resiliency) in LAYOUTS {
        on_shard(async {
            let what = format!("{resiliency:?} on {disks} disks");
            let bench = Bench::new(disks);
            let pool = bench.create().await;
            pool.create_space(spec(resiliency)).await.expect("space");
            fill(&pool, 0x11).await;
            sleep(super::CLEAN).await;
            let copy = bench.disks[1].image();
            fill(&pool, 0x22).await;
            sleep(super::CLEAN).await;
            pool.disk_lost(DiskId(1), "taken out").await.expect("lost");
            bench.disks[1].put_back(&copy);
            pool.disk_returned(bench.device(1)).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let told = pool.status().disks[1].went_back.clone().unwrap_or_default();
            assert!(told.contains("went back in time"), "{what}: {told}");
            holds(&pool, 0x22, &what).await;
            scrubbed(&pool, &what).await;
            holds(&pool, 0x22, &what).await;
            assert!(pool.status().is_fully_redundant(), "{what}");
            assert_eq!(pool.check(true).await, Vec::new(), "{what}");
            let guid = pool.guid();
            pool.close().await.expect("close");
            let pool = open(&bench, guid).await.expect("open");
            assert_eq!(pool.status().disks[1].stale_bytes, 0, "{what}: it is whole again");
        });
    }
}

/// All disks were restored from a backup: this node has seen more, and does not take it for the newest without being told.
#[test]
fn a_whole_set_that_went_back_is_opened_only_when_told() {
    for disks in [1, 2, 3] {
        on_shard(async {
            let bench = Bench::new(disks);
            let pool = bench.create().await;
            let guid = pool.guid();
            let resiliency = if disks == 1 { Resiliency::Simple } else { Resiliency::Mirror(2) };
            pool.create_space(spec(resiliency)).await.expect("space");
            fill(&pool, 0x11).await;
            pool.close().await.expect("close");
            let copies: Vec<_> = bench.disks.iter().map(|disk| disk.image()).collect();
            let pool = open(&bench, guid).await.expect("open");
            fill(&pool, 0x22).await;
            pool.close().await.expect("close");
            bench.disks.iter().zip(&copies).for_each(|(disk, copy)| disk.put_back(copy));
            let error = open(&bench, guid).await.err().expect("older than what this node has seen");
            assert_eq!(error.kind(), PoolErrorKind::NoQuorum, "{error}");
            assert!(error.to_string().contains("accept the loss"), "{error}");
            let accept = OpenOptions { accept_loss: true, ..OpenOptions::default() };
            let pool = Pool::open(guid, bench.devices(), accept, bench.surroundings.clone()).await;
            holds(&pool.expect("accepted"), 0x11, "as in the backup").await;
        });
    }
}

/// What only the disk that went back holds is not given up, and not taken for the newest, without being told.
#[test]
fn what_nothing_else_holds_is_refused_by_name() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let guid = pool.guid();
        let mut single = SpaceSpec::thin("s", Resiliency::Simple, 4 * SLAB);
        (single.columns, single.interleave) = (3, 4096);
        pool.create_space(single).await.expect("space");
        fill(&pool, 0x11).await;
        pool.close().await.expect("close");
        let copy = bench.disks[0].image();
        let pool = open(&bench, guid).await.expect("open");
        fill(&pool, 0x22).await;
        sleep(super::CLEAN).await;
        pool.disk_lost(DiskId(0), "taken out").await.expect("lost");
        bench.disks[0].put_back(&copy);
        let error = pool.disk_returned(bench.device(0)).await.expect_err("it would be believed");
        assert!(error.to_string().contains("space s row 0"), "{error}");
        drop(pool);
        sleep(Duration::from_secs(10)).await;
        let error = open(&bench, guid).await.err().expect("it would be believed");
        assert_eq!(error.kind(), PoolErrorKind::NoQuorum);
        assert!(error.to_string().contains("space s row 0"), "{error}");
        let accept = OpenOptions { accept_loss: true, ..OpenOptions::default() };
        let pool = Pool::open(guid, bench.devices(), accept, bench.surroundings.clone()).await;
        let pool = pool.expect("accepted");
        sleep(super::CLEAN).await;
        let space = pool.space("s").expect("space");
        let read = space.read(0, IoBuf::new(3 * 4096)).await.expect("read");
        let mut bytes = [read[0], read[4096], read[8192]];
        bytes.sort_unstable();
        assert_eq!(bytes, [0x11, 0x22, 0x22], "one disk is older than the others");
        assert!(pool.check(true).await.is_empty());
    });
}
