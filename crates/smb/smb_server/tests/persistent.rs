//! Persistent handles: what a client that comes back finds, over restarts of the server (MS-SMB2 3.3.5.9.10, 3.3.5.9.12).

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
use smb_protocol::access::{CreateDisposition, CreateOptions, OplockLevel, ShareAccess};
use smb_protocol::create::contexts::{CreateReply, tag};
use smb_protocol::create::handles::{
    AppInstanceId, AppInstanceVersion, DurableFlags, DurableReconnectV2, DurableRequestV2,
};
use smb_protocol::create::lease::{LeaseFlags, LeaseKey, LeaseState, LeaseV2};
use smb_protocol::file::FileId;
use smb_protocol::fsctl::FsctlCode;
use smb_protocol::fsctl::copy::{CopyChunk, ResumeKeyReply, copy_request};
use smb_protocol::ioctl::{IoctlFlags, IoctlRequest};
use smb_protocol::lock::{LockElement, LockFlags, LockRequest};
use smb_protocol::message::{Request, Response};
use smb_protocol::oplock::BreakNotification;
use smb_protocol::{Guid, NtStatus, Wire as _};
use wanted::{CREATE, Wanted, client, close, file_id, is_persistent, read, restarted, served, write};

fn lock(connection: &mut Connection, tree: u32, file_id: FileId) -> NtStatus {
    let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    let element = LockElement { offset: 10, length: 10, flags }.to_bytes();
    connection.call(&Request::Lock(LockRequest::new(0, file_id, &element)), tree).unwrap().header.status
}

#[test]
fn a_handle_survives_the_server_with_its_data_and_locks() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let me = Guid([1; 16]);
    let first = served(&store);
    let (mut connection, tree) = client(&first, me);
    let opened = Wanted::persistent(60_000).open(&mut connection, tree);
    assert!(is_persistent(&opened));
    let id = file_id(&opened);
    assert_eq!(write(&mut connection, tree, id, b"acknowledged"), NtStatus::SUCCESS);
    assert_eq!(lock(&mut connection, tree, id), NtStatus::SUCCESS);
    // The server is gone without a word: nothing was closed.
    std::mem::forget(first);

    let second = served(&store);
    assert_eq!(second.restore().opens, 1);
    // Somebody else wants the file while its owner is away.
    let (mut other, other_tree) = client(&second, Guid([2; 16]));
    let mut wanted = Wanted::plain();
    wanted.share = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
    let refused = wanted.open(&mut other, other_tree).header.status;
    assert!(matches!(refused, NtStatus::FILE_NOT_AVAILABLE | NtStatus::SHARING_VIOLATION), "{refused}");
    // Another client with the right numbers, and the right one with a wrong GUID, do not get it.
    let (mut connection, tree) = client(&second, me);
    let mut wrong = Wanted::plain();
    let stranger =
        DurableReconnectV2 { file_id: id, create_guid: Guid([9; 16]), flags: DurableFlags::PERSISTENT };
    wrong.contexts.push_value(tag::DURABLE_RECONNECT_V2, &stranger);
    assert_eq!(wrong.open(&mut connection, tree).header.status, NtStatus::OBJECT_NAME_NOT_FOUND);

    let back = file_id(&Wanted::back(id).open(&mut connection, tree));
    assert_eq!(back, id);
    assert_eq!(read(&mut connection, tree, id), b"acknowledged");
    assert_eq!(lock(&mut connection, tree, id), NtStatus::LOCK_NOT_GRANTED, "it is locked already");
    assert_eq!(close(&mut connection, tree, id), NtStatus::SUCCESS);
    assert_eq!(wanted.open(&mut other, other_tree).header.status, NtStatus::SUCCESS, "now the file is free");
    // What was closed does not come back.
    std::mem::forget(second);
    assert_eq!(served(&store).restore(), smb_server::Restored::default());
}

/// The lease that an answer to a CREATE grants.
fn lease(received: &Received) -> Option<(LeaseKey, LeaseState)> {
    let Response::Create(created) = received.good().unwrap() else { return None };
    created.contexts.replies().find_map(|reply| match reply {
        Ok(CreateReply::LeaseV2(lease)) => Some((lease.key, lease.state)),
        _ => None,
    })
}

