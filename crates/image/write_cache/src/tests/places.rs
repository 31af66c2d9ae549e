//! What lies where, and what it costs.

use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice as _, BlockErrorKind, Durability};
use test_layers::{Left, until_wait};

use super::{MIB, Rig, base, holds, is_untouched, of_base, put, run, try_put};
use crate::block::{BLOCK_COST, SLAB_COST, SLAB_ENTRY_COST};
use crate::{BLOCK, Budget, Options, PAGE, SLAB, WriteCache, index_bytes, least_ram};

#[test]
fn writes_here_and_there_take_a_slab_each_and_a_disk_that_is_discarded_nothing() {
    run(async {
        let budget = Budget::new(64 * MIB);
        let base = base(64 * MIB).await;
        let cache = WriteCache::new(base.clone(), &budget, Options::ram(32 * MIB)).expect("room");
        for block in 0..4 {
            put(&cache, block * BLOCK, PAGE, 1).await;
        }
        assert_eq!(cache.status().ram_bytes, 4 * (SLAB_COST + SLAB_ENTRY_COST + BLOCK_COST));
        put(&cache, 0, BLOCK, 2).await;
        let filled = 32 * (SLAB_COST + SLAB_ENTRY_COST) + BLOCK_COST;
        assert_eq!(cache.status().ram_bytes, filled + 3 * (SLAB_COST + SLAB_ENTRY_COST + BLOCK_COST));
        // What is known of memory that is filled is less than 0.2 % of it.
        assert!((filled - BLOCK) * 500 < BLOCK);
        cache.write_zeroes(0, 64 * MIB, Durability::Volatile).await.expect("zeroed");
        assert_eq!(cache.status().ram_bytes, 0);
        holds(&cache, 0, 64 * MIB, |_| 0).await;
        is_untouched(&base).await;
        let status = cache.status();
        assert_eq!((status.absorbed_writes, status.absorbed_bytes), (5, 4 * PAGE + BLOCK));
        assert_eq!((status.read_base_bytes, status.overflow_bytes), (0, 0));
    });
}

