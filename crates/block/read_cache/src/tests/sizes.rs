//! The limit, while running.

use sim::on_shard;

use super::{MIB, cached, check, filled, read};
use crate::{CacheUse, MemorySample};
use block_device::{BlockDevice, Durability};

#[test]
fn the_limit_holds_and_moves_while_running() {
    on_shard(async {
        let (cache, device, disk) = cached(16 * MIB, 64 * MIB);
        for (offset, byte) in (0..64 * MIB).step_by(65536).zip((0_u8..=255).cycle()) {
            disk.write(offset, filled(byte, 65536), Durability::Volatile).await.expect("write");
        }
        for limit in [16, 4, 0, 1, 32, 8] {
            cache.set_limit(limit * MIB);
            assert!(cache.sizes().held <= limit * MIB, "{:?}", cache.sizes());
            for (offset, byte) in (0..64 * MIB).step_by(65536).zip((0_u8..=255).cycle()) {
                assert!(read(&device, offset, 65536).await.iter().all(|found| *found == byte));
            }
            assert_eq!(
                cache.sizes(),
                CacheUse { limit: limit * MIB, in_force: limit * MIB, held: limit * MIB }
            );
            check(&cache);
        }
    })
    .expect("event loop");
}

#[test]
fn memory_is_given_back_when_the_machine_is_short_of_it() {
    on_shard(async {
        let (cache, device, _disk) = cached(16 * MIB, 64 * MIB);
        read(&device, 0, 32 << 20).await;
        assert_eq!(cache.sizes().held, 16 * MIB);
        let short = MemorySample { total: 1024 * MIB, available: 56 * MIB, stalled: 0.0 };
        cache.balance(short);
        assert_eq!(cache.sizes(), CacheUse { limit: 16 * MIB, in_force: 8 * MIB, held: 8 * MIB });
        for _ in 0..100 {
            cache.balance(MemorySample { available: 512 * MIB, ..short });
        }
        assert_eq!(cache.sizes().in_force, 16 * MIB);
        check(&cache);
        assert!(MemorySample::now().is_some_and(|sample| sample.total > sample.available));
    })
    .expect("event loop");
}
