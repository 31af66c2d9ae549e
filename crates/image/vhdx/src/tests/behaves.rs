//! What each kind does with what is written, zeroed, unmapped; that it is all there after closing, and after not closing.

use block_device::{BlockDevice, BlockErrorKind, Durability};
use vhdx_format::{BLOCK_SIZE_MAX, DISK_SIZE_MAX};

use super::{MIB, dynamic, holds, image, open, put, run, sound};
use crate::{CreateOptions, ImageErrorKind, Kind, Mode};

#[test]
fn what_is_written_is_there_after_closing() {
    run(async {
        for (sector, block) in
            [(512, MIB), (512, 32 * MIB), (4096, 2 * MIB), (512, u64::from(BLOCK_SIZE_MAX))]
        {
            let size = (2 * block).max(300 * MIB);
            let options = CreateOptions { logical_sector: sector, ..dynamic(size, block) };
            let (disk, file) = image(&options).await;
            assert!(file.size() < 8 * MIB, "a new one is small");
            put(&disk, 3 * block / 2, 8192, 1).await;
            put(&disk, size - 4096, 4096, 2).await;
            put(&disk, block - 4096, 8192, 3).await;
            disk.close().await.expect("closed");
            sound(&file).await;
            let disk = open(&file, Mode::Read).await.expect("opened");
            let info = disk.info().await;
            assert!(
                !info.had_log && info.metadata.logical_sector == sector && info.metadata.disk_size == size
            );
            holds(&disk, 3 * block / 2, 8192, 1).await;
            holds(&disk, 3 * block / 2 + 8192, 8192, 0).await;
            holds(&disk, size - 4096, 4096, 2).await;
            holds(&disk, block - 4096, 8192, 3).await;
            holds(&disk, 0, 4096, 0).await;
        }
    });
}

#[test]
fn an_image_that_was_not_closed_is_read_through_its_log_and_then_replayed() {
    run(async {
        let (disk, file) = image(&dynamic(64 * MIB, MIB)).await;
        for block in 0..20 {
            put(&disk, block * 3 * MIB, 4096, block as u8 + 1).await;
            disk.flush().await.expect("flushed");
        }
        drop(disk);
        let before = file.size();
        for mode in [Mode::Read, Mode::Read, Mode::Write] {
            let disk = open(&file, mode).await.expect("opened");
            assert!(disk.info().await.had_log);
            for block in 0..20 {
                holds(&disk, block * 3 * MIB, 4096, block as u8 + 1).await;
                holds(&disk, block * 3 * MIB + 4096, 4096, 0).await;
            }
        }
        assert_eq!(file.size(), before);
        assert!(!open(&file, Mode::Read).await.expect("opened").info().await.had_log);
        sound(&file).await;
    });
}

#[test]
fn unflushed_blocks_may_go_and_durable_ones_stay() {
    run(async {
        let (disk, file) = image(&dynamic(64 * MIB, MIB)).await;
        put(&disk, 0, 4096, 1).await;
        let data = aligned_buffer::IoBuf::copy_from(&[2; 512]).freeze();
        disk.write(5 * MIB, data, Durability::Durable).await.expect("written");
        put(&disk, 9 * MIB, 4096, 3).await;
        drop(disk);
        let disk = open(&file, Mode::Write).await.expect("opened");
        holds(&disk, 5 * MIB, 512, 2).await;
        holds(&disk, 0, 4096, 1).await;
        // Nothing led to it yet; the next to get its place must not see what is there.
        holds(&disk, 9 * MIB, 4096, 0).await;
        put(&disk, 20 * MIB + 8192, 4096, 4).await;
        holds(&disk, 20 * MIB, 8192, 0).await;
        disk.close().await.expect("closed");
        sound(&file).await;
    });
}

#[test]
fn a_dynamic_disk_gives_space_back_and_uses_it_again() {
    run(async {
        let (disk, file) = image(&dynamic(64 * MIB, MIB)).await;
        for block in 0..8 {
            put(&disk, block * MIB, MIB, 7).await;
        }
        disk.flush().await.expect("flushed");
        let full = file.size();
        for round in 0..5 {
            disk.unmap(0, 8 * MIB).await.expect("unmapped");
            holds(&disk, 0, 8 * MIB, 0).await;
            disk.flush().await.expect("flushed");
            for block in 20..28 {
                put(&disk, block * MIB + 4096, 4096, round).await;
                holds(&disk, block * MIB, 4096, 0).await;
                holds(&disk, block * MIB + 8192, MIB - 8192, 0).await;
            }
            disk.unmap(20 * MIB, 8 * MIB).await.expect("unmapped");
            for block in 0..8 {
                put(&disk, block * MIB, 512, 8).await;
                holds(&disk, block * MIB + 512, MIB - 512, 0).await;
            }
            disk.flush().await.expect("flushed");
        }
        assert!(file.size() <= full + 8 * MIB, "{} after {full}", file.size());
        // Zeros in a part of a block, and in a whole one.
        put(&disk, 40 * MIB, MIB, 9).await;
        disk.write_zeroes(40 * MIB + 4096, 512, Durability::Durable).await.expect("zeroed");
        holds(&disk, 40 * MIB, 4096, 9).await;
        holds(&disk, 40 * MIB + 4096, 512, 0).await;
        holds(&disk, 40 * MIB + 4608, 4096, 9).await;
        disk.close().await.expect("closed");
        sound(&file).await;
    });
}

