//! Where the log of an image that is written stands, and the ids of what is written.

use shard_runtime::Entropy;
use vhdx_format::{Header, Uuid};

/// Where the log stands. Whoever holds it is the only one that changes headers and log.
pub(crate) struct Journal {
    /// Which of the two headers is in force.
    pub(crate) current: usize,
    pub(crate) header: Header,
    /// The other one says something else: there was no space for it.
    pub(crate) differs: bool,
    /// Where the next entry goes, from the log's beginning.
    pub(crate) head: usize,
    pub(crate) sequence: u64,
    /// Sectors of the last entry that are not known to be in their places.
    pub(crate) unapplied: Vec<(u64, Box<[u8]>)>,
    /// The file has been changed, and says so.
    pub(crate) file_changed: bool,
    /// What users see has been changed, and the file says so.
    pub(crate) data_changed: bool,
}

impl Journal {
    pub(crate) fn new(current: usize, header: Header) -> Self {
        Self {
            current,
            header,
            differs: false,
            head: 0,
            sequence: 0,
            unapplied: Vec::new(),
            file_changed: false,
            data_changed: false,
        }
    }
}

/// A random id.
pub(crate) fn new_id(entropy: &dyn Entropy) -> Uuid {
    uuid_of(entropy.next_id())
}

fn uuid_of(bytes: [u8; 16]) -> Uuid {
    // Version 4, variant 1 (RFC 9562): what others expect of a random one.
    let value = u128::from_be_bytes(bytes);
    Uuid::from_u128(value & !(0xf << 76) & !(0x3 << 62) | 4 << 76 | 2 << 62)
}
