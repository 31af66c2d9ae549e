//! Our target over a disk in memory, with a relay before it that can cut, refuse and fall silent.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "shared by tests, each using a part")]

use std::collections::BTreeMap;
use std::future::Future;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockDevice, BlockFuture, Durability, Geometry, MemoryDisk};
use block_iscsi::{IscsiDisk, Settings, Times};
use file_store::StoreFuture;
use iscsi_client::{ClientError, Options};
use iscsi_protocol::IscsiName;
use iscsi_protocol::url::Url;
use iscsi_target::{AuthConfig, IscsiServer, PortalConfig, ServerConfig, TargetConfig};
use parking_lot::Mutex;
use scsi_disk::{DeviceBacking, Group, LogicalUnit, MappedUnit, ReservationStore, TargetDevice, UnitConfig};
use shard_runtime::{SystemClock, SystemEntropy};

use crate::support::Threads;

pub const TARGET: &str = "iqn.2026-01.org.example:disk";
pub const SIZE: usize = 12 << 20;

/// Runs a test as on a shard.
pub fn on_shard<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        shard_runtime::adopt_detached_work();
        future.await
    })
}

#[derive(Default)]
struct Rows(Mutex<BTreeMap<Vec<u8>, Vec<u8>>>);

impl ReservationStore for Rows {
    fn load<'a>(&'a self, key: &'a [u8]) -> StoreFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move { Ok(self.0.lock().get(key).cloned()) })
    }
    fn save<'a>(&'a self, key: &'a [u8], value: Option<Vec<u8>>) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            match value {
                Some(value) => self.0.lock().insert(key.to_vec(), value),
                None => self.0.lock().remove(key),
            };
            Ok(())
        })
    }
}

/// What is different from one rig to the next.
#[derive(Clone)]
pub struct Make {
    pub block: u32,
    pub write_cache: bool,
    pub auth: AuthConfig,
}

impl Default for Make {
    fn default() -> Self {
        Self { block: 512, write_cache: false, auth: AuthConfig::None }
    }
}

/// The medium, whose writes can be held up.
pub struct Gate {
    disk: Arc<MemoryDisk>,
    open: tokio::sync::watch::Sender<bool>,
    waiting: AtomicI64,
}

impl Gate {
    pub fn hold(&self) {
        self.open.send_replace(false);
    }

    pub fn release(&self) {
        self.open.send_replace(true);
    }

    /// Until so many writes are held up.
    pub async fn holds(&self, writes: i64) {
        while self.waiting.load(Ordering::SeqCst) < writes {
            shard_runtime::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl BlockDevice for Gate {
    fn geometry(&self) -> &Geometry {
        self.disk.geometry()
    }
    fn size(&self) -> u64 {
        self.disk.size()
    }
    fn read(&self, offset: u64, buf: IoBuf) -> BlockFuture<'_, IoBuf> {
        self.disk.read(offset, buf)
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let opened = self.open.subscribe().wait_for(|open| *open).await.map(drop);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            opened.unwrap();
            self.disk.write(offset, data, durability).await
        })
    }
    fn flush(&self) -> BlockFuture<'_, ()> {
        self.disk.flush()
    }
    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        self.disk.unmap(offset, len)
    }
    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        self.disk.write_zeroes(offset, len, durability)
    }
    fn wait_resize(&self, known: u64) -> BlockFuture<'_, u64> {
        self.disk.wait_resize(known)
    }
}

pub struct Rig {
    rows: Arc<Rows>,
    pub gate: Arc<Gate>,
    pub server: IscsiServer,
    pub medium: Arc<MemoryDisk>,
    pub unit: Arc<LogicalUnit>,
    pub address: SocketAddr,
}

impl Rig {
    pub async fn new(make: Make) -> Self {
        Self::with_identity(make, 7).await
    }

    /// A unit that is another one.
    pub async fn other() -> Self {
        Self::with_identity(Make::default(), 8).await
    }

    async fn with_identity(make: Make, id: u8) -> Self {
        let medium = Arc::new(MemoryDisk::new(SIZE, make.block));
        let config = UnitConfig {
            id: [id; 16],
            product: "disk".into(),
            block_size: make.block,
            write_cache: make.write_cache,
            initiator_write_cache: true,
            discards_writes: false,
            keep_reservations: false,
            port_groups: vec![scsi_disk::PortGroup::optimized(1)],
        };
        let open = tokio::sync::watch::Sender::new(true);
        let gate = Arc::new(Gate { disk: medium.clone(), open, waiting: AtomicI64::new(0) });
        let backing = Arc::new(DeviceBacking::new(gate.clone()));
        let rows = Arc::<Rows>::default();
        let unit = LogicalUnit::open(config, backing, rows.clone()).await.unwrap();
        let device = TargetDevice::new();
        let mapped = MappedUnit { unit: unit.clone(), read_only: false };
        device.configure(vec![Group { luns: BTreeMap::from([(0, mapped)]), ..Group::default() }]);
        let server =
            IscsiServer::new(ServerConfig::default(), Threads::start(1), Arc::new(SystemEntropy)).unwrap();
        let mut target = TargetConfig::new(IscsiName::parse(TARGET).unwrap(), Arc::new(device));
        target.auth = make.auth;
        server.add_target(target).unwrap();
        let address = PortalConfig { address: "127.0.0.1:0".parse().unwrap(), group: 1 };
        let address = server.add_portal(address).unwrap();
        Self { rows, gate, server, medium, unit, address }
    }

