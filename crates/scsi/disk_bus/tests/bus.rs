//! The unit over our target and our initiator, beside the node's own way: the contracts of block devices and of reservations.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "../../iscsi_target/tests/support/mod.rs"]
mod support;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aligned_buffer::{IoBuf, SharedBuf};
use block_conformance::{SharedSubject, Subject, SubjectFuture};
use block_device::{BlockDevice, BlockErrorKind, BlockFuture, Device, Durability, Geometry, MemoryDisk};
use block_iscsi::{IscsiDisk, Settings, Times};
use disk_bus::BusUnit;
use disk_gate::{DiskIdentity, Gate, GatedDisk, Identify, Records};
use iscsi_client::Options;
use iscsi_protocol::IscsiName;
use iscsi_protocol::url::Url;
use iscsi_target::{IscsiServer, PortalConfig, ServerConfig, TargetConfig};
use parking_lot::Mutex;
use shard_runtime::{SystemClock, SystemEntropy};
use tokio::sync::Notify;

use support::Threads;

const TARGET: &str = "iqn.2026-01.org.example:disk";
const SIZE: usize = 12 << 20;

fn on_shard<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        shard_runtime::adopt_detached_work();
        future.await
    })
}

struct Plain;

impl Identify for Plain {
    fn identify<'a>(&'a self, _device: &'a Device) -> BlockFuture<'a, DiskIdentity> {
        Box::pin(async { Ok(DiskIdentity([1; 16])) })
    }
}

impl Records for Plain {
    fn load(&self, _disk: DiskIdentity) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
    fn save(&self, _disk: DiskIdentity, _record: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn place(&self, _disk: DiskIdentity) -> String {
        String::new()
    }
}

struct Rig {
    server: IscsiServer,
    gate: Arc<Gate>,
    address: SocketAddr,
}

impl Rig {
    async fn new(device: Device) -> Self {
        let settings = disk_gate::Settings {
            device,
            name: "disk".into(),
            records: Arc::new(Plain),
            identify: Arc::new(Plain),
            blank: None,
        };
        let gate = Gate::open(settings).await.unwrap();
        let server =
            IscsiServer::new(ServerConfig::default(), Threads::start(1), Arc::new(SystemEntropy)).unwrap();
        let unit = Arc::new(BusUnit::new(gate.clone(), "serial 7"));
        server.add_target(TargetConfig::new(IscsiName::parse(TARGET).unwrap(), unit)).unwrap();
        let portal = PortalConfig { address: "127.0.0.1:0".parse().unwrap(), group: 1 };
        let address = server.add_portal(portal).unwrap();
        Self { server, gate, address }
    }

    fn own(&self) -> GatedDisk {
        GatedDisk::new(self.gate.clone(), "own").unwrap()
    }

    async fn node(&self, node: u8) -> IscsiDisk {
        let address = self.address;
        IscsiDisk::open(Settings {
            login: Options {
                url: Url::parse(&format!(
                    "iscsi://{address}/{TARGET}/0?header_digest=crc32c&data_digest=crc32c"
                ))
                .unwrap(),
                initiator: IscsiName::parse(&format!("iqn.2026-01.org.example:node{node}")).unwrap(),
                isid: [0x80, 0, 0, 0, 0, 0],
                user: None,
                target_user: None,
                depth: 32,
            },
            lanes: 2,
            times: Times::default(),
            clock: Arc::new(SystemClock::new()),
            entropy: Arc::new(SystemEntropy),
        })
        .await
        .unwrap()
    }
}

/// The first of the initiators is the node's own, or not, and the others are nodes.
struct Bus {
    block: u32,
    own: bool,
    rigs: Mutex<Vec<Rig>>,
}

impl Subject for Bus {
    fn create(&self) -> SubjectFuture<'_, Device> {
        Box::pin(async { self.create_shared(1).await.remove(0) })
    }
}

impl SharedSubject for Bus {
    fn create_shared(&self, initiators: usize) -> SubjectFuture<'_, Vec<Device>> {
        Box::pin(async move {
            let rig = Rig::new(Arc::new(MemoryDisk::new(SIZE, self.block))).await;
            let mut disks: Vec<Device> = Vec::new();
            for n in 0..initiators {
                if n == 0 && self.own {
                    disks.push(Arc::new(rig.own()));
                } else {
                    disks.push(Arc::new(rig.node(n as u8).await));
                }
            }
            self.rigs.lock().push(rig);
            disks
        })
    }
}

#[test]
fn conforms_over_the_network() {
    for block in [512, 4096] {
        on_shard(async {
            let bus = Bus { block, own: false, rigs: Mutex::default() };
            block_conformance::run(&bus, block_conformance::Options::seeded(7))
                .await
                .unwrap_or_else(|failure| panic!("{block}: {failure}"));
        });
    }
}

/// The node's own way and those of others are initiators of one disk.
#[test]
fn reservations_conform_with_one_in_the_process_and_others_over_the_network() {
    for own in [true, false] {
        on_shard(async {
            let bus = Bus { block: 512, own, rigs: Mutex::default() };
            block_conformance::run_reservations(&bus)
                .await
                .unwrap_or_else(|failure| panic!("{own}: {failure}"));
        });
    }
}