#[test]
fn a_lease_survives_the_server_and_is_taken_back_when_somebody_writes() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let (me, key) = (Guid([1; 16]), LeaseKey([7; 16]));
    let asked = LeaseV2 {
        key,
        state: LeaseState::READ | LeaseState::HANDLE,
        flags: LeaseFlags::NONE,
        parent_key: LeaseKey([0; 16]),
        epoch: 1,
    };
    let with_lease = |mut wanted: Wanted| {
        wanted.share = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
        wanted.oplock = OplockLevel::LEASE;
        wanted.contexts.push_value(tag::LEASE, &asked);
        wanted
    };
    let first = served(&store);
    let (mut connection, tree) = client(&first, me);
    let opened = with_lease(Wanted::persistent(60_000)).open(&mut connection, tree);
    // Who is away could not give up more than reading.
    assert_eq!(lease(&opened), Some((key, LeaseState::READ)));
    let id = file_id(&opened);
    let (second, mut connection, tree) = restarted(first, &store, me);
    let without = Wanted::back(id).open(&mut connection, tree);
    assert_eq!(without.header.status, NtStatus::OBJECT_NAME_NOT_FOUND, "a lease is asked for by its key");
    let back = with_lease(Wanted::back(id)).open(&mut connection, tree);
    assert_eq!((file_id(&back), lease(&back)), (id, Some((key, LeaseState::READ))));
    let (mut other, other_tree) = client(&second, Guid([2; 16]));
    let mut wanted = Wanted::plain();
    wanted.share = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
    let theirs = file_id(&wanted.open(&mut other, other_tree));
    assert_eq!(write(&mut other, other_tree, theirs, b"new"), NtStatus::SUCCESS);
    let told = connection.receive().unwrap();
    let Ok(Response::BreakNotification(BreakNotification::Lease(told))) = told.response() else {
        panic!("{told:?}")
    };
    assert_eq!((told.key, told.new), (key, LeaseState::NONE));
}

#[test]
fn a_lock_that_is_sent_again_is_taken_once() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let me = Guid([1; 16]);
    let first = served(&store);
    let (mut connection, tree) = client(&first, me);
    let id = file_id(&Wanted::persistent(60_000).open(&mut connection, tree));
    let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    let element = LockElement { offset: 10, length: 10, flags }.to_bytes();
    // Bucket 3, number 5.
    let numbered = |connection: &mut Connection, tree: u32, sequence: u32| {
        let request = Request::Lock(LockRequest::new(sequence, id, &element));
        connection.call(&request, tree).unwrap().header.status
    };
    assert_eq!(numbered(&mut connection, tree, 3 << 4 | 5), NtStatus::SUCCESS);
    assert_eq!(numbered(&mut connection, tree, 3 << 4 | 5), NtStatus::SUCCESS, "it is the same request");
    assert_eq!(numbered(&mut connection, tree, 3 << 4 | 6), NtStatus::LOCK_NOT_GRANTED, "it is another one");
    assert_eq!(numbered(&mut connection, tree, 4 << 4 | 5), NtStatus::LOCK_NOT_GRANTED);
    let (_second, mut connection, tree) = restarted(first, &store, me);
    assert_eq!(file_id(&Wanted::back(id).open(&mut connection, tree)), id);
    assert_eq!(numbered(&mut connection, tree, 4 << 4 | 5), NtStatus::LOCK_NOT_GRANTED, "never done");
}

#[test]
fn a_lock_whose_answer_the_restart_swallowed_was_taken() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let me = Guid([1; 16]);
    let first = served(&store);
    let (mut connection, tree) = client(&first, me);
    let id = file_id(&Wanted::persistent(60_000).open(&mut connection, tree));
    let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    let element = LockElement { offset: 0, length: 1, flags }.to_bytes();
    let lock = Request::Lock(LockRequest::new(2 << 4 | 9, id, &element));
    assert_eq!(connection.call(&lock, tree).unwrap().header.status, NtStatus::SUCCESS);
    let (_second, mut connection, tree) = restarted(first, &store, me);
    assert_eq!(file_id(&Wanted::back(id).open(&mut connection, tree)), id);
    let again = connection.call(&lock, tree).unwrap().header.status;
    assert_eq!(again, NtStatus::SUCCESS, "the client sends it again, as it had no answer");
    let data = connection.call(&Request::Lock(LockRequest::new(0, id, &element)), tree).unwrap();
    assert_eq!(data.header.status, NtStatus::LOCK_NOT_GRANTED, "and it is held once");
}

#[test]
fn who_does_not_come_back_in_time_loses_it() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let served = served(&store);
    let (mut connection, tree) = client(&served, Guid([1; 16]));
    let id = file_id(&Wanted::persistent(300).open(&mut connection, tree));
    drop(connection);
    let (mut connection, tree) = client(&served, Guid([1; 16]));
    for _ in 0..200 {
        if served.server.opens().is_empty() {
            let gone = Wanted::back(id).open(&mut connection, tree);
            assert_eq!(gone.header.status, NtStatus::OBJECT_NAME_NOT_FOUND);
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("the open waits for ever");
}

#[test]
fn a_create_that_is_sent_again_opens_nothing_new() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let served = served(&store);
    let (mut connection, tree) = client(&served, Guid([1; 16]));
    let id = file_id(&Wanted::persistent(0).open(&mut connection, tree));
    let mut again = Wanted::persistent(0);
    assert_eq!(again.open(&mut connection, tree).header.status, NtStatus::DUPLICATE_OBJECTID);
    again.replay = true;
    assert_eq!(file_id(&again.open(&mut connection, tree)), id);
    assert_eq!(served.server.opens().len(), 1);
}

