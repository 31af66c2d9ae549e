//! What a crash leaves in the journal of a parity space, beside damage and lost disks: what was acknowledged is read.

use std::sync::atomic::Ordering;

use aligned_buffer::{IoBuf, SharedBuf};
use block_conformance::Rng;
use block_device::{BlockDevice, Durability};
use pool_format::{BLOCK, JOURNAL_ANCHORS, JOURNAL_ROW};
use shard_runtime::sleep;

use super::promises::open;
use super::told::warnings;
use super::{Bench, SLAB, on_shard};
use crate::{OpenOptions, Pool, Resiliency, Space, SpaceSpec};

pub(super) const INTERLEAVE: u64 = 8192;
const STRIPES: u64 = 4;

pub(super) fn noise(len: u64, seed: u64) -> SharedBuf {
    let mut rng = Rng::new(seed);
    let bytes: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
    IoBuf::copy_from(&bytes).freeze()
}

pub(super) fn spec(parity: u8) -> SpaceSpec {
    let mut spec = SpaceSpec::thin("s", Resiliency::Parity(parity), 4 * SLAB);
    spec.interleave = INTERLEAVE as u32;
    spec.columns = parity + 3;
    spec
}

/// Where the columns of row 0 lie: disk and start, for each of their copies.
pub(super) fn places(pool: &Pool, row: u32) -> Vec<Vec<(usize, u64)>> {
    let mut places = Vec::new();
    pool.core.for_each_column(|_, place, found| {
        if place.row == row {
            let copies = found.column(place.column).copies();
            places.push(copies.iter().map(|copy| (copy.id().0 as usize, copy.start)).collect());
        }
    });
    places
}

/// The power goes, and nothing that was not durable survives.
pub(super) async fn crash(bench: &Bench, pool: Pool) {
    bench.power.store(0, Ordering::SeqCst);
    drop(pool);
    sleep(std::time::Duration::from_secs(5)).await;
    bench.power.store(u64::MAX, Ordering::SeqCst);
    bench.disks.iter().for_each(|disk| disk.restore_power(|| false));
}

/// Whole stripes over zeros, acknowledged as durable; a crash; then `rotten` columns have a flipped byte in each block of a
/// stripe, and the disks of `absent` ones are away.
fn after(parity: u8, rotten: &[usize], absent: &[usize], partial: bool) {
    on_shard(async {
        let bench = Bench::new(usize::from(parity) + 4);
        let pool = bench.create().await;
        let guid = pool.guid();
        let space = pool.create_space(spec(parity)).await.expect("space");
        let stripe = 3 * INTERLEAVE;
        let mut expected = noise(STRIPES * stripe, 7).to_vec();
        for at in 0..STRIPES {
            let part = &expected[(at * stripe) as usize..((at + 1) * stripe) as usize];
            let data = IoBuf::copy_from(part).freeze();
            space.write(at * stripe, data, Durability::Durable).await.expect("write");
        }
        if partial {
            // A part of the stripe afterwards: its record has parity, too.
            let data = noise(BLOCK, 8);
            expected[stripe as usize..][..BLOCK as usize].copy_from_slice(&data);
            space.write(stripe, data, Durability::Durable).await.expect("write");
        }
        let places = places(&pool, 0);
        drop(space);
        crash(&bench, pool).await;
        for column in rotten {
            for (disk, start) in &places[*column] {
                for block in 0..INTERLEAVE / BLOCK {
                    let at = start + INTERLEAVE + block * BLOCK + 100;
                    bench.disks[*disk].corrupt(at as usize, b"rot");
                }
            }
        }
        let away = || absent.iter().flat_map(|column| &places[*column]).map(|(disk, _)| &bench.disks[*disk]);
        away().for_each(|disk| disk.gone.store(true, Ordering::SeqCst));
        let what = format!("parity {parity}, rotten {rotten:?}, absent {absent:?}, partial {partial}");
        let opened = Pool::open(guid, bench.devices(), OpenOptions::default(), bench.surroundings.clone());
        let pool = opened.await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let space = pool.space("s").expect("space");
        for settled in [false, true] {
            let read = space.read(0, IoBuf::new(expected.len())).await;
            let read = read.unwrap_or_else(|error| panic!("{what}: {error}"));
            for (block, (read, expected)) in
                read.chunks(BLOCK as usize).zip(expected.chunks(BLOCK as usize)).enumerate()
            {
                assert!(read == expected, "{what}, settled {settled}: block {block} is wrong");
            }
            sleep(super::CLEAN).await;
        }
    });
}

