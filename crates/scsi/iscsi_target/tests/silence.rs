//! Peers that say nothing: asked, waited for, and given up after the configured time and not before they were asked.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use iscsi_protocol::IscsiName;
use iscsi_protocol::pdu::{Bhs, RESERVED_TAG, flag, opcode};
use iscsi_target::{IscsiServer, PortalConfig, ServerConfig, TargetConfig};
use support::initiator::{Initiator, TARGET};
use support::{MemoryDisk, Threads, eventually};

struct Rig {
    server: IscsiServer,
    disk: Arc<MemoryDisk>,
    address: SocketAddr,
}

fn rig(dead_after: Duration) -> Rig {
    let config = ServerConfig { dead_after, ..ServerConfig::default() };
    let server = IscsiServer::new(config, Threads::start(1), support::random()).unwrap();
    let disk = MemoryDisk::new(1 << 20);
    server.add_target(TargetConfig::new(IscsiName::parse(TARGET).unwrap(), disk.clone())).unwrap();
    let address =
        server.add_portal(PortalConfig { address: "127.0.0.1:0".parse().unwrap(), group: 1 }).unwrap();
    Rig { server, disk, address }
}

#[test]
fn a_silent_peer_is_asked_and_then_given_up() {
    let rig = rig(Duration::from_millis(400));
    let mut i = Initiator::connect(rig.address);
    assert_eq!(i.login(&[]).bhs.u16_at(36), 0);
    let ping = i.receive();
    assert_eq!(ping.bhs.opcode(), opcode::NOP_IN);
    assert_ne!(ping.bhs.ttt(), RESERVED_TAG, "it asks for an answer");
    while i.try_receive().is_some() {}
    eventually("the session ends", || {
        rig.server.sessions().is_empty() && rig.disk.lost.load(Ordering::SeqCst) == 1
    });
}

#[test]
fn a_peer_that_answers_stays() {
    let rig = rig(Duration::from_secs(3));
    let mut i = Initiator::connect(rig.address);
    assert_eq!(i.login(&[]).bhs.u16_at(36), 0);
    // The second question comes when a peer that did not answer the first is given up already.
    for _ in 0..2 {
        let ping = i.receive();
        assert_eq!(ping.bhs.opcode(), opcode::NOP_IN);
        let mut answer = Bhs::new(opcode::NOP_OUT | 0x40, flag::FINAL);
        answer.set_u32(16, RESERVED_TAG);
        answer.set_u32(20, ping.bhs.ttt());
        answer.set_u32(24, i.cmd_sn);
        i.send(answer, &[]);
    }
    assert_eq!(i.read(0, 1).len(), 512);
    assert_eq!(rig.disk.lost.load(Ordering::SeqCst), 0);
}
