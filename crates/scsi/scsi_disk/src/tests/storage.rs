//! A unit whose storage goes away for a while.

use block_device::{BlockDevice, BlockError, BlockErrorKind, BlockFuture, MemoryDisk};

use super::going_on::{Gate, pending};
use super::*;
use crate::mode::Mode;

/// Runs with a clock that jumps to whatever is waited for.
pub(super) fn run_quickly<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        shard_runtime::adopt_detached_work();
        future.await
    })
}

const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 8, 0, 0, 1, 0];
const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 8, 0, 0, 1, 0];
const SYNC: [u8; 10] = [0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0];
pub(super) const BECOMING_READY: (u8, u16) = (2, 0x0401);
const WRITE_ERROR: (u8, u16) = (4, 0x0c00);

pub(super) fn disk() -> Arc<DeviceBacking> {
    Arc::new(DeviceBacking::new(Arc::new(MemoryDisk::new((BLOCKS * 512) as usize, 512))))
}

fn good(response: &ScsiResponse) -> bool {
    response.status == ScsiStatus::Good
}

#[test]
fn commands_wait_for_storage_that_comes_back() {
    run_quickly(async {
        let rig = Rig::new().await;
        let back = disk();
        assert!(good(&rig.send(0, 1, &WRITE, &[3; 512]).await));
        rig.unit.detach();
        let mut write = Box::pin(rig.send(0, 1, &WRITE, &[5; 512]));
        let mut read = Box::pin(rig.send(1, 1, &READ, &[]));
        assert!(pending(&mut write).await && pending(&mut read).await);
        // What is known without the storage is still told; that it is not ready, too.
        assert!(good(&rig.send(0, 1, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]).await));
        assert_eq!(rig.sense(0, &[0; 6], &[]).await, BECOMING_READY);
        rig.unit.attach(back.clone(), rig.rows.clone());
        assert!(good(&write.await) && good(&read.await));
        assert_eq!(back.read(8 * 512, IoBuf::new(512)).await.unwrap()[..], [5; 512]);
        assert!(good(&rig.send(0, 1, &[0; 6], &[]).await));
    });
}

#[test]
fn nothing_waits_for_ever() {
    run_quickly(async {
        let rig = Rig::new().await;
        rig.unit.detach();
        assert_eq!(rig.sense(0, &WRITE, &[5; 512]).await, BECOMING_READY);
        assert_eq!(rig.sense(0, &READ, &[]).await, BECOMING_READY);
        // Nothing is cached, so a flush may be done again.
        assert_eq!(rig.sense(0, &SYNC, &[]).await, BECOMING_READY);
        // Half of it may have been done, and it would answer otherwise the second time.
        let both = [[0; 512], [1; 512]].concat();
        let mut swap = Box::pin(rig.sense(0, &[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0], &both));
        assert!(!pending(&mut swap).await);
    });
}

#[test]
fn a_command_that_waits_can_be_aborted_and_fenced_off() {
    run_quickly(async {
        let rig = Rig::new().await;
        let back = disk();
        let register = |key: u64| [&[0; 8], &key.to_be_bytes()[..], &[0; 8]].concat();
        rig.unit.detach();
        let mut write = Box::pin(rig.device.execute(
            &rig.nexuses[0],
            WireLun::from_number(1),
            ScsiCommand {
                cdb: WRITE.to_vec(),
                data_out: IoBuf::copy_from(&[9; 512]).freeze(),
                data_in_limit: 0,
                attribute: TaskAttribute::Simple,
            },
        ));
        assert!(pending(&mut write).await);
        let lun = WireLun::from_number(1);
        let abort = rig.device.task_management(&rig.nexuses[0], lun, TaskManagement::AbortTaskSet);
        let (write, aborted) = futures_util::join!(write, abort);
        // Whoever has aborted it writes something else, and nothing overwrites that.
        assert_eq!((write.is_none(), aborted), (true, TaskManagementOutcome::Complete));
        let mut fenced = Box::pin(rig.send(0, 1, &WRITE, &[9; 512]));
        assert!(pending(&mut fenced).await);
        assert!(good(&rig.send(1, 1, &[0x5f, 0, 0, 0, 0, 0, 0, 0, 24, 0], &register(1)).await));
        let reserve = [&1_u64.to_be_bytes()[..], &[0; 16]].concat();
        assert!(good(&rig.send(1, 1, &[0x5f, 1, 1, 0, 0, 0, 0, 0, 24, 0], &reserve).await));
        rig.unit.attach(back.clone(), rig.rows.clone());
        assert_eq!(fenced.await.status, ScsiStatus::ReservationConflict);
        assert_eq!(back.read(8 * 512, IoBuf::new(512)).await.unwrap()[..], [0; 512]);
    });
}

