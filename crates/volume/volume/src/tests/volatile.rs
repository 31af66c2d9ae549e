//! Volatile changes: they wait for no disk, and nothing outside of the database goes ahead of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use block_device::{BlockDevice, BlockError, BlockErrorKind, BlockFuture};
use test_layers::{DeviceLayer, Layered};

use super::*;

/// A device on which nothing is zeroed while it is shut, as where that takes minutes; and one whose flushes can fail.
struct Slow {
    inner: MemoryDisk,
    shut: AtomicBool,
    /// Somebody has come to the shut gate.
    met: AtomicBool,
    fails: AtomicBool,
}

impl Slow {
    fn new() -> Arc<Layered<Self>> {
        let inner = MemoryDisk::new(SIZE, 4096);
        let [shut, met, fails] = Default::default();
        Arc::new(Layered(Self { inner, shut, met, fails }))
    }

    async fn pass(&self) {
        while self.shut.load(Ordering::Acquire) {
            self.met.store(true, Ordering::Release);
            shard_runtime::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl DeviceLayer for Slow {
    fn below(&self) -> &dyn BlockDevice {
        &self.inner
    }
    fn unmap(&self, offset: u64, len: u64) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.pass().await;
            self.inner.unmap(offset, len).await
        })
    }
    fn write_zeroes(&self, offset: u64, len: u64, durability: Durability) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            self.pass().await;
            self.inner.write_zeroes(offset, len, durability).await
        })
    }
    fn flush(&self) -> BlockFuture<'_, ()> {
        Box::pin(async move {
            if self.fails.load(Ordering::Acquire) {
                return Err(BlockError::new(BlockErrorKind::Io, "a flush that fails"));
            }
            self.inner.flush().await
        })
    }
}

/// The volume as a crash right now would leave it.
pub(super) async fn crashed(device: &Device) -> Arc<Volume> {
    let copy: Device = Arc::new(MemoryDisk::new(SIZE, 4096));
    let left = device.read(0, IoBuf::new(SIZE)).await.expect("read");
    copy.write(0, left.freeze(), Durability::Durable).await.expect("write");
    let volume = Volume::open(copy, environment()).await.expect("open");
    assert_eq!(volume.check_deep().await.expect("check"), Vec::new(), "what a crash leaves");
    volume
}

pub(super) fn relaxed(volume: &Volume) -> Arc<dyn FileStore> {
    volume.volatile().expect("volatile changes")
}

#[test]
fn they_wait_for_no_disk() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let (store, root) = (relaxed(&volume), volume.root());
        let one = async |name: &str| {
            let id = store.create(root, name, file()).await.expect("create");
            let open = store.open(id, OpenOptions::shared(Access::READ_WRITE)).await.expect("open");
            write(&open, 0, b"content", Durability::Volatile).await;
            open.set_size(10).await.expect("size");
            (id, open)
        };
        // Clusters are made ready, and a commit may come between: both once in a while.
        drop(one("first").await);
        volume.sync().await.expect("sync");
        drop(one("second").await);
        volume.sync().await.expect("sync");
        let before = (volume.groups(), volume.commits());
        let (_, open) = one("third").await;
        store.rename((root, "third"), (root, "moved"), false).await.expect("rename");
        store.remove(root, "first").await.expect("remove");
        let after = (volume.groups(), volume.commits());
        if before.1 == after.1 {
            assert_eq!(before, after, "made durable");
            let left = crashed(&device).await;
            assert!(left.resolve("/first").await.is_ok() && left.resolve("/moved").await.is_err());
        }
        open.flush().await.expect("flush");
        let left = crashed(&device).await;
        assert!(left.resolve("/first").await.is_err());
        let moved = left.resolve("/moved").await.expect("moved");
        assert_eq!(left.info(moved).await.expect("info").size, 10);
        assert_eq!(read(&super::open(&left, moved).await, 0, 10).await, b"content\0\0\0");
    });
}

