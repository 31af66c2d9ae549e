//! Kinds of shares: what clients are told of them, what they may cache, and what of that is there after a restart (MS-SMB2
//! 3.3.5.7, 3.3.5.9, 3.3.5.9.8, 3.3.5.9.10, 3.3.5.9.12).

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

use common::Served;
use file_store::MemoryStore;
use smb_client::{Connection, Options, Received};
use smb_protocol::access::{CreateDisposition, OplockLevel, ShareAccess};
use smb_protocol::create::contexts::{CreateReply, tag};
use smb_protocol::create::lease::{LeaseFlags, LeaseKey, LeaseState, LeaseV2};
use smb_protocol::message::{Request, Response};
use smb_protocol::oplock::{BreakAck, BreakNotification, LeaseBreakAck, LeaseBreakNotification, OplockBreak};
use smb_protocol::tree::{ShareCapabilities, TreeConnectFlags, TreeConnectRequest, TreeContexts};
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::{Dialect, Guid, NtStatus};
use wanted::{Wanted, close, file_id, is_persistent, served, write};

const ME: Guid = Guid([1; 16]);
const KEY: LeaseKey = LeaseKey([7; 16]);
const R: LeaseState = LeaseState::READ;
const RH: LeaseState = LeaseState(LeaseState::READ.0 | LeaseState::HANDLE.0);
const RWH: LeaseState = LeaseState(RH.0 | LeaseState::WRITE.0);

fn connect(served: &Served, client: Guid, dialects: &[Dialect]) -> Connection {
    let options = Options { client, dialects: dialects.to_vec(), ..Options::default() };
    let mut connection = Connection::connect(served.address, options).unwrap();
    connection.login("admin", "secret").unwrap();
    connection
}

fn client(served: &Served, client: Guid, share: &str) -> (Connection, u32) {
    let mut connection = connect(served, client, &Dialect::ALL);
    let tree = connection.tree(share).unwrap();
    (connection, tree)
}

/// The server is gone without a word, and comes again with so many opens that wait.
fn restarted(first: Served, store: &Arc<MemoryStore>, opens: usize) -> Served {
    std::mem::forget(first);
    let second = served(store);
    assert_eq!(second.restore().opens, opens);
    second
}

fn shared(mut wanted: Wanted) -> Wanted {
    wanted.share = ShareAccess::READ | ShareAccess::WRITE | ShareAccess::DELETE;
    wanted
}

fn with_oplock(mut wanted: Wanted, oplock: OplockLevel) -> Wanted {
    wanted.oplock = oplock;
    wanted
}

fn with_lease(wanted: Wanted, state: LeaseState) -> Wanted {
    let mut wanted = with_oplock(wanted, OplockLevel::LEASE);
    let flags = LeaseFlags::NONE;
    let asked = LeaseV2 { key: KEY, state, flags, parent_key: LeaseKey([0; 16]), epoch: 1 };
    wanted.contexts.push_value(tag::LEASE, &asked);
    wanted
}

/// What an answer to a CREATE lets the client cache.
fn oplock(received: &Received) -> OplockLevel {
    let Response::Create(created) = received.good().unwrap() else { panic!("{received:?}") };
    created.oplock
}

fn lease(received: &Received) -> LeaseState {
    let Response::Create(created) = received.good().unwrap() else { panic!("{received:?}") };
    let mut replies = created.contexts.replies();
    let found = replies.find_map(|reply| match reply {
        Ok(CreateReply::LeaseV2(lease)) => Some(lease.state),
        _ => None,
    });
    found.unwrap()
}

fn told(connection: &mut Connection) -> LeaseBreakNotification {
    let told = connection.receive().unwrap();
    let Ok(Response::BreakNotification(BreakNotification::Lease(told))) = told.response() else {
        panic!("{told:?}")
    };
    told
}

fn acknowledge(connection: &mut Connection, tree: u32, state: LeaseState) {
    let ack = LeaseBreakAck { flags: 0, key: KEY, state };
    let answer = connection.call(&Request::OplockBreak(BreakAck::Lease(ack)), tree).unwrap();
    assert_eq!(answer.header.status, NtStatus::SUCCESS);
}

/// Begins an open that waits for somebody, and says how it ends when `meanwhile` has been done.
fn open_while(connection: &mut Connection, tree: u32, wanted: &Wanted, meanwhile: impl FnOnce()) -> Received {
    let message = wanted.begin(connection, tree);
    meanwhile();
    connection.answer_to(message).unwrap()
}

