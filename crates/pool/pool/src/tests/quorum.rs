//! Which disks suffice to open a pool, and that stale ones are never believed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Durability};

use super::{Bench, SLAB, on_shard};
use crate::{OpenOptions, Pool, PoolErrorKind, Resiliency, SpaceSpec};

fn spec() -> SpaceSpec {
    let mut spec = SpaceSpec::thin("s", Resiliency::Mirror(2), 4 * SLAB);
    spec.interleave = 4096;
    spec
}

async fn open(
    bench: &Bench,
    guid: crate::Guid,
    which: &[usize],
    options: OpenOptions,
) -> Result<Pool, crate::PoolError> {
    let devices = which.iter().map(|index| bench.device(*index)).collect();
    Pool::open(guid, devices, options, bench.surroundings.clone()).await
}

#[test]
fn either_disk_of_two_opens_the_pool_but_not_the_one_that_missed_writes() {
    on_shard(async {
        let bench = Bench::new(2);
        let pool = bench.create().await;
        let space = pool.create_space(spec()).await.expect("space");
        let guid = pool.guid();
        let one = |byte| IoBuf::copy_from(&[byte; 4096]).freeze();
        space.write(0, one(1), Durability::Durable).await.expect("both");
        bench.disks[1].gone.store(true, Ordering::SeqCst);
        space.write(0, one(2), Durability::Durable).await.expect("one");
        pool.close().await.expect("close");
        bench.disks[1].gone.store(false, Ordering::SeqCst);
        let error = open(&bench, guid, &[1], OpenOptions::default()).await.err().expect("stale");
        assert_eq!(error.kind(), PoolErrorKind::NoQuorum);
        let pool = open(&bench, guid, &[0], OpenOptions::default()).await.expect("knows all");
        let read = pool.space("s").expect("space").read(0, IoBuf::new(4096)).await.expect("read");
        assert_eq!(read[0], 2);
        pool.close().await.expect("close");
        let pool = open(&bench, guid, &[1, 0], OpenOptions::default()).await.expect("both");
        let read = pool.space("s").expect("space").read(0, IoBuf::new(4096)).await.expect("read");
        assert_eq!(read[0], 2);
    });
}

#[test]
fn accepting_loss_opens_what_is_there_and_read_only_changes_nothing() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let guid = pool.guid();
        pool.create_space(spec()).await.expect("space");
        pool.close().await.expect("close");
        let written: Vec<u64> = bench.disks.iter().map(|d| d.written.load(Ordering::SeqCst)).collect();
        let error = open(&bench, guid, &[2], OpenOptions::default()).await.err().expect("one of three");
        assert_eq!(error.kind(), PoolErrorKind::NoQuorum);
        let look = OpenOptions { read_only: true, ..OpenOptions::default() };
        let pool = open(&bench, guid, &[2], look).await.expect("to look");
        let space = pool.space("s").expect("space");
        assert!(space.write(0, IoBuf::zeroed(4096).freeze(), Durability::Durable).await.is_err());
        drop(pool);
        let now: Vec<u64> = bench.disks.iter().map(|d| d.written.load(Ordering::SeqCst)).collect();
        assert_eq!(now, written);
        let accept = OpenOptions { accept_loss: true, ..OpenOptions::default() };
        let opened = open(&bench, guid, &[2], accept).await;
        assert_eq!(
            opened.err().map(|e| e.kind()),
            Some(PoolErrorKind::Stopped),
            "writes still need a majority"
        );
    });
}

#[test]
fn a_minority_of_damaged_metadata_is_survived_and_repaired() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let guid = pool.guid();
        pool.create_space(spec()).await.expect("space");
        pool.close().await.expect("close");
        // The first superblock and both checkpoints of one disk.
        bench.disks[0].corrupt(0, &[0xff; 4096]);
        let layout =
            crate::probe(&bench.device(0)).await.expect("read").expect("the last one serves").superblock;
        for slot in 0..2 {
            bench.disks[0]
                .corrupt((layout.checkpoint_start + slot * layout.checkpoint_size) as usize + 60, &[0xff; 8]);
        }
        let pool = open(&bench, guid, &[0, 1, 2], OpenOptions::default()).await.expect("majority");
        assert!(pool.space("s").is_some());
        assert_eq!(pool.check(false).await, Vec::new(), "repaired at the opening");
        pool.close().await.expect("close");
        // Now the disk that was damaged carries the state for the others.
        bench.disks[1].gone.store(true, Ordering::SeqCst);
        let pool = open(&bench, guid, &[0, 2], OpenOptions::default()).await.expect("two of three");
        assert!(pool.space("s").is_some());
    });
}

#[test]
fn names_do_not_matter_and_the_log_survives_many_changes() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let guid = pool.guid();
        for round in 0..300 {
            let mut spec = spec();
            spec.name = format!("s{round}");
            let space = pool.create_space(spec).await.expect("space");
            if round % 3 > 0 {
                pool.delete_space(space.id()).await.expect("delete");
            }
        }
        drop(pool); // as a crash would
        let pool = Pool::open(
            guid,
            vec![bench.device(2), bench.device(0), bench.device(1)],
            OpenOptions::default(),
            bench.surroundings.clone(),
        );
        let pool = pool.await.expect("any order");
        assert_eq!(pool.spaces().len(), 100);
        assert!(Arc::strong_count(&bench.disks[0]) > 1);
    });
}
