//! Structures that say what no writer says, with the checksums that they would have: who makes a hostile file makes these too.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use block_device::{BlockDevice, Durability};
use file_store::OpenFile;
use vhdx_format::{
    HEADER_OFFSETS, HEADER_SIZE, Header, ParentLocator, REGION_OFFSETS, REGION_TABLE_SIZE, Uuid,
};

use super::damage::{closed, touch};
use super::meddled::Meddled;
use super::{MIB, dynamic, holds, image, open, put, run, sound};
use crate::{CreateOptions, ImageErrorKind, Kind, Mode};

const BAT: u64 = 3 * MIB;

pub(super) async fn spoil(file: &Arc<dyn OpenFile>, offset: u64, bytes: &[u8]) {
    file.write(offset, IoBuf::copy_from(bytes).freeze(), Durability::Volatile).await.expect("written");
}

/// Gives a structure whose checksum lies at byte 4 the one that it would have.
pub(super) fn seal(bytes: &mut [u8]) {
    bytes[4..8].fill(0);
    let checksum = byte_codec::crc32c(bytes);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
}

async fn structure(file: &Arc<dyn OpenFile>, offset: u64, len: usize) -> Vec<u8> {
    file.read(offset, IoBuf::new(len)).await.expect("read").to_vec()
}

/// Any field of header, region table, metadata and log may say anything: opening, reading, writing, other sizes and compacting
/// end, with an error or without; what can be written stays an image.
#[test]
fn sealed_structures_that_say_anything_do_no_harm() {
    run(async {
        let dice = sim::Dice::new(12);
        let mut opened = 0;
        for round in 0..300 {
            let file = if round % 4 == 3 { left().await } else { closed().await };
            for _ in 0..dice.between(1, 3) {
                let areas = [
                    (HEADER_OFFSETS[0], HEADER_SIZE, 8, 80, true),
                    (HEADER_OFFSETS[1], HEADER_SIZE, 8, 80, true),
                    (REGION_OFFSETS[0], REGION_TABLE_SIZE, 8, 80, true),
                    (REGION_OFFSETS[1], REGION_TABLE_SIZE, 8, 80, true),
                    (2 * MIB, 4096, 8, 240, false),
                    (2 * MIB + 65536, 4096, 0, 80, false),
                    (BAT, 4096, 0, 140, false),
                    (MIB, 8192, 8, 128, true),
                ];
                let (start, len, from, to, sealed) = *dice.pick(&areas).expect("one");
                let mut bytes = structure(&file, start, len).await;
                let at = dice.between(from, to) as usize;
                // Low bits change what is small and likely, high ones what is large.
                bytes[at] =
                    if dice.one_in(2) { bytes[at] ^ (1 << dice.below(8)) } else { dice.number() as u8 };
                if sealed {
                    seal(&mut bytes);
                }
                spoil(&file, start, &bytes).await;
            }
            let _ = crate::check(&file).await;
            for mode in [Mode::Read, Mode::Write] {
                let Ok(disk) = open(&file, mode).await else { continue };
                opened += 1;
                if disk.size() > 64 * MIB {
                    continue;
                }
                touch(&disk, mode).await;
                if mode == Mode::Write {
                    let _ = disk.resize(8 * MIB).await;
                    let _ = disk.compact(Box::new(|_, _| {})).await;
                    if disk.close().await.is_ok() {
                        open(&file, Mode::Read).await.expect("what was closed opens");
                    }
                }
            }
        }
        assert!(opened > 100, "{opened} images opened: too few to say anything");
    });
}

/// An image that nobody has closed.
async fn left() -> Arc<dyn OpenFile> {
    let (disk, file) = image(&dynamic(16 * MIB, MIB)).await;
    put(&disk, 0, MIB, 1).await;
    disk.flush().await.expect("flushed");
    file
}

