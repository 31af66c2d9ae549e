//! Requests about persistent handles that are dropped with one of their client's connections while a row is made durable.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test on a thread of its own"
)]

mod common;
#[path = "common/held.rs"]
mod held;
#[path = "common/wanted.rs"]
mod wanted;

use std::sync::Arc;
use std::time::Duration;

use common::{Served, serve};
use file_store::{FileStore, MemoryStore, StateChange, StoreFuture};
use held::Gate;
use smb_client::{Connection, Options};
use smb_protocol::access::CreateDisposition;
use smb_protocol::file::FileId;
use smb_protocol::fscc::FileClass;
use smb_protocol::fscc::file::DispositionInformation;
use smb_protocol::info::{InfoType, SetInfoRequest};
use smb_protocol::lock::{LockElement, LockFlags, LockRequest};
use smb_protocol::message::Request;
use smb_protocol::{Command, Guid, NtStatus, Wire as _};
use smb_server::ServerConfig;
use test_layers::{Layered, StoreLayer};
use wanted::{ANY, Wanted, client, close, file_id, served};

/// A store that holds up its answers about rows, which are durable already.
struct Slow {
    store: Arc<MemoryStore>,
    gate: Arc<Gate>,
}

impl StoreLayer for Slow {
    fn below(&self) -> &dyn FileStore {
        &*self.store
    }
    fn state_write(&self, changes: Vec<StateChange>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.store.state_write(changes).await?;
            self.gate.pass().await;
            Ok(())
        })
    }
}

fn slow(store: &Arc<MemoryStore>) -> (Served, Arc<Gate>) {
    let gate = Gate::new();
    let layer = Slow { store: Arc::clone(store), gate: Arc::clone(&gate) };
    (serve(Arc::new(Layered(layer)), ServerConfig::default(), ANY).unwrap(), gate)
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

const ME: Guid = Guid([1; 16]);

/// A client with a persistent handle, and a second connection of its session.
fn two_channels(served: &Served) -> (Connection, Connection, u32, FileId) {
    let (mut first, tree) = client(served, ME);
    let id = file_id(&Wanted::persistent(60_000).open(&mut first, tree));
    let options = Options { client: ME, timeout: Duration::from_secs(20), ..Options::default() };
    let mut second = Connection::connect(served.address, options).unwrap();
    second.bind(&first, "admin", "secret").unwrap();
    (first, second, tree, id)
}

fn send(connection: &mut Connection, tree: u32, command: Command, request: &Request<'_>) {
    let header = connection.header_for(command, tree, 0);
    connection.send_as(&[(header, request)]).unwrap();
}

/// Loses a connection with what is under way on it.
fn lose(connection: Connection, served: &Served) {
    drop(connection);
    until("the connection is gone", || served.server.sessions()[0].channels.len() == 1);
}

/// The server is gone without a word: what it has stored decides. The client is back with its handle.
fn restarted(first: Served, store: &Arc<MemoryStore>, id: FileId) -> (Served, Connection, u32) {
    std::mem::forget(first);
    let second = served(store);
    assert_eq!(second.restore().opens, 1);
    let (mut connection, tree) = client(&second, ME);
    assert_eq!(file_id(&Wanted::back(id).open(&mut connection, tree)), id);
    (second, connection, tree)
}

fn disposition(delete: bool) -> Vec<u8> {
    DispositionInformation { delete_pending: delete }.to_bytes()
}

fn set_info(file_id: FileId, buffer: &[u8]) -> Request<'_> {
    let class = FileClass::DISPOSITION.0;
    Request::SetInfo(SetInfoRequest { info_type: InfoType::FILE, class, file_id, buffer, additional: 0 })
}

#[test]
fn a_deletion_that_was_taken_back_does_not_come_back() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let (server, gate) = slow(&store);
    let (mut first, mut second, tree, id) = two_channels(&server);
    gate.close();
    send(&mut second, tree, Command::SET_INFO, &set_info(id, &disposition(true)));
    until("the row is being written", || gate.waiting() == 1);
    lose(second, &server);
    gate.release();
    let kept = first.call(&set_info(id, &disposition(false)), tree).unwrap();
    assert_eq!(kept.header.status, NtStatus::SUCCESS);
    let (_server, mut connection, tree) = restarted(server, &store, id);
    assert_eq!(close(&mut connection, tree, id), NtStatus::SUCCESS);
    let mut look = Wanted::plain();
    look.disposition = CreateDisposition::OPEN;
    assert_eq!(look.open(&mut connection, tree).header.status, NtStatus::SUCCESS, "the file was deleted");
}

#[test]
fn a_lock_that_is_answered_the_second_time_is_durable() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let (server, gate) = slow(&store);
    let (mut first, mut second, tree, id) = two_channels(&server);
    let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    let element = LockElement { offset: 0, length: 1, flags }.to_bytes();
    let lock = LockRequest::new(1 << 4 | 1, id, &element);
    gate.close();
    send(&mut first, tree, Command::SET_INFO, &set_info(id, &disposition(true)));
    until("the row is being written", || gate.waiting() == 1);
    // It waits for its turn at the row.
    send(&mut second, tree, Command::LOCK, &Request::Lock(lock));
    until("the lock is taken", || server.files.opens()[0].locks == 1);
    lose(second, &server);
    gate.release();
    let again = first.call(&Request::Lock(lock), tree).unwrap();
    assert_eq!(again.header.status, NtStatus::SUCCESS);
    let (_server, mut connection, tree) = restarted(server, &store, id);
    let taken = connection.call(&Request::Lock(LockRequest::new(0, id, &element)), tree).unwrap();
    assert_eq!(taken.header.status, NtStatus::LOCK_NOT_GRANTED, "it is not held");
    assert_eq!(close(&mut connection, tree, id), NtStatus::SUCCESS);
}
