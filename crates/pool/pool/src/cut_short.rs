//! Members that are smaller than they were when they joined: a disk's file that was truncated, or copied and not to its end.
//!
//! What was behind the end is gone, and may have been grown again with zeros that nobody wrote. So nothing on such a member is
//! believed: it is as good as missing, until the whole one is back or another takes its place. One that has grown is used as it was.

use std::fmt;

use pool_format::{BLOCK, Superblock};

/// How much of a member is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CutShort {
    /// Bytes that it has.
    has: u64,
    /// Bytes that it had.
    had: u64,
}

impl CutShort {
    /// What is missing of a disk that has so many bytes, if anything is.
    pub(crate) fn of(has: u64, superblock: &Superblock) -> Option<Self> {
        let had = superblock.disk_size;
        (has / BLOCK * BLOCK < had).then_some(Self { has, had })
    }
}

impl fmt::Display for CutShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it was cut short: it has {} bytes, and had {} when it joined the pool", self.has, self.had)
    }
}