/// Entries whose state is `UNMAPPED` or `UNDEFINED` may keep their places; of `ZERO` the place means nothing.
#[test]
fn places_of_blocks_without_content_are_given_back_or_mean_nothing() {
    run(async {
        let (disk, file) = image(&dynamic(16 * MIB, MIB)).await;
        put(&disk, 0, 6 * MIB, 1).await;
        disk.close().await.expect("closed");
        let size = file.size();
        let entry = async |block: u64| {
            u64::from_le_bytes(structure(&file, BAT + block * 8, 8).await.try_into().expect("8 bytes"))
        };
        for (block, state) in [(0, 3), (1, 1)] {
            let place = entry(block).await & !(MIB - 1);
            spoil(&file, BAT + block * 8, &(place | state).to_le_bytes()).await;
        }
        // Over block 3, and nowhere.
        let other = entry(3).await & !(MIB - 1);
        spoil(&file, BAT + 2 * 8, &(other | 2).to_le_bytes()).await;
        spoil(&file, BAT + 9 * 8, &((1 << 50) | 2_u64).to_le_bytes()).await;
        sound(&file).await;
        let disk = open(&file, Mode::Write).await.expect("opened");
        holds(&disk, 0, 3 * MIB, 0).await;
        disk.compact(Box::new(|_, _| {})).await.expect("compacted");
        assert_eq!(file.size(), size - 3 * MIB);
        holds(&disk, 0, 3 * MIB, 0).await;
        holds(&disk, 3 * MIB, 3 * MIB, 1).await;
        put(&disk, 2 * MIB, 512, 2).await;
        put(&disk, 9 * MIB, 512, 2).await;
        holds(&disk, 3 * MIB, 3 * MIB, 1).await;
        disk.close().await.expect("closed");
        sound(&file).await;
    });
}

#[test]
fn regions_outside_of_the_file_are_refused() {
    run(async {
        let file = closed().await;
        for offset in REGION_OFFSETS {
            let mut bytes = structure(&file, offset, REGION_TABLE_SIZE).await;
            bytes[8] = 3;
            bytes[80..96].copy_from_slice(&Uuid::from_u128(9).to_bytes_le());
            bytes[96..104].copy_from_slice(&(900 * MIB).to_le_bytes());
            bytes[104..108].copy_from_slice(&(MIB as u32).to_le_bytes());
            seal(&mut bytes);
            spoil(&file, offset, &bytes).await;
        }
        let refused = open(&file, Mode::Read).await.err().expect("refused");
        assert!(refused.to_string().contains("beyond the file's end"), "{refused}");
    });
}

/// Items that are not known are left alone: a file with a thousand of 1 MiB does not take a GiB of memory.
#[test]
fn only_items_with_a_meaning_are_read() {
    run(async {
        let file = closed().await;
        let region = 2 * MIB;
        let mut table = structure(&file, region, 64 << 10).await;
        // The region has 1 MiB: an item that is not known takes what is left of it.
        let count = u16::from_le_bytes([table[10], table[11]]);
        let at = 32 + 32 * usize::from(count);
        table[10..12].copy_from_slice(&(count + 1).to_le_bytes());
        table[at..at + 16].copy_from_slice(&Uuid::from_u128(77).to_bytes_le());
        table[at + 16..at + 20].copy_from_slice(&(128_u32 << 10).to_le_bytes());
        table[at + 20..at + 24].copy_from_slice(&(896_u32 << 10).to_le_bytes());
        spoil(&file, region, &table).await;
        let meddled = Meddled::new(file);
        let file: Arc<dyn OpenFile> = Arc::clone(&meddled) as Arc<dyn OpenFile>;
        open(&file, Mode::Read).await.expect("opened");
        let read = meddled.read.load(Ordering::Relaxed);
        assert!(read < 512 << 10, "{read} bytes were read");
    });
}

/// What a file says of its parent is shown to people on terminals.
#[test]
fn errors_have_no_control_characters() {
    run(async {
        let mut locator = ParentLocator::new(Uuid::from_u128(1), "\x1b[2Jpath\u{9b}", None);
        locator.pairs[0].1 = "\x1b]0;title\x07".into();
        let parent = closed().await;
        let options = CreateOptions::new(16 * MIB, Kind::Differencing(locator));
        let (file, entropy) =
            (super::memory_file(&file_store::MemoryStore::new(1 << 50), "c").await, super::entropy());
        crate::create(&file, &options, &*entropy).await.expect("made");
        let parent = open(&parent, Mode::Read).await.expect("opened");
        let refused = super::open_over(&file, Mode::Read, Some(parent)).await.err().expect("refused");
        assert_eq!(refused.kind(), ImageErrorKind::Parent);
        let told = refused.to_string();
        assert!(told.contains("title") && !told.contains(char::is_control), "{told:?}");
    });
}

/// Whoever replays a log changes the file.
#[test]
fn a_log_that_is_replayed_gives_the_file_another_id() {
    run(async {
        let file = left().await;
        let before = open(&file, Mode::Read).await.expect("opened").info().await.header;
        let after = open(&file, Mode::Write).await.expect("opened").info().await.header;
        assert!(after.log_guid.is_nil() && after.file_write_guid != before.file_write_guid, "{after:?}");
        assert_eq!(after.data_write_guid, before.data_write_guid);
        for offset in HEADER_OFFSETS {
            let header = Header::decode(&structure(&file, offset, HEADER_SIZE).await).expect("sound");
            assert!(header.log_guid.is_nil(), "a header still leads to the log: {header:?}");
        }
        sound(&file).await;
    });
}