#[test]
fn rot_of_a_stripe_that_is_in_the_journal_is_calculated() {
    for partial in [false, true] {
        for column in 0..4 {
            after(1, &[column], &[], partial);
        }
        for column in 0..5 {
            after(2, &[column, (column + 1) % 5], &[], partial);
        }
    }
}

#[test]
fn rot_beside_a_lost_disk_is_no_more_than_dual_parity_survives() {
    for partial in [false, true] {
        for column in 0..5 {
            after(2, &[column], &[(column + 2) % 5], partial);
            after(1, &[], &[column % 4], partial);
            after(2, &[], &[column, (column + 1) % 5], partial);
        }
    }
}

/// How a block is damaged beside a disk that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Rot,
    Unreadable,
}

/// Reads block for block what the stripes must hold: of the first lane of stripe 0 the units in `lost` are an error, never anything
/// else, and all that is not lost is right.
async fn read_beside(space: &Space, data: &[u8], lost: &[usize], what: &str) {
    let per_unit = (INTERLEAVE / BLOCK) as usize;
    for (block, expected) in data.chunks(BLOCK as usize).enumerate() {
        let read = space.read(block as u64 * BLOCK, IoBuf::new(BLOCK as usize)).await;
        let is_lost = block % per_unit == 0 && lost.contains(&(block / per_unit));
        match read {
            Ok(_) if is_lost => panic!("{what}: block {block} is lost, and something is read"),
            Ok(read) => assert!(read[..] == *expected, "{what}: block {block} is wrong"),
            Err(error) => assert!(is_lost, "{what}: block {block}: {error}"),
        }
    }
}

/// More than parity promises to survive: nobody can tell what the stripe was. That is an error, now and after any other start,
/// until it is written anew; the rest is there, and whoever reads the log learns of it.
fn lost_beside(parity: u8, damage: Damage, damaged: &[usize], absent: &[usize]) {
    let what = format!("parity {parity}, {damage:?} of {damaged:?}, absent {absent:?}");
    let stripe = 3 * INTERLEAVE;
    let mut data = noise(STRIPES * stripe, 7).to_vec();
    let (away, told) = warnings(|| {
        on_shard(async {
            let bench = Bench::new(usize::from(parity) + 4);
            let pool = bench.create().await;
            let guid = pool.guid();
            let space = pool.create_space(spec(parity)).await.expect("space");
            space.write(0, IoBuf::copy_from(&data).freeze(), Durability::Durable).await.expect("write");
            let places = places(&pool, 0);
            drop(space);
            crash(&bench, pool).await;
            for column in damaged {
                let (disk, start) = places[*column][0];
                match damage {
                    Damage::Rot => bench.disks[disk].corrupt(start as usize + 100, b"rot"),
                    Damage::Unreadable => bench.disks[disk].fail_reads_at.store(start, Ordering::SeqCst),
                }
            }
            let away: Vec<usize> = absent.iter().map(|column| places[*column][0].0).collect();
            away.iter().for_each(|disk| bench.disks[*disk].gone.store(true, Ordering::SeqCst));
            // Stripe 0 has its data in columns 0 to 2.
            let lost: Vec<usize> =
                damaged.iter().chain(absent).copied().filter(|column| *column < 3).collect();
            for start in ["opened", "started again", "killed", "killed again"] {
                let what = format!("{what}, {start}");
                let pool = open(&bench, guid).await.unwrap_or_else(|error| panic!("{what}: {error}"));
                let space = pool.space("s").unwrap_or_else(|| panic!("{what}: the space is closed"));
                for _ in 0..2 {
                    read_beside(&space, &data, &lost, &what).await;
                    sleep(super::CLEAN).await;
                }
                if start == "killed" {
                    // In another region than the lost blocks, so that what the journal has next is replayed beside them.
                    let at = 3 * stripe;
                    let new = noise(stripe, 11);
                    data[at as usize..].copy_from_slice(&new);
                    space.write(at, new, Durability::Durable).await.expect("write");
                }
                if start == "killed again" {
                    let new = noise(stripe, 9);
                    data[..stripe as usize].copy_from_slice(&new);
                    space.write(0, new, Durability::Durable).await.expect("a whole stripe");
                    read_beside(&space, &data, &[], &format!("{what}, written")).await;
                }
                drop(space);
                match start {
                    "opened" => pool.close().await.expect("close"),
                    _ => crash(&bench, pool).await,
                }
            }
            let pool = open(&bench, guid).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let space = pool.space("s").expect("space");
            read_beside(&space, &data, &[], &format!("{what}, written and killed")).await;
            away
        })
    });
    let bytes = damaged.iter().chain(absent).filter(|column| **column < 3).count() as u64 * BLOCK;
    if bytes > 0 {
        let about =
            format!("{bytes} bytes of stripes that were first written just before the crash are lost");
        let line = told.iter().find(|line| line.contains(&about));
        let line = line.unwrap_or_else(|| panic!("{what}: {told:#?}"));
        away.iter().for_each(|disk| assert!(line.contains(&format!("disk {disk}")), "{what}: {line}"));
    }
}

