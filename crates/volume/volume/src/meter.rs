//! What the storage of the database says of itself, and how far it can grow.

use std::sync::atomic::{AtomicU64, Ordering};

/// The database grows by doubling up to this, then by this much (redb's regions).
const REGION: u64 = 4 << 30;
/// What a growth may take beyond that: headers of file and regions.
const HEADERS: u64 = 1 << 20;

/// What the storage of the database says of itself.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Its length, in bytes.
    pub(crate) length: AtomicU64,
    /// Bytes that were written to it since the opening.
    pub(crate) written: AtomicU64,
    /// Bytes that the area has.
    pub(crate) area: u64,
}

impl Meter {
    /// The length that the database can still grow to.
    pub(crate) fn reach(&self) -> u64 {
        reach(self.length.load(Ordering::Acquire), self.area)
    }
}

/// The length that a database of `length` bytes can grow to in an area of `area` bytes.
pub(crate) fn reach(length: u64, area: u64) -> u64 {
    let mut reach = length;
    loop {
        let headers = HEADERS.min(reach / 16);
        let next = if reach < REGION { reach * 2 } else { reach.saturating_add(REGION) };
        if reach == 0 || next.saturating_add(headers) > area {
            return reach;
        }
        reach = next;
    }
}
