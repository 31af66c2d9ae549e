//! What a client with several connections relies on when it loses one: requests that are sent again (MS-SMB2 3.3.5.9.10),
//! and breaks that come over another one.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test on a thread of its own"
)]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::{Served, serve};
use file_store::MemoryStore;
use smb_client::{Connection, Options, Received};
use smb_protocol::access::{AccessMask, CreateAction, CreateDisposition, OplockLevel, ShareAccess};
use smb_protocol::create::contexts::{ContextWriter, CreateReply, tag};
use smb_protocol::create::handles::{
    DurableFlags, DurableReconnect, DurableReconnectV2, DurableRequest, DurableRequestV2,
};
use smb_protocol::create::lease::{LeaseFlags, LeaseKey, LeaseState, LeaseV1};
use smb_protocol::create::{CreateRequest, CreateResponse};
use smb_protocol::file::{CloseRequest, FileId};
use smb_protocol::header::HeaderFlags;
use smb_protocol::message::{Request, Response};
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::write::WriteRequest;
use smb_protocol::{Command, Guid, NtStatus};
use smb_server::ServerConfig;

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn served() -> Served {
    serve(Arc::new(MemoryStore::new(1 << 30)), ServerConfig::default(), ANY).unwrap()
}

fn connect(served: &Served, client: u8) -> Connection {
    let options =
        Options { client: Guid([client; 16]), timeout: Duration::from_secs(20), ..Options::default() };
    Connection::connect(served.address, options).unwrap()
}

/// Sends a CREATE of `f` under a name of the client's; returns its message number.
fn send(connection: &mut Connection, tree: u32, guid: u8, oplock: OplockLevel, replay: bool) -> u64 {
    let mut contexts = ContextWriter::default();
    let durable = DurableRequestV2 { timeout: 0, flags: DurableFlags::NONE, create_guid: Guid([guid; 16]) };
    contexts.push_value(tag::DURABLE_REQUEST_V2, &durable);
    let name = utf16("f");
    let request = Request::Create(CreateRequest {
        oplock,
        desired_access: AccessMask::FILE_ALL,
        share_access: ShareAccess(7),
        disposition: CreateDisposition::OPEN_IF,
        name: Utf16::new(&name).unwrap(),
        contexts: contexts.as_contexts(),
        ..CreateRequest::default()
    });
    let mut header = connection.header(Command::CREATE, tree);
    if replay {
        header.flags |= HeaderFlags::REPLAY_OPERATION;
    }
    connection.send_as(&[(header, &request)]).unwrap();
    header.message_id
}

fn open(connection: &mut Connection, tree: u32, guid: u8, oplock: OplockLevel, replay: bool) -> Received {
    let id = send(connection, tree, guid, oplock, replay);
    connection.answer_to(id).unwrap()
}

fn created(received: &Received) -> CreateResponse<'_> {
    match received.good().unwrap() {
        Response::Create(created) => created,
        other => panic!("{other:?}"),
    }
}

fn lasts(created: &CreateResponse<'_>) -> bool {
    created.contexts.replies().any(|reply| matches!(reply, Ok(CreateReply::DurableV2(_))))
}

fn close(connection: &mut Connection, tree: u32, file_id: FileId) -> NtStatus {
    let request = Request::Close(CloseRequest { file_id, ..CloseRequest::default() });
    connection.call(&request, tree).unwrap().header.status
}

#[test]
fn a_replay_is_told_the_same_until_the_open_is_used() {
    let served = served();
    let mut client = connect(&served, 1);
    client.login("admin", "secret").unwrap();
    let tree = client.tree("share").unwrap();
    let first = open(&mut client, tree, 1, OplockLevel::BATCH, false);
    let (id, action) = (created(&first).file_id, created(&first).action);
    assert_eq!(action, CreateAction::CREATED);
    let again = open(&mut client, tree, 1, OplockLevel::BATCH, true);
    let same = created(&again);
    assert_eq!((same.file_id, same.action, same.oplock), (id, action, OplockLevel::BATCH));
    assert!(lasts(&same));
    let less = open(&mut client, tree, 1, OplockLevel::NONE, true);
    let less = created(&less);
    assert_eq!((less.file_id, less.oplock, lasts(&less)), (id, OplockLevel::NONE, false));
    let write = Request::Write(WriteRequest { file_id: id, ..WriteRequest::default() }, b"x");
    assert_eq!(client.call(&write, tree).unwrap().header.status, NtStatus::SUCCESS);
    assert_eq!(close(&mut client, tree, id), NtStatus::SUCCESS);
    let other = open(&mut client, tree, 1, OplockLevel::NONE, true);
    let other = created(&other);
    assert!(other.file_id != id && other.action == CreateAction::OPENED, "it is not known any more");
}

