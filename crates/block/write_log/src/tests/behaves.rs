//! Where writes go, what failures do, and that a log and its back are not used without each other by mistake.

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockErrorKind, Durability};
use futures_util::future::join_all;
use sim::{Lie, Survival, on_shard};

use super::Rig;
use crate::{LogMode, OptionalLog, WriteLog};

fn block(byte: u8) -> SharedBuf {
    IoBuf::copy_from(&[byte; 4096]).freeze()
}

async fn byte(log: &WriteLog, offset: u64) -> u8 {
    log.read(offset, IoBuf::zeroed(4096)).await.expect("read")[0]
}

#[test]
fn small_writes_share_batches_and_are_destaged_in_long_runs() {
    on_shard(async {
        let rig = Rig::new(1, 8 << 20, 4 << 20, 4096);
        rig.create().await.expect("create");
        let log = rig.open().await.expect("open");
        // 64 neighbours, in no order.
        let writes =
            (0..64_u64).map(|n| log.write(n * 37 % 64 * 4096, block(n as u8 + 1), Durability::Durable));
        for result in join_all(writes).await {
            result.expect("write");
        }
        let status = log.status();
        assert_eq!((status.logged_writes, status.logged_bytes, status.direct_writes), (64, 64 * 4096, 0));
        assert!(status.batches <= 8, "{status:?}");
        assert_eq!(byte(&log, 37 * 4096).await, 2);
        assert!(log.status().memory_reads > 0);
        log.drain().await.expect("drain");
        let status = log.status();
        assert_eq!((status.destaged_runs, status.destaged_bytes), (1, 64 * 4096), "one run");
        assert_eq!((status.waiting_bytes, status.used_bytes), (0, 0));
        assert_eq!(byte(&log, 37 * 4096).await, 2);
        let long = IoBuf::copy_from(&[9; 256 << 10]).freeze();
        log.write(0, long, Durability::Durable).await.expect("write");
        assert_eq!((log.status().direct_writes, log.status().logged_writes), (1, 64));
        assert_eq!(byte(&log, 37 * 4096).await, 9);
    })
    .expect("event loop");
}

/// A process is killed while it commits: the batch may be in the front's cache, and is found by the next one.
#[test]
fn what_a_replay_finds_is_durable_before_more_follows() {
    on_shard(async {
        let rig = Rig::new(7, 600 << 10, 2 << 20, 4096);
        rig.create().await.expect("create");
        let log = rig.open().await.expect("open");
        rig.front.set_lie(Some(Lie::SkipForce(1)));
        log.write(0, block(1), Durability::Durable).await.expect("write");
        rig.front.set_lie(None);
        [&rig.front, &rig.back].into_iter().for_each(|disk| disk.abandon());
        drop(log);
        let log = rig.open().await.expect("open");
        assert_eq!(byte(&log, 0).await, 1);
        log.write(4096, block(2), Durability::Durable).await.expect("write");
        rig.power.cut(Survival::Nothing);
        drop(log);
        rig.power.restore();
        let log = rig.open().await.expect("nothing of the log is missing");
        assert_eq!((byte(&log, 0).await, byte(&log, 4096).await), (1, 2));
    })
    .expect("event loop");
}

/// Little memory makes small batches, not none.
#[test]
fn little_memory_is_enough_for_a_write() {
    on_shard(async {
        let mut rig = Rig::new(8, 4 << 20, 2 << 20, 4096);
        rig.options.memory = 128 << 10;
        rig.create().await.expect("create");
        let log = rig.open().await.expect("open");
        let write = log.write(0, block(1), Durability::Durable);
        let written = shard_runtime::timeout(std::time::Duration::from_secs(60), write).await;
        written.expect("it does not wait for ever").expect("write");
    })
    .expect("event loop");
}

