//! A cache that ends while something of it is under way.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice as _, BlockErrorKind, Durability};
use file_store::OpenFile as _;

use super::{MIB, Rig, put, run, try_put};
use crate::{BLOCK, SLAB};

/// Whether all of the test's own hold on the file is all that there is.
fn is_open_elsewhere(rig: &Rig) -> bool {
    Arc::strong_count(&rig.file) > 1
}

#[test]
fn what_was_to_leave_memory_stays_when_the_cache_ends() {
    run(async {
        let rig = Rig::new(64 * MIB, 40 * MIB, 1 << 30).await;
        // Each batch takes five seconds, and many are to follow.
        rig.file.slow.store(true, Ordering::SeqCst);
        for slab in 0..39 * MIB / SLAB {
            put(&rig.cache, slab * SLAB, SLAB, 1).await;
        }
        shard_runtime::sleep(Duration::from_secs(1)).await;
        assert_eq!(rig.file.writes.load(Ordering::SeqCst), 1, "one is under way");
        rig.cache.end().await;
        assert!(!is_open_elsewhere(&rig));
        shard_runtime::sleep(Duration::from_secs(60)).await;
        assert_eq!(rig.file.writes.load(Ordering::SeqCst), 1, "none came after it");
    });
}

#[test]
fn closing_waits_for_a_file_as_long_as_that_takes() {
    run(async {
        let rig = Rig::new(32 * MIB, 5 * MIB, 1 << 30).await;
        put(&rig.cache, 0, BLOCK, 1).await;
        rig.file.hangs.store(true, Ordering::SeqCst);
        let inner = Arc::clone(rig.cache.inner());
        let mut leaves = Box::pin(async move { inner.evict_here().await });
        assert!(futures_util::poll!(leaves.as_mut()).is_pending());
        // Nobody waits for it any more, and it goes on.
        drop(leaves);
        let began = tokio::time::Instant::now();
        rig.cache.end().await;
        assert!(began.elapsed() >= Duration::from_secs(3500), "{:?}", began.elapsed());
        assert!(!is_open_elsewhere(&rig));
        // The half that was on its way has arrived before.
        assert_eq!(rig.file.size(), BLOCK);
    });
}

#[test]
fn who_waits_or_comes_hears_that_it_has_ended() {
    run(async {
        let rig = Rig::new(32 * MIB, 5 * MIB, 1 << 30).await;
        rig.file.no_space.store(true, Ordering::SeqCst);
        let mut slab = 0;
        while try_put(&rig.cache, slab * SLAB, SLAB, 1).await.is_ok() {
            slab += 1;
        }
        let began = tokio::time::Instant::now();
        let waits = try_put(&rig.cache, 30 * MIB, SLAB, 2);
        let ends = async {
            shard_runtime::sleep(Duration::from_secs(1)).await;
            rig.cache.end().await;
        };
        let (waited, ()) = futures_util::future::join(waits, ends).await;
        assert_eq!(waited, Err(BlockErrorKind::Gone));
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let gone = |done: Result<(), block_device::BlockError>| {
            assert_eq!(done.map_err(|error| error.kind()), Err(BlockErrorKind::Gone));
        };
        gone(rig.cache.write(0, IoBuf::zeroed(4096).freeze(), Durability::Volatile).await);
        gone(rig.cache.read(0, IoBuf::new(4096)).await.map(drop));
        gone(rig.cache.unmap(0, MIB).await);
        gone(rig.cache.flush().await);
        assert_eq!(rig.cache.inner().evict_here().await.expect("nothing to do"), 0);
    });
}

/// One that is only dropped, as when its image has stopped.
#[test]
fn one_that_is_dropped_begins_nothing_at_its_file() {
    run(async {
        let Rig { cache, file, budget, .. } = Rig::new(64 * MIB, 40 * MIB, 1 << 30).await;
        file.slow.store(true, Ordering::SeqCst);
        for slab in 0..39 * MIB / SLAB {
            put(&cache, slab * SLAB, SLAB, 1).await;
        }
        shard_runtime::sleep(Duration::from_secs(1)).await;
        drop(cache);
        shard_runtime::sleep(Duration::from_secs(60)).await;
        assert_eq!(file.writes.load(Ordering::SeqCst), 1, "what was under way, and no more");
        assert_eq!((Arc::strong_count(&file), budget.used()), (1, 0));
    });
}
