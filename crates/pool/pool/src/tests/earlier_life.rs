//! A row is freed and made again, and its slabs have pages of checksums of its earlier life. A disk that loses what the new one is
//! given shows those, with data that fits them: they are never believed, however the generations of the two lives lie.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, Durability};
use pool_format::{BLOCK, Change, DiskId, DiskUse, SumsPage};
use shard_runtime::sleep;

use super::{Bench, SLAB, on_shard};
use crate::generations;
use crate::row::CopyState;
use crate::{Guid, OpenOptions, Pool, Resiliency, SpaceSpec};

const CHUNK: u64 = 16 << 10;
/// Superblock, checkpoints and log of the test's disks lie before this.
const AFTER_METADATA: u64 = 2 << 20;

fn bytes(byte: u8, len: u64) -> SharedBuf {
    IoBuf::copy_from(&vec![byte; len as usize]).freeze()
}

/// A space with a row of 0x11 in it, clean.
async fn space_of_ones(pool: &Pool, resiliency: Resiliency) {
    let mut spec = SpaceSpec::thin("s", resiliency, 4 * SLAB);
    spec.interleave = 4096;
    spec.columns = match resiliency.parity() {
        0 => 1,
        parity => parity + 2,
    };
    let space = pool.create_space(spec).await.expect("space");
    let row = SLAB * if resiliency.parity() > 0 { 2 } else { 1 };
    for at in (0..row).step_by(CHUNK as usize) {
        space.write(at, bytes(0x11, CHUNK), Durability::Durable).await.expect("write");
    }
    sleep(Duration::from_secs(30)).await;
}

/// Frees the first row.
async fn free(pool: &Pool) {
    let space = pool.space("s").expect("space");
    let row = space.striping.row_size();
    space.unmap(0, row).await.expect("unmap");
    sleep(Duration::from_secs(30)).await;
    assert!(space.row(0).is_none(), "the row is free");
}

/// The slabs of the first row: column, disk, where its page of checksums lies.
fn slabs(pool: &Pool) -> Vec<(u8, DiskId, u64)> {
    let mut slabs = Vec::new();
    pool.core.for_each_column(|_, place, row| {
        if place.row == 0 {
            let copies = row.column(place.column).copies();
            let of =
                |copy: &Arc<CopyState>| (place.column, copy.id(), copy.sums_start.expect("it has checksums"));
            slabs.extend(copies.iter().map(of));
        }
    });
    slabs
}

fn page(bench: &Bench, disk: DiskId, at: u64) -> SumsPage {
    let image = bench.disks[disk.0 as usize].image();
    SumsPage::decode(&image[at as usize..][..BLOCK as usize]).expect("a page")
}

/// Commits changes that change nothing, until the next row would begin so many generations before this one.
async fn pass_time(pool: &Pool, generation: u8, before: u8) {
    let wanted = ((i32::from(generation) - 1 - i32::from(before)).rem_euclid(255)) as u8 + 1;
    while generations::first(pool.core.meta.seq()) != wanted {
        let scrub = pool.core.meta.with_state(|state| state.scrub);
        pool.core.meta.commit(vec![Change::Scrub(scrub)]).await.expect("commit");
    }
}

/// What the new row holds: 0x22 in the first block, zeros behind it.
async fn holds_the_new(pool: &Pool, what: &str) {
    let space = pool.space("s").expect("space");
    for at in (0..space.striping.row_size()).step_by(BLOCK as usize) {
        let read = space.read(at, IoBuf::new(BLOCK as usize)).await;
        let read = read.unwrap_or_else(|error| panic!("{what}: at {at}: {error}"));
        let byte = if at == 0 { 0x22 } else { 0 };
        assert!(read.iter().all(|found| *found == byte), "{what}: at {at}: {:#x}", read[0]);
    }
}

async fn open(bench: &Bench, guid: Guid) -> Pool {
    let pool = Pool::open(guid, bench.devices(), OpenOptions::default(), bench.surroundings.clone()).await;
    pool.expect("open")
}

