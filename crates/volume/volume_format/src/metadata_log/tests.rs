//! Batches that come back as they were, and those that are torn, damaged, newer or made up.

use byte_codec::{Checksum, crc32c};
use proptest::prelude::*;

use super::*;

const LIMIT: usize = 64 << 10;

fn decode(bytes: &[u8]) -> Result<Batch<'_>, DecodeError> {
    Head::decode(bytes)?.verify(bytes)
}

fn id(sequence: u64) -> BatchId {
    BatchId { guid: [7; 16], epoch: 3, nonce: 5, sequence }
}

fn sample() -> Vec<u8> {
    let mut writer = BatchWriter::new(LIMIT);
    writer.put(Table::Entries, &(5u64, "NAME"), &&b"value"[..]);
    writer.remove(Table::Extents, &(1u64, 2u32, 3u64));
    writer.put(Table::Orphans, &9u64, &());
    writer.seal(&id(11)).expect("it fits").to_vec()
}

#[test]
fn a_batch_says_what_was_put_in() {
    let bytes = sample();
    let batch = decode(&bytes).expect("sound");
    assert_eq!((batch.id, batch.size()), (id(11), BLOCK));
    let head = Head::decode(&bytes[..HEAD]).expect("a head");
    assert_eq!((head.id, head.size()), (id(11), BLOCK));
    let changes = batch.changes().collect::<Result<Vec<_>, _>>().expect("changes");
    assert_eq!(changes.len(), 3);
    assert_eq!(<(u64, &str)>::whole(changes[0].key), Ok((5, "NAME")));
    assert_eq!(changes[0].value.map(<&[u8]>::whole), Some(Ok(&b"value"[..])));
    assert_eq!((changes[1].table, changes[1].value), (Table::Extents, None));
    assert_eq!(<(u64, u32, u64)>::whole(changes[1].key), Ok((1, 2, 3)));
    assert_eq!(changes[2].value.map(<()>::whole), Some(Ok(())));
}

#[test]
fn a_damaged_or_torn_batch_is_found() {
    let bytes = sample();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(decode(&damaged).is_err(), "byte {at}");
        assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn what_is_too_much_for_a_batch_takes_no_memory() {
    let mut writer = BatchWriter::new(LIMIT);
    for n in 0..1000u64 {
        writer.put(Table::Security, &n, &&[1u8; 1000][..]);
    }
    assert!(writer.is_overflown() && writer.changes() == 1000 && writer.bytes.capacity() < 4 * LIMIT);
    assert_eq!(writer.seal(&id(1)), None);
    writer.clear();
    writer.remove(Table::Security, &1u64);
    assert!(writer.seal(&id(1)).is_some_and(|bytes| decode(bytes).is_ok()));
}

/// A block that ends with its own checksum would always have this one.
#[test]
fn the_checksums_of_blocks_with_different_batches_differ() {
    for below in [Checksum::Crc32c, Checksum::Xxh3] {
        let sums: std::collections::BTreeSet<u32> = (0..1000)
            .map(|sequence| {
                let mut writer = BatchWriter::new(LIMIT);
                writer.put(Table::Freed, &sequence, &1u64);
                let mut block = writer.seal(&id(sequence)).expect("it fits").to_vec();
                block.resize(BLOCK as usize, 0);
                below.of(&block)
            })
            .collect();
        assert_eq!(sums.len(), 1000);
    }
}

/// Rows that end with their own CRC-32C, as those of SMB opens: a change of one leaves a CRC-32C of what it is in as it was.
fn sealed_rows(random: &mut impl FnMut() -> u64, sequence: u64) -> Vec<u8> {
    let mut writer = BatchWriter::new(LIMIT);
    for key in 0u64..20 {
        let mut row = vec![0x5a; 300];
        row.extend_from_slice(&random().to_le_bytes());
        row.extend_from_slice(&crc32c(&row).to_le_bytes());
        writer.put(Table::State, &("opens", &key.to_le_bytes()[..]), &row.as_slice());
    }
    let mut bytes = writer.seal(&id(sequence)).expect("it fits").to_vec();
    bytes.resize(bytes.len().next_multiple_of(BLOCK as usize), 0);
    bytes
}

#[test]
fn a_torn_batch_does_not_pass_whatever_its_rows_and_those_of_the_former_one_end_with() {
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 11
    };
    let mut torn = 0;
    for round in 0..50 {
        let former = sealed_rows(&mut random, 2 * round);
        let whole = sealed_rows(&mut random, 2 * round + 1);
        assert_eq!(former.len(), whole.len());
        for tear in (512..whole.len()).step_by(512) {
            for (front, back) in [(&whole, &former), (&former, &whole)] {
                let mixed = [&front[..tear], &back[tear..]].concat();
                // What is behind the last row says nothing.
                let said = HEAD + Head::decode(front).expect("a head").length as usize;
                let same = mixed[..said] == front[..said];
                assert!(same || decode(&mixed).is_err(), "round {round}, torn at byte {tear}");
                torn += u32::from(!same);
            }
        }
    }
    assert!(torn > 1000, "{torn}");
}

#[test]
fn a_newer_version_is_named() {
    let mut bytes = sample();
    bytes[COVERED_FROM] = 2;
    let sum = xxh3(&bytes[COVERED_FROM..]);
    bytes[CHECKSUM_AT..COVERED_FROM].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(decode(&bytes), Err(DecodeError::Unsupported(2)));
}

proptest! {
    #[test]
    fn changes_survive_the_round_trip(rows in proptest::collection::vec((0usize..13, any::<u64>(), "\\PC{0,20}", proptest::option::of(proptest::collection::vec(any::<u8>(), 0..50))), 0..40)) {
        let mut writer = BatchWriter::new(LIMIT);
        for (table, number, text, value) in &rows {
            let (table, key) = (Table::ALL[*table], (*number, text.as_str()));
            match value {
                Some(value) => writer.put(table, &key, &value.as_slice()),
                None => writer.remove(table, &key),
            }
        }
        let bytes = writer.seal(&id(1)).expect("it fits").to_vec();
        let changes = decode(&bytes).expect("sound").changes().collect::<Result<Vec<_>, _>>().expect("changes");
        prop_assert_eq!(changes.len(), rows.len());
        let mut again = BatchWriter::new(LIMIT);
        changes.iter().for_each(|change| again.copy(change));
        prop_assert_eq!(again.seal(&id(1)), Some(bytes.as_slice()));
        for (change, (table, number, text, value)) in changes.iter().zip(&rows) {
            prop_assert_eq!(change.table, Table::ALL[*table]);
            prop_assert_eq!(<(u64, &str)>::whole(change.key), Ok((*number, text.as_str())));
            let found = change.value.map(<&[u8]>::whole).transpose().expect("bytes");
            prop_assert_eq!(found, value.as_deref());
        }
    }

    #[test]
    fn hostile_bytes_behind_a_sound_checksum_are_refused_without_panic(payload in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut writer = BatchWriter::new(LIMIT);
        writer.bytes.extend_from_slice(&payload);
        let bytes = writer.seal(&id(1)).expect("it fits").to_vec();
        if let Ok(batch) = decode(&bytes) {
            prop_assert!(batch.changes().count() <= payload.len() + 1);
        }
    }
}