#[test]
fn a_client_is_told_what_kind_of_share_it_is() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let served = served(&store);
    let available = ShareCapabilities::CONTINUOUS_AVAILABILITY;
    let both = available | ShareCapabilities::SCALEOUT;
    for (dialect, share, expected) in [
        (Dialect::SMB_3_1_1, "share", ShareCapabilities::NONE),
        (Dialect::SMB_3_1_1, "clustered", available),
        (Dialect::SMB_3_1_1, "ca", both),
        (Dialect::SMB_3_0, "ca", both),
        (Dialect::SMB_2_1, "ca", ShareCapabilities::NONE),
    ] {
        let mut connection = connect(&served, ME, &[dialect]);
        let path = utf16(&format!(r"\\server\{share}"));
        let request = Request::TreeConnect(TreeConnectRequest {
            flags: TreeConnectFlags::NONE,
            path: Utf16::new(&path).unwrap(),
            contexts: TreeContexts::default(),
        });
        let received = connection.call(&request, 0).unwrap();
        let Response::TreeConnect(answer) = received.good().unwrap() else { panic!("{received:?}") };
        assert_eq!(answer.capabilities, expected, "{dialect:?} {share}");
    }
}

#[test]
fn a_scale_out_share_grants_reads_only_and_persistence_to_whoever_asks() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let served = served(&store);
    let names: [&'static str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
    let mut names = names.into_iter();
    let mut open = |share: &str, mut wanted: Wanted| {
        wanted.name = names.next().unwrap();
        let (mut connection, tree) = client(&served, ME, share);
        let opened = wanted.open(&mut connection, tree);
        close(&mut connection, tree, file_id(&opened));
        opened
    };
    // Each asks for BATCH or all of a lease.
    let scale_out = open("ca", with_oplock(Wanted::persistent(0), OplockLevel::BATCH));
    assert_eq!((oplock(&scale_out), is_persistent(&scale_out)), (OplockLevel::II, true));
    let scale_out = open("ca", with_lease(Wanted::persistent(0), RWH));
    assert_eq!((lease(&scale_out), is_persistent(&scale_out)), (R, true));
    let handle_only = open("ca", with_lease(Wanted::persistent(0), LeaseState::HANDLE | LeaseState::WRITE));
    assert_eq!(lease(&handle_only), LeaseState::NONE, "not even reads were asked for");
    let clustered = open("clustered", with_oplock(Wanted::persistent(0), OplockLevel::BATCH));
    assert_eq!((oplock(&clustered), is_persistent(&clustered)), (OplockLevel::BATCH, true));
    let clustered = open("clustered", with_lease(Wanted::persistent(0), RWH));
    assert_eq!((lease(&clustered), is_persistent(&clustered)), (RWH, true));
    let plain = open("share", with_oplock(Wanted::persistent(0), OplockLevel::BATCH));
    assert_eq!((oplock(&plain), is_persistent(&plain)), (OplockLevel::BATCH, false));
    // An older client knows nothing of such shares, and caches as ever.
    let mut connection = connect(&served, ME, &[Dialect::SMB_2_1]);
    let tree = connection.tree("ca").unwrap();
    let old = with_oplock(Wanted::plain(), OplockLevel::BATCH).open(&mut connection, tree);
    assert_eq!(oplock(&old), OplockLevel::BATCH);
}

#[test]
fn what_a_clustered_share_lets_cache_is_there_after_a_restart() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let first = served(&store);
    let (mut connection, tree) = client(&first, ME, "clustered");
    let opened = shared(with_lease(Wanted::persistent(60_000), RWH)).open(&mut connection, tree);
    assert_eq!(lease(&opened), RWH);
    let id = file_id(&opened);

    let second = restarted(first, &store, 1);
    let (mut other, other_tree) = client(&second, Guid([2; 16]), "clustered");
    let theirs = shared(Wanted::plain());
    let refused = theirs.open(&mut other, other_tree).header.status;
    assert_eq!(refused, NtStatus::FILE_NOT_AVAILABLE, "it may have writes that nobody else has");
    let (mut connection, tree) = client(&second, ME, "clustered");
    let back = with_lease(Wanted::back(id), RWH).open(&mut connection, tree);
    assert_eq!((file_id(&back), lease(&back)), (id, RWH));
    let opened = open_while(&mut other, other_tree, &theirs, || {
        let told = told(&mut connection);
        assert_eq!((told.key, told.current, told.new), (KEY, RWH, RH));
        assert_eq!(write(&mut connection, tree, id, b"cached until now"), NtStatus::SUCCESS);
        acknowledge(&mut connection, tree, RH);
    });
    file_id(&opened);

    // The other one had its answer: what made way for it stays away.
    let third = restarted(second, &store, 1);
    let (mut connection, tree) = client(&third, ME, "clustered");
    let back = with_lease(Wanted::back(id), RWH).open(&mut connection, tree);
    assert_eq!((file_id(&back), lease(&back)), (id, RH));
}

