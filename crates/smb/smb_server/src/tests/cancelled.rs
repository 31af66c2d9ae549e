//! What a client is told when it cancels: CANCELLED only of what has not been done, whenever the CANCEL comes.

use std::pin::pin;

use file_store::FileStore as _;
use smb_protocol::NtStatus;
use smb_protocol::Wire as _;
use smb_protocol::access::{AccessMask, CreateDisposition, OplockLevel};
use smb_protocol::file::FileId;
use smb_protocol::fscc::FileClass;
use smb_protocol::info::InfoType;
use smb_protocol::lock::{LockElement, LockFlags, LockRequest};
use smb_protocol::message::Request;
use test_layers::{Left, OnDrop, until_wait};

use super::cases_info::new_name;
use super::client::Client;
use super::world::{Ask, OTHER, VICTIM, World, set_request, settle};

/// Waits at which a request is cancelled: more than any of these has.
const POINTS: usize = 60;

/// Sends a packet and cancels it when it has waited that often. `None` when it had ended before.
async fn cancelled_at(client: &Client, packet: &[u8], point: usize) -> Option<NtStatus> {
    let mut work = client.begin(packet);
    if matches!(until_wait(point, pin!(&mut work.future)).await, Left::Ended(())) {
        return None;
    }
    // Also before it was told that it waits: the CANCEL may have come with the request.
    let listed = client.conn.pending.borrow().get(&work.last).cloned();
    listed.inspect(|listed| listed.cancel());
    let ended = shard_runtime::timeout(std::time::Duration::from_secs(100), work.future).await;
    assert!(ended.is_some(), "it goes on although it was cancelled");
    client.answer(work.last).await.map(|got| got.status())
}

/// Runs a scene for each wait at which its request can be cancelled.
fn at_each_wait(scene: impl AsyncFn(&World, usize) -> Option<NtStatus>) {
    for on_drop in [OnDrop::Stops, OnDrop::GoesOn] {
        let (mut ended, mut cancelled, mut done) = (false, 0, 0);
        for point in 0..POINTS {
            let status = sim::on_shard(async { scene(&World::new(on_drop), point).await }).unwrap();
            match status {
                None => ended = true,
                Some(NtStatus::CANCELLED) => cancelled += 1,
                Some(NtStatus::SUCCESS) => done += 1,
                Some(other) => panic!("wait {point}: {other}"),
            }
            if ended {
                break;
            }
        }
        println!("{on_drop:?}: cancelled at {cancelled}, done at {done}");
        assert!(ended && cancelled + done > 0);
    }
}

/// The first bytes of a file are locked by an open of another client, or not.
async fn is_locked(other: &Client, id: FileId) -> bool {
    let flags = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    let element = LockElement { offset: 0, length: 4, flags }.to_bytes();
    let status = other.call(&Request::Lock(LockRequest::new(0, id, &element))).await.status();
    assert!([NtStatus::SUCCESS, NtStatus::LOCK_NOT_GRANTED].contains(&status), "{status}");
    status == NtStatus::LOCK_NOT_GRANTED
}

fn lock(client: &Client, id: FileId, number: u32, flags: LockFlags) -> Vec<u8> {
    let element = LockElement { offset: 0, length: 4, flags }.to_bytes();
    client.packet(&[&Request::Lock(LockRequest::new(number << 4 | 1, id, &element))])
}

#[test]
fn a_lock_that_is_cancelled_is_not_held() {
    at_each_wait(async |world, point| {
        let client = world.client(1, VICTIM, "ca").await;
        let other = world.client(3, OTHER, "ca").await;
        other.file("f", b"content").await;
        let theirs = other.open(&Ask::open("f")).await;
        let id = client.open(&Ask::open("f").persistent()).await;
        let status = cancelled_at(&client, &lock(&client, id, 1, LockFlags::EXCLUSIVE), point).await;
        settle().await;
        assert_eq!(is_locked(&other, theirs).await, status != Some(NtStatus::CANCELLED), "{status:?}");
        status
    });
}

