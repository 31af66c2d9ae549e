//! Round trips, damage and hostile bytes.

use proptest::prelude::*;

use super::*;

fn disk(id: u32) -> DiskRecord {
    DiskRecord {
        id: DiskId(id),
        guid: Guid([id as u8; 16]),
        usage: DiskUse::Active,
        metadata: true,
        slab_count: 8,
        data_start: 4 << 20,
        size: 1 << 30,
        media: 1,
        enclosure: "e1".into(),
        slot: "3".into(),
        node: String::new(),
        model: "model".into(),
        serial: "serial".into(),
    }
}

fn space(id: u32) -> SpaceRecord {
    SpaceRecord {
        id: SpaceId(id),
        guid: Guid([9; 16]),
        name: format!("space{id}"),
        resiliency: Resiliency::Mirror(2),
        provisioning: Provisioning::Thin,
        columns: 1,
        interleave: 262_144,
        size: 1 << 30,
        checksum: [None, Some(Checksum::Crc32c), Some(Checksum::Xxh3)][id as usize % 3],
    }
}

fn change() -> impl Strategy<Value = Change> {
    let copy = (0u32..4, 0u32..8, any::<u64>()).prop_map(|(disk, slab, stale)| CopyRecord {
        disk: DiskId(disk),
        slab,
        stale,
    });
    let row = (0u32..2, 0u32..3);
    prop_oneof![
        (0u32..4).prop_map(|id| Change::PutDisk(disk(id))),
        (0u32..4).prop_map(|id| Change::RemoveDisk(DiskId(id))),
        (0u32..2).prop_map(|id| Change::PutSpace(space(id))),
        (0u32..2).prop_map(|id| Change::DeleteSpace(SpaceId(id))),
        (row.clone(), proptest::collection::vec(copy.clone(), 0..4)).prop_map(|((s, row), copies)| {
            let record = RowRecord { columns: vec![ColumnRecord { copies, ..ColumnRecord::default() }] };
            Change::PutRow { space: SpaceId(s), row, record }
        }),
        row.clone().prop_map(|(s, row)| Change::FreeRow { space: SpaceId(s), row }),
        (row.clone(), any::<u64>()).prop_map(|((s, row), mask)| Change::Dirty {
            space: SpaceId(s),
            row,
            column: 0,
            mask
        }),
        (row.clone(), any::<u64>()).prop_map(|((s, row), mask)| Change::Clean {
            space: SpaceId(s),
            row,
            column: 0,
            mask
        }),
        (row.clone(), 0u32..4, any::<u64>()).prop_map(|((s, row), d, mask)| Change::MarkStale {
            space: SpaceId(s),
            row,
            column: 0,
            disk: DiskId(d),
            mask
        }),
        (row.clone(), 0u32..4, any::<u64>()).prop_map(|((s, row), d, mask)| Change::ClearStale {
            space: SpaceId(s),
            row,
            column: 0,
            disk: DiskId(d),
            mask
        }),
        (row.clone(), copy).prop_map(|((s, row), copy)| Change::AddCopy {
            space: SpaceId(s),
            row,
            column: 0,
            copy
        }),
        (1u64..5, 0u64..9).prop_map(|(started, bytes)| {
            Change::Scrub(ScrubRecord { started, bytes, ..ScrubRecord::default() })
        }),
        (0u32..4, 1u64..5, 0u64..9).prop_map(|(disk, epoch, seq)| Change::Mark {
            disk: DiskId(disk),
            mark: Mark { epoch: Epoch(epoch), seq: Seq(seq) }
        }),
        (row.clone(), proptest::collection::vec((0u16..40, any::<u8>()), 0..5)).prop_map(
            |((s, row), pages)| { Change::Generations { space: SpaceId(s), row, column: 0, pages } }
        ),
        any::<bool>().prop_map(|released| Change::Owner(Owner {
            node: Guid([7; 16]),
            name: "n1".into(),
            released
        })),
        (row, 0u32..4).prop_map(|((s, row), d)| Change::RemoveCopy {
            space: SpaceId(s),
            row,
            column: 0,
            disk: DiskId(d)
        }),
    ]
}

#[test]
fn a_superblock_survives_the_round_trip_and_no_damage() {
    let mut superblock = layout_for(1 << 30, 64 << 20).expect("large enough");
    superblock.pool_name = "p1".into();
    superblock.pool = Guid([1; 16]);
    superblock.seq = Seq(77);
    let block = superblock.encode();
    assert_eq!(block.len(), SUPERBLOCK_BYTES);
    assert_eq!(Superblock::decode(&block), Ok(superblock));
    for at in 16..SUPERBLOCK_BYTES {
        let mut damaged = block.clone();
        damaged[at] ^= 1;
        assert_eq!(Superblock::decode(&damaged), Err(DecodeError::WrongChecksum), "byte {at}");
    }
}

