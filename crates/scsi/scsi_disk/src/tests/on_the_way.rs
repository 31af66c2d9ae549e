//! A unit that is on the way between nodes: commands are held, then answered as the unit answers, once.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::going_on::{Gate, pending};
use super::*;
use crate::waiting::{MAX_WAITING, MAX_WAITING_BYTES, SHARE, Waiting};

/// The node at the other end, which may have the unit or not. Time passes only when everything waits for it.
pub(super) struct Road {
    began: Instant,
    pub(super) owner: Mutex<Option<Arc<TargetDevice>>>,
    nexuses: [Arc<Nexus>; 2],
    /// What is asked there, and is begun there.
    asked: AtomicUsize,
    begun: AtomicUsize,
    /// A command that is sent while it is closed comes to the other end when it opens.
    closed: Mutex<bool>,
    opened: Notify,
    /// Nobody may try again what is sent.
    stale: Mutex<bool>,
    /// When the commands came that were asked last.
    arrived: AtomicU64,
}

impl Forward for Road {
    fn nexus_established(&self, _nexus: &Arc<Nexus>) {}
    fn nexus_lost(&self, _nexus: &Arc<Nexus>) {}
    fn now(&self) -> u64 {
        1 + self.began.elapsed().as_nanos() as u64
    }
    fn execute<'a>(
        &'a self,
        to: Place,
        nexus: &'a Arc<Nexus>,
        command: ScsiCommand,
        arrived: u64,
    ) -> ScsiFuture<'a, Brought> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            self.arrived.store(arrived, Ordering::SeqCst);
            if *self.stale.lock() {
                return Brought::Stale;
            }
            while *self.closed.lock() {
                self.opened.notified().await;
            }
            let Some(owner) = self.owner.lock().clone() else { return Brought::NotBegun };
            let nexus = &self.nexuses[nexus.id as usize - 1];
            match owner.execute_here(nexus, to.lun, to.unit, command).await {
                Some(response) => {
                    self.begun.fetch_add(1, Ordering::SeqCst);
                    Brought::Ended(response)
                }
                None => Brought::NotBegun,
            }
        })
    }
    fn task_management<'a>(
        &'a self,
        to: Place,
        nexus: &'a Arc<Nexus>,
        function: TaskManagement,
    ) -> ScsiFuture<'a, Option<TaskManagementOutcome>> {
        Box::pin(async move {
            let owner = self.owner.lock().clone()?;
            let nexus = &self.nexuses[nexus.id as usize - 1];
            owner.manage_here(nexus, to.lun, to.unit, function).await
        })
    }
    fn settled(&self) -> ScsiFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// Two nodes: initiators are at `near`.
pub(super) struct Two {
    pub(super) road: Arc<Road>,
    pub(super) near: TargetDevice,
    pub(super) room: Arc<WaitingRoom>,
    /// What stands for the unit here.
    pub(super) absent: Arc<LogicalUnit>,
    /// The unit itself, as the other node has it.
    pub(super) unit: Arc<LogicalUnit>,
    hosts: [Arc<Nexus>; 2],
}

const LUN: u16 = 1;
pub(super) const BUSY: (u8, u16) = (0, 8);
pub(super) const GOOD: (u8, u16) = (0, 0);

pub(super) fn shows(unit: &Arc<LogicalUnit>) -> Vec<Group> {
    let mapped = MappedUnit { unit: unit.clone(), read_only: false };
    vec![Group { luns: BTreeMap::from([(LUN, mapped)]), ..Group::default() }]
}

fn host(id: u64, target_port: u16) -> Arc<Nexus> {
    Arc::new(Nexus {
        id,
        initiator: INITIATORS[id as usize - 1].to_owned(),
        initiator_port: [id as u8; 6],
        target: "iqn.a:disk".to_owned(),
        target_port,
        io: IoTally::default(),
    })
}

async fn stands_for(state: UnitState) -> Arc<LogicalUnit> {
    let store = Arc::new(NoReservationStore);
    let unit = LogicalUnit::open(unit_config(), Arc::<AbsentBacking>::default(), store).await.unwrap();
    unit.set_state(state);
    unit
}

