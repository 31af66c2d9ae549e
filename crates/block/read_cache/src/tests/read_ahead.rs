//! Read-ahead fills the cache in front of streams, readers wait for what is under way, and waste is counted.

use std::sync::Arc;

use block_device::{BlockDevice, Device, Durability, UnmapBehavior};
use sim::{Dice, Pace, Power, SimDisk, SimSpec, on_shard};

use super::{MIB, check, filled, read};
use crate::{CachedDevice, ReadAhead, ReadCache};

fn disk(mode: ReadAhead) -> (Arc<ReadCache>, CachedDevice, Arc<SimDisk>) {
    let spec = SimSpec {
        size: 32 << 20,
        block_size: 4096,
        unmap: UnmapBehavior::Zeroes,
        pace: Pace { turns: 20, slow_one_in: 0, slow_millis: 0 },
    };
    let power = Power::new(Dice::new(9));
    // The supply must outlive its disk.
    let power = Box::leak(Box::new(power));
    let disk = SimDisk::new(power, &spec);
    let cache = ReadCache::with_shards(8 * MIB, 4);
    let device = CachedDevice::new(&cache, Arc::clone(&disk).device() as Device, "disk");
    device.set_read_ahead(mode);
    (cache, device, disk)
}

#[test]
fn a_stream_is_read_once_and_mostly_hits() {
    for mode in [ReadAhead::Adaptive, ReadAhead::Fixed(MIB)] {
        on_shard(async {
            let (cache, device, disk) = disk(mode);
            for (offset, byte) in (0..32 * MIB).step_by(65536).zip(1_u8..=255) {
                disk.overwrite(offset, &vec![byte; 65536]);
            }
            for (offset, byte) in (0..15 * MIB).step_by(65536).zip(1_u8..=255) {
                assert_eq!(read(&device, offset, 65536).await[..], [byte; 65536], "{offset}");
            }
            let counters = device.stats().counters();
            assert!(counters.hits >= 225, "{mode:?} {counters:?}");
            assert!(counters.miss_bytes < MIB, "{counters:?}");
            let read_bytes = counters.miss_bytes + counters.ahead_bytes;
            assert!(read_bytes < 24 * MIB, "nothing is read twice: {counters:?}");
            assert!(counters.ahead_used_bytes >= 14 * MIB, "{counters:?}");
            check(&cache);
        })
        .expect("event loop");
    }
}

#[test]
fn none_reads_nothing_ahead_and_jumping_readers_neither() {
    on_shard(async {
        let (_cache, device, _disk) = disk(ReadAhead::None);
        for offset in (0..4 * MIB).step_by(65536) {
            read(&device, offset, 65536).await;
        }
        assert_eq!(device.stats().counters().ahead_bytes, 0);
        device.set_read_ahead(ReadAhead::Adaptive);
        for offset in (0..32).rev().map(|at| at * MIB) {
            read(&device, offset, 4096).await;
        }
        assert_eq!(device.stats().counters().ahead_bytes, 0);
    })
    .expect("event loop");
}

/// A write in front of a stream is what the stream reads, also when a read-ahead is under way there.
#[test]
fn a_write_beats_a_read_ahead() {
    on_shard(async {
        let (_cache, device, _disk) = disk(ReadAhead::Fixed(MIB));
        for offset in (0..8 * MIB).step_by(65536) {
            read(&device, offset, 65536).await;
            let ahead = offset + 4 * 65536;
            device.write(ahead, filled(0x77, 4096), Durability::Volatile).await.expect("write");
            assert_eq!(read(&device, ahead, 4096).await[..], [0x77; 4096], "{ahead}");
        }
    })
    .expect("event loop");
}

#[test]
fn what_leaves_unread_counts_as_wasted() {
    on_shard(async {
        let (_cache, device, _disk) = disk(ReadAhead::Fixed(MIB));
        for stream in 0..8 {
            for offset in 0..4 {
                read(&device, stream * 4 * MIB + offset * 65536, 65536).await;
            }
        }
        device.set_on(false);
        let counters = device.stats().counters();
        assert!(counters.ahead_wasted_bytes >= MIB, "{counters:?}");
        assert!(
            counters.ahead_bytes >= counters.ahead_used_bytes + counters.ahead_wasted_bytes,
            "{counters:?}"
        );
    })
    .expect("event loop");
}