#[test]
fn a_batch_oplock_of_a_clustered_share_is_there_after_a_restart() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let first = served(&store);
    let (mut connection, tree) = client(&first, ME, "clustered");
    let wanted = shared(with_oplock(Wanted::persistent(60_000), OplockLevel::BATCH));
    let opened = wanted.open(&mut connection, tree);
    let id = file_id(&opened);
    assert_eq!(oplock(&opened), OplockLevel::BATCH);
    let second = restarted(first, &store, 1);
    let (mut connection, tree) = client(&second, ME, "clustered");
    let back = with_oplock(Wanted::back(id), OplockLevel::BATCH).open(&mut connection, tree);
    assert_eq!((file_id(&back), oplock(&back)), (id, OplockLevel::BATCH));
    let (mut other, other_tree) = client(&second, Guid([2; 16]), "clustered");
    let opened = open_while(&mut other, other_tree, &shared(Wanted::plain()), || {
        let told = connection.receive().unwrap();
        let Ok(Response::BreakNotification(BreakNotification::Oplock(told))) = told.response() else {
            panic!("{told:?}")
        };
        assert_eq!((told.file_id, told.level), (id, OplockLevel::II));
        let ack = Request::OplockBreak(BreakAck::Oplock(OplockBreak { level: OplockLevel::II, file_id: id }));
        assert_eq!(connection.call(&ack, tree).unwrap().header.status, NtStatus::SUCCESS);
    });
    file_id(&opened);
}

/// A kernel client keeps a file open for a while that its program has closed, as long as its lease lets it keep the handle.
#[test]
fn a_close_that_a_client_defers_is_asked_for_after_a_restart() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let first = served(&store);
    let (mut connection, tree) = client(&first, ME, "clustered");
    let id = file_id(&with_lease(Wanted::persistent(60_000), RH).open(&mut connection, tree));
    let second = restarted(first, &store, 1);
    let (mut connection, tree) = client(&second, ME, "clustered");
    let back = with_lease(Wanted::back(id), RH).open(&mut connection, tree);
    assert_eq!((file_id(&back), lease(&back)), (id, RH));
    // It shares nothing, so whoever wants the file needs it closed.
    let (mut other, other_tree) = client(&second, Guid([2; 16]), "clustered");
    let opened = open_while(&mut other, other_tree, &Wanted::plain(), || {
        let told = told(&mut connection);
        assert_eq!((told.key, told.current, told.new), (KEY, RH, R));
        assert_eq!(close(&mut connection, tree, id), NtStatus::SUCCESS);
    });
    file_id(&opened);
    assert_eq!(restarted(second, &store, 0).server.opens().len(), 0);
}

#[test]
fn reads_that_became_wrong_do_not_become_right_by_a_restart() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    for (share, state) in [("ca", R), ("clustered", RH)] {
        let first = served(&store);
        let (mut connection, tree) = client(&first, ME, share);
        let opened = shared(with_lease(Wanted::persistent(60_000), state)).open(&mut connection, tree);
        assert_eq!(lease(&opened), state);
        let id = file_id(&opened);
        let (mut other, other_tree) = client(&first, Guid([2; 16]), share);
        let mut theirs = shared(Wanted::plain());
        theirs.disposition = CreateDisposition::OPEN;
        let theirs = file_id(&theirs.open(&mut other, other_tree));
        assert_eq!(write(&mut other, other_tree, theirs, b"new"), NtStatus::SUCCESS);
        // The break may never have reached the client: its server is gone, and what it has cached is old.
        let second = restarted(first, &store, 1);
        let (mut connection, tree) = client(&second, ME, share);
        let back = with_lease(Wanted::back(id), state).open(&mut connection, tree);
        assert_eq!(lease(&back), LeaseState::NONE, "{share}");
        assert_eq!(close(&mut connection, tree, id), NtStatus::SUCCESS);
    }
}

