//! Other sizes: in the table's region, with another region, both ways, of each kind.

use block_device::BlockDevice;
use vhdx_format::DISK_SIZE_MAX;

use super::{MIB, dynamic, holds, image, open, put, run, sound};
use crate::{CreateOptions, ImageErrorKind, Kind, Mode};

#[test]
fn a_disk_grows_and_shrinks() {
    run(async {
        for kind in [Kind::Dynamic, Kind::Fixed] {
            let (disk, file) = image(&CreateOptions { kind, ..dynamic(10 * MIB + 512, 2 * MIB) }).await;
            put(&disk, 10 * MIB, 512, 1).await;
            put(&disk, 4 * MIB, 2 * MIB, 2).await;
            let (resized, known) = (disk.wait_resize(10 * MIB + 512), 21 * MIB);
            disk.resize(known).await.expect("grown");
            assert_eq!((resized.await.expect("told"), disk.size()), (known, known));
            holds(&disk, 10 * MIB, 512, 1).await;
            holds(&disk, 10 * MIB + 512, 11 * MIB - 512, 0).await;
            put(&disk, 20 * MIB, MIB, 3).await;
            disk.resize(5 * MIB).await.expect("shrunk");
            assert!(disk.read(5 * MIB, aligned_buffer::IoBuf::new(512)).await.is_err());
            disk.resize(30 * MIB).await.expect("grown");
            holds(&disk, 4 * MIB, MIB, 2).await;
            holds(&disk, 5 * MIB, 25 * MIB, 0).await;
            put(&disk, 29 * MIB, MIB, 4).await;
            disk.close().await.expect("closed");
            sound(&file).await;
            let disk = open(&file, Mode::Read).await.expect("opened");
            assert_eq!(disk.size(), 30 * MIB);
            holds(&disk, 29 * MIB, MIB, 4).await;
        }
    });
}

#[test]
fn a_table_that_gets_too_small_moves() {
    run(async {
        // A table of 1 MiB has room for 128 GiB in blocks of 1 MiB.
        let (disk, file) = image(&dynamic(100 * MIB, MIB)).await;
        put(&disk, 0, 512, 1).await;
        put(&disk, 99 * MIB, MIB, 2).await;
        let before = disk.info().await.regions.bat;
        disk.resize(1 << 40).await.expect("grown");
        let after = disk.info().await.regions.bat;
        assert!(after.offset > before.offset && after.length >= 8 << 20, "{after:?}");
        put(&disk, (1 << 40) - 4096, 4096, 3).await;
        put(&disk, 200 << 30, 4096, 4).await;
        drop(disk);
        for mode in [Mode::Read, Mode::Write, Mode::Read] {
            let disk = open(&file, mode).await.expect("opened");
            holds(&disk, 0, 512, 1).await;
            holds(&disk, 99 * MIB, MIB, 2).await;
            holds(&disk, 100 * MIB, MIB, 0).await;
            assert_eq!(disk.size(), 1 << 40);
        }
        let disk = open(&file, Mode::Write).await.expect("opened");
        disk.resize(4 << 40).await.expect("grown");
        put(&disk, (4 << 40) - 512, 512, 5).await;
        disk.resize(100 * MIB).await.expect("shrunk");
        holds(&disk, 99 * MIB, MIB, 2).await;
        let size = file.size();
        disk.compact(Box::new(|_, _| {})).await.expect("compacted");
        assert!(file.size() <= size);
        disk.close().await.expect("closed");
        sound(&file).await;
    });
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    run(async {
        let (disk, _) = image(&dynamic(10 * MIB, MIB)).await;
        for size in [0, 100, DISK_SIZE_MAX + 512, u64::MAX] {
            let refused = disk.resize(size).await.expect_err("refused");
            assert_eq!(refused.kind(), ImageErrorKind::InvalidArgument);
        }
        assert_eq!(disk.size(), 10 * MIB);
        disk.resize(10 * MIB).await.expect("nothing to do");
    });
}
