//! Disks that acknowledge writes and lose them, data together with the checksums that vouch for it; and copies that differ while
//! each fits its own checksums.

use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, BlockErrorKind, Durability};
use pool_format::{BLOCK, Checksum, Epoch, Seq, SumsPage};
use shard_runtime::sleep;

use super::{Bench, SLAB, on_shard};
use crate::at::At;
use crate::generations;
use crate::{Guid, OpenOptions, Pool, Resiliency, SpaceSpec, Vote};

const BYTES: u64 = 2 * SLAB;
const CHUNK: u64 = 16 << 10;
/// Superblock, checkpoints and log of the test's disks lie before this.
const AFTER_METADATA: u64 = 2 << 20;

fn spec(resiliency: Resiliency) -> SpaceSpec {
    let mut spec = SpaceSpec::thin("s", resiliency, 4 * SLAB);
    spec.interleave = 4096;
    spec.columns = match resiliency.parity() {
        0 => 1,
        parity => parity + 2,
    };
    spec
}

async fn fill(pool: &Pool, byte: u8) {
    let space = pool.space("s").expect("space");
    for at in (0..BYTES).step_by(CHUNK as usize) {
        let data = IoBuf::copy_from(&vec![byte; CHUNK as usize]).freeze();
        space.write(at, data, Durability::Durable).await.expect("write");
    }
}

async fn open(bench: &Bench, guid: Guid) -> Pool {
    let pool = Pool::open(guid, bench.devices(), OpenOptions::default(), bench.surroundings.clone()).await;
    pool.expect("open")
}

async fn scrub(pool: &Pool) {
    pool.start_scrub().await.expect("scrub");
    sleep(Duration::from_secs(60)).await;
    assert!(!pool.scrub_status().is_running());
}

#[test]
fn a_write_that_was_lost_with_its_checksums_is_noticed_and_made_again() {
    for (disks, resiliency) in [
        (2, Resiliency::Mirror(2)),
        (3, Resiliency::Mirror(3)),
        (3, Resiliency::Parity(1)),
        (4, Resiliency::Parity(2)),
    ] {
        for lossy in 0..disks {
            for again in [false, true] {
                on_shard(async {
                    let what = format!("{resiliency:?}, disk {lossy} loses writes, once more: {again}");
                    let bench = Bench::new(disks);
                    let pool = bench.create().await;
                    let guid = pool.guid();
                    pool.create_space(spec(resiliency)).await.expect("space");
                    fill(&pool, 0x11).await;
                    sleep(Duration::from_secs(30)).await;
                    bench.disks[lossy].lose_from.store(AFTER_METADATA, Ordering::SeqCst);
                    fill(&pool, 0x22).await;
                    sleep(Duration::from_secs(30)).await;
                    if again {
                        fill(&pool, 0x33).await;
                        sleep(Duration::from_secs(30)).await;
                    }
                    pool.close().await.expect("close");
                    bench.disks[lossy].lose_from.store(u64::MAX, Ordering::SeqCst);
                    let byte = if again { 0x33 } else { 0x22 };
                    let pool = open(&bench, guid).await;
                    let space = pool.space("s").expect("space");
                    for at in (0..BYTES).step_by(CHUNK as usize) {
                        let read = space.read(at, IoBuf::new(CHUNK as usize)).await;
                        let read = read.unwrap_or_else(|error| panic!("{what}: at {at}: {error}"));
                        assert!(read.iter().all(|found| *found == byte), "{what}: at {at}: {:#x}", read[0]);
                    }
                    scrub(&pool).await;
                    sleep(Duration::from_secs(30)).await;
                    for disk in &pool.status().disks {
                        let expected = disk.record.id.0 as usize == lossy;
                        assert_eq!(disk.checksum_errors > 0, expected, "{what}: {disk:?}");
                    }
                    assert_eq!(pool.check(true).await, Vec::new(), "{what}");
                    drop(space);
                    pool.close().await.expect("close");
                    // From the disks alone, with the one that lost them.
                    let pool = open(&bench, guid).await;
                    assert_eq!(pool.check(true).await, Vec::new(), "{what}");
                    assert!(pool.status().disks.iter().all(|disk| disk.checksum_errors == 0), "{what}");
                });
            }
        }
    }
}

