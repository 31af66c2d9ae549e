//! A disk of a row with parity that has lost writes together with their checksums, while another disk is missing or the power goes:
//! nothing is calculated from what it has, and what it has is not believed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, Durability};
use pool_format::{BLOCK, SumsPage};
use shard_runtime::sleep;

use super::replays::noise;
use super::{Bench, SLAB, on_shard};
use crate::{DiskId, DiskUse, Guid, OpenOptions, Pool, Resiliency, SpaceSpec};

/// Two columns of data, one row.
const BYTES: u64 = 2 * SLAB;
const CHUNK: u64 = 64 << 10;
/// Superblock, checkpoints and log of the test's disks lie before this.
const AFTER_METADATA: u64 = 2 << 20;
const OLD: u64 = 1;
const NEW: u64 = 2;

fn content(at: u64, round: u64) -> SharedBuf {
    noise(CHUNK, round * 1000 + at / CHUNK)
}

async fn fill(pool: &Pool, round: u64) {
    let space = pool.space("s").expect("space");
    for at in (0..BYTES).step_by(CHUNK as usize) {
        space.write(at, content(at, round), Durability::Durable).await.expect("write");
    }
    sleep(Duration::from_secs(30)).await; // all clean
}

/// What each disk holds of a pool with one space, and the pool: `lossy` has the old round where the others have the new one.
struct Lossy {
    images: Vec<Vec<u8>>,
    pool: Guid,
    /// The disks of the row, by column.
    disks: Vec<usize>,
}

impl Lossy {
    /// The disk of `column` loses the new round. There is one disk more than the row has columns.
    fn new(parity: u8, column: usize) -> Self {
        on_shard(async {
            let bench = Bench::new(usize::from(parity) + 3);
            let pool = bench.create().await;
            let mut spec = SpaceSpec::thin("s", Resiliency::Parity(parity), BYTES);
            (spec.interleave, spec.columns) = (4096, parity + 2);
            pool.create_space(spec).await.expect("space");
            fill(&pool, OLD).await;
            let mut disks = Vec::new();
            pool.core.for_each_column(|_, place, row| {
                if place.row == 0 {
                    disks.push(row.column(place.column).copies()[0].id().0 as usize);
                }
            });
            bench.disks[disks[column]].lose_from.store(AFTER_METADATA, Ordering::SeqCst);
            fill(&pool, NEW).await;
            let guid = pool.guid();
            pool.close().await.expect("close");
            Self { images: bench.disks.iter().map(|disk| disk.image()).collect(), pool: guid, disks }
        })
    }

    /// The disks, all of them in order.
    fn bench(&self) -> Bench {
        let bench = Bench::new(self.images.len());
        bench.disks.iter().zip(&self.images).for_each(|(disk, image)| disk.put_back(image));
        bench
    }

    async fn open(&self, bench: &Bench, read_only: bool) -> Pool {
        let options = OpenOptions { read_only, ..OpenOptions::default() };
        Pool::open(self.pool, bench.devices(), options, bench.surroundings.clone()).await.expect("open")
    }
}

/// Reads everything, block for block: it is the new round, or an error where that is `excused`, never anything else. The first block
/// may be `written`, too.
async fn is_new(pool: &Pool, excused: bool, written: Option<&[u8]>, what: &str) {
    let space = pool.space("s").expect("space");
    for at in (0..BYTES).step_by(CHUNK as usize) {
        for (index, right) in content(at, NEW).chunks(BLOCK as usize).enumerate() {
            let block = at + index as u64 * BLOCK;
            match space.read(block, IoBuf::new(BLOCK as usize)).await {
                Ok(read) => {
                    let later = block == 0 && written.is_some_and(|written| read[..] == *written);
                    assert!(read[..] == *right || later, "{what}: the block at {block} is wrong");
                }
                Err(error) => assert!(excused, "{what}: the block at {block}: {error}"),
            }
        }
    }
}

/// Two disks of dual parity may fail, one of them by losing what it is given.
#[test]
fn beside_a_missing_disk_lost_writes_are_calculated() {
    for column in 0..4 {
        let lossy = Lossy::new(2, column);
        for absent in (0..4).filter(|absent| *absent != column) {
            for read_only in [true, false] {
                on_shard(async {
                    let what = format!("column {column} lossy, {absent} absent, read-only {read_only}");
                    let bench = lossy.bench();
                    let away = lossy.disks[absent];
                    bench.disks[away].gone.store(true, Ordering::SeqCst);
                    let pool = lossy.open(&bench, read_only).await;
                    is_new(&pool, false, None, &what).await;
                    if read_only {
                        return;
                    }
                    // What the missing disk had is made anew on another one.
                    pool.set_disk_use(DiskId(away as u32), DiskUse::Retired).await.expect("retired");
                    sleep(Duration::from_secs(120)).await;
                    assert!(pool.status().is_fully_redundant(), "{what}: {:?}", pool.status());
                    is_new(&pool, false, None, &what).await;
                    // The disk has lost what the journal was given, too.
                    pool.start_scrub().await.expect("scrub");
                    sleep(Duration::from_secs(120)).await;
                    let findings = pool.check(true).await;
                    assert!(findings.iter().all(|found| found.structure != "data"), "{what}: {findings:?}");
                });
            }
        }
    }
}

