//! Making, growing, filling and deleting spaces.

use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, BlockErrorKind, Durability};

use super::disks::{fill, mirror, until};
use super::{Bench, SLAB, on_shard};
use crate::{
    CreateOptions, OpenOptions, Pool, PoolErrorKind, Provisioning, RepairParams, Resiliency, ScrubParams,
    SpaceSpec,
};

fn block(byte: u8) -> aligned_buffer::SharedBuf {
    IoBuf::copy_from(&[byte; 4096]).freeze()
}

#[test]
fn copies_never_share_an_enclosure_when_there_are_two() {
    on_shard(async {
        let bench = Bench::new(4);
        let pool = bench.create().await;
        let mut wide = SpaceSpec::thin("s", Resiliency::Mirror(2), 8 * SLAB);
        wide.columns = 2;
        let space = pool.create_space(wide).await;
        assert_eq!(space.err().map(|error| error.kind()), Some(PoolErrorKind::Invalid), "interleave");
        let mut spec = SpaceSpec::thin("s", Resiliency::Mirror(2), 8 * SLAB);
        spec.interleave = 4096;
        let space = pool.create_space(spec).await.expect("space");
        for row in 0..8 {
            space.write(row * SLAB, block(1), Durability::Durable).await.expect("write");
        }
        pool.core.for_each_column(|_, place, row| {
            let copies = row.column(place.column).copies();
            assert_ne!(copies[0].id().0 < 2, copies[1].id().0 < 2);
        });
        assert!(pool.status().is_fully_redundant());
        assert_eq!(pool.check(true).await, Vec::new());
    });
}

#[test]
fn a_full_pool_refuses_new_space_and_goes_on_serving_the_old() {
    on_shard(async {
        let bench = Bench::new(2);
        let pool = bench.create().await;
        let mut spec = SpaceSpec::thin("s", Resiliency::Mirror(2), 100 * SLAB);
        spec.interleave = 4096;
        let space = pool.create_space(spec.clone()).await.expect("space");
        let mut rows = 0;
        let error = loop {
            match space.write(rows * SLAB, block(rows as u8 + 1), Durability::Durable).await {
                Ok(()) => rows += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), BlockErrorKind::NoSpace);
        assert!(rows > 10);
        assert_eq!(pool.status().free, 0);
        for row in 0..rows {
            space.write(row * SLAB + 4096, block(200), Durability::Durable).await.expect("overwrite");
            let read = space.read(row * SLAB, IoBuf::new(8192)).await.expect("read");
            assert_eq!((read[0], read[4096]), (row as u8 + 1, 200));
        }
        // A fixed space that does not fit leaves nothing behind.
        let before = pool.status().free;
        spec.name = "fixed".into();
        spec.provisioning = Provisioning::Fixed;
        assert_eq!(pool.create_space(spec).await.err().map(|e| e.kind()), Some(PoolErrorKind::NoSpace));
        assert_eq!((pool.status().free, pool.spaces().len()), (before, 1));
        // Unmapped rows come back, and hold zeros when they are used again.
        space.unmap(0, 2 * SLAB).await.expect("unmap");
        assert!(pool.status().free >= 4 * SLAB);
        space.write(rows * SLAB, block(9), Durability::Durable).await.expect("room again");
        let read = space.read(rows * SLAB, IoBuf::new(8192)).await.expect("read");
        assert_eq!((read[0], read[4096]), (9, 0), "no stale data of the freed row");
        pool.delete_space(space.id()).await.expect("delete");
        assert_eq!(pool.status().free, pool.status().capacity);
    });
}

#[test]
fn growing_is_seen_by_who_waits_for_it() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let mut spec = SpaceSpec::thin("s", Resiliency::Simple, SLAB);
        spec.interleave = 4096;
        let space = pool.create_space(spec).await.expect("space");
        let waiting = shard_runtime::spawn_local({
            let space = std::sync::Arc::clone(&space);
            async move { space.wait_resize(SLAB).await.expect("resize") }
        });
        shard_runtime::yield_now().await;
        assert!(pool.grow_space(space.id(), SLAB / 2).await.is_err());
        pool.grow_space(space.id(), 3 * SLAB).await.expect("grow");
        assert_eq!(waiting.await.expect("task"), 3 * SLAB);
        space.write(2 * SLAB, block(3), Durability::Durable).await.expect("in the new part");
    });
}

#[test]
fn a_fixed_space_that_cannot_grow_gives_back_what_it_took() {
    on_shard(async {
        let bench = Bench::new(2);
        let pool = bench.create().await;
        let mut spec = SpaceSpec::thin("s", Resiliency::Mirror(2), 3 * SLAB);
        (spec.interleave, spec.provisioning) = (4096, Provisioning::Fixed);
        let space = pool.create_space(spec).await.expect("space");
        space.write(0, block(1), Durability::Durable).await.expect("write");
        let before = (pool.status().free, space.allocation(), pool.core.meta.with_state(|s| s.rows.len()));
        let error = pool.grow_space(space.id(), 100 * SLAB).await.expect_err("does not fit");
        assert_eq!(error.kind(), PoolErrorKind::NoSpace, "{error}");
        let after = (pool.status().free, space.allocation(), pool.core.meta.with_state(|s| s.rows.len()));
        assert_eq!(before, after);
        pool.grow_space(space.id(), 5 * SLAB).await.expect("what fits");
        let free = pool.status().free;
        // A cut in the midst of growing leaves rows that nobody asked for: the next opening gives them back.
        for row in 5..8 {
            space.row_for_write(&pool.core, row).await.expect("row");
        }
        assert!(pool.status().free < free);
        let guid = pool.guid();
        drop((space, pool));
        let pool = Pool::open(guid, bench.devices(), OpenOptions::default(), bench.surroundings.clone());
        let pool = pool.await.expect("open");
        assert_eq!((pool.status().free, pool.spaces().len()), (free, 1));
        assert_eq!(pool.check(true).await, Vec::new());
    });
}