    /// What the unit keeps of its mode pages.
    pub fn saved_modes(&self) -> Option<Vec<u8>> {
        self.rows.0.lock().iter().find(|(key, _)| key.ends_with(b"m")).map(|(_, row)| row.clone())
    }
}

/// The settings of node `node` at an address.
pub fn settings(
    address: SocketAddr,
    target: &str,
    lun: u16,
    node: u8,
    lanes: usize,
    query: &str,
) -> Settings {
    Settings {
        login: Options {
            url: Url::parse(&format!("iscsi://{address}/{target}/{lun}{query}")).unwrap(),
            initiator: IscsiName::parse(&format!("iqn.2026-01.org.example:node{node}")).unwrap(),
            isid: [0x80, 0, 0, node, 0, 1],
            user: None,
            target_user: None,
            depth: 32,
        },
        lanes,
        times: Times::default(),
        clock: Arc::new(SystemClock::new()),
        entropy: Arc::new(SystemEntropy),
    }
}

pub async fn open(settings: Settings) -> Result<IscsiDisk, ClientError> {
    IscsiDisk::open(settings).await
}

const PASS: u8 = 0;
const REFUSE: u8 = 1;
const MUTE: u8 = 2;

/// Bytes on their way between a disk and its target.
pub struct Relay {
    pub address: SocketAddr,
    control: Arc<Control>,
}

struct Control {
    target: Mutex<SocketAddr>,
    mode: AtomicU8,
    /// PDUs that pass before all connections are cut, once.
    left: AtomicI64,
    streams: Mutex<Vec<TcpStream>>,
}

impl Relay {
    pub fn new(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let control = Arc::new(Control {
            target: Mutex::new(target),
            mode: AtomicU8::new(PASS),
            left: AtomicI64::new(i64::MAX),
            streams: Mutex::default(),
        });
        let shared = control.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if shared.mode.load(Ordering::SeqCst) == REFUSE {
                    continue;
                }
                let Ok(server) = TcpStream::connect(*shared.target.lock()) else { continue };
                let _ = (client.set_nodelay(true), server.set_nodelay(true));
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let shared = shared.clone();
                    std::thread::spawn(move || shared.relay(from, to));
                }
                shared.streams.lock().extend([client, server]);
            }
        });
        Self { address, control }
    }

    /// Cuts everything after so many PDUs, of both directions together.
    pub fn cut_after(&self, pdus: i64) {
        self.control.left.store(pdus, Ordering::SeqCst);
    }

    /// Whether the cut has come.
    pub fn was_cut(&self) -> bool {
        self.control.left.load(Ordering::SeqCst) < 0
    }

    pub fn cut(&self) {
        self.control.cut();
    }

    /// Lets nobody through until [`Relay::pass`].
    pub fn refuse(&self) {
        self.control.mode.store(REFUSE, Ordering::SeqCst);
        self.control.cut();
    }

    /// Takes everything and answers nothing.
    pub fn mute(&self) {
        self.control.mode.store(MUTE, Ordering::SeqCst);
    }

    pub fn pass(&self) {
        self.control.mode.store(PASS, Ordering::SeqCst);
    }

    /// Leads to another target from now on.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.control.target.lock() = target;
        self.control.cut();
    }
}

impl Control {
    fn cut(&self) {
        for stream in self.streams.lock().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Passes PDUs on, which have no digests.
    fn relay(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut pdu = Vec::new();
        loop {
            pdu.resize(48, 0);
            if from.read_exact(&mut pdu).is_err() {
                break;
            }
            let len = u32::from_be_bytes([0, pdu[5], pdu[6], pdu[7]]) as usize;
            pdu.resize(48 + usize::from(pdu[4]) * 4 + len.next_multiple_of(4), 0);
            if from.read_exact(&mut pdu[48..]).is_err() {
                break;
            }
            if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
                self.cut();
                break;
            }
            if self.mode.load(Ordering::SeqCst) != MUTE && to.write_all(&pdu).is_err() {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}

/// Short times, for targets that are to be given up.
pub fn hasty() -> Times {
    let brief = Duration::from_millis(150);
    Times {
        ask: brief / 2,
        silence: brief,
        login: Duration::from_millis(500),
        away: brief,
        ..Times::default()
    }
}
