//! A client that comes back with another session: what its earlier one had under way comes before what it sends again.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test on a thread of its own"
)]

mod common;
#[path = "common/held.rs"]
mod held;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Served, serve};
use file_store::MemoryStore;
use held::{Gate, held};
use smb_client::{Connection, Options};
use smb_protocol::access::{AccessMask, CreateDisposition, ShareAccess};
use smb_protocol::create::CreateRequest;
use smb_protocol::file::FileId;
use smb_protocol::message::{Request, Response};
use smb_protocol::read::ReadRequest;
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::write::WriteRequest;
use smb_protocol::{Command, NtStatus};
use smb_server::ServerConfig;

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
/// Bytes of the writes.
const LEN: usize = 4096;

fn served() -> (Served, Arc<Gate>) {
    let gate = Gate::new();
    let store = held(Arc::new(MemoryStore::new(1 << 30)), Arc::clone(&gate));
    (serve(store, ServerConfig::default(), ANY).unwrap(), gate)
}

fn connect(served: &Served) -> Connection {
    Connection::connect(served.address, Options { timeout: Duration::from_secs(60), ..Options::default() })
        .unwrap()
}

fn open(connection: &mut Connection) -> (u32, FileId) {
    let tree = connection.tree("share").unwrap();
    let name = utf16("f");
    let request = Request::Create(CreateRequest {
        desired_access: AccessMask::FILE_READ | AccessMask::FILE_WRITE,
        share_access: ShareAccess(7),
        disposition: CreateDisposition::OPEN_IF,
        name: Utf16::new(&name).unwrap(),
        ..CreateRequest::default()
    });
    let answer = connection.call(&request, tree).unwrap();
    let Response::Create(created) = answer.good().unwrap() else { panic!("no open") };
    (tree, created.file_id)
}

fn send_write(connection: &mut Connection, (tree, file_id): (u32, FileId), byte: u8) -> u64 {
    let data = [byte; LEN];
    let write = WriteRequest { file_id, offset: 0, ..WriteRequest::default() };
    let header = connection.header_for(Command::WRITE, tree, LEN);
    connection.send_as(&[(header, &Request::Write(write, &data))]).unwrap();
    header.message_id
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1500 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("never: {what}");
}

/// A client whose write is held up.
struct Writing {
    first: Connection,
    /// Its session.
    id: u64,
    /// The write's message.
    number: u64,
}

impl Writing {
    fn begin(served: &Served, gate: &Gate) -> Self {
        let mut first = connect(served);
        first.login("admin", "secret").unwrap();
        let id = first.session.as_ref().unwrap().id;
        let file = open(&mut first);
        gate.close();
        let number = send_write(&mut first, file, 1);
        until("a write is under way", || gate.waiting() == 1);
        Self { first, id, number }
    }
}

#[test]
fn a_successor_is_let_in_when_the_writes_of_its_session_have_ended() {
    let (served, gate) = served();
    let Writing { mut first, id, .. } = Writing::begin(&served, &gate);

    // A client that no longer hears its first connection; the server has not noticed.
    let (released, mut second) = (AtomicBool::new(false), connect(&served));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until("the earlier session ends", || served.server.sessions().iter().all(|each| each.id != id));
            // It would be let in by now, if it did not wait.
            std::thread::sleep(Duration::from_millis(500));
            released.store(true, Ordering::SeqCst);
            gate.release();
        });
        second.login_again("admin", "secret", id).unwrap();
        assert!(released.load(Ordering::SeqCst), "let in while a write of the earlier session was under way");
    });
    let file = open(&mut second);
    let number = send_write(&mut second, file, 2);
    assert_eq!(second.answer_to(number).unwrap().header.status, NtStatus::SUCCESS);
    let read = ReadRequest { file_id: file.1, length: LEN as u32, ..ReadRequest::default() };
    let answer = second.call(&Request::Read(read), file.0).unwrap();
    let Response::Read(_, data) = answer.good().unwrap() else { panic!("no data") };
    assert!(data.iter().all(|byte| *byte == 2), "the earlier write came after it");

    // Its next one is refused: the session is no more.
    let header = first.header_for(Command::WRITE, file.0, LEN);
    let write = WriteRequest { file_id: file.1, ..WriteRequest::default() };
    let late = first.send_as(&[(header, &Request::Write(write, &[1; LEN]))]);
    let late = late.and_then(|_| first.answer_to(header.message_id));
    assert!(!late.is_ok_and(|answer| answer.header.status == NtStatus::SUCCESS));
}

#[test]
fn another_user_ends_nobodys_session() {
    let (served, gate) = served();
    let Writing { mut first, id, number, .. } = Writing::begin(&served, &gate);
    // Neither ended nor waited for.
    connect(&served).login_again("user", "secret", id).unwrap();
    gate.release();
    assert_eq!(first.answer_to(number).unwrap().header.status, NtStatus::SUCCESS);
}