/// Deletes the space while background work holds one of its rows, and allocates in another one.
async fn delete_beside(pool: &Pool, space: std::sync::Arc<crate::Space>) {
    let other = pool.create_space(SpaceSpec {
        interleave: 4096,
        ..SpaceSpec::thin("t", Resiliency::Mirror(2), 8 * SLAB)
    });
    let other = other.await.expect("space");
    let id = space.id();
    drop(space);
    let both = async {
        pool.delete_space(id).await.expect("delete");
        other.write(0, block(2), Durability::Durable).await.expect("a new row");
    };
    shard_runtime::timeout(Duration::from_secs(1), both).await.expect("nobody waits for background work");
    pool.delete_space(other.id()).await.expect("delete");
    drop(other);
    until("all slabs are free", || pool.status().free == pool.status().capacity).await;
}

#[test]
fn a_slow_scrub_lets_a_deleted_space_go() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let space = mirror(&pool, 4).await;
        fill(&space, 4, 1).await;
        pool.set_scrub_params(ScrubParams { bytes_per_second: 1, ..ScrubParams::default() });
        pool.start_scrub().await.expect("scrub");
        shard_runtime::sleep(super::CLEAN).await;
        delete_beside(&pool, space).await;
        until("the scrub has ended", || !pool.scrub_status().is_running()).await;
    });
}

#[test]
fn a_slow_repair_lets_a_deleted_space_go() {
    on_shard(async {
        let bench = Bench::new(4);
        let pool = bench.create().await;
        let space = mirror(&pool, 4).await;
        fill(&space, 4, 1).await;
        pool.set_repair_params(RepairParams { bytes_per_second: 1, ..RepairParams::default() });
        bench.disks[0].gone.store(true, std::sync::atomic::Ordering::SeqCst);
        fill(&space, 4, 2).await;
        bench.disks[0].gone.store(false, std::sync::atomic::Ordering::SeqCst);
        pool.disk_returned(bench.device(0)).await.expect("ours");
        shard_runtime::sleep(super::CLEAN).await;
        assert!(!pool.status().is_fully_redundant(), "repair is at it");
        delete_beside(&pool, space).await;
    });
}

/// The last pages of checksums of a larger slab would have no generation: what a disk loses there would go unnoticed.
#[test]
fn a_slab_whose_pages_cannot_be_counted_is_refused() {
    on_shard(async {
        let bench = Bench::new(1);
        for slab_size in [128 << 30, 1 << 62, 3 << 20, 4096] {
            let options = CreateOptions { name: "p".into(), slab_size, overwrite_foreign: false };
            let made = Pool::create(vec![bench.new_disk(0)], options, bench.surroundings.clone()).await;
            let error = made.err().unwrap_or_else(|| panic!("{slab_size} is taken"));
            assert_eq!(error.kind(), PoolErrorKind::Invalid);
            assert!(error.to_string().contains("from 262144 to 68719476736 bytes"), "{error}");
        }
    });
}

/// Wherever the power goes, there is one space with its data, under one of its two names; under the new one when that was said.
#[test]
fn a_space_has_one_of_its_names_after_each_power_cut() {
    let (mut before, mut after) = (0, 0);
    for cut in 0..40 {
        on_shard(async {
            let bench = Bench::new(3);
            let pool = bench.create().await;
            let mut spec = SpaceSpec::thin("old", Resiliency::Mirror(2), 2 * SLAB);
            spec.interleave = 4096;
            let space = pool.create_space(spec.clone()).await.expect("space");
            let other = pool.create_space(SpaceSpec { name: "other".into(), ..spec }).await.expect("space");
            space.write(0, block(7), Durability::Durable).await.expect("write");
            let error = pool.rename_space(space.id(), "other").await.expect_err("taken");
            assert_eq!(error.kind(), PoolErrorKind::AlreadyExists);
            for bad in [String::new(), "x".repeat(256)] {
                let error = pool.rename_space(space.id(), &bad).await.expect_err("no name");
                assert_eq!(error.kind(), PoolErrorKind::Invalid);
            }
            let (guid, identity) = (pool.guid(), space.guid());
            bench.power.store(cut, Ordering::SeqCst);
            let said = pool.rename_space(space.id(), "new").await.is_ok();
            if said {
                assert_eq!((space.name(), pool.space("old").is_none()), ("new".into(), true));
            }
            drop((space, other, pool));
            bench.power.store(u64::MAX, Ordering::SeqCst);
            bench.disks.iter().for_each(|disk| disk.restore_power(|| cut % 2 == 0));
            let open = Pool::open(guid, bench.devices(), OpenOptions::default(), bench.surroundings.clone());
            let pool = open.await.expect("open");
            let name = if pool.space("new").is_some() { "new" } else { "old" };
            *(if name == "new" { &mut after } else { &mut before }) += 1;
            assert!(!said || name == "new", "cut {cut}: what was said is lost");
            let space = pool.space(name).expect("one of the names");
            assert_eq!((space.guid(), pool.spaces().len()), (identity, 2));
            assert_eq!(space.read(0, IoBuf::new(4096)).await.expect("read")[0], 7);
            assert_eq!(pool.check(true).await, Vec::new());
        });
    }
    assert!(before > 0 && after > 0, "{before} cuts before, {after} after");
}