/// A unit that answers writes before they are durable.
async fn caching(backing: Arc<DeviceBacking>) -> Rig {
    let config = UnitConfig { write_cache: true, ..unit_config() };
    let rows = Arc::new(Rows::default());
    let unit = LogicalUnit::open(config, backing, rows.clone()).await.unwrap();
    Rig::with(unit, rows, INITIATORS).await
}

#[test]
fn cached_writes_that_may_be_lost_fail_a_flush_of_each_nexus() {
    run_quickly(async {
        let rig = caching(disk()).await;
        assert!(good(&rig.send(0, 1, &WRITE, &[5; 512]).await));
        assert!(good(&rig.send(0, 1, &SYNC, &[]).await));
        // Flushed: nothing can be lost.
        rig.unit.detach();
        rig.unit.attach(disk(), rig.rows.clone());
        assert!(good(&rig.send(0, 1, &SYNC, &[]).await));
        assert!(good(&rig.send(0, 1, &WRITE, &[5; 512]).await));
        rig.unit.detach();
        rig.unit.attach(disk(), rig.rows.clone());
        for who in 0..2 {
            assert_eq!(rig.sense(who, &SYNC, &[]).await, WRITE_ERROR, "of both, who was told it once");
            assert!(good(&rig.send(who, 1, &SYNC, &[]).await));
        }
        // One that fails itself is not done again.
        assert!(good(&rig.send(0, 1, &WRITE, &[5; 512]).await));
        rig.unit.detach();
        assert_eq!(rig.sense(0, &SYNC, &[]).await, WRITE_ERROR);
    });
}

/// Who asked for a flush has gone, by an abort or with its connection, before the storage failed.
#[test]
fn a_flush_that_nobody_waited_for_covers_nothing() {
    run_quickly(async {
        let gate = Gate::new();
        let rig = caching(Arc::new(DeviceBacking::new(gate.clone()))).await;
        assert!(good(&rig.send(0, 1, &WRITE, &[5; 512]).await));
        *gate.stalled.lock() = true;
        let mut flush = Box::pin(rig.send(0, 1, &SYNC, &[]));
        assert!(pending(&mut flush).await);
        drop(flush);
        rig.unit.detach();
        rig.unit.attach(disk(), rig.rows.clone());
        for who in 0..2 {
            assert_eq!(rig.sense(who, &SYNC, &[]).await, WRITE_ERROR);
            assert!(good(&rig.send(who, 1, &SYNC, &[]).await));
        }
    });
}

/// The flush began and ended while the write was under way.
#[test]
fn a_flush_beside_a_write_does_not_cover_it() {
    run_quickly(async {
        let gate = Gate::new();
        let rig = caching(Arc::new(DeviceBacking::new(gate.clone()))).await;
        gate.set(true, false);
        let mut write = Box::pin(rig.send(0, 1, &WRITE, &[5; 512]));
        assert!(pending(&mut write).await);
        rig.unit.flush_cached(None).await.1.unwrap();
        gate.set(false, false);
        assert!(good(&write.await));
        rig.unit.detach();
        rig.unit.attach(disk(), rig.rows.clone());
        assert_eq!(rig.sense(0, &SYNC, &[]).await, WRITE_ERROR);
    });
}