/// A power cut tears a stripe while a disk is missing: what was not acknowledged may be lost, and nothing becomes an error of it.
#[test]
fn a_torn_stripe_beside_a_lost_disk_stays_readable() {
    for column in 0..4 {
        for absent in (0..4).filter(|absent| *absent != column) {
            let ((), told) = warnings(|| {
                on_shard(async {
                    let bench = Bench::new(5);
                    let pool = bench.create().await;
                    let guid = pool.guid();
                    let space = pool.create_space(spec(1)).await.expect("space");
                    space.write(0, noise(3 * INTERLEAVE, 7), Durability::Volatile).await.expect("write");
                    let places = places(&pool, 0);
                    drop(space);
                    // Of what is in the disks' caches all survives but one sector of one block.
                    bench.power.store(0, Ordering::SeqCst);
                    drop(pool);
                    sleep(std::time::Duration::from_secs(5)).await;
                    bench.power.store(u64::MAX, Ordering::SeqCst);
                    bench.disks.iter().for_each(|disk| disk.restore_power(|| true));
                    let (torn, start) = places[column][0];
                    bench.disks[torn].corrupt(start as usize + 1024, &[0; 512]);
                    let (away, _) = places[absent][0];
                    bench.disks[away].gone.store(true, Ordering::SeqCst);
                    let pool = open(&bench, guid).await.expect("open");
                    let space = pool.space("s").expect("space");
                    space.read(0, IoBuf::new(3 * INTERLEAVE as usize)).await.expect("read");
                    bench.disks[away].gone.store(false, Ordering::SeqCst);
                    pool.disk_returned(bench.device(away)).await.expect("returned");
                    sleep(super::CLEAN).await;
                    assert!(pool.status().is_fully_redundant(), "{column}, {absent}: {:?}", pool.status());
                    assert_eq!(pool.check(true).await, Vec::new(), "{column}, {absent}");
                })
            });
            let known = told.iter().any(|line| line.contains("whose first write the crash has torn"));
            assert_eq!(known, absent < 3, "{column}, {absent}: {told:#?}");
        }
    }
}

#[test]
fn rot_beside_a_lost_disk_is_told_when_it_is_too_much() {
    for damage in [Damage::Rot, Damage::Unreadable] {
        for column in 0..4 {
            for other in (0..4).filter(|other| *other != column) {
                lost_beside(1, damage, &[column], &[other]);
            }
        }
    }
    lost_beside(2, Damage::Rot, &[0, 1], &[2]);
    lost_beside(2, Damage::Rot, &[1], &[0, 3]);
    lost_beside(2, Damage::Unreadable, &[4], &[0, 2]);
}

