//! Serves a memory-backed disk over iSCSI, for conformance suites:
//! `disk_server [ADDRESS [MIB [BLOCK_SIZE [MILLISECONDS [ro]]]]]`. Writes of 1 MiB and more take the milliseconds given:
//! some suites want to see long commands at work.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a tool for developers"
)]

#[path = "../../iscsi_target/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::SharedBuf;
use block_device::{BlockDevice, BlockFuture, Durability, MemoryDisk};
use file_store::StoreFuture;
use iscsi_protocol::IscsiName;
use iscsi_target::{IscsiServer, PortalConfig, ServerConfig, TargetConfig};
use parking_lot::Mutex;
use scsi_disk::{DeviceBacking, Group, LogicalUnit, MappedUnit, ReservationStore, TargetDevice, UnitConfig};
use test_layers::{DeviceLayer, Layered};

/// Rows that live as long as the process.
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

/// A disk on which long writes take their time.
struct Slow {
    disk: MemoryDisk,
    pause: Duration,
}

impl DeviceLayer for Slow {
    fn below(&self) -> &dyn BlockDevice {
        &self.disk
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            if data.len() >= 1 << 20 && !self.pause.is_zero() {
                shard_runtime::sleep(self.pause).await;
            }
            self.disk.write(offset, data, durability).await
        })
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let address = args.get(1).map_or("127.0.0.1:3260", String::as_str).parse().expect("address");
    let mib: usize = args.get(2).map_or(256, |v| v.parse().expect("MiB"));
    let block_size = args.get(3).map_or(512, |v| v.parse().expect("block size"));
    let pause = args.get(4).map_or(0, |v| v.parse().expect("milliseconds"));
    let read_only = args.get(5).is_some_and(|v| v == "ro");
    let config = UnitConfig {
        id: *b"\x60disk-server-001",
        product: "memory".into(),
        block_size,
        initiator_write_cache: false,
        discards_writes: false,
        keep_reservations: false,
        write_cache: false,
        port_groups: vec![scsi_disk::PortGroup::optimized(1)],
    };
    let disk =
        Layered(Slow { disk: MemoryDisk::new(mib << 20, block_size), pause: Duration::from_millis(pause) });
    let backing = Arc::new(DeviceBacking::new(Arc::new(disk)));
    let store = Arc::new(Rows::default());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    let unit = runtime.block_on(LogicalUnit::open(config, backing, store)).expect("unit");
    let device = TargetDevice::new();
    let luns = BTreeMap::from([(0, MappedUnit { unit, read_only })]);
    device.configure(vec![Group { luns, ..Group::default() }]);
    let server = IscsiServer::new(ServerConfig::default(), support::Threads::start(1), support::random())
        .expect("server");
    let name = IscsiName::parse(support::initiator::TARGET).expect("name");
    server.add_target(TargetConfig::new(name, Arc::new(device))).expect("target");
    let address = server.add_portal(PortalConfig { address, group: 1 }).expect("portal");
    println!("iscsi://{address}/{}/0", support::initiator::TARGET);
    loop {
        std::thread::park();
    }
}
