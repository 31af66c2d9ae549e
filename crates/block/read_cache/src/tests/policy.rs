//! What stays in the cache: what is asked for again, not what passes by.

use proptest::prelude::*;
use sim::on_shard;

use super::{MIB, cached, check, filled, read};
use crate::fifo::Key;
use crate::shard::{Left, Shard};
use crate::{CacheCounters, PAGE};
use block_device::{BlockDevice, Durability};

#[test]
fn hits_are_counted_and_ask_the_device_for_nothing() {
    on_shard(async {
        let (cache, device, disk) = cached(8 * MIB, 4 * MIB);
        disk.write(65536, filled(7, 65536), Durability::Volatile).await.expect("write");
        assert_eq!(read(&device, 65536, 65536).await[..], [7; 65536]);
        // Behind the cache's back: who reads it now has not asked the disk.
        disk.write(65536, filled(8, 65536), Durability::Volatile).await.expect("write");
        assert_eq!(read(&device, 65536 + 8192, 16384).await[..], [7; 16384]);
        assert_eq!(read(&device, 65536 + 512 * 4096 / 512, 4096).await[..], [7; 4096]);
        // Half of it is there: only the rest is asked for.
        let half = read(&device, 65536 + 32768, 65536).await;
        assert!(half[..32768].iter().all(|byte| *byte == 7) && half[32768..].iter().all(|byte| *byte == 0));
        let expected = CacheCounters {
            hits: 2,
            misses: 2,
            hit_bytes: 16384 + 4096 + 32768,
            miss_bytes: 65536 + 32768,
            inserted_pages: 24,
            resident_bytes: 24 * PAGE,
            ..CacheCounters::default()
        };
        assert_eq!(device.stats().counters(), expected);
        assert_eq!(cache.counters(), expected);
        check(&cache);
    })
    .expect("event loop");
}

#[test]
fn a_scan_does_not_drive_out_what_is_in_use() {
    on_shard(async {
        let (_cache, device, _disk) = cached(4 * MIB, 256 * MIB);
        let hot = 2 * MIB / PAGE;
        for _ in 0..6 {
            for page in 0..hot {
                read(&device, page * PAGE, PAGE as usize).await;
            }
        }
        for at in (16 * MIB..256 * MIB).step_by(65536) {
            read(&device, at, 65536).await;
        }
        let before = device.stats().counters();
        for page in 0..hot {
            read(&device, page * PAGE, PAGE as usize).await;
        }
        let hits = device.stats().counters().hits - before.hits;
        assert!(hits * 10 >= hot * 9, "{hits} of {hot} hot pages outlived a scan of 60 times the cache");
        assert!(before.evicted_pages > 50_000 && before.resident_bytes <= 4 * MIB, "{before:?}");
    })
    .expect("event loop");
}

#[test]
fn a_page_that_comes_back_soon_is_kept() {
    on_shard(async {
        let (_cache, device, _disk) = cached(4 * MIB, 64 * MIB);
        // Passes through the small queue, leaves, and comes back while its ghost is there.
        let pages = |from: u64, to: u64| (from * MIB..to * MIB).step_by(PAGE as usize);
        for at in pages(0, 6) {
            read(&device, at, PAGE as usize).await;
        }
        for at in pages(0, 2) {
            read(&device, at, PAGE as usize).await;
        }
        for at in pages(8, 14) {
            read(&device, at, PAGE as usize).await;
        }
        let before = device.stats().counters().hits;
        for at in pages(0, 2) {
            read(&device, at, PAGE as usize).await;
        }
        let hits = device.stats().counters().hits - before;
        assert!(hits > 400, "{hits} of 512 pages that came back were kept");
    })
    .expect("event loop");
}

#[test]
fn off_is_off_and_gives_memory_to_others() {
    on_shard(async {
        let (cache, device, disk) = cached(8 * MIB, 4 * MIB);
        read(&device, 0, MIB as usize).await;
        device.set_on(false);
        assert!(!device.is_on());
        assert_eq!(cache.counters().resident_bytes, 0);
        disk.write(0, filled(3, 4096), Durability::Volatile).await.expect("write");
        assert_eq!(read(&device, 0, 4096).await[0], 3);
        assert_eq!(device.stats().counters().resident_bytes, 0);
        device.set_on(true);
        read(&device, 0, 4096).await;
        assert_eq!(device.stats().counters().resident_bytes, PAGE);
        drop(device);
        assert_eq!(cache.counters(), CacheCounters::default());
        check(&cache);
    })
    .expect("event loop");
}

#[derive(Clone, Debug)]
enum Step {
    Read(u64, u64),
    Fill(u64, u64, bool),
    Write(u64, u64, bool),
    Forget(u64, u64),
    Allow(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (0_u64..400, 1_u64..16);
    let step = prop_oneof![
        8 => range().prop_map(|(at, count)| Step::Read(at, count)),
        8 => (range(), any::<bool>()).prop_map(|((at, count), ahead)| Step::Fill(at, count, ahead)),
        3 => (range(), any::<bool>()).prop_map(|((at, count), ok)| Step::Write(at, count, ok)),
        1 => range().prop_map(|(at, count)| Step::Forget(at, count * 8)),
        1 => (0_usize..8).prop_map(Step::Allow),
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    /// Whatever happens to a shard: its lists, index and frames fit together, and what it shows is what was put in.
    #[test]
    fn a_shard_shows_what_was_put_in(steps in steps()) {
        let mut shard = Shard::new();
        shard.allow(3);
        let mut disk = vec![0_u8; 500];
        let mut written = 0_u8;
        for step in steps {
            match step {
                Step::Read(at, count) => {
                    let mut out = vec![0xee; (count * PAGE) as usize];
                    let found = shard.read(Key { device: 0, page: at }, &mut out);
                    for page in 0..count {
                        if found & (1 << page) != 0 {
                            let piece = &out[(page * PAGE) as usize..((page + 1) * PAGE) as usize];
                            prop_assert!(piece.iter().all(|byte| *byte == disk[(at + page) as usize]));
                        }
                    }
                }
                Step::Fill(at, count, ahead) => {
                    let moment = shard.moment(0);
                    let pages = at as usize..(at + count) as usize;
                    let data: Vec<u8> = disk[pages].iter().flat_map(|byte| [*byte; PAGE as usize]).collect();
                    shard.fill(0, moment, Key { device: 0, page: at }, &data, ahead);
                }
                Step::Write(at, count, ok) => {
                    written = written.wrapping_add(1);
                    shard.begin_write(0, 0, at..at + count);
                    disk[at as usize..(at + count) as usize].fill(written);
                    let data = vec![written; (count * PAGE) as usize];
                    let left = if ok { Left::Data(&data) } else { Left::Unknown };
                    shard.end_write(0, 0, at * PAGE..(at + count) * PAGE, &left);
                }
                Step::Forget(at, count) => {
                    shard.begin_wide(0, at..at + count);
                    shard.end_wide();
                }
                Step::Allow(chunks) => {
                    shard.allow(chunks);
                    while shard.shrink() {}
                    prop_assert!(shard.held() <= chunks);
                }
            }
            shard.check();
        }
    }
}
