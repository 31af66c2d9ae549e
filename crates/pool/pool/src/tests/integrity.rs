//! Damage that no disk reports: every read is right all the same, the disk is named, and a scrub ends it.

use std::sync::atomic::Ordering;

use aligned_buffer::{IoBuf, SharedBuf};
use block_conformance::{Rng, pattern};
use block_device::{BlockDevice, BlockErrorKind, Durability};
use pool_format::BLOCK;
use shard_runtime::sleep;

use super::{Bench, SLAB, on_shard};
use crate::{DiskUse, OpenOptions, Pool, Resiliency, Space, SpaceSpec};

/// Bytes of the space that are written.
const BYTES: u64 = 3 * SLAB + SLAB / 2;

fn spec(resiliency: Resiliency, columns: u8) -> SpaceSpec {
    let mut spec = SpaceSpec::thin("s", resiliency, 4 * SLAB);
    spec.interleave = 8192;
    spec.columns = columns;
    spec
}

fn content(block: u64, round: u8) -> SharedBuf {
    let mut bytes = vec![0; BLOCK as usize];
    pattern::fill(&mut bytes, 1, block * BLOCK, u64::from(round));
    IoBuf::copy_from(&bytes).freeze()
}

async fn fill(space: &Space, round: u8) {
    for at in (0..BYTES).step_by(64 << 10) {
        let len = (64 << 10).min(BYTES - at);
        let bytes: Vec<u8> =
            (at / BLOCK..(at + len) / BLOCK).flat_map(|block| content(block, round).to_vec()).collect();
        space.write(at, IoBuf::copy_from(&bytes).freeze(), Durability::Durable).await.expect("write");
    }
}

async fn verify(space: &Space, round: u8, what: &str) {
    for block in 0..BYTES / BLOCK {
        let read = space.read(block * BLOCK, IoBuf::new(BLOCK as usize)).await;
        let read = read.unwrap_or_else(|error| panic!("{what}: block {block}: {error}"));
        assert!(read[..] == content(block, round)[..], "{what}: block {block} is wrong");
    }
}

/// Flips bytes all over what a disk holds of the space: data and checksums. How many blocks were hit.
fn rot(bench: &Bench, pool: &Pool, disk: usize, rng: &mut Rng) -> usize {
    let mut places = Vec::new();
    pool.core.for_each_column(|_, place, row| {
        for copy in row.column(place.column).copies().iter().filter(|copy| copy.id().0 as usize == disk) {
            places.push(copy.start);
        }
    });
    for start in &places {
        for _ in 0..20 {
            let at = start + rng.below(SLAB / BLOCK) * BLOCK + rng.below(BLOCK);
            bench.disks[disk].corrupt(at as usize, &[rng.below(256) as u8, 0x5a]);
        }
    }
    places.len() * 20
}

#[test]
fn damage_on_one_disk_is_never_read_and_is_healed() {
    for (resiliency, columns) in [
        (Resiliency::Mirror(2), 1),
        (Resiliency::Mirror(3), 1),
        (Resiliency::Parity(1), 4),
        (Resiliency::Parity(2), 5),
    ] {
        on_shard(async {
            let bench = Bench::new(5);
            let pool = bench.create().await;
            let space = pool.create_space(spec(resiliency, columns)).await.expect("space");
            fill(&space, 1).await;
            sleep(std::time::Duration::from_secs(30)).await; // checksums on disk
            let mut rng = Rng::new(3);
            let hit = rot(&bench, &pool, 1, &mut rng);
            let what = format!("{resiliency:?}");
            verify(&space, 1, &what).await;
            pool.start_scrub().await.expect("scrub");
            sleep(std::time::Duration::from_secs(60)).await;
            let (status, scrub) = (pool.status(), pool.scrub_status());
            assert!(!scrub.is_running() && scrub.record.bytes >= BYTES, "{what}: {scrub:?}");
            assert_eq!(status.scrubbed_bytes, scrub.record.bytes, "{what}");
            for disk in &status.disks {
                let expected = hit > 0 && disk.record.id.0 == 1;
                assert_eq!(disk.checksum_errors > 0, expected, "{what}: {disk:?}");
                assert_eq!(disk.healed_blocks > 0, expected, "{what}: {disk:?}");
            }
            assert_eq!(pool.check(true).await, Vec::new(), "{what}");
            // And still so after a restart, from what is on the disks alone.
            let guid = pool.guid();
            pool.close().await.expect("close");
            let pool = Pool::open(guid, bench.devices(), OpenOptions::default(), bench.surroundings.clone());
            let pool = pool.await.expect("open");
            verify(&pool.space("s").expect("space"), 1, &what).await;
            assert_eq!(pool.check(true).await, Vec::new(), "{what}");
        });
    }
}