#[test]
fn a_full_log_waits_for_its_back_and_tells_when_that_fails() {
    on_shard(async {
        let rig = Rig::new(2, 600 << 10, 4 << 20, 4096);
        rig.create().await.expect("create");
        let log = rig.open().await.expect("open");
        for n in 0..600_u64 {
            log.write(n % 500 * 4096, block(n as u8), Durability::Durable).await.expect("write");
            assert!(log.status().used_bytes <= log.status().capacity_bytes);
        }
        rig.back.fail_writes(u64::MAX);
        let mut refused = None;
        for n in 0..600_u64 {
            if let Err(error) = log.write(n % 500 * 4096, block(7), Durability::Durable).await {
                refused = Some((n, error.kind()));
                break;
            }
        }
        let (n, kind) = refused.expect("the log is full some time");
        assert!(n > 20 && kind == BlockErrorKind::Io, "{n} {kind:?}");
        assert!(log.status().back_error.is_some());
        assert_eq!(byte(&log, 0).await, 7, "what was acknowledged is there");
        rig.back.forget_failures();
        shard_runtime::sleep(std::time::Duration::from_secs(60)).await;
        assert_eq!(log.status().back_error, None);
        log.write(0, block(8), Durability::Durable).await.expect("room again");
    })
    .expect("event loop");
}

#[test]
fn a_failed_front_is_left_with_everything_on_the_back() {
    on_shard(async {
        let rig = Rig::new(3, 600 << 10, 4 << 20, 4096);
        rig.create().await.expect("create");
        let log = rig.open().await.expect("open");
        log.write(4096, block(1), Durability::Durable).await.expect("write");
        rig.front.unplug();
        log.write(8192, block(2), Durability::Durable).await.expect("the back has it then");
        assert_eq!(log.status().mode, LogMode::Through);
        log.write(12288, block(3), Durability::Durable).await.expect("write");
        drop(log);
        rig.power.cut(Survival::Nothing);
        rig.power.restore();
        // The front is away: nothing of it is needed.
        let log = rig.open().await.expect("open");
        for n in 1..4 {
            assert_eq!(byte(&log, n * 4096).await, n as u8);
        }
        log.write(4096, block(9), Durability::Durable).await.expect("write");
        drop(log);
        // The front is back, with entries that are older than what the back has: a new log begins.
        rig.front.restore();
        let log = rig.open().await.expect("open");
        assert_eq!((byte(&log, 4096).await, log.status().replayed_batches), (9, 0));
        assert_eq!(log.status().mode, LogMode::Logging);
    })
    .expect("event loop");
}

#[test]
fn front_and_back_belong_together() {
    on_shard(async {
        let rig = Rig::new(4, 600 << 10, 4 << 20, 4096);
        assert_eq!(rig.open().await.err().map(|error| error.kind()), Some(BlockErrorKind::Unsupported));
        rig.create().await.expect("create");
        let log = rig.open().await.expect("open");
        log.write(0, block(5), Durability::Durable).await.expect("write");
        drop(log);
        let again = rig.create().await.expect_err("it is in use");
        assert_eq!(again.kind(), BlockErrorKind::Unsupported);
        let other = Rig::new(5, 600 << 10, 4 << 20, 4096);
        other.create().await.expect("create");
        let open = async |front, accept_loss| {
            WriteLog::open(front, rig.back.device(), rig.options, &rig.entropy, accept_loss).await
        };
        assert_eq!(
            open(Some(other.front.device()), false).await.err().map(|e| e.kind()),
            Some(BlockErrorKind::Gone)
        );
        assert_eq!(open(None, false).await.err().map(|error| error.kind()), Some(BlockErrorKind::Gone));
        let log = rig.open().await.expect("open");
        assert_eq!(byte(&log, 0).await, 5);
        log.detach().await.expect("detach");
        log.write(4096, block(6), Durability::Durable).await.expect("write");
        drop(log);
        let log = open(None, false).await.expect("everything is on the back");
        assert_eq!(
            (byte(&log, 0).await, byte(&log, 4096).await, log.status().mode),
            (5, 6, LogMode::Through)
        );
        drop(log);
        let log = rig.open().await.expect("it logs again");
        log.write(0, block(7), Durability::Durable).await.expect("write");
        drop(log);
        let log = open(None, true).await.expect("loss accepted");
        assert!([5, 7].contains(&byte(&log, 0).await));
    })
    .expect("event loop");
}