/// What was zeroed is not durable yet when whole stripes are written over it, and the power takes both back: with a disk missing,
/// too, everything is what it was at some time, and nothing is an error.
#[test]
fn a_stripe_over_zeros_that_a_crash_takes_back_stays_readable() {
    for absent in 0..4 {
        on_shard(async {
            let bench = Bench::new(5);
            let pool = bench.create().await;
            let guid = pool.guid();
            let space = pool.create_space(spec(1)).await.expect("space");
            let bytes = STRIPES * 3 * INTERLEAVE;
            let (old, new) = (noise(bytes, 7), noise(bytes, 8));
            space.write(0, old.clone(), Durability::Durable).await.expect("write");
            sleep(super::CLEAN).await; // clean
            space.write_zeroes(0, bytes, Durability::Volatile).await.expect("zeroed");
            space.write(0, new.clone(), Durability::Volatile).await.expect("write");
            let places = places(&pool, 0);
            drop(space);
            crash(&bench, pool).await;
            let (disk, _) = places[absent][0];
            bench.disks[disk].gone.store(true, Ordering::SeqCst);
            let pool = open(&bench, guid).await.expect("open");
            let space = pool.space("s").expect("space");
            let blocks = old.chunks(BLOCK as usize).zip(new.chunks(BLOCK as usize));
            for (index, (old, new)) in blocks.enumerate() {
                let read = space.read(index as u64 * BLOCK, IoBuf::new(BLOCK as usize)).await;
                let read =
                    read.unwrap_or_else(|error| panic!("column {absent} away, block {index}: {error}"));
                let known = read[..] == *old || read[..] == *new || read.iter().all(|byte| *byte == 0);
                assert!(known, "column {absent} away, block {index} is none of what it was");
            }
        });
    }
}

/// One copy of the journal announces another length of a record: the others have it.
#[test]
fn a_damaged_head_in_one_copy_of_the_journal_does_not_end_it() {
    for copy in 0..2 {
        on_shard(async {
            let bench = Bench::new(5);
            let pool = bench.create().await;
            let guid = pool.guid();
            let space = pool.create_space(spec(1)).await.expect("space");
            let stripe = 3 * INTERLEAVE;
            let old = noise(2 * stripe, 1);
            space.write(0, old.clone(), Durability::Durable).await.expect("write");
            sleep(super::CLEAN).await; // the journal is empty
            let journal = places(&pool, JOURNAL_ROW);
            let columns = places(&pool, 0);
            // In the journal and nowhere else.
            let new = noise(BLOCK, 2);
            space.write(0, new.clone(), Durability::Durable).await.expect("write");
            let before: Vec<u8> = old[..BLOCK as usize].to_vec();
            drop(space);
            crash(&bench, pool).await;
            let (disk, start) = columns[0][0];
            bench.disks[disk].corrupt(start as usize, &before);
            let (disk, start) = journal[0][copy];
            for block in JOURNAL_ANCHORS..SLAB / BLOCK {
                // How many blocks its head has.
                bench.disks[disk].corrupt((start + block * BLOCK) as usize + 32, &[0xff, 0xff, 0xff, 0x7f]);
            }
            let opened =
                Pool::open(guid, bench.devices(), OpenOptions::default(), bench.surroundings.clone());
            let pool = opened.await.expect("open");
            let space = pool.space("s").expect("space");
            let read = space.read(0, IoBuf::new(BLOCK as usize)).await.expect("read");
            assert!(read[..] == new[..], "copy {copy}");
        });
    }
}

/// What happens after two disks have gone at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// The power goes, and everything is there at the opening.
    Opened,
    /// They come back to the running pool, without what they had in their caches.
    Returned,
    /// The same, and one of them goes once more, without its cache, as soon as it has been given what the journal has for it.
    ReturnedTwice,
    /// The power goes, and they come back to the pool that was opened without them.
    OpenedWithout,
    /// The same, and the pool is opened twice without them.
    OpenedTwiceWithout,
}