#[test]
fn a_create_that_waits_outlives_its_channel() {
    let served = served();
    let mut holder = connect(&served, 1);
    holder.login("admin", "secret").unwrap();
    let holders_tree = holder.tree("share").unwrap();
    let held = open(&mut holder, holders_tree, 1, OplockLevel::BATCH, false);
    let held = created(&held).file_id;
    let mut first = connect(&served, 2);
    first.login("admin", "secret").unwrap();
    let tree = first.tree("share").unwrap();
    let mut second = connect(&served, 2);
    second.bind(&first, "admin", "secret").unwrap();
    send(&mut first, tree, 2, OplockLevel::BATCH, false);
    assert_eq!(first.receive().unwrap().header.status, NtStatus::PENDING);
    drop(first);
    std::thread::sleep(Duration::from_millis(200));
    let refused = open(&mut second, tree, 2, OplockLevel::BATCH, true);
    assert_eq!(refused.header.status, NtStatus::FILE_NOT_AVAILABLE, "it is under way");
    assert_eq!(close(&mut holder, holders_tree, held), NtStatus::SUCCESS);
    let found = (0..100).find_map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        let answer = open(&mut second, tree, 2, OplockLevel::BATCH, true);
        (answer.header.status == NtStatus::SUCCESS).then_some(answer)
    });
    let found = found.unwrap();
    assert_eq!(created(&found).oplock, OplockLevel::BATCH);
    assert_eq!(served.server.opens().len(), 1, "no second one was made");
}

#[test]
fn a_break_that_a_lost_channel_had_comes_over_another() {
    let served = served();
    let mut first = connect(&served, 1);
    first.login("admin", "secret").unwrap();
    let tree = first.tree("share").unwrap();
    let mut second = connect(&served, 1);
    second.bind(&first, "admin", "secret").unwrap();
    let held = open(&mut second, tree, 1, OplockLevel::BATCH, false);
    let held = created(&held).file_id;
    let mut other = connect(&served, 2);
    other.login("admin", "secret").unwrap();
    let others_tree = other.tree("share").unwrap();
    let id = send(&mut other, others_tree, 2, OplockLevel::BATCH, false);
    let is_break = |received: &Received| {
        received.header.command == Command::OPLOCK_BREAK && received.header.message_id == u64::MAX
    };
    assert!(is_break(&first.receive().unwrap()), "the first channel is asked first");
    drop(first);
    assert!(is_break(&second.receive().unwrap()), "it may not have heard");
    assert_eq!(close(&mut second, tree, held), NtStatus::SUCCESS);
    let answer = other.answer_to(id).unwrap();
    assert_eq!(created(&answer).oplock, OplockLevel::BATCH);
}

/// Opens `f` with a lease for reading.
fn lease(connection: &mut Connection, tree: u32, key: u8) -> FileId {
    let mut contexts = ContextWriter::default();
    let lease = LeaseV1 { key: LeaseKey([key; 16]), state: LeaseState::READ, flags: LeaseFlags::NONE };
    contexts.push_value(tag::LEASE, &lease);
    let name = utf16("f");
    let request = Request::Create(CreateRequest {
        oplock: OplockLevel::LEASE,
        desired_access: AccessMask::FILE_ALL,
        share_access: ShareAccess(7),
        disposition: CreateDisposition::OPEN_IF,
        name: Utf16::new(&name).unwrap(),
        contexts: contexts.as_contexts(),
        ..CreateRequest::default()
    });
    created(&connection.call(&request, tree).unwrap()).file_id
}