#[test]
fn damage_in_the_middle_of_the_log_is_no_end_of_it() {
    on_shard(async {
        for damaged in 0..3_u64 {
            let mut rig = Rig::new(6, 600 << 10, 4 << 20, 4096);
            rig.options.quiet = std::time::Duration::from_secs(3600);
            rig.create().await.expect("create");
            let log = rig.open().await.expect("open");
            for n in 0..3 {
                log.write(n * 4096, block(n as u8 + 1), Durability::Durable).await.expect("write");
            }
            drop(log);
            // Each batch has two blocks behind the two labels.
            rig.front.overwrite((2 + 2 * damaged + 1) * 4096 + 100, &[0xff; 4]);
            let opened = rig.open().await;
            if damaged < 2 {
                assert_eq!(opened.err().map(|error| error.kind()), Some(BlockErrorKind::Media), "{damaged}");
            } else {
                // As after a cut in the middle of the last one: nobody can tell.
                assert_eq!(byte(&opened.expect("open"), 4096).await, 2);
            }
        }
    })
    .expect("event loop");
}

#[test]
fn a_failed_flush_of_the_back_stops_it_and_the_log_has_the_data() {
    on_shard(async {
        let rig = Rig::new(7, 600 << 10, 4 << 20, 4096);
        rig.create().await.expect("create");
        let log = rig.open().await.expect("open");
        log.write(0, block(1), Durability::Durable).await.expect("write");
        rig.back.fail_flushes(1);
        log.drain().await.expect_err("the back cannot flush");
        assert_eq!(log.status().mode, LogMode::Poisoned);
        let refused = log.write(0, block(2), Durability::Durable).await.expect_err("stopped");
        assert_eq!(refused.kind(), BlockErrorKind::Poisoned);
        assert_eq!(log.flush().await.expect_err("stopped").kind(), BlockErrorKind::Poisoned);
        assert_eq!(byte(&log, 0).await, 1);
        drop(log);
        rig.power.cut(Survival::Nothing);
        rig.power.restore();
        assert_eq!(byte(&rig.open().await.expect("open"), 0).await, 1);
    })
    .expect("event loop");
}

/// The back's cache may have all of it: only a flush says that the front is not needed any more.
#[test]
fn detaching_where_no_log_runs_flushes_the_back() {
    on_shard(async {
        let rig = Rig::new(9, 600 << 10, 4 << 20, 4096);
        rig.create().await.expect("create");
        let log = rig.open().await.expect("open");
        log.detach().await.expect("detach");
        log.write(4096, block(4), Durability::Volatile).await.expect("write");
        log.detach().await.expect("detach again");
        rig.power.cut(Survival::Nothing);
        drop(log);
        rig.power.restore();
        let log = rig.open().await.expect("open");
        assert_eq!(byte(&log, 4096).await, 4);
        log.detach().await.expect("detach");
        log.write(0, block(5), Durability::Volatile).await.expect("write");
        rig.back.fail_flushes(1);
        log.detach().await.expect_err("the back cannot flush");
        assert_eq!(log.status().mode, LogMode::Poisoned);
    })
    .expect("event loop");
}

/// Small writes until the log is full and its back fails; their last byte.
async fn fill(rig: &Rig, log: &WriteLog) -> u8 {
    rig.back.fail_writes(u64::MAX);
    for n in 0..1000_u64 {
        if log.write(n % 500 * 4096, block((n / 500) as u8 + 1), Durability::Durable).await.is_err() {
            return (n / 500) as u8 + 1;
        }
    }
    panic!("the log is never full");
}

/// A long write needs an entry in the log, and the log is full.
#[test]
fn a_long_write_finds_room_once_the_back_works_again() {
    on_shard(async {
        let rig = Rig::new(10, 600 << 10, 4 << 20, 4096);
        rig.create().await.expect("create");
        let log = rig.open().await.expect("open");
        fill(&rig, &log).await;
        rig.back.forget_failures();
        // Sooner than the log would try by itself.
        let long = IoBuf::copy_from(&[9; 128 << 10]).freeze();
        log.write(0, long, Durability::Durable).await.expect("the back works");
        rig.power.cut(Survival::Nothing);
        drop(log);
        rig.power.restore();
        let log = rig.open().await.expect("open");
        for n in 0..32 {
            assert_eq!(byte(&log, n * 4096).await, 9);
        }
    })
    .expect("event loop");
}