/// A disk whose writes wait while they are held.
struct Held {
    inner: MemoryDisk,
    held: AtomicBool,
    begun: AtomicBool,
    freed: Notify,
}

/// The same in several hands.
struct Hand(Arc<Held>);

impl BlockDevice for Hand {
    fn geometry(&self) -> &Geometry {
        self.0.inner.geometry()
    }
    fn size(&self) -> u64 {
        self.0.inner.size()
    }
    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        self.0.inner.read(offset, buf)
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            let freed = self.0.freed.notified();
            self.0.begun.store(true, Ordering::SeqCst);
            if self.0.held.load(Ordering::SeqCst) {
                freed.await;
            }
            self.0.inner.write(offset, data, durability).await
        })
    }
    fn flush(&self) -> BlockFuture<'_, ()> {
        self.0.inner.flush()
    }
    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        self.0.inner.unmap(offset, len)
    }
    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        self.0.inner.write_zeroes(offset, len, durability)
    }
}

fn data(byte: u8) -> SharedBuf {
    IoBuf::copy_from(&[byte; 4096]).freeze()
}

fn held() -> Arc<Held> {
    Arc::new(Held {
        inner: MemoryDisk::new(SIZE, 512),
        held: AtomicBool::new(true),
        begun: AtomicBool::new(false),
        freed: Notify::new(),
    })
}

async fn until(what: impl Fn() -> bool) {
    while !what() {
        shard_runtime::sleep(std::time::Duration::from_millis(2)).await;
    }
}

/// A session breaks with a write at the disk; the write is sent again by the session that takes its place, and what is written after that stays.
#[test]
fn a_write_that_is_sent_again_does_not_land_twice() {
    on_shard(async {
        let disk = held();
        let rig = Rig::new(Arc::new(Hand(disk.clone()))).await;
        let node = Arc::new(rig.node(2).await);
        let writing = shard_runtime::spawn_local({
            let node = node.clone();
            async move { node.write(0, data(1), Durability::Durable).await }
        });
        until(|| disk.begun.load(Ordering::SeqCst)).await;
        // The first sending stays at the disk; what comes later would not be held up.
        disk.held.store(false, Ordering::SeqCst);
        for session in rig.server.sessions() {
            rig.server.kick_session(&session.target, session.tsih);
        }
        // Long enough for a unit that does not wait to have answered; one that waits never has.
        shard_runtime::sleep(std::time::Duration::from_millis(300)).await;
        assert!(!writing.is_finished(), "the second sending was carried out while the first was under way");
        disk.freed.notify_waiters();
        writing.await.unwrap().unwrap();
        node.write(0, data(2), Durability::Durable).await.unwrap();
        assert_eq!(disk.inner.read(0, IoBuf::new(512)).await.unwrap()[0], 2);
    });
}

/// The node's own write holds up another one that takes the disk, and the other way round: through one gate.
#[test]
fn no_ghosts_either_way() {
    for own_first in [true, false] {
        on_shard(async {
            let disk = held();
            let rig = Rig::new(Arc::new(Hand(disk.clone()))).await;
            let (own, node): (Device, Device) = (Arc::new(rig.own()), Arc::new(rig.node(2).await));
            let (old, new) = if own_first { (own, node) } else { (node, own) };
            old.reservations().unwrap().register(5 << 16).await.unwrap();
            old.reservations().unwrap().reserve(5 << 16).await.unwrap();
            let ghost = shard_runtime::spawn_local({
                let old = old.clone();
                async move { old.write(0, data(1), Durability::Durable).await }
            });
            until(|| disk.begun.load(Ordering::SeqCst)).await;
            disk.held.store(false, Ordering::SeqCst);
            let taking = shard_runtime::spawn_local({
                let new = new.clone();
                async move {
                    let reservations = new.reservations().unwrap();
                    reservations.register(6 << 16).await?;
                    reservations.preempt_and_abort(6 << 16, 5 << 16).await
                }
            });
            shard_runtime::sleep(std::time::Duration::from_millis(200)).await;
            assert!(!taking.is_finished(), "taken with a write under way");
            disk.freed.notify_waiters();
            ghost.await.unwrap().unwrap();
            taking.await.unwrap().unwrap();
            new.write(0, data(2), Durability::Durable).await.unwrap();
            let error = old.write(0, data(3), Durability::Durable).await.unwrap_err();
            assert_eq!(error.kind(), BlockErrorKind::Fenced);
            assert_eq!(new.read(0, IoBuf::new(512)).await.unwrap()[0], 2);
        });
    }
}

#[test]
fn any_commands_are_stood() {
    let mut seed = 7_u64;
    for _ in 0..400 {
        let bytes: Vec<u8> = (0..600)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 56) as u8
            })
            .collect();
        disk_bus::fuzz::commands(&bytes);
    }
}
