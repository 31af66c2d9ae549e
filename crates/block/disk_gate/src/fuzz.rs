//! Entries for fuzzing: records over any bytes.

use crate::record::{DiskIdentity, decode, encode};

/// The record of a disk; the identity is the one that the bytes name.
pub fn record(bytes: &[u8]) {
    let mut disk = DiskIdentity::default();
    if let Some(named) = bytes.get(8..24) {
        disk.0.copy_from_slice(named);
    }
    if let Ok(table) = decode(disk, bytes) {
        assert_eq!(decode(disk, &encode(disk, &table)), Ok(table));
    }
}

/// A record that is one, for the corpus.
#[must_use]
pub fn sample() -> Vec<u8> {
    let mut table = crate::table::Table::default();
    for (port, key) in
        [("own", 3_u64 << 16 | 1), ("iqn.2026-01.org.example:n2,i,0x800000000001", 4 << 16 | 2)]
    {
        let _ = table.register(port, key);
    }
    let _ = table.reserve("own", 3 << 16 | 1);
    encode(DiskIdentity([7; 16]), &table)
}