#[test]
fn a_row_does_not_begin_with_the_generation_that_its_earlier_life_ended_with() {
    for (disks, resiliency) in [(2, Resiliency::Mirror(2)), (3, Resiliency::Parity(1))] {
        for (lossy, before) in (0..disks).flat_map(|lossy| [(lossy, 0), (lossy, 1), (lossy, 8)]) {
            for crash in [false, true] {
                on_shard(async {
                    let what = format!("{resiliency:?}, disk {lossy} loses, {before} before, crash: {crash}");
                    let bench = Bench::new(disks);
                    let pool = bench.create().await;
                    let guid = pool.guid();
                    space_of_ones(&pool, resiliency).await;
                    let earlier = slabs(&pool);
                    let (_, disk, at) =
                        *earlier.iter().find(|slab| slab.1.0 as usize == lossy).expect("a slab");
                    free(&pool).await;
                    pass_time(&pool, page(&bench, disk, at).generation, before).await;
                    bench.disks[lossy].lose_from.store(AFTER_METADATA, Ordering::SeqCst);
                    let space = pool.space("s").expect("space");
                    space.write(0, bytes(0x22, BLOCK), Durability::Durable).await.expect("write");
                    assert_eq!(slabs(&pool), earlier, "{what}: the row has its slabs again");
                    if !crash {
                        holds_the_new(&pool, &what).await;
                        sleep(Duration::from_secs(30)).await;
                        holds_the_new(&pool, &what).await;
                    }
                    drop(space);
                    drop(pool);
                    sleep(Duration::from_secs(1)).await;
                    bench.disks[lossy].lose_from.store(u64::MAX, Ordering::SeqCst);
                    let pool = open(&bench, guid).await;
                    holds_the_new(&pool, &what).await;
                    pool.start_scrub().await.expect("scrub");
                    sleep(Duration::from_secs(60)).await;
                    holds_the_new(&pool, &what).await;
                    sleep(Duration::from_secs(30)).await;
                    assert_eq!(pool.check(true).await, Vec::new(), "{what}");
                });
            }
        }
    }
}

/// The row lives on other disks when it is made again, so its generation is left to chance. Then a copy is made on a slab of its earlier life, by
/// a disk that loses it.
#[test]
fn a_further_copy_on_a_slab_of_an_earlier_life_counts_when_it_is_there() {
    for before in [0, 1, 8] {
        on_shard(async {
            let what = format!("{before} before");
            let bench = Bench::new(4);
            let pool = bench.create().await;
            let guid = pool.guid();
            let used = async |disks: [u32; 2], usage: DiskUse| {
                for disk in disks {
                    pool.set_disk_use(DiskId(disk), usage).await.expect("use");
                }
            };
            used([2, 3], DiskUse::Retired).await;
            space_of_ones(&pool, Resiliency::Mirror(2)).await;
            let (_, _, at) = *slabs(&pool).iter().find(|slab| slab.1 == DiskId(1)).expect("on disk 1");
            free(&pool).await;
            used([2, 3], DiskUse::Active).await;
            used([0, 1], DiskUse::Retired).await;
            pass_time(&pool, page(&bench, DiskId(1), at).generation, before).await;
            let space = pool.space("s").expect("space");
            space.write(0, bytes(0x22, BLOCK), Durability::Durable).await.expect("write");
            assert!(slabs(&pool).iter().all(|slab| slab.1.0 >= 2), "{what}");
            bench.disks[1].lose_from.store(AFTER_METADATA, Ordering::SeqCst);
            pool.set_disk_use(DiskId(1), DiskUse::Active).await.expect("use");
            pool.set_disk_use(DiskId(2), DiskUse::Retired).await.expect("use");
            sleep(Duration::from_secs(20)).await;
            assert!(slabs(&pool).iter().any(|slab| slab.1 == DiskId(1) && slab.2 == at), "{what}");
            holds_the_new(&pool, &what).await;
            drop(space);
            drop(pool);
            sleep(Duration::from_secs(1)).await;
            bench.disks[1].lose_from.store(u64::MAX, Ordering::SeqCst);
            let pool = open(&bench, guid).await;
            holds_the_new(&pool, &what).await;
            sleep(Duration::from_secs(60)).await;
            holds_the_new(&pool, &what).await;
            let status = pool.status();
            assert!(status.is_fully_redundant(), "{what}: {status:?}");
            assert!(slabs(&pool).iter().all(|slab| slab.1.0 % 2 == 1), "{what}: on disks 1 and 3");
            pool.start_scrub().await.expect("scrub");
            sleep(Duration::from_secs(90)).await;
            assert_eq!(pool.check(true).await, Vec::new(), "{what}");
        });
    }
}