#[test]
fn a_lost_write_of_a_single_copy_is_an_error_until_it_is_written_again() {
    on_shard(async {
        let bench = Bench::new(1);
        let pool = bench.create().await;
        let guid = pool.guid();
        pool.create_space(spec(Resiliency::Simple)).await.expect("space");
        fill(&pool, 0x11).await;
        sleep(Duration::from_secs(30)).await;
        bench.disks[0].lose_from.store(AFTER_METADATA, Ordering::SeqCst);
        let space = pool.space("s").expect("space");
        let block = |byte: u8| IoBuf::copy_from(&[byte; BLOCK as usize]).freeze();
        space.write(3 * BLOCK, block(0x22), Durability::Durable).await.expect("write");
        sleep(Duration::from_secs(30)).await;
        bench.disks[0].lose_from.store(u64::MAX, Ordering::SeqCst);
        drop(space);
        pool.close().await.expect("close");
        let mut pool = open(&bench, guid).await;
        for _ in 0..2 {
            let space = pool.space("s").expect("space");
            let read = space.read(3 * BLOCK, IoBuf::new(BLOCK as usize)).await;
            assert_eq!(
                read.err().map(|error| error.kind()),
                Some(BlockErrorKind::Media),
                "never the older one"
            );
            // Another page of checksums is not concerned.
            let read = space.read(SLAB, IoBuf::new(BLOCK as usize)).await.expect("the other row");
            assert_eq!(read[0], 0x11);
            let findings = pool.check(true).await;
            assert!(findings.iter().any(|finding| finding.structure == "data"), "{findings:?}");
            scrub(&pool).await;
            drop(space);
            pool.close().await.expect("close");
            pool = open(&bench, guid).await;
        }
        fill(&pool, 0x44).await;
        let space = pool.space("s").expect("space");
        let read = space.read(3 * BLOCK, IoBuf::new(BLOCK as usize)).await.expect("written again");
        assert_eq!(read[0], 0x44);
        assert_eq!(pool.check(true).await, Vec::new());
    });
}

/// Where the first row's copies lie on each disk: data and checksums.
fn first_row(pool: &Pool) -> Vec<(usize, u64, u64)> {
    let mut places = Vec::new();
    pool.core.for_each_column(|_, place, row| {
        if place.row == 0 {
            for copy in row.column(0).copies().iter() {
                places.push((copy.id().0 as usize, copy.start, copy.sums_start.expect("it has checksums")));
            }
        }
    });
    places.sort_unstable();
    places
}

#[test]
fn copies_that_differ_and_fit_their_own_checksums_are_left_alone() {
    // Without generations, as a release before them left its pages, and with one that both have.
    for unknown in [true, false] {
        on_shard(async {
            let bench = Bench::new(2);
            let pool = bench.create().await;
            let guid = pool.guid();
            pool.create_space(spec(Resiliency::Mirror(2))).await.expect("space");
            fill(&pool, 0x11).await;
            let places = first_row(&pool);
            pool.close().await.expect("close");
            let (disk, start, sums) = places[1];
            let at = BLOCK as usize * 5;
            let image = bench.disks[disk].image();
            let mut page = SumsPage::decode(&image[sums as usize..][..BLOCK as usize]).expect("a page");
            page.sums[5] = Checksum::default().of(&[0x33; BLOCK as usize]);
            bench.disks[disk].corrupt(sums as usize, &page.encode());
            bench.disks[disk].corrupt(start as usize + at, &[0x33; BLOCK as usize]);
            let options = if unknown {
                // Metadata that is not the newest does not know the generations of what it finds.
                let vote = bench.surroundings.witness.store(guid, Epoch(99), Seq(0)).await.expect("stored");
                assert_eq!(vote, Vote::Given);
                OpenOptions { accept_loss: true, ..OpenOptions::default() }
            } else {
                OpenOptions::default()
            };
            let pool = Pool::open(guid, bench.devices(), options, bench.surroundings.clone()).await;
            let pool = pool.expect("open");
            let space = pool.space("s").expect("space");
            for _ in 0..4 {
                let read = space.read(5 * BLOCK, IoBuf::new(BLOCK as usize)).await;
                assert_eq!(read.is_err(), unknown, "with nothing to go by it is an error");
            }
            scrub(&pool).await;
            sleep(Duration::from_secs(30)).await;
            for ((disk, start, _), byte) in places.iter().zip([0x11, 0x33]) {
                let image = bench.disks[*disk].image();
                assert_eq!(image[*start as usize + at], byte, "disk {disk} has been overwritten by guess");
            }
            let findings = pool.check(true).await;
            let range = "bytes 20480 to 24576";
            let told = findings.iter().any(|found| found.detail.contains(range));
            assert!(told && findings[0].detail.contains("space s row 0"), "{findings:?}");
            let data = IoBuf::copy_from(&[0x44; BLOCK as usize]).freeze();
            space.write(5 * BLOCK, data, Durability::Durable).await.expect("write");
            sleep(Duration::from_secs(30)).await;
            assert_eq!(pool.check(true).await, Vec::new());
        });
    }
}