/// A size that nobody asks to be durable is so soon, also of a file that stays open.
#[test]
fn sizes_follow() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let store = relaxed(&volume);
        let id = store.create(volume.root(), "f", file()).await.expect("create");
        let open = store.open(id, OpenOptions::shared(Access::READ_WRITE)).await.expect("open");
        volume.sync().await.expect("sync");
        write(&open, 0, b"content", Durability::Volatile).await;
        loop {
            let left = crashed(&device).await;
            if left.info(id).await.expect("info").size == 7 {
                assert_eq!(read(&super::open(&left, id).await, 0, 7).await, b"content");
                return;
            }
            left.close().await.expect("close");
            shard_runtime::sleep(Duration::from_millis(20)).await;
        }
    });
}

/// The size of a file that a crash leaves comes to be this.
pub(super) async fn size_comes(device: &Device, id: FileId, size: u64) {
    for _ in 0..500 {
        let left = crashed(device).await;
        let there = left.info(id).await.expect("info").size;
        left.close().await.expect("close");
        if there == size {
            return;
        }
        shard_runtime::sleep(Duration::from_millis(20)).await;
    }
    panic!("a crash does not leave {size} bytes after ten seconds");
}

/// Nor do they wait for the background task, which may be zeroing for minutes what was removed: of a file that was closed, and of
/// one that somebody has opened since.
#[test]
fn sizes_wait_for_no_zeroing() {
    for is_opened_again in [false, true] {
        on_shard(async move {
            let slow = Slow::new();
            let device: Device = slow.clone();
            let format = FormatOptions { name: "v".into() };
            Volume::format(Arc::clone(&device), format, environment()).await.expect("format");
            let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
            let store = relaxed(&volume);
            let old = volume.create(volume.root(), "old", file()).await.expect("create");
            write(&super::open(&volume, old).await, 0, &[1; 3 * CLUSTER as usize], Durability::Durable).await;
            let id = store.create(volume.root(), "f", file()).await.expect("create");
            volume.sync().await.expect("sync");
            slow.0.shut.store(true, Ordering::Release);
            store.remove(volume.root(), "old").await.expect("remove");
            while !slow.0.met.load(Ordering::Acquire) {
                shard_runtime::sleep(Duration::from_millis(1)).await;
            }
            let open = store.open(id, OpenOptions::shared(Access::READ_WRITE)).await.expect("open");
            write(&open, 0, b"content", Durability::Volatile).await;
            drop(open);
            let again = if is_opened_again { Some(super::open(&volume, id).await) } else { None };
            size_comes(&device, id, 7).await;
            assert!(slow.0.shut.load(Ordering::Acquire), "while nothing is zeroed");
            drop(again);
            slow.0.shut.store(false, Ordering::Release);
            volume.close().await.expect("close");
        });
    }
}

/// Who was told that a flush has failed is not told of success afterwards.
#[test]
fn none_after_a_flush_that_failed() {
    on_shard(async {
        let slow = Slow::new();
        let device: Device = slow.clone();
        let format = FormatOptions { name: "v".into() };
        Volume::format(Arc::clone(&device), format, environment()).await.expect("format");
        let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
        let (store, root) = (relaxed(&volume), volume.root());
        let id = store.create(root, "f", file()).await.expect("create");
        let open = store.open(id, OpenOptions::shared(Access::READ_WRITE)).await.expect("open");
        write(&open, 0, b"content", Durability::Volatile).await;
        slow.0.fails.store(true, Ordering::Release);
        open.flush().await.expect_err("it fails");
        store.create(root, "g", file()).await.expect_err("create");
        store.rename((root, "f"), (root, "h"), false).await.expect_err("rename");
        store.remove(root, "f").await.expect_err("remove");
        store.link(id, (root, "i"), false).await.expect_err("link");
    });
}

