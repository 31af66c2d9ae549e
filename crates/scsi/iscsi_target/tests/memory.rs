//! Initiators that make the target hold memory for them, and one that only wants to work.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests")]

mod support;

use std::net::SocketAddr;
use std::time::Duration;

use aligned_buffer::IoBuf;
use iscsi_protocol::IscsiName;
use iscsi_protocol::pdu::{flag, opcode};
use iscsi_target::{IscsiServer, PortalConfig, ServerConfig, TargetConfig};
use support::initiator::{Initiator, TARGET, rw};
use support::{MemoryDisk, Threads, eventually};
use tcp_service::{ALLOWANCE, Admission, Budget, MIN_BUDGET};

const MIB: usize = 1 << 20;

struct Rig {
    _server: IscsiServer,
    address: SocketAddr,
    budget: Budget,
}

fn rig() -> Rig {
    let budget = Budget::new(MIN_BUDGET);
    let threads = Threads::start(2);
    let server =
        IscsiServer::with_budget(ServerConfig::default(), threads, support::random(), budget.clone())
            .unwrap();
    let config = TargetConfig::new(IscsiName::parse(TARGET).unwrap(), MemoryDisk::new(8 * MIB));
    server.add_target(config).unwrap();
    let address =
        server.add_portal(PortalConfig { address: "127.0.0.1:0".parse().unwrap(), group: 1 }).unwrap();
    Rig { _server: server, address, budget }
}

fn initiator(rig: &Rig, number: u8) -> Initiator {
    let mut initiator = Initiator::connect(rig.address);
    initiator.stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    initiator.isid[5] = number;
    let keys = [("InitialR2T", "Yes"), ("ImmediateData", "No"), ("MaxBurstLength", "16776192")];
    assert_eq!(initiator.login(&keys).bhs.u16_at(36), 0);
    initiator
}

/// Writes `data` at the block, answering each R2T; whether it went well.
fn write(i: &mut Initiator, lba: usize, data: &[u8]) -> bool {
    let blocks = data.len() / support::BLOCK;
    let itt = i.command(0xa1, &rw(0x2a, lba as u32, blocks as u16), data.len() as u32, &[]);
    loop {
        let pdu = i.receive();
        match pdu.bhs.opcode() {
            opcode::R2T => {
                let (offset, len) = (pdu.bhs.u32_at(40) as usize, pdu.bhs.u32_at(44) as usize);
                for (sn, at) in (offset..offset + len).step_by(64 << 10).enumerate() {
                    let end = (at + (64 << 10)).min(offset + len);
                    let last = end == offset + len;
                    i.data_out(itt, pdu.bhs.ttt(), (sn as u32, at as u32), last, &data[at..end]);
                }
            }
            opcode::SCSI_RESPONSE => return pdu.bhs.0[3] == 0,
            opcode::NOP_IN => {}
            other => panic!("unexpected opcode {other:#x}"),
        }
    }
}

fn read(i: &mut Initiator, lba: usize, len: usize) -> Vec<u8> {
    i.command(0xc1, &rw(0x28, lba as u32, (len / support::BLOCK) as u16), len as u32, &[]);
    let mut data = Vec::new();
    while data.len() < len {
        let pdu = i.receive();
        if pdu.bhs.opcode() == opcode::DATA_IN {
            data.extend_from_slice(&pdu.data);
        }
    }
    data
}

fn work(rig: &Rig, rounds: u8) {
    let mut i = initiator(rig, 255);
    for round in 1..=rounds {
        for (lba, len) in [(0, 4096), (64, 64 << 10), (2048, 4 * MIB)] {
            assert!(write(&mut i, lba, &vec![round; len]), "round {round}");
            assert_eq!(read(&mut i, lba, len), vec![round; len], "round {round}");
        }
    }
}

