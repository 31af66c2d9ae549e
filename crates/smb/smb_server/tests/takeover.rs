//! A volume goes from one server to another one that runs already and has clients of its own: what was open persistently waits
//! there for its client, with its lease and locks, and for nobody else.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test on a thread of its own")]

mod common;
#[path = "common/wanted.rs"]
mod wanted;

use std::sync::Arc;
use std::time::Duration;

use common::Served;
use file_store::MemoryStore;
use smb_client::{Connection, Options, Received};
use smb_protocol::access::{OplockLevel, ShareAccess};
use smb_protocol::create::contexts::{CreateReply, tag};
use smb_protocol::create::lease::{LeaseFlags, LeaseKey, LeaseState, LeaseV2};
use smb_protocol::file::FileId;
use smb_protocol::lock::{LockElement, LockFlags, LockRequest};
use smb_protocol::message::{Request, Response};
use smb_protocol::oplock::BreakNotification;
use smb_protocol::{Guid, NtStatus, Wire as _};
use smb_server::{Restored, ShareKind};
use wanted::{Wanted, client, close, file_id, is_persistent, read, served, write};

const ME: Guid = Guid([1; 16]);
const OTHER: Guid = Guid([2; 16]);
const KEY: LeaseKey = LeaseKey([7; 16]);

/// A server that has a volume of its own, and clients.
fn another() -> Served {
    let other = served(&Arc::new(MemoryStore::new(1 << 30)));
    // The share of the volume that comes has this name.
    assert!(other.server.remove_share("ca"));
    other
}

/// Brings a volume up on a server, as a node does with a pool that has become its own: the share is published at the end.
fn take_over(server: &mut Served, store: &Arc<MemoryStore>) -> Restored {
    server.files = common::files(Arc::clone(store));
    let share = smb_server::ShareConfig {
        name: "ca".to_owned(),
        kind: ShareKind::ScaleOut,
        ..common::share(&server.files)
    };
    server.server.prepare_share(share).unwrap();
    let restored = server.restore();
    assert!(server.server.publish_share("ca"));
    restored
}

fn shared(mut wanted: Wanted) -> Wanted {
    wanted.share = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
    wanted
}

fn with_lease(wanted: Wanted) -> Wanted {
    let state = LeaseState::READ | LeaseState::HANDLE;
    let asked = LeaseV2 { key: KEY, state, flags: LeaseFlags::NONE, parent_key: LeaseKey([0; 16]), epoch: 1 };
    let mut wanted = shared(wanted);
    wanted.oplock = OplockLevel::LEASE;
    wanted.contexts.push_value(tag::LEASE, &asked);
    wanted
}

fn lease(received: &Received) -> Option<(LeaseKey, LeaseState)> {
    let Response::Create(created) = received.good().unwrap() else { return None };
    created.contexts.replies().find_map(|reply| match reply {
        Ok(CreateReply::LeaseV2(lease)) => Some((lease.key, lease.state)),
        _ => None,
    })
}

fn lock(connection: &mut Connection, tree: u32, file_id: FileId) -> NtStatus {
    let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    let element = LockElement { offset: 10, length: 10, flags }.to_bytes();
    connection.call(&Request::Lock(LockRequest::new(0, file_id, &element)), tree).unwrap().header.status
}

/// A client of this user.
fn user(served: &Served, name: &str, client: Guid) -> (Connection, u32) {
    let options = Options { client, timeout: Duration::from_secs(20), ..Options::default() };
    let mut connection = Connection::connect(served.address, options).unwrap();
    connection.login(name, "secret").unwrap();
    let tree = connection.tree("ca").unwrap();
    (connection, tree)
}