impl Two {
    /// The unit is on the way: it is nowhere yet.
    pub(super) async fn new() -> Self {
        tokio::time::pause();
        let absent = stands_for(UnitState::Elsewhere(None)).await;
        let road = Arc::new(Road {
            began: Instant::now(),
            owner: Mutex::default(),
            nexuses: [host(1, 17), host(2, 17)],
            asked: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            closed: Mutex::default(),
            opened: Notify::new(),
            stale: Mutex::default(),
            arrived: AtomicU64::new(0),
        });
        let room = Arc::<WaitingRoom>::default();
        let near = TargetDevice::forwarding(Some(road.clone()), room.clone());
        near.configure(shows(&absent));
        let hosts = [host(1, 17), host(2, 17)];
        hosts.iter().for_each(|host| near.nexus_established(host));
        let unit = open(Arc::new(Rows::default())).await;
        Self { road, near, room, absent, unit, hosts }
    }

    /// The other node takes it, and those hosts hear no more of a reset.
    pub(super) async fn taken_there(&self) {
        let device = Arc::new(TargetDevice::new());
        device.configure(shows(&self.unit));
        for nexus in &self.road.nexuses {
            device.nexus_established(nexus);
            while self.unit.take_news(nexus.id).is_some() {}
        }
        *self.road.owner.lock() = Some(device);
        self.absent.set_state(UnitState::Elsewhere(Some(2)));
    }

    pub(super) fn send_as(
        &self,
        who: usize,
        cdb: &[u8],
        data: &[u8],
        attribute: TaskAttribute,
    ) -> ScsiFuture<'_, Option<ScsiResponse>> {
        self.near.execute(&self.hosts[who], WireLun::from_number(LUN), command(cdb, data, attribute))
    }

    pub(super) fn send(&self, who: usize, cdb: &[u8], data: &[u8]) -> ScsiFuture<'_, Option<ScsiResponse>> {
        self.send_as(who, cdb, data, TaskAttribute::Simple)
    }

    pub(super) fn write(&self, who: usize, lba: u32) -> ScsiFuture<'_, Option<ScsiResponse>> {
        self.send(who, &rw(0x2a, 0, lba, 1), &[lba as u8; 512])
    }

    pub(super) async fn block(&self, lba: u64) -> u8 {
        self.unit.backing().read(lba * 512, IoBuf::new(512)).await.unwrap()[0]
    }
}

fn command(cdb: &[u8], data: &[u8], attribute: TaskAttribute) -> ScsiCommand {
    let data_out = IoBuf::copy_from(data).freeze();
    ScsiCommand { cdb: cdb.to_vec(), data_out, data_in_limit: 1 << 20, attribute }
}

pub(super) fn said(response: Option<ScsiResponse>) -> (u8, u16) {
    let response = response.expect("an answer");
    match response.status {
        ScsiStatus::CheckCondition => {
            (response.sense[2], u16::from_be_bytes([response.sense[12], response.sense[13]]))
        }
        status => (0, status as u16),
    }
}

#[test]
fn what_is_held_is_done_once_where_the_unit_has_come_to() {
    run(async {
        let two = Two::new().await;
        let mut writes: Vec<_> = (1..20).map(|lba| two.write(0, lba)).collect();
        for write in &mut writes {
            assert!(pending(write).await, "it was answered at once");
        }
        assert_eq!(two.room.counts(), (19, 19 * 512));
        let inquiry = two.send(0, &[0x12, 0, 0, 0, 96, 0], &[]);
        assert_eq!(said(inquiry.await), GOOD, "who asks what it is need not wait");
        two.taken_there().await;
        let came = two.road.now();
        tokio::time::advance(Duration::from_millis(1)).await;
        for write in writes {
            assert_eq!(said(write.await), GOOD);
        }
        assert_eq!(two.road.begun.load(Ordering::SeqCst), 19, "each is done once");
        assert_eq!((two.block(1).await, two.block(19).await), (1, 19));
        assert_eq!(two.room.counts(), (0, 0));
        assert!(two.road.arrived.load(Ordering::SeqCst) <= came, "its age counts from where it came in");
    });
}

#[test]
fn a_unit_that_comes_here_is_waited_for() {
    run(async {
        let two = Two::new().await;
        two.absent.set_state(UnitState::Busy);
        let mut write = two.write(0, 3);
        assert!(pending(&mut write).await);
        // This node takes it: of the ways there is nothing to tell beside the reset.
        two.unit.set_port_groups(vec![PortGroup { tag: 1, access: AccessState::NonOptimized }]);
        two.near.configure(shows(&two.unit));
        assert_eq!(said(write.await), (6, 0x2900));
        assert_eq!(said(two.write(0, 3).await), GOOD);
        assert_eq!((two.block(3).await, two.room.counts()), (3, (0, 0)));
    });
}

