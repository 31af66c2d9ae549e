//! Information of fixed size about a file (MS-FSCC 2.4).

use crate::access::{AccessMask, CreateOptions, FileAttributes};
use crate::fsctl::reparse::ReparseTag;
use crate::time::FileTime;
use crate::wire::Reserved;

wire_struct! {
    /// FileBasicInformation (2.4.7). When it is set, see [`FileTime::to_set`]; attributes of 0 stay as they are.
    pub struct BasicInformation [40] {
        /// Created.
        creation_time: FileTime,
        /// Last read.
        last_access_time: FileTime,
        /// Last written.
        last_write_time: FileTime,
        /// Last changed in any way.
        change_time: FileTime,
        /// Attributes.
        attributes: FileAttributes,
        _: Reserved<4>,
    }
}

wire_struct! {
    /// FileStandardInformation (2.4.47).
    pub struct StandardInformation [24] {
        /// Bytes that it takes.
        allocation_size: u64,
        /// Bytes that it has.
        end_of_file: u64,
        /// Hard links.
        links: u32,
        /// Whether it goes when the last handle is closed.
        delete_pending: bool,
        /// Whether it is a directory.
        directory: bool,
        _: Reserved<2>,
    }
}

wire_struct! {
    /// FileInternalInformation (2.4.26).
    pub struct InternalInformation [8] {
        /// The file's number on its volume.
        index: u64,
    }
}

wire_struct! {
    /// FileEaInformation (2.4.12).
    pub struct EaInformation [4] {
        /// Bytes that the extended attributes take.
        ea_size: u32,
    }
}

wire_struct! {
    /// FileAccessInformation (2.4.1).
    pub struct AccessInformation [4] {
        /// What this handle may do.
        access: AccessMask,
    }
}

wire_struct! {
    /// FilePositionInformation (2.4.40).
    pub struct PositionInformation [8] {
        /// A position that the server keeps for the client and does not use.
        position: u64,
    }
}

wire_struct! {
    /// FileModeInformation (2.4.31).
    pub struct ModeInformation [4] {
        /// Some of the options of CREATE.
        mode: CreateOptions,
    }
}

wire_struct! {
    /// FileAlignmentInformation (2.4.3).
    pub struct AlignmentInformation [4] {
        /// The alignment of buffers, less one.
        requirement: u32,
    }
}

wire_struct! {
    /// FileAllInformation (2.4.2) without the name at its end, which [`super::names::put_all`] adds.
    pub struct AllInformation [96] {
        /// Times and attributes.
        basic: BasicInformation,
        /// Sizes and links.
        standard: StandardInformation,
        /// Number.
        internal: InternalInformation,
        /// Extended attributes.
        ea: EaInformation,
        /// Rights of the handle.
        access: AccessInformation,
        /// Position.
        position: PositionInformation,
        /// Options of the handle.
        mode: ModeInformation,
        /// Alignment.
        alignment: AlignmentInformation,
    }
}

wire_struct! {
    /// FileNetworkOpenInformation (2.4.34).
    pub struct NetworkOpenInformation [56] {
        /// Created.
        creation_time: FileTime,
        /// Last read.
        last_access_time: FileTime,
        /// Last written.
        last_write_time: FileTime,
        /// Last changed in any way.
        change_time: FileTime,
        /// Bytes that it takes.
        allocation_size: u64,
        /// Bytes that it has.
        end_of_file: u64,
        /// Attributes.
        attributes: FileAttributes,
        _: Reserved<4>,
    }
}

wire_struct! {
    /// FileAttributeTagInformation (2.4.6).
    pub struct AttributeTagInformation [8] {
        /// Attributes.
        attributes: FileAttributes,
        /// The tag of the reparse point: the kind of its data.
        reparse_tag: ReparseTag,
    }
}

wire_struct! {
    /// FileDispositionInformation (2.4.11).
    pub struct DispositionInformation [1] {
        /// Whether the file goes when the last handle is closed.
        delete_pending: bool,
    }
}

bit_flags! {
    /// Flags of FileDispositionInformationEx (2.4.12 in newer revisions).
    pub struct DispositionFlags(u32) {
        DELETE = 0x0000_0001,
        POSIX_SEMANTICS = 0x0000_0002,
        FORCE_IMAGE_SECTION_CHECK = 0x0000_0004,
        ON_CLOSE = 0x0000_0008,
        IGNORE_READONLY_ATTRIBUTE = 0x0000_0010,
    }
}

wire_struct! {
    /// FileDispositionInformationEx.
    pub struct DispositionInformationEx [4] {
        /// What to do.
        flags: DispositionFlags,
    }
}

wire_struct! {
    /// FileAllocationInformation (2.4.4).
    pub struct AllocationInformation [8] {
        /// Bytes to take; negative is invalid.
        allocation_size: i64,
    }
}

wire_struct! {
    /// FileEndOfFileInformation (2.4.13).
    pub struct EndOfFileInformation [8] {
        /// Bytes to have; negative is invalid.
        end_of_file: i64,
    }
}

wire_struct! {
    /// FileValidDataLengthInformation (2.4.49).
    pub struct ValidDataLengthInformation [8] {
        /// Up to where data are valid; negative is invalid.
        valid_data_length: i64,
    }
}

wire_struct! {
    /// FileCompressionInformation (2.4.9).
    pub struct CompressionInformation [16] {
        /// Bytes that it takes compressed.
        compressed_size: u64,
        /// The format, 0 for none.
        format: u16,
        /// Units, as exponents of two.
        unit_shift: u8,
        /// Chunks, likewise.
        chunk_shift: u8,
        /// Clusters, likewise.
        cluster_shift: u8,
        _: Reserved<3>,
    }
}

wire_struct! {
    /// FileStandardLinkInformation (2.4.48).
    pub struct StandardLinkInformation [12] {
        /// Links that are not being deleted.
        accessible_links: u32,
        /// Links.
        total_links: u32,
        /// Whether this one is being deleted.
        delete_pending: bool,
        /// Whether it is a directory.
        directory: bool,
        _: Reserved<2>,
    }
}

wire_struct! {
    /// FileIdInformation (2.4.23).
    pub struct IdInformation [24] {
        /// The volume.
        volume: u64,
        /// The file's number on it.
        file_id: [u8; 16],
    }
}

wire_struct! {
    /// FilePipeInformation (2.4.37).
    pub struct PipeInformation [8] {
        /// 1: messages, 0: bytes.
        read_mode: u32,
        /// 1: do not wait.
        completion_mode: u32,
    }
}

wire_struct! {
    /// FilePipeLocalInformation (2.4.38).
    pub struct PipeLocalInformation [40] {
        /// 1: messages, 0: bytes.
        pipe_type: u32,
        /// Who may send: 0 client, 1 server, 2 both.
        configuration: u32,
        /// Most instances; u32::MAX for any number.
        maximum_instances: u32,
        /// Instances.
        current_instances: u32,
        /// Buffer towards the server.
        inbound_quota: u32,
        /// Bytes that can be read.
        read_data_available: u32,
        /// Buffer towards the client.
        outbound_quota: u32,
        /// Bytes that can be written.
        write_quota_available: u32,
        /// 3: connected.
        state: u32,
        /// 0: the client's end.
        end: u32,
    }
}

wire_struct! {
    /// FilePipeRemoteInformation (2.4.39).
    pub struct PipeRemoteInformation [12] {
        /// How long a client collects data before it sends them.
        collect_time: u64,
        /// Most bytes that it collects.
        maximum_collection: u32,
    }
}