#[test]
fn a_disk_of_version_1_stays_one() {
    let mut old = layout_for(1 << 30, 64 << 20).expect("large enough");
    old.sums_start = 0;
    let block = old.encode();
    assert_eq!(block[16..20], 1u32.to_le_bytes());
    let read = Superblock::decode(&block).expect("version 1 is still read");
    assert_eq!((read.sums_offset(0), &read), (None, &old));
}

#[test]
fn slabs_and_their_checksums_fill_a_disk_without_meeting() {
    for (size, slab) in [(8 << 20, 1 << 18), (8 << 20, 1 << 20), (24 << 20, 1 << 20), (1 << 40, 64 << 20)] {
        let layout = layout_for(size, slab).expect("large enough");
        let (last, first) = (layout.slab_count - 1, layout.data_start);
        let end_of_sums = layout.sums_offset(last).expect("version 2") + sums_pages(slab) * BLOCK;
        assert!(end_of_sums <= first && layout.slab_offset(last) + slab + BLOCK <= size);
        let unused = size - layout.slab_offset(last) - slab;
        assert!(unused < 2 * slab + (1 << 20), "{unused} bytes of {size} are not used");
        assert_eq!(Superblock::decode(&layout.encode()), Ok(layout));
    }
}

#[test]
fn checksums_and_the_journal_survive_the_round_trip_and_no_damage() {
    let page = SumsPage {
        epoch: Epoch(7),
        space: Guid([3; 16]),
        row: 5,
        column: 2,
        page: 31,
        generation: 200,
        sums: (0..512).collect(),
    };
    let anchor = JournalAnchor {
        number: 9,
        epoch: Epoch(7),
        space: Guid([3; 16]),
        secret: [8; 16],
        tail: 17,
        seq: 1 << 40,
    };
    let entry = |kind, sums| JournalEntry { row: 1, column: 4, kind, first: 77, sums };
    let entries = vec![
        entry(JournalKind::Payload, (0..16).collect()),
        entry(JournalKind::Void, vec![]),
        entry(JournalKind::Fresh, (0..2000).collect()),
    ];
    let record = JournalRecord { secret: [8; 16], seq: 3, entries };
    assert_eq!((record.head_blocks(), record.payload_blocks()), (2, 16));
    assert_eq!(SumsPage::decode(&page.encode()), Ok(page.clone()));
    assert_eq!(JournalAnchor::decode(&anchor.encode()), Ok(anchor));
    assert_eq!(JournalRecord::decode(&record.encode()), Ok(record.clone()));
    for (name, good) in [("page", page.encode()), ("anchor", anchor.encode()), ("record", record.encode())] {
        for at in 0..good.len() {
            let mut damaged = good.clone();
            damaged[at] ^= 1;
            let read = [
                SumsPage::decode(&damaged).is_ok(),
                JournalAnchor::decode(&damaged).is_ok(),
                JournalRecord::decode(&damaged).is_ok(),
            ];
            assert_eq!(read, [false; 3], "{name}, byte {at}");
        }
    }
}

#[test]
fn small_disks_have_no_layout() {
    assert_eq!(layout_for(1 << 20, 1 << 20), None);
    assert!(layout_for(8 << 20, 1 << 20).is_some());
}

#[test]
fn foreign_data_is_named() {
    let mut head = vec![0u8; foreign::SAMPLE_BYTES];
    assert_eq!(foreign::detect(&head, &head), None);
    head[1080..1082].copy_from_slice(b"\x53\xef");
    assert!(foreign::detect(&head, &[]).is_some_and(|what| what.contains("ext4")));
    let mut table = vec![0u8; 4096];
    table[510..512].copy_from_slice(b"\x55\xaa");
    table[450] = 0x83;
    assert!(foreign::detect(&table, &[]).is_some_and(|what| what.contains("MBR")));
    let mut own = layout_for(1 << 30, 64 << 20).expect("large enough");
    own.pool_name = "vmpool".into();
    assert!(foreign::detect(&[], &own.encode()).is_some_and(|what| what.contains("vmpool")));
}

