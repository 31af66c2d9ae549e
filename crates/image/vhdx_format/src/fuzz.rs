//! Entries for fuzzing, and inputs to begin with.

use crate::{
    BatEntry, BatLayout, Change, FileIdentifier, FileParameters, HEADER_SIZE, Header, LOG_SECTOR, LogEntry,
    METADATA_TABLE_SIZE, MIB, Metadata, MetadataTable, ParentLocator, REGION_TABLE_SIZE, Region, RegionTable,
    Uuid, find_replay,
};

/// The id of the log in [`samples`].
const LOG: Uuid = Uuid::from_u128(7);

fn padded(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(len.max(bytes.len()), 0);
    bytes
}

/// Gives a structure the checksum that it would have: the fuzzer would not get past it, whoever makes a file does.
fn sealed(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = padded(bytes, len);
    bytes.truncate(len);
    let checksum = crate::header::checksum_of(&bytes);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// File identifier and header.
pub fn header(bytes: &[u8]) {
    let _ = FileIdentifier::decode(bytes);
    let _ = Header::decode(bytes);
    if let Ok(header) = Header::decode(&sealed(bytes, HEADER_SIZE)) {
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
}

/// A region table.
pub fn region(bytes: &[u8]) {
    let _ = RegionTable::decode(bytes);
    if let Ok(table) = RegionTable::decode(&sealed(bytes, REGION_TABLE_SIZE)) {
        assert_eq!(RegionTable::decode(&table.encode()), Ok(table));
    }
}

/// A metadata region: its table, its items, a parent locator.
pub fn metadata(bytes: &[u8]) {
    let _ = ParentLocator::decode(bytes);
    let bytes = padded(bytes, METADATA_TABLE_SIZE);
    let Ok(table) = MetadataTable::decode(&bytes, MIB as u32) else { return };
    let decoded = Metadata::decode(&table, |place| {
        let item = bytes.get(place.offset as usize..).unwrap_or_default();
        Ok(item.get(..place.length as usize).unwrap_or(item).to_vec())
    });
    if let Ok(metadata) = decoded {
        let layout = BatLayout::new(&metadata.parameters, metadata.logical_sector, metadata.disk_size);
        let last = layout.payload_blocks() - 1;
        assert_eq!(layout.block_of(layout.payload_entry(last)), Some(last));
        assert!(layout.payload_entry(last) < layout.entries());
        let _ = metadata.encode(MIB as u32);
    }
}

/// Entries of a BAT; the first byte says of which disk.
pub fn bat(bytes: &[u8]) {
    let Some((first, entries)) = bytes.split_first() else { return };
    for (number, entry) in entries.chunks_exact(8).enumerate() {
        let entry = BatEntry(entry.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)));
        if let Ok(state) = entry.payload_state(number as u64, first & 1 == 1) {
            assert_eq!(BatEntry::payload(state, entry.offset()), entry);
        }
        let _ = entry.bitmap_offset(number as u64);
    }
}

/// A log: sectors that come one behind the other, with the checksums that they would have.
pub fn log(bytes: &[u8]) {
    let mut log = padded(bytes, MIB as usize);
    log.truncate(MIB as usize);
    let _ = find_replay(&log, LOG);
    for at in (0..bytes.len().min(log.len())).step_by(LOG_SECTOR) {
        let len = log[at + 8..at + 12].iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte));
        if len >= LOG_SECTOR && at + len <= log.len() {
            let entry = sealed(&log[at..at + len], len);
            log[at..at + len].copy_from_slice(&entry);
        }
    }
    let _ = find_replay(&log, LOG);
}

/// Inputs by the names of their targets.
#[must_use]
pub fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let header = Header {
        sequence: 3,
        file_write_guid: Uuid::from_u128(1),
        data_write_guid: Uuid::from_u128(2),
        log_guid: LOG,
        log_length: MIB as u32,
        log_offset: MIB,
    };
    let table = RegionTable {
        bat: Region { offset: 3 * MIB, length: MIB as u32 },
        metadata: Region { offset: 2 * MIB, length: MIB as u32 },
        others: vec![(Uuid::from_u128(9), Region { offset: 4 * MIB, length: MIB as u32 })],
    };
    let metadata = Metadata {
        parameters: FileParameters { block_size: 2 << 20, leave_allocated: false, has_parent: true },
        disk_size: 1 << 30,
        disk_id: Uuid::from_u128(5),
        logical_sector: 512,
        physical_sector: 4096,
        parent: Some(ParentLocator::new(Uuid::from_u128(2), ".\\base.vhdx", Some("C:\\base.vhdx"))),
    };
    let entry = |sequence, tail, changes| LogEntry {
        sequence,
        tail,
        log_guid: LOG,
        flushed_file_offset: 4 * MIB,
        last_file_offset: 5 * MIB,
        changes,
    };
    let data = |fill: u8| Change::Data { offset: 3 * MIB, bytes: vec![fill; LOG_SECTOR].into() };
    let zero = Change::Zero { offset: 3 * MIB + 4096, len: 8192 };
    let mut log = entry(8, 0, vec![data(1), zero]).encode();
    log.extend(entry(9, 0, vec![data(2)]).encode());
    let states = [6_u64, 7, 2, 0].map(|state| ((4 * MIB) | state).to_le_bytes()).concat();
    vec![
        ("vhdx_header", header.encode()),
        ("vhdx_region", table.encode()[..4096].to_vec()),
        ("vhdx_metadata", metadata.encode(MIB as u32).unwrap_or_default()),
        ("vhdx_bat", [vec![1], states].concat()),
        ("vhdx_log", log),
    ]
}