#[test]
fn an_application_that_moves_takes_its_file_with_it() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let served = served(&store);
    let app = AppInstanceId { id: Guid([0xaa; 16]) };
    let with_app = || {
        let mut wanted = Wanted::persistent(0);
        wanted.contexts.push_value(tag::APP_INSTANCE_ID, &app);
        wanted
    };
    let (mut old, old_tree) = client(&served, Guid([1; 16]));
    let id = file_id(&with_app().open(&mut old, old_tree));
    let (mut new, new_tree) = client(&served, Guid([2; 16]));
    let taken = with_app().open(&mut new, new_tree);
    assert_eq!(taken.header.status, NtStatus::SUCCESS);
    assert_eq!(write(&mut old, old_tree, id, b"late"), NtStatus::FILE_CLOSED);
}

#[test]
fn only_the_newer_instance_takes_over_and_only_the_same_file() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let served = served(&store);
    let wanted = |version: Option<u64>| {
        let mut wanted = Wanted::persistent(0);
        wanted.contexts.push_value(tag::APP_INSTANCE_ID, &AppInstanceId { id: Guid([0xaa; 16]) });
        if let Some(low) = version {
            wanted.contexts.push_value(tag::APP_INSTANCE_VERSION, &AppInstanceVersion { high: 1, low });
        }
        wanted
    };
    let (mut old, old_tree) = client(&served, Guid([1; 16]));
    let id = file_id(&wanted(Some(5)).open(&mut old, old_tree));
    let (mut new, new_tree) = client(&served, Guid([2; 16]));
    for late in [None, Some(4), Some(5)] {
        assert_eq!(
            wanted(late).open(&mut new, new_tree).header.status,
            NtStatus::FILE_FORCED_CLOSED,
            "{late:?}"
        );
    }
    let mut other = wanted(Some(6));
    other.name = "other.vhdx";
    assert_eq!(other.open(&mut new, new_tree).header.status, NtStatus::SUCCESS);
    assert_eq!(write(&mut old, old_tree, id, b"still mine"), NtStatus::SUCCESS);
    let (mut third, third_tree) = client(&served, Guid([3; 16]));
    assert_eq!(wanted(Some(6)).open(&mut third, third_tree).header.status, NtStatus::SUCCESS);
    assert_eq!(write(&mut old, old_tree, id, b"late"), NtStatus::FILE_CLOSED);
}

#[test]
fn a_failed_proof_leaves_what_is_durable() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let served = served(&store);
    let me = Guid([1; 16]);
    let (mut connection, tree) = client(&served, me);
    let id = file_id(&Wanted::persistent(60_000).open(&mut connection, tree));
    connection.prove_again("admin", "wrong").unwrap_err();
    let (mut connection, tree) = client(&served, me);
    assert_eq!(file_id(&Wanted::back(id).open(&mut connection, tree)), id);
}

#[test]
fn a_share_whose_volume_goes_and_comes_keeps_its_handles() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let served = served(&store);
    let me = Guid([1; 16]);
    let (mut connection, tree) = client(&served, me);
    let mut wanted = Wanted::persistent(60_000);
    wanted.options |= CreateOptions::DELETE_ON_CLOSE;
    let id = file_id(&wanted.open(&mut connection, tree));
    let config = (*served.server.shares().into_iter().find(|share| share.name == "ca").unwrap()).clone();
    assert!(served.server.release_share("ca"));
    assert_eq!(served.server.opens().len(), 0);
    assert_eq!(write(&mut connection, tree, id, b"gone"), NtStatus::NETWORK_NAME_DELETED);
    served.server.add_share(config).unwrap();
    assert_eq!(served.restore().opens, 1);
    let tree = connection.tree("ca").unwrap();
    assert_eq!(file_id(&Wanted::back(id).open(&mut connection, tree)), id);
    assert_eq!(write(&mut connection, tree, id, b"back"), NtStatus::SUCCESS);
}

#[test]
fn deletion_waits_for_the_last_close_over_a_restart() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let me = Guid([1; 16]);
    let first = served(&store);
    let (mut connection, tree) = client(&first, me);
    let mut wanted = Wanted::persistent(60_000);
    wanted.options |= CreateOptions::DELETE_ON_CLOSE;
    let id = file_id(&wanted.open(&mut connection, tree));
    let (_second, mut connection, tree) = restarted(first, &store, me);
    assert_eq!(file_id(&Wanted::back(id).open(&mut connection, tree)), id);
    assert_eq!(close(&mut connection, tree, id), NtStatus::SUCCESS);
    let mut look = Wanted::plain();
    look.disposition = CreateDisposition::OPEN;
    assert_eq!(look.open(&mut connection, tree).header.status, NtStatus::OBJECT_NAME_NOT_FOUND);
}

