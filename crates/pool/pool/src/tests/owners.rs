//! Two who have one pool open: the later one has it, the earlier one notices and stops.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Durability};
use shard_runtime::sleep;

use super::{Bench, SLAB, on_shard};
use crate::{
    Guid, MemoryWitness, Node, OpenOptions, Pool, PoolErrorKind, Resiliency, Space, SpaceSpec, Surroundings,
};

async fn put(space: &Space, at: u64, byte: u8) -> Result<(), block_device::BlockError> {
    let data = IoBuf::copy_from(&[byte; 4096]).freeze();
    space.write(at, data, Durability::Durable).await
}

async fn open(bench: &Bench, guid: crate::Guid) -> Pool {
    let pool = Pool::open(guid, bench.devices(), OpenOptions::default(), bench.surroundings.clone()).await;
    pool.expect("open")
}

#[test]
fn the_first_of_two_openers_stops_and_the_second_keeps_what_it_was_promised() {
    for (disks, resiliency) in
        [(1, Resiliency::Simple), (2, Resiliency::Mirror(2)), (3, Resiliency::Mirror(2))]
    {
        on_shard(async {
            let bench = Bench::new(disks);
            let first = bench.create().await;
            let guid = first.guid();
            let mut spec = SpaceSpec::thin("s", resiliency, 6 * SLAB);
            spec.interleave = 4096;
            let mine = first.create_space(spec).await.expect("space");
            // A log that is longer than the second one's will be for a while.
            for row in 0..3 {
                put(&mine, row * SLAB, 1).await.expect("the first alone");
            }
            let second = open(&bench, guid).await;
            let space = second.space("s").expect("space");
            put(&space, 3 * SLAB, 2).await.expect("the second");
            // Something that takes a change of the metadata: it is not promised.
            assert!(put(&mine, 4 * SLAB, 3).await.is_err(), "{disks} disks: promised to both");
            assert!(first.status().superseded && first.status().stopped);
            assert!(put(&mine, 0, 3).await.is_err(), "it has stopped");
            assert!(mine.flush().await.is_err());
            for row in 4..6 {
                put(&space, row * SLAB, 2).await.expect("the second");
            }
            assert_eq!(first.close().await.map_err(|error| error.kind()), Err(PoolErrorKind::Stopped));
            drop((space, second));
            sleep(Duration::from_secs(10)).await;
            let third = open(&bench, guid).await;
            let space = third.space("s").expect("space");
            for row in 0..6 {
                let read = space.read(row * SLAB, IoBuf::new(4096)).await.expect("read");
                assert_eq!(read[0], if row < 3 { 1 } else { 2 }, "{disks} disks, row {row}");
            }
        });
    }
}

/// What is written late, because the first opener stood still meanwhile, lies where the second one's log is not.
#[test]
fn a_late_batch_of_the_first_opener_does_not_hit_the_log_of_the_second() {
    on_shard(async {
        let bench = Bench::new(1);
        let first = bench.create().await;
        let guid = first.guid();
        let spec = |name: &str| SpaceSpec::thin(name, Resiliency::Simple, 6 * SLAB);
        first.create_space(spec("a")).await.expect("space");
        let second = open(&bench, guid).await;
        // The same place in both logs, and the first one writes it last.
        second.create_space(spec("b")).await.expect("space");
        second.create_space(spec("c")).await.expect("space");
        assert!(first.create_space(spec("x")).await.is_err());
        drop(second);
        sleep(Duration::from_secs(10)).await;
        let third = open(&bench, guid).await;
        for name in ["a", "b", "c"] {
            assert!(third.space(name).is_some(), "{name}");
        }
        assert!(third.space("x").is_none());
    });
}

#[test]
fn an_opener_that_only_overwrites_notices_within_seconds() {
    on_shard(async {
        let bench = Bench::new(2);
        let first = bench.create().await;
        let mut spec = SpaceSpec::thin("s", Resiliency::Mirror(2), 4 * SLAB);
        spec.interleave = 4096;
        let mine = first.create_space(spec).await.expect("space");
        put(&mine, 0, 1).await.expect("alone");
        let _second = open(&bench, first.guid()).await;
        sleep(Duration::from_secs(6)).await;
        assert!(first.status().superseded);
        assert!(put(&mine, 0, 3).await.is_err());
    });
}

