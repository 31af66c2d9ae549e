//! A volume whose device has no space for its metadata: it is opened and read, and what cannot be promised is refused.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use aligned_buffer::SharedBuf;
use block_device::{BlockDevice, BlockError, BlockErrorKind, BlockFuture};
use test_layers::{DeviceLayer, Layered};
use volume_format::{BLOCK, layout_for};

use super::*;

/// A disk that has no space for pages of the database while it is full; what else there is has its space.
struct Thin {
    disk: Device,
    pages: std::ops::Range<u64>,
    full: AtomicBool,
}

impl DeviceLayer for Thin {
    fn below(&self) -> &dyn BlockDevice {
        &*self.disk
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        if self.full.load(Ordering::SeqCst) && self.pages.contains(&offset) {
            return Box::pin(async { Err(BlockError::new(BlockErrorKind::NoSpace, "allocate a slab")) });
        }
        self.disk.write(offset, data, durability)
    }
}

fn thin(disk: &Device) -> Arc<Layered<Thin>> {
    let layout = layout_for(SIZE as u64).expect("layout");
    // Behind the header.
    let pages = layout.metadata_start + BLOCK..layout.metadata_start + layout.metadata_size;
    Arc::new(Layered(Thin { disk: Arc::clone(disk), pages, full: AtomicBool::new(true) }))
}

fn kind<T>(result: Result<T, file_store::StoreError>) -> Option<StoreErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn a_volume_is_read_though_there_is_no_space_for_its_metadata() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let root = volume.root();
        let id = volume.create(root, "file", file()).await.expect("create");
        write(&open(&volume, id).await, 0, &[7; 8192], Durability::Durable).await;
        volume.close().await.expect("close");
        drop(volume);
        let thin = thin(&device);
        let volume = Volume::open(thin.clone(), environment()).await.expect("open");
        let id = volume.lookup(root, "FILE").await.expect("there").file;
        let opened = open(&volume, id).await;
        assert_eq!(read(&opened, 0, 8192).await, [7; 8192]);
        // Where it lies, and nowhere else.
        write(&opened, 4096, &[8; 4096], Durability::Durable).await;
        let refused = Some(StoreErrorKind::NoSpace);
        let data = || IoBuf::copy_from(&[9; 4096]).freeze();
        assert_eq!(kind(opened.write(20 << 20, data(), Durability::Durable).await), refused);
        assert_eq!(kind(volume.create(root, "other", file()).await), refused);
        assert_eq!(kind(volume.remove(root, "file").await), refused);
        assert_eq!(kind(volume.rename((root, "file"), (root, "other"), false).await), refused);
        let rows = vec![StateChange { table: "t".into(), key: vec![1], value: Some(vec![9]) }];
        assert_eq!(kind(volume.state_write(rows.clone()).await), refused);
        assert_eq!(volume.check().await.expect("check"), Vec::new());
        assert_eq!(volume.why_stopped(), None);
        thin.full.store(false, Ordering::SeqCst);
        let text = volume.create(root, "other", file()).await.expect_err("refused").to_string();
        assert!(text.contains("volume reopen"), "{text}");
        drop(opened);
        let _ = volume.close().await;
        drop(volume);
        let volume = Volume::open(thin.clone(), environment()).await.expect("open again");
        assert_eq!(read(&open(&volume, id).await, 4096, 4096).await, [8; 4096]);
        volume.create(root, "other", file()).await.expect("create");
        volume.state_write(rows).await.expect("state");
        let volume = reopen(&device, volume).await;
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
    });
}

#[test]
fn what_only_the_log_has_is_read_and_waits_there_for_space() {
    on_shard(async {
        let (device, volume) = fresh().await;
        let root = volume.root();
        let id = volume.create(root, "file", file()).await.expect("create");
        write(&open(&volume, id).await, 0, &[7; 8192], Durability::Durable).await;
        // As a crash leaves it.
        let crash: Device = Arc::new(MemoryDisk::new(SIZE, 4096));
        let all = device.read(0, IoBuf::new(SIZE)).await.expect("read");
        crash.write(0, all.freeze(), Durability::Durable).await.expect("write");
        let thin = thin(&crash);
        let refused = Some(StoreErrorKind::NoSpace);
        for round in 7..9 {
            let volume = Volume::open(thin.clone(), environment()).await.expect("open");
            assert!(volume.lacks_space());
            let id = volume.lookup(root, "file").await.expect("there").file;
            let opened = open(&volume, id).await;
            assert_eq!(read(&opened, 0, 4096).await, [round; 4096]);
            write(&opened, 0, &[round + 1; 4096], Durability::Durable).await;
            assert_eq!(kind(volume.create(root, "other", file()).await), refused);
            // Mapped, and beyond the end: nobody would keep the size.
            let more = IoBuf::copy_from(&[1; 4096]).freeze();
            assert_eq!(kind(opened.write(8192, more, Durability::Volatile).await), refused);
            // What is on the disks is not what it should be compared with.
            assert_eq!(kind(volume.check().await), refused);
            assert_eq!(volume.why_stopped(), None);
            drop(opened);
            volume.close().await.expect("close");
        }
        thin.full.store(false, Ordering::SeqCst);
        let volume = Volume::open(thin, environment()).await.expect("open");
        assert!(!volume.lacks_space());
        let id = volume.lookup(root, "file").await.expect("there").file;
        assert_eq!(read(&open(&volume, id).await, 0, 4096).await, [9; 4096]);
        assert_eq!(volume.check().await.expect("check"), Vec::new());
    });
}