/// A file that a crash brings back has what it had: nothing of it is zeroed, or given to others, before its removal is durable.
#[test]
fn what_comes_back_is_whole() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let (store, root) = (relaxed(&volume), volume.root());
        let mut gone = 0;
        for round in 0..20u8 {
            let name = format!("f{round}");
            let id = volume.create(root, &name, file()).await.expect("create");
            let content = vec![round + 1; 3 * CLUSTER as usize];
            write(&super::open(&volume, id).await, 0, &content, Durability::Durable).await;
            store.remove(root, &name).await.expect("remove");
            // Others come for the space.
            let other = store.create(root, &format!("g{round}"), file()).await.expect("create");
            let open = store.open(other, OpenOptions::shared(Access::READ_WRITE)).await.expect("open");
            for at in 0..6 {
                write(&open, at * CLUSTER, b"other", Durability::Volatile).await;
            }
            shard_runtime::sleep(Duration::from_millis(3 * u64::from(round))).await;
            let left = crashed(&device).await;
            match left.resolve(&format!("/{name}")).await {
                Ok(back) => {
                    let there = super::open(&left, back).await;
                    assert!(read(&there, 0, content.len()).await == content, "round {round}");
                }
                Err(_) => gone += 1,
            }
            left.close().await.expect("close");
        }
        assert!(gone > 0, "no removal was ever durable");
    });
}

/// What was written to clusters whose mapping is lost is zeroed before anybody gets them.
#[test]
fn what_is_lost_is_nobodys() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let (store, root) = (relaxed(&volume), volume.root());
        for round in 0..40 {
            let id = store.create(root, &format!("f{round}"), file()).await.expect("create");
            let open = store.open(id, OpenOptions::shared(Access::READ_WRITE)).await.expect("open");
            write(&open, 0, &[0xaa; 4096], Durability::Volatile).await;
        }
        let left = crashed(&device).await;
        let id = left.create(left.root(), "next", file()).await.expect("create");
        let next = super::open(&left, id).await;
        for at in 0..200 {
            write(&next, at * CLUSTER, b"next", Durability::Volatile).await;
            let rest = read(&next, at * CLUSTER, 4096).await;
            assert!(rest[4..].iter().all(|byte| *byte == 0), "cluster {at} has what another file wrote");
        }
    });
}

/// A durable write stands on the file, also where it maps nothing and does not grow it.
#[test]
fn a_durable_write_makes_its_file_durable() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let store = relaxed(&volume);
        for round in 0..10u8 {
            volume.sync().await.expect("sync");
            let id = store.create(volume.root(), &format!("f{round}"), file()).await.expect("create");
            let open = store.open(id, OpenOptions::shared(Access::READ_WRITE)).await.expect("open");
            write(&open, 0, b"before", Durability::Volatile).await;
            drop(open);
            // Its size is saved, by another volatile change.
            while volume.core.registry.lock().unsaved((id.0, 0)).is_some() {
                shard_runtime::sleep(Duration::from_millis(1)).await;
            }
            let open = super::open(&volume, id).await;
            write(&open, 0, &[round; 6], Durability::Durable).await;
            let left = crashed(&device).await;
            let there = left.resolve(&format!("/f{round}")).await.expect("the file is there");
            assert_eq!(read(&super::open(&left, there).await, 0, 6).await, [round; 6]);
            left.close().await.expect("close");
        }
    });
}

/// What was written again while a flush was under way is not what that flush has made durable, though the size is the same.
#[test]
fn what_has_changed_meanwhile_is_not_saved() {
    use crate::stream::Unsaved;

    let known = Unsaved { size: 7, durable_size: 3, written: 5 };
    assert!(known.is_still(&known));
    assert!(Unsaved { written: 0, ..known }.is_still(&known), "a time was set");
    for other in
        [Unsaved { size: 8, ..known }, Unsaved { durable_size: 2, ..known }, Unsaved { written: 6, ..known }]
    {
        assert!(!other.is_still(&known), "{other:?}");
    }
}