proptest! {
    #[test]
    fn replay_equals_checkpoint(changes in proptest::collection::vec(change(), 0..60), cut in 0usize..60) {
        let mut whole = PoolState { slab_size: 1 << 20, ..PoolState::default() };
        changes.iter().for_each(|c| whole.apply(c));
        // Checkpoint in the middle, the rest through a log batch.
        let cut = cut.min(changes.len());
        let mut state = PoolState { slab_size: 1 << 20, ..PoolState::default() };
        changes[..cut].iter().for_each(|c| state.apply(c));
        let saved = Checkpoint { epoch: Epoch(3), seq: Seq(cut as u64), state };
        let mut loaded = Checkpoint::decode(&saved.encode()).expect("sound");
        prop_assert_eq!(&loaded, &saved);
        let batch = LogBatch { pool: Guid([5; 16]), epoch: Epoch(3), first: Seq(cut as u64 + 1), changes: changes[cut..].to_vec() };
        let (read, size) = LogBatch::decode(&batch.encode()).expect("sound");
        prop_assert_eq!(&read, &batch);
        prop_assert_eq!(size, batch.encode().len());
        read.changes.iter().for_each(|c| loaded.state.apply(c));
        prop_assert_eq!(loaded.state, whole);
    }

    #[test]
    fn damage_is_always_found(changes in proptest::collection::vec(change(), 1..8), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let batch = LogBatch { pool: Guid([5; 16]), epoch: Epoch(1), first: Seq(1), changes };
        let mut bytes = batch.encode();
        let body = 64 + u64::from_le_bytes(bytes[32..40].try_into().expect("8 bytes")) as usize;
        let at = at.index(body);
        bytes[at] ^= 1 << bit;
        // Bytes 44 to 48 are the head's padding, covered by the checksum like the rest.
        prop_assert!(LogBatch::decode(&bytes).is_err());
    }

    #[test]
    fn hostile_bytes_are_refused_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
        fuzz::superblock(&bytes);
        fuzz::log_batch(&bytes);
        fuzz::checkpoint(&bytes);
        fuzz::foreign_disk(&bytes);
        fuzz::data_structures(&bytes);
    }
}

proptest! {
    /// What is added up change by change is what a checkpoint takes.
    #[test]
    fn the_size_of_the_state_is_known_without_encoding_it(changes in proptest::collection::vec(change(), 0..60)) {
        let mut state = PoolState { slab_size: 64 << 20, ..PoolState::default() };
        let mut bytes = state.encode().len();
        for change in &changes {
            let before = state.bytes_touched(change);
            state.apply(change);
            bytes = bytes + state.bytes_touched(change) - before;
            prop_assert_eq!(bytes, state.encode().len());
        }
    }
}

#[test]
fn a_mark_of_release_ends_with_the_first_byte_that_somebody_else_writes() {
    let released = Released { pool: Guid([7; 16]), pool_name: "vmpool".into() };
    let mut head = released.encode();
    assert_eq!(head.len(), SUPERBLOCK_BYTES);
    // Never to change: disks carry it.
    assert_eq!(&head[..16], b"\x89HFfre\r\n\x01\0\0\0\0\0\0\0");
    assert_eq!((&head[16..32], &head[32..40]), (&[7; 16][..], &b"\x06\0vmpool"[..]));
    assert_eq!(Released::decode(&head), Ok(released));
    head.resize(foreign::SAMPLE_BYTES, 9);
    assert_eq!(foreign::detect(&head, &[9; 4096]), None);
    head[600] = 1;
    assert_eq!(foreign::detect(&head, &[]), Some(foreign::UNRECOGNISED.to_owned()));
    assert_eq!(foreign::detect(&[0; 8192], &[0; 4096]), None);
}

#[test]
fn all_pages_of_the_largest_slab_have_generations() {
    assert!(SLAB_BYTES_MAX.is_power_of_two());
    assert!(sums_pages(2 * SLAB_BYTES_MAX) > u64::from(u16::MAX), "a larger one would do");
    let last = (sums_pages(SLAB_BYTES_MAX) - 1) as u16;
    let mut state = PoolState { slab_size: SLAB_BYTES_MAX, ..PoolState::default() };
    let copies = vec![CopyRecord { disk: DiskId(0), slab: 0, stale: 0 }];
    let record = RowRecord { columns: vec![ColumnRecord { copies, ..ColumnRecord::default() }] };
    let (id, row) = (SpaceId(0), 0);
    for change in [
        Change::PutDisk(disk(0)),
        Change::PutSpace(space(0)),
        Change::PutRow { space: id, row, record },
        Change::Generations { space: id, row, column: 0, pages: vec![(last, 7)] },
    ] {
        state.apply(&change);
    }
    let read = PoolState::decode(&state.encode()).expect("sound");
    assert_eq!(read.rows[&(id, row)].columns[0].generation(usize::from(last)), 7);
}