/// The slab that a row is given back has the pages of its earlier life, and these fit what the slab held.
#[test]
fn what_a_disk_loses_of_a_new_row_is_not_made_up_for_by_the_row_before() {
    for lossy in 0..2 {
        on_shard(async {
            let bench = Bench::new(2);
            let pool = bench.create().await;
            let guid = pool.guid();
            pool.create_space(spec(Resiliency::Mirror(2))).await.expect("space");
            fill(&pool, 0x11).await;
            sleep(Duration::from_secs(30)).await;
            let before = first_row(&pool);
            let space = pool.space("s").expect("space");
            space.unmap(0, BYTES).await.expect("unmap");
            sleep(Duration::from_secs(30)).await;
            assert!(first_row(&pool).is_empty(), "the row is free");
            bench.disks[lossy].lose_from.store(AFTER_METADATA, Ordering::SeqCst);
            let block = IoBuf::copy_from(&[0x22; BLOCK as usize]).freeze();
            space.write(0, block, Durability::Durable).await.expect("write");
            assert_eq!(first_row(&pool), before, "the row has its slabs again");
            drop(space);
            // The power goes before any of its pages is written another time.
            drop(pool);
            sleep(Duration::from_secs(1)).await;
            bench.disks[lossy].lose_from.store(u64::MAX, Ordering::SeqCst);
            let pool = open(&bench, guid).await;
            let space = pool.space("s").expect("space");
            for at in (SLAB / 2..SLAB).step_by(CHUNK as usize) {
                let read = space.read(at, IoBuf::new(CHUNK as usize)).await;
                let read = read.unwrap_or_else(|error| panic!("disk {lossy}: at {at}: {error}"));
                assert!(read.iter().all(|found| *found == 0), "disk {lossy}: at {at}: {:#x}", read[0]);
            }
        });
    }
}

/// A page of checksums that was in the cache of a disk that failed to flush it is not what the only copy has.
#[test]
fn a_page_that_was_not_flushed_is_not_told_of() {
    on_shard(async {
        let bench = Bench::new(3);
        let pool = bench.create().await;
        let guid = pool.guid();
        pool.create_space(spec(Resiliency::Simple)).await.expect("space");
        fill(&pool, 0x11).await;
        sleep(Duration::from_secs(30)).await;
        let only = first_row(&pool)[0].0;
        let space = pool.space("s").expect("space");
        let block = IoBuf::copy_from(&[0x22; BLOCK as usize]).freeze();
        space.write(0, block, Durability::Volatile).await.expect("write");
        bench.disks[only].fail_flush.store(true, Ordering::SeqCst);
        sleep(Duration::from_secs(30)).await;
        assert!(!pool.status().disks[only].online);
        drop(space);
        drop(pool);
        sleep(Duration::from_secs(1)).await;
        bench.disks[only].restore_power(|| false);
        bench.disks[only].fail_flush.store(false, Ordering::SeqCst);
        let pool = open(&bench, guid).await;
        let space = pool.space("s").expect("space");
        let read = space.read(SLAB / 2, IoBuf::new(CHUNK as usize)).await.expect("what was flushed before");
        assert!(read.iter().all(|found| *found == 0x11));
    });
}

