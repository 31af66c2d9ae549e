//! The gate: the contracts of block devices and of reservations, no ghosts, and what is left of it after a crash.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod scene;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use aligned_buffer::{IoBuf, SharedBuf};
use block_conformance::{SharedSubject, Subject, SubjectFuture};
use block_device::{
    BlockDevice, BlockErrorKind, BlockFuture, Device, Durability, MemoryDisk, ReservationTable, Reservations,
};
use disk_gate::{DiskIdentity, FileRecords, Gate, Records, Settings};
use futures_util::poll;
use proptest::prelude::*;
use scene::{NEW, Named, OLD, Rows, SIZE, Saves, data, gate, on_shard, way};
use test_layers::{DeviceLayer, Layered};
use tokio::sync::Notify;

struct Gated(u32);

impl Subject for Gated {
    fn create(&self) -> SubjectFuture<'_, Device> {
        Box::pin(async { self.create_shared(1).await.remove(0) })
    }
}

impl SharedSubject for Gated {
    fn create_shared(&self, initiators: usize) -> SubjectFuture<'_, Vec<Device>> {
        Box::pin(async move {
            let gate = gate(Arc::new(MemoryDisk::new(SIZE, self.0)), Rows::new()).await;
            (0..initiators).map(|n| Arc::new(way(&gate, &format!("node {n}"))) as Device).collect()
        })
    }
}

#[test]
fn conforms() {
    for block in [512, 4096] {
        on_shard(async {
            block_conformance::run(&Gated(block), block_conformance::Options::seeded(5)).await.unwrap();
            block_conformance::run_reservations(&Gated(block)).await.unwrap();
        });
    }
}

/// A disk whose writes do not end before they are let.
struct Held {
    inner: MemoryDisk,
    free: AtomicBool,
    freed: Notify,
}

impl Held {
    fn free(&self) {
        self.free.store(true, Ordering::SeqCst);
        self.freed.notify_waiters();
    }
}

struct Holds(Arc<Held>);

impl DeviceLayer for Holds {
    fn below(&self) -> &dyn BlockDevice {
        &self.0.inner
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            let freed = self.0.freed.notified();
            if !self.0.free.load(Ordering::SeqCst) {
                freed.await;
            }
            self.0.inner.write(offset, data, durability).await
        })
    }
}

fn held() -> (Arc<Held>, Device) {
    let held = Arc::new(Held {
        inner: MemoryDisk::new(SIZE, 512),
        free: AtomicBool::new(false),
        freed: Notify::new(),
    });
    (held.clone(), Arc::new(Layered(Holds(held))))
}

async fn first_byte(device: &dyn BlockDevice) -> u8 {
    device.read(0, IoBuf::new(512)).await.unwrap()[0]
}

/// A preempt is answered after what the former owner has begun has ended, also when nobody waits for that any more.
#[test]
fn a_preempt_waits_for_what_is_under_way() {
    for dropped in [false, true] {
        on_shard(async {
            let (held, device) = held();
            let gate = gate(device, Rows::new()).await;
            let (old, new) = (way(&gate, "own"), way(&gate, "node 2"));
            old.register(OLD).await.unwrap();
            old.reserve(OLD).await.unwrap();
            let mut ghost = Some(old.write(0, data(1), Durability::Durable));
            assert!(poll!(ghost.as_mut().unwrap()).is_pending());
            if dropped {
                ghost = None;
            }
            new.register(NEW).await.unwrap();
            let preempting = shard_runtime::spawn_local({
                let new = new.clone();
                async move { new.preempt_and_abort(NEW, OLD).await }
            });
            // Long enough for a gate that does not wait to be done; one that waits never is.
            shard_runtime::sleep(std::time::Duration::from_millis(100)).await;
            assert!(!preempting.is_finished(), "answered with a write under way");
            // What comes now does not even begin, by an initiator that was not known before either.
            for late in [old.clone(), way(&gate, "own")] {
                let error = late.write(0, data(9), Durability::Durable).await.unwrap_err();
                assert_eq!(error.kind(), BlockErrorKind::Fenced);
            }
            held.free();
            if let Some(ghost) = ghost {
                ghost.await.unwrap();
            }
            preempting.await.unwrap().unwrap();
            assert_eq!(first_byte(&held.inner).await, 1);
            new.write(0, data(2), Durability::Durable).await.unwrap();
            assert_eq!(first_byte(&new).await, 2);
        });
    }
}