/// Large writes without data: those that come while memory is short are asked for a little first, and give nothing.
#[test]
fn writes_without_data_take_nothing_that_others_need() {
    let rig = rig();
    let mut hostile = Vec::new();
    for number in 0..60 {
        let mut i = initiator(&rig, number);
        // The longest that is taken: 32 MiB, in blocks of 512 bytes as WRITE(16).
        let mut cdb = [0; 16];
        cdb[0] = 0x8a;
        cdb[10..14].copy_from_slice(&(32_u32 << 11).to_be_bytes());
        i.command(0xa1, &cdb, 32 << 20, &[]);
        hostile.push(i);
    }
    eventually("the commands are there", || rig.budget.is_tight());
    work(&rig, 3);
    let usage = rig.budget.usage();
    assert!(usage.used <= usage.limit, "{usage:?}");
    drop(hostile);
    eventually("all is given back", || rig.budget.usage().used == 0);
    work(&rig, 1);
}

/// A buffer is a block of the pool, which may be nearly twice as long as the data: the block counts.
#[test]
fn a_command_is_charged_with_the_block_that_its_data_takes() {
    let rig = rig();
    let mut i = initiator(&rig, 1);
    let len = 4 * MIB + (64 << 10);
    i.command(0xa1, &rw(0x2a, 0, (len / support::BLOCK) as u16), len as u32, &[]);
    let block = IoBuf::footprint(len);
    assert!(block > len + MIB, "{block} of memory for {len}");
    eventually("the block is charged", || rig.budget.usage().used as usize >= block - ALLOWANCE);
}

/// Half of the data of each write: they stand still, and go when somebody needs what they hold.
#[test]
fn half_writes_stay_within_the_budget_and_go_when_others_need_it() {
    let rig = rig();
    let mut hostile = Vec::new();
    for number in 0..30 {
        let mut i = initiator(&rig, number);
        let itt = i.command(0xa1, &rw(0x2a, 0, 16384), 8 << 20, &[]);
        i.stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        if let Some(pdu) = i.try_receive() {
            let len = (pdu.bhs.u32_at(44) as usize).min(MIB);
            i.data_out(itt, pdu.bhs.ttt(), (0, 0), false, &vec![1; len.min(32 << 10) / 2]);
        }
        hostile.push(i);
    }
    assert!(rig.budget.usage().used <= rig.budget.usage().limit);
    work(&rig, 3);
    let usage = rig.budget.usage();
    assert!(usage.used <= usage.limit, "{usage:?}");
}

/// What waits for memory is aborted, and its initiator asks for nothing more: nobody waits behind it.
#[test]
fn an_aborted_command_keeps_no_place_among_those_that_wait() {
    let rig = rig();
    let mut all = rig.budget.account();
    let limit = rig.budget.usage().limit as usize;
    assert_eq!(all.admit(limit + ALLOWANCE), Admission::Now);
    let mut idle = initiator(&rig, 1);
    idle.command(0xc1, &rw(0x28, 0, 8192), 4 << 20, &[]);
    eventually("it waits", || rig.budget.usage().waiting == 1);
    // ABORT TASK SET, at once.
    let mut abort = idle.request(opcode::TASK_MANAGEMENT | 0x40, flag::FINAL | 2);
    abort.set_u32(20, u32::MAX);
    idle.send(abort, &[]);
    eventually("nobody waits", || rig.budget.usage().waiting == 0);
    drop(all);
    work(&rig, 1);
}

/// Discovery needs no login where no secret is asked for, so it holds the places of those that have not logged in: they go, oldest first,
/// when more come from the same address, and a host finds a place.
#[test]
fn discovery_sessions_take_no_places_of_hosts() {
    let rig = rig();
    let mut asking: Vec<_> = (0..iscsi_target::limits::MAX_LOGINS_PER_ADDRESS)
        .map(|_| {
            let mut i = Initiator::connect(rig.address);
            let keys = [("InitiatorName", "iqn.2026-01.org.example:any"), ("SessionType", "Discovery")];
            assert_eq!(i.login_request(0x87, &keys).bhs.u16_at(36), 0);
            i
        })
        .collect();
    let answers = |i: &mut Initiator| {
        let ping = i.request(opcode::NOP_OUT | 0x40, flag::FINAL);
        i.send(ping, &[]);
        i.try_receive().is_some()
    };
    assert!(asking.iter_mut().all(answers), "all have a place until somebody wants it");
    work(&rig, 1);
    assert_eq!(asking.iter_mut().map(answers).filter(|answers| !answers).count(), 1, "the oldest had to go");
}
