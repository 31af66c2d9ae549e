//! Regions that a sequential write has marked dirty before it comes to them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Durability};
use pool_format::{BLOCK, REGIONS};

use super::{Bench, SLAB, on_shard};
use crate::at::At;
use crate::row::Place;
use crate::{Resiliency, Space, SpaceSpec};

const REGION: u64 = SLAB / REGIONS as u64;

/// What is marked after one block has been written at each of the offsets, in order.
fn marked_after(offsets: &[u64]) -> u64 {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let mut spec = SpaceSpec::thin("s", Resiliency::Mirror(2), SLAB);
        spec.columns = 1;
        let space: Arc<Space> = pool.create_space(spec).await.expect("space");
        for offset in offsets {
            let block = IoBuf::copy_from(&[1; BLOCK as usize]).freeze();
            space.write(*offset, block, Durability::Durable).await.expect("write");
        }
        let row = space.row(0).expect("written");
        let place = Place { space: space.id(), row: 0, column: 0 };
        At::new(&pool.core, &space, &row, place).group().dirty_durable.load(Ordering::SeqCst)
    })
}

#[test]
fn a_write_that_comes_to_regions_in_order_has_the_next_ones_marked() {
    assert_eq!(marked_after(&[0]), 0b1, "the first region has none before it");
    assert_eq!(marked_after(&[0, REGION]), 0b1_1111_1111);
    // Those are there: the next commit is the one for the first region behind them.
    assert_eq!(marked_after(&[0, REGION, 2 * REGION]), 0b1_1111_1111);
    assert_eq!(marked_after(&[8 * REGION, 9 * REGION]), 0b1_1111_1111 << 8);
    let in_order: Vec<u64> = (0..10).map(|region| region * REGION).collect();
    assert_eq!(marked_after(&in_order), u64::MAX, "it is likely to go on to the end");
}

#[test]
fn other_writes_mark_what_they_change() {
    assert_eq!(marked_after(&[0, REGION + BLOCK]), 0b11, "in the middle of the next region");
    assert_eq!(marked_after(&[0, 2 * REGION]), 0b1101, "the region before is clean");
    let last = u64::from(REGIONS) - 1;
    assert_eq!(marked_after(&[(last - 1) * REGION, last * REGION]), 0b11 << 62, "nothing is behind the last");
}
