//! What the tests of the gate share: a disk that says who it is, and records in memory.
#![allow(dead_code, reason = "each file of tests uses a part of it")]
#![allow(clippy::unwrap_used, reason = "the scene of a test")]

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{BlockFuture, Device};
use disk_gate::{DiskIdentity, Gate, GatedDisk, Identify, Records, Settings};
use parking_lot::Mutex;

pub(crate) const SIZE: usize = 12 << 20;

pub(crate) fn on_shard<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        shard_runtime::adopt_detached_work();
        future.await
    })
}

/// A disk that says who it is.
pub(crate) struct Named(pub(crate) AtomicU8);

impl Identify for Named {
    fn identify<'a>(&'a self, _device: &'a Device) -> BlockFuture<'a, DiskIdentity> {
        Box::pin(async { Ok(DiskIdentity([self.0.load(Ordering::SeqCst); 16])) })
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Saves {
    All,
    /// The record is there, and nobody hears of it.
    Unheard,
    None,
}

/// Records in memory.
pub(crate) struct Rows {
    pub(crate) rows: Mutex<BTreeMap<DiskIdentity, Vec<u8>>>,
    pub(crate) saves: Mutex<Saves>,
    /// They cannot be read.
    pub(crate) unread: AtomicBool,
}

impl Rows {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            rows: Mutex::default(),
            saves: Mutex::new(Saves::All),
            unread: AtomicBool::new(false),
        })
    }
}

impl Records for Rows {
    fn load(&self, disk: DiskIdentity) -> io::Result<Option<Vec<u8>>> {
        if self.unread.load(Ordering::SeqCst) {
            return Err(io::Error::other("the disk of records has failed"));
        }
        Ok(self.rows.lock().get(&disk).cloned())
    }

    fn save(&self, disk: DiskIdentity, record: &[u8]) -> io::Result<()> {
        let saves = *self.saves.lock();
        if saves != Saves::None {
            self.rows.lock().insert(disk, record.to_vec());
        }
        if saves == Saves::All { Ok(()) } else { Err(io::Error::other("the disk of records has failed")) }
    }

    fn place(&self, disk: DiskIdentity) -> String {
        format!("row {disk}")
    }
}

pub(crate) async fn gate(device: Device, records: Arc<dyn Records>) -> Arc<Gate> {
    let identify = Arc::new(Named(AtomicU8::new(1)));
    Gate::open(Settings { device, name: "disk".into(), records, identify, blank: None }).await.unwrap()
}

pub(crate) fn way(gate: &Arc<Gate>, initiator: &str) -> GatedDisk {
    GatedDisk::new(gate.clone(), initiator).unwrap()
}

pub(crate) fn data(byte: u8) -> SharedBuf {
    IoBuf::copy_from(&[byte; 4096]).freeze()
}

pub(crate) const OLD: u64 = 5 << 16 | 1;
pub(crate) const NEW: u64 = 6 << 16 | 2;
