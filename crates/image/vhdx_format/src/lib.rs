//! The structures of a VHDX file (MS-VHDX), the format of virtual disks of Hyper-V. Pure: bytes in, bytes out; every decoder takes
//! hostile bytes.
//!
//! ```text
//!   0        64 KiB     128 KiB    192 KiB    256 KiB    320 KiB   1 MiB
//!   ├────────┼──────────┼──────────┼──────────┼──────────┼ … ──────┼─────┬──────────┬─────┬───────┬─────────┬───────┐
//!   │ file   │ header 1 │ header 2 │ region   │ region   │ zeros   │ log │ metadata │ BAT │ block │ sector  │ block │ …
//!   │ id     │          │          │ table 1  │ table 2  │         │     │ region   │     │       │ bitmap  │       │
//!   └────────┴──────────┴──────────┴──────────┴──────────┴─────────┴─────┴──────────┴─────┴───────┴─────────┴───────┘
//! ```
//! What lies from 1 MiB on lies at multiples of 1 MiB, in any order, and nothing overlaps. The header with the higher sequence
//! number is in force; it says where the log is. The region tables, which are equal, say where metadata and BAT (block allocation
//! table) are. The metadata says how large the disk is and its blocks; the BAT, where each block lies. Changes of all but the
//! headers go through the log, so that each is there whole or not at all.
//!
//! Vocabulary: a *payload block* holds a part of the disk; a *sector bitmap block* says, in a differencing disk, which sectors of
//! partially present payload blocks are in this file and not in the parent; a *chunk* is what one bitmap block speaks of.
//!
//! `docs/formats/vhdx.md` has what is not obvious from here.

mod bat;
mod error;
pub mod fuzz;
mod header;
mod identifier;
mod log;
mod log_scan;
mod metadata;
mod parent_locator;
mod region;
#[cfg(test)]
mod tests;

pub use bat::{BatEntry, BatLayout, PayloadState};
pub use error::FormatError;
pub use header::{HEADER_OFFSETS, HEADER_SIZE, Header, current_header};
pub use identifier::FileIdentifier;
pub use log::{Change, LOG_SECTOR, LogEntry, descriptors_in, entry_len};
pub use log_scan::{LOG_REPLAY_MAX, Replay, find_replay};
pub use metadata::{
    BLOCK_SIZE_MAX, BLOCK_SIZE_MIN, DISK_SIZE_MAX, FileParameters, ItemPlace, METADATA_TABLE_SIZE, Metadata,
    MetadataTable,
};
pub use parent_locator::ParentLocator;
pub use region::{REGION_OFFSETS, REGION_TABLE_SIZE, Region, RegionTable};
pub use uuid::Uuid;

/// What regions, blocks and their places are multiples of, in bytes.
pub const MIB: u64 = 1 << 20;

/// Where what the headers and region tables speak of may begin, in bytes.
pub const FIRST_REGION: u64 = MIB;