/// Somebody whose name comes up only while the disk is being reserved is measured by what will be.
#[test]
fn who_comes_during_a_change_is_measured_by_its_end() {
    on_shard(async {
        let (held, device) = held();
        let gate = gate(device, Rows::new()).await;
        let stranger = way(&gate, "stranger");
        let mut early = stranger.write(0, data(1), Durability::Durable);
        assert!(poll!(early.as_mut()).is_pending());
        let owner = way(&gate, "own");
        owner.register(OLD).await.unwrap();
        let mut reserving = owner.reserve(OLD);
        assert!(poll!(reserving.as_mut()).is_pending());
        let another = way(&gate, "another");
        let late = another.write(0, data(9), Durability::Durable);
        let late =
            shard_runtime::timeout(std::time::Duration::from_secs(5), late).await.expect("it has begun");
        assert_eq!(late.unwrap_err().kind(), BlockErrorKind::Fenced);
        held.free();
        early.await.unwrap();
        reserving.await.unwrap();
        assert_eq!(first_byte(&held.inner).await, 1);
    });
}

#[test]
fn registrations_below_the_highest_epoch_are_refused_for_ever() {
    on_shard(async {
        let folder = tempfile::tempdir().unwrap();
        let records = || Arc::new(FileRecords::open(folder.path()).unwrap());
        let medium = MemoryDisk::new(SIZE, 512);
        let other = medium.another_initiator();
        let gate_one = gate(Arc::new(medium), records()).await;
        let (own, two) = (way(&gate_one, "own"), way(&gate_one, "node 2"));
        two.register(NEW).await.unwrap();
        two.reserve(NEW).await.unwrap();
        assert_eq!(own.register(OLD).await.unwrap_err().kind(), BlockErrorKind::Fenced);
        two.unregister().await.unwrap();
        assert_eq!(own.register(OLD).await.unwrap_err().kind(), BlockErrorKind::Fenced);
        // The node starts again.
        let gate_two = gate(Arc::new(other), records()).await;
        let own = way(&gate_two, "own");
        assert_eq!(own.register(OLD).await.unwrap_err().kind(), BlockErrorKind::Fenced);
        own.register(NEW).await.unwrap();
    });
}

/// The node with the disk dies at each moment of a registration, a reservation and a takeover; what it comes back with is the state before
/// or after, and what was answered is there.
#[test]
fn a_crash_at_any_save_leaves_what_was_answered() {
    for failing in 0..4 {
        for saves in [Saves::Unheard, Saves::None] {
            on_shard(async {
                let rows = Rows::new();
                let disk = || Arc::new(MemoryDisk::new(SIZE, 512));
                let before = gate(disk(), rows.clone()).await;
                let (old, new) = (way(&before, "own"), way(&before, "node 2"));
                let mut answered = Vec::new();
                for step in 0..4 {
                    if step == failing {
                        *rows.saves.lock() = saves;
                    }
                    let done = match step {
                        0 => old.register(OLD).await,
                        1 => old.reserve(OLD).await,
                        2 => new.register(NEW).await,
                        _ => new.preempt_and_abort(NEW, OLD).await,
                    };
                    if done.is_err() {
                        assert_eq!(step, failing);
                        // Whatever the state is: nobody writes by it in this life.
                        for way in [&old, &new] {
                            let error = way.write(0, data(9), Durability::Durable).await.unwrap_err();
                            assert_eq!(error.kind(), BlockErrorKind::Io);
                        }
                        break;
                    }
                    answered.push(step);
                }
                assert_eq!(answered.len(), failing);
                *rows.saves.lock() = Saves::All;
                let after = gate(disk(), rows.clone()).await;
                let (old, new) = (way(&after, "own"), way(&after, "node 2"));
                let steps = answered.len() + usize::from(saves == Saves::Unheard);
                let keys: Vec<u64> = old.keys().await.unwrap().into_iter().collect();
                let wanted: &[u64] =
                    [&[][..], &[OLD], &[OLD], &[OLD, NEW], &[NEW]].get(steps).copied().unwrap();
                assert_eq!(keys, wanted);
                let holder = old.reservation().await.unwrap().map(|held| held.holder);
                assert_eq!(holder, [None, None, Some(OLD), Some(OLD), Some(NEW)][steps]);
                if steps == 4 {
                    let error = old.write(0, data(9), Durability::Durable).await.unwrap_err();
                    assert_eq!(error.kind(), BlockErrorKind::Fenced);
                    new.write(0, data(2), Durability::Durable).await.unwrap();
                }
            });
        }
    }
}

