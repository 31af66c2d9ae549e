//! The access matrix of iSCSI: every number of a request and of a task management function × from where it comes.
//!
//! All numbers are tried, named or not: one that is served some day without a row here is answered otherwise than the row for
//! the rest says. Who may log in as whom is in `chap.rs`, and what a function does to a unit, in `scsi_disk`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod support;

use std::io::{ErrorKind, Read as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use access_matrix::Matrix;
use iscsi_protocol::IscsiName;
use iscsi_protocol::pdu::{flag, opcode};
use iscsi_target::{InitiatorAccess, IscsiServer, PortalConfig, ServerConfig, TargetConfig};
use support::initiator::{INITIATOR, Initiator, TARGET};
use support::{MemoryDisk, Threads};

const OTHER: &str = "iqn.2026-01.org.example:other-host";
const STRANGER: &str = "iqn.2026-01.org.example:stranger";

struct Rig {
    server: IscsiServer,
    disk: Arc<MemoryDisk>,
    address: SocketAddr,
    /// Another initiator's session, which nothing that is tried may end.
    _other: Initiator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    /// A session of an initiator that the target lets in.
    Session,
    /// A discovery session of it.
    Discovery,
    /// A connection that has not logged in.
    Unknown,
    /// One whose login was refused, as nothing is mapped to it.
    Masked,
}

const ORIGINS: [From; 4] = [From::Session, From::Discovery, From::Unknown, From::Masked];
const COLUMNS: [&str; 4] = ["session", "discovery session", "not logged in", "masked"];

impl Rig {
    fn start() -> Self {
        let server = IscsiServer::new(ServerConfig::default(), Threads::start(1), support::random()).unwrap();
        let disk = MemoryDisk::new(4096);
        disk.apart.store(true, Ordering::SeqCst);
        let portal = PortalConfig { address: "127.0.0.1:0".parse().unwrap(), group: 1 };
        let address = server.add_portal(portal).unwrap();
        let known = InitiatorAccess::Check(Arc::new(|name: &IscsiName| name.as_str() != STRANGER));
        let target = IscsiName::parse(TARGET).unwrap();
        server.add_target(TargetConfig { access: known, ..TargetConfig::new(target, disk.clone()) }).unwrap();
        let mut other = Initiator::connect(address);
        let keys = [("InitiatorName", OTHER), ("TargetName", TARGET)];
        let answer = other.login_request(0x87, &keys);
        assert_eq!(answer.bhs.u16_at(36), 0);
        Self { server, disk, address, _other: other }
    }

    fn from(&self, origin: From) -> Initiator {
        let mut initiator = Initiator::connect(self.address);
        match origin {
            From::Session => assert_eq!(initiator.login(&[]).bhs.u16_at(36), 0),
            From::Discovery => {
                let keys = [("InitiatorName", INITIATOR), ("SessionType", "Discovery")];
                assert_eq!(initiator.login_request(0x87, &keys).bhs.u16_at(36), 0);
            }
            From::Unknown => {}
            From::Masked => {
                let keys = [("InitiatorName", STRANGER), ("TargetName", TARGET)];
                assert_eq!(initiator.login_request(0x87, &keys).bhs.u16_at(36), 0x0203);
            }
        }
        initiator
    }

    /// Whether the other's session goes on, and the disk is as it was.
    fn untouched(&self) -> Result<(), String> {
        let there = self.server.sessions().iter().any(|session| session.initiator.as_str() == OTHER);
        let same = there && self.disk.bytes.read().iter().all(|byte| *byte == 0);
        if same { Ok(()) } else { Err("the other's session or the disk is not as it was".to_owned()) }
    }
}

/// What an answer is called.
fn called(initiator: &mut Initiator) -> String {
    let Some(pdu) = initiator.try_receive() else {
        return match initiator.stream.read(&mut [0]) {
            Ok(0) => "closed".to_owned(),
            Err(error) if error.kind() != ErrorKind::WouldBlock => "closed".to_owned(),
            _ => "silence".to_owned(),
        };
    };
    match pdu.bhs.opcode() {
        opcode::NOP_IN => "NOP-In".to_owned(),
        opcode::SCSI_RESPONSE => format!("SCSI status {:#04x}", pdu.bhs.0[3]),
        opcode::TASK_MANAGEMENT_RESPONSE => format!("response {}", pdu.bhs.0[2]),
        opcode::LOGIN_RESPONSE => format!("login status {:#06x}", pdu.bhs.u16_at(36)),
        opcode::TEXT_RESPONSE => "Text".to_owned(),
        opcode::LOGOUT_RESPONSE => format!("logged out, {}", pdu.bhs.0[2]),
        opcode::REJECT => format!("reject {:#04x}", pdu.bhs.0[2]),
        other => format!("opcode {other:#04x}"),
    }
}

/// What is expected for a request's number.
fn request(number: u8, origin: From) -> &'static str {
    match (origin, number) {
        (From::Masked, _) => "closed",
        // Without keys.
        (From::Unknown, opcode::LOGIN) => "login status 0x0200",
        // Invalid during login.
        (From::Unknown, _) => "login status 0x020b",
        (_, opcode::NOP_OUT) => "NOP-In",
        (From::Session, opcode::SCSI_COMMAND) => "SCSI status 0x00",
        (From::Session, opcode::TASK_MANAGEMENT) => "response 1",
        (_, opcode::LOGIN) => "closed",
        (_, opcode::TEXT) => "Text",
        (_, opcode::LOGOUT) => "logged out, 0",
        (_, opcode::SNACK) => "reject 0x03",
        (From::Session, opcode::DATA_OUT) => "thrown away, then NOP-In",
        _ => "reject 0x05",
    }
}

