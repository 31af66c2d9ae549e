//! Sizes of files that grow: how many flushes they cost, whom saving them holds up, and what of them may be saved.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use block_device::{BlockDevice, BlockFuture};
use test_layers::{DeviceLayer, Layered};

use super::volatile::{crashed, relaxed, size_comes};
use super::*;

/// A device that counts flushes, and keeps those of the thread that made it waiting while it is shut: the metadata thread's pass.
struct Flushing {
    inner: MemoryDisk,
    flushes: AtomicU64,
    thread: ThreadId,
    shut: AtomicBool,
}

impl DeviceLayer for Flushing {
    fn below(&self) -> &dyn BlockDevice {
        &self.inner
    }
    fn flush(&self) -> BlockFuture<'_, ()> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if std::thread::current().id() == self.thread && self.shut.load(Ordering::SeqCst) {
                while self.shut.load(Ordering::SeqCst) {
                    shard_runtime::sleep(Duration::from_millis(1)).await;
                }
            }
            self.inner.flush().await
        })
    }
}

async fn flushing() -> (Arc<Layered<Flushing>>, Device, Arc<Volume>) {
    let layer = Flushing {
        inner: MemoryDisk::new(SIZE, 4096),
        flushes: AtomicU64::new(0),
        thread: std::thread::current().id(),
        shut: AtomicBool::new(false),
    };
    let layer = Arc::new(Layered(layer));
    let device: Device = layer.clone();
    let format = FormatOptions { name: "v".into() };
    Volume::format(Arc::clone(&device), format, environment()).await.expect("format");
    let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
    (layer, device, volume)
}

async fn growing(volume: &Volume, name: &str) -> (FileId, Arc<dyn OpenFile>) {
    let store = relaxed(volume);
    let id = store.create(volume.root(), name, file()).await.expect("create");
    (id, store.open(id, OpenOptions::shared(Access::READ_WRITE)).await.expect("open"))
}

/// A flush for each would keep the last of thousands for many seconds.
#[test]
fn sizes_of_many_files_cost_one_flush() {
    const FILES: usize = 200;
    // Commits of the database flush, too, once a second.
    const FEW: u64 = 10;
    on_shard(async {
        let (layer, device, volume) = flushing().await;
        let mut files = Vec::new();
        for number in 0..FILES {
            files.push(growing(&volume, &format!("f{number}")).await);
        }
        // Once by the volume's task, once when it is closed.
        for (size, closes) in [(7, false), (14, true)] {
            volume.sync().await.expect("sync");
            let before = layer.0.flushes.load(Ordering::SeqCst);
            for (_, open) in &files {
                write(open, size - 7, b"content", Durability::Volatile).await;
            }
            if closes {
                volume.close().await.expect("close");
            } else {
                volume.core.save_sizes().await.expect("save");
            }
            let flushes = layer.0.flushes.load(Ordering::SeqCst) - before;
            assert!(flushes < FEW, "{flushes} flushes for {FILES} files");
            let left = crashed(&device).await;
            for (id, _) in &files {
                assert_eq!(left.info(*id).await.expect("info").size, size);
            }
            left.close().await.expect("close");
        }
    });
}

/// Somebody who goes on writing has the lock of the size all the time, one write after the other.
#[test]
fn a_file_that_is_written_without_end_has_its_size_saved() {
    on_shard(async {
        let (_layer, device, volume) = flushing().await;
        let (id, open) = growing(&volume, "f").await;
        volume.sync().await.expect("sync");
        write(&open, 0, b"content", Durability::Volatile).await;
        let stream = volume.core.registry.lock().stream((id.0, 0)).cloned().expect("in memory");
        let _writes = stream.sizing.lock().await;
        size_comes(&device, id, 7).await;
    });
}

/// What a file was grown by again, after it was cut, is not what the flush before has made durable: its size is not saved.
#[test]
fn what_was_cut_meanwhile_is_not_saved() {
    for is_opened_again in [false, true] {
        on_shard(async move {
            let (layer, device, volume) = flushing().await;
            let (id, mut open) = growing(&volume, "f").await;
            write(&open, 0, b"abc", Durability::Volatile).await;
            open.flush().await.expect("flush");
            write(&open, 3, b"old data", Durability::Volatile).await;
            let grown = volume.core.look_at_grown();
            if is_opened_again {
                drop(open);
                let store = relaxed(&volume);
                open = store.open(id, OpenOptions::shared(Access::READ_WRITE)).await.expect("open");
            }
            open.set_size(3).await.expect("cut");
            // Nobody saves what it is grown by now.
            layer.0.shut.store(true, Ordering::SeqCst);
            write(&open, 3, b"new data", Durability::Volatile).await;
            volume.core.save_those(grown).await.expect("save");
            volume.sync().await.expect("sync");
            let left = crashed(&device).await;
            assert_eq!(left.info(id).await.expect("info").size, 3);
            left.close().await.expect("close");
            layer.0.shut.store(false, Ordering::SeqCst);
            size_comes(&device, id, 11).await;
            volume.close().await.expect("close");
        });
    }
}

/// A flush that was answered has made the size durable, whoever has saved it before.
#[test]
fn a_flush_settles_a_size_that_was_saved() {
    on_shard(async {
        let (_layer, device, volume) = flushing().await;
        let (id, open) = growing(&volume, "f").await;
        for round in 1..40 {
            write(&open, (round - 1) * 7, b"content", Durability::Volatile).await;
            let core = Arc::clone(&volume.core);
            let (saved, flushed) = futures_util::join!(core.save_grown(), open.flush());
            saved.expect("save");
            flushed.expect("flush");
            let left = crashed(&device).await;
            assert_eq!(left.info(id).await.expect("info").size, round * 7);
            left.close().await.expect("close");
        }
    });
}