#[test]
fn a_fixed_disk_keeps_its_space() {
    run(async {
        let options = CreateOptions { kind: Kind::Fixed, ..dynamic(20 * MIB, 4 * MIB) };
        let (disk, file) = image(&options).await;
        let size = file.size();
        assert!(size >= 24 * MIB);
        put(&disk, 0, 8 * MIB, 1).await;
        disk.unmap(0, 4 * MIB).await.expect("unmapped");
        holds(&disk, 0, 4 * MIB, 0).await;
        holds(&disk, 4 * MIB, 4 * MIB, 1).await;
        let compacted = disk.compact(Box::new(|_, _| {})).await.expect("compacted");
        assert_eq!((compacted.before, compacted.after), (size, size));
        disk.close().await.expect("closed");
        assert_eq!(file.size(), size);
        sound(&file).await;
    });
}

#[test]
fn compacting_leaves_what_is_not_zeros() {
    run(async {
        let (disk, file) = image(&dynamic(128 * MIB, 2 * MIB)).await;
        for block in 0..40 {
            put(&disk, block * 2 * MIB, 2 * MIB, if block % 3 == 0 { 0 } else { block as u8 }).await;
        }
        for block in [1, 2, 10, 20] {
            disk.unmap(block * 2 * MIB, 2 * MIB).await.expect("unmapped");
        }
        let id = disk.info().await.header.data_write_guid;
        let done = disk.compact(Box::new(|_, _| {})).await.expect("compacted");
        assert_eq!(done.before, file.size() + (14 + 4) * 2 * MIB);
        assert_eq!(done.after, file.size());
        let read = async |disk: &crate::Image| {
            for block in 0..40 {
                let gone = block % 3 == 0 || [1, 2, 10, 20].contains(&block);
                holds(disk, block * 2 * MIB, 2 * MIB, if gone { 0 } else { block as u8 }).await;
            }
        };
        read(&disk).await;
        put(&disk, 0, 4096, 99).await;
        disk.close().await.expect("closed");
        sound(&file).await;
        let disk = open(&file, Mode::Read).await.expect("opened");
        holds(&disk, 0, 4096, 99).await;
        put_fails(&disk).await;
        assert_eq!(disk.info().await.header.data_write_guid, id);
    });
}

async fn put_fails(disk: &crate::Image) {
    let data = aligned_buffer::IoBuf::zeroed(4096).freeze();
    let refused = disk.write(0, data, Durability::Volatile).await.expect_err("refused");
    assert_eq!(refused.kind(), BlockErrorKind::ReadOnly);
}

#[test]
fn more_is_changed_than_a_log_holds() {
    run(async {
        // Blocks of 1 MiB, 512 in each sector of the table.
        let (disk, file) = image(&dynamic(1 << 40, MIB)).await;
        for sector in 0..400 {
            put(&disk, sector * 512 * MIB, 512, sector as u8 | 1).await;
        }
        disk.flush().await.expect("flushed");
        drop(disk);
        let disk = open(&file, Mode::Read).await.expect("opened");
        for sector in 0..400 {
            holds(&disk, sector * 512 * MIB, 512, sector as u8 | 1).await;
        }
    });
}

#[test]
fn disks_that_cannot_be_are_not_made() {
    run(async {
        let store = file_store::MemoryStore::new(1 << 50);
        let entropy = shard_runtime::SeededEntropy::new(1);
        let good = dynamic(MIB, MIB);
        for (number, bad) in [
            CreateOptions { size: 0, ..good.clone() },
            CreateOptions { size: 513, ..good.clone() },
            CreateOptions { size: DISK_SIZE_MAX + 512, ..good.clone() },
            CreateOptions { block_size: Some(3 << 20), ..good.clone() },
            CreateOptions { block_size: Some(512 << 10), ..good.clone() },
            CreateOptions { block_size: Some(512 << 20), ..good.clone() },
            CreateOptions { logical_sector: 520, ..good.clone() },
            CreateOptions { logical_sector: 4096, physical_sector: 512, ..good.clone() },
        ]
        .into_iter()
        .enumerate()
        {
            let file = super::memory_file(&store, &format!("bad{number}")).await;
            let refused = crate::create(&file, &bad, &entropy).await.expect_err("refused");
            assert_eq!(refused.kind(), ImageErrorKind::InvalidArgument, "{bad:?}");
        }
        let file = super::memory_file(&store, "twice").await;
        crate::create(&file, &good, &entropy).await.expect("made");
        assert!(crate::create(&file, &good, &entropy).await.is_err(), "what is there stays");
    });
}
