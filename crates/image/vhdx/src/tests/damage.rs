//! Damaged and hostile files: refused with the place named; where one of two copies is sound, used.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Durability};
use file_store::OpenFile;

use super::sealed::spoil;
use super::{MIB, dynamic, holds, image, open, put, run};
use crate::{Image, ImageErrorKind, Mode};

async fn refused(file: &Arc<dyn OpenFile>, mode: Mode, told: &str) {
    let error = open(file, mode).await.err().expect("refused");
    assert!(error.to_string().contains(told), "{error}");
}

pub(super) async fn closed() -> Arc<dyn OpenFile> {
    let (disk, file) = image(&dynamic(16 * MIB, MIB)).await;
    put(&disk, 0, MIB, 1).await;
    put(&disk, 5 * MIB, MIB, 2).await;
    disk.close().await.expect("closed");
    file
}

const BAT: u64 = 3 * MIB;

#[test]
fn what_is_no_image_is_named_so() {
    run(async {
        let file = super::memory_file(&file_store::MemoryStore::new(1 << 50), "f").await;
        for content in [&b""[..], b"vhdxfil", b"QFI\xfb and more"] {
            file.set_size(0).await.expect("cut");
            spoil(&file, 0, content).await;
            let error = open(&file, Mode::Read).await.err().expect("refused");
            assert_eq!(error.kind(), ImageErrorKind::NotAnImage, "{error}");
        }
    });
}

#[test]
fn one_of_two_copies_is_enough() {
    run(async {
        for (first, second) in [(64 << 10, 128 << 10), (192 << 10, 256 << 10)] {
            for one in [first, second] {
                let file = closed().await;
                spoil(&file, one + 100, &[0xff; 64]).await;
                let report = crate::check(&file).await.expect("an image");
                assert_eq!((report.error_count, report.warnings.len()), (0, 1), "{report:?}");
                let disk = open(&file, Mode::Write).await.expect("opened");
                holds(&disk, 5 * MIB, MIB, 2).await;
                put(&disk, 7 * MIB, 512, 3).await;
                disk.close().await.expect("closed");
                holds(&open(&file, Mode::Read).await.expect("opened"), 7 * MIB, 512, 3).await;
            }
            let file = closed().await;
            spoil(&file, first + 100, &[0xff; 64]).await;
            spoil(&file, second + 100, &[0xff; 64]).await;
            refused(&file, Mode::Read, "fails its checksum").await;
        }
    });
}

#[test]
fn entries_that_lead_where_no_block_is_are_refused() {
    run(async {
        for (entry, told) in [
            (6_u64, "an impossible place"),
            (MIB | 6, "lies in a region"),
            ((2 * MIB) | 6, "lies in a region"),
            ((3 * MIB) | 6, "lies in a region"),
            ((500 * MIB) | 6, "lies beyond the file's end"),
            ((u64::MAX << 20) | 6, "is nowhere"),
            ((5 * MIB) | 7, "an impossible state"),
            ((5 * MIB) | 4, "an impossible state"),
            ((5 * MIB) | 0x16, "an impossible reserved bit"),
        ] {
            let file = closed().await;
            spoil(&file, BAT + 3 * 8, &entry.to_le_bytes()).await;
            refused(&file, Mode::Write, told).await;
            // To be read, only what leads there is refused.
            let disk = open(&file, Mode::Read).await.expect("opened");
            holds(&disk, 0, MIB, 1).await;
            assert!(disk.read(3 * MIB, IoBuf::new(512)).await.is_err());
            let report = crate::check(&file).await.expect("an image");
            assert!(report.error_count == 1 && report.errors[0].contains(told), "{report:?}");
        }
        // Two blocks in one place.
        let file = closed().await;
        let first = file.read(BAT, IoBuf::new(8)).await.expect("read").to_vec();
        spoil(&file, BAT + 3 * 8, &first).await;
        refused(&file, Mode::Write, "where another block is").await;
        assert_eq!(crate::check(&file).await.expect("an image").error_count, 1);
    });
}

#[test]
fn a_file_that_was_cut_is_noticed() {
    run(async {
        for size in [5 * MIB, 4 * MIB + 1, 3 * MIB, 2 * MIB, MIB, 300 << 10, 200 << 10, 100 << 10, 10] {
            let file = closed().await;
            file.set_size(size).await.expect("cut");
            let error = open(&file, Mode::Write).await.err().expect("refused");
            assert!(!error.to_string().is_empty());
        }
        // Also what a log says was there.
        let (disk, file) = image(&dynamic(16 * MIB, MIB)).await;
        put(&disk, 0, MIB, 1).await;
        disk.flush().await.expect("flushed");
        drop(disk);
        file.set_size(4 * MIB).await.expect("cut");
        refused(&file, Mode::Read, "it was cut").await;
    });
}

#[test]
fn a_log_that_should_be_there_is_missed() {
    run(async {
        let (disk, file) = image(&dynamic(16 * MIB, MIB)).await;
        put(&disk, 0, MIB, 1).await;
        disk.flush().await.expect("flushed");
        drop(disk);
        spoil(&file, MIB, &[0; 4096]).await;
        refused(&file, Mode::Read, "log has an impossible content").await;
        refused(&file, Mode::Write, "log has an impossible content").await;
    });
}

/// Any byte of what is looked at first may be anything: opening and reading end, with an error or without.
#[test]
fn spoiled_bytes_do_no_harm() {
    run(async {
        let dice = sim::Dice::new(11);
        for _ in 0..300 {
            let file = closed().await;
            for _ in 0..dice.between(1, 3) {
                let areas = [
                    (64 << 10, 100),
                    (128 << 10, 100),
                    (192 << 10, 100),
                    (2 * MIB, 200),
                    (2 * MIB + 65536, 80),
                    (BAT, 140),
                ];
                let (start, len) = *dice.pick(&areas).expect("one");
                spoil(&file, start + dice.below(len), &[dice.number() as u8]).await;
            }
            let _ = crate::check(&file).await;
            for mode in [Mode::Read, Mode::Write] {
                if let Ok(disk) = open(&file, mode).await {
                    touch(&disk, mode).await;
                }
            }
        }
    });
}

pub(super) async fn touch(disk: &Image, mode: Mode) {
    let sector = u64::from(disk.geometry().block_size);
    for block in 0..17 {
        let _ = disk.read(block * MIB, IoBuf::new(sector as usize)).await;
        if mode == Mode::Write {
            let data = IoBuf::zeroed(sector as usize).freeze();
            let _ = disk.write(block * MIB, data, Durability::Durable).await;
        }
    }
}