#[test]
fn another_server_has_the_handle_with_its_lock_and_lease_and_keeps_others_from_it() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let first = served(&store);
    let (mut connection, tree) = client(&first, ME);
    let opened = with_lease(Wanted::persistent(60_000)).open(&mut connection, tree);
    assert_eq!((is_persistent(&opened), lease(&opened)), (true, Some((KEY, LeaseState::READ))));
    let id = file_id(&opened);
    assert_eq!(write(&mut connection, tree, id, b"acknowledged, all of it"), NtStatus::SUCCESS);
    assert_eq!(lock(&mut connection, tree, id), NtStatus::SUCCESS);
    let dialect = connection.dialect;
    // Its machine is gone.
    std::mem::forget(first);

    let mut second = another();
    // A client of the other server, with a session and an open of its own, of which nothing changes.
    let options = Options { client: OTHER, timeout: Duration::from_secs(20), ..Options::default() };
    let mut other = Connection::connect(second.address, options).unwrap();
    other.login("admin", "secret").unwrap();
    let own_tree = other.tree("share").unwrap();
    let own = file_id(&Wanted::plain().open(&mut other, own_tree));
    assert_eq!(take_over(&mut second, &store), Restored { opens: 1, given_up: 0 });
    assert_eq!(second.restore(), Restored::default(), "what is back is not brought back once more");
    assert_eq!(write(&mut other, own_tree, own, b"own"), NtStatus::SUCCESS);

    // The client is away: who does not share the file as it does is refused, and the lock holds for who does.
    let other_tree = other.tree("ca").unwrap();
    let refused = Wanted::plain().open(&mut other, other_tree).header.status;
    assert!(matches!(refused, NtStatus::FILE_NOT_AVAILABLE | NtStatus::SHARING_VIOLATION), "{refused}");

    // Nobody else gets the handle, whatever they know of it.
    let (mut stranger, their_tree) = user(&second, "stranger", ME);
    let theirs = with_lease(Wanted::back(id)).open(&mut stranger, their_tree);
    assert_eq!(theirs.header.status, NtStatus::ACCESS_DENIED, "another user");
    let (mut elsewhere, there) = client(&second, OTHER);
    let from_there = with_lease(Wanted::back(id)).open(&mut elsewhere, there);
    assert_eq!(from_there.header.status, NtStatus::OBJECT_NAME_NOT_FOUND, "another client of the user's");

    let (mut connection, tree) = client(&second, ME);
    assert_eq!(connection.dialect, dialect);
    let back = with_lease(Wanted::back(id)).open(&mut connection, tree);
    assert_eq!((file_id(&back), lease(&back)), (id, Some((KEY, LeaseState::READ))));
    assert_eq!(read(&mut connection, tree, id), b"acknowledged, all of it");
    assert_eq!(lock(&mut connection, tree, id), NtStatus::LOCK_NOT_GRANTED, "it is locked already");
    let theirs = file_id(&shared(Wanted::plain()).open(&mut elsewhere, there));
    assert_eq!(lock(&mut elsewhere, there, theirs), NtStatus::LOCK_NOT_GRANTED);
    assert_eq!(write(&mut elsewhere, there, theirs, b"new"), NtStatus::SUCCESS);
    let told = connection.receive().unwrap();
    let Ok(Response::BreakNotification(BreakNotification::Lease(told))) = told.response() else {
        panic!("{told:?}")
    };
    assert_eq!((told.key, told.new), (KEY, LeaseState::NONE), "the lease is there to be broken");
    assert_eq!(close(&mut connection, tree, id), NtStatus::SUCCESS);
    assert_eq!(lock(&mut elsewhere, there, theirs), NtStatus::SUCCESS, "now it is free");
    // What was closed here comes back nowhere.
    assert_eq!(take_over(&mut another(), &store), Restored::default());
}

#[test]
fn a_handle_goes_there_and_back_with_its_volume() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let (mut first, mut second) = (served(&store), another());
    let (mut connection, tree) = client(&first, ME);
    let id = file_id(&Wanted::persistent(60_000).open(&mut connection, tree));
    assert_eq!(write(&mut connection, tree, id, b"acknowledged"), NtStatus::SUCCESS);
    assert_eq!(lock(&mut connection, tree, id), NtStatus::SUCCESS);

    assert!(first.server.release_share("ca"));
    assert!(first.server.opens().is_empty(), "nothing of it is left there");
    assert_ne!(write(&mut connection, tree, id, b"too late"), NtStatus::SUCCESS);
    assert_eq!(take_over(&mut second, &store), Restored { opens: 1, given_up: 0 });
    let (mut there, tree) = client(&second, ME);
    assert_eq!(file_id(&Wanted::back(id).open(&mut there, tree)), id);
    assert_eq!(read(&mut there, tree, id), b"acknowledged");
    assert_eq!(lock(&mut there, tree, id), NtStatus::LOCK_NOT_GRANTED, "it came along");
    assert_eq!(write(&mut there, tree, id, b"on"), NtStatus::SUCCESS);

    assert!(second.server.release_share("ca"));
    assert_eq!(take_over(&mut first, &store), Restored { opens: 1, given_up: 0 });
    let (mut connection, tree) = client(&first, ME);
    assert_eq!(file_id(&Wanted::back(id).open(&mut connection, tree)), id);
    assert_eq!(read(&mut connection, tree, id), b"onknowledged");
    assert_eq!(close(&mut connection, tree, id), NtStatus::SUCCESS);
}
