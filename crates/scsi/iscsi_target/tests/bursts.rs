//! Bursts as they were agreed on, whatever the order of the keys.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod support;

use std::sync::Arc;

use iscsi_protocol::IscsiName;
use iscsi_protocol::pdu::{RESERVED_TAG, opcode};
use iscsi_target::{IscsiServer, PortalConfig, ServerConfig, TargetConfig};
use support::initiator::{Initiator, TARGET, rw};
use support::{MemoryDisk, Threads};

#[test]
fn a_first_burst_as_long_as_was_answered_is_taken() {
    let server = IscsiServer::new(ServerConfig::default(), Threads::start(1), support::random()).unwrap();
    let disk = MemoryDisk::new(1 << 20);
    server.add_target(TargetConfig::new(IscsiName::parse(TARGET).unwrap(), Arc::clone(&disk) as _)).unwrap();
    let listen = PortalConfig { address: "127.0.0.1:0".parse().unwrap(), group: 1 };
    let address = server.add_portal(listen).unwrap();
    for keys in [
        [("FirstBurstLength", "65536"), ("MaxBurstLength", "8192")],
        [("MaxBurstLength", "8192"), ("FirstBurstLength", "65536")],
    ] {
        let mut i = Initiator::connect(address);
        let keys = [&[("InitialR2T", "No"), ("ImmediateData", "No")][..], &keys].concat();
        let answer = i.login(&keys);
        assert_eq!(answer.bhs.u16_at(36), 0);
        let said = answer.text();
        let first = said.iter().find(|(key, _)| key == "FirstBurstLength").map(|(_, value)| value.as_str());
        assert_eq!(first, Some("8192"), "RFC 7143 13.14: it does not exceed MaxBurstLength");
        let itt = i.command(0x21, &rw(0x2a, 0, 16), 8192, &[]);
        i.data_out(itt, RESERVED_TAG, (0, 0), true, &[7; 8192]);
        let pdu = i.receive();
        assert_eq!((pdu.bhs.opcode(), pdu.bhs.itt(), pdu.bhs.0[3]), (opcode::SCSI_RESPONSE, itt, 0));
    }
}
