//! Clients that make the server hold memory for them, and clients that only want to work.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test on a thread of its own"
)]

mod common;
#[path = "common/wanted.rs"]
mod wanted;

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use common::{Served, serve_within};
use file_store::MemoryStore;
use smb_client::{Connection, Options};
use smb_protocol::access::ShareAccess;
use smb_protocol::file::FileId;
use smb_protocol::message::{Request, Response};
use smb_protocol::read::ReadRequest;
use smb_protocol::write::WriteRequest;
use smb_protocol::{Command, NtStatus};
use smb_server::ServerConfig;
use tcp_service::{Budget, CONNECTION, MIN_BUDGET};
use wanted::{ANY, Wanted, file_id};

const MIB: usize = 1 << 20;
/// What a hostile client says will come: the length before a packet with a WRITE of 8 MiB.
const PREFIX: [u8; 4] = [0, 0x80, 0, 0x70];

fn served() -> (Served, Budget) {
    let budget = Budget::new(MIN_BUDGET);
    let store = Arc::new(MemoryStore::new(1 << 30));
    (serve_within(store, ServerConfig::default(), ANY, budget.clone()).unwrap(), budget)
}

fn client(served: &Served) -> Connection {
    let options = Options { timeout: Duration::from_secs(120), ..Options::default() };
    let mut connection = Connection::connect(served.address, options).unwrap();
    connection.login("admin", "secret").unwrap();
    // Credits come with answers.
    for _ in 0..16 {
        assert_eq!(connection.call(&Request::Echo, 0).unwrap().header.status, NtStatus::SUCCESS);
    }
    connection
}

/// A client that has logged in and sends the beginning of a packet: `bytes` of it, as far as the server takes them.
fn hostile(served: &Served, bytes: usize) -> (Connection, TcpStream) {
    hostile_with(served, PREFIX, bytes)
}

/// The same with the length that it says.
fn hostile_with(served: &Served, prefix: [u8; 4], bytes: usize) -> (Connection, TcpStream) {
    let connection = client(served);
    let mut stream = TcpStream::from(connection.socket().try_clone_to_owned().unwrap());
    stream.write_all(&prefix).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    // The server stops reading where it has no memory for more.
    let _ = stream.write_all(&vec![0xfe; bytes]);
    (connection, stream)
}

fn write(connection: &mut Connection, tree: u32, file_id: FileId, offset: u64, data: &[u8]) -> NtStatus {
    let request = WriteRequest { offset, file_id, ..WriteRequest::default() };
    let header = connection.header_for(Command::WRITE, tree, data.len());
    connection.send_as(&[(header, &Request::Write(request, data))]).unwrap();
    connection.answer_to(header.message_id).unwrap().header.status
}

fn read(connection: &mut Connection, tree: u32, file_id: FileId, offset: u64, length: usize) -> Vec<u8> {
    let request = ReadRequest { length: length as u32, offset, file_id, ..ReadRequest::default() };
    let header = connection.header_for(Command::READ, tree, length);
    connection.send_as(&[(header, &Request::Read(request))]).unwrap();
    let received = connection.answer_to(header.message_id).unwrap();
    let Response::Read(_, data) = received.good().unwrap() else { panic!("no data") };
    data.to_vec()
}

/// Writes and reads, small and large, as every client may.
fn work(served: &Served, rounds: usize) {
    let mut connection = client(served);
    let tree = connection.tree("share").unwrap();
    let id = file_id(&Wanted::plain().open(&mut connection, tree));
    for round in 0..rounds {
        let byte = round as u8 + 1;
        for (offset, len) in [(0, 4096), (MIB, 64 << 10), (2 * MIB, 4 * MIB)] {
            let status = write(&mut connection, tree, id, offset as u64, &vec![byte; len]);
            assert_eq!(status, NtStatus::SUCCESS, "round {round}");
            assert_eq!(read(&mut connection, tree, id, offset as u64, len), vec![byte; len], "round {round}");
        }
    }
}

#[test]
fn who_only_says_that_much_will_come_takes_nothing_from_others() {
    let (served, budget) = served();
    let hostile: Vec<_> = (0..100).map(|_| hostile(&served, 16)).collect();
    work(&served, 3);
    let usage = budget.usage();
    assert!(usage.used <= usage.limit / 2 + (16 * MIB) as u64, "{usage:?}");
    drop(hostile);
}

#[test]
fn half_frames_stay_within_the_budget_and_go_when_others_need_it() {
    let (served, budget) = served();
    let hostile: Vec<_> = (0..40).map(|_| hostile(&served, 4 * MIB)).collect();
    let usage = budget.usage();
    assert!(usage.used <= usage.limit, "{usage:?}");
    assert!(usage.waits > 0, "{usage:?}");
    work(&served, 3);
    let usage = budget.usage();
    assert!(usage.used <= usage.limit && usage.refused > 0, "{usage:?}");
    drop(hostile);
    work(&served, 1);
}

fn eventually(what: &str, is: impl Fn() -> bool) {
    let seen = (0..3000).any(|_| {
        is() || {
            std::thread::sleep(Duration::from_millis(10));
            false
        }
    });
    assert!(seen, "{what}");
}

/// Connections count, and what each of them holds that is too small to be asked for.
#[test]
fn what_many_hold_little_of_counts() {
    let (served, budget) = served();
    // Halves of packets of 60 KiB.
    let hostile: Vec<_> = (0..50).map(|_| hostile_with(&served, [0, 0, 0xf0, 0], 40 << 10)).collect();
    let at_least = 50 * (CONNECTION + (48 << 10)) as u64;
    // The server reads when it comes to it.
    eventually("all of it counts", || budget.usage().used >= at_least);
    work(&served, 1);
    drop(hostile);
    eventually("all is given back", || budget.usage().used == 0);
}

/// Those who ask for much and take nothing of it are no different.
#[test]
fn answers_that_nobody_takes_stay_within_the_budget() {
    let (served, budget) = served();
    work(&served, 1);
    let mut hostile = Vec::new();
    for _ in 0..20 {
        let mut connection = client(&served);
        let tree = connection.tree("share").unwrap();
        let mut look = Wanted::plain();
        look.share = ShareAccess(7);
        look.name = "read by many";
        let id = file_id(&look.open(&mut connection, tree));
        if hostile.is_empty() {
            assert_eq!(write(&mut connection, tree, id, 0, &vec![7; 4 * MIB]), NtStatus::SUCCESS);
        }
        for _ in 0..8 {
            let request = ReadRequest { length: 2 << 20, file_id: id, ..ReadRequest::default() };
            let header = connection.header_for(Command::READ, tree, 2 << 20);
            connection.send_as(&[(header, &Request::Read(request))]).unwrap();
        }
        hostile.push(connection);
    }
    work(&served, 2);
    let usage = budget.usage();
    assert!(usage.used <= usage.limit + (8 * MIB) as u64, "{usage:?}");
}