/// The same when nothing has been read before: the copy on the new disk is not calculated from what was lost.
#[test]
fn a_copy_is_not_calculated_from_a_column_that_lost_writes() {
    for column in 0..4 {
        let lossy = Lossy::new(2, column);
        for absent in (0..4).filter(|absent| *absent != column) {
            on_shard(async {
                let what = format!("column {column} lossy, {absent} absent");
                let bench = lossy.bench();
                let away = lossy.disks[absent];
                bench.disks[away].gone.store(true, Ordering::SeqCst);
                let pool = lossy.open(&bench, false).await;
                pool.set_disk_use(DiskId(away as u32), DiskUse::Retired).await.expect("retired");
                sleep(Duration::from_secs(120)).await;
                is_new(&pool, false, None, &what).await;
            });
        }
    }
}

/// A page that is ahead of what the metadata knows has lost nothing: a power cut kept that from being told. Beside a missing disk its
/// column is all that there is.
#[test]
fn a_page_that_is_ahead_of_what_was_told_is_believed() {
    for column in 0..3 {
        let lossy = Lossy::new(1, column);
        for absent in (0..3).filter(|absent| *absent != column) {
            on_shard(async {
                let what = format!("column {column} is ahead, {absent} absent");
                let bench = lossy.bench();
                let pool = lossy.open(&bench, false).await;
                is_new(&pool, false, None, &what).await;
                sleep(Duration::from_secs(60)).await;
                let mut sums = 0;
                pool.core.for_each_column(|_, place, row| {
                    if place.row == 0 && usize::from(place.column) == column {
                        sums = row.column(place.column).copies()[0].sums_start.expect("it has checksums");
                    }
                });
                pool.close().await.expect("close");
                let disk = &bench.disks[lossy.disks[column]];
                let image = disk.image();
                let mut page = SumsPage::decode(&image[sums as usize..][..BLOCK as usize]).expect("a page");
                page.generation = pool_format::next_generation(page.generation);
                disk.corrupt(sums as usize, &page.encode());
                bench.disks[lossy.disks[absent]].gone.store(true, Ordering::SeqCst);
                let pool = lossy.open(&bench, false).await;
                is_new(&pool, false, None, &what).await;
                sleep(Duration::from_secs(60)).await;
                is_new(&pool, false, None, &format!("{what}, later")).await;
            });
        }
    }
}

/// With single parity that is one failure too many: an error, until the missing disk is back; nothing is lost by it.
#[test]
fn what_cannot_be_calculated_is_an_error_and_not_what_was_there_before() {
    for column in 0..3 {
        let lossy = Lossy::new(1, column);
        for absent in (0..3).filter(|absent| *absent != column) {
            on_shard(async {
                let what = format!("column {column} lossy, {absent} absent");
                let bench = lossy.bench();
                let away = lossy.disks[absent];
                bench.disks[away].gone.store(true, Ordering::SeqCst);
                let pool = lossy.open(&bench, false).await;
                is_new(&pool, true, None, &what).await;
                sleep(Duration::from_secs(60)).await;
                is_new(&pool, true, None, &format!("{what}, later")).await;
                bench.disks[away].gone.store(false, Ordering::SeqCst);
                pool.disk_returned(bench.device(away)).await.expect("returned");
                sleep(Duration::from_secs(60)).await;
                is_new(&pool, false, None, &format!("{what}, back")).await;
            });
        }
    }
}

/// The power goes while the lost writes are made again: the region that this was in is dirty then or not, and its data is right or
/// known to be wrong. With dual parity another disk is lost besides.
#[test]
fn a_power_cut_while_lost_writes_are_made_again_loses_nothing() {
    for parity in [1, 2] {
        for column in 0..usize::from(parity) + 2 {
            let lossy = Lossy::new(parity, column);
            for write in [false, true] {
                for cut in 1..14 {
                    on_shard(async {
                        let what =
                            format!("parity {parity}, column {column} lossy, write {write}, cut at {cut}");
                        let bench = lossy.bench();
                        let pool = lossy.open(&bench, false).await;
                        let written = noise(BLOCK, 99);
                        bench.power.store(cut, Ordering::SeqCst);
                        let space = pool.space("s").expect("space");
                        let _ = if write {
                            space.write(0, written.clone(), Durability::Durable).await
                        } else {
                            space.read(0, IoBuf::new(BLOCK as usize)).await.map(drop)
                        };
                        bench.power.store(0, Ordering::SeqCst);
                        drop(space);
                        drop(pool);
                        sleep(Duration::from_secs(5)).await;
                        bench.power.store(u64::MAX, Ordering::SeqCst);
                        bench.disks.iter().for_each(|disk| disk.restore_power(|| false));
                        if parity == 2 {
                            let other = lossy.disks[(column + 1) % 4];
                            bench.disks[other].gone.store(true, Ordering::SeqCst);
                        }
                        let pool = lossy.open(&bench, false).await;
                        let written = write.then_some(&written[..]);
                        is_new(&pool, false, written, &what).await;
                        sleep(Duration::from_secs(60)).await;
                        is_new(&pool, false, written, &format!("{what}, settled")).await;
                    });
                }
            }
        }
    }
}