/// A disk that has space for so many more writes of data.
struct Short {
    disk: Device,
    data: u64,
    writes: AtomicU64,
}

impl DeviceLayer for Short {
    fn below(&self) -> &dyn BlockDevice {
        &*self.disk
    }
    fn write(&self, offset: u64, data: SharedBuf, durability: Durability) -> BlockFuture<'_, ()> {
        let left = |left: u64| left.checked_sub(1);
        if offset >= self.data && self.writes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_err()
        {
            return Box::pin(async { Err(BlockError::new(BlockErrorKind::NoSpace, "allocate a slab")) });
        }
        self.disk.write(offset, data, durability)
    }
}

/// A new volume on a disk whose space ends when it is told to.
async fn on_a_short_disk() -> (Arc<Layered<Short>>, Arc<Volume>) {
    let (disk, volume) = fresh().await;
    volume.close().await.expect("close");
    drop(volume);
    let data = layout_for(SIZE as u64).expect("layout").data_start;
    let short = Arc::new(Layered(Short { disk, data, writes: AtomicU64::new(u64::MAX) }));
    let volume = Volume::open(short.clone(), environment()).await.expect("open");
    (short, volume)
}

#[test]
fn what_a_write_without_space_mapped_is_given_back() {
    on_shard(async {
        let (short, volume) = on_a_short_disk().await;
        let root = volume.root();
        let allocated = async |id| volume.info(id).await.expect("info").allocated;
        let refused = Some(StoreErrorKind::NoSpace);
        let data = |len: usize| IoBuf::copy_from(&vec![9; len]).freeze();
        for (name, size, offset, len) in [
            ("grows", 0, 0, 1 << 20),
            ("grows a little", 0, 0, 100),
            ("grows from the middle of a cluster", 5000, 5000, 300_000),
            ("grows far", 70_000, 1 << 20, 4096),
            ("has its size", 1 << 20, 0, 1 << 20),
        ] {
            let id = volume.create(root, name, file()).await.expect("create");
            let opened = open(&volume, id).await;
            if size == 1 << 20 {
                opened.set_size(size).await.expect("size");
            } else if size > 0 {
                write(&opened, 0, &vec![7; size as usize], Durability::Durable).await;
            }
            let had = allocated(id).await;
            for writes in [0, 1] {
                // The first part of one that lies in several has its space.
                short.0.writes.store(writes, Ordering::SeqCst);
                let result = opened.write(offset, data(len), Durability::Volatile).await;
                short.0.writes.store(u64::MAX, Ordering::SeqCst);
                if writes == 0 {
                    assert_eq!((kind(result), opened.size()), (refused, size), "{name}");
                    assert_eq!(allocated(id).await, had, "{name}");
                }
            }
            write(&opened, offset, &vec![8; len], Durability::Durable).await;
            assert_eq!(read(&opened, offset, len).await, vec![8; len], "{name}");
            let until = size.min(offset) as usize;
            if size < 1 << 20 {
                assert_eq!(read(&opened, 0, until).await, vec![7; until], "{name}");
            }
            drop(opened);
            volume.remove(root, name).await.expect("remove");
        }
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
        let volume = reopen(&(short as Device), volume).await;
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
    });
}

/// Another writer's data beside it, in the same cluster, stays.
#[test]
fn a_write_without_space_takes_nothing_from_others() {
    on_shard(async {
        let (short, volume) = on_a_short_disk().await;
        let id = volume.create(volume.root(), "file", file()).await.expect("create");
        let opened = open(&volume, id).await;
        opened.set_size(1 << 20).await.expect("size");
        short.0.writes.store(1, Ordering::SeqCst);
        // Both map the same cluster; one of them is written.
        let block = |byte| IoBuf::copy_from(&[byte; 4096]).freeze();
        let (first, second) = futures_util::future::join(
            opened.write(0, block(1), Durability::Durable),
            opened.write(4096, block(2), Durability::Durable),
        )
        .await;
        short.0.writes.store(u64::MAX, Ordering::SeqCst);
        assert!(first.is_ok() != second.is_ok());
        let there = read(&opened, 0, 8192).await;
        let expected = if first.is_ok() { [[1; 4096], [0; 4096]] } else { [[0; 4096], [2; 4096]] };
        assert!(there == expected.concat(), "what was acknowledged is lost");
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
    });
}
