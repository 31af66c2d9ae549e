//! Who may change the size of a file, and when that is asked; what is kept of the times of writes.

use std::time::Duration;

use file_store::{InfoChange, StoreFuture};
use futures_util::poll;

use super::devices::Sparse;
use super::thin::{crash, fresh_on, timely};
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

/// The file of a disk is in use for months: a crash makes the time of its last write a minute older, not as old as the file.
#[test]
fn the_time_of_a_write_survives_a_crash_while_the_file_is_in_use() {
    timely(async |environment| {
        let disk = Arc::new(Sparse::new(4 << 30));
        let device: Device = disk.clone();
        let volume = fresh_on(&device, &environment).await;
        let id = volume.create(volume.root(), "disk", file()).await.expect("create");
        let handle = open(&volume, id).await;
        handle.set_size(1 << 20).await.expect("size");
        let made = volume.info(id).await.expect("info").times.written;
        shard_runtime::sleep(Duration::from_secs(3600)).await;
        write(&handle, 0, &[5; 4096], Durability::Durable).await;
        let written = volume.info(id).await.expect("info").times.written;
        assert!(written > made);
        shard_runtime::sleep(Duration::from_secs(90)).await;
        let (_, volume) = crash(&disk, volume, &environment).await;
        let info = volume.info(id).await.expect("info");
        assert_eq!((info.times.written, info.size), (written, 1 << 20));
        // A time that is set counts, and is not that of the write before again.
        let handle = open(&volume, id).await;
        write(&handle, 0, &[6; 4096], Durability::Durable).await;
        let set = InfoChange { written: Some(made), ..Default::default() };
        volume.set_info(id, set).await.expect("set");
        shard_runtime::sleep(Duration::from_secs(90)).await;
        assert_eq!(volume.info(id).await.expect("info").times.written, made);
    });
}