/// A disk is away with writes that it has in its cache and its page of checksums does not know of yet, and another lacks some.
/// What the rest holds is not taken as the truth meanwhile: what comes back with the disk would be called damaged.
#[test]
fn a_stripe_that_two_disks_were_missing_from_is_whole_when_one_is_back() {
    for (first, second) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        on_shard(async {
            let bench = Bench::new(5);
            let pool = bench.create().await;
            let mut spec = spec(Resiliency::Parity(1));
            spec.columns = 3;
            pool.create_space(spec).await.expect("space");
            fill(&pool, 0x11).await;
            sleep(Duration::from_secs(30)).await;
            let space = pool.space("s").expect("space");
            let mut disks = Vec::new();
            pool.core.for_each_column(|_, place, row| {
                if place.row == 0 {
                    disks.push(row.column(place.column).copies()[0].id());
                }
            });
            let write = async |byte: u8| {
                let data = IoBuf::copy_from(&vec![byte; CHUNK as usize]).freeze();
                space.write(0, data, Durability::Volatile).await
            };
            bench.disks[disks[first].0 as usize].gone.store(true, Ordering::SeqCst);
            write(0x22).await.expect("one disk is away");
            bench.disks[disks[second].0 as usize].gone.store(true, Ordering::SeqCst);
            pool.disk_lost(disks[second], "pulled").await.expect("told");
            // Repair looks at what is left.
            sleep(Duration::from_secs(60)).await;
            for away in [second, first] {
                let disk = disks[away].0 as usize;
                bench.disks[disk].gone.store(false, Ordering::SeqCst);
                pool.disk_returned(bench.device(disk)).await.expect("returned");
                sleep(Duration::from_secs(60)).await;
                let read = space.read(0, IoBuf::new(CHUNK as usize)).await;
                let read = read.unwrap_or_else(|error| panic!("{first}, {second}: {away} is back: {error}"));
                assert!(read.iter().all(|found| *found == 0x22), "{first}, {second}: {:#x}", read[0]);
            }
            // What the second disk had in its cache may have been lost when it went: a flush tells of it, or closing would.
            let _ = space.flush().await;
            drop(space);
            pool.close().await.expect("close");
        });
    }
}

/// Disks have been away one after the other, and each lacks something: none of their pages can have the newest generation. Rot on one
/// of them is found and healed all the same, and not taken for what must be there.
#[test]
fn rot_on_one_of_the_disks_that_lack_something_is_healed() {
    for rotten in 0..2 {
        on_shard(async {
            let bench = Bench::new(4);
            let pool = bench.create().await;
            let guid = pool.guid();
            pool.create_space(spec(Resiliency::Parity(2))).await.expect("space");
            fill(&pool, 0x11).await;
            sleep(Duration::from_secs(30)).await;
            let space = pool.space("s").expect("space");
            let write = async |at: u64, byte: u8| {
                let data = IoBuf::copy_from(&vec![byte; CHUNK as usize]).freeze();
                space.write(at, data, Durability::Durable).await.expect("write");
            };
            for away in 0..2 {
                bench.disks[away].gone.store(true, Ordering::SeqCst);
            }
            write(SLAB / 2, 0x33).await;
            sleep(Duration::from_secs(30)).await;
            let mut start = 0;
            pool.core.for_each_column(|_, place, row| {
                let copies = row.column(place.column).copies();
                if place.row == 0 && copies[0].id().0 as usize == rotten {
                    start = copies[0].start;
                }
            });
            drop(space);
            drop(pool);
            sleep(Duration::from_secs(1)).await;
            for back in 0..2 {
                bench.disks[back].gone.store(false, Ordering::SeqCst);
            }
            let before = bench.disks[rotten].image();
            bench.disks[rotten].corrupt(start as usize + 100, b"rot");
            let pool = open(&bench, guid).await;
            let space = pool.space("s").expect("space");
            for at in (0..SLAB).step_by(CHUNK as usize) {
                let byte = if at == SLAB / 2 { 0x33 } else { 0x11 };
                let read = space.read(at, IoBuf::new(CHUNK as usize)).await;
                let read = read.unwrap_or_else(|error| panic!("disk {rotten}: at {at}: {error}"));
                assert!(read.iter().all(|found| *found == byte), "disk {rotten}: at {at}: {:#x}", read[0]);
            }
            sleep(Duration::from_secs(60)).await;
            scrub(&pool).await;
            let (at, end) = (start as usize, start as usize + BLOCK as usize);
            assert!(bench.disks[rotten].image()[at..end] == before[at..end], "disk {rotten} is not healed");
            sleep(Duration::from_secs(30)).await;
            assert_eq!(pool.check(true).await, Vec::new(), "disk {rotten}");
        });
    }
}

