//! Stripes that two disks were missing from are made whole when one of them is back, and the power goes meanwhile or after: each
//! block is what it was or what was written, and is read, with the other disk still missing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Durability};
use pool_format::{BLOCK, Guid};
use shard_runtime::sleep;

use super::promises::open;
use super::replays::{INTERLEAVE, noise, places, spec};
use super::{Bench, on_shard};
use crate::{DiskId, Pool};

const STRIPE: u64 = 3 * INTERLEAVE;

/// A pool with a row of zeros, clean, and the disks of its columns.
async fn zeros(bench: &Bench) -> (Pool, Vec<usize>) {
    let pool = bench.create().await;
    let space = pool.create_space(spec(1)).await.expect("space");
    // Far from the first stripe, so that its region stays clean.
    space.write(64 * STRIPE, noise(STRIPE, 1), Durability::Durable).await.expect("write");
    sleep(Duration::from_secs(30)).await;
    let disks = places(&pool, 0).into_iter().map(|copies| copies[0].0).collect();
    (pool, disks)
}

/// Takes the disks away with their caches, which are lost.
async fn take_away(bench: &Bench, pool: &Pool, away: [usize; 2]) {
    for disk in away {
        let _ = pool.disk_lost(DiskId(disk as u32), "pulled").await;
    }
    away.iter().for_each(|disk| bench.disks[*disk].restore_power(|| false));
}

async fn lose_power(bench: &Bench, pool: Pool, keep: bool) {
    bench.power.store(0, Ordering::SeqCst);
    drop(pool);
    sleep(Duration::from_secs(5)).await;
    bench.power.store(u64::MAX, Ordering::SeqCst);
    bench.disks.iter().for_each(|disk| disk.restore_power(|| keep));
}

/// Each block of the first stripe is zeros or of `new`.
async fn is_old_or_new(bench: &Bench, guid: Guid, new: &[u8], what: &str) {
    let pool = open(bench, guid).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    let space = pool.space("s").unwrap_or_else(|| panic!("{what}: the space is closed"));
    let mut first = Vec::new();
    for _ in 0..2 {
        let mut read = Vec::new();
        for (at, new) in (0..STRIPE).step_by(BLOCK as usize).zip(new.chunks(BLOCK as usize)) {
            let block = space.read(at, IoBuf::new(BLOCK as usize)).await;
            let block = block.unwrap_or_else(|error| panic!("{what}: at {at}: {error}"));
            assert!(block[..] == *new || block.iter().all(|byte| *byte == 0), "{what}: at {at} is wrong");
            read.extend_from_slice(&block);
        }
        assert!(first.is_empty() || first == read, "{what}: it was something else before");
        first = read;
        sleep(Duration::from_secs(60)).await;
    }
}

/// A write failed half-way, and is made again from memory when a disk is back; the power goes meanwhile.
#[test]
fn a_power_cut_while_a_failed_write_is_made_again() {
    for (absent, back) in [(0, 3), (0, 1), (2, 3), (3, 1)] {
        for keep in [true, false] {
            for cut in 1..32 {
                on_shard(async {
                    let what = format!("{absent} stays away, {back} is back, keep {keep}, cut at {cut}");
                    let bench = Bench::new(5);
                    let (pool, disks) = zeros(&bench).await;
                    let (guid, new) = (pool.guid(), noise(STRIPE, 7));
                    let away = [disks[absent], disks[back]];
                    away.iter().for_each(|disk| bench.disks[*disk].gone.store(true, Ordering::SeqCst));
                    let space = pool.space("s").expect("space");
                    space.write(0, new.clone(), Durability::Durable).await.expect_err("two are away");
                    drop(space);
                    take_away(&bench, &pool, away).await;
                    bench.disks[disks[back]].gone.store(false, Ordering::SeqCst);
                    bench.power.store(cut, Ordering::SeqCst);
                    let _ = pool.disk_returned(bench.device(disks[back])).await;
                    sleep(Duration::from_secs(60)).await;
                    lose_power(&bench, pool, keep).await;
                    is_old_or_new(&bench, guid, &new, &what).await;
                });
            }
        }
    }
}

/// A write was acknowledged and in the caches of disks that went. When one of these is back without it, what the other had is taken
/// for what was there before: that stays so after a power cut.
#[test]
fn what_was_decided_of_a_stripe_stays_decided() {
    for (absent, back) in [(0, 3), (1, 3), (2, 3), (0, 1), (1, 2), (3, 0)] {
        on_shard(async {
            let what = format!("{absent} stays away, {back} is back");
            let bench = Bench::new(5);
            let (pool, disks) = zeros(&bench).await;
            let (guid, new) = (pool.guid(), noise(STRIPE, 7));
            let space = pool.space("s").expect("space");
            space.write(0, new.clone(), Durability::Volatile).await.expect("write");
            drop(space);
            let away = [disks[absent], disks[back]];
            away.iter().for_each(|disk| bench.disks[*disk].gone.store(true, Ordering::SeqCst));
            take_away(&bench, &pool, away).await;
            bench.disks[disks[back]].gone.store(false, Ordering::SeqCst);
            pool.disk_returned(bench.device(disks[back])).await.expect("returned");
            sleep(Duration::from_millis(1500)).await;
            lose_power(&bench, pool, true).await;
            is_old_or_new(&bench, guid, &new, &what).await;
        });
    }
}
