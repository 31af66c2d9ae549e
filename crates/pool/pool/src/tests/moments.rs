//! Moments in which two things meet that rarely do: each once went wrong.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockErrorKind, Durability};
use futures_util::future::join;
use pool_format::{BLOCK, SumsPage};
use shard_runtime::{sleep, yield_now};

use super::{Bench, SLAB, on_shard};
use crate::at::At;
use crate::pages::{put_page, read_page};
use crate::row::{CopyState, Place, Purpose, Row};
use crate::sums::page_at;
use crate::{Pool, Resiliency, Space, SpaceSpec, clean, column_repair, examine, resync};

fn block(byte: u8) -> SharedBuf {
    IoBuf::copy_from(&[byte; BLOCK as usize]).freeze()
}

async fn space(pool: &Pool, resiliency: Resiliency, columns: u8) -> Arc<Space> {
    let mut spec = SpaceSpec::thin("s", resiliency, 4 * SLAB);
    (spec.interleave, spec.columns) = (8192, columns);
    pool.create_space(spec).await.expect("space")
}

fn first_row(space: &Space) -> (Arc<Row>, Place) {
    (space.row(0).expect("written"), Place { space: space.id(), row: 0, column: 0 })
}

/// The first writer's disk is slow: what it has read from memory is older than what the second writes.
#[test]
fn two_writers_of_a_page_of_checksums_leave_the_newer_one() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let space = space(&pool, Resiliency::Mirror(2), 1).await;
        space.write(0, block(1), Durability::Durable).await.expect("write");
        let (row, place) = first_row(&space);
        let at = At::new(&pool.core, &space, &row, place);
        let page = page_at(at, 0).await.expect("the space has checksums");
        let copies = at.column().copies();
        page.set(0, 1111);
        bench.disks.iter().for_each(|disk| disk.delay.store(100, Ordering::SeqCst));
        let first = put_page(at, (0, &page), &copies, Durability::Durable);
        let second = async {
            yield_now().await;
            bench.disks.iter().for_each(|disk| disk.delay.store(0, Ordering::SeqCst));
            page.set(0, 2222);
            put_page(at, (0, &page), &copies, Durability::Durable).await
        };
        let (first, second) = join(first, second).await;
        first.expect("first");
        second.expect("second");
        for copy in copies.iter() {
            assert_eq!(read_page(at, copy, 0).await.expect("whole")[0], 2222, "disk {}", copy.id());
        }
    });
}

/// A space with single parity whose first stripe is full of 7, and clean.
async fn space_of_sevens(pool: &Pool) -> Arc<Space> {
    let space = space(pool, Resiliency::Parity(1), 4).await;
    let stripe = IoBuf::copy_from(&[7; 3 * 8192]).freeze();
    space.write(0, stripe, Durability::Durable).await.expect("write");
    sleep(Duration::from_secs(30)).await; // clean
    space
}

/// Gives a column a second copy, as for a move, which lacks these regions: the one that it has, and the new one.
async fn moving(at: At<'_>, stale: u64) -> (Arc<CopyState>, Arc<CopyState>) {
    let in_row: Vec<_> = at.row.columns.iter().map(|column| column.copies()[0].id()).collect();
    let mut record = at.core.take_copy_slab(true, &in_row, &[]).expect("there is another disk");
    record.stale = stale;
    column_repair::add_copy(at.core, at.place, at.column(), record).await.expect("add");
    let copies = at.column().copies();
    (Arc::clone(&copies[0]), Arc::clone(&copies[1]))
}

/// While a slab moves its column has two copies. A disk that was away may have kept a write that the other has not, or the
/// other way round.
#[test]
fn copies_of_a_moving_column_with_parity_are_made_equal() {
    on_shard(async {
        let bench = Bench::new(5);
        let pool = bench.create().await;
        let space = space_of_sevens(&pool).await;
        let (row, place) = first_row(&space);
        let at = At::new(&pool.core, &space, &row, place);
        // It has all the data, but for one block.
        let (old, new) = moving(at, 0).await;
        let data = old.disk.read(old.start, IoBuf::new(SLAB as usize)).await.expect("read").freeze();
        new.disk.write(new.start, data, Durability::Durable).await.expect("write");
        new.disk.write(new.start + BLOCK, block(9), Durability::Durable).await.expect("write");
        at.group().unsettled.fetch_or(1, Ordering::AcqRel);
        resync::bring_up_to_date(at).await.expect("settled");
        assert_eq!(at.group().unsettled.load(Ordering::Acquire), 0);
        for copy in [&old, &new] {
            let found = copy.disk.read(copy.start + BLOCK, IoBuf::new(BLOCK as usize)).await.expect("read");
            assert!(found.iter().all(|byte| *byte == 7), "disk {} has {}", copy.id(), found[0]);
        }
    });
}

