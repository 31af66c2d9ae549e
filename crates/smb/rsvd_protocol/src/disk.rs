//! What a shared virtual disk is (2.2.4.5, 2.2.4.6, 2.2.4.9, 2.2.4.10, 2.2.4.14, 2.2.4.16).

use smb_protocol::Guid;
use smb_protocol::wire::Reserved;

use crate::Version;

smb_protocol::wire_struct! {
    /// The answer to GET_INITIAL_INFO (2.2.4.14).
    pub struct InitialInfo [24] {
        /// The version that the server speaks.
        server: Version,
        /// Bytes of a logical sector.
        sector: u32,
        /// Bytes of a physical sector.
        physical_sector: u32,
        _: Reserved<4>,
        /// Size of the disk in bytes.
        size: u64,
    }
}

smb_protocol::named_values! {
    /// How a virtual disk takes space (DiskType).
    pub struct DiskType(u32) {
        FIXED = 2,
        DYNAMIC = 3,
    }
}

smb_protocol::named_values! {
    /// The format of a virtual disk (DiskFormat).
    pub struct DiskFormat(u32) {
        VHDX = 3,
        VHDSET = 4,
    }
}

smb_protocol::wire_struct! {
    /// The answer to GET_DISK_INFO (2.2.4.6); the request has as many zeros (2.2.4.5).
    pub struct DiskInfo [56] {
        /// How it takes space.
        disk_type: DiskType,
        /// Its format.
        format: DiskFormat,
        /// Bytes of a block; 0 of a fixed disk, as Windows says.
        block_size: u32,
        /// The disk that it is linked with; zero for none.
        linkage: Guid,
        /// Whether it can be read and written.
        is_mounted: bool,
        /// Whether its sectors lie at multiples of 4 KiB in the file.
        is_4k_aligned: bool,
        _: Reserved<2>,
        /// Bytes of the file.
        file_size: u64,
        /// The disk's identity.
        disk: Guid,
    }
}

smb_protocol::wire_struct! {
    /// The answer to VALIDATE_DISK (2.2.4.10); the request has 56 bytes that are not looked at (2.2.4.9).
    pub struct Validation [1] {
        /// Whether the disk is valid.
        is_valid: bool,
    }
}

smb_protocol::named_values! {
    /// What a server can do (SharedVirtualDiskSupport).
    pub struct Capability(u32) {
        SHARED = 1,
        SNAPSHOTS = 7,
    }
}

smb_protocol::named_values! {
    /// How the file of an open is open (SharedVirtualDiskHandleState).
    pub struct HandleState(u32) {
        NONE = 0,
        FILE_SHARED = 1,
        SHARED = 3,
    }
}

smb_protocol::wire_struct! {
    /// The answer to FSCTL_QUERY_SHARED_VIRTUAL_DISK_SUPPORT (2.2.4.16).
    pub struct Support [8] {
        /// What the server can do.
        capability: Capability,
        /// How the file is open.
        state: HandleState,
    }
}
