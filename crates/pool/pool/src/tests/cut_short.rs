//! Files of disks that were cut short, or have grown, while the pool was closed.

use std::sync::atomic::Ordering;

use super::disks::{fill, mirror, until, verify};
use super::{Bench, DISK, SLAB, on_shard};
use crate::{Guid, OpenOptions, Pool, PoolError, PoolErrorKind};

async fn open(bench: &Bench, guid: Guid, accept_loss: bool) -> Result<Pool, PoolError> {
    let options = OpenOptions { accept_loss, ..OpenOptions::default() };
    Pool::open(guid, bench.devices(), options, bench.surroundings.clone()).await
}

/// A closed pool with something on it.
async fn filled(bench: &Bench) -> Guid {
    let pool = bench.create().await;
    let space = mirror(&pool, 4).await;
    fill(&space, 4, 1).await;
    pool.close().await.expect("close");
    pool.guid()
}

/// The file of this disk has so many bytes now: the rest is gone, or new and zero.
fn resize(bench: &Bench, disk: usize, bytes: usize) {
    let mut image = bench.disks[disk].image();
    image.resize(bytes, 0);
    bench.disks[disk].put_back(&image);
}

#[test]
fn a_member_that_was_cut_short_is_as_good_as_missing_and_says_why() {
    // To half its slabs, by the last block, and by less than a block.
    for left in [DISK / 2, DISK - 4096, DISK - 512] {
        on_shard(async {
            let bench = Bench::new(3);
            let guid = filled(&bench).await;
            let whole = bench.disks[1].image();
            resize(&bench, 1, left);
            let pool = open(&bench, guid, false).await.expect("two of three are enough");
            let disk = pool.status().disks[1].clone();
            assert!(!disk.online, "{left}: it lacks a part");
            let why = disk.why_offline;
            assert!(why.contains(&format!("cut short: it has {left} bytes, and had {DISK}")), "{why}");
            let space = pool.space("s").expect("space");
            verify(&space, 4, 1).await;
            fill(&space, 4, 2).await;
            let error = pool.disk_returned(bench.device(1)).await.expect_err("it is not whole");
            assert_eq!(error.kind(), PoolErrorKind::Damaged);
            assert!(error.to_string().contains("cut short"), "{error}");
            // The whole one is put back: it was merely away.
            bench.disks[1].put_back(&whole);
            pool.disk_returned(bench.device(1)).await.expect("it is whole");
            until("whole", || pool.status().is_fully_redundant()).await;
            assert_eq!(pool.status().disks[1].why_offline, "");
            bench.disks[0].gone.store(true, Ordering::SeqCst);
            verify(&space, 4, 2).await;
        });
    }
}

#[test]
fn too_many_members_cut_short_are_refused_by_name() {
    for (disks, cut) in [(1, 1), (2, 2), (3, 2), (5, 3)] {
        on_shard(async {
            let bench = Bench::new(disks);
            let pool = bench.create().await;
            let guid = pool.guid();
            pool.close().await.expect("close");
            (0..cut).for_each(|disk| resize(&bench, disk, DISK - SLAB as usize));
            let error = open(&bench, guid, false).await.err().expect("most of it is not whole");
            assert_eq!(error.kind(), PoolErrorKind::NoQuorum, "{error}");
            assert_eq!(error.to_string().matches("cut short").count(), cut, "{error}");
            // Writing needs a majority, whatever loss is accepted; what is whole can be looked at.
            assert!(open(&bench, guid, true).await.is_err());
            let look = OpenOptions { read_only: true, ..OpenOptions::default() };
            let looked = Pool::open(guid, bench.devices(), look, bench.surroundings.clone()).await;
            assert_eq!(looked.is_ok(), cut < disks, "{:?}", looked.err());
        });
    }
}

#[test]
fn a_member_that_has_grown_is_used_as_it_was() {
    on_shard(async {
        let bench = Bench::new(2);
        let guid = filled(&bench).await;
        resize(&bench, 1, DISK + 3 * SLAB as usize);
        let pool = open(&bench, guid, false).await.expect("all of it is here");
        assert!(pool.status().disks.iter().all(|disk| disk.online));
        let space = pool.space("s").expect("space");
        fill(&space, 4, 2).await;
        bench.disks[0].gone.store(true, Ordering::SeqCst);
        verify(&space, 4, 2).await;
    });
}