/// The former owner: what runs ends there, what had not begun goes where the unit goes.
#[test]
fn what_had_not_begun_at_the_former_owner_goes_along() {
    run(async {
        let two = Two::new().await;
        let gate = Gate::new();
        let former = open_on(Arc::new(Rows::default()), gate.clone()).await;
        two.near.configure(shows(&former));
        assert_eq!(said(two.write(0, 1).await), (6, 0x2900));
        gate.set(true, false);
        let mut runs = two.write(0, 1);
        assert!(pending(&mut runs).await);
        let mut ordered = two.send_as(0, &rw(0x2a, 0, 2, 1), &[2; 512], TaskAttribute::Ordered);
        assert!(pending(&mut ordered).await);
        tokio::time::advance(Duration::from_millis(1)).await;
        let mut behind = two.write(0, 3);
        assert!(pending(&mut behind).await);
        former.moves();
        two.near.configure(shows(&two.absent));
        let mut closing = Box::pin(former.close());
        assert!(futures_util::poll!(closing.as_mut()).is_pending(), "one runs");
        assert_eq!(said(ordered.await), BUSY, "one whose place among others counts is not held");
        assert!(pending(&mut behind).await);
        assert_eq!(two.room.counts(), (1, 512));
        gate.set(false, false);
        let (_told, runs) = tokio::join!(closing, runs);
        assert_eq!(said(runs), GOOD, "it has ended there");
        two.taken_there().await;
        assert_eq!(said(behind.await), GOOD);
        assert_eq!((two.block(3).await, two.road.begun.load(Ordering::SeqCst)), (3, 1));
        let mut left = IoBuf::new(512);
        left = test_layers::DeviceLayer::read(&gate.0, 3 * 512, left).await.unwrap();
        assert_eq!(left[0], 0, "and not where it was given up");
    });
}

#[test]
fn what_is_held_for_too_long_is_busy_and_never_done() {
    run(async {
        let two = Two::new().await;
        let began = two.road.now();
        assert_eq!(said(two.write(0, 1).await), BUSY);
        let took = two.road.now() - began;
        assert!((500_000_000..1_000_000_000).contains(&took), "by the clock of the test: {took}");
        assert_eq!(two.room.counts(), (0, 0));
        // It comes when the machine has slept: nobody knows what was written over other paths meanwhile.
        two.absent.set_state(UnitState::Busy);
        let mut old = two.write(0, 2);
        assert!(pending(&mut old).await);
        tokio::time::advance(Duration::from_secs(5)).await;
        two.near.configure(shows(&two.unit));
        assert_eq!(said(old.await), BUSY);
        assert_eq!((two.block(1).await, two.block(2).await), (0, 0));
        let mut asked = two.road.asked.load(Ordering::SeqCst);
        two.absent.set_state(UnitState::Elsewhere(Some(2)));
        two.near.configure(shows(&two.absent));
        *two.road.stale.lock() = true;
        assert_eq!(said(two.write(0, 4).await), BUSY);
        asked = two.road.asked.load(Ordering::SeqCst) - asked;
        assert_eq!(asked, 1, "what may not be tried again is not");
    });
}

