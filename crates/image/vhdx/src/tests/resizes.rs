//! Other sizes: in the table's region, with another region, both ways, of each kind.

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, BlockErrorKind, Durability};
use vhdx_format::{DISK_SIZE_MAX, REGION_OFFSETS, REGION_TABLE_SIZE};

use super::sealed::{seal, spoil};
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
        let table = u64::from(disk.info().await.regions.bat.length);
        disk.resize(100 * MIB).await.expect("shrunk");
        holds(&disk, 99 * MIB, MIB, 2).await;
        disk.compact(Box::new(|_, _| {})).await.expect("compacted");
        // The table stays where it moved to; before it lie the file's beginning, log, metadata and two blocks, and free space.
        let bat = disk.info().await.regions.bat;
        assert_eq!((u64::from(bat.length), file.size()), (table, bat.end()));
        disk.close().await.expect("closed");
        sound(&file).await;
    });
}

/// The checksum of a region table is over all of its 64 KiB, whatever lies behind its entries.
#[test]
fn a_table_moves_whatever_lies_behind_the_entries_of_the_region_table() {
    run(async {
        let (disk, file) = image(&dynamic(100 * MIB, MIB)).await;
        put(&disk, 99 * MIB, MIB, 2).await;
        disk.close().await.expect("closed");
        for offset in REGION_OFFSETS {
            let mut table = file.read(offset, IoBuf::new(REGION_TABLE_SIZE)).await.expect("read").to_vec();
            table[60 << 10] = 1;
            seal(&mut table);
            spoil(&file, offset, &table).await;
        }
        for closes in [true, false] {
            let disk = open(&file, Mode::Write).await.expect("opened");
            disk.resize(if closes { 1 << 40 } else { 4 << 40 }).await.expect("grown");
            if closes {
                disk.close().await.expect("closed");
                sound(&file).await;
            }
        }
        holds(&open(&file, Mode::Read).await.expect("opened"), 99 * MIB, MIB, 2).await;
        holds(&open(&file, Mode::Write).await.expect("opened"), 99 * MIB, MIB, 2).await;
    });
}

#[test]
fn a_fixed_disk_that_shrinks_gives_its_space_back() {
    run(async {
        let (disk, file) = image(&CreateOptions { kind: Kind::Fixed, ..dynamic(20 * MIB, MIB) }).await;
        put(&disk, 0, 20 * MIB, 1).await;
        let before = file.size();
        disk.resize(5 * MIB).await.expect("shrunk");
        assert_eq!(file.size(), before - 15 * MIB);
        disk.resize(8 * MIB).await.expect("grown");
        holds(&disk, 0, 5 * MIB, 1).await;
        holds(&disk, 5 * MIB, 3 * MIB, 0).await;
        disk.close().await.expect("closed");
        sound(&file).await;
    });
}

/// What a growing that was interrupted has left behind the last block.
#[test]
fn compacting_a_fixed_disk_cuts_what_nothing_leads_to() {
    run(async {
        let (disk, file) = image(&CreateOptions { kind: Kind::Fixed, ..dynamic(20 * MIB, MIB) }).await;
        put(&disk, 10 * MIB, MIB, 1).await;
        disk.close().await.expect("closed");
        let before = file.size();
        file.set_size(before + 30 * MIB).await.expect("longer");
        let disk = open(&file, Mode::Write).await.expect("opened");
        disk.compact(Box::new(|_, _| {})).await.expect("compacted");
        assert_eq!(file.size(), before);
        holds(&disk, 0, 10 * MIB, 0).await;
        holds(&disk, 10 * MIB, MIB, 1).await;
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

/// What was asked for while the disk was larger, and waits for its turn, finds the smaller one.
#[test]
fn what_waits_while_a_disk_shrinks_does_not_reach_behind_its_end() {
    run(async {
        for kind in [Kind::Dynamic, Kind::Fixed] {
            let (disk, file) = image(&CreateOptions { kind, ..dynamic(10 * MIB, MIB) }).await;
            let held = disk.inner.shape.write().await;
            let data = || IoBuf::copy_from(&[7; 512]).freeze();
            let all = async {
                tokio::join!(
                    disk.resize(5 * MIB),
                    disk.write(8 * MIB, data(), Durability::Durable),
                    disk.write_zeroes(5 * MIB, MIB, Durability::Durable),
                    disk.unmap(4 * MIB, 2 * MIB),
                    disk.read(9 * MIB, IoBuf::new(512)),
                    disk.write(4 * MIB, data(), Durability::Durable),
                )
            };
            let goes = async {
                tokio::task::yield_now().await;
                drop(held);
            };
            let ((resized, written, zeroed, unmapped, read, within), ()) = tokio::join!(all, goes);
            resized.expect("shrunk");
            within.expect("written");
            let told = [written.err(), zeroed.err(), unmapped.err(), read.err()];
            let told = told.map(|error| error.map(|error| error.kind()));
            assert_eq!(told, [Some(BlockErrorKind::OutOfRange); 4]);
            disk.resize(10 * MIB).await.expect("grown");
            holds(&disk, 4 * MIB, 512, 7).await;
            holds(&disk, 5 * MIB, 5 * MIB, 0).await;
            disk.close().await.expect("closed");
            sound(&file).await;
        }
    });
}

/// The second growing has looked at the size before the first one was done.
#[test]
fn of_two_growings_at_once_the_larger_one_stays() {
    run(async {
        for kind in [Kind::Dynamic, Kind::Fixed] {
            let (disk, file) = image(&CreateOptions { kind, ..dynamic(10 * MIB, MIB) }).await;
            let held = disk.inner.shape.write().await;
            let goes = async {
                tokio::task::yield_now().await;
                drop(held);
            };
            let (larger, smaller, ()) =
                tokio::join!(disk.grow(30 * MIB, || true), disk.grow(20 * MIB, || true), goes);
            larger.expect("grown");
            assert_eq!(smaller.expect_err("refused").kind(), ImageErrorKind::InvalidArgument);
            assert_eq!(disk.size(), 30 * MIB);
            put(&disk, 25 * MIB, MIB, 1).await;
            disk.grow(30 * MIB, || true).await.expect("nothing to do");
            holds(&disk, 25 * MIB, MIB, 1).await;
            disk.close().await.expect("closed");
            sound(&file).await;
        }
    });
}

#[test]
fn a_growing_that_is_not_wanted_any_more_leaves_the_disk_as_it_was() {
    run(async {
        for kind in [Kind::Dynamic, Kind::Fixed] {
            let (disk, file) = image(&CreateOptions { kind, ..dynamic(10 * MIB, MIB) }).await;
            put(&disk, 9 * MIB, MIB, 1).await;
            disk.flush().await.expect("flushed");
            let before = file.size();
            let left = std::cell::Cell::new(10_u32);
            let wanted = move || {
                left.set(left.get().saturating_sub(1));
                left.get() > 0
            };
            let told = disk.grow(4 << 40, wanted).await.expect_err("cancelled");
            assert_eq!((told.kind(), disk.size()), (ImageErrorKind::Cancelled, 10 * MIB));
            assert_eq!(file.size(), before, "what was taken for it is given back");
            holds(&disk, 9 * MIB, MIB, 1).await;
            disk.close().await.expect("closed");
            sound(&file).await;
        }
    });
}
