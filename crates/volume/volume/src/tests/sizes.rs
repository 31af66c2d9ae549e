//! Who may change the size of a file, and when that is asked.

use file_store::StoreFuture;
use futures_util::poll;

use super::*;

#[test]
fn a_change_of_the_size_that_waits_is_refused_when_somebody_keeps_the_size_meanwhile() {
    on_shard(async {
        let (_device, volume) = fresh().await;
        let id = volume.create(volume.root(), "disk", file()).await.expect("create");
        let other = open(&volume, id).await;
        write(&other, 0, &[7; 8192], Durability::Durable).await;
        let kept = Share { delete: false, ..Share::ALL };
        let kept = OpenOptions { share: kept, ..OpenOptions::shared(Access::READ_WRITE) };
        type Change = fn(&dyn OpenFile) -> StoreFuture<'_, ()>;
        let changes: [Change; 5] = [
            |file| file.set_size(0),
            |file| file.set_size(1 << 20),
            |file| file.write(8192, IoBuf::zeroed(4096).freeze(), Durability::Durable),
            |file| file.allocate(0, 1 << 20, true),
            |file| file.zero_range(4096, 8192, Durability::Durable),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            // As a snapshot does.
            let paused = volume.core.pause.write().await;
            let mut waiting = change(&*other);
            assert!(poll!(&mut waiting).is_pending(), "{number}");
            let unit = volume.open(id, kept.clone()).await.expect("open");
            drop(paused);
            let refused = waiting.await.map_err(|error| error.kind());
            assert_eq!(refused, Err(StoreErrorKind::SharingViolation), "{number}");
            assert_eq!(read(&unit, 0, 16384).await, [7; 8192], "{number}");
            // What leaves the size as it is may be done, and who keeps it may change it.
            other.set_size(8192).await.expect("the same size");
            unit.set_size(12288).await.expect("its own");
            unit.set_size(8192).await.expect("its own");
        }
        other.set_size(0).await.expect("nobody keeps it any more");
    });
}
