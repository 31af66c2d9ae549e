//! Serves a memory-backed disk over iSCSI, for conformance suites: `disk_server [ADDRESS [MIB]]`.
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

use iscsi_protocol::IscsiName;
use iscsi_target::{IscsiServer, PortalConfig, ServerConfig, TargetConfig};
use scsi_disk::{
    DeviceBacking, Group, LogicalUnit, MappedUnit, NoReservationStore, TargetDevice, UnitConfig,
};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let address = args.get(1).map_or("127.0.0.1:3260", String::as_str).parse().expect("address");
    let mib: usize = args.get(2).map_or(256, |v| v.parse().expect("MiB"));
    let config = UnitConfig {
        id: *b"\x60disk-server-001",
        product: "memory".into(),
        block_size: 512,
        write_cache: false,
        target_ports: vec![1],
    };
    let disk = block_device::MemoryDisk::new(mib << 20, 512);
    let backing = Arc::new(DeviceBacking::new(Arc::new(disk)));
    let store = Arc::new(NoReservationStore);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    let unit = runtime.block_on(LogicalUnit::open(config, backing, store)).expect("unit");
    let device = TargetDevice::new();
    let luns = BTreeMap::from([(0, MappedUnit { unit, read_only: false })]);
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
