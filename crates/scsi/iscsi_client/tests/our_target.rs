//! The initiator against our own target, with a disk in memory behind it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

#[path = "../../iscsi_target/tests/support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use iscsi_client::{Buffers, ClientError, Command, Disk, Ended, Options, Transfer};
use iscsi_protocol::IscsiName;
use iscsi_protocol::chap::{ChapError, ChapUser, Secret};
use iscsi_protocol::keys::Offer;
use iscsi_protocol::login::LoginStatus;
use iscsi_protocol::login_client::LoginError;
use iscsi_protocol::url::Url;
use iscsi_target::{AuthConfig, IscsiServer, PortalConfig, ServerConfig, TargetConfig};
use scsi_defs::request;
use support::initiator::{INITIATOR, TARGET};
use support::{BLOCK, MemoryDisk, Threads, eventually};

/// Bytes of the disk.
const SIZE: usize = 4 << 20;

struct Rig {
    server: IscsiServer,
    disk: Arc<MemoryDisk>,
    address: SocketAddr,
}

fn rig(config: ServerConfig, auth: AuthConfig) -> Rig {
    let server = IscsiServer::new(config, Threads::start(1), support::random()).unwrap();
    let disk = MemoryDisk::new(SIZE);
    let mut target = TargetConfig::new(IscsiName::parse(TARGET).unwrap(), disk.clone());
    target.auth = auth;
    server.add_target(target).unwrap();
    let address = server.add_portal(PortalConfig { address: "127.0.0.1:0".parse().unwrap(), group: 1 });
    Rig { server, disk, address: address.unwrap() }
}

fn options(rig: &Rig, query: &str) -> Options {
    let url = format!("iscsi://{}/{TARGET}/0{query}", rig.address);
    Options {
        url: Url::parse(&url).unwrap(),
        initiator: IscsiName::parse(INITIATOR).unwrap(),
        isid: [0x80, 0, 0, 1, 0, 1],
        user: None,
        target_user: None,
        depth: 64,
    }
}

/// Memory of each tag.
struct Memory(Vec<Vec<u8>>);

impl Buffers for Memory {
    fn input(&mut self, tag: usize) -> &mut [u8] {
        &mut self.0[tag]
    }
    fn output(&self, tag: usize) -> &[u8] {
        &self.0[tag]
    }
}

/// Runs commands of (tag, block, blocks), all at once.
fn all(disk: &mut Disk, memory: &mut Memory, commands: &[(usize, u64, u32)], writes: bool) {
    let mut left: Vec<_> = commands.to_vec();
    let (mut ended, mut done) = (Vec::<Ended>::new(), 0);
    while done < commands.len() {
        while let Some((tag, lba, blocks)) = left.last().copied() {
            let len = blocks * BLOCK as u32;
            let (cdb, transfer) = if writes {
                (request::write(lba, blocks, false), Transfer::Out(len))
            } else {
                (request::read(lba, blocks), Transfer::In(len))
            };
            let command = Command { lun: disk.lun, cdb: &cdb, transfer };
            if !disk.session.start(tag, &command, memory).unwrap() {
                break;
            }
            left.pop();
        }
        ended.clear();
        disk.session.turn(Duration::from_millis(100), memory, &mut ended).unwrap();
        for Ended { tag, end } in &ended {
            let blocks = commands.iter().find(|(other, ..)| other == tag).unwrap().2;
            assert_eq!((end.status, end.moved), (0, blocks * BLOCK as u32), "{end:?}");
        }
        done += ended.len();
    }
}

/// Writes pieces of mixed sizes at once, reads them at once, and looks at what the disk holds.
fn round_trip(rig: &Rig, query: &str) {
    let mut disk = Disk::open(&options(rig, query)).unwrap();
    assert_eq!((disk.facts.capacity.bytes(), disk.facts.capacity.block), (SIZE as u64, BLOCK as u32));
    let sizes = [1u32, 7, 8, 64, 127, 128, 129, 512, 1000, 2048];
    let mut at = 3;
    let mut commands = Vec::new();
    for (tag, blocks) in sizes.iter().enumerate() {
        commands.push((tag * 3, at, *blocks));
        at += u64::from(*blocks);
    }
    let content = |tag: usize, len: usize| -> Vec<u8> {
        (0..len).map(|index| (index * 7 + index / 251 + tag * 31) as u8).collect()
    };
    let mut memory = Memory(vec![Vec::new(); 64]);
    for (tag, _, blocks) in &commands {
        memory.0[*tag] = content(*tag, *blocks as usize * BLOCK);
    }
    all(&mut disk, &mut memory, &commands, true);
    for (tag, lba, blocks) in &commands {
        let at = *lba as usize * BLOCK;
        let len = *blocks as usize * BLOCK;
        assert!(rig.disk.bytes.read()[at..at + len] == content(*tag, len), "{query}: piece {tag} is wrong");
        memory.0[*tag].fill(0);
    }
    all(&mut disk, &mut memory, &commands, false);
    for (tag, _, blocks) in &commands {
        assert!(
            memory.0[*tag] == content(*tag, *blocks as usize * BLOCK),
            "{query}: piece {tag} comes back wrong"
        );
    }
    disk.session.close().unwrap();
}