#[test]
fn access_matrix_of_requests() {
    let about = "All 64 numbers of a PDU; a login that is not the first PDU ends the connection.";
    let mut matrix = Matrix::new("iSCSI requests", about, &COLUMNS);
    let rig = Rig::start();
    for number in 0..64_u8 {
        for origin in ORIGINS {
            let mut initiator = rig.from(origin);
            let mut bhs = initiator.request(number, flag::FINAL);
            if number == opcode::TASK_MANAGEMENT {
                bhs.0[1] |= 1;
            }
            if number == opcode::TEXT {
                bhs.set_u32(20, u32::MAX);
            }
            initiator.send(bhs, &[]);
            let mut got = String::new();
            if (number, origin) == (opcode::DATA_OUT, From::Session) {
                // Data of no command may be of one that was aborted. What comes next is answered first.
                initiator.cmd_sn -= 1;
                let bhs = initiator.request(opcode::NOP_OUT, flag::FINAL);
                initiator.send(bhs, &[]);
                got.push_str("thrown away, then ");
            }
            got.push_str(&called(&mut initiator));
            let expected = request(number, origin);
            let right = if got == expected { rig.untouched() } else { Err(format!("got {got}")) };
            matrix.cell(&format!("{number:#04x}"), expected, right);
        }
    }
    matrix.finish();
}

/// What is expected for a function's number.
fn function(number: u8, origin: From) -> &'static str {
    match (origin, number) {
        (From::Discovery, _) => "reject 0x05",
        (From::Masked, _) => "closed",
        (From::Unknown, _) => "login status 0x020b",
        // ABORT TASK with the tag of another's command.
        (_, 1) => "response 1",
        (_, 2 | 4 | 5 | 6) => "response 0",
        // A cold reset would end the session of another who sees nothing of what this one sees.
        (_, 7) => "response 6",
        (_, 8) => "response 4",
        _ => "response 5",
    }
}

#[test]
fn access_matrix_of_functions() {
    let about = "All 128 numbers of a function, while another initiator with other units has a session; 7 is TARGET COLD RESET.";
    let mut matrix = Matrix::new("iSCSI task management", about, &COLUMNS);
    let rig = Rig::start();
    for number in 0..128_u8 {
        for origin in ORIGINS {
            let before = rig.disk.functions.lock().len();
            let mut initiator = rig.from(origin);
            let bhs = initiator.request(opcode::TASK_MANAGEMENT, flag::FINAL | number);
            initiator.send(bhs, &[]);
            let (got, expected) = (called(&mut initiator), function(number, origin));
            let reached = rig.disk.functions.lock().len() > before;
            let right = match got == expected && reached == (expected == "response 0") {
                true => rig.untouched(),
                false => Err(format!("got {got}, reached the device: {reached}")),
            };
            matrix.cell(&format!("function {number}"), expected, right);
        }
    }
    matrix.finish();
}
