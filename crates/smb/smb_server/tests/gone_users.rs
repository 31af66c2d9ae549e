//! What users have open while their clients are away goes with the users, and shows whose it is.

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

use file_store::{FileStore as _, MemoryStore};
use smb_client::Connection;
use smb_protocol::access::{AccessMask, CreateOptions};
use smb_protocol::file::FileId;
use smb_protocol::security::{Ace, AceFlags, Acl, Control, SecurityDescriptor, Sid};
use smb_protocol::{Guid, NtStatus};
use wanted::{Wanted, client, file_id, is_persistent, served, write};

/// A store in whose root everybody may do everything.
fn open_to_all() -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let aces = vec![Ace::allow(Sid::EVERYONE, AccessMask::FILE_ALL, AceFlags(0))];
    let security = SecurityDescriptor {
        control: Control::DACL_PRESENT,
        dacl: Some(Acl { aces }),
        ..SecurityDescriptor::default()
    };
    let set = store.set_security(store.root(), security.encode());
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(set).unwrap();
    store
}

/// A client of `user`, whose file is to go with its last open.
fn temporary(served: &common::Served) -> (Connection, u32, FileId) {
    let options = smb_client::Options { client: Guid([3; 16]), ..smb_client::Options::default() };
    let mut connection = Connection::connect(served.address, options).unwrap();
    connection.login("user", "secret").unwrap();
    let tree = connection.tree("ca").unwrap();
    let mut wanted = Wanted::persistent(60_000);
    wanted.name = "temporary";
    wanted.options |= CreateOptions::DELETE_ON_CLOSE;
    let opened = wanted.open(&mut connection, tree);
    assert!(is_persistent(&opened));
    let id = file_id(&opened);
    (connection, tree, id)
}

fn names_of(served: &common::Served) -> Vec<(String, String, bool)> {
    let opens = served.server.opens().into_iter();
    opens.map(|open| (open.path, open.user, open.session.is_none())).collect()
}

/// Waits until this many are open.
fn until_open(served: &common::Served, wanted: usize) {
    for _ in 0..1000 {
        if served.server.opens().len() == wanted && served.server.sessions().len() == wanted {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{:?}", names_of(served));
}

fn is_there(store: &Arc<MemoryStore>, name: &str) -> bool {
    let found = store.lookup(store.root(), name);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(found).is_ok()
}

#[test]
fn what_a_user_left_open_goes_with_the_user() {
    let store = open_to_all();
    let served = served(&store);
    let (mut other, tree) = client(&served, Guid([1; 16]));
    let kept = file_id(&Wanted::persistent(60_000).open(&mut other, tree));
    let (connection, ..) = temporary(&served);
    drop(connection);
    for _ in 0..1000 {
        if served.server.sessions().len() == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let away = ("temporary".to_owned(), "user".to_owned(), true);
    assert!(names_of(&served).contains(&away), "whose it is shows: {:?}", names_of(&served));
    assert_eq!(served.server.close_opens_of_gone_users(), 0, "it may come back");
    assert_eq!(served.server.close_sessions_of(common::TwoUsers::sid(1001)), 0, "it has no session");
    until_open(&served, 1);
    assert_eq!(write(&mut other, tree, kept, b"mine"), NtStatus::SUCCESS);
    for _ in 0..1000 {
        if !is_there(&store, "temporary") {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the file was to go with its last open");
}

#[test]
fn what_a_user_left_open_is_closed_where_another_node_took_the_user_away() {
    let store = open_to_all();
    let served = served(&store);
    let (connection, ..) = temporary(&served);
    served.users.leaves(common::TwoUsers::sid(1001));
    assert_eq!(served.server.close_opens_of_gone_users(), 0, "its session is there, and ends first");
    drop(connection);
    for _ in 0..1000 {
        if served.server.sessions().is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(served.server.close_opens_of_gone_users(), 1);
    until_open(&served, 0);
}

#[test]
fn what_a_user_left_open_does_not_come_back_without_the_user() {
    let store = open_to_all();
    let first = served(&store);
    let (mut other, tree) = client(&first, Guid([1; 16]));
    let kept = file_id(&Wanted::persistent(60_000).open(&mut other, tree));
    let _client = temporary(&first);
    std::mem::forget(first);

    let second = served(&store);
    second.users.leaves(common::TwoUsers::sid(1001));
    assert_eq!(second.restore(), smb_server::Restored { opens: 1, given_up: 1 });
    assert!(!is_there(&store, "temporary"), "it was to go with its last open");
    let (mut other, tree) = client(&second, Guid([1; 16]));
    assert_eq!(Wanted::back(kept).open(&mut other, tree).header.status, NtStatus::SUCCESS);
    std::mem::forget(second);
    assert_eq!(
        served(&store).restore(),
        smb_server::Restored { opens: 1, given_up: 0 },
        "nor is its row left"
    );
}