/// Its connection broke, and it logs in again: before or after what it had cached was lost.
#[test]
fn who_logs_in_again_learns_of_lost_writes() {
    run_quickly(async {
        for leaves_first in [true, false] {
            let rig = caching(disk()).await;
            assert!(good(&rig.send(0, 1, &WRITE, &[5; 512]).await));
            if leaves_first {
                rig.device.nexus_lost(&rig.nexuses[0]);
            }
            rig.unit.detach();
            rig.unit.attach(disk(), rig.rows.clone());
            if !leaves_first {
                rig.device.nexus_lost(&rig.nexuses[0]);
            }
            rig.device.nexus_established(&rig.nexuses[0]);
            let _power_on = rig.send(0, 1, &[0; 6], &[]).await;
            assert_eq!(rig.sense(0, &SYNC, &[]).await, WRITE_ERROR, "leaves first: {leaves_first}");
            assert!(good(&rig.send(0, 1, &SYNC, &[]).await), "once");
            // Told, it is not told again when it comes back.
            rig.device.nexus_lost(&rig.nexuses[0]);
            rig.device.nexus_established(&rig.nexuses[0]);
            let _power_on = rig.send(0, 1, &[0; 6], &[]).await;
            assert!(good(&rig.send(0, 1, &SYNC, &[]).await));
        }
    });
}

/// What initiators had saved counts again when the unit is opened anew, unless the administrator has said otherwise since.
#[test]
fn what_is_said_of_the_cache_while_the_storage_is_away_outlives_a_restart() {
    run_quickly(async {
        let rig = caching(disk()).await;
        let key = LogicalUnit::row_key(&[7; 16], b'm');
        let on = Mode { write_cache: true, ..Mode::default() };
        rig.rows.save(&key, Some(on.encode())).await.unwrap();
        rig.unit.detach();
        let _not_durable = rig.unit.set_write_cache(false, true).await;
        assert!(!rig.unit.caches_writes() && rig.unit.owes_its_mode());
        rig.unit.attach(disk(), rig.rows.clone());
        rig.unit.set_write_cache(false, true).await.unwrap();
        assert!(!rig.unit.owes_its_mode());
        let row = rig.rows.load(&key).await.unwrap().unwrap();
        assert!(!Mode::decode(&row).unwrap().write_cache, "its row says what the administrator said");
    });
}

/// A disk whose flushes fail.
struct NeverDurable(Arc<MemoryDisk>);

impl test_layers::DeviceLayer for NeverDurable {
    fn below(&self) -> &dyn BlockDevice {
        &*self.0
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(async { Err(BlockError::new(BlockErrorKind::Io, "a test")) })
    }
}

/// What was cached could not be made durable when the unit was closed: the one that is opened with its data next says so, once to
/// each who was there.
#[test]
fn what_is_lost_at_the_closing_is_told_by_the_next_unit() {
    run_quickly(async {
        for can_be_kept in [true, false] {
            let memory = Arc::new(MemoryDisk::new((BLOCKS * 512) as usize, 512));
            let failing = Arc::new(test_layers::Layered(NeverDurable(memory)));
            let rig = caching(Arc::new(DeviceBacking::new(failing))).await;
            assert!(good(&rig.send(0, 1, &WRITE, &[5; 512]).await));
            if !can_be_kept {
                // Its volume goes before.
                rig.unit.detach();
            }
            let left = rig.unit.close().await;
            assert_eq!(left.is_empty(), can_be_kept);
            let next = async |initiators| {
                let config = UnitConfig { write_cache: true, ..unit_config() };
                let unit = LogicalUnit::open(config, disk(), rig.rows.clone()).await.unwrap();
                unit.tell_lost_writes(left.clone());
                Rig::with(unit, rig.rows.clone(), initiators).await
            };
            let others = next(["iqn.2026-11.example:i3", "iqn.2026-11.example:i4"]).await;
            assert!(good(&others.send(0, 1, &SYNC, &[]).await), "who was not there has lost nothing");
            let after = next(INITIATORS).await;
            for who in 0..2 {
                assert_eq!(after.sense(who, &SYNC, &[]).await, WRITE_ERROR, "kept: {can_be_kept}");
                assert!(good(&after.send(who, 1, &SYNC, &[]).await), "once");
            }
            let told = after.unit.close().await;
            assert!(told.is_empty() && rig.rows.0.lock().is_empty(), "{:?}", rig.rows.0.lock());
        }
    });
}

