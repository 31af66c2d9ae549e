//! How many regions are dirty and for how long: marks that are shared and grow, warmth, the limit, and what a kill leaves.

use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_conformance::Rng;
use block_device::{BlockDevice, Durability};
use futures_util::future::join_all;
use pool_format::{BLOCK, REGIONS};
use shard_runtime::sleep;

use super::{Bench, SLAB, on_shard};
use crate::{DirtyParams, OpenOptions, Pool, Resiliency, Space, SpaceSpec};

const REGION: u64 = SLAB / REGIONS as u64;
const ROWS: u64 = 6;

async fn space(pool: &Pool, resiliency: Resiliency) -> Arc<Space> {
    let mut spec = SpaceSpec::thin("s", resiliency, ROWS * SLAB);
    spec.interleave = 4096;
    spec.columns = if resiliency.parity() > 0 { resiliency.parity() + 2 } else { 1 };
    let space = pool.create_space(spec).await.expect("space");
    space.allocate(0, ROWS * SLAB).await.expect("allocate");
    space
}

async fn write(space: &Space, offset: u64, byte: u8) {
    let block = IoBuf::copy_from(&[byte; BLOCK as usize]).freeze();
    space.write(offset, block, Durability::Durable).await.expect("write");
}

/// Whether each region that was written holds what was written last.
async fn holds(space: &Space, expected: &[u8], what: &str) {
    for (region, byte) in expected.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        let read = space.read(region as u64 * REGION, IoBuf::new(BLOCK as usize)).await;
        let read = read.unwrap_or_else(|error| panic!("{what}: region {region}: {error}"));
        assert!(read.iter().all(|found| found == byte), "{what}: region {region}");
    }
}

#[test]
fn random_writes_all_over_a_slab_take_few_marks() {
    on_shard(async {
        let bench = Bench::new(2);
        let pool = bench.create().await;
        let space = space(&pool, Resiliency::Mirror(2)).await;
        let before = pool.status().log_writes;
        // A number without a common factor with 64: all regions, in a scattered order.
        for region in (0..u64::from(REGIONS)).map(|n| n * 37 % u64::from(REGIONS)) {
            write(&space, region * REGION + BLOCK, 1).await;
        }
        let marks = pool.status().log_writes - before;
        assert!(marks <= 7, "{marks} marks");
        assert_eq!(pool.status().dirty_bytes, SLAB);
    });
}

#[test]
fn writes_of_one_turn_share_a_mark() {
    on_shard(async {
        let bench = Bench::new(2);
        let pool = bench.create().await;
        let space = space(&pool, Resiliency::Mirror(2)).await;
        let before = pool.status().log_writes;
        // In one region, and each in a slab of its own.
        join_all((0..4).map(|block| write(&space, block * BLOCK, 1))).await;
        assert_eq!(pool.status().log_writes - before, 1);
        join_all((1..ROWS).map(|row| write(&space, row * SLAB, 1))).await;
        assert_eq!(pool.status().log_writes - before, 2);
    });
}

#[test]
fn regions_stay_dirty_while_they_are_warm() {
    on_shard(async {
        let bench = Bench::new(2);
        let pool = bench.create().await;
        let space = space(&pool, Resiliency::Mirror(2)).await;
        write(&space, 0, 1).await;
        write(&space, 3 * SLAB, 1).await;
        let before = pool.status().log_writes;
        for _ in 0..20 {
            sleep(Duration::from_secs(10)).await;
            write(&space, 0, 2).await;
        }
        assert_eq!(pool.status().dirty_bytes, REGION, "the other one has been quiet");
        let writes = pool.status().log_writes - before;
        assert!(writes <= 12, "{writes}: the other's cleaning, and the marks of disks each minute");
        sleep(Duration::from_secs(70)).await;
        assert_eq!(pool.status().dirty_bytes, 0);
    });
}

