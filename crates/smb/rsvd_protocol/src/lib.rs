//! Shared virtual disks as bytes, without files, disks or connections (MS-RSVD): several hosts have the same virtual disk open over SMB as a
//! SCSI disk that they share.
//!
//! ```text
//!   CREATE  X.vhdx:SharedVirtualDisk ─► open     the context: who the initiator is, and what it is told of the disk
//!   IOCTL   SVHDX_SYNC_TUNNEL, SVHDX_ASYNC_TUNNEL
//!             └─ tunnel   16 bytes before each request and answer: which operation, how it ended
//!                 ├─ scsi   a SCSI command with its data; sense data that a READ or WRITE has left
//!                 ├─ disk   what the disk is
//!                 └─ set    version 2: snapshots, change tracking, another size
//!   IOCTL   QUERY_SHARED_VIRTUAL_DISK_SUPPORT ─► disk::Support
//! ```
//!
//! Both directions are here: the server decodes requests and encodes answers, clients do the opposite. Decoding borrows what is long.
//!
//! Invariants:
//! * No input panics or takes memory out of proportion to its length: lengths are compared with the bytes that are there.
//! * What decodes, encodes to something that decodes to the same; `fuzz` checks it.
//! * Values without a name are kept, not refused: which are errors depends on state that is not here.

pub mod disk;
pub mod fuzz;
pub mod open;
pub mod scsi;
pub mod set;
#[cfg(test)]
mod tests;
pub mod tunnel;

/// What clients append to the name of the file in CREATE (3.1.4.2).
pub const NAME_SUFFIX: &str = ":SharedVirtualDisk";
/// Longest command descriptor block, in bytes (2.2.1, RSVD_CDB_GENERIC_LENGTH).
pub const CDB_BYTES: usize = 16;
/// Bytes that sense data has room in (2.2.1, RSVD_SCSI_SENSE_BUFFER_SIZE).
pub const SENSE_BYTES: usize = 20;
/// Longest name of a host, in bytes of UTF-16 (2.2.1, RSVD_MAXIMUM_NAME_LENGTH).
pub const HOST_NAME_BYTES: usize = 126;

smb_protocol::named_values! {
    /// A version of the protocol (1.7).
    pub struct Version(u32) {
        V1 = 1,
        V2 = 2,
    }
}