/// The node ends at any moment, or another one takes over: nobody has closed the unit, and nobody knows what of the cache is there.
#[test]
fn what_was_cached_when_the_node_ended_is_told_by_the_next_unit() {
    run_quickly(async {
        let rig = caching(disk()).await;
        assert!(good(&rig.send(0, 1, &WRITE, &[5; 512]).await));
        // A write that is durable when it is answered cannot be lost.
        let mut through = WRITE;
        through[1] = 8;
        assert!(good(&rig.send(1, 1, &through, &[6; 512]).await));
        let next = async || {
            let config = UnitConfig { write_cache: true, ..unit_config() };
            let unit = LogicalUnit::open(config, disk(), rig.rows.clone()).await.unwrap();
            Rig::with(unit, rig.rows.clone(), INITIATORS).await
        };
        let after = next().await;
        assert_eq!(after.unit.lost_writes_of().len(), 1);
        assert_eq!(after.sense(0, &SYNC, &[]).await, WRITE_ERROR);
        assert!(good(&after.send(0, 1, &SYNC, &[]).await), "once");
        assert!(good(&after.send(1, 1, &SYNC, &[]).await), "it had nothing cached");
        assert_eq!(after.unit.lost_writes_of(), Vec::<String>::new());
        // Flushed, and nothing written since: the next end loses nothing.
        assert!(
            good(&after.send(1, 1, &WRITE, &[7; 512]).await) && good(&after.send(1, 1, &SYNC, &[]).await)
        );
        after.unit.rest().await;
        after.unit.rest().await;
        let rested = next().await;
        assert!(good(&rested.send(0, 1, &SYNC, &[]).await) && good(&rested.send(1, 1, &SYNC, &[]).await));
        // Who goes on is named again.
        assert!(good(&after.send(1, 1, &WRITE, &[8; 512]).await));
        assert_eq!(next().await.sense(1, &SYNC, &[]).await, WRITE_ERROR);
    });
}

/// A host has several paths, each with a session of its own: what it wrote over one it flushes over another.
#[test]
fn a_host_is_told_over_whichever_port_it_comes_back() {
    run_quickly(async {
        let rig = caching(disk()).await;
        assert!(good(&rig.send(0, 1, &WRITE, &[5; 512]).await));
        let next = async |initiators| {
            let config = UnitConfig { write_cache: true, ..unit_config() };
            let unit = LogicalUnit::open(config, disk(), rig.rows.clone()).await.unwrap();
            Rig::with(unit, rig.rows.clone(), initiators).await
        };
        // In this life the host has the port that was the other one's.
        let after = next([INITIATORS[1], INITIATORS[0]]).await;
        assert!(good(&after.send(0, 1, &SYNC, &[]).await), "it had nothing cached");
        assert_eq!(after.sense(1, &SYNC, &[]).await, WRITE_ERROR);
        assert!(good(&after.send(1, 1, &SYNC, &[]).await), "once");
        assert!(after.unit.lost_writes_of().is_empty());
    });
}

/// A host that was thrown away is never told; who is there is not forgotten.
#[test]
fn a_host_that_does_not_come_back_is_forgotten_when_that_is_asked_for() {
    run_quickly(async {
        let rig = caching(disk()).await;
        for who in 0..2 {
            assert!(good(&rig.send(who, 1, &WRITE, &[5; 512]).await));
        }
        let next = async |write_cache, initiators| {
            let config = UnitConfig { write_cache, ..unit_config() };
            let unit = LogicalUnit::open(config, disk(), rig.rows.clone()).await.unwrap();
            Rig::with(unit, rig.rows.clone(), initiators).await
        };
        let [first, second] = INITIATORS.map(|name| name.to_lowercase());
        let after = next(false, [INITIATORS[1], "iqn.2026-11.example:i9"]).await;
        assert_eq!(after.unit.lost_writes_of().len(), 2);
        let forget = async |host: Option<&str>| after.unit.forget_lost_writes(host).await.unwrap();
        assert!(forget(Some(&second)).await.is_empty(), "it is connected");
        assert!(forget(Some("iqn.2026-11.example:i9")).await.is_empty(), "it had nothing cached");
        assert_eq!(forget(None).await, [first.as_str()]);
        assert_eq!(after.unit.lost_writes_of(), [second.as_str()]);
        // Nor is it told by any later unit; and the other one is.
        let later = next(true, INITIATORS).await;
        assert_eq!(later.unit.lost_writes_of(), [second.as_str()]);
        assert!(good(&later.send(0, 1, &SYNC, &[]).await), "it was forgotten");
        assert_eq!(later.sense(1, &SYNC, &[]).await, WRITE_ERROR);
        // While writes may be cached, what the row says of them stays until it rests.
        assert!(good(&later.send(0, 1, &WRITE, &[6; 512]).await));
        assert!(later.unit.forget_lost_writes(None).await.unwrap().is_empty());
        let last = next(true, ["iqn.2026-11.example:i8", "iqn.2026-11.example:i9"]).await;
        assert!(last.unit.lost_writes_of().contains(&first));
    });
}

