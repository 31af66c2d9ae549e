//! Members whose file system is full: one of them is that disk's failure, not the pool's.

use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, BlockErrorKind, Durability};
use shard_runtime::sleep;

use super::disks::{mirror, until};
use super::{Bench, SLAB, on_shard};
use crate::{DiskId, OpenOptions, Pool, Resiliency, Space, SpaceSpec};

fn block(byte: u8) -> aligned_buffer::SharedBuf {
    IoBuf::copy_from(&[byte; 4096]).freeze()
}

async fn first_byte(space: &Space, at: u64) -> u8 {
    space.read(at, IoBuf::new(4096)).await.expect("read")[0]
}

fn set_full(bench: &Bench, disk: usize, full: bool) {
    bench.disks[disk].full.store(full, Ordering::SeqCst);
}

#[test]
fn clients_go_on_while_one_member_is_full_and_it_catches_up_by_itself() {
    on_shard(async {
        let bench = Bench::new(2);
        let pool = bench.create().await;
        let space = mirror(&pool, 12).await;
        space.write(0, block(1), Durability::Durable).await.expect("write");
        set_full(&bench, 1, true);
        // In the row that there is, over what is written there, and in new rows.
        let places = [0, 4096, SLAB / 2, 3 * SLAB, 5 * SLAB + 4096, 11 * SLAB];
        for (number, at) in places.into_iter().enumerate() {
            space.write(at, block(number as u8 + 2), Durability::Durable).await.expect("one copy is enough");
            space.flush().await.expect("flush");
        }
        let status = pool.status();
        assert!(status.disks[1].online, "it serves what it has: {}", status.disks[1].why_offline);
        assert!(!status.is_fully_redundant() && !status.stopped);
        assert_eq!(status.disks[1].write_errors, 0, "no evidence against the disk");
        assert!(status.disks[1].stale_bytes > 0);
        // An hour of background work beside clients: it looks from time to time, no more.
        let before = bench.disks[1].refused.load(Ordering::SeqCst);
        for round in 0..3600 {
            space.write(4096, block(round as u8), Durability::Durable).await.expect("write");
            sleep(Duration::from_secs(1)).await;
        }
        let refused = bench.disks[1].refused.load(Ordering::SeqCst) - before;
        assert!((10..1000).contains(&refused), "{refused} attempts in an hour");
        assert!(pool.status().disks[1].full_for.is_some(), "status names it");
        set_full(&bench, 1, false);
        until("caught up", || pool.status().is_fully_redundant()).await;
        until("no word of it any more", || pool.status().disks[1].full_for.is_none()).await;
        // Its copies and its metadata are whole again.
        space.write(4096, block(99), Durability::Durable).await.expect("write");
        pool.close().await.expect("close");
        drop(space);
        let pool = Pool::open(
            pool.guid(),
            vec![bench.device(1)],
            OpenOptions::default(),
            bench.surroundings.clone(),
        );
        let pool = pool.await.expect("it knows the newest state");
        let space = pool.space("s").expect("space");
        for (number, at) in places.into_iter().enumerate() {
            let expected = if at == 4096 { 99 } else { number as u8 + 2 };
            assert_eq!(first_byte(&space, at).await, expected, "at {at}");
        }
    });
}

#[test]
fn new_rows_go_to_disks_with_room() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let space = mirror(&pool, 8).await;
        set_full(&bench, 1, true);
        for row in 0..8 {
            space
                .write(row * SLAB, block(row as u8 + 1), Durability::Durable)
                .await
                .expect("others have room");
        }
        assert!(pool.status().is_fully_redundant(), "{:?}", pool.status());
        assert_eq!(pool.slabs_on(DiskId(1)), 0);
        for disk in [0, 1] {
            bench.disks[disk].gone.store(true, Ordering::SeqCst);
        }
        for row in 0..8 {
            assert_eq!(first_byte(&space, row * SLAB).await, row as u8 + 1);
        }
    });
}