#[test]
fn an_unlock_is_not_told_as_cancelled() {
    at_each_wait(async |world, point| {
        let client = world.client(1, VICTIM, "ca").await;
        let other = world.client(3, OTHER, "ca").await;
        other.file("f", b"content").await;
        let theirs = other.open(&Ask::open("f")).await;
        let id = client.open(&Ask::open("f").persistent()).await;
        client.call_bytes(&lock(&client, id, 1, LockFlags::EXCLUSIVE)).await.good();
        let status = cancelled_at(&client, &lock(&client, id, 2, LockFlags::UNLOCK), point).await;
        settle().await;
        assert_eq!(is_locked(&other, theirs).await, status == Some(NtStatus::CANCELLED), "{status:?}");
        status
    });
}

/// It waits for another one's lock first, and is cancelled after it was granted.
#[test]
fn a_lock_that_was_waited_for_is_held_or_cancelled() {
    for (after, expected) in [(false, NtStatus::CANCELLED), (true, NtStatus::SUCCESS)] {
        sim::on_shard(async {
            let world = World::new(OnDrop::GoesOn);
            let client = world.client(1, VICTIM, "ca").await;
            let other = world.client(3, OTHER, "ca").await;
            other.file("f", b"content").await;
            let theirs = other.open(&Ask::open("f")).await;
            assert!(!is_locked(&other, theirs).await);
            let id = client.open(&Ask::open("f").persistent()).await;
            let mut work = client.begin(&lock(&client, id, 1, LockFlags::EXCLUSIVE));
            let second = std::time::Duration::from_secs(1);
            assert!(shard_runtime::timeout(second, &mut work.future).await.is_none(), "it waits");
            if after {
                other.call_bytes(&lock(&other, theirs, 0, LockFlags::UNLOCK)).await.good();
                let soon = std::time::Duration::from_millis(1);
                assert!(shard_runtime::timeout(soon, &mut work.future).await.is_none(), "it is made durable");
            }
            assert!(client.cancel(work.last));
            work.future.await;
            assert_eq!(client.answer(work.last).await.unwrap().status(), expected);
        })
        .unwrap();
    }
}

#[test]
fn a_rename_that_is_cancelled_was_not_made() {
    at_each_wait(async |world, point| {
        let client = world.client(1, VICTIM, "ca").await;
        client.file("f", b"content").await;
        let id = client.open(&Ask::open("f").persistent()).await;
        let name = new_name(false);
        let request = set_request(id, InfoType::FILE, FileClass::RENAME.0, &name);
        let status = cancelled_at(&client, &client.packet(&[&request]), point).await;
        settle().await;
        let renamed = world.memory.lookup(world.memory.root(), "to").await.is_ok();
        assert_eq!(renamed, status != Some(NtStatus::CANCELLED), "{status:?}");
        status
    });
}

/// One that waits until another client gives its handle up, which it does.
#[test]
fn a_rename_that_waits_is_made_or_cancelled() {
    at_each_wait(async |world, point| {
        let client = world.client(1, VICTIM, "ca").await;
        let other = world.client(3, OTHER, "plain").await;
        client.file("f", b"content").await;
        let id = client.open(&Ask::open("f").persistent()).await;
        client.file("to", b"target").await;
        let held = other.open(&Ask::open("to").oplock(OplockLevel::BATCH)).await;
        let name = new_name(true);
        let request = set_request(id, InfoType::FILE, FileClass::RENAME_EX.0, &name);
        let packet = client.packet(&[&request]);
        let gives_up = async {
            shard_runtime::sleep(std::time::Duration::from_secs(3)).await;
            other.close(held).await;
        };
        let (status, ()) = futures_util::future::join(cancelled_at(&client, &packet, point), gives_up).await;
        settle().await;
        let renamed = world.memory.lookup(world.memory.root(), "f").await.is_err();
        assert_eq!(renamed, status != Some(NtStatus::CANCELLED), "{status:?}");
        status
    });
}

#[test]
fn a_create_that_is_cancelled_has_emptied_nothing() {
    at_each_wait(async |world, point| {
        let client = world.client(1, VICTIM, "ca").await;
        let other = world.client(3, OTHER, "plain").await;
        other.file("f", b"content").await;
        let ask = Ask::with("f", CreateDisposition::OVERWRITE);
        let status = cancelled_at(&client, &ask.packet(&client), point).await;
        settle().await;
        if status == Some(NtStatus::CANCELLED) {
            let id = other.open(&Ask::open("f").access(AccessMask::FILE_READ)).await;
            assert_eq!(other.content(id).await, b"content");
        }
        status
    });
}