#[test]
fn a_lease_break_goes_over_the_first_connection_of_the_client() {
    let served = served();
    let logged_in = |client: u8, user: &str| {
        let mut connection = connect(&served, client);
        connection.login(user, "secret").unwrap();
        let tree = connection.tree("share").unwrap();
        (connection, tree)
    };
    // Who only says that it is the same client hears nothing.
    let (mut impostor, _) = logged_in(1, "user");
    let (mut first, _) = logged_in(1, "admin");
    let (mut second, tree) = logged_in(1, "admin");
    let (mut other, others_tree) = logged_in(2, "admin");
    lease(&mut second, tree, 1);
    let file_id = lease(&mut other, others_tree, 2);
    let write = Request::Write(WriteRequest { file_id, ..WriteRequest::default() }, b"x");
    assert_eq!(other.call(&write, others_tree).unwrap().header.status, NtStatus::SUCCESS);
    assert_eq!(first.receive().unwrap().header.command, Command::OPLOCK_BREAK);
    drop(first);
    assert_eq!(second.receive().unwrap().header.command, Command::OPLOCK_BREAK, "it may not have heard");
    impostor.send(&[(&Request::Echo, 0)]).unwrap();
    assert_eq!(impostor.receive().unwrap().header.command, Command::ECHO, "and nothing before");
}

/// CREATE of `f` with a batch oplock and one context.
fn open_with(connection: &mut Connection, tree: u32, contexts: &ContextWriter) -> Received {
    let name = utf16("f");
    let request = Request::Create(CreateRequest {
        oplock: OplockLevel::BATCH,
        desired_access: AccessMask::FILE_ALL,
        disposition: CreateDisposition::OPEN_IF,
        name: Utf16::new(&name).unwrap(),
        contexts: contexts.as_contexts(),
        ..CreateRequest::default()
    });
    connection.call(&request, tree).unwrap()
}

/// The same, again and again until the server has seen that the connection before is gone.
fn taken_up(connection: &mut Connection, tree: u32, contexts: &ContextWriter) -> FileId {
    let found = (0..250).find_map(|_| {
        let answer = open_with(connection, tree, contexts);
        std::thread::sleep(Duration::from_millis(20));
        (answer.header.status == NtStatus::SUCCESS).then(|| created(&answer).file_id)
    });
    found.unwrap()
}

#[test]
fn an_open_is_taken_up_again_however_it_became_durable() {
    let served = served();
    let logged_in = || {
        let mut connection = connect(&served, 1);
        connection.login("admin", "secret").unwrap();
        let tree = connection.tree("share").unwrap();
        (connection, tree)
    };
    let by_id = |file_id| {
        let mut contexts = ContextWriter::default();
        contexts.push_value(tag::DURABLE_RECONNECT, &DurableReconnect { file_id });
        contexts
    };
    let by_name = |file_id, guid| {
        let mut contexts = ContextWriter::default();
        let back = DurableReconnectV2 { file_id, create_guid: Guid([guid; 16]), flags: DurableFlags::NONE };
        contexts.push_value(tag::DURABLE_RECONNECT_V2, &back);
        contexts
    };
    let (mut first, tree) = logged_in();
    let id = created(&open(&mut first, tree, 1, OplockLevel::BATCH, false)).file_id;
    drop(first);
    let (mut second, tree) = logged_in();
    let refused = open_with(&mut second, tree, &by_name(id, 0));
    assert_eq!(refused.header.status, NtStatus::OBJECT_NAME_NOT_FOUND, "it has another name");
    assert_eq!(taken_up(&mut second, tree, &by_id(id)), id);
    assert_eq!(close(&mut second, tree, id), NtStatus::SUCCESS);
    let mut durable = ContextWriter::default();
    durable.push_value(tag::DURABLE_REQUEST, &DurableRequest {});
    let id = created(&open_with(&mut second, tree, &durable)).file_id;
    drop(second);
    let (mut third, tree) = logged_in();
    let refused = open_with(&mut third, tree, &by_name(id, 1));
    assert_eq!(refused.header.status, NtStatus::OBJECT_NAME_NOT_FOUND, "it has no name");
    assert_eq!(taken_up(&mut third, tree, &by_name(id, 0)), id);
}