/// A column moves whose page of checksums is damaged: what it says of a region is looked for first, and nothing is copied for
/// nothing meanwhile, round after round.
#[test]
fn a_copy_whose_checksums_are_being_looked_for_gets_no_data() {
    on_shard(async {
        let bench = Bench::new(5);
        let pool = bench.create().await;
        let space = space_of_sevens(&pool).await;
        let (row, place) = first_row(&space);
        let at = At::new(&pool.core, &space, &row, place);
        let (old, new) = moving(at, u64::MAX).await;
        new.disk.write(new.start, block(9), Durability::Durable).await.expect("write");
        let page = page_at(at, 0).await.expect("the space has checksums");
        let page_start = old.sums_start.expect("the space has checksums");
        bench.disks[old.id().0 as usize].corrupt(page_start as usize, b"torn");
        page.unknown.fetch_or(1, Ordering::AcqRel);
        resync::bring_up_to_date(at).await.expect("nothing to do");
        let found = new.disk.read(new.start, IoBuf::new(BLOCK as usize)).await.expect("read");
        assert!(found.iter().all(|byte| *byte == 9), "copied before its checksums were known");
        // The other columns say what it must be, and then it catches up.
        resync::bring_up_to_date(at).await.expect("caught up");
        let found = new.disk.read(new.start, IoBuf::new(BLOCK as usize)).await.expect("read");
        assert!(found.iter().all(|byte| *byte == 7), "disk {} has {}", new.id(), found[0]);
        assert!(new.is_good(1));
    });
}

/// Nobody looks any more for what the space may have lost, and the deletion may fail yet.
#[test]
fn a_flush_of_a_space_that_is_being_deleted_fails() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let space = space(&pool, Resiliency::Mirror(2), 1).await;
        space.write(0, block(1), Durability::Volatile).await.expect("write");
        space.flush().await.expect("flush");
        let allocating = pool.core.allocating.lock().await;
        let deleting = pool.delete_space(space.id());
        let flushing = async {
            yield_now().await;
            let flushed = Arc::clone(&space).flush().await;
            drop(allocating);
            flushed
        };
        let (deleted, flushed) = join(deleting, flushing).await;
        deleted.expect("deleted");
        assert_eq!(flushed.err().map(|error| error.kind()), Some(BlockErrorKind::Gone));
    });
}

/// The cleaner writes a page to a copy that is given up meanwhile. Its slab may belong to another row as soon as it is free, and
/// the page would lie over that row's.
#[test]
fn a_slab_is_not_free_while_a_page_of_its_checksums_is_on_its_way() {
    on_shard(async {
        let bench = Bench::new(5);
        let pool = bench.create().await;
        let space = space(&pool, Resiliency::Mirror(2), 1).await;
        space.write(0, block(1), Durability::Durable).await.expect("write");
        let (row, place) = first_row(&space);
        let at = At::new(&pool.core, &space, &row, place);
        let in_row: Vec<_> = at.column().copies().iter().map(|copy| copy.id()).collect();
        let mut record = pool.core.take_copy_slab(true, &in_row, &[]).expect("there is another disk");
        record.stale = 0;
        column_repair::add_copy(&pool.core, place, at.column(), record).await.expect("add");
        let leaving = Arc::clone(&at.column().copies()[0]);
        leaving.set_moving(Some(Purpose::Balance));
        let disk = &bench.disks[leaving.id().0 as usize];
        let free = || pool.core.slabs.lock().count(leaving.id()).0;
        let before = free();
        let page_start = leaving.sums_start.expect("the space has checksums");
        // Only the page takes so long.
        disk.delay.store(1_000, Ordering::SeqCst);
        let cleaning = async { clean::clean(&pool.core, true).await.expect("clean") };
        let next_owner = async {
            yield_now().await;
            disk.delay.store(0, Ordering::SeqCst);
            while free() == before {
                column_repair::work_on(&pool.core, &space, place).await.expect("given up");
            }
            disk.corrupt(page_start as usize, b"of another row");
        };
        join(cleaning, next_owner).await;
        let found = disk.read(page_start, IoBuf::new(BLOCK as usize)).await.expect("read");
        assert!(
            found.starts_with(b"of another row"),
            "a page was written to a slab that has been given back"
        );
    });
}

