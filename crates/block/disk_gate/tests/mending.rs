//! The gate when what it keeps cannot be written or read, and when it can be again.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

mod scene;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use block_device::{BlockDevice, BlockErrorKind, Durability, MemoryDisk, Reservations};
use scene::{Rows, SIZE, Saves, data, on_shard, way};

/// What could not be kept is tried again: the state before the change comes back, of which nobody was told otherwise, and the disk is used again.
#[test]
fn who_may_write_is_kept_again_when_it_can_be() {
    for saves in [Saves::None, Saves::Unheard] {
        on_shard(async {
            let rows = Rows::new();
            let disk = Arc::new(MemoryDisk::new(SIZE, 512));
            let gate = scene::gate(disk.clone(), rows.clone()).await;
            let (a, b) = (way(&gate, "a"), way(&gate, "b"));
            a.register(5 << 16 | 1).await.unwrap();
            a.reserve(5 << 16 | 1).await.unwrap();
            *rows.saves.lock() = saves;
            assert!(b.register(6 << 16 | 2).await.is_err());
            assert!(gate.broken().is_some());
            assert!(
                a.write(0, data(1), Durability::Durable).await.is_err(),
                "which state comes back, nobody knows"
            );
            assert!(!gate.mend().await && gate.broken().is_some(), "it cannot be kept still");
            *rows.saves.lock() = Saves::All;
            assert!(gate.mend().await && gate.broken().is_none());
            a.write(0, data(1), Durability::Durable).await.unwrap();
            let refused = b.write(0, data(2), Durability::Durable).await;
            assert_eq!(refused.unwrap_err().kind(), BlockErrorKind::Fenced);
            // What failed is done now that it can be; and without anybody's mending, by who asks.
            *rows.saves.lock() = saves;
            assert!(b.register(6 << 16 | 2).await.is_err());
            *rows.saves.lock() = Saves::All;
            b.register(6 << 16 | 2).await.unwrap();
            b.preempt_and_abort(6 << 16 | 2, 5 << 16 | 1).await.unwrap();
            assert!(a.write(0, data(1), Durability::Durable).await.is_err());
            b.write(0, data(2), Durability::Durable).await.unwrap();
            // All of it was kept.
            let gate = scene::gate(disk, rows).await;
            assert_eq!(way(&gate, "b").keys().await.unwrap().into_iter().collect::<Vec<_>>(), [6 << 16 | 2]);
        });
    }
}

/// A record that could not be read is read when it can be; one that is damaged stays what it is.
#[test]
fn a_record_that_could_not_be_read_is_read_again() {
    on_shard(async {
        let rows = Rows::new();
        let disk = Arc::new(MemoryDisk::new(SIZE, 512));
        let first = scene::gate(disk.clone(), rows.clone()).await;
        let a = way(&first, "a");
        a.register(5 << 16 | 1).await.unwrap();
        a.reserve(5 << 16 | 1).await.unwrap();
        rows.unread.store(true, Ordering::SeqCst);
        let gate = scene::gate(disk, rows.clone()).await;
        let (a, b) = (way(&gate, "a"), way(&gate, "b"));
        assert!(!gate.mend().await && gate.broken().is_some());
        for way in [&a, &b] {
            assert!(way.write(0, data(1), Durability::Durable).await.is_err());
        }
        rows.unread.store(false, Ordering::SeqCst);
        assert!(gate.mend().await && gate.broken().is_none());
        a.write(0, data(1), Durability::Durable).await.unwrap();
        assert!(b.write(0, data(2), Durability::Durable).await.is_err());
        for row in rows.rows.lock().values_mut() {
            row[20] ^= 1;
        }
        let gate = scene::gate(Arc::new(MemoryDisk::new(SIZE, 512)), rows).await;
        assert!(!gate.mend().await && gate.broken().is_some(), "nobody knows what it said");
    });
}