#[test]
fn a_damaged_record_lets_nobody_write() {
    on_shard(async {
        let folder = tempfile::tempdir().unwrap();
        let records = || Arc::new(FileRecords::open(folder.path()).unwrap());
        let disk = || Arc::new(MemoryDisk::new(SIZE, 512));
        let before = gate(disk(), records()).await;
        way(&before, "own").register(OLD).await.unwrap();
        let file = records().place(DiskIdentity([1; 16]));
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[30] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        let after = gate(disk(), records()).await;
        let own = way(&after, "own");
        for done in [own.write(0, data(1), Durability::Durable).await, own.register(NEW).await] {
            let error = done.unwrap_err();
            assert_eq!(error.kind(), BlockErrorKind::Io);
            let why = std::error::Error::source(&error).unwrap().to_string();
            assert!(why.contains(&file) && why.contains("remove the file"), "{why}");
        }
        assert!(own.keys().await.is_err(), "nobody knows who is registered");
        assert_eq!(first_byte(&own).await, 0, "reading is permitted");
    });
}

/// A disk that becomes a member of a pool is known by its GUID from the next change on.
#[test]
fn the_record_follows_the_disk() {
    on_shard(async {
        let rows = Rows::new();
        let identify = Arc::new(Named(AtomicU8::new(1)));
        let settings = |identify: &Arc<Named>| Settings {
            device: Arc::new(MemoryDisk::new(SIZE, 512)),
            name: "disk".into(),
            records: rows.clone(),
            identify: identify.clone(),
            blank: Some(DiskIdentity([1; 16])),
        };
        let before = Gate::open(settings(&identify)).await.unwrap();
        way(&before, "own").register(OLD).await.unwrap();
        identify.0.store(2, Ordering::SeqCst);
        way(&before, "own").reserve(OLD).await.unwrap();
        let after = Gate::open(settings(&identify)).await.unwrap();
        assert_eq!(way(&after, "node 2").reservation().await.unwrap().unwrap().holder, OLD);
    });
}

/// A disk is fenced while it is blank, and becomes a member; nothing changes afterwards, and its node is started anew.
#[test]
fn what_was_kept_of_a_blank_disk_holds_for_the_member_that_it_becomes() {
    on_shard(async {
        let rows = Rows::new();
        let identify = Arc::new(Named(AtomicU8::new(1)));
        let settings = || Settings {
            device: Arc::new(MemoryDisk::new(SIZE, 512)),
            name: "disk".into(),
            records: rows.clone(),
            identify: identify.clone(),
            blank: Some(DiskIdentity([1; 16])),
        };
        let before = Gate::open(settings()).await.unwrap();
        way(&before, "own").register(OLD).await.unwrap();
        way(&before, "own").reserve(OLD).await.unwrap();
        identify.0.store(2, Ordering::SeqCst);
        let after = Gate::open(settings()).await.unwrap();
        assert_eq!(way(&after, "node 2").reservation().await.unwrap().unwrap().holder, OLD);
        // Blank again, it is free: nothing of the member that it was is left.
        identify.0.store(1, Ordering::SeqCst);
        let blank = Gate::open(settings()).await.unwrap();
        assert_eq!(way(&blank, "node 2").reservation().await.unwrap(), None);
    });
}