#[test]
fn what_is_agreed_on_is_kept_to() {
    let offer = Offer::default;
    for offer in [
        offer(),
        Offer { initial_r2t: true, ..offer() },
        Offer { initial_r2t: true, immediate_data: false, max_outstanding_r2t: 1, ..offer() },
        Offer { immediate_data: false, first_burst: 8192, max_burst: 65_536, ..offer() },
        Offer { max_recv: 4096, first_burst: 12_345, max_burst: 50_000, ..offer() },
    ] {
        let rig = rig(ServerConfig { offer, ..ServerConfig::default() }, AuthConfig::None);
        for query in ["", "?header_digest=crc32c", "?header_digest=crc32c&data_digest=crc32c"] {
            round_trip(&rig, query);
        }
        eventually("all sessions end", || rig.server.sessions().is_empty());
    }
}

#[test]
fn who_is_who() {
    let account = |name: &str, secret: &str| ChapUser { name: name.into(), secret: Secret::new(secret) };
    let auth = AuthConfig::Chap {
        users: vec![account("me", "a secret of mine").into()],
        mutual: Some(account("it", "a secret of its")),
    };
    let rig = rig(ServerConfig::default(), auth);
    let open = |user: Option<ChapUser>, target_user: Option<ChapUser>| {
        Disk::open(&Options { user, target_user, ..options(&rig, "") }).map(|_| ())
    };
    let me = || Some(account("me", "a secret of mine"));
    open(me(), None).unwrap();
    open(me(), Some(account("it", "a secret of its"))).unwrap();
    let refused = |result: Result<(), ClientError>| match result {
        Err(ClientError::Login(LoginError::Refused(LoginStatus::AUTHENTICATION_FAILURE))) => {}
        other => panic!("{other:?}"),
    };
    refused(open(None, None));
    refused(open(Some(account("me", "guessed")), None));
    match open(me(), Some(account("it", "another secret"))) {
        Err(error @ ClientError::Login(LoginError::Chap(ChapError::Credentials))) => {
            assert!(!error.is_lost())
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_same_port_again_takes_the_session_over() {
    let rig = rig(ServerConfig::default(), AuthConfig::None);
    let mut first = Disk::open(&options(&rig, "")).unwrap();
    let mut memory = Memory(vec![vec![0; BLOCK]; 64]);
    // This command never ends by itself.
    let hang = Command { lun: first.lun, cdb: &[0xff; 16], transfer: Transfer::None };
    assert!(first.session.start(0, &hang, &memory).unwrap());
    first.session.turn(Duration::ZERO, &mut memory, &mut Vec::new()).unwrap();
    eventually("it hangs", || rig.disk.hanging.load(Ordering::SeqCst) == 1);
    let mut second = Disk::open(&options(&rig, "")).unwrap();
    // The first one's commands ended before the second was let in.
    assert_eq!(rig.disk.hanging.load(Ordering::SeqCst), 0);
    assert_eq!(rig.server.sessions().len(), 1);
    all(&mut second, &mut memory, &[(0, 0, 1)], true);
    let lost = loop {
        if let Err(error) = first.session.turn(Duration::from_millis(10), &mut memory, &mut Vec::new()) {
            break error;
        }
    };
    assert!(lost.is_lost(), "{lost}");
    // Another port is another session.
    let _third = Disk::open(&Options { isid: [0x80, 0, 0, 1, 0, 2], ..options(&rig, "") }).unwrap();
    assert_eq!(rig.server.sessions().len(), 2);
}

#[test]
fn a_target_that_asks_is_answered() {
    let config = ServerConfig { dead_after: Duration::from_secs(2), ..ServerConfig::default() };
    let rig = rig(config, AuthConfig::None);
    let mut disk = Disk::open(&options(&rig, "")).unwrap();
    let mut memory = Memory(vec![vec![0; BLOCK]; 64]);
    // Longer than the target waits for somebody who does not answer.
    for _ in 0..40 {
        disk.session.turn(Duration::from_millis(100), &mut memory, &mut Vec::new()).unwrap();
    }
    all(&mut disk, &mut memory, &[(0, 0, 1)], false);
    assert_eq!(rig.disk.lost.load(Ordering::SeqCst), 0);
}

#[test]
fn units_and_commands_that_are_not() {
    let rig = rig(ServerConfig::default(), AuthConfig::None);
    let mut other = options(&rig, "");
    other.url.lun = 3;
    match Disk::open(&other) {
        Err(ClientError::NotADisk(what)) => assert!(what.contains("no unit"), "{what}"),
        other => panic!("{:?}", other.map(|_| ())),
    }
    let mut disk = Disk::open(&options(&rig, "")).unwrap();
    let command = |cdb: &'static [u8], transfer| Command { lun: disk.lun, cdb, transfer };
    let beyond = command(&[0x88, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0], Transfer::In(512));
    let unknown = command(&[0xee; 16], Transfer::None);
    let end = disk.session.call(&beyond, &[]).unwrap().end;
    assert_eq!((end.status, end.sense.unwrap().code, end.moved), (2, 0x2100, 0));
    assert_eq!(disk.session.call(&unknown, &[]).unwrap().end.sense.unwrap().code, 0x2000);
    let gone =
        Options { url: Url::parse(&format!("iscsi://{}/iqn.2026-01.a:b/0", rig.address)).unwrap(), ..other };
    match Disk::open(&gone).map(|_| ()) {
        Err(error @ ClientError::Login(LoginError::Refused(LoginStatus::NOT_FOUND))) => {
            assert!(error.is_lost())
        }
        other => panic!("{other:?}"),
    }
}
