//! A break that cannot be made durable: nobody goes on as if it were.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use file_store::{FileStore, MemoryStore, StateChange, StoreError, StoreErrorKind, StoreFuture};
use smb_protocol::NtStatus;
use smb_protocol::create::lease::LeaseState;
use smb_protocol::message::Request;
use smb_protocol::oplock::{BreakAck, LeaseBreakAck};
use test_layers::{Layered, StoreLayer};

use super::cases::{KEY, RWH};
use super::look::stored_is_true;
use super::world::{Ask, OTHER, VICTIM, World, settle, write_request};

/// A store that can fail to keep rows.
struct Forgetful {
    store: Arc<MemoryStore>,
    fails: AtomicBool,
}

impl StoreLayer for Forgetful {
    fn below(&self) -> &dyn FileStore {
        &*self.store
    }

    fn state_write(&self, changes: Vec<StateChange>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            if self.fails.load(Ordering::SeqCst) {
                return Err(StoreError::new(StoreErrorKind::Io, "rows are not kept"));
            }
            self.store.state_write(changes).await
        })
    }
}

#[test]
fn what_a_break_made_way_for_waits_until_the_break_is_durable() {
    sim::on_shard(async {
        let memory = Arc::new(MemoryStore::new(1 << 26));
        let store =
            Arc::new(Layered(Forgetful { store: Arc::clone(&memory), fails: AtomicBool::new(false) }));
        let world = World::on(&memory, Arc::clone(&store) as Arc<dyn FileStore>);
        let owner = world.client(1, VICTIM, "ca").await;
        let other = world.client(2, OTHER, "ca").await;
        owner.file("f", b"content").await;
        owner.open(&Ask::open("f").lease(KEY, RWH).persistent()).await;
        let asked = other.begin(&Ask::open("f").packet(&other));
        let (asked, number) = (shard_runtime::spawn_local(asked.future), asked.last);
        settle().await;
        store.fails.store(true, Ordering::SeqCst);
        let state = LeaseState::READ | LeaseState::HANDLE;
        let ack = BreakAck::Lease(LeaseBreakAck { flags: 0, key: KEY, state });
        owner.call(&Request::OplockBreak(ack)).await.good();
        asked.await.unwrap();
        let status = other.answer(number).await.unwrap().status();
        assert_ne!(
            status,
            NtStatus::SUCCESS,
            "a restart gives back what the open relies on having been taken"
        );
        // There is nothing to break any more, and yet the next one must not rely on it either.
        assert_ne!(other.create(&Ask::open("f")).await.status(), NtStatus::SUCCESS);
        store.fails.store(false, Ordering::SeqCst);
        let id = other.open(&Ask::open("f")).await;
        stored_is_true(&world).await;
        // What the owner may read from its cache is taken back before it changes.
        store.fails.store(true, Ordering::SeqCst);
        assert_ne!(other.call(&write_request(id, 0, b"changed")).await.status(), NtStatus::SUCCESS);
        store.fails.store(false, Ordering::SeqCst);
        other.call(&write_request(id, 0, b"changed")).await.good();
        stored_is_true(&world).await;
    })
    .unwrap();
}
