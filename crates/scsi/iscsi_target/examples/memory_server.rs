//! A disk in memory behind the iSCSI target, for measurements and for trying initiators.
//!
//! `memory_server ADDRESS:PORT [MIB] [SHARDS]`
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a tool for developers"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use iscsi_protocol::IscsiName;
use iscsi_target::{IscsiServer, PortalConfig, ServerConfig, TargetConfig};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let address = args.get(1).map_or("127.0.0.1:3260", String::as_str).parse().expect("address");
    let mib: usize = args.get(2).map_or(256, |v| v.parse().expect("MiB"));
    let shards: usize = args.get(3).map_or(1, |v| v.parse().expect("shards"));
    let threads = support::Threads::start(shards);
    let server = IscsiServer::new(ServerConfig::default(), threads, support::random()).expect("server");
    let name = IscsiName::parse(support::initiator::TARGET).expect("name");
    server.add_target(TargetConfig::new(name, support::MemoryDisk::new(mib << 20))).expect("target");
    let address = server.add_portal(PortalConfig { address, group: 1 }).expect("portal");
    println!("iscsi://{address}/{}/0", support::initiator::TARGET);
    loop {
        std::thread::park();
    }
}
