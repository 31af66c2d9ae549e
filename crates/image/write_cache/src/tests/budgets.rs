//! Caches that share a budget.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{MIB, base, file, holds, put, run, try_put};
use crate::{BLOCK, Budget, NoRoom, Options, WriteCache};

#[test]
fn a_cache_that_has_most_gives_to_one_that_comes_later() {
    run(async {
        let budget = Budget::new(24 * MIB);
        let (base, first_file, second_file) = (base(64 * MIB).await, file().await, file().await);
        let cache = |file| {
            WriteCache::new(base.clone(), &budget, Options::overflowing(64 * MIB, file, 1 << 30))
                .expect("room")
        };
        let first = cache(first_file);
        for block in 0..10 {
            put(&first, block * BLOCK, BLOCK, 1).await;
        }
        let alone = first.status().ram_bytes;
        assert!(alone > 16 * MIB, "it has what nobody else wants: {alone}");
        let second = cache(second_file);
        for round in 0..3 {
            for block in 0..10 {
                put(&second, block * BLOCK, BLOCK, 2 + round).await;
                put(&first, block * BLOCK, BLOCK, 2 + round).await;
                assert!(budget.used() <= budget.total());
            }
        }
        let (one, other) = (first.status().ram_bytes, second.status().ram_bytes);
        assert!(one.abs_diff(other) <= 3 * BLOCK && one + other > 12 * MIB, "{one} and {other}");
        for cache in [&first, &second] {
            holds(cache, 0, 10 * BLOCK, |_| 4).await;
            holds(cache, 10 * BLOCK, BLOCK, super::of_base).await;
            assert_eq!(cache.status().refused, 0);
        }
        drop(first);
        assert_eq!(budget.used(), second.status().ram_bytes);
    });
}

#[test]
fn what_is_promised_to_a_cache_in_memory_is_nobody_elses() {
    run(async {
        let budget = Budget::new(24 * MIB);
        let base = base(32 * MIB).await;
        let ram = |bytes| WriteCache::new(base.clone(), &budget, Options::ram(bytes));
        let promised = ram(12 * MIB).expect("room");
        assert_eq!(ram(13 * MIB).err(), Some(NoRoom { wanted: 13 * MIB, left: 12 * MIB }));
        let elastic =
            WriteCache::new(base.clone(), &budget, Options::overflowing(64 * MIB, file().await, 1 << 30))
                .expect("room");
        for block in 0..16 {
            put(&elastic, block * BLOCK, BLOCK, 1).await;
        }
        assert!(elastic.status().overflow_bytes >= 16 * MIB);
        put(&promised, 0, 11 * MIB, 2).await;
        assert_eq!(promised.status().waited, 0);
        holds(&elastic, 0, 16 * BLOCK, |_| 1).await;
        holds(&promised, 0, 11 * MIB, |_| 2).await;
        assert!(budget.used() <= budget.total());
    });
}

#[test]
fn caches_of_two_shards_share_a_budget() {
    let budget = Budget::new(16 * MIB);
    let threads: Vec<_> = (0..2_u8)
        .map(|fill| {
            let budget = budget.clone();
            std::thread::spawn(move || {
                run(async {
                    // Virtual time would pass at once while this thread waits for the other one.
                    tokio::time::resume();
                    let file = file().await;
                    let options = Options::overflowing(12 * MIB, file, 1 << 30);
                    let base = base(32 * MIB).await;
                    let cache = Arc::new(WriteCache::new(base, &budget, options).expect("room"));
                    for round in 0..4 {
                        for block in 0..8 {
                            let done = try_put(&cache, block * BLOCK, BLOCK, fill * 100 + round + 1).await;
                            assert_eq!(done, Ok(()));
                            assert!(budget.used() <= budget.total());
                        }
                    }
                    holds(&cache, 0, 8 * BLOCK, |_| fill * 100 + 4).await;
                });
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(budget.used(), 0);
}

/// Of three caches the heaviest has a file that hangs, or fails after a while, and the next one gives: the light one's writes go on.
#[test]
fn a_volume_that_hangs_or_fails_keeps_no_other_caches_writes() {
    for hangs in [true, false] {
        run(async {
            let budget = Budget::new(32 * MIB);
            let base = base(64 * MIB).await;
            let cache = |file| {
                WriteCache::new(base.clone(), &budget, Options::overflowing(64 * MIB, file, 1 << 30))
                    .expect("room")
            };
            let (bad, file_of_good, file_of_light) = (file().await, file().await, file().await);
            let (heavy, good, light) =
                (cache(bad.clone()), cache(file_of_good), cache(file_of_light.clone()));
            put(&heavy, 0, 16 * MIB, 1).await;
            put(&good, 0, 10 * MIB, 2).await;
            bad.hangs.store(hangs, Ordering::SeqCst);
            bad.gone.store(true, Ordering::SeqCst);
            // It has no other way than to have others give.
            file_of_light.gone.store(true, Ordering::SeqCst);
            let began = tokio::time::Instant::now();
            put(&light, 0, 10 * MIB, 3).await;
            assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
            assert!(good.status().overflow_bytes > 0);
            holds(&light, 0, 10 * MIB, |_| 3).await;
            holds(&good, 0, 10 * MIB, |_| 2).await;
            holds(&heavy, 0, 16 * MIB, |_| 1).await;
            assert!(budget.used() <= budget.total());
        });
    }
}

/// A write waits for a cache whose file hangs, and would have its turn at another one after that: that one ends meanwhile, at once.
#[test]
fn who_looks_for_room_keeps_no_other_cache() {
    run(async {
        let budget = Budget::new(32 * MIB);
        let base = base(64 * MIB).await;
        let cache = |file| {
            WriteCache::new(base.clone(), &budget, Options::overflowing(64 * MIB, file, 1 << 30))
                .expect("room")
        };
        let (bad, file_of_light) = (file().await, file().await);
        let (heavy, good, light) = (cache(bad.clone()), cache(file().await), cache(file_of_light.clone()));
        put(&heavy, 0, 16 * MIB, 1).await;
        put(&good, 0, 10 * MIB, 2).await;
        bad.hangs.store(true, Ordering::SeqCst);
        bad.gone.store(true, Ordering::SeqCst);
        file_of_light.gone.store(true, Ordering::SeqCst);
        // What it brings to its file by itself keeps it, too.
        while Arc::strong_count(good.inner()) > 1 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut write = std::pin::pin!(put(&light, 0, 10 * MIB, 3));
        while light.status().waited == 0 {
            assert!(futures_util::poll!(write.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        assert_eq!(Arc::strong_count(good.inner()), 1, "nobody but who has it keeps it");
        let (before, its) = (budget.used(), good.status().ram_bytes);
        drop(good);
        assert_eq!(budget.used(), before - its, "what it had is everybody's");
        write.await;
        holds(&light, 0, 10 * MIB, |_| 3).await;
    });
}