#[test]
fn a_region_that_is_written_all_the_time_is_cleaned_when_its_checksums_are_to_come_to_the_disks() {
    on_shard(async {
        let bench = Bench::new(2);
        let pool = bench.create().await;
        let space = space(&pool, Resiliency::Mirror(2)).await;
        write(&space, 0, 1).await;
        let row = space.row(0).expect("written");
        let place = crate::row::Place { space: space.id(), row: 0, column: 0 };
        let at = crate::at::At::new(&pool.core, &space, &row, place);
        crate::write::ensure_dirty(at, 1).await.expect("mark");
        write(&space, 0, 2).await;
        sleep(Duration::from_secs(6)).await;
        assert_eq!(pool.status().dirty_bytes, 0);
    });
}

/// Whatever is written, in whatever order: not much more than the limit is ever dirty, and after a kill all is there.
#[test]
fn no_more_is_dirty_than_may_be_and_nothing_is_lost() {
    let layouts = [(2, Resiliency::Mirror(2)), (3, Resiliency::Parity(1)), (4, Resiliency::Parity(2))];
    for (disks, resiliency) in layouts {
        for seed in 0..12 {
            on_shard(async {
                let what = format!("{resiliency:?}, seed {seed}");
                let mut rng = Rng::new(seed);
                let bench = Bench::new(disks);
                let pool = bench.create().await;
                let guid = pool.guid();
                let space = space(&pool, resiliency).await;
                let columns = if resiliency.parity() > 0 { u64::from(resiliency.parity()) + 2 } else { 1 };
                let limit = (8 + rng.below(40)) * REGION * columns;
                let warm = Duration::from_secs(1 + rng.below(40));
                pool.set_dirty_params(DirtyParams { resync_bytes: limit, warm });
                let mut expected = vec![0; (ROWS * u64::from(REGIONS)) as usize];
                // So many at a time: each may have found room before the others took it, and mark a slab at the most.
                let depth = 1 + rng.below(2);
                let slabs = depth * SLAB * columns;
                for step in 0..400 {
                    let mut regions: Vec<u64> = Vec::new();
                    while regions.len() < depth as usize {
                        let region = rng.below(expected.len() as u64);
                        if !regions.contains(&region) {
                            regions.push(region);
                        }
                    }
                    let byte = (step % 255 + 1) as u8;
                    join_all(regions.iter().map(|region| write(&space, region * REGION, byte))).await;
                    regions.iter().for_each(|region| expected[*region as usize] = byte);
                    let dirty = pool.status().dirty_bytes;
                    let journal = if resiliency.parity() > 0 { SLAB } else { 0 };
                    assert!(
                        dirty <= limit / 8 * 9 + slabs + journal,
                        "{what}, step {step}: {dirty} of {limit} with {depth} at a time"
                    );
                    if rng.below(8) == 0 {
                        sleep(Duration::from_millis(rng.below(3000))).await;
                    }
                }
                holds(&space, &expected, &what).await;
                drop(space);
                pool.abandon(Duration::from_secs(10)).await.expect("abandon");
                drop(pool);
                let open =
                    Pool::open(guid, bench.devices(), OpenOptions::default(), bench.surroundings.clone());
                let pool = open.await.expect("open");
                let space = pool.space("s").expect("space");
                holds(&space, &expected, &format!("{what}, after a kill")).await;
                sleep(Duration::from_secs(120)).await;
                assert_eq!(pool.check(true).await, Vec::new(), "{what}");
                pool.close().await.expect("close");
            });
        }
    }
}

#[test]
fn writes_go_on_where_nothing_may_be_dirty() {
    on_shard(async {
        let bench = Bench::new(2);
        let pool = bench.create().await;
        let space = space(&pool, Resiliency::Mirror(2)).await;
        pool.set_dirty_params(DirtyParams { resync_bytes: 0, warm: Duration::from_secs(3600) });
        for region in 0..ROWS * u64::from(REGIONS) {
            write(&space, region * REGION, 1).await;
        }
        // What a pass finds being written stays for the next one.
        assert!(pool.status().dirty_bytes <= SLAB);
        pool.close().await.expect("close");
    });
}
