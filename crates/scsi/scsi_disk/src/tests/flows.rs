//! Commands that wait for their turn at the volume: in which order, and what becomes of them when they are aborted, fenced off
//! or dropped meanwhile. The clock does not go on by itself, so what a limit holds back waits until the limit is changed.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use qos_gate::{FlowReport, Gate, Rule, Terms};
use shard_runtime::{Clock, Monotonic, WallTime};

use super::*;

struct HandClock(AtomicU64, AtomicU64);

impl Clock for HandClock {
    fn now(&self) -> Monotonic {
        self.1.fetch_add(1, Ordering::Relaxed);
        Monotonic(self.0.load(Ordering::Relaxed))
    }
    fn wall(&self) -> WallTime {
        WallTime(0)
    }
}

pub(super) const FIRST: &[u8] = &[b'1'; 512];
pub(super) const SECOND: &[u8] = &[b'2'; 512];

/// A unit that lets one command through and no more, until it is told to.
pub(super) struct Held {
    clock: Arc<HandClock>,
    pub(super) rig: Rig,
    pub(super) gate: Arc<Gate>,
}

impl Held {
    pub(super) async fn new() -> Self {
        Self::with(Rig::new().await).await
    }

    pub(super) async fn with(rig: Rig) -> Self {
        let clock = Arc::new(HandClock(AtomicU64::new(1), AtomicU64::new(0)));
        let gate = Gate::new(clock.clone(), &Default::default());
        let held = Self { clock: clock.clone(), rig, gate };
        held.rig.unit.queue_as(Some(held.gate.disk("disk")));
        held.rig.good(0, &rw(0x2a, 0, 0, 1), FIRST).await;
        // One second after the first initiator's first command, so that its rates are counts.
        clock.0.fetch_add(1_000_000_000, Ordering::Relaxed);
        held.limit(Some(1));
        held.rig.good(0, &rw(0x2a, 0, 0, 1), FIRST).await;
        held
    }

    /// What the first initiator has done so far.
    pub(super) fn counted(&self) -> FlowReport {
        let mut flows = self.gate.flows();
        flows.retain(|flow| flow.client == INITIATORS[0]);
        flows.swap_remove(0)
    }

    pub(super) fn limit(&self, max_iops: Option<u64>) {
        let rule = Rule::Alone(Terms { max_iops, burst: 0, ..Terms::default() });
        self.gate.apply(&Default::default(), BTreeMap::from([("disk".into(), rule)]));
    }

    pub(super) fn waiting(&self) -> u32 {
        self.gate.flows().iter().map(|flow| flow.waiting).sum()
    }

    pub(super) fn at_volume(&self) -> u32 {
        self.gate.flows().iter().map(|flow| flow.in_flight).sum()
    }

    pub(super) async fn block(&self) -> Vec<u8> {
        self.limit(None);
        self.rig.good(0, &rw(0x28, 0, 0, 1), &[]).await
    }
}

pub(super) fn write(data: &[u8]) -> ScsiCommand {
    ScsiCommand {
        cdb: rw(0x2a, 0, 0, 1),
        data_out: IoBuf::copy_from(data).freeze(),
        data_in_limit: 0,
        attribute: TaskAttribute::Simple,
    }
}

