//! A volume whose device has no space for its metadata: it is opened and read, and what cannot be promised is refused.

use std::sync::atomic::{AtomicBool, Ordering};

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
