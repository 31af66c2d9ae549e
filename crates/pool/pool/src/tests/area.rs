//! Metadata that grows towards the end of its area, on disks that differ in size by a hundred times.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, BlockErrorKind, Device, Durability};
use pool_format::{Change, SpaceId};

use super::bench_disk::TestDisk;
use super::{Bench, DISK, SLAB, on_shard};
use crate::{
    DiskDescription, DiskId, NewDisk, OpenOptions, Pool, PoolErrorKind, Resiliency, Space, SpaceSpec,
};

/// A hundred times the others: its metadata area is the larger one.
const LARGE: usize = 100 * DISK;

/// Thin, and with as long a name as can be: nothing takes more metadata for less data.
fn spec(number: usize) -> SpaceSpec {
    let mut spec = SpaceSpec::thin(&format!("{number:0>255}"), Resiliency::Mirror(2), 4 * SLAB);
    spec.interleave = 4096;
    spec
}

/// Three small disks and three large ones.
fn bench() -> Bench {
    let mut bench = Bench::new(3);
    let large = || Arc::new(TestDisk::new(LARGE, Arc::clone(&bench.power)));
    let more: Vec<_> = (0..3).map(|_| large()).collect();
    bench.disks.extend(more);
    bench
}

fn new_disk(bench: &Bench, index: usize) -> NewDisk {
    let device = bench.device(index);
    NewDisk { device, name: format!("disk{index}"), description: DiskDescription::default() }
}

async fn add_large(bench: &Bench, pool: &Pool) {
    for index in 3..6 {
        pool.add_disk(new_disk(bench, index), false, false).await.expect("add");
    }
}

async fn write(space: &Space, row: u64) -> Result<(), block_device::BlockError> {
    space.write(row * SLAB, IoBuf::copy_from(&[row as u8 + 1; 4096]).freeze(), Durability::Durable).await
}

async fn reopen(bench: &Bench, guid: crate::Guid) -> Result<Pool, crate::PoolError> {
    let devices: Vec<Device> = bench.devices();
    Pool::open(guid, devices, OpenOptions::default(), bench.surroundings.clone()).await
}

fn assert_all_online(pool: &Pool) {
    for disk in pool.status().disks {
        assert!(disk.online, "disk {}: {}", disk.record.id, disk.why_offline);
    }
}

/// Bytes of the smallest checkpoint slot of a disk.
async fn slot(bench: &Bench, disk: usize) -> u64 {
    crate::probe(&bench.device(disk)).await.expect("read").expect("member").superblock.checkpoint_size
}

#[test]
fn votes_move_to_larger_disks_before_an_area_is_too_small() {
    on_shard(async {
        let bench = bench();
        let pool = bench.create_on(3).await;
        add_large(&bench, &pool).await;
        let (small, large) = (slot(&bench, 0).await as usize, slot(&bench, 3).await as usize);
        assert!(large >= 2 * small);
        let count = (small + small / 2) / 300;
        for number in 0..count {
            let space = pool.create_space(spec(number)).await.expect("the larger disks have room");
            if number % 100 == 0 {
                write(&space, 0).await.expect("row");
            }
        }
        assert_all_online(&pool);
        let guid = pool.guid();
        pool.close().await.expect("close");
        let pool = reopen(&bench, guid).await.expect("opens again");
        assert_eq!(pool.spaces().len(), count);
        assert_all_online(&pool);
        // The small disks are not needed for a majority any more.
        pool.close().await.expect("close");
        (0..3).for_each(|disk| bench.disks[disk].gone.store(true, Ordering::SeqCst));
        reopen(&bench, guid).await.expect("the larger ones are a majority");
    });
}