/// Each block ends with the CRC-32C of what precedes it, as file systems' structures do: the older one has the same CRC-32C.
#[test]
fn a_lost_write_is_never_read_whatever_its_blocks_end_with() {
    for (disks, resiliency, columns) in [
        (2, Resiliency::Mirror(2), 1),
        (3, Resiliency::Mirror(3), 1),
        (3, Resiliency::Parity(1), 3),
        (4, Resiliency::Parity(2), 4),
    ] {
        for lossy in 0..disks {
            on_shard(async {
                let bench = Bench::new(disks);
                let pool = bench.create().await;
                let space = pool.create_space(spec(resiliency, columns)).await.expect("space");
                fill(&space, 1).await;
                sleep(std::time::Duration::from_secs(30)).await;
                bench.disks[lossy].lose_from.store(2 << 20, Ordering::SeqCst);
                fill(&space, 2).await;
                bench.disks[lossy].lose_from.store(u64::MAX, Ordering::SeqCst);
                let what = format!("{resiliency:?}, disk {lossy} loses writes");
                verify(&space, 2, &what).await;
            });
        }
    }
}

#[test]
fn checksums_that_have_left_memory_come_back_from_the_disks() {
    for (resiliency, columns) in
        [(Resiliency::Simple, 1), (Resiliency::Mirror(2), 1), (Resiliency::Parity(1), 4)]
    {
        on_shard(async {
            let bench = Bench::new(4);
            let pool = bench.create().await;
            // Two pages; the space has many more.
            pool.set_checksum_memory(4096);
            let space = pool.create_space(spec(resiliency, columns)).await.expect("space");
            for round in 1..3 {
                fill(&space, round).await;
                verify(&space, round, "dirty").await;
                sleep(std::time::Duration::from_secs(30)).await;
                verify(&space, round, "clean").await;
            }
            assert_eq!(pool.check(true).await, Vec::new());
        });
    }
}

#[test]
fn damage_without_a_second_copy_is_an_error_and_never_data() {
    on_shard(async {
        let bench = Bench::new(1);
        let pool = bench.create().await;
        let space = pool.create_space(spec(Resiliency::Simple, 1)).await.expect("space");
        fill(&space, 1).await;
        let mut start = 0;
        pool.core.for_each_column(|_, place, row| {
            if place.row == 0 {
                start = row.column(0).copies()[0].start;
            }
        });
        bench.disks[0].corrupt(start as usize + 5 * 4096 + 17, b"rot");
        let read = space.read(5 * BLOCK, IoBuf::new(BLOCK as usize)).await;
        assert_eq!(read.err().map(|error| error.kind()), Some(BlockErrorKind::Media));
        let findings = pool.check(true).await;
        assert!(findings.iter().any(|finding| finding.structure == "data"), "{findings:?}");
        // Written again it is whole again.
        space.write(5 * BLOCK, content(5, 1), Durability::Durable).await.expect("write");
        verify(&space, 1, "written again").await;
        assert_eq!(pool.check(true).await, Vec::new());
    });
}

#[test]
fn what_is_lost_with_disks_is_calculated_and_made_anew_elsewhere() {
    for (parity, columns) in [(1u8, 3u8), (1, 4), (2, 4), (2, 5)] {
        on_shard(async {
            let bench = Bench::new(usize::from(columns) + usize::from(parity));
            let pool = bench.create().await;
            let space = pool.create_space(spec(Resiliency::Parity(parity), columns)).await.expect("space");
            fill(&space, 1).await;
            let lost: Vec<usize> = (0..usize::from(parity)).collect();
            for disk in &lost {
                bench.disks[*disk].gone.store(true, Ordering::SeqCst);
            }
            let what = format!("{parity} of {columns} columns lost");
            verify(&space, 1, &what).await;
            // Whole stripes and parts of them, without those disks.
            fill(&space, 2).await;
            for block in (3..BYTES / BLOCK).step_by(7) {
                space.write(block * BLOCK, content(block, 3), Durability::Durable).await.expect("write");
                space.write(block * BLOCK, content(block, 2), Durability::Volatile).await.expect("write");
            }
            verify(&space, 2, &what).await;
            for disk in &lost {
                pool.set_disk_use(crate::DiskId(*disk as u32), DiskUse::Retired).await.expect("retire");
            }
            sleep(std::time::Duration::from_secs(60)).await;
            let status = pool.status();
            assert!(status.is_fully_redundant(), "{what}: {status:?}");
            verify(&space, 2, &what).await;
            assert!(pool.check(true).await.iter().all(|finding| finding.structure == "disk"), "{what}");
        });
    }
}