/// The log's own attempts are half a minute apart by then: whoever needs room does not wait for the next one, nor is he
/// refused for what was.
#[test]
fn small_writes_find_room_once_the_back_works_again() {
    on_shard(async {
        let rig = Rig::new(12, 600 << 10, 4 << 20, 4096);
        rig.create().await.expect("create");
        let log = rig.open().await.expect("open");
        fill(&rig, &log).await;
        shard_runtime::sleep(std::time::Duration::from_secs(300)).await;
        rig.back.forget_failures();
        let writes = (0..64_u64).map(|n| log.write(n * 4096, block(9), Durability::Durable));
        let written = shard_runtime::timeout(std::time::Duration::from_secs(5), join_all(writes)).await;
        for written in written.expect("nobody waits for the log's own next attempt") {
            written.expect("the back works");
        }
        rig.power.cut(Survival::Nothing);
        drop(log);
        rig.power.restore();
        let log = rig.open().await.expect("open");
        for n in 0..64 {
            assert_eq!(byte(&log, n * 4096).await, 9);
        }
    })
    .expect("event loop");
}

/// The back takes the long write and nothing of what waits: it is refused, and nobody may find anything else than it or what
/// was acknowledged before it; what is acknowledged later stays.
#[test]
fn a_long_write_without_room_in_the_log_is_refused_and_replay_finds_what_was_acknowledged() {
    on_shard(async {
        let rig = Rig::new(11, 600 << 10, 4 << 20, 4096);
        rig.create().await.expect("create");
        let log = rig.open().await.expect("open");
        fill(&rig, &log).await;
        // Behind the oldest of what waits, whose place it would give free.
        let (first, last) = (8 * 4096, 39 * 4096);
        let acknowledged = [byte(&log, first).await, byte(&log, last).await];
        rig.back.fail_writes_after(1, u64::MAX);
        let long = IoBuf::copy_from(&[9; 128 << 10]).freeze();
        let refused = log.write(first, long, Durability::Durable).await.expect_err("what waits cannot leave");
        assert_eq!(refused.kind(), BlockErrorKind::Io);
        rig.back.forget_failures();
        log.write(4096, block(10), Durability::Durable).await.expect("there is room again");
        rig.power.cut(Survival::Nothing);
        drop(log);
        rig.power.restore();
        let log = rig.open().await.expect("a log with such a write is replayed");
        assert_eq!(byte(&log, 4096).await, 10);
        let found = [byte(&log, first).await, byte(&log, last).await];
        assert!(found.iter().zip(acknowledged).all(|(found, before)| *found == 9 || *found == before));
        log.write(0, block(11), Durability::Durable).await.expect("write");
        log.drain().await.expect("drain");
        assert_eq!(byte(&log, 0).await, 11);
    })
    .expect("event loop");
}

#[test]
fn a_label_of_a_later_release_is_not_taken_for_none() {
    on_shard(async {
        let rig = Rig::new(6, 600 << 10, 4 << 20, 4096);
        rig.create().await.expect("create");
        let back = rig.back.device();
        for slot in [0, 4096] {
            let mut label = back.read(slot, IoBuf::new(4096)).await.expect("read").to_vec();
            if label[..4] == *b"HFWB" {
                // Version and checksum, as `write_log_format` lays them out.
                label[4..8].copy_from_slice(&9u32.to_le_bytes());
                label[8..12].fill(0);
                let crc = byte_codec::crc32c(&label[..120]);
                label[8..12].copy_from_slice(&crc.to_le_bytes());
                back.write(slot, IoBuf::copy_from(&label).freeze(), Durability::Durable)
                    .await
                    .expect("write");
            }
        }
        let refused = rig.open().await.err().expect("not known how to read");
        let why = std::error::Error::source(&refused).expect("why").to_string();
        assert!(why.contains("version 9"), "{why}");
        let optional = OptionalLog::open(None, back, rig.options, &rig.entropy).await;
        assert!(optional.is_err(), "it is not known to be no log");
        assert!(rig.create().await.is_err(), "and is not made over");
    })
    .expect("event loop");
}