#[test]
fn functions_end_what_is_held() {
    run(async {
        let two = Two::new().await;
        let lun = WireLun::from_number(LUN);
        let (mut own, mut other) = (two.write(0, 1), two.write(1, 2));
        assert!(pending(&mut own).await && pending(&mut other).await);
        let set = two.near.task_management(&two.hosts[0], lun, TaskManagement::AbortTaskSet);
        let (outcome, own) = tokio::join!(set, own);
        assert_eq!((outcome, own.is_none()), (TaskManagementOutcome::Complete, true));
        assert!(pending(&mut other).await, "it is another nexus's");
        let mut reset = two.near.task_management(&two.hosts[0], lun, TaskManagement::LogicalUnitReset);
        assert!(futures_util::poll!(reset.as_mut()).is_pending(), "it ends when that has ended");
        assert!(other.await.is_none(), "it was aborted, and is not answered");
        assert_eq!(reset.await, TaskManagementOutcome::Complete);
        assert_eq!(two.room.counts(), (0, 0));
        two.taken_there().await;
        assert_eq!(said(two.write(1, 3).await), (6, 0x2903), "whose command has gone is told");
        assert_eq!((two.block(1).await, two.block(2).await), (0, 0));
        // The whole target, and a unit that has come here meanwhile.
        two.absent.set_state(UnitState::Elsewhere(None));
        let mut last = two.write(1, 4);
        assert!(pending(&mut last).await);
        let target = two.near.task_management(&two.hosts[0], lun, TaskManagement::TargetWarmReset);
        let (outcome, last) = tokio::join!(target, last);
        assert_eq!((outcome, last.is_none()), (TaskManagementOutcome::Complete, true));
        let mut cleared = two.write(1, 5);
        assert_eq!(said(cleared.await), (6, 0x2903));
        cleared = two.write(1, 5);
        assert!(pending(&mut cleared).await);
        let clear = two.near.task_management(&two.hosts[0], lun, TaskManagement::ClearTaskSet);
        let (outcome, cleared) = tokio::join!(clear, cleared);
        assert_eq!((outcome, cleared.is_none()), (TaskManagementOutcome::Complete, true));
        two.taken_there().await;
        assert_eq!(said(two.write(1, 5).await), (6, 0x2f00));
        assert_eq!((two.block(4).await, two.block(5).await, two.room.counts()), (0, 0, (0, 0)));
    });
}

#[test]
fn what_the_transport_drops_is_neither_done_nor_counted() {
    run(async {
        let two = Two::new().await;
        let mut dropped = two.write(0, 1);
        assert!(pending(&mut dropped).await);
        assert_eq!(two.room.counts(), (1, 512));
        drop(dropped);
        assert_eq!(two.room.counts(), (0, 0));
        let mut lost = two.write(1, 2);
        assert!(pending(&mut lost).await);
        two.near.nexus_lost(&two.hosts[1]);
        two.taken_there().await;
        assert!(lost.await.is_none(), "its session has ended");
        assert_eq!(said(two.write(0, 3).await), GOOD);
        assert_eq!((two.block(1).await, two.block(2).await, two.room.counts()), (0, 0, (0, 0)));
    });
}

/// Another nexus has something that waits for some other unit.
fn of_another(two: &Two, nexus: u64, bytes: usize) -> Option<Waiting<'_>> {
    two.room.wait(([9; 16], TaskAttribute::Simple, 0), nexus, bytes)
}

#[test]
fn only_so_much_is_held() {
    run(async {
        let two = Two::new().await;
        let share = MAX_WAITING / SHARE;
        let mut held: Vec<_> = (0..share).map(|_| two.send(0, &rw(0x28, 0, 0, 1), &[])).collect();
        for read in &mut held {
            assert!(futures_util::poll!(read.as_mut()).is_pending());
        }
        assert_eq!(two.room.counts(), (share, 0));
        let began = two.road.now();
        let more = two.send(0, &rw(0x28, 0, 0, 1), &[]);
        assert_eq!((said(more.await), two.road.now()), (BUSY, began), "it has had its share");
        let mut other = two.send(1, &rw(0x28, 0, 0, 1), &[]);
        assert!(pending(&mut other).await, "others have theirs");
        let filled: Vec<_> = (share + 1..MAX_WAITING).filter_map(|n| of_another(&two, n as u64, 0)).collect();
        assert_eq!((filled.len(), two.room.counts()), (MAX_WAITING - share - 1, (MAX_WAITING, 0)));
        let more = two.send(1, &rw(0x28, 0, 0, 1), &[]);
        assert_eq!((said(more.await), two.road.now()), (BUSY, began), "there is no room");
        drop((held, filled, other));
        let share = MAX_WAITING_BYTES / SHARE;
        let mut large = two.send(0, &rw(0x2a, 0, 0, 1), &vec![7; share]);
        assert!(pending(&mut large).await);
        assert_eq!(said(two.write(0, 2).await), BUSY, "it has had its share of bytes");
        let mut other = two.write(1, 2);
        assert!(pending(&mut other).await, "others have theirs");
        drop(other);
        let filled: Vec<_> = (3..2 + SHARE).filter_map(|n| of_another(&two, n as u64, share)).collect();
        assert_eq!(said(two.write(1, 2).await), BUSY, "there is no room for its data");
        let mut read = two.send(1, &rw(0x28, 0, 0, 1), &[]);
        assert!(pending(&mut read).await, "it has none");
        assert_eq!((two.room.counts(), two.road.now()), ((SHARE + 1, MAX_WAITING_BYTES), began));
        drop((large, read, filled));
        assert_eq!(two.room.counts(), (0, 0));
    });
}