#[test]
fn a_late_write_of_a_broken_channel_is_not_done() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let served = served(&store);
    let (mut connection, tree) = client(&served, Guid([1; 16]));
    let id = file_id(&Wanted::persistent(0).open(&mut connection, tree));
    connection.channel_sequence = 1;
    assert_eq!(write(&mut connection, tree, id, b"new"), NtStatus::SUCCESS);
    connection.channel_sequence = 0;
    assert_eq!(write(&mut connection, tree, id, b"old"), NtStatus::FILE_NOT_AVAILABLE);
    assert_eq!(read(&mut connection, tree, id), b"new", "reading does no harm");
}

#[test]
fn a_handle_is_good_only_through_its_own_share() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let served = served(&store);
    let (mut connection, tree) = client(&served, Guid([1; 16]));
    let id = file_id(&Wanted::persistent(0).open(&mut connection, tree));
    let other = connection.tree("read").unwrap();
    assert_eq!(write(&mut connection, other, id, b"around the rights"), NtStatus::FILE_CLOSED);
    assert_eq!(write(&mut connection, tree, id, b"by right"), NtStatus::SUCCESS);
}

#[test]
fn what_was_made_durable_does_not_come_back_as_persistent() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let served = served(&store);
    let on = || {
        let mut connection = client(&served, Guid([1; 16])).0;
        let tree = connection.tree("share").unwrap();
        (connection, tree)
    };
    let (mut connection, tree) = on();
    let mut wanted = Wanted::plain();
    let request = DurableRequestV2 { timeout: 0, flags: DurableFlags::NONE, create_guid: CREATE };
    wanted.contexts.push_value(tag::DURABLE_REQUEST_V2, &request);
    wanted.oplock = OplockLevel::BATCH;
    let id = file_id(&wanted.open(&mut connection, tree));
    drop(connection);
    let (mut connection, tree) = on();
    assert_eq!(Wanted::back(id).open(&mut connection, tree).header.status, NtStatus::INVALID_PARAMETER);
}

#[test]
fn a_handle_that_came_back_is_copied_from() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let served = served(&store);
    let me = Guid([1; 16]);
    let (mut connection, tree) = client(&served, me);
    let id = file_id(&Wanted::persistent(60_000).open(&mut connection, tree));
    assert_eq!(write(&mut connection, tree, id, b"copied"), NtStatus::SUCCESS);
    drop(connection);
    let (mut connection, tree) = client(&served, me);
    assert_eq!(file_id(&Wanted::back(id).open(&mut connection, tree)), id);
    let mut copy = Wanted::plain();
    copy.name = "copy.vhdx";
    let copy = file_id(&copy.open(&mut connection, tree));
    let mut control = |code, file_id, input: &[u8]| {
        let request = IoctlRequest {
            code,
            file_id,
            input,
            flags: IoctlFlags::IS_FSCTL,
            max_output_response: 64,
            max_input_response: 0,
        };
        let answer = connection.call(&Request::Ioctl(request), tree).unwrap();
        match answer.good() {
            Ok(Response::Ioctl(answer)) => Ok(answer.output.to_vec()),
            _ => Err(answer.header.status),
        }
    };
    let key = control(FsctlCode::SRV_REQUEST_RESUME_KEY, id, &[]).unwrap();
    let key = ResumeKeyReply::decode(&key).unwrap().key;
    let chunk = CopyChunk { source_offset: 0, target_offset: 0, length: 6 };
    let copied = control(FsctlCode::SRV_COPYCHUNK, copy, &copy_request(key, &[chunk]));
    assert_eq!(copied.map(drop), Ok(()));
    assert_eq!(read(&mut connection, tree, copy), b"copied");
    // Another session's key is not believed.
    let (mut other, other_tree) = client(&served, Guid([2; 16]));
    let mut mine = Wanted::plain();
    mine.name = "mine.vhdx";
    let mine = file_id(&mine.open(&mut other, other_tree));
    let input = copy_request(key, &[chunk]);
    let request = IoctlRequest {
        code: FsctlCode::SRV_COPYCHUNK,
        file_id: mine,
        input: &input,
        flags: IoctlFlags::IS_FSCTL,
        max_output_response: 64,
        max_input_response: 0,
    };
    let refused = other.call(&Request::Ioctl(request), other_tree).unwrap().header.status;
    assert_eq!(refused, NtStatus::OBJECT_NAME_NOT_FOUND);
}
