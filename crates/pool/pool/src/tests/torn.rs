//! Power that goes while checksums are on their way to the disks: pages are written in place, and cover regions that are
//! clean. What these should be must be known from the other disks, whatever becomes of all that was not flushed.

use std::sync::atomic::Ordering;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, Durability};
use pool_format::{BLOCK, Guid};
use shard_runtime::sleep;

use super::promises::open;
use super::{Bench, SLAB, on_shard};
use crate::{Resiliency, SpaceSpec, clean};

/// A block of the last region of every slab.
const QUIET: u64 = SLAB - BLOCK;
/// What is written anew.
const ANEW: u8 = 0xa5;
/// What the block behind it gets, after the first power cut.
const LATER: u8 = 0x5a;

/// The block that is written anew: its checksum is not in the first 512 bytes of a page, and it is not in the last region.
fn anew(size: u64) -> u64 {
    size / BLOCK / 5 * 4
}

fn content(byte: u8) -> SharedBuf {
    IoBuf::copy_from(&[byte; BLOCK as usize]).freeze()
}

/// Everything that was not flushed is torn: the first 512 bytes of each block are new.
fn tear(bench: &Bench) {
    bench.power.store(u64::MAX, Ordering::SeqCst);
    bench.disks.iter().for_each(|disk| disk.restore_power_torn());
}

/// A space of one row, written and clean, of which one block is written anew; the power goes `cut` writes later.
fn crash_while_cleaning(bench: &Bench, resiliency: Resiliency, columns: u8, cut: u64) -> (Guid, u64) {
    on_shard(async {
        let pool = bench.create().await;
        let mut spec = SpaceSpec::thin("s", resiliency, SLAB);
        (spec.interleave, spec.columns) = (4096, columns);
        let space = pool.create_space(spec).await.expect("space");
        let size = space.size();
        for at in (0..size).step_by(64 << 10) {
            let bytes: Vec<u8> =
                (at / BLOCK..(at + (64 << 10)) / BLOCK).flat_map(|n| [n as u8; BLOCK as usize]).collect();
            space.write(at, IoBuf::copy_from(&bytes).freeze(), Durability::Durable).await.expect("write");
        }
        sleep(super::CLEAN).await; // all clean
        space.write(anew(size) * BLOCK, content(ANEW), Durability::Durable).await.expect("write");
        bench.power.store(cut, Ordering::SeqCst);
        let _ = clean::clean(&pool.core, true).await;
        (pool.guid(), size)
    })
}

/// Whatever rots of one column in a region that was clean all the time, every read is right.
fn one_disk_may_rot(bench: &Bench, (guid, size): (Guid, u64), column: usize, what: &str) {
    on_shard(async {
        let pool = open(bench, guid).await.expect("open");
        let mut at = Vec::new();
        pool.core.for_each_column(|_, place, row| {
            if place.row == 0 {
                at.extend(
                    row.column(place.column).copies().iter().map(|copy| (copy.id().0 as usize, copy.start)),
                );
            }
        });
        let (disk, start) = at[column % at.len()];
        bench.disks[disk].corrupt((start + QUIET) as usize + 7, b"rot");
        let space = pool.space("s").expect("space");
        for number in 0..size / BLOCK {
            let read = space.read(number * BLOCK, IoBuf::new(BLOCK as usize)).await;
            let read = read.unwrap_or_else(|error| panic!("{what}: block {number}: {error}"));
            let expected = match read[0] {
                LATER if number == anew(size) + 1 => LATER,
                _ if number == anew(size) => ANEW,
                _ => number as u8,
            };
            assert!(read.iter().all(|byte| *byte == expected), "{what}: block {number} is wrong");
        }
        pool.start_scrub().await.expect("scrub");
        sleep(super::CLEAN).await;
        assert_eq!(pool.check(true).await, Vec::new(), "{what}");
    });
}

const LAYOUTS: [(Resiliency, u8); 4] = [
    (Resiliency::Mirror(2), 1),
    (Resiliency::Mirror(3), 1),
    (Resiliency::Parity(1), 3),
    (Resiliency::Parity(2), 5),
];

#[test]
fn a_power_cut_tears_one_page_of_those_that_stand_in_for_each_other() {
    for (resiliency, columns) in LAYOUTS {
        for cut in 1..8 {
            for column in 0..5 {
                let bench = Bench::new(5);
                let pool = crash_while_cleaning(&bench, resiliency, columns, cut);
                tear(&bench);
                one_disk_may_rot(
                    &bench,
                    pool,
                    column,
                    &format!("{resiliency:?}, cut at {cut}, column {column}"),
                );
            }
        }
    }
}

#[test]
fn a_page_that_an_earlier_power_cut_has_torn_is_mended_first() {
    for (resiliency, columns) in LAYOUTS {
        for cut in 1..5 {
            for second in 1..10 {
                let bench = Bench::new(5);
                let pool = crash_while_cleaning(&bench, resiliency, columns, cut);
                tear(&bench);
                on_shard(async {
                    let (pool, size) = (open(&bench, pool.0).await.expect("open"), pool.1);
                    // Another one: what a page would say now is not what the sound one says.
                    let space = pool.space("s").expect("space");
                    space
                        .write((anew(size) + 1) * BLOCK, content(LATER), Durability::Durable)
                        .await
                        .expect("write");
                    bench.power.store(second, Ordering::SeqCst);
                    sleep(super::CLEAN).await; // settled, and cleaned
                    let _ = pool.close().await;
                });
                tear(&bench);
                let what = format!("{resiliency:?}, cut at {cut} and {second}");
                one_disk_may_rot(&bench, pool, 0, &what);
            }
        }
    }
}