/// A disk has lost writes together with their checksums, leaves, and comes back: it lacks what was written meanwhile, so its page
/// cannot have the newest generation, and what else the page says is not believed where the other columns know better.
#[test]
fn what_a_disk_had_lost_before_it_was_away_is_noticed_when_it_is_back() {
    for (disks, resiliency) in [(3, Resiliency::Parity(1)), (4, Resiliency::Parity(2))] {
        for lossy in 0..disks {
            on_shard(async {
                let what = format!("{resiliency:?}, disk {lossy}");
                let bench = Bench::new(disks);
                let pool = bench.create().await;
                let guid = pool.guid();
                pool.create_space(spec(resiliency)).await.expect("space");
                fill(&pool, 0x11).await;
                sleep(Duration::from_secs(30)).await;
                let space = pool.space("s").expect("space");
                let write = async |at: u64, byte: u8| {
                    let data = IoBuf::copy_from(&vec![byte; CHUNK as usize]).freeze();
                    space.write(at, data, Durability::Durable).await.expect("write");
                };
                bench.disks[lossy].lose_from.store(AFTER_METADATA, Ordering::SeqCst);
                write(0, 0x22).await;
                sleep(Duration::from_secs(30)).await;
                bench.disks[lossy].lose_from.store(u64::MAX, Ordering::SeqCst);
                bench.disks[lossy].gone.store(true, Ordering::SeqCst);
                write(SLAB / 2, 0x33).await;
                sleep(Duration::from_secs(30)).await;
                drop(space);
                drop(pool);
                sleep(Duration::from_secs(1)).await;
                bench.disks[lossy].gone.store(false, Ordering::SeqCst);
                let pool = open(&bench, guid).await;
                let space = pool.space("s").expect("space");
                for at in (0..SLAB).step_by(CHUNK as usize) {
                    let byte = match at {
                        0 => 0x22,
                        _ if at == SLAB / 2 => 0x33,
                        _ => 0x11,
                    };
                    let read = space.read(at, IoBuf::new(CHUNK as usize)).await;
                    let read = read.unwrap_or_else(|error| panic!("{what}: at {at}: {error}"));
                    assert!(read.iter().all(|found| *found == byte), "{what}: at {at}: {:#x}", read[0]);
                }
                // The journal has copies on that disk, too.
                scrub(&pool).await;
                sleep(Duration::from_secs(30)).await;
                assert_eq!(pool.check(true).await, Vec::new(), "{what}");
            });
        }
    }
}

/// A disk that comes back is given its regions one after the other, each with a new generation of their page, more of them than may be ahead
/// of what the metadata knows. When all is clean no change of a page is left that the metadata has not been told a generation of: the
/// next copy that catches up would take it to a disk, and after a crash nobody could tell why that page is ahead.
#[test]
fn no_page_is_ahead_when_all_regions_are_clean() {
    for (disks, resiliency) in [(3, Resiliency::Parity(1)), (4, Resiliency::Parity(2))] {
        for away in 0..disks {
            on_shard(async {
                let what = format!("{resiliency:?}, disk {away}");
                let bench = Bench::new(disks);
                let pool = bench.create().await;
                let guid = pool.guid();
                pool.create_space(spec(resiliency)).await.expect("space");
                fill(&pool, 0x11).await;
                pool.close().await.expect("close");
                bench.disks[away].gone.store(true, Ordering::SeqCst);
                let pool = open(&bench, guid).await;
                fill(&pool, 0x22).await;
                pool.close().await.expect("close");
                bench.disks[away].gone.store(false, Ordering::SeqCst);
                let pool = open(&bench, guid).await;
                // Longer than it takes to catch up and to call everything clean.
                sleep(Duration::from_secs(120)).await;
                let mut pages = 0;
                pool.core.for_each_column(|space, place, row| {
                    let at = At::new(&pool.core, space, row, place);
                    let order = at.group().order.lock();
                    assert_eq!(at.group().unflushed(&order), 0, "{what}: {at} is clean");
                    drop(order);
                    let sums = at.column().sums.as_ref().expect("it has checksums");
                    for (index, page) in sums.loaded(0, SLAB) {
                        assert!(generations::is_accounted_for(at, index, &page), "{what}: {at} page {index}");
                        pages += 1;
                    }
                });
                assert!(pages >= disks, "{what}: {pages} pages");
                assert_eq!(pool.check(true).await, Vec::new(), "{what}");
            });
        }
    }
}
