//! The first reads after a crash. A write that was under way may have come to one copy and not to another: what is read first,
//! from whichever of them, is what stays.

use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, Durability};
use pool_format::{BLOCK, Guid};
use shard_runtime::sleep;

use super::promises::open;
use super::{Bench, SLAB, on_shard};
use crate::{OpenOptions, Pool, Resiliency, Space, SpaceSpec};

/// What all copies had, and what came to the first one only.
const OLD: u8 = 1;
const NEW: u8 = 2;
/// A region has four blocks here. All of them are dirty, and this one's turn to be settled comes late.
const LATE: u64 = SLAB - 4 * BLOCK;

fn block(byte: u8) -> SharedBuf {
    IoBuf::copy_from(&[byte; BLOCK as usize]).freeze()
}

async fn byte_at(space: &Space, offset: u64) -> u8 {
    let read = space.read(offset, IoBuf::new(BLOCK as usize)).await.expect("read");
    assert!(read.iter().all(|byte| *byte == read[0]), "half a block");
    read[0]
}

/// A pool that was killed while it wrote NEW to the late region. Also the disks of the copies, and where these begin.
async fn killed(bench: &Bench, copies: u8) -> (Guid, Vec<(usize, u64)>) {
    let pool = bench.create().await;
    let spec = SpaceSpec::thin("s", Resiliency::Mirror(copies), SLAB);
    let space = pool.create_space(spec).await.expect("space");
    for at in (0..SLAB).step_by(BLOCK as usize) {
        space.write(at, block(OLD), Durability::Durable).await.expect("write");
    }
    let mut places = Vec::new();
    pool.core.for_each_column(|_, place, row| {
        let copies = row.column(place.column).copies();
        places.extend(copies.iter().map(|copy| (copy.id().0 as usize, copy.start)));
    });
    let guid = pool.guid();
    drop(space);
    drop(pool);
    sleep(Duration::from_secs(5)).await;
    let (disk, start) = places[0];
    for number in 0..4 {
        bench.disks[disk].corrupt((start + LATE + number * BLOCK) as usize, &[NEW; BLOCK as usize]);
    }
    (guid, places)
}

fn lose(bench: &Bench, disks: &[(usize, u64)]) {
    disks.iter().for_each(|(disk, _)| bench.disks[*disk].gone.store(true, Ordering::SeqCst));
}

#[test]
fn what_was_read_after_a_crash_is_not_taken_back() {
    for copies in 2..=3 {
        for lost in 1..usize::from(copies) {
            on_shard(async {
                let bench = Bench::new(5);
                let (guid, places) = killed(&bench, copies).await;
                let pool = open(&bench, guid).await.expect("open");
                let space = pool.space("s").expect("space");
                let first = byte_at(&space, LATE).await;
                lose(&bench, &places[..lost]);
                assert_eq!(byte_at(&space, LATE).await, first, "{copies} copies, {lost} lost");
                // Nor by a further crash.
                drop(space);
                drop(pool);
                sleep(Duration::from_secs(5)).await;
                super::promises::cut_power(&bench);
                let pool = open(&bench, guid).await.expect("open");
                let space = pool.space("s").expect("space");
                assert_eq!(byte_at(&space, LATE).await, first, "{copies} copies, {lost} lost, opened anew");
            });
        }
    }
}

/// Whoever asked first does not wait for the answer. The next one gets what stays all the same.
#[test]
fn a_first_read_that_is_given_up_leaves_the_region_to_the_next() {
    for moment in 0..20 {
        on_shard(async {
            let bench = Bench::new(3);
            let (guid, places) = killed(&bench, 2).await;
            let pool = open(&bench, guid).await.expect("open");
            let space = pool.space("s").expect("space");
            bench.disks.iter().for_each(|disk| disk.delay.store(10, Ordering::SeqCst));
            let given_up = space.read(LATE, IoBuf::new(BLOCK as usize));
            let ended = shard_runtime::timeout(Duration::from_millis(3 * moment), given_up).await;
            drop(ended);
            let first = byte_at(&space, LATE).await;
            lose(&bench, &places[..1]);
            assert_eq!(byte_at(&space, LATE).await, first, "given up at {moment}");
        });
    }
}

/// The copies have a block each that cannot be read. What is beside them can be, and stays.
#[test]
fn a_region_that_no_copy_has_whole_is_settled_where_it_is_read() {
    on_shard(async {
        let bench = Bench::new(3);
        let (guid, places) = killed(&bench, 2).await;
        for (number, (disk, start)) in (0..).zip(&places) {
            let bad = start + LATE + number * BLOCK + 7;
            bench.disks[*disk].fail_reads_at.store(bad, Ordering::SeqCst);
        }
        let pool = open(&bench, guid).await.expect("open");
        let space = pool.space("s").expect("space");
        let first = byte_at(&space, LATE + 2 * BLOCK).await;
        lose(&bench, &places[..1]);
        assert_eq!(byte_at(&space, LATE + 2 * BLOCK).await, first);
    });
}

/// It may change nothing on the disks.
#[test]
fn a_pool_that_is_opened_read_only_answers_from_the_first_copy() {
    on_shard(async {
        let bench = Bench::new(3);
        let (guid, _) = killed(&bench, 2).await;
        let before: u64 = bench.disks.iter().map(|disk| disk.written.load(Ordering::SeqCst)).sum();
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let opened = Pool::open(guid, bench.devices(), options, bench.surroundings.clone());
        let pool = opened.await.expect("open");
        let space = pool.space("s").expect("space");
        assert_eq!(byte_at(&space, LATE).await, NEW);
        let after: u64 = bench.disks.iter().map(|disk| disk.written.load(Ordering::SeqCst)).sum();
        assert_eq!(after, before);
    });
}