/// Two disks of a stripe go at once, with a write in their caches that was acknowledged and not flushed. What the others hold of it
/// becomes durable. Only the journal can make the stripe whole; what had been in it before is kept.
fn two_go_at_once(then: Then) {
    // The columns that go beside the one that is written: data and parity, either first.
    let mut went_again = 0;
    for away in [[1, 3], [3, 1], [1, 2], [0, 1], [1, 0], [0, 2], [0, 3], [3, 0], [3, 2]] {
        on_shard(async {
            let bench = Bench::new(5);
            let mut pool = bench.create().await;
            let guid = pool.guid();
            let space = pool.create_space(spec(1)).await.expect("space");
            let old = noise(3 * INTERLEAVE, 1);
            space.write(0, old.clone(), Durability::Durable).await.expect("write");
            sleep(super::CLEAN).await;
            let new = noise(INTERLEAVE, 2);
            space.write(0, new.clone(), Durability::Volatile).await.expect("write");
            let places = places(&pool, 0);
            let mut disks = away.map(|column: usize| places[column][0].0);
            for disk in disks {
                bench.disks[disk].gone.store(true, Ordering::SeqCst);
                pool.disk_lost(crate::DiskId(disk as u32), "pulled").await.expect("told");
            }
            let _ = crate::upkeep::tidy_journals(&pool.core, true).await;
            drop(space);
            if then == Then::ReturnedTwice {
                // The first that went counts as lacking the region; the other one is what is waited for.
                disks.reverse();
            }
            let back = async |pool: &Pool| {
                for disk in disks {
                    bench.disks[disk].gone.store(false, Ordering::SeqCst);
                    pool.disk_returned(bench.device(disk)).await.expect("returned");
                    sleep(super::CLEAN).await;
                }
            };
            if matches!(then, Then::Returned | Then::ReturnedTwice) {
                disks.iter().for_each(|disk| bench.disks[*disk].restore_power(|| false));
                if then == Then::ReturnedTwice {
                    let disk = &bench.disks[disks[0]];
                    disk.gone.store(false, Ordering::SeqCst);
                    disk.fail_flush_from.store(places[away[1]][0].1, Ordering::SeqCst);
                    let _ = pool.disk_returned(bench.device(disks[0])).await;
                    sleep(super::CLEAN).await;
                    disk.gone.store(true, Ordering::SeqCst);
                    let failed = disk.fail_flush.swap(false, Ordering::SeqCst);
                    went_again += u32::from(failed);
                    disk.fail_flush_from.store(u64::MAX, Ordering::SeqCst);
                    disk.restore_power(|| false);
                    let _ = pool.disk_lost(crate::DiskId(disks[0] as u32), "pulled").await;
                }
                back(&pool).await;
            } else {
                crash(&bench, pool).await;
                if then == Then::OpenedTwiceWithout {
                    let without = open(&bench, guid).await.expect("open");
                    sleep(super::CLEAN).await;
                    crash(&bench, without).await;
                }
                if then == Then::Opened {
                    bench.disks.iter().for_each(|disk| disk.gone.store(false, Ordering::SeqCst));
                }
                pool = open(&bench, guid).await.expect("open");
                if then != Then::Opened {
                    sleep(super::CLEAN).await;
                    back(&pool).await;
                }
            }
            let space = pool.space("s").expect("space");
            let read = space.read(0, IoBuf::new(3 * INTERLEAVE as usize)).await.expect("read");
            let (first, rest) = read.split_at(INTERLEAVE as usize);
            assert!(first == &new[..] || first == &old[..INTERLEAVE as usize], "{away:?}");
            assert!(rest == &old[INTERLEAVE as usize..], "{away:?}: what was there before");
            // And it is as redundant as before.
            sleep(super::CLEAN).await;
            assert_eq!(pool.check(true).await, Vec::new(), "{away:?}");
            // What may have been lost is told of once: by a flush here, or closing would.
            let _ = space.flush().await;
            drop(space);
            pool.close().await.expect("close");
        });
    }
    // (Not where the journal itself is on the disks that are away.)
    assert_eq!(went_again > 0, then == Then::ReturnedTwice);
}

#[test]
fn the_journal_is_kept_while_more_disks_are_away_than_parity_makes_up_for() {
    two_go_at_once(Then::Opened);
}

#[test]
fn stripes_of_two_disks_that_come_back_without_their_caches_are_made_whole() {
    two_go_at_once(Then::Returned);
}

#[test]
fn a_disk_that_goes_again_while_it_is_brought_back_is_not_believed() {
    two_go_at_once(Then::ReturnedTwice);
}

#[test]
fn an_opening_without_two_disks_keeps_what_the_journal_has_for_them() {
    two_go_at_once(Then::OpenedWithout);
    two_go_at_once(Then::OpenedTwiceWithout);
}
