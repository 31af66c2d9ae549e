//! Opens of shared virtual disks that outlive their connection, their server, or their host; and what is stored of disks.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test on a thread of its own")]

mod common;
#[path = "common/wanted.rs"]
mod wanted;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use common::{Served, disks::Event};
use file_store::{
    Access, FileStore as _, MemoryStore, OPENS_TABLE, OpenOptions, RESERVATIONS_TABLE, StateChange,
};
use rsvd_protocol::Version;
use rsvd_protocol::open::{DiskProperties, OpenDevice, Originator};
use smb_client::Connection;
use smb_protocol::access::{CreateDisposition, CreateOptions, ShareAccess};
use smb_protocol::create::contexts::tag;
use smb_protocol::create::handles::AppInstanceId;
use smb_protocol::{Guid, NtStatus};
use smb_server::Restored;
use wanted::{Wanted, client, close, file_id, restarted, served, write};

const ME: Guid = Guid([1; 16]);
const OTHER: Guid = Guid([2; 16]);
const SECTOR: [u8; 512] = [7; 512];

/// The same of the disk in the file, for an initiator.
fn disk(mut wanted: Wanted, initiator: u8) -> Wanted {
    let device = OpenDevice {
        version: Version::V1,
        has_initiator: 1,
        initiator: Guid([initiator; 16]),
        originator: Originator::PVHDPARSER,
        ..OpenDevice::default()
    };
    wanted.disposition = CreateDisposition::OPEN;
    wanted.options = CreateOptions::NO_INTERMEDIATE_BUFFERING;
    wanted.contexts.push(tag::SVHDX_OPEN_DEVICE, &device.encode(&DiskProperties::default()));
    wanted
}

fn file(connection: &mut Connection, tree: u32) {
    let id = file_id(&Wanted::plain().open(connection, tree));
    assert_eq!(close(connection, tree, id), NtStatus::SUCCESS);
}

#[test]
fn an_open_whose_disk_is_not_there_yet_waits_for_its_client_to_come_again() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let first = served(&store);
    let (mut connection, tree) = client(&first, ME);
    file(&mut connection, tree);
    let id = file_id(&disk(Wanted::persistent(60_000), 1).open(&mut connection, tree));
    std::mem::forget(first);
    let second = served(&store);
    second.disks.refuses.store(true, Ordering::SeqCst);
    assert_eq!(second.restore(), Restored { opens: 1, given_up: 0 });
    let (mut connection, tree) = client(&second, ME);
    let mut back = |initiator| disk(Wanted::back(id), initiator).open(&mut connection, tree).header.status;
    for _ in 0..2 {
        assert_eq!(back(1), NtStatus::FILE_NOT_AVAILABLE);
    }
    second.disks.refuses.store(false, Ordering::SeqCst);
    assert_eq!(back(2), NtStatus::INVALID_HANDLE, "it is another initiator's");
    assert_eq!(back(1), NtStatus::SUCCESS);
    assert_eq!(write(&mut connection, tree, id, &SECTOR), NtStatus::SUCCESS);
}

#[test]
fn a_disk_whose_client_is_away_is_to_be_asked_for_again() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let first = served(&store);
    let (mut connection, tree) = client(&first, ME);
    file(&mut connection, tree);
    let opened = disk(Wanted::persistent(60_000), 1).open(&mut connection, tree);
    assert_eq!(opened.header.status, NtStatus::SUCCESS);
    let (_second, mut other, tree) = restarted(first, &store, OTHER);
    let mut plain = Wanted::plain();
    plain.share = ShareAccess(7);
    assert_eq!(plain.open(&mut other, tree).header.status, NtStatus::FILE_NOT_AVAILABLE);
    assert_eq!(disk(Wanted::plain(), 2).open(&mut other, tree).header.status, NtStatus::SUCCESS);
}

/// Hosts ask for all rights, with which a disk is never deleted.
#[test]
fn an_open_of_a_disk_keeps_no_others_from_it() {
    let served = served(&Arc::new(MemoryStore::new(1 << 30)));
    let ((mut one, tree_of_one), (mut two, tree_of_two)) = (client(&served, ME), client(&served, OTHER));
    file(&mut one, tree_of_one);
    let first = disk(Wanted::plain(), 1).open(&mut one, tree_of_one);
    let second = disk(Wanted::plain(), 2).open(&mut two, tree_of_two);
    assert_eq!((first.header.status, second.header.status), (NtStatus::SUCCESS, NtStatus::SUCCESS));
}

/// A virtual machine goes on at another host: what it had under way at the first one has ended before it is let in there.
#[test]
fn the_disk_of_an_open_is_closed_before_another_takes_its_place() {
    let served = served(&Arc::new(MemoryStore::new(1 << 30)));
    let ((mut old, old_tree), (mut new, new_tree)) = (client(&served, ME), client(&served, OTHER));
    file(&mut old, old_tree);
    let of_machine = || {
        let mut wanted = disk(Wanted::persistent(0), 1);
        wanted.contexts.push_value(tag::APP_INSTANCE_ID, &AppInstanceId { id: Guid([0xaa; 16]) });
        wanted
    };
    let id = file_id(&of_machine().open(&mut old, old_tree));
    served.disks.lingers.store(true, Ordering::SeqCst);
    assert_eq!(of_machine().open(&mut new, new_tree).header.status, NtStatus::SUCCESS);
    assert_eq!(served.disks.events(), [Event::Opened, Event::Closed, Event::Opened]);
    assert_eq!(write(&mut old, old_tree, id, &SECTOR), NtStatus::FILE_CLOSED);
}

