//! Resilient handles: FSCTL_LMR_REQUEST_RESILIENCY, what they keep while their client is away, and for how long
//! (MS-SMB2 3.3.5.15.9, 3.3.4.6, 3.3.4.7, 3.3.7.1).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test on a thread of its own"
)]

mod common;
#[path = "common/wanted.rs"]
mod wanted;

use std::sync::Arc;
use std::time::Duration;

use file_store::MemoryStore;
use smb_client::{Connection, Received};
use smb_protocol::access::{OplockLevel, ShareAccess};
use smb_protocol::create::contexts::{CreateReply, tag};
use smb_protocol::create::handles::DurableReconnect;
use smb_protocol::create::lease::{LeaseFlags, LeaseKey, LeaseState, LeaseV2};
use smb_protocol::file::FileId;
use smb_protocol::fsctl::FsctlCode;
use smb_protocol::fsctl::network::Resiliency;
use smb_protocol::ioctl::{IoctlFlags, IoctlRequest};
use smb_protocol::message::{Request, Response};
use smb_protocol::{Guid, NtStatus, Wire as _};
use wanted::{Wanted, client, close, file_id, read, served, write};

/// How often is looked before something counts as never coming to pass.
const TRIES: usize = 4000;
const KEY: LeaseKey = LeaseKey([7; 16]);
const EVERYTHING: LeaseState = LeaseState(LeaseState::READ.0 | LeaseState::WRITE.0 | LeaseState::HANDLE.0);

fn on_plain(served: &common::Served, id: Guid) -> (Connection, u32) {
    let (mut connection, _) = client(served, id);
    let tree = connection.tree("share").unwrap();
    (connection, tree)
}

fn with_lease(mut wanted: Wanted) -> Wanted {
    let asked = LeaseV2 {
        key: KEY,
        state: EVERYTHING,
        flags: LeaseFlags::NONE,
        parent_key: LeaseKey([0; 16]),
        epoch: 1,
    };
    wanted.share = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
    wanted.oplock = OplockLevel::LEASE;
    wanted.contexts.push_value(tag::LEASE, &asked);
    wanted
}

fn lease(received: &Received) -> Option<LeaseState> {
    let Response::Create(created) = received.good().unwrap() else { return None };
    created.contexts.replies().find_map(|reply| match reply {
        Ok(CreateReply::LeaseV2(lease)) => Some(lease.state),
        _ => None,
    })
}

fn ask(connection: &mut Connection, tree: u32, id: FileId, input: &[u8]) -> NtStatus {
    let request = Request::Ioctl(IoctlRequest {
        code: FsctlCode::LMR_REQUEST_RESILIENCY,
        file_id: id,
        flags: IoctlFlags::IS_FSCTL,
        input,
        max_output_response: 0,
        max_input_response: 0,
    });
    connection.call(&request, tree).unwrap().header.status
}

fn resilient(connection: &mut Connection, tree: u32, id: FileId, timeout: u32) -> NtStatus {
    ask(connection, tree, id, &Resiliency { timeout }.to_bytes())
}

/// The open's client is back; tries until the server has noticed that it was away.
fn back(served: &common::Served, me: Guid, id: FileId) -> (Connection, u32, Received) {
    let (mut connection, tree) = on_plain(served, me);
    for _ in 0..TRIES {
        let mut wanted = Wanted::plain();
        wanted.contexts.push_value(tag::DURABLE_RECONNECT, &DurableReconnect { file_id: id });
        let received = with_lease(wanted).open(&mut connection, tree);
        if received.header.status == NtStatus::SUCCESS {
            return (connection, tree, received);
        }
        assert_eq!(received.header.status, NtStatus::OBJECT_NAME_NOT_FOUND);
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the handle is gone");
}

#[test]
fn a_resilient_handle_keeps_its_lease_and_is_not_closed_for_another() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let served = served(&store);
    let me = Guid([1; 16]);
    let (mut connection, tree) = on_plain(&served, me);
    let opened = with_lease(Wanted::plain()).open(&mut connection, tree);
    let id = file_id(&opened);
    assert_eq!(lease(&opened), Some(EVERYTHING));
    assert_eq!(write(&mut connection, tree, id, b"mine"), NtStatus::SUCCESS);
    assert_eq!(resilient(&mut connection, tree, id, 300_000), NtStatus::SUCCESS);
    drop(connection);
    // Nobody wanted the file: everything is as it was.
    let (connection, _, received) = back(&served, me, id);
    assert_eq!((file_id(&received), lease(&received)), (id, Some(EVERYTHING)));
    drop(connection);
    while served.server.opens().iter().any(|open| open.session.is_some()) {
        std::thread::sleep(Duration::from_millis(5));
    }
    // Somebody else opens it, and the client that is away caches nothing any more; its handle stays.
    let (mut other, other_tree) = on_plain(&served, Guid([2; 16]));
    let mut wanted = Wanted::plain();
    wanted.share = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
    let theirs = file_id(&wanted.open(&mut other, other_tree));
    assert_eq!(write(&mut other, other_tree, theirs, b"new!"), NtStatus::SUCCESS);
    let (mut connection, tree, received) = back(&served, me, id);
    assert_eq!((file_id(&received), lease(&received)), (id, Some(LeaseState::NONE)));
    assert_eq!(read(&mut connection, tree, id), b"new!");
    assert_eq!(close(&mut connection, tree, id), NtStatus::SUCCESS);
}

#[test]
fn how_long_a_resilient_handle_waits_is_bounded() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let served = served(&store);
    let (mut connection, tree) = on_plain(&served, Guid([1; 16]));
    let id = file_id(&Wanted::plain().open(&mut connection, tree));
    for timeout in [300_001, u32::MAX] {
        assert_eq!(resilient(&mut connection, tree, id, timeout), NtStatus::INVALID_PARAMETER);
    }
    assert_eq!(ask(&mut connection, tree, id, &[0; 7]), NtStatus::INVALID_PARAMETER);
    let (mut other, other_tree) = on_plain(&served, Guid([2; 16]));
    // What was refused has changed nothing: the handle goes with its connection.
    drop(connection);
    let wait = |other: &mut Connection| loop {
        let opened = Wanted::plain().open(other, other_tree);
        if opened.header.status == NtStatus::SUCCESS {
            break file_id(&opened);
        }
        assert_eq!(opened.header.status, NtStatus::SHARING_VIOLATION);
        std::thread::sleep(Duration::from_millis(5));
    };
    let id = wait(&mut other);
    assert_eq!(close(&mut other, other_tree, id), NtStatus::SUCCESS);
    // One that is granted goes when its time is up.
    let (mut connection, tree) = on_plain(&served, Guid([1; 16]));
    let id = file_id(&Wanted::plain().open(&mut connection, tree));
    assert_eq!(resilient(&mut connection, tree, id, 200), NtStatus::SUCCESS);
    drop(connection);
    wait(&mut other);
}
