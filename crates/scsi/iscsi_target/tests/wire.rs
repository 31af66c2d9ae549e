//! Raw PDUs against the server on loopback: what initiators do, and what they must not get away with.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod support;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use iscsi_protocol::IscsiName;
use iscsi_protocol::chap::{Algorithm, ChapUser, Secret};
use iscsi_protocol::pdu::{Bhs, RESERVED_TAG, flag, opcode, reject};
use iscsi_protocol::text::{binary, hex};
use iscsi_target::{AuthConfig, InitiatorAccess, IscsiServer, PortalConfig, ServerConfig, TargetConfig};
use scsi_core::TaskManagement;
use support::initiator::{INITIATOR, Initiator, TARGET, rw};
use support::{MemoryDisk, Threads, eventually};

struct Rig {
    server: IscsiServer,
    disk: Arc<MemoryDisk>,
    address: SocketAddr,
}

fn rig_with(change: impl FnOnce(&mut TargetConfig)) -> Rig {
    let threads = Threads::start(2);
    let server = IscsiServer::new(ServerConfig::default(), threads, support::random()).unwrap();
    let disk = MemoryDisk::new(4 << 20);
    let mut config = TargetConfig::new(IscsiName::parse(TARGET).unwrap(), disk.clone());
    change(&mut config);
    server.add_target(config).unwrap();
    let address =
        server.add_portal(PortalConfig { address: "127.0.0.1:0".parse().unwrap(), group: 1 }).unwrap();
    Rig { server, disk, address }
}

fn rig() -> Rig {
    rig_with(|_| ())
}

impl Rig {
    fn initiator(&self) -> Initiator {
        Initiator::connect(self.address)
    }