/// The rows of a table.
fn rows(served: &Served, table: &'static str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let store = served.files.store().clone();
    let scanned = on_shard(served, move || async move { store.state_scan(table, &[]).await.unwrap() });
    scanned.into_iter().map(|row| (row.key, row.value)).collect()
}

fn put(served: &Served, table: &'static str, key: Vec<u8>, value: Vec<u8>) {
    let store = served.files.store().clone();
    let change = StateChange { table: table.to_owned(), key, value: Some(value) };
    on_shard(served, move || async move { store.state_write(vec![change]).await.unwrap() });
}

fn on_shard<T: Send + 'static, F: Future<Output = T> + 'static>(
    served: &Served,
    work: impl FnOnce() -> F + Send + 'static,
) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    served.spawn(move || async move {
        let _ = send.send(work().await);
    });
    receive.recv().unwrap()
}

/// A volume comes from a node of a newer release to one of this, and goes back.
#[test]
fn an_open_of_a_newer_release_is_kept_for_who_knows_it() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let first = served(&store);
    let (mut connection, tree) = client(&first, ME);
    let opened = Wanted::persistent(60_000).open(&mut connection, tree);
    assert_eq!(opened.header.status, NtStatus::SUCCESS);
    let (key, mut value) = rows(&first, OPENS_TABLE).remove(0);
    std::mem::forget(first);
    value[0] = 9;
    let end = value.len() - 4;
    let check = byte_codec::crc32c(&value[..end]).to_le_bytes();
    value[end..].copy_from_slice(&check);
    let second = served(&store);
    put(&second, OPENS_TABLE, key.clone(), value.clone());
    assert_eq!(second.restore(), Restored::default());
    assert_eq!(rows(&second, OPENS_TABLE), [(key.clone(), value.clone())]);
    // One that is damaged is nobody's.
    value[20] ^= 1;
    put(&second, OPENS_TABLE, key, value);
    assert_eq!(second.restore(), Restored { opens: 0, given_up: 1 });
    assert_eq!(rows(&second, OPENS_TABLE), []);
}

#[test]
fn reservations_of_a_disk_go_with_its_file() {
    let store = Arc::new(MemoryStore::new(1 << 30));
    let served = served(&store);
    let (mut connection, tree) = client(&served, ME);
    let of_lun = vec![5; 17];
    put(&served, RESERVATIONS_TABLE, of_lun.clone(), vec![1]);
    let mut reserved = |name: &'static str| {
        let mut wanted = Wanted::plain();
        wanted.name = name;
        let id = file_id(&wanted.open(&mut connection, tree));
        assert_eq!(close(&mut connection, tree, id), NtStatus::SUCCESS);
        let store = served.files.store().clone();
        let file = on_shard(&served, move || async move {
            let file = store.lookup(store.root(), name).await.unwrap().file;
            let open = store.open(file, OpenOptions::shared(Access::READ_WRITE)).await.unwrap();
            open.set_size(4 << 20).await.unwrap();
            file
        });
        for kind in *b"rm" {
            let key = [smb_files::disk_rows(file), vec![6; 16], vec![kind]].concat();
            put(&served, RESERVATIONS_TABLE, key, vec![2]);
        }
    };
    reserved("stays.vhdx");
    reserved("goes.vhdx");
    reserved("removed.vhdx");
    assert_eq!(rows(&served, RESERVATIONS_TABLE).len(), 7);
    let mut deletes = Wanted::plain();
    (deletes.name, deletes.options) = ("goes.vhdx", CreateOptions::DELETE_ON_CLOSE);
    let id = file_id(&deletes.open(&mut connection, tree));
    assert_eq!(close(&mut connection, tree, id), NtStatus::SUCCESS);
    assert_eq!(rows(&served, RESERVATIONS_TABLE).len(), 5);
    // By another way than a share's.
    let same = store.clone();
    on_shard(&served, move || async move { same.remove(same.root(), "removed.vhdx").await.unwrap() });
    served.restore();
    let left = rows(&served, RESERVATIONS_TABLE);
    assert_eq!(left.len(), 3);
    assert!(left.iter().any(|(key, _)| *key == of_lun), "that of a LUN is its own");
}

/// A volume that goes to another node takes its opens along: what they have under way is not given up as that of an open that is closed.
#[test]
fn a_disk_whose_volume_goes_is_let_go_of_and_not_closed() {
    let served = served(&Arc::new(MemoryStore::new(1 << 30)));
    let (mut connection, tree) = client(&served, ME);
    file(&mut connection, tree);
    let opened = disk(Wanted::persistent(60_000), 1).open(&mut connection, tree);
    assert_eq!(opened.header.status, NtStatus::SUCCESS);
    assert!(served.server.release_share("ca"));
    while served.disks.events().len() < 2 {
        std::thread::yield_now();
    }
    assert_eq!(served.disks.events(), [Event::Opened, Event::Released]);
}