#[test]
fn more_lost_disks_than_parity_cost_availability_and_no_data() {
    on_shard(async {
        let bench = Bench::new(4);
        let pool = bench.create().await;
        let space = pool.create_space(spec(Resiliency::Parity(1), 4)).await.expect("space");
        fill(&space, 1).await;
        for disk in 0..2 {
            bench.disks[disk].gone.store(true, Ordering::SeqCst);
        }
        let mut refused = 0;
        for block in 0..BYTES / BLOCK {
            match space.read(block * BLOCK, IoBuf::new(BLOCK as usize)).await {
                Ok(read) => assert!(read[..] == content(block, 1)[..], "block {block}"),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 0);
        for disk in 0..2 {
            bench.disks[disk].gone.store(false, Ordering::SeqCst);
            if !pool.status().disks[disk].online {
                pool.disk_returned(bench.device(disk)).await.expect("returned");
            }
        }
        verify(&space, 1, "all are back").await;
        sleep(std::time::Duration::from_secs(60)).await;
        assert!(pool.status().is_fully_redundant(), "{:?}", pool.status());
        assert_eq!(pool.check(true).await, Vec::new());
    });
}

/// Where a disk has the slabs of the space, and their checksums.
fn places_on(pool: &Pool, disk: usize) -> Vec<(u64, u64)> {
    let mut places = Vec::new();
    pool.core.for_each_column(|_, place, row| {
        let copies = row.column(place.column).copies();
        let mine = copies.iter().filter(|copy| copy.id().0 as usize == disk);
        places.extend(mine.filter_map(|copy| Some((copy.start, copy.sums_start?))));
    });
    places
}

#[test]
fn rot_beside_damaged_checksums_is_not_taken_for_the_truth() {
    for (parity, columns) in [(1, 4), (2, 5)] {
        for writes in [false, true] {
            on_shard(async {
                let bench = Bench::new(5);
                let pool = bench.create().await;
                let space =
                    pool.create_space(spec(Resiliency::Parity(parity), columns)).await.expect("space");
                fill(&space, 1).await;
                let guid = pool.guid();
                pool.close().await.expect("close");
                let mut rng = Rng::new(5);
                // All pages of one disk, and some of the data that they were of.
                for (start, sums) in places_on(&pool, 1) {
                    for page in 0..SLAB.div_ceil(crate::page::PAGE_SPAN) {
                        bench.disks[1].corrupt((sums + page * BLOCK) as usize + 100, b"rot");
                    }
                    for _ in 0..20 {
                        let at = start + rng.below(SLAB / BLOCK) * BLOCK + rng.below(BLOCK);
                        bench.disks[1].corrupt(at as usize, &[rng.below(256) as u8, 0x5a]);
                    }
                }
                let pool =
                    Pool::open(guid, bench.devices(), OpenOptions::default(), bench.surroundings.clone());
                let pool = pool.await.expect("open");
                let space = pool.space("s").expect("space");
                let what = format!("parity {parity}, written {writes}");
                if writes {
                    // Every third block, before anything is read: parity of the others is calculated on the way.
                    for block in (0..BYTES / BLOCK).step_by(3) {
                        space
                            .write(block * BLOCK, content(block, 2), Durability::Durable)
                            .await
                            .expect("write");
                    }
                }
                for block in 0..BYTES / BLOCK {
                    let round = if writes && block % 3 == 0 { 2 } else { 1 };
                    let read = space.read(block * BLOCK, IoBuf::new(BLOCK as usize)).await.expect("read");
                    assert!(read[..] == content(block, round)[..], "{what}: block {block} is wrong");
                }
                // What nobody reads, as the journal.
                pool.start_scrub().await.expect("scrub");
                sleep(std::time::Duration::from_secs(60)).await;
                let status = pool.status();
                assert!(status.disks[1].healed_blocks > 0, "{what}: {status:?}");
                assert!(status.disks.iter().all(|disk| disk.record.id.0 == 1 || disk.checksum_errors == 0));
                assert_eq!(pool.check(true).await, Vec::new(), "{what}");
            });
        }
    }
}

#[test]
fn damaged_checksums_that_are_in_memory_are_found_by_a_scrub() {
    for (resiliency, columns) in [(Resiliency::Mirror(2), 1), (Resiliency::Parity(1), 4)] {
        on_shard(async {
            let bench = Bench::new(4);
            let pool = bench.create().await;
            let space = pool.create_space(spec(resiliency, columns)).await.expect("space");
            fill(&space, 1).await;
            sleep(std::time::Duration::from_secs(30)).await;
            // All pages are in memory, and on the disks; one of each slab of a disk goes bad there.
            let places = places_on(&pool, 1);
            for (_, sums) in &places {
                bench.disks[1].corrupt(*sums as usize + 100, b"rot");
            }
            let scrubbed = async || {
                pool.start_scrub().await.expect("scrub");
                sleep(std::time::Duration::from_secs(60)).await;
                pool.scrub_status().record.damaged
            };
            let what = format!("{resiliency:?}");
            assert!(!pool.check(true).await.is_empty(), "{what}: a check sees it, too");
            assert!(scrubbed().await >= places.len() as u64, "{what}");
            assert!(
                pool.status().disks.iter().all(|disk| (disk.checksum_errors > 0) == (disk.record.id.0 == 1))
            );
            assert_eq!(scrubbed().await, 0, "{what}");
            assert_eq!(pool.check(true).await, Vec::new(), "{what}");
            // From the disks alone.
            let guid = pool.guid();
            pool.close().await.expect("close");
            let pool = Pool::open(guid, bench.devices(), OpenOptions::default(), bench.surroundings.clone());
            let pool = pool.await.expect("open");
            verify(&pool.space("s").expect("space"), 1, &what).await;
            assert!(pool.status().disks.iter().all(|disk| disk.checksum_errors == 0), "{what}");
        });
    }
}
