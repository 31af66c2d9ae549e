//! Two nodes in one thread: initiators reach one, the units are on the other.

mod ages;
mod breaks;
mod through;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aligned_buffer::IoBuf;
use block_device::MemoryDisk;
use observe::IoTally;
use scsi_core::*;
use scsi_disk::*;
use tcp_service::{AnswerPermit, Answers};
use tokio::io::{DuplexStream, duplex};

use crate::{Dial, Host, Owner, Sender, Stream, Streaming};

const TARGET: &str = "iqn.2026-11.test:disk";
const UNIT: [u8; 16] = [7; 16];
const BLOCKS: usize = 4096;
/// The node that initiators reach, and the one that has the unit.
const HERE: u16 = 1;
const THERE: u16 = 2;

/// What both nodes stand on.
struct World {
    now: AtomicU64,
    member: AtomicBool,
    life: AtomicU64,
    reachable: AtomicBool,
    device: Arc<TargetDevice>,
}

impl Host for World {
    fn node(&self) -> u16 {
        THERE
    }
    fn is_member(&self, node: u16, incarnation: u64) -> bool {
        (node, incarnation) == (HERE, self.life.load(Ordering::SeqCst)) && self.member.load(Ordering::SeqCst)
    }
    fn is_port_of(&self, node: u16, target_port: u16) -> bool {
        target_port / 16 == node
    }
    fn device(&self, target: &str) -> Option<Arc<TargetDevice>> {
        (target == TARGET).then(|| self.device.clone())
    }
    fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }
}

impl AnswerPermit for World {
    fn life(&self) -> Option<u64> {
        Some(self.life.load(Ordering::SeqCst)).filter(|life| *life > 0)
    }
}

thread_local! {
    /// The owner's ends of connections, as tasks that can be ended.
    static CONNECTIONS: RefCell<Vec<tokio::task::AbortHandle>> = const { RefCell::new(Vec::new()) };
}

struct Wire {
    world: Arc<World>,
    owner: Arc<Owner>,
    clock: shard_runtime::SystemClock,
}

impl Dial for Wire {
    fn me(&self) -> Option<(u16, u64)> {
        self.world.life().map(|life| (HERE, life))
    }
    fn dial(&self, node: u16) -> Streaming<'_> {
        Box::pin(async move {
            if node != THERE || !self.world.reachable.load(Ordering::SeqCst) {
                return Err(std::io::ErrorKind::ConnectionRefused.into());
            }
            Ok(Box::new(connect(self.owner.clone())) as Box<dyn Stream>)
        })
    }
    fn now(&self) -> u64 {
        // Another clock than the owner's, which decides; it has run for an hour.
        (1 << 42) + shard_runtime::Clock::now(&self.clock).0
    }
}

/// A connection to the owner.
fn connect(owner: Arc<Owner>) -> DuplexStream {
    let (near, far) = duplex(64 << 10);
    let task = tokio::task::spawn_local(async move {
        let _ = owner.serve(far, |node| node == HERE, Answers::default(), || {}).await;
    });
    CONNECTIONS.with(|all| all.borrow_mut().push(task.abort_handle()));
    near
}

/// All connections break.
fn break_all() {
    CONNECTIONS.with(|all| all.borrow_mut().drain(..).for_each(|task| task.abort()));
}

struct Rig {
    world: Arc<World>,
    owner: Arc<Owner>,
    /// The unit itself.
    unit: Arc<LogicalUnit>,
    /// The target at the node that initiators reach, and what it sends with.
    near: TargetDevice,
    sender: Arc<dyn Forward>,
    hosts: [Arc<Nexus>; 2],
    /// One at the owner.
    direct: Arc<Nexus>,
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        shard_runtime::adopt_detached_work();
        future.await
    })
}

fn nexus(id: u64, initiator: &str, target_port: u16) -> Arc<Nexus> {
    Arc::new(Nexus {
        id,
        initiator: format!("iqn.2026-11.test:{initiator}"),
        initiator_port: [id as u8; 6],
        target: TARGET.into(),
        target_port,
        io: IoTally::default(),
    })
}

fn config() -> UnitConfig {
    UnitConfig {
        id: UNIT,
        product: "DISK".into(),
        block_size: 512,
        write_cache: false,
        initiator_write_cache: false,
        discards_writes: false,
        keep_reservations: false,
        port_groups: vec![PortGroup::optimized(33)],
    }
}