pub(super) fn poll<T>(future: std::pin::Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Lets tasks that were dropped, and go on by themselves, have their turn.
pub(super) async fn settle() {
    for _ in 0..10 {
        shard_runtime::yield_now().await;
    }
}

#[test]
fn what_moves_data_waits_and_the_rest_does_not() {
    run(async {
        let held = Held::new().await;
        let lun = WireLun::from_number(1);
        let mut waits = pin!(held.rig.device.execute(&held.rig.nexuses[0], lun, write(SECOND)));
        assert!(poll(waits.as_mut()).is_pending());
        assert_eq!((held.waiting(), held.at_volume()), (1, 0));
        // TEST UNIT READY, INQUIRY, READ CAPACITY, SYNCHRONIZE CACHE.
        for cdb in [&[0; 6][..], &[0x12, 0, 0, 0, 36, 0], &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
            held.rig.good(0, cdb, &[]).await;
        }
        held.rig.good(1, &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]).await;
        assert!(poll(waits.as_mut()).is_pending());
        held.limit(None);
        assert_eq!(waits.await.unwrap().status, ScsiStatus::Good);
        assert_eq!((held.waiting(), held.at_volume()), (0, 0));
        assert_eq!(held.block().await, SECOND);
        let mut flows = held.gate.flows();
        flows.sort_by(|a, b| a.client.cmp(&b.client));
        assert_eq!(flows.len(), 1, "the other initiator has moved nothing");
        assert_eq!(flows[0].client, INITIATORS[0]);
    });
}

#[test]
fn commands_of_every_kind_that_move_data_are_counted_by_their_length() {
    run(async {
        let held = Held::new().await;
        held.limit(None);
        let block = vec![0x55; 512];
        let mut before = held.counted();
        // WRITE SAME of 1 MiB moves 128 units, of zeros and UNMAP one; VERIFY reads; ORWRITE and COMPARE AND WRITE write.
        let same = |flags: u8| [&[0x93, flags][..], &[0; 8], &2048u32.to_be_bytes(), &[0, 0]].concat();
        let verify = [&[0x8f, 0][..], &[0; 8], &2048u32.to_be_bytes(), &[0, 0]].concat();
        let unmap = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &[0; 8], &[0, 0, 0, 8, 0, 0, 0, 0]].concat();
        let half = vec![0; 512];
        for (cdb, data, reads, writes) in [
            (rw(0x28, 0, 0, 16), &[][..], 1, 0),
            (rw(0x28, 0, 0, 17), &[], 2, 0),
            (rw(0x2a, 0, 0, 1), &block, 0, 1),
            (same(0), &block, 0, 128),
            (verify, &[], 128, 0),
            (same(0), &half, 0, 1),
            (vec![0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &unmap, 0, 1),
            ([&[0x8b, 0][..], &[0; 8], &1u32.to_be_bytes(), &[0, 0]].concat(), &block, 0, 1),
            ([&[0x89, 0][..], &[0; 8], &[0, 0, 0, 1, 0, 0]].concat(), &[&block[..], &half].concat(), 0, 1),
        ] {
            held.rig.good(0, &cdb, data).await;
            let now = held.counted();
            assert_eq!(now.normalized_iops - before.normalized_iops, reads + writes, "{cdb:x?}");
            assert_eq!(now.read_iops > before.read_iops, reads > 0, "{cdb:x?}");
            assert_eq!(now.write_iops > before.write_iops, writes > 0, "{cdb:x?}");
            before = now;
        }
        assert_eq!(held.at_volume(), 0);
    });
}

#[test]
fn what_is_aborted_while_it_waits_ends_at_once_and_has_changed_nothing() {
    run(async {
        let held = Held::new().await;
        let lun = WireLun::from_number(1);
        let (device, nexuses) = (&held.rig.device, &held.rig.nexuses);
        let mut waits = pin!(device.execute(&nexuses[0], lun, write(SECOND)));
        assert!(poll(waits.as_mut()).is_pending());
        let mut clear = pin!(device.task_management(&nexuses[1], lun, TaskManagement::ClearTaskSet));
        let mut cleared = poll(clear.as_mut());
        assert!(poll(waits.as_mut()).is_ready(), "it was woken and has ended");
        while cleared.is_pending() {
            settle().await;
            cleared = poll(clear.as_mut());
        }
        assert_eq!((held.waiting(), held.at_volume()), (0, 0));
        held.limit(None);
        assert_eq!(held.rig.sense(0, &[0; 6], &[]).await.0, 6, "it is told that its commands were cleared");
        assert_eq!(held.block().await, FIRST);
    });
}