#[test]
fn a_number_that_another_unit_has_by_then_is_not_written() {
    run(async {
        let two = Two::new().await;
        let mut write = two.write(0, 1);
        assert!(pending(&mut write).await);
        let config = UnitConfig { id: [9; 16], ..unit_config() };
        let disk = Arc::new(MemoryDisk::new((BLOCKS * 512) as usize, 512));
        let other = LogicalUnit::open(config, Arc::new(DeviceBacking::new(disk)), Arc::new(Rows::default()));
        let other = other.await.unwrap();
        // The number was nobody's in between: else it leads to no other unit while the initiator is logged in.
        two.near.configure(Vec::new());
        two.near.configure(shows(&other));
        // Also when there is nothing more to tell that would stop it.
        other.take_news(1);
        while other.take_news(1).is_some() {}
        assert_eq!(said(write.await), BUSY);
        let there = other.backing().read(512, IoBuf::new(512)).await.unwrap();
        assert_eq!(there[0], 0);
        // And when there is none any more.
        two.near.configure(Vec::new());
        two.near.configure(shows(&two.absent));
        while two.absent.take_news(1).is_some() {}
        let mut write = two.write(0, 1);
        assert!(pending(&mut write).await);
        two.near.configure(Vec::new());
        assert_eq!(said(write.await), (5, 0x2500));
    });
}

#[test]
fn no_ordered_command_passes_what_is_held() {
    run(async {
        let two = Two::new().await;
        let mut held = two.write(0, 1);
        assert!(pending(&mut held).await);
        let ordered = || two.send_as(0, &rw(0x2a, 0, 1, 1), &[9; 512], TaskAttribute::Ordered);
        let began = two.road.now();
        assert_eq!((said(ordered().await), two.road.now()), (BUSY, began));
        // Nor when the unit is here by then, before what is held goes on.
        two.near.configure(shows(&two.unit));
        while two.unit.take_news(1).is_some() {}
        assert_eq!(said(ordered().await), BUSY);
        assert_eq!(said(held.await), GOOD);
        assert_eq!(two.block(1).await, 1);
        assert_eq!(said(ordered().await), GOOD);
        // One that an ordered one has passed on the way is not held: it would come after it.
        two.near.configure(shows(&two.absent));
        while two.absent.take_news(1).is_some() {}
        two.absent.set_state(UnitState::Elsewhere(Some(2)));
        *two.road.closed.lock() = true;
        let mut passed = two.write(0, 1);
        assert!(pending(&mut passed).await);
        let mut passes = ordered();
        assert!(pending(&mut passes).await);
        *two.road.closed.lock() = false;
        two.road.opened.notify_waiters();
        assert_eq!((said(passed.await), two.road.now()), (BUSY, began));
        assert_eq!(said(passes.await), BUSY);
    });
}

#[test]
fn a_reset_that_the_new_owner_tells_of_is_news_enough() {
    run(async {
        let two = Two::new().await;
        two.taken_there().await;
        let change = |access| two.absent.set_port_groups(vec![PortGroup { tag: 1, access }]);
        change(AccessState::NonOptimized);
        assert_eq!(said(two.write(0, 1).await), (6, 0x2a06), "the owner is the same: it has nothing to tell");
        assert_eq!(said(two.write(0, 1).await), GOOD);
        // A new owner tells of a reset.
        change(AccessState::Optimized);
        let owner = two.road.owner.lock().clone().unwrap();
        owner.nexus_lost(&two.road.nexuses[0]);
        owner.nexus_established(&two.road.nexuses[0]);
        assert_eq!(said(two.write(0, 2).await), (6, 0x2900));
        assert_eq!(said(two.write(0, 2).await), GOOD);
        // Nobody has it: this is told at last, rather than to come again.
        *two.road.owner.lock() = None;
        change(AccessState::Unavailable);
        assert_eq!(said(two.write(0, 3).await), (6, 0x2a06));
        assert_eq!(said(two.write(0, 3).await), BUSY);
        assert_eq!((two.block(2).await, two.block(3).await), (2, 0));
    });
}