#[test]
fn a_full_column_is_calculated_from_the_others() {
    on_shard(async {
        let bench = Bench::new(4);
        let pool = bench.create().await;
        let mut spec = SpaceSpec::thin("s", Resiliency::Parity(1), 12 * SLAB);
        (spec.columns, spec.interleave) = (3, 4096);
        let space = pool.create_space(spec).await.expect("space");
        space.write(0, block(1), Durability::Durable).await.expect("write");
        let row = pool.slabs_in_use().into_iter().find(|slab| slab.row == 0).expect("row");
        let full = row.disk.0 as usize;
        set_full(&bench, full, true);
        for number in 0..200u64 {
            let at = number * 12288 % (12 * SLAB);
            space.write(at, block(number as u8), Durability::Durable).await.expect("parity makes up for it");
        }
        space.write(7 * SLAB, block(7), Durability::Durable).await.expect("in a new row");
        assert!(!pool.status().stopped);
        sleep(Duration::from_secs(100)).await;
        for number in 0..200u64 {
            assert_eq!(first_byte(&space, number * 12288 % (12 * SLAB)).await, number as u8);
        }
        set_full(&bench, full, false);
        until("caught up", || pool.status().is_fully_redundant()).await;
        assert_eq!(pool.check(true).await, Vec::new());
        bench.disks[(full + 1) % 4].gone.store(true, Ordering::SeqCst);
        for number in 0..200u64 {
            assert_eq!(first_byte(&space, number * 12288 % (12 * SLAB)).await, number as u8);
        }
    });
}

#[test]
fn when_all_copies_are_full_the_client_is_told_of_space() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let space = mirror(&pool, 8).await;
        space.write(0, block(1), Durability::Durable).await.expect("write");
        sleep(super::CLEAN).await;
        // What the log needs is there already.
        for disk in 0..3 {
            let layout = crate::probe(&bench.device(disk)).await.expect("read").expect("member").superblock;
            bench.disks[disk].allocate(layout.checkpoint_start, 1 << 20).expect("room");
            set_full(&bench, disk, true);
        }
        for at in [SLAB / 2, 3 * SLAB] {
            let error = space.write(at, block(2), Durability::Durable).await.expect_err("no room anywhere");
            assert_eq!(error.kind(), BlockErrorKind::NoSpace, "{error}");
        }
        space.write(0, block(3), Durability::Durable).await.expect("where there is something");
        assert!(!pool.status().stopped);
        (0..3).for_each(|disk| set_full(&bench, disk, false));
        until("whole", || pool.status().is_fully_redundant()).await;
        for at in [SLAB / 2, 3 * SLAB] {
            // Rows are tried again when the disks are.
            until("room again", || pool.status().disks.iter().all(|disk| disk.full_for.is_none())).await;
            space.write(at, block(4), Durability::Durable).await.expect("room again");
            assert_eq!(first_byte(&space, at).await, 4);
        }
    });
}

/// A write that finds no space leaves a part of itself in the cache of the only copy. What is then read of it has been made durable,
/// so that it is there when the disk has lost its cache.
#[test]
fn what_is_read_of_a_refused_write_stays() {
    on_shard(async {
        let bench = Bench::new(1);
        let pool = bench.create().await;
        let space =
            pool.create_space(SpaceSpec::thin("s", Resiliency::Simple, 4 * SLAB)).await.expect("space");
        let data = |byte: u8| IoBuf::copy_from(&vec![byte; 4 * 4096]).freeze();
        space.write(0, data(1), Durability::Durable).await.expect("write");
        sleep(super::CLEAN).await; // clean
        let mut start = 0;
        pool.core.for_each_column(|_, place, row| start = row.column(place.column).copies()[0].start);
        bench.disks[0].full_at.store(start + 2 * 4096, Ordering::SeqCst);
        let refused = space.write(0, data(2), Durability::Durable).await.expect_err("there is no space");
        assert_eq!(refused.kind(), BlockErrorKind::NoSpace);
        bench.disks[0].full_at.store(u64::MAX, Ordering::SeqCst);
        let seen = first_byte(&space, 0).await;
        // It is pulled, with what is in its cache, and put in again.
        bench.disks[0].gone.store(true, Ordering::SeqCst);
        pool.disk_lost(DiskId(0), "pulled").await.expect("told");
        bench.disks[0].restore_power(|| false);
        bench.disks[0].gone.store(false, Ordering::SeqCst);
        pool.disk_returned(bench.device(0)).await.expect("returned");
        sleep(super::CLEAN).await;
        assert_eq!(first_byte(&space, 0).await, seen);
    });
}