/// A pool goes to another machine without having been let go of, and its disks come back to the first one.
#[test]
fn a_pool_that_was_moved_without_an_export_is_not_opened_by_its_old_node() {
    on_shard(async {
        let mut bench = Bench::new(2);
        let node = |number: u8| Node { id: Guid([number; 16]), name: format!("node{number}") };
        let of = |number: u8| Surroundings {
            witness: Arc::new(MemoryWitness::of(node(number))),
            ..Bench::new(0).surroundings
        };
        let (old, new) = (of(1), of(2));
        bench.surroundings = old.clone();
        let pool = bench.create().await;
        let guid = pool.guid();
        pool.close().await.expect("close");
        let open = |surroundings: &Surroundings, take_over| {
            let options = OpenOptions { take_over, ..OpenOptions::default() };
            Pool::open(guid, bench.devices(), options, surroundings.clone())
        };
        let refused = async |surroundings: &Surroundings, owner: &str| {
            let error = open(surroundings, false).await.err().expect("another node has it");
            assert_eq!(error.kind(), PoolErrorKind::InUse, "{error}");
            assert!(error.to_string().contains(owner), "{error}");
        };
        // Its own it opens as ever.
        open(&old, false).await.expect("its own").close().await.expect("close");
        refused(&new, "node1").await;
        let pool = open(&new, true).await.expect("told to");
        pool.create_space(SpaceSpec::thin("later", Resiliency::Mirror(2), SLAB)).await.expect("space");
        pool.close().await.expect("close");
        refused(&old, "node2").await;
        // To look at it changes nothing.
        let look = OpenOptions { read_only: true, ..OpenOptions::default() };
        Pool::open(guid, bench.devices(), look, old.clone()).await.expect("to look");
        let pool = open(&new, false).await.expect("its own now");
        pool.close_and_release().await.expect("let go of");
        let pool = open(&old, false).await.expect("let go of");
        assert!(pool.space("later").is_some());
        drop(pool);
        refused(&new, "node1").await;
    });
}

async fn is_released(bench: &Bench, guid: Guid) -> bool {
    let owner = crate::owner_of(guid, &bench.devices()).await.expect("looked at");
    owner.expect("an owner").released
}

/// A pool of a named node with data that is not durable yet, and dirty regions.
async fn with_much_to_settle(bench: &mut Bench) -> Pool {
    let node = Node { id: Guid([1; 16]), name: "node1".into() };
    bench.surroundings.witness = Arc::new(MemoryWitness::of(node));
    let pool = bench.create().await;
    let mut spec = SpaceSpec::thin("s", Resiliency::Mirror(2), 4 * SLAB);
    spec.interleave = 4096;
    let space = pool.create_space(spec).await.expect("space");
    for row in 0..4 {
        let data = IoBuf::copy_from(&[7; 4096]).freeze();
        space.write(row * SLAB, data, Durability::Volatile).await.expect("write");
    }
    pool
}

/// Whoever reads that a pool is nobody's keeps nobody from its disks.
#[test]
fn that_a_pool_is_let_go_of_is_the_last_thing_that_is_written() {
    let mut seen = false;
    for cut in 1.. {
        let (released, left) = on_shard(async {
            let mut bench = Bench::new(3);
            let pool = with_much_to_settle(&mut bench).await;
            let guid = pool.guid();
            bench.power.store(cut, Ordering::SeqCst);
            let closed = pool.close_and_release().await;
            let left = bench.power.load(Ordering::SeqCst);
            drop(pool);
            bench.power.store(u64::MAX, Ordering::SeqCst);
            bench.disks.iter().for_each(|disk| disk.restore_power(|| false));
            let released = is_released(&bench, guid).await;
            assert!(released || closed.is_err(), "said to be let go of after {cut} writes");
            if released {
                // None of it is in doubt: nothing has to be copied or compared.
                let look = OpenOptions { read_only: true, ..OpenOptions::default() };
                let pool = Pool::open(guid, bench.devices(), look, bench.surroundings.clone()).await;
                let pool = pool.expect("to look at");
                let dirty = pool.core.meta.with_state(|state| {
                    state.rows.values().flat_map(|row| &row.columns).map(|column| column.dirty).max()
                });
                assert_eq!(dirty, Some(0), "let go of after {cut} writes, with regions in doubt");
            }
            (released, left)
        });
        seen |= released;
        if left > 0 {
            break;
        }
    }
    assert!(seen, "never let go of");
}

#[test]
fn a_pool_that_cannot_be_closed_cleanly_stays_its_owners() {
    on_shard(async {
        let mut bench = Bench::new(3);
        let pool = with_much_to_settle(&mut bench).await;
        bench.disks.iter().for_each(|disk| disk.fail_flush.store(true, Ordering::SeqCst));
        assert!(pool.close_and_release().await.is_err(), "closed without a flush");
        assert!(!is_released(&bench, pool.guid()).await, "nobody's, with data that no disk may have");
    });
}