#[test]
fn what_is_dropped_while_it_waits_is_as_if_it_had_never_come() {
    run(async {
        let held = Held::new().await;
        let lun = WireLun::from_number(1);
        {
            let mut waits = pin!(held.rig.device.execute(&held.rig.nexuses[0], lun, write(SECOND)));
            assert!(poll(waits.as_mut()).is_pending());
        }
        settle().await;
        assert_eq!((held.waiting(), held.at_volume()), (0, 0));
        assert_eq!(held.block().await, FIRST);
    });
}

#[test]
fn who_is_fenced_off_while_it_waits_does_not_write() {
    run(async {
        let held = Held::new().await;
        let lun = WireLun::from_number(1);
        let mut waits = pin!(held.rig.device.execute(&held.rig.nexuses[0], lun, write(SECOND)));
        assert!(poll(waits.as_mut()).is_pending());
        // The other registers and reserves: exclusive access.
        assert_eq!(held.rig.prout(1, 0, 0, (0, 7), false).await, (0, 0));
        assert_eq!(held.rig.prout(1, 1, 3, (7, 0), false).await, (0, 0));
        held.limit(None);
        assert_eq!(waits.await.unwrap().status, ScsiStatus::ReservationConflict);
        assert_eq!(held.rig.good(1, &rw(0x28, 0, 0, 1), &[]).await, FIRST);
    });
}

#[test]
fn a_copy_waits_too() {
    run(async {
        let held = Held::new().await;
        let lun = WireLun::from_number(1);
        let list = super::going_on::copy_list(1, &held.rig.unit.designator(), 0, 1, 8);
        let [high, low] = (list.len() as u16).to_be_bytes();
        let cdb = [0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low, 0, 0].to_vec();
        let command = ScsiCommand {
            cdb,
            data_out: IoBuf::copy_from(&list).freeze(),
            data_in_limit: 0,
            attribute: TaskAttribute::Simple,
        };
        let mut waits = pin!(held.rig.device.execute(&held.rig.nexuses[0], lun, command));
        assert!(poll(waits.as_mut()).is_pending());
        assert_eq!((held.waiting(), held.at_volume()), (1, 0));
        held.limit(None);
        assert_eq!(waits.await.unwrap().status, ScsiStatus::Good);
        assert_eq!(held.rig.good(0, &rw(0x28, 0, 8, 1), &[]).await, FIRST);
        assert_eq!(held.at_volume(), 0);
    });
}

#[test]
fn flows_end_with_their_sessions_and_with_the_queue() {
    run(async {
        let held = Held::new().await;
        held.limit(None);
        held.rig.good(1, &rw(0x28, 0, 0, 1), &[]).await;
        assert_eq!(held.gate.flows().len(), 2);
        held.rig.device.nexus_lost(&held.rig.nexuses[1]);
        assert_eq!(held.gate.flows().len(), 1);
        held.rig.unit.queue_as(None);
        assert!(held.gate.flows().is_empty());
        held.rig.good(0, &rw(0x28, 0, 0, 1), &[]).await;
        assert!(held.gate.flows().is_empty(), "nothing waits any more");
    });
}

#[test]
fn a_command_is_counted_and_queued_by_two_looks_at_the_clock() {
    run(async {
        let held = Held::new().await;
        held.limit(None);
        held.rig.unit.count_with(held.clock.clone());
        for cdb in [rw(0x28, 0, 0, 1), rw(0x2a, 0, 0, 1)] {
            let before = held.clock.1.load(Ordering::Relaxed);
            held.rig.good(0, &cdb, if cdb[0] == 0x2a { FIRST } else { &[] }).await;
            assert_eq!(held.clock.1.load(Ordering::Relaxed) - before, 2, "{cdb:x?}");
        }
        assert_eq!((held.at_volume(), held.rig.unit.totals().read.operations), (0, 1));
    });
}
