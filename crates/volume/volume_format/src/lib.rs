//! The volume's on-disk structures. Pure: bytes in, bytes out; every decoder takes hostile bytes.
//!
//! The page `docs/formats/volume.md` has the pictures, the schema of the metadata database and the argument why
//! a crash at any point is safe.

mod field;
pub mod fuzz;
mod inode;
mod length;
mod metadata_log;
mod snapshot;
mod superblock;

pub use byte_codec::DecodeError;
pub use field::Field;
pub use inode::{Entry, Inode, OTHER_NAMES_MAX, OtherName, StreamRecord};
pub use length::LengthRecord;
pub use metadata_log::{
    Amount, Batch, BatchId, BatchWriter, Change, Head, METADATA_LOG_MIN, Table, metadata_log_size,
};
pub use snapshot::SnapshotRecord;
pub use superblock::{
    FEATURE_LOG, FEATURE_METADATA_LOG, FEATURE_NAMES, FEATURE_SNAPSHOTS, FEATURE_UPCASE, KNOWN_FEATURES,
    Superblock, USUAL_FEATURES, layout_for,
};

/// Unit of everything on disk, in bytes.
pub const BLOCK: u64 = 4096;
/// Unit of allocation, in bytes.
pub const CLUSTER: u64 = 64 << 10;
