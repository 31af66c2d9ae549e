//! Structures come back as they were written; what cannot be is refused by name; hostile bytes do no harm.

use proptest::prelude::*;

use crate::fuzz::samples;
use crate::*;

fn sample(name: &str) -> Vec<u8> {
    samples().into_iter().find(|(known, _)| *known == name).expect("a sample").1
}

fn header() -> Header {
    Header::decode(&sample("vhdx_header")).expect("sound")
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crate::header::checksum_of(&bytes);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

#[test]
fn an_identifier_comes_back() {
    for creator in ["Holdfast", "", "ü𝄞", &"x".repeat(256)] {
        let identifier = FileIdentifier { creator: creator.into() };
        assert_eq!(FileIdentifier::decode(&identifier.encode()), Ok(identifier));
    }
    let long = FileIdentifier { creator: "y".repeat(300) };
    assert_eq!(FileIdentifier::decode(&long.encode()).map(|found| found.creator.len()), Ok(256));
    assert!(FileIdentifier::decode(b"conectix").is_err());
    assert!(FileIdentifier::decode(&[0; 4096]).is_err());
}

#[test]
fn the_header_with_the_higher_number_is_in_force() {
    let older = header();
    let newer = Header { sequence: 4, ..older };
    let damaged = || Header::decode(&[0; HEADER_SIZE]);
    assert_eq!(current_header([Ok(older), Ok(newer)]), Ok((1, newer)));
    assert_eq!(current_header([Ok(newer), Ok(older)]), Ok((0, newer)));
    assert_eq!(current_header([damaged(), Ok(older)]), Ok((1, older)));
    assert_eq!(current_header([Ok(older), damaged()]), Ok((0, older)));
    assert!(current_header([damaged(), damaged()]).is_err());
    assert_eq!(current_header([Ok(older), Ok(older)]), Ok((0, older)));
    let other = Header { log_guid: Uuid::nil(), ..older };
    assert!(current_header([Ok(older), Ok(other)]).is_err());
}

#[test]
fn headers_that_cannot_be_are_refused() {
    let good = header().encode();
    assert_eq!(Header::decode(&good), Ok(header()));
    for (at, bytes, told) in [
        (66, vec![2, 0], "header needs what is not known here"),
        (64, vec![1, 0], "header needs what is not known here"),
        (68, vec![1, 0, 0, 0], "header has an impossible length of the log"),
        (68, vec![0, 0, 0, 0], "header has an impossible length of the log"),
        (72, vec![0; 8], "header has an impossible place of the log"),
        (72, vec![0, 0, 0xf0, 0xff, 0xff, 0xff, 0xff, 0xff], "header has an impossible place of the log"),
    ] {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(&bytes);
        let error = Header::decode(&sealed(bad)).expect_err("refused").to_string();
        assert!(error.starts_with(told), "{error}");
    }
    let mut torn = good;
    torn[4000] = 1;
    assert_eq!(Header::decode(&torn).expect_err("refused").to_string(), "header fails its checksum");
}

#[test]
fn regions_that_cannot_be_are_refused() {
    let good = RegionTable {
        bat: Region { offset: 3 * MIB, length: 2 << 20 },
        metadata: Region { offset: 2 * MIB, length: 1 << 20 },
        others: vec![(Uuid::from_u128(9), Region { offset: 7 * MIB, length: 1 << 20 })],
    };
    assert_eq!(RegionTable::decode(&good.encode()), Ok(good.clone()));
    for (table, told) in [
        (
            RegionTable { metadata: Region { offset: 4 * MIB, length: 1 << 20 }, ..good.clone() },
            "they overlap",
        ),
        (RegionTable { metadata: Region { offset: 64 << 10, length: 1 << 20 }, ..good.clone() }, "region 1"),
        (RegionTable { bat: Region { offset: 3 * MIB, length: 7 }, ..good.clone() }, "region 0"),
        (RegionTable { bat: Region { offset: 3 * MIB, length: 0 }, ..good.clone() }, "length"),
        (RegionTable { bat: Region { offset: u64::MAX << 20, length: 1 << 20 }, ..good.clone() }, "length"),
    ] {
        let error = RegionTable::decode(&table.encode()).expect_err("refused").to_string();
        assert!(error.contains(told), "{error}");
    }
    // A required one that is not known: the third entry's flags.
    let mut bytes = good.encode();
    bytes[16 + 64 + 28] = 1;
    let error = RegionTable::decode(&sealed(bytes)).expect_err("refused").to_string();
    assert!(error.starts_with("region 2 needs what is not known"), "{error}");
}

fn decode_metadata(bytes: &[u8]) -> Result<Metadata, FormatError> {
    let table = MetadataTable::decode(bytes, MIB as u32)?;
    Metadata::decode(&table, |place| Ok(bytes[place.offset as usize..][..place.length as usize].to_vec()))
}

#[test]
fn metadata_comes_back_and_is_checked() {
    let metadata = decode_metadata(&sample("vhdx_metadata")).expect("sound");
    assert_eq!(metadata.disk_size, 1 << 30);
    let parent = metadata.parent.clone().expect("a parent");
    assert!(parent.is_parent(Uuid::from_u128(2)) && !parent.is_parent(Uuid::from_u128(3)));
    assert_eq!(parent.paths().collect::<Vec<_>>(), [".\\base.vhdx", "C:\\base.vhdx"]);
    let parameters = metadata.parameters;
    for (bad, told) in [
        (Metadata { disk_size: 0, ..metadata.clone() }, "virtual disk size"),
        (Metadata { disk_size: 513, ..metadata.clone() }, "virtual disk size"),
        (Metadata { disk_size: DISK_SIZE_MAX + 512, ..metadata.clone() }, "virtual disk size"),
        (Metadata { logical_sector: 1024, ..metadata.clone() }, "logical sector size"),
        (Metadata { physical_sector: 0, ..metadata.clone() }, "physical sector size"),
        (
            Metadata { parameters: FileParameters { block_size: 3 << 20, ..parameters }, ..metadata.clone() },
            "file parameters",
        ),
        (
            Metadata {
                parameters: FileParameters { block_size: 512 << 20, ..parameters },
                ..metadata.clone()
            },
            "file parameters",
        ),
        (Metadata { parent: None, ..metadata.clone() }, "parent locator"),
    ] {
        let error = decode_metadata(&bad.encode(MIB as u32).expect("fits")).expect_err("refused").to_string();
        assert!(error.starts_with(told), "{error}");
    }
    // An item over the end of the region, one over another, and the same twice.
    for (at, value, told) in [
        (32 + 16, (MIB as u32 - 4).to_le_bytes(), "metadata item 0 has an impossible place"),
        (
            32 + 16,
            (65536_u32 + 8).to_le_bytes(),
            "metadata table has an impossible pair of items: they overlap",
        ),
        (32 + 20, 0_u32.to_le_bytes(), "metadata item 0 has an impossible place"),
        (32 + 24, 5_u32.to_le_bytes(), "metadata item 0 needs what is not known"),
    ] {
        let mut bytes = metadata.encode(MIB as u32).expect("fits");
        bytes[at..at + 4].copy_from_slice(&value);
        let error = decode_metadata(&bytes).expect_err("refused").to_string();
        assert!(error.starts_with(told), "{error}");
    }
}

#[test]
fn blocks_have_their_entries() {
    let layout = |block_size, logical_sector, disk_size, has_parent| BatLayout {
        block_size,
        logical_sector,
        disk_size,
        has_parent,
    };
    assert_eq!(layout(32 << 20, 512, 1 << 40, false).chunk_ratio(), 128);
    assert_eq!(layout(2 << 20, 512, 1 << 40, false).chunk_ratio(), 2048);
    assert_eq!(layout(256 << 20, 512, 1 << 40, false).chunk_ratio(), 16);
    assert_eq!(layout(1 << 20, 4096, 1 << 40, false).chunk_ratio(), 32768);
    // The largest table is the one of the specification: 513 MiB.
    assert_eq!((layout(1 << 20, 512, DISK_SIZE_MAX, true).entries() * 8).div_ceil(MIB), 513);
    for has_parent in [false, true] {
        let layout = layout(256 << 20, 512, 40 * (256 << 20) + 512, has_parent);
        assert_eq!(layout.payload_blocks(), 41);
        assert_eq!(layout.entries(), if has_parent { 51 } else { 43 });
        let mut seen = std::collections::BTreeSet::new();
        for block in 0..41 {
            assert!(seen.insert(layout.payload_entry(block)));
            assert_eq!(layout.block_of(layout.payload_entry(block)), Some(block));
            assert_eq!(layout.block_of(layout.bitmap_entry(block)), None);
            assert_eq!(layout.bitmap_entry(block), [16, 33, 50][block as usize / 16]);
        }
        assert!(layout.fits(1 << 20).is_ok());
        assert!(layout.fits(300).is_err());
    }
}

#[test]
fn entries_of_the_table_are_checked() {
    let bad = |entry: u64| BatEntry(entry).payload_state(3, false).is_err();
    assert!(bad(4) && bad(5) && bad(7) && bad(6) && bad(MIB | 6 | 8) && !bad(MIB | 6) && !bad(3));
    assert!(BatEntry(MIB | 7).payload_state(3, true).is_ok());
    assert_eq!(BatEntry((2 * MIB) | 6).bitmap_offset(0), Ok(Some(2 * MIB)));
    assert!(BatEntry((2 * MIB) | 7).bitmap_offset(0).is_err());
    let error = BatEntry(5).payload_state(77, true).expect_err("refused").to_string();
    assert_eq!(error, "BAT entry 77 has an impossible state");
}

const LOG: Uuid = Uuid::from_u128(7);

fn entry(sequence: u64, tail: usize, fills: &[u8]) -> LogEntry {
    let data =
        |(at, fill): (usize, &u8)| Change::Data { offset: at as u64 * 4096, bytes: vec![*fill; 4096].into() };
    LogEntry {
        sequence,
        tail: tail as u32,
        log_guid: LOG,
        flushed_file_offset: 1,
        last_file_offset: sequence,
        changes: fills.iter().enumerate().map(data).collect(),
    }
}

/// Writes an entry at its place, over the log's end too. Its end.
fn put(log: &mut [u8], at: usize, entry: &LogEntry) -> usize {
    let bytes = entry.encode();
    for (within, byte) in bytes.iter().enumerate() {
        log[(at + within) % log.len()] = *byte;
    }
    (at + bytes.len()) % log.len()
}

fn empty_log() -> Vec<u8> {
    vec![0x11; MIB as usize]
}

#[test]
fn the_newest_sequence_is_replayed_from_its_tail() {
    let mut log = empty_log();
    let first = 1_000 * 1024 / 4096 * 4096;
    let second = put(&mut log, first, &entry(5, first, &[1, 2]));
    let third = put(&mut log, second, &entry(6, first, &[3; 10]));
    assert!(third < second, "it goes on at the log's beginning");
    put(&mut log, third, &entry(7, second, &[4]));
    let replay = find_replay(&log, LOG).expect("found");
    assert_eq!((replay.sequence, replay.last_file_offset, replay.changes.len()), (7, 7, 11));
    let Some(Change::Data { bytes, .. }) = replay.changes.last() else { panic!("data") };
    assert!(bytes.iter().all(|byte| *byte == 4));
    // Torn, the newest does not count, and the one before says where to begin.
    log[third + 5000] ^= 1;
    let replay = find_replay(&log, LOG).expect("found");
    assert_eq!((replay.sequence, replay.changes.len()), (6, 12));
    // Of another log, nothing counts.
    assert!(find_replay(&log, Uuid::from_u128(8)).is_err());
}

#[test]
fn a_newest_entry_whose_tail_is_gone_does_not_count() {
    let mut log = empty_log();
    put(&mut log, 0, &entry(3, 0, &[1]));
    put(&mut log, 40960, &entry(9, 20480, &[2]));
    assert_eq!(find_replay(&log, LOG).map(|replay| replay.sequence), Ok(3));
}

#[test]
fn a_hole_in_the_numbers_ends_a_sequence() {
    let mut log = empty_log();
    let next = put(&mut log, 0, &entry(3, 0, &[1]));
    put(&mut log, next, &entry(5, next, &[2]));
    let replay = find_replay(&log, LOG).expect("found");
    assert_eq!((replay.sequence, replay.changes.len()), (5, 1));
}

#[test]
fn a_log_full_of_itself_ends() {
    // Each sector says that it is an entry that follows the one before and fills the log.
    let mut log = vec![0; MIB as usize];
    for at in (0..log.len()).step_by(4096) {
        let mut sector = entry(at as u64 / 4096 + 1, at, &[]).encode();
        sector[8..12].copy_from_slice(&(MIB as u32).to_le_bytes());
        log[at..at + 4096].copy_from_slice(&sector);
    }
    assert!(find_replay(&log, LOG).is_err());
    // Sound ones all around the log, whose numbers follow each other.
    for at in (0..log.len()).step_by(4096) {
        put(&mut log, at, &entry(at as u64 / 4096 + 1, 0, &[]));
    }
    assert_eq!(find_replay(&log, LOG).map(|replay| replay.sequence), Ok(256));
}

#[test]
fn entries_have_room_for_what_they_say() {
    for len in [4096, 8192, 65536, 1 << 19] {
        let count = descriptors_in(len);
        assert!(entry_len(count, count) <= len && entry_len(count + 1, count + 1) > len, "{len}: {count}");
        assert_eq!(entry(1, 0, &vec![7; count]).encode().len(), entry_len(count, count));
    }
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let data = (0_u64..1000, any::<[u8; 16]>()).prop_map(|(at, ends)| {
        let mut bytes = vec![0x77; 4096].into_boxed_slice();
        bytes[..8].copy_from_slice(&ends[..8]);
        bytes[4088..].copy_from_slice(&ends[8..]);
        Change::Data { offset: at * 4096, bytes }
    });
    let zero =
        (0_u64..1000, 0_u64..100).prop_map(|(at, len)| Change::Zero { offset: at * 4096, len: len * 4096 });
    proptest::collection::vec(prop_oneof![data, zero], 0..200)
}

proptest! {
    #[test]
    fn entries_come_back(changes in changes(), sequence in 1_u64..) {
        let entry = LogEntry { sequence, changes, ..entry(1, 8192, &[]) };
        prop_assert_eq!(LogEntry::decode(&entry.encode(), MIB as usize), Ok(entry));
    }

    #[test]
    fn locators_come_back(pairs in proptest::collection::btree_map("[a-z_]{1,20}", "[ -~ü]{1,40}", 0..9)) {
        let locator = ParentLocator { pairs: pairs.into_iter().collect() };
        let bytes = locator.encode().expect("fits");
        prop_assert_eq!(ParentLocator::decode(&bytes), Ok(locator));
    }

    #[test]
    fn hostile_bytes_do_no_harm(
        which in 0_usize..5,
        spots in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let targets = [fuzz::header, fuzz::region, fuzz::metadata, fuzz::bat, fuzz::log];
        let mut bytes = samples()[which].1.clone();
        for (at, byte) in spots {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        targets[which](&bytes);
    }
}
