//! File system controls.

use access_matrix::missing_row;
use smb_protocol::fsctl::copy::{
    CopyChunk, DuplicateExtents, DuplicateExtentsEx, OffloadWriteInput, copy_request,
};
use smb_protocol::fsctl::network::Resiliency;
use smb_protocol::fsctl::ranges::{
    AllocatedRange, Compression, SetIntegrity, SetIntegrityEx, TrimRange, ZeroData, trim_request,
};
use smb_protocol::fsctl::reparse::Reparse;
use smb_protocol::fsctl::storage_qos::{QosControl, QosOptions, QosVersion, qos_request};

use super::super::world::SIZE;
use super::*;

const ANY: &[AccessMask] = &[];
const READ: &[AccessMask] = &[AccessMask::READ_DATA];
const WRITE: &[AccessMask] = &[AccessMask::WRITE_DATA];
const WRITES: AccessMask = AccessMask(AccessMask::WRITE_DATA.0 | AccessMask::APPEND_DATA.0);
const CHANGE: &[AccessMask] = &[AccessMask(WRITES.0 | AccessMask::WRITE_ATTRIBUTES.0)];
const CONTENT: &[Part] = &[Part::Data, Part::Size, Part::Attributes];

const fn does(code: FsctlCode, needs: &'static [AccessMask]) -> Row {
    row(Send::Control(code), needs, NtStatus::SUCCESS)
}

/// Not served, whoever asks.
const fn not(code: FsctlCode) -> Row {
    row(Send::Control(code), ANY, NtStatus::INVALID_DEVICE_REQUEST)
}

const fn answers(code: FsctlCode, answer: NtStatus) -> Row {
    row(Send::Control(code), ANY, answer)
}

const fn of_none(code: FsctlCode, answer: NtStatus) -> Row {
    row(Send::ControlOfNone(code), ANY, answer)
}

const _: () = assert!(!missing_row(&named!(FsctlCode), &codes(&ROWS)), "a control has no row");

fn range(_: &Given) -> Vec<u8> {
    AllocatedRange { file_offset: 0, length: SIZE as i64 }.to_bytes()
}

fn chunks(given: &Given) -> Vec<u8> {
    copy_request(given.key, &[CopyChunk { source_offset: 0, target_offset: 0, length: SIZE as u32 }])
}

fn extents(given: &Given) -> DuplicateExtents {
    DuplicateExtents {
        source: given.source.unwrap_or_default(),
        source_offset: 0,
        target_offset: 0,
        byte_count: SIZE as i64,
    }
}

fn extents_ex(given: &Given) -> Vec<u8> {
    DuplicateExtentsEx {
        structure_size: DuplicateExtentsEx::STRUCTURE_SIZE,
        extents: extents(given),
        ..DuplicateExtentsEx::default()
    }
    .to_bytes()
}

fn offload_read(_: &Given) -> Vec<u8> {
    OffloadReadInput { size: OffloadReadInput::SIZE as u32, copy_length: 4096, ..OffloadReadInput::default() }
        .to_bytes()
}

fn offload_write(given: &Given) -> Vec<u8> {
    OffloadWriteInput {
        size: OffloadWriteInput::SIZE as u32,
        copy_length: 4096,
        token: given.token.unwrap_or_default(),
        ..OffloadWriteInput::default()
    }
    .to_bytes()
}

fn link(_: &Given) -> Vec<u8> {
    let name = utf16("elsewhere");
    let name = Utf16::new(&name).unwrap();
    Reparse::Symlink { substitute: name, print: name, relative: true }.encode()
}