    fn logged_in(&self, keys: &[(&str, &str)]) -> Initiator {
        let mut initiator = self.initiator();
        assert_eq!(initiator.login(keys).bhs.u16_at(36), 0);
        initiator
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

/// Answers R2Ts of one write until its status; gives status and the R2Ts' (offset, length).
fn serve_r2ts(i: &mut Initiator, itt: u32, data: &[u8], segment: usize) -> (u8, Vec<(u32, u32)>) {
    let mut asked = Vec::new();
    loop {
        let pdu = i.receive();
        assert_eq!(pdu.bhs.itt(), itt);
        match pdu.bhs.opcode() {
            opcode::R2T => {
                let (offset, len) = (pdu.bhs.u32_at(40), pdu.bhs.u32_at(44));
                assert_eq!(pdu.bhs.u32_at(36) as usize, asked.len(), "R2TSN");
                asked.push((offset, len));
                let end = (offset + len) as usize;
                let (mut at, mut sn) = (offset as usize, 0);
                while at < end {
                    let next = (at + segment).min(end);
                    i.data_out(itt, pdu.bhs.ttt(), (sn, at as u32), next == end, &data[at..next]);
                    (at, sn) = (next, sn + 1);
                }
            }
            opcode::SCSI_RESPONSE => return (pdu.bhs.0[3], asked),
            other => panic!("unexpected opcode {other:#x}"),
        }
    }
}

#[test]
fn immediate_unsolicited_and_solicited_data() {
    let rig = rig();
    let mut i = rig.logged_in(&[
        ("InitialR2T", "No"),
        ("FirstBurstLength", "8192"),
        ("MaxBurstLength", "65536"),
        ("MaxOutstandingR2T", "4"),
    ]);
    let data = pattern(256 << 10);
    // Immediate only.
    let itt = i.command(0xa1, &rw(0x2a, 0, 8), 4096, &data[..4096]);
    let pdu = i.receive();
    assert_eq!((pdu.bhs.opcode(), pdu.bhs.itt(), pdu.bhs.0[3]), (opcode::SCSI_RESPONSE, itt, 0));
    // Immediate, then unsolicited, then R2Ts of a burst each; long segments take the way without a copy.
    let itt = i.command(0x21, &rw(0x2a, 0, 512), 256 << 10, &data[..4096]);
    i.data_out(itt, RESERVED_TAG, (0, 4096), true, &data[4096..8192]);
    let (status, asked) = serve_r2ts(&mut i, itt, &data, 48 << 10);
    assert_eq!(status, 0);
    assert_eq!(asked, [(8192, 65536), (73728, 65536), (139264, 65536), (204800, 57344)]);
    assert_eq!(i.read(0, 512), data);
    assert_eq!(&rig.disk.bytes.read()[..data.len()], &data[..]);
}

#[test]
fn r2t_only_and_odd_segments_with_digests() {
    let rig = rig();
    let keys = [
        ("InitialR2T", "Yes"),
        ("ImmediateData", "No"),
        ("HeaderDigest", "CRC32C"),
        ("DataDigest", "CRC32C,None"),
        ("MaxRecvDataSegmentLength", "1024"),
    ];
    let mut i = rig.logged_in(&keys);
    assert!(i.header_digest && i.data_digest);
    let data = pattern(128 << 10);
    for segment in [1021, 40_001, 131_072] {
        let itt = i.command(0xa1, &rw(0x2a, 8, 256), 128 << 10, &[]);
        assert_eq!(serve_r2ts(&mut i, itt, &data, segment).0, 0);
    }
    assert_eq!(i.read(8, 256), data);
}

#[test]
fn wrong_digests() {
    let rig = rig();
    let mut i = rig.logged_in(&[("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")]);
    // Immediate data with a wrong digest: rejected, and the command ends with CRC sense.
    i.data_digest = false;
    let bhs = i.command_bhs(0xa1, &rw(0x2a, 0, 1), 512);
    i.send(bhs, &[1; 512]);
    i.stream.write_all(&[0; 4]).unwrap();
    i.data_digest = true;
    let pdu = i.receive();
    assert_eq!((pdu.bhs.opcode(), pdu.bhs.0[2]), (opcode::REJECT, reject::DATA_DIGEST_ERROR));
    let pdu = i.receive();
    assert_eq!(
        (pdu.bhs.opcode(), pdu.bhs.0[3], pdu.data[4], pdu.data[14]),
        (opcode::SCSI_RESPONSE, 2, 0x0b, 0x47)
    );
    assert_eq!(rig.disk.bytes.read()[0], 0, "nothing was written");
    // A wrong header digest cannot be trusted with anything: the connection ends.
    i.header_digest = false;
    i.command(0xc1, &rw(0x28, 0, 1), 512, &[]);
    let _ = i.stream.write_all(&[9; 4]);
    assert!(i.try_receive().is_none());
    eventually("nexus lost", || rig.disk.lost.load(Ordering::SeqCst) == 1);
}

#[test]
fn residuals() {
    let rig = rig();
    let mut i = rig.logged_in(&[]);
    for (expected, got, overflow, residual) in
        [(1024, 512, false, 512), (100, 100, true, 412), (512, 512, false, 0)]
    {
        i.command(0xc1, &rw(0x28, 0, 1), expected, &[]);
        let pdu = i.receive();
        assert_eq!(pdu.data.len(), got);
        let flags = pdu.bhs.flags() & (flag::OVERFLOW | flag::UNDERFLOW);
        let want = if residual == 0 {
            0
        } else if overflow {
            flag::OVERFLOW
        } else {
            flag::UNDERFLOW
        };
        assert_eq!((flags, pdu.bhs.u32_at(44)), (want, residual));
    }
    // A read for which nothing is expected.
    i.command(0x81, &rw(0x28, 0, 1), 0, &[]);
    let pdu = i.receive();
    assert_eq!(
        (pdu.bhs.opcode(), pdu.bhs.flags() & 6, pdu.bhs.u32_at(44)),
        (opcode::SCSI_RESPONSE, flag::OVERFLOW, 512)
    );
}

#[test]
fn bad_data_ends_the_command_only() {
    let rig = rig();
    let mut i = rig.logged_in(&[("InitialR2T", "Yes")]);
    let wrong: [(&str, (u32, u32), usize); 3] =
        [("DataSN", (3, 0), 512), ("offset", (0, 512), 512), ("too much", (0, 0), 2048)];
    for (what, place, len) in wrong {
        let itt = i.command(0xa1, &rw(0x2a, 0, 2), 1024, &[]);
        let r2t = i.receive();
        assert_eq!(r2t.bhs.opcode(), opcode::R2T);
        i.data_out(itt, r2t.bhs.ttt(), place, true, &vec![7; len]);
        let pdu = i.receive();
        assert_eq!(
            (pdu.bhs.opcode(), pdu.bhs.0[3], pdu.bhs.itt()),
            (opcode::SCSI_RESPONSE, 2, itt),
            "{what}"
        );
    }
    // Unsolicited data though InitialR2T=Yes; and data for nobody is thrown away.
    let itt = i.command(0x21, &rw(0x2a, 0, 2), 1024, &[]);
    i.data_out(itt, RESERVED_TAG, (0, 0), true, &[7; 1024]);
    assert_eq!(i.receive().data[14..16], [0x0c, 0x0c]);
    assert_eq!(i.read(0, 2), vec![0; 1024]);
}

#[test]
fn numbers_outside_the_window_are_ignored() {
    let rig = rig();
    let mut i = rig.logged_in(&[]);
    let sn = i.cmd_sn;
    for wrong in [sn.wrapping_sub(1), sn + 5000] {
        i.cmd_sn = wrong;
        i.command(0x81, &[0; 6], 0, &[]);
    }
    i.cmd_sn = sn;
    let itt = i.command(0x81, &[0; 6], 0, &[]);
    let pdu = i.receive();
    assert_eq!(pdu.bhs.itt(), itt, "only the right number is answered");
    assert_eq!(pdu.bhs.u32_at(28), sn + 1);
    assert_eq!(pdu.bhs.u32_at(32), sn + 256);
}

#[test]
fn order_across_connections() {
    let rig = rig();
    let mut a = rig.logged_in(&[("MaxConnections", "4")]);
    let mut b = rig.initiator();
    (b.tsih, b.cid) = (a.tsih, 1);
    assert_eq!(b.login(&[]).bhs.u16_at(36), 0);
    assert_eq!(rig.server.sessions()[0].connections.len(), 2);
    let (sn, before) = (a.cmd_sn, rig.disk.started.lock().len());
    b.cmd_sn = sn + 1;
    let late = b.command(0xc1, &rw(0x28, 0, 1), 512, &[]);
    b.itt = 900;
    let nop = b.request(opcode::NOP_OUT, flag::FINAL);
    b.send(nop, b"ping");
    std::thread::park_timeout(Duration::from_millis(100));
    assert_eq!(rig.disk.started.lock().len(), before, "held back until its turn");
    a.command(0x81, &[0; 6], 0, &[]);
    assert_eq!(a.receive().bhs.opcode(), opcode::SCSI_RESPONSE);
    let (one, two) = (b.receive(), b.receive());
    let itts = [one.bhs.itt(), two.bhs.itt()];
    assert!(itts.contains(&late) && itts.contains(&900), "{itts:?}");
    assert_eq!(rig.disk.started.lock()[before..], [0x00, 0x28]);
    // Logging one connection out leaves the session; its numbers go on.
    a.cmd_sn = sn + 3;
    let mut bhs = a.request(opcode::LOGOUT, 0x81);
    bhs.set_u16(20, 0);
    a.send(bhs, &[]);
    assert_eq!(a.receive().bhs.opcode(), opcode::LOGOUT_RESPONSE);
    assert!(a.try_receive().is_none());
    b.cmd_sn = sn + 4;
    assert_eq!(b.read(0, 1).len(), 512);
    // At recovery level 0 a connection that breaks takes the session with it.
    drop(b);
    eventually("session over", || rig.server.sessions().is_empty());
    assert_eq!(rig.disk.lost.load(Ordering::SeqCst), 1);
}

#[test]
fn reinstatement() {
    let rig = rig();
    let mut old = rig.logged_in(&[]);
    old.command(0x81, &[0xff; 6], 0, &[]);
    eventually("command hangs", || rig.disk.hanging.load(Ordering::SeqCst) == 1);
    let mut new = rig.logged_in(&[]);
    assert_eq!(rig.disk.lost.load(Ordering::SeqCst), 1, "the old nexus is gone before the new one is there");
    assert!(old.try_receive().is_none());
    assert_eq!(rig.server.sessions().len(), 1);
    assert_eq!(new.read(0, 1).len(), 512);
    // Another ISID is another session.
    let mut other = rig.initiator();
    other.isid[5] = 2;
    other.login(&[]);
    assert_eq!(rig.server.sessions().len(), 2);
    // The connection of a session can be reinstated, too.
    let mut again = rig.initiator();
    (again.tsih, again.cmd_sn) = (new.tsih, new.cmd_sn);
    assert_eq!(again.login(&[]).bhs.u16_at(36), 0);
    assert!(new.try_receive().is_none());
    assert_eq!(again.read(0, 1).len(), 512);
    assert_eq!(rig.disk.lost.load(Ordering::SeqCst), 1, "the same session");
}

#[test]
fn joining_what_cannot_be_joined() {
    let rig = rig();
    let a = rig.logged_in(&[]);
    let mut b = rig.initiator();
    (b.tsih, b.cid) = (a.tsih + 9, 1);
    assert_eq!(b.login(&[]).bhs.u16_at(36), 0x020a);
    let mut b = rig.initiator();
    (b.tsih, b.cid) = (a.tsih, 1);
    assert_eq!(b.login(&[]).bhs.u16_at(36), 0x0206, "MaxConnections was not negotiated: 1");
    assert_eq!(rig.server.sessions().len(), 1);
}

#[test]
fn task_management() {
    let rig = rig();
    let mut i = rig.logged_in(&[]);
    let hung = i.command(0x81, &[0xff; 6], 0, &[]);
    i.command(0x81, &[0xff; 6], 0, &[]);
    eventually("both hang", || rig.disk.hanging.load(Ordering::SeqCst) == 2);
    let ask = |i: &mut Initiator, function: u8, task: u32, lun: u8| {
        let mut bhs = i.request(opcode::TASK_MANAGEMENT | 0x40, 0x80 | function);
        i.cmd_sn -= 1;
        bhs.0[9] = lun;
        bhs.set_u32(20, task);
        i.send(bhs, &[]);
        let pdu = i.receive();
        assert_eq!(pdu.bhs.opcode(), opcode::TASK_MANAGEMENT_RESPONSE);
        pdu.bhs.0[2]
    };
    assert_eq!(ask(&mut i, 1, hung, 0), 0);
    eventually("one aborted", || rig.disk.hanging.load(Ordering::SeqCst) == 1);
    assert_eq!(ask(&mut i, 1, hung, 0), 1, "no such task any more");
    assert_eq!(ask(&mut i, 5, 0, 0), 0);
    assert_eq!(rig.disk.hanging.load(Ordering::SeqCst), 0);
    assert_eq!(ask(&mut i, 5, 0, 3), 2, "no such LUN");
    assert_eq!(ask(&mut i, 8, 0, 0), 4);
    assert_eq!(ask(&mut i, 2, 0, 0), 0);
    assert_eq!(ask(&mut i, 6, 0, 0), 0);
    assert_eq!(i.read(0, 1).len(), 512, "the session lives on, and the window has its credits back");
    assert_eq!(ask(&mut i, 7, 0, 0), 0);
    assert!(i.try_receive().is_none(), "a cold reset ends the sessions");
    assert_eq!(rig.disk.functions.lock().last(), Some(&TaskManagement::TargetColdReset));
}

#[test]
fn the_window_holds_and_comes_back() {
    let rig = rig();
    let mut i = rig.logged_in(&[]);
    for _ in 0..256 {
        i.command(0x81, &[0xff; 6], 0, &[]);
    }
    i.command(0x81, &[0; 6], 0, &[]);
    i.cmd_sn -= 1;
    eventually("the window is full", || rig.disk.hanging.load(Ordering::SeqCst) == 256);
    let mut bhs = i.request(opcode::TASK_MANAGEMENT | 0x40, 0x82);
    i.cmd_sn -= 1;
    bhs.set_u32(20, RESERVED_TAG);
    i.send(bhs, &[]);
    let pdu = i.receive();
    assert_eq!(
        pdu.bhs.opcode(),
        opcode::TASK_MANAGEMENT_RESPONSE,
        "the command beyond the window was ignored"
    );
    assert_eq!(pdu.bhs.u32_at(32).wrapping_sub(pdu.bhs.u32_at(28)), 255);
    assert_eq!(i.read(0, 1).len(), 512);
}

#[test]
fn nop_text_and_unknown_requests() {
    let rig = rig();
    let mut i = rig.logged_in(&[]);
    let nop = i.request(opcode::NOP_OUT, flag::FINAL);
    i.send(nop, b"echo!");
    let pdu = i.receive();
    assert_eq!((pdu.bhs.opcode(), &pdu.data[..]), (opcode::NOP_IN, &b"echo!"[..]));
    let mut text = i.request(opcode::TEXT, flag::FINAL);
    text.set_u32(20, RESERVED_TAG);
    i.send(text, b"SendTargets=\0X-foo=bar\0MaxRecvDataSegmentLength=65536\0HeaderDigest=None\0");
    let answer = i.receive();
    assert_eq!(answer.bhs.opcode(), opcode::TEXT_RESPONSE);
    let pairs = answer.text();
    assert!(pairs.contains(&("TargetName".into(), TARGET.into())));
    assert!(pairs.contains(&("TargetAddress".into(), format!("{},1", rig.address))));
    assert!(pairs.contains(&("X-foo".into(), "NotUnderstood".into())));
    assert!(pairs.contains(&("HeaderDigest".into(), "Reject".into())));
    for (op, reason) in [
        (0x10, reject::SNACK_REJECT),
        (0x1c, reject::COMMAND_NOT_SUPPORTED),
        (0x3f, reject::COMMAND_NOT_SUPPORTED),
    ] {
        i.send(Bhs::new(op, flag::FINAL), &[]);
        let pdu = i.receive();
        assert_eq!((pdu.bhs.opcode(), pdu.bhs.0[2], pdu.data.len()), (opcode::REJECT, reason, 48));
    }
    assert_eq!(i.read(0, 1).len(), 512);
}

#[test]
fn discovery() {
    let rig = rig();
    let mut i = rig.initiator();
    let response = i.login_request(0x87, &[("InitiatorName", INITIATOR), ("SessionType", "Discovery")]);
    assert_eq!(response.bhs.u16_at(36), 0);
    let mut text = i.request(opcode::TEXT, flag::FINAL);
    text.set_u32(20, RESERVED_TAG);
    i.send(text, b"SendTargets=All\0");
    assert_eq!(i.receive().text()[0], ("TargetName".into(), TARGET.into()));
    i.command(0x81, &[0; 6], 0, &[]);
    assert_eq!(i.receive().bhs.opcode(), opcode::REJECT, "no SCSI in a discovery session");
}

#[test]
fn chap_and_masking() {
    let user = |name: &str, secret: &str| ChapUser { name: name.into(), secret: Secret::new(secret) };
    let (users, mutual) = (vec![user("me", "my own secret").into()], Some(user("it", "its own secret")));
    let rig = rig_with(|config| config.auth = AuthConfig::Chap { users, mutual });
    let names = [("InitiatorName", INITIATOR), ("TargetName", TARGET)];
    assert_eq!(rig.initiator().login(&[]).bhs.u16_at(36), 0x0201);
    for (secret, status) in [("my own secret", 0), ("not my secret", 0x0201)] {
        let mut i = rig.initiator();
        i.login_request(0x00, &[names[0], names[1], ("AuthMethod", "CHAP")]);
        let offer = i.login_request(0x00, &[("CHAP_A", "7,5")]).text();
        let get = |k: &str| offer.iter().find(|(key, _)| key == k).unwrap().1.clone();
        assert_eq!(get("CHAP_A"), "7");
        let challenge = binary(&get("CHAP_C"), 1024).unwrap();
        let proof =
            Algorithm::Sha256.response(get("CHAP_I").parse().unwrap(), &Secret::new(secret), &challenge);
        let keys = [("CHAP_N", "me"), ("CHAP_R", &hex(&proof)), ("CHAP_I", "9"), ("CHAP_C", "0x0102")];
        let answer = i.login_request(0x83, &keys);
        assert_eq!(answer.bhs.u16_at(36), status);
        if status == 0 {
            let expected = hex(&Algorithm::Sha256.response(9, &Secret::new("its own secret"), &[1, 2]));
            assert!(answer.text().contains(&("CHAP_R".into(), expected)));
            assert_eq!(rig.server.sessions()[0].user.as_deref(), Some("me"));
        }
    }
    let masked = rig_with(|config| config.access = InitiatorAccess::Check(Arc::new(|_| false)));
    assert_eq!(masked.initiator().login(&[]).bhs.u16_at(36), 0x0203, "as if there were none");
}

#[test]
fn malformed_pdus_end_only_their_connection() {
    let rig = rig();
    let mut good = rig.logged_in(&[]);
    // During login: other opcodes, garbage, a giant data segment.
    for first in [vec![0x01; 48], vec![0xff; 48], {
        let mut b = vec![0x43, 0x87];
        b.resize(48, 0xff);
        b
    }] {
        let mut i = rig.initiator();
        i.stream.write_all(&first).unwrap();
        let mut rest = Vec::new();
        let _ = i.stream.read_to_end(&mut rest);
    }
    // In full feature phase: a data segment beyond what we declared, a login request, a long NOP.
    for (op, len) in
        [(opcode::SCSI_COMMAND, 0xff_ffff), (opcode::LOGIN | 0x40, 0), (opcode::NOP_OUT | 0x40, 200_000)]
    {
        let mut i = rig.initiator();
        i.isid[5] = 9;
        i.login(&[]);
        let mut bhs = Bhs::new(op, 0x80);
        bhs.set_data_len(len);
        i.stream.write_all(&bhs.0).unwrap();
        assert!(i.try_receive().is_none(), "{op:#x}");
    }
    // Bytes at random behind a login.
    let mut seed = 1u64;
    for _ in 0..20 {
        let mut i = rig.initiator();
        i.isid[5] = 10;
        i.login(&[]);
        let bytes: Vec<u8> = (0..4000)
            .map(|_| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
                (seed >> 56) as u8
            })
            .collect();
        let _ = i.stream.write_all(&bytes);
        let _ = i.stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = i.stream.read_to_end(&mut rest);
    }
    assert_eq!(good.read(0, 8).len(), 4096);
    eventually("only the good session is left", || rig.server.sessions().len() == 1);
}

#[test]
fn a_login_flood_is_capped_and_passes() {
    let rig = rig();
    let mut good = rig.logged_in(&[]);
    let flood: Vec<_> = (0..80).map(|_| Initiator::connect(rig.address)).collect();
    let mut i = rig.initiator();
    i.stream.write_all(&[0x43]).unwrap();
    assert!(i.try_receive().is_none(), "beyond the cap a connection is closed at once");
    assert_eq!(good.read(0, 8).len(), 4096, "sessions go on");
    drop(flood);
    eventually("room again", || {
        let mut i = rig.initiator();
        i.isid[5] = 3;
        let ok = i.stream.write_all(&[]).is_ok();
        i.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        ok && matches!(i.stream.read(&mut [0; 1]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    });
}

#[test]
fn a_peer_that_does_not_read_holds_nobody_up() {
    let rig = rig();
    let mut stalled = rig.logged_in(&[]);
    for _ in 0..200 {
        stalled.command(0xc1, &rw(0x28, 0, 2048), 1 << 20, &[]);
    }
    let mut other = rig.initiator();
    other.isid[5] = 2;
    other.login(&[]);
    for _ in 0..50 {
        assert_eq!(other.read(0, 8).len(), 4096);
    }
    let queued = rig.server.sessions().iter().flat_map(|s| s.connections.clone()).map(|c| c.bytes_out).max();
    assert!(queued < Some(80 << 20), "answers wait within the budget, not all of 200 MiB: {queued:?}");
}

#[test]
fn big_writes_wait_for_the_budget_and_arrive() {
    let rig = rig();
    let mut i = rig.logged_in(&[("InitialR2T", "Yes"), ("MaxBurstLength", "1048576")]);
    let data = pattern(2 << 20);
    let itts: Vec<u32> =
        (0..24).map(|_| i.command(0xa1, &rw(0x2a, 0, 4096), 2 << 20, &data[..65536])).collect();
    let mut done = 0;
    while done < itts.len() {
        let pdu = i.receive();
        let itt = pdu.bhs.itt();
        if pdu.bhs.opcode() == opcode::SCSI_RESPONSE {
            assert_eq!(pdu.bhs.0[3], 0);
            done += 1;
            continue;
        }
        let (offset, len) = (pdu.bhs.u32_at(40) as usize, pdu.bhs.u32_at(44) as usize);
        let (mut at, mut sn) = (offset, 0);
        while at < offset + len {
            let next = (at + (256 << 10)).min(offset + len);
            i.data_out(itt, pdu.bhs.ttt(), (sn, at as u32), next == offset + len, &data[at..next]);
            (at, sn) = (next, sn + 1);
        }
    }
    assert_eq!(&rig.disk.bytes.read()[..data.len()], &data[..]);
}

#[test]
fn removal_asks_for_logout_first() {
    let rig = rig();
    let mut i = rig.logged_in(&[]);
    let server = rig.server.clone();
    let removal = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime
            .block_on(server.remove_target(&IscsiName::parse(TARGET).unwrap(), Duration::from_secs(60)))
            .unwrap();
    });
    let pdu = i.receive();
    assert_eq!((pdu.bhs.opcode(), pdu.bhs.0[36], pdu.bhs.u16_at(42)), (opcode::ASYNC, 1, 60));
    assert_eq!(rig.initiator().login(&[]).bhs.u16_at(36), 0x0203, "no new logins");
    let logout = i.request(opcode::LOGOUT, 0x80);
    i.send(logout, &[]);
    assert_eq!(i.receive().bhs.opcode(), opcode::LOGOUT_RESPONSE);
    removal.join().unwrap();
    assert_eq!(rig.disk.lost.load(Ordering::SeqCst), 1);
}

#[test]
fn kick_and_update() {
    let rig = rig();
    let mut i = rig.logged_in(&[]);
    let name = IscsiName::parse(TARGET).unwrap();
    assert!(rig.server.kick_session(&name, i.tsih));
    assert!(i.try_receive().is_none());
    let mut i = rig.logged_in(&[]);
    let mut config = TargetConfig::new(name, rig.disk.clone());
    rig.server.update_target(config.clone()).unwrap();
    assert_eq!(i.read(0, 1).len(), 512, "nothing changed for this session");
    config.access = InitiatorAccess::Check(Arc::new(|_| false));
    rig.server.update_target(config).unwrap();
    assert!(i.try_receive().is_none());
}
