//! An overflow file whose volume is full, gone, or slow.

use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice as _, BlockErrorKind, Durability};
use file_store::OpenFile as _;

use super::{MIB, Rig, holds, is_untouched, of_base, put, run, try_put};
use crate::{BLOCK, SLAB};

/// Fills memory until a write is refused; how many slabs were written.
async fn fill(rig: &Rig, fill: u8) -> u64 {
    for slab in 0.. {
        match try_put(&rig.cache, slab * SLAB, SLAB, fill).await {
            Ok(()) => {}
            Err(kind) => {
                assert_eq!(kind, BlockErrorKind::NoSpace);
                return slab;
            }
        }
    }
    0
}

#[test]
fn what_a_full_volume_does_not_take_stays_in_memory_and_writers_wait() {
    run(async {
        let rig = Rig::new(32 * MIB, 5 * MIB, 1 << 30).await;
        rig.file.no_space.store(true, Ordering::SeqCst);
        let written = fill(&rig, 1).await;
        assert!((70..80).contains(&written), "{written}");
        holds(&rig.cache, 0, written * SLAB, |_| 1).await;
        holds(&rig.cache, written * SLAB, MIB, of_base).await;
        let status = rig.cache.status();
        assert_eq!((status.overflow_bytes, status.refused, status.overflow_is_full), (0, 1, false));
        let problem = status.problem.expect("told");
        assert!(problem.contains("no space left"), "{problem}");
        let error = rig.cache.write(30 * MIB, IoBuf::zeroed(4096).freeze(), Durability::Volatile).await;
        let why = std::error::Error::source(&error.expect_err("full")).expect("why").to_string();
        assert!(
            why.contains("nothing goes to its overflow file: write overflow file: no space left"),
            "{why}"
        );
        // One that waits goes on as soon as there is space again.
        let waits = try_put(&rig.cache, 20 * MIB, MIB, 2);
        let mends = async {
            shard_runtime::sleep(Duration::from_secs(5)).await;
            rig.file.no_space.store(false, Ordering::SeqCst);
        };
        let (done, ()) = futures_util::future::join(waits, mends).await;
        assert_eq!(done, Ok(()));
        assert_eq!(rig.cache.status().problem, None);
        holds(&rig.cache, 0, written * SLAB, |_| 1).await;
        holds(&rig.cache, 20 * MIB, MIB, |_| 2).await;
        is_untouched(&rig.base).await;
    });
}

#[test]
fn a_file_takes_no_more_than_it_may() {
    run(async {
        let rig = Rig::new(64 * MIB, 5 * MIB, 3 * MIB).await;
        let written = fill(&rig, 1).await;
        let status = rig.cache.status();
        assert_eq!((status.overflow_bytes, status.overflow_is_full), (3 * MIB, true));
        // What is in the file, and what fills the memory.
        assert!((48 + 70..48 + 80).contains(&written), "{written}");
        holds(&rig.cache, 0, written * SLAB, |_| 1).await;
        assert_eq!(rig.file.size(), 3 * MIB);
        // What is discarded is room again.
        rig.cache.unmap(0, 4 * MIB).await.expect("discarded");
        put(&rig.cache, 40 * MIB, 2 * MIB, 2).await;
        holds(&rig.cache, 40 * MIB, 2 * MIB, |_| 2).await;
        assert!(rig.file.size() <= 3 * MIB);
    });
}

#[test]
fn of_a_volume_that_is_gone_nothing_is_guessed() {
    run(async {
        let rig = Rig::new(32 * MIB, 5 * MIB, 1 << 30).await;
        put(&rig.cache, 0, BLOCK, 1).await;
        put(&rig.cache, BLOCK, BLOCK, 2).await;
        rig.cache.inner().evict_here().await.expect("left");
        rig.file.gone.store(true, Ordering::SeqCst);
        // The one that is in the file cannot be read, nor a part of one of its pages written.
        let read = rig.cache.read(0, IoBuf::new(4096)).await;
        assert_eq!(read.map(drop).map_err(|error| error.kind()), Err(BlockErrorKind::Gone));
        assert_eq!(try_put(&rig.cache, 512, 512, 9).await, Err(BlockErrorKind::Gone));
        // The one in memory can, and so can the base, and whole pages are written over what is gone.
        holds(&rig.cache, BLOCK, BLOCK, |_| 2).await;
        holds(&rig.cache, 8 * MIB, MIB, of_base).await;
        put(&rig.cache, 0, SLAB, 3).await;
        holds(&rig.cache, 0, SLAB, |_| 3).await;
        assert!(rig.cache.inner().evict_here().await.is_err());
        assert!(rig.cache.status().problem.is_some());
        holds(&rig.cache, BLOCK, BLOCK, |_| 2).await;
        rig.file.gone.store(false, Ordering::SeqCst);
        holds(&rig.cache, 0, 2 * BLOCK, |at| match at {
            at if at < SLAB => 3,
            at if at < BLOCK => 1,
            _ => 2,
        })
        .await;
        rig.cache.inner().evict_here().await.expect("left");
        assert_eq!(rig.cache.status().problem, None);
    });
}

#[test]
fn a_slow_volume_makes_writers_wait_and_nothing_else() {
    run(async {
        let rig = Rig::new(32 * MIB, 5 * MIB, 1 << 30).await;
        rig.file.slow.store(true, Ordering::SeqCst);
        for block in 0..12 {
            put(&rig.cache, block * BLOCK, BLOCK, block as u8 + 1).await;
            assert!(rig.budget.used() <= rig.budget.total());
        }
        holds(&rig.cache, 0, 12 * BLOCK, |at| (at / BLOCK) as u8 + 1).await;
        assert_eq!(rig.cache.status().refused, 0);
    });
}

#[test]
fn a_write_waits_as_long_as_it_may_and_no_longer_whatever_the_file_does() {
    run(async {
        for hangs in [false, true] {
            let rig = Rig::new(32 * MIB, 5 * MIB, 1 << 30).await;
            rig.file.no_space.store(true, Ordering::SeqCst);
            fill(&rig, 1).await;
            // Each try takes 5 seconds and fails, or goes on for longer than anybody waits.
            rig.file.no_space.store(false, Ordering::SeqCst);
            rig.file.slow.store(!hangs, Ordering::SeqCst);
            rig.file.hangs.store(hangs, Ordering::SeqCst);
            rig.file.gone.store(true, Ordering::SeqCst);
            let began = tokio::time::Instant::now();
            assert_eq!(try_put(&rig.cache, 30 * MIB, SLAB, 2).await, Err(BlockErrorKind::NoSpace));
            // In virtual time, of which a timer has a millisecond more or less.
            assert_eq!((began.elapsed() + Duration::from_millis(10)).as_secs(), 15, "hangs: {hangs}");
        }
    });
}