pub const ROWS: [Row; FsctlCode::NAMED.len()] = [
    of_none(FsctlCode::DFS_GET_REFERRALS, NtStatus::FS_DRIVER_REQUIRED),
    of_none(FsctlCode::DFS_GET_REFERRALS_EX, NtStatus::FS_DRIVER_REQUIRED),
    of_none(FsctlCode::PIPE_WAIT, NtStatus::INVALID_DEVICE_REQUEST),
    of_none(FsctlCode::QUERY_NETWORK_INTERFACE_INFO, NtStatus::SUCCESS),
    // Over 3.1.1 it is a sign that somebody changed the negotiation, and ends the connection: tests/sessions.rs.
    answers(FsctlCode::VALIDATE_NEGOTIATE_INFO, NtStatus::INVALID_PARAMETER),
    not(FsctlCode::FILESYSTEM_GET_STATISTICS),
    not(FsctlCode::GET_NTFS_VOLUME_DATA),
    does(FsctlCode::IS_PATHNAME_VALID, ANY),
    does(FsctlCode::GET_COMPRESSION, ANY),
    not(FsctlCode::GET_RETRIEVAL_POINTERS),
    not(FsctlCode::FIND_FILES_BY_SID),
    answers(FsctlCode::SET_OBJECT_ID, NtStatus::NOT_SUPPORTED),
    does(FsctlCode::GET_OBJECT_ID, ANY),
    answers(FsctlCode::DELETE_OBJECT_ID, NtStatus::NOT_SUPPORTED),
    does(FsctlCode::SET_REPARSE_POINT, CHANGE).with(link).changing(&[Part::Extras, Part::Attributes]),
    answers(FsctlCode::GET_REPARSE_POINT, NtStatus::NOT_A_REPARSE_POINT),
    row(Send::Control(FsctlCode::DELETE_REPARSE_POINT), CHANGE, NtStatus::NOT_A_REPARSE_POINT).with(link),
    answers(FsctlCode::SET_OBJECT_ID_EXTENDED, NtStatus::NOT_SUPPORTED),
    does(FsctlCode::CREATE_OR_GET_OBJECT_ID, ANY),
    does(FsctlCode::SET_SPARSE, CHANGE).changing(&[Part::Attributes]),
    not(FsctlCode::READ_FILE_USN_DATA),
    not(FsctlCode::WRITE_USN_CLOSE_RECORD),
    not(FsctlCode::SIS_COPYFILE),
    not(FsctlCode::RECALL_FILE),
    not(FsctlCode::QUERY_SPARING_INFO),
    not(FsctlCode::QUERY_ON_DISK_VOLUME_INFO),
    not(FsctlCode::SET_ZERO_ON_DEALLOCATION),
    does(FsctlCode::QUERY_FILE_REGIONS, READ),
    does(FsctlCode::GET_INTEGRITY_INFORMATION, ANY),
    not(FsctlCode::GET_REFS_VOLUME_DATA),
    does(FsctlCode::QUERY_SHARED_VIRTUAL_DISK_SUPPORT, ANY),
    // What opens of shared virtual disks may is in tests/shared_disks.rs.
    answers(FsctlCode::SVHDX_SYNC_TUNNEL_REQUEST, NtStatus::INVALID_PARAMETER),
    does(FsctlCode::STORAGE_QOS_CONTROL, ANY).with(|_| qos_request(flow(), (0, 0), ("", ""))),
    answers(FsctlCode::SVHDX_ASYNC_TUNNEL_REQUEST, NtStatus::INVALID_PARAMETER),
    does(FsctlCode::SET_INTEGRITY_INFORMATION_EX, CHANGE).with(|_| SetIntegrityEx::default().to_bytes()),
    not(FsctlCode::REFS_STREAM_SNAPSHOT_MANAGEMENT),
    does(FsctlCode::QUERY_ALLOCATED_RANGES, READ).with(range),
    does(FsctlCode::OFFLOAD_READ, READ).with(offload_read),
    does(FsctlCode::SET_ZERO_DATA, WRITE)
        .with(|_| ZeroData { file_offset: 0, beyond_final_zero: 100 }.to_bytes())
        .changing(CONTENT),
    not(FsctlCode::SET_DEFECT_MANAGEMENT),
    does(FsctlCode::FILE_LEVEL_TRIM, WRITE)
        .with(|_| trim_request(&[TrimRange { offset: 0, length: SIZE as u64 }]))
        .changing(CONTENT),
    does(FsctlCode::OFFLOAD_WRITE, WRITE).with_second(offload_write).changing(CONTENT),
    does(FsctlCode::DUPLICATE_EXTENTS_TO_FILE, WRITE)
        .with_second(|given| extents(given).to_bytes())
        .changing(CONTENT),
    does(FsctlCode::DUPLICATE_EXTENTS_TO_FILE_EX, WRITE).with_second(extents_ex).changing(CONTENT),
    does(FsctlCode::SET_COMPRESSION, CHANGE).with(|_| Compression::default().to_bytes()),
    does(FsctlCode::SET_INTEGRITY_INFORMATION, CHANGE).with(|_| SetIntegrity::default().to_bytes()),
    not(FsctlCode::PIPE_PEEK),
    not(FsctlCode::PIPE_TRANSCEIVE),
    does(FsctlCode::SRV_REQUEST_RESUME_KEY, ANY),
    not(FsctlCode::LMR_SET_LINK_TRACKING_INFORMATION),
    does(FsctlCode::LMR_REQUEST_RESILIENCY, ANY).with(|_| Resiliency::default().to_bytes()),
    does(FsctlCode::SRV_ENUMERATE_SNAPSHOTS, ANY),
    does(FsctlCode::SRV_COPYCHUNK, &[AccessMask::READ_DATA, WRITES]).with_second(chunks).changing(CONTENT),
    not(FsctlCode::SRV_READ_HASH),
    does(FsctlCode::SRV_COPYCHUNK_WRITE, &[WRITES]).with_second(chunks).changing(CONTENT),
];

/// What sets the flow that an open belongs to.
fn flow() -> QosControl {
    let options = QosOptions::SET_LOGICAL_FLOW_ID;
    QosControl {
        version: QosVersion::V1_1,
        options,
        flow: smb_protocol::Guid([1; 16]),
        ..QosControl::default()
    }
}
