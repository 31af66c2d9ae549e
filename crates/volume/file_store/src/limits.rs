//! Limits of the contract. Each keeps a peer from making a store hold or move more than makes sense at once.

/// Largest size of a stream in bytes, 4 EiB: rounding it up to any unit still fits 63 bits.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64 / 2;

/// Longest security descriptor in bytes, as on NTFS.
pub const SECURITY_MAX: usize = 64 << 10;

/// Most streams of a file, the unnamed one included: they are kept in one record.
pub const STREAMS_MAX: usize = 1024;

/// Most names of a file, as on NTFS: they are kept in one record.
pub const NAMES_MAX: usize = 1024;

/// Longest key of a row of durable state in bytes, its table's name included: a key is compared as a whole.
pub const STATE_KEY_MAX: usize = 4 << 10;

/// Longest value of a row of durable state in bytes: a value is read and written as a whole.
pub const STATE_VALUE_MAX: usize = 1 << 20;

/// The table of durable state that has a row for each open that outlives its node. These rows have room of their own where a store that
/// is otherwise full refuses others, and one that is there can always be changed while it has at most [`OPEN_ROW_KEPT`] bytes.
pub const OPENS_TABLE: &str = "smb-open";

/// The table of durable state for reservations of disks and what else initiators rely on. Its rows find room on a store that is
/// otherwise full: who cannot reserve a disk can neither use it nor fence somebody else off.
pub const RESERVATIONS_TABLE: &str = "scsi";

/// Bytes of a row of [`OPENS_TABLE`] for which there is always room: most have a few hundred.
pub const OPEN_ROW_KEPT: usize = 4 << 10;