#[test]
fn reads_that_became_wrong_while_their_client_was_away_stay_wrong() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let first = served(&store);
    let (mut connection, tree) = client(&first, ME, "ca");
    let opened = shared(with_lease(Wanted::persistent(60_000), R)).open(&mut connection, tree);
    let id = file_id(&opened);
    let second = restarted(first, &store, 1);
    let (mut other, other_tree) = client(&second, Guid([2; 16]), "ca");
    let theirs = file_id(&shared(Wanted::plain()).open(&mut other, other_tree));
    assert_eq!(write(&mut other, other_tree, theirs, b"new"), NtStatus::SUCCESS);
    let third = restarted(second, &store, 1);
    let (mut connection, tree) = client(&third, ME, "ca");
    let back = with_lease(Wanted::back(id), R).open(&mut connection, tree);
    assert_eq!((file_id(&back), lease(&back)), (id, LeaseState::NONE));
}

#[test]
fn a_create_whose_answer_was_lost_with_the_server_is_sent_again() {
    for (share, otherwise) in
        [("ca", NtStatus::FILE_NOT_AVAILABLE), ("clustered", NtStatus::DUPLICATE_OBJECTID)]
    {
        let store = Arc::new(MemoryStore::new(1 << 30));
        let first = served(&store);
        let wanted = || with_oplock(Wanted::persistent(60_000), OplockLevel::BATCH);
        let (mut connection, tree) = client(&first, ME, share);
        let before = wanted().open(&mut connection, tree);
        let second = restarted(first, &store, 1);
        let (mut connection, tree) = client(&second, ME, share);
        assert_eq!(wanted().open(&mut connection, tree).header.status, otherwise, "not sent again, but anew");
        let mut again = wanted();
        again.replay = true;
        let (mut stranger, their_tree) = client(&second, Guid([2; 16]), share);
        let refused = again.open(&mut stranger, their_tree).header.status;
        assert_eq!(refused, NtStatus::FILE_NOT_AVAILABLE, "another client's name for it");
        again.name = "another.vhdx";
        assert_eq!(again.open(&mut connection, tree).header.status, NtStatus::ACCESS_DENIED);
        again.name = wanted().name;
        let back = again.open(&mut connection, tree);
        assert_eq!((file_id(&back), oplock(&back)), (file_id(&before), oplock(&before)));
        assert!(is_persistent(&back));
        assert_eq!(write(&mut connection, tree, file_id(&back), b"on"), NtStatus::SUCCESS);
        assert_eq!(file_id(&again.open(&mut connection, tree)), file_id(&back), "and again, as ever");
        assert_eq!(second.server.opens().len(), 1);
    }
}

#[test]
fn who_connects_to_a_share_waits_until_what_others_have_open_is_back() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let served = served(&store);
    let (mut connection, tree) = client(&served, ME, "ca");
    let id = file_id(&Wanted::persistent(60_000).open(&mut connection, tree));
    let config = (*served.server.shares().into_iter().find(|share| share.name == "ca").unwrap()).clone();
    assert!(served.server.release_share("ca"));
    served.server.prepare_share(config.clone()).unwrap();
    assert!(served.server.share_traffic("ca").is_none());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (mut other, tree) = client(&served, Guid([2; 16]), "ca");
            let mut wanted = Wanted::plain();
            wanted.disposition = CreateDisposition::OPEN;
            wanted.open(&mut other, tree).header.status
        });
        assert_eq!(served.restore().opens, 1);
        assert!(served.server.publish_share("ca"));
        assert_eq!(other.join().unwrap(), NtStatus::FILE_NOT_AVAILABLE, "it is somebody's");
    });
    let tree = connection.tree("ca").unwrap();
    assert_eq!(file_id(&Wanted::back(id).open(&mut connection, tree)), id);
    // A share that does not come after all is none.
    assert!(served.server.release_share("ca"));
    served.server.prepare_share(config).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| connect(&served, ME, &Dialect::ALL).tree("ca").is_err());
        assert!(served.server.release_share("ca"));
        assert!(waits.join().unwrap());
    });
}