#[test]
fn without_an_overflow_file_a_full_cache_refuses_clearly_and_goes_on_when_there_is_room() {
    run(async {
        let budget = Budget::new(2 * MIB);
        let options = Options { patience: Duration::from_secs(2), ..Options::ram(MIB) };
        let cache = WriteCache::new(base(8 * MIB).await, &budget, options).expect("room");
        let mut written = 0;
        let error = loop {
            let data = IoBuf::copy_from(&[7; SLAB as usize]).freeze();
            match cache.write(written * SLAB, data, Durability::Volatile).await {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert_eq!((written, error.kind()), (15, BlockErrorKind::NoSpace));
        let why = std::error::Error::source(&error).expect("why").to_string();
        assert_eq!(why, "all the memory that it may have is in use, and it has no overflow file");
        holds(&cache, 0, 15 * SLAB, |_| 7).await;
        holds(&cache, 15 * SLAB, MIB, of_base).await;
        let status = cache.status();
        assert_eq!((status.refused, status.waited), (1, 1));
        // What has memory already is written all the same.
        put(&cache, 0, 15 * SLAB, 8).await;
        cache.unmap(0, SLAB).await.expect("discarded");
        put(&cache, 4 * MIB, PAGE, 9).await;
        assert!(cache.status().ram_high_bytes <= MIB);
    });
}

#[test]
fn what_leaves_memory_is_the_least_recently_used_in_large_writes() {
    run(async {
        let rig = Rig::new(32 * MIB, 5 * MIB, 1 << 30).await;
        put(&rig.cache, 0, BLOCK, 1).await;
        put(&rig.cache, BLOCK, BLOCK, 2).await;
        // Read, and so used after the second.
        holds(&rig.cache, 0, BLOCK, |_| 1).await;
        rig.cache.inner().evict_here().await.expect("left");
        let writes = rig.file.writes.load(Ordering::SeqCst);
        assert_eq!((writes, rig.cache.status().overflow_written_bytes), (1, BLOCK));
        assert_eq!(rig.cache.status().overflow_bytes, BLOCK);
        holds(&rig.cache, 0, BLOCK, |_| 1).await;
        assert_eq!(rig.cache.status().read_overflow_bytes, 0, "what was used last left");
        holds(&rig.cache, BLOCK, BLOCK, |_| 2).await;
        let status = rig.cache.status();
        assert_eq!((status.read_overflow_bytes, status.read_base_bytes), (BLOCK, 0));
        // Scattered slabs of many blocks leave by one write, too.
        rig.cache.inner().evict_here().await.expect("left");
        for block in 2..16 {
            put(&rig.cache, block * BLOCK + SLAB, PAGE, 3).await;
        }
        let before = rig.file.writes.load(Ordering::SeqCst);
        rig.cache.inner().evict_here().await.expect("left");
        assert_eq!(rig.file.writes.load(Ordering::SeqCst), before + 1);
        // Discarded, the volume of the file has its space again.
        rig.cache.unmap(0, 32 * MIB).await.expect("discarded");
        assert_eq!(rig.cache.status().overflow_bytes, 0);
        assert_eq!(rig.file.punched.load(Ordering::SeqCst), 2 * BLOCK + 14 * SLAB);
    });
}

#[test]
fn a_slot_is_not_used_again_while_it_is_read() {
    run(async {
        let rig = Rig::new(8 * MIB, 5 * MIB, 1 << 30).await;
        put(&rig.cache, 0, BLOCK, 1).await;
        rig.cache.inner().evict_here().await.expect("left");
        rig.file.slow.store(true, Ordering::SeqCst);
        let mut reading = rig.cache.read(0, IoBuf::new(BLOCK as usize));
        assert!(futures_util::poll!(reading.as_mut()).is_pending());
        rig.file.slow.store(false, Ordering::SeqCst);
        // Its pages are others now, and so are those that leave next.
        put(&rig.cache, 0, BLOCK, 2).await;
        put(&rig.cache, BLOCK, BLOCK, 3).await;
        for _ in 0..2 {
            rig.cache.inner().evict_here().await.expect("left");
        }
        let read = reading.await.expect("read");
        assert!(read.iter().all(|byte| *byte == 1), "{:?}", read.iter().find(|byte| **byte != 1));
        holds(&rig.cache, 0, 2 * BLOCK, |at| if at < BLOCK { 2 } else { 3 }).await;
    });
}

/// Dropped at each of its waits, nothing is lost of what was there, and nothing stays taken.
#[test]
fn requests_can_be_dropped_at_each_wait() {
    run(async {
        for what in 0..3 {
            for point in 0.. {
                let rig = Rig::new(6 * MIB, 3 * MIB, 1 << 30).await;
                put(&rig.cache, 0, 2 * MIB, 1).await;
                put(&rig.cache, 2 * MIB, 2 * MIB, 2).await;
                let ended = {
                    let data = IoBuf::copy_from(&[3; (2 * MIB + 512) as usize]).freeze();
                    let work = async {
                        match what {
                            0 => rig.cache.write(MIB + 512, data, Durability::Volatile).await,
                            1 => rig.cache.unmap(MIB + 512, 2 * MIB).await,
                            _ => rig.cache.read(0, IoBuf::new((4 * MIB) as usize)).await.map(drop),
                        }
                    };
                    let mut work = std::pin::pin!(work);
                    match until_wait(point, work.as_mut()).await {
                        Left::Ended(ended) => {
                            ended.expect("done");
                            true
                        }
                        Left::Waiting => false,
                        Left::ForEver => panic!("{what} waits for ever at {point}"),
                    }
                };
                let old = |at: u64| if at < 2 * MIB { 1 } else { 2 };
                holds(&rig.cache, 0, MIB, old).await;
                let read = rig.cache.read(MIB, IoBuf::new((3 * MIB) as usize)).await.expect("read");
                for (byte, at) in read.iter().zip(MIB..) {
                    let new = [3, 0, old(at)][what];
                    assert!(
                        *byte == old(at) || *byte == new && at >= MIB + 512,
                        "{what} {point} {at}: {byte}"
                    );
                }
                // The same pages can be changed, and all memory had.
                assert_eq!(try_put(&rig.cache, 0, 6 * MIB, 4).await, Ok(()));
                holds(&rig.cache, 0, 6 * MIB, |_| 4).await;
                rig.cache.unmap(0, 6 * MIB).await.expect("discarded");
                assert_eq!(rig.budget.used(), 0, "{what} at {point}");
                if ended {
                    break;
                }
            }
        }
    });
}

#[test]
fn the_index_of_a_disk_that_is_all_held_takes_what_is_said_and_least_ram_is_enough() {
    run(async {
        let size = 40 * BLOCK + SLAB;
        let rig = Rig::new(size, 8 * MIB, 1 << 30).await;
        for at in (0..size).step_by(SLAB as usize) {
            put(&rig.cache, at, 4096, 1).await;
        }
        while rig.cache.inner().evict_here().await.expect("left") > 0 {}
        // The last block has one slab only.
        let last = 31 * 24;
        assert_eq!(rig.cache.inner().index_bytes(), index_bytes(size) - last);
        assert_eq!(rig.cache.status().ram_bytes, index_bytes(size) - last);
        // Data is told from the index, and is taken from it again.
        put(&rig.cache, 0, BLOCK, 2).await;
        assert_eq!(rig.cache.inner().index_bytes(), index_bytes(size) - last);
        rig.cache.unmap(0, size).await.expect("discarded");
        assert_eq!((rig.cache.inner().index_bytes(), rig.cache.status().ram_bytes), (0, 0));
        assert_eq!(least_ram(size), index_bytes(size) + 8 * MIB);
    });
}

#[test]
fn a_write_that_finds_memory_full_of_index_says_so() {
    run(async {
        let size = 24 * BLOCK;
        // One slab of data beside 20 blocks with one slab each.
        let ram = 20 * 184 + 65552;
        let rig = Rig::new(size, ram, 1 << 30).await;
        let mut written = 0;
        let error = loop {
            let data = IoBuf::zeroed(4096).freeze();
            match rig.cache.write(written * BLOCK, data, Durability::Volatile).await {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(written, 20);
        let why = std::error::Error::source(&error).expect("why").to_string();
        assert!(why.contains(": 3680 of 69232 bytes by what it knows of"), "{why}");
    });
}