/// A command that takes long caches what it writes all the while.
#[test]
fn nobody_rests_while_a_command_is_under_way() {
    run_quickly(async {
        let rig = caching(disk()).await;
        assert!(good(&rig.send(0, 1, &WRITE, &[5; 512]).await));
        let Ok((_, caching)) = rig.unit.durability(1, false).await else { panic!("refused") };
        assert!(caching.is_some() && good(&rig.send(1, 1, &SYNC, &[]).await));
        let rests = async || {
            rig.unit.rest().await;
            rig.unit.rest().await;
            rig.rows.0.lock().keys().all(|key| !key.ends_with(b"l"))
        };
        assert!(!rests().await, "its host is named still");
        drop(caching);
        assert!(rests().await);
    });
}

/// Where it cannot be kept who may lose something, nothing is cached.
#[test]
fn what_nobody_could_be_told_of_is_written_through() {
    run_quickly(async {
        let config = UnitConfig { write_cache: true, ..unit_config() };
        let unit = LogicalUnit::open(config, disk(), Arc::new(NoReservationStore)).await.unwrap();
        let rig = Rig::with(unit, Arc::new(Rows::default()), INITIATORS).await;
        assert!(good(&rig.send(0, 1, &WRITE, &[5; 512]).await));
        rig.unit.detach();
        rig.unit.attach(disk(), rig.rows.clone());
        assert!(good(&rig.send(0, 1, &SYNC, &[]).await), "it was durable");
    });
}

/// A disk whose flushes find no space, while there is none.
struct Full(Arc<MemoryDisk>, std::sync::atomic::AtomicBool);

impl test_layers::DeviceLayer for Full {
    fn below(&self) -> &dyn BlockDevice {
        &*self.0
    }

    fn flush(&self) -> BlockFuture<'_, ()> {
        let full = self.1.load(std::sync::atomic::Ordering::SeqCst);
        Box::pin(async move {
            if full { Err(BlockError::new(BlockErrorKind::NoSpace, "a test")) } else { Ok(()) }
        })
    }
}

/// An image on a volume that is full: the flush says so, nothing is lost by that, and it succeeds when there is room.
#[test]
fn a_flush_without_space_loses_nothing() {
    run_quickly(async {
        let memory = Arc::new(MemoryDisk::new((BLOCKS * 512) as usize, 512));
        let full = Arc::new(test_layers::Layered(Full(memory, true.into())));
        let rig = caching(Arc::new(DeviceBacking::new(full.clone()))).await;
        assert!(good(&rig.send(0, 1, &WRITE, &[5; 512]).await));
        for who in [0, 1, 0] {
            assert_eq!(rig.sense(who, &SYNC, &[]).await, (7, 0x2707));
        }
        full.1.store(false, std::sync::atomic::Ordering::SeqCst);
        for who in 0..2 {
            assert!(good(&rig.send(who, 1, &SYNC, &[]).await));
        }
        // What was not flushed before it goes is lost still.
        full.1.store(true, std::sync::atomic::Ordering::SeqCst);
        assert!(good(&rig.send(0, 1, &WRITE, &[6; 512]).await));
        assert_eq!(rig.sense(0, &SYNC, &[]).await, (7, 0x2707));
        rig.unit.detach();
        rig.unit.attach(disk(), rig.rows.clone());
        for who in 0..2 {
            assert_eq!(rig.sense(who, &SYNC, &[]).await, WRITE_ERROR);
        }
    });
}
