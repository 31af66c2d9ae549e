//! Entries for fuzzing: every decoder over hostile bytes.

use crate::{Batch, Entry, Field, Head, Inode, LengthRecord, SnapshotRecord, Superblock};

/// All structures of a volume.
pub fn structures(bytes: &[u8]) {
    if let Ok(superblock) = Superblock::decode(bytes) {
        let _ = superblock.clusters(superblock.size);
    }
    let _ = LengthRecord::decode(bytes);
    let _ = Inode::decode(bytes);
    let _ = Entry::decode(bytes);
    let _ = SnapshotRecord::decode(bytes);
}

/// A batch of the metadata log, and what its changes say.
pub fn metadata_log(bytes: &[u8]) {
    let Ok(head) = Head::decode(bytes) else { return };
    let Ok(batch) = head.verify(bytes) else { return };
    assert_eq!(head.size(), batch.size());
    changes(&batch);
}

fn changes(batch: &Batch<'_>) {
    for change in batch.changes().flatten() {
        for part in [Some(change.key), change.value].into_iter().flatten() {
            let _ = <(u64, &str)>::whole(part);
            let _ = <(&str, &[u8])>::whole(part);
            let _ = <(u64, u32, u64)>::whole(part);
            let _ = <(u64, u64, u8)>::whole(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{OtherName, StreamRecord, layout_for};

    proptest! {
        #[test]
        fn hostile_bytes_are_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
            structures(&bytes);
        }

        #[test]
        fn records_survive_the_round_trip(name in "\\PC{0,40}", number: u64, directory: bool, streams in 0u32..5, others in 0u64..4) {
            let streams = (0..streams).map(|id| StreamRecord { id, name: format!("{name}{id}"), size: number }).collect();
            let others = if directory { 0 } else { others };
            let others = (0..others).map(|parent| OtherName { parent, name: name.clone() }).collect();
            let inode = Inode { directory, frozen: number % 2 == 0, parent: number, name: name.clone(), attributes: 32, times: [1, 2, 3, number], next_stream: 9, streams, others };
            prop_assert_eq!(Inode::decode(&inode.encode()), Ok(inode));
            let entry = Entry { file: number, directory, name };
            prop_assert_eq!(Entry::decode(&entry.encode()), Ok(entry.clone()));
            let maker = number.to_string();
            let snapshot = SnapshotRecord {
                root: number, source: 1, created: number, quiesced: directory, deleted: !directory, name: entry.name, path: maker.clone(), maker,
            };
            prop_assert_eq!(SnapshotRecord::decode(&snapshot.encode()), Ok(snapshot));
            let length = LengthRecord { number, length: number / 2 };
            prop_assert_eq!(LengthRecord::decode(&length.encode()), Ok(length));
        }
    }

    #[test]
    fn a_damaged_superblock_is_found() {
        let superblock = layout_for(64 << 20).expect("large enough");
        let block = superblock.encode();
        assert_eq!(Superblock::decode(&block), Ok(superblock));
        for at in 16..block.len() {
            let mut damaged = block.clone();
            damaged[at] ^= 0x10;
            assert!(Superblock::decode(&damaged).is_err(), "byte {at}");
        }
        assert_eq!(layout_for(1 << 20), None);
    }
}