fn group(unit: &Arc<LogicalUnit>, initiators: &[&str]) -> Group {
    let initiators = initiators.iter().map(|name| format!("iqn.2026-11.test:{name}")).collect();
    let mapped = MappedUnit { unit: unit.clone(), read_only: false };
    Group { initiators, luns: BTreeMap::from([(3, mapped)]), ..Group::default() }
}

impl Rig {
    async fn new() -> Self {
        let disk = Arc::new(MemoryDisk::new(BLOCKS * 512, 512));
        let store = Arc::new(NoReservationStore);
        let unit = LogicalUnit::open(config(), Arc::new(DeviceBacking::new(disk)), store.clone())
            .await
            .expect("opened");
        let device = Arc::new(TargetDevice::new());
        // Host b is not let in by the owner's configuration.
        device.configure(vec![group(&unit, &["a", "d", "e"])]);
        let world = Arc::new(World {
            now: AtomicU64::new(1 << 40),
            member: AtomicBool::new(true),
            life: AtomicU64::new(1),
            reachable: AtomicBool::new(true),
            device: device.clone(),
        });
        let owner = Owner::new(world.clone());
        let wire =
            Wire { world: world.clone(), owner: owner.clone(), clock: shard_runtime::SystemClock::new() };
        let sender: Arc<dyn Forward> = Sender::new(Arc::new(wire), world.clone());
        let near = TargetDevice::forwarding(Some(sender.clone()), Arc::default());
        let absent =
            LogicalUnit::open(config(), Arc::<AbsentBacking>::default(), store).await.expect("opened");
        absent.set_state(UnitState::Elsewhere(Some(THERE)));
        near.configure(vec![group(&absent, &[])]);
        let hosts = [nexus(1, "a", 17), nexus(2, "b", 17)];
        let direct = nexus(1, "d", 33);
        hosts.iter().for_each(|nexus| near.nexus_established(nexus));
        device.nexus_established(&direct);
        Self { world, owner, unit, near, sender, hosts, direct }
    }

    /// With everything that hosts are told at first behind it.
    async fn ready() -> Self {
        let rig = Self::new().await;
        assert_eq!(rig.said(rig.send(0, &TUR, &[])).await, (6, 0x2900));
        assert_eq!(rig.said(rig.straight(&TUR, &[])).await, (6, 0x2900));
        rig
    }

    fn command(cdb: &[u8], data: &[u8]) -> ScsiCommand {
        ScsiCommand {
            cdb: cdb.to_vec(),
            data_out: IoBuf::copy_from(data).freeze(),
            data_in_limit: if data.is_empty() { 1 << 20 } else { 0 },
            attribute: TaskAttribute::Simple,
        }
    }

    /// A command of a host at the other node.
    fn send<'a>(&'a self, host: usize, cdb: &[u8], data: &[u8]) -> ScsiFuture<'a, Option<ScsiResponse>> {
        let lun = WireLun::from_number(3);
        self.near.execute(&self.hosts[host], lun, Self::command(cdb, data))
    }

    /// A command of the host at the owner.
    fn straight<'a>(&'a self, cdb: &[u8], data: &[u8]) -> ScsiFuture<'a, Option<ScsiResponse>> {
        let lun = WireLun::from_number(3);
        self.world.device.execute(&self.direct, lun, Self::command(cdb, data))
    }

    /// Sense key and code, or 0 and the status.
    async fn said(&self, command: ScsiFuture<'_, Option<ScsiResponse>>) -> (u8, u16) {
        let response = command.await.expect("answered");
        match response.status {
            ScsiStatus::CheckCondition => {
                (response.sense[2], u16::from_be_bytes([response.sense[12], response.sense[13]]))
            }
            status => (0, status as u16),
        }
    }
}

const TUR: [u8; 6] = [0; 6];
const BUSY: (u8, u16) = (0, 8);

fn read(lba: u8, blocks: u8) -> [u8; 10] {
    [0x28, 0, 0, 0, 0, lba, 0, 0, blocks, 0]
}

fn write(lba: u8, blocks: u8) -> [u8; 10] {
    [0x2a, 0, 0, 0, 0, lba, 0, 0, blocks, 0]
}