/// The same key again is no change, but it is kept under the identity of now.
#[test]
fn what_does_not_change_is_kept_under_the_identity_of_now() {
    on_shard(async {
        let rows = Rows::new();
        let identify = Arc::new(Named(AtomicU8::new(1)));
        let settings = Settings {
            device: Arc::new(MemoryDisk::new(SIZE, 512)),
            name: "disk".into(),
            records: rows.clone(),
            identify: identify.clone(),
            blank: None,
        };
        let gate = Gate::open(settings).await.unwrap();
        way(&gate, "own").register(OLD).await.unwrap();
        identify.0.store(2, Ordering::SeqCst);
        way(&gate, "own").register(OLD).await.unwrap();
        assert!(rows.load(DiskIdentity([2; 16])).unwrap().is_some());
    });
}

#[derive(Clone, Debug)]
enum Step {
    Register(u64),
    Unregister,
    Reserve(u64),
    Preempt(u64, u64),
    Write,
    Restart,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let key = || (1..5_u64, 1..3_u64).prop_map(|(epoch, node)| epoch << 16 | node);
    let step = prop_oneof![
        4 => key().prop_map(Step::Register),
        1 => Just(Step::Unregister),
        3 => key().prop_map(Step::Reserve),
        4 => (key(), key()).prop_map(|(own, victim)| Step::Preempt(own, victim)),
        6 => Just(Step::Write),
        1 => Just(Step::Restart),
    ];
    (0..2_usize, step)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Two nodes do anything, and the node with the disk starts again at any time: the gate says what the table in memory says, except that
    /// it refuses epochs that are over.
    #[test]
    fn two_nodes_see_what_the_model_sees(steps in proptest::collection::vec(step(), 1..60)) {
        on_shard(async {
            let rows = Rows::new();
            let mut device = MemoryDisk::new(SIZE, 512);
            let mut again = device.another_initiator();
            let mut gated = gate(Arc::new(device), rows.clone()).await;
            let (mut model, mut highest) = (ReservationTable::default(), 0);
            for (node, step) in steps {
                let disk = way(&gated, ["own", "node 2"][node]);
                let me = node as u64;
                match step {
                    Step::Register(key) => {
                        let may = key >> 16 >= highest;
                        prop_assert_eq!(disk.register(key).await.is_ok(), may);
                        if may {
                            model.register(me, key);
                            highest = key >> 16;
                        }
                    }
                    Step::Unregister => {
                        disk.unregister().await.unwrap();
                        model.unregister(me);
                    }
                    Step::Reserve(key) => {
                        prop_assert_eq!(disk.reserve(key).await.is_ok(), model.reserve(me, key).is_ok());
                    }
                    Step::Preempt(own, victim) => {
                        let done = disk.preempt_and_abort(own, victim).await.is_ok();
                        prop_assert_eq!(done, model.preempt(me, own, victim).is_ok());
                    }
                    Step::Write => {
                        let written = disk.write(0, data(me as u8), Durability::Durable).await;
                        prop_assert_eq!(written.is_ok(), model.permits(me));
                    }
                    Step::Restart => {
                        device = again;
                        again = device.another_initiator();
                        gated = gate(Arc::new(device), rows.clone()).await;
                    }
                }
                let disk = way(&gated, "own");
                prop_assert_eq!(disk.keys().await.unwrap(), model.keys());
                prop_assert_eq!(disk.reservation().await.unwrap(), model.reservation());
            }
            Ok(())
        })?;
    }
}