/// A copy catches up in one region while the cleaner brings the page of another region to the disks, and the power goes: a page
/// of checksums covers both. One of the copies must have it whole, whatever was on its way.
#[test]
fn a_copy_that_catches_up_beside_the_cleaner_leaves_one_page_whole() {
    for cut in 1..24 {
        for begin in 0..8 {
            let bench = Bench::new(2);
            let places = on_shard(async {
                let pool = bench.create().await;
                let space = space(&pool, Resiliency::Mirror(2), 1).await;
                space.write(0, block(1), Durability::Durable).await.expect("write");
                sleep(Duration::from_secs(30)).await; // clean
                let (row, place) = first_row(&space);
                let at = At::new(&pool.core, &space, &row, place);
                let copies = at.column().copies();
                let kept = pool.core.mark_stale(place, &row, &copies[1], 1).await.expect("marked");
                assert!(kept);
                space.write(SLAB - BLOCK, block(2), Durability::Durable).await.expect("write");
                // What the cleaner has written to the first is not flushed before the second has its page.
                let first = copies[0].id().0 as usize;
                bench.disks.iter().for_each(|disk| disk.delay.store(4, Ordering::SeqCst));
                bench.disks[first].delay.store(7, Ordering::SeqCst);
                bench.power.store(cut, Ordering::SeqCst);
                let cleaning = async {
                    sleep(Duration::from_millis(2 * begin)).await;
                    let _ = clean::clean(&pool.core, true).await;
                };
                let catching_up = async {
                    let _ = resync::bring_up_to_date(at).await;
                };
                join(cleaning, catching_up).await;
                copies.iter().map(|copy| (copy.id().0 as usize, copy.sums_start)).collect::<Vec<_>>()
            });
            bench.power.store(u64::MAX, Ordering::SeqCst);
            on_shard(async {
                let mut whole = 0;
                for (disk, start) in places {
                    bench.disks[disk].restore_power_torn();
                    bench.disks[disk].delay.store(0, Ordering::SeqCst);
                    let start = start.expect("the space has checksums");
                    let page = bench.disks[disk].read(start, IoBuf::new(BLOCK as usize)).await.expect("read");
                    whole += u32::from(SumsPage::decode(&page).is_ok());
                }
                assert!(whole > 0, "cut at {cut}, the cleaner begins at {begin}: no copy has a whole page");
            });
        }
    }
}

/// The cleaner has written a page with its next generation, which the metadata is being told: nobody takes it for a page that has
/// lost writes meanwhile.
#[test]
fn a_page_whose_generation_is_being_told_has_lost_nothing() {
    for begin in 0..12 {
        on_shard(async {
            let bench = Bench::new(2);
            let pool = bench.create().await;
            let space = space(&pool, Resiliency::Mirror(2), 1).await;
            space.write(0, block(1), Durability::Durable).await.expect("write");
            sleep(Duration::from_secs(30)).await; // clean
            space.write(SLAB - BLOCK, block(2), Durability::Durable).await.expect("write");
            bench.disks.iter().for_each(|disk| disk.delay.store(3, Ordering::SeqCst));
            let (row, place) = first_row(&space);
            let at = At::new(&pool.core, &space, &row, place);
            let cleaning = async { clean::clean(&pool.core, true).await.expect("clean") };
            let looking = async {
                sleep(Duration::from_millis(begin)).await;
                for look in 0..12 {
                    let found = examine::examine(at, 0, false).await.damaged;
                    assert!(found.is_empty(), "look {look} from {begin} on finds {found:?}");
                }
            };
            join(cleaning, looking).await;
        });
    }
}