#[test]
fn without_larger_disks_new_rows_are_refused_and_nothing_is_lost() {
    on_shard(async {
        let bench = bench();
        let pool = bench.create_on(3).await;
        let first = pool.create_space(spec(0)).await.expect("space");
        write(&first, 0).await.expect("row");
        let mut count = 1;
        let refused = loop {
            match pool.create_space(spec(count)).await {
                Ok(_) => count += 1,
                Err(error) => break error,
            }
            assert!(count < 3000, "an area has an end");
        };
        assert_eq!(refused.kind(), PoolErrorKind::NoSpace, "{refused}");
        assert!(refused.to_string().contains("metadata area"), "{refused}");
        // Rows take less: they go on a while.
        let mut rows = 1;
        let mut spaces = pool.spaces().into_iter().skip(1);
        let refused = loop {
            match write(&spaces.next().expect("refused before"), 0).await {
                Ok(()) => rows += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), BlockErrorKind::NoSpace, "{refused}");
        assert!(rows < 60, "{rows} rows");
        write(&first, 0).await.expect("what has slabs is served");
        assert_all_online(&pool);
        let guid = pool.guid();
        pool.close().await.expect("close");
        let pool = reopen(&bench, guid).await.expect("opens again");
        assert_eq!(pool.spaces().len(), count);
        // Either of the two ways out.
        for space in pool.spaces().into_iter().skip(count / 2) {
            pool.delete_space(space.id()).await.expect("delete");
        }
        let first = pool.spaces().into_iter().next().expect("space");
        write(&first, 1).await.expect("room again");
        for number in count..count + count / 4 {
            pool.create_space(spec(number)).await.expect("room again");
        }
        add_large(&bench, &pool).await;
        for number in 2 * count..3 * count {
            pool.create_space(spec(number)).await.expect("the larger disks have room");
        }
        assert_all_online(&pool);
    });
}

#[test]
fn a_pool_that_is_over_the_limit_already_opens_again() {
    on_shard(async {
        let bench = bench();
        let pool = bench.create_on(3).await;
        add_large(&bench, &pool).await;
        let space = pool.create_space(spec(0)).await.expect("space");
        write(&space, 0).await.expect("row");
        // As an older release left it: the votes are with the small disks, and what has outgrown their area is in the log.
        for index in 3..6 {
            let mut record = pool.core.meta.with_state(|state| state.disks[&DiskId(index)].clone());
            record.metadata = false;
            pool.core.meta.commit(vec![Change::PutDisk(record)]).await.expect("commit");
        }
        let small = slot(&bench, 0).await as usize;
        let mut record = space.record();
        let mut number = 1;
        let mut grow = |number: &mut u32, bytes: usize| {
            let mut changes = Vec::new();
            for _ in 0..bytes / 300 {
                (record.id, record.name) = (SpaceId(*number), format!("{number:0>255}"));
                record.guid.0[..4].copy_from_slice(&number.to_le_bytes());
                changes.push(Change::PutSpace(record.clone()));
                *number += 1;
            }
            changes
        };
        while pool.core.meta.with_state(|state| state.encode().len()) + 32_000 < small {
            pool.core.meta.commit(grow(&mut number, 16_000)).await.expect("commit");
        }
        pool.core.meta.checkpoint().await.expect("the last that fits");
        while pool.core.meta.with_state(|state| state.encode().len()) < small + 8000 {
            pool.core.meta.commit(grow(&mut number, 16_000)).await.expect("commit");
        }
        let guid = pool.guid();
        drop((pool, space));
        let pool = reopen(&bench, guid).await.expect("a set of voters with room can be made");
        assert_eq!(pool.spaces().len(), number as usize);
        assert_all_online(&pool);
        let space = pool.spaces().into_iter().next().expect("space");
        write(&space, 1).await.expect("it is written again");
        assert_eq!(space.read(0, IoBuf::new(4096)).await.expect("read")[0], 1);
        pool.close().await.expect("close");
        drop(space);
        let pool = reopen(&bench, guid).await.expect("and again");
        assert_eq!(pool.spaces().len(), number as usize);
        pool.close().await.expect("close");
        // What the small disks knew is not believed any more, however many of them are here.
        let old = (0..3).map(|disk| bench.device(disk)).collect();
        let error = Pool::open(guid, old, OpenOptions::default(), bench.surroundings.clone()).await.err();
        assert_eq!(error.map(|error| error.kind()), Some(PoolErrorKind::NoQuorum));
    });
}
