//! SET_INFO of each class, and QUERY_INFO.

use smb_protocol::access::{AccessMask, CreateDisposition, CreateOptions, FileAttributes, OplockLevel};
use smb_protocol::file::FileId;
use smb_protocol::fscc::ea::{Ea, ea_writer, push_ea};
use smb_protocol::fscc::file::{
    AllocationInformation, BasicInformation, DispositionFlags, DispositionInformation,
    DispositionInformationEx, EndOfFileInformation, ModeInformation, PositionInformation,
    ValidDataLengthInformation,
};
use smb_protocol::fscc::names::{RenameFlags, RenameInformation};
use smb_protocol::fscc::{FileClass, VolumeClass};
use smb_protocol::info::{InfoType, SetInfoRequest};
use smb_protocol::message::Request;
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::{Command, FileTime, Guid, NtStatus, Wire as _};

use super::cases::{Case, Covers, KEY, Prepared, RWH, Scene, case};
use super::world::{Ask, OLD, query_request, set_request, settle};

/// A list of extended attributes.
pub(super) fn ea() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut list = ea_writer(&mut bytes, 4096);
    assert!(push_ea(&mut list, &Ea { flags: 0, name: b"NAME", value: b"value" }));
    bytes
}

/// A file of the victim's.
async fn there(s: &Scene) -> FileId {
    s.other.file("f", &OLD).await;
    s.victim.open(&Ask::open("f")).await
}

/// A file of the victim's that outlives the server.
async fn kept(s: &Scene) -> FileId {
    s.other.file("f", &OLD).await;
    s.victim.open(&Ask::open("f").lease(KEY, RWH).persistent()).await
}

fn set(s: &Scene, id: FileId, class: FileClass, buffer: &[u8]) -> Prepared {
    Prepared::new(s.victim.packet(&[&set_request(id, InfoType::FILE, class.0, buffer)]))
}

/// The name "to", in place of whatever has it.
pub(super) fn new_name(ex: bool) -> Vec<u8> {
    let name = utf16("to");
    let flags = RenameFlags::REPLACE_IF_EXISTS;
    RenameInformation { flags, root_directory: 0, name: Utf16::new(&name).unwrap() }.encode(ex)
}

fn rename(s: &Scene, id: FileId, ex: bool) -> Prepared {
    let class = if ex { FileClass::RENAME_EX } else { FileClass::RENAME };
    set(s, id, class, &new_name(ex))
}

const fn covers(class: FileClass) -> Covers {
    Covers::Set(class)
}

pub(super) fn all() -> Vec<Case> {
    let mut all = files();
    all.extend(others());
    all
}

fn files() -> Vec<Case> {
    vec![
        case!("set basic", [covers(FileClass::BASIC), Covers::Command(Command::SET_INFO)], "plain", |s| {
            let id = there(s).await;
            let basic = BasicInformation {
                creation_time: FileTime(132_000_000_000_000_000),
                last_write_time: FileTime(132_000_000_000_000_000),
                attributes: FileAttributes::HIDDEN,
                ..BasicInformation::default()
            };
            set(s, id, FileClass::BASIC, &basic.to_bytes()).file("f", &[&OLD])
        }),
        case!("delete", [covers(FileClass::DISPOSITION)], "ca", |s| {
            let id = kept(s).await;
            let info = DispositionInformation { delete_pending: true };
            set(s, id, FileClass::DISPOSITION, &info.to_bytes()).or_none("f", &[&OLD])
        }),
        case!("delete a folder", [covers(FileClass::DISPOSITION)], "ca", |s| {
            let folder =
                Ask::with("folder", CreateDisposition::CREATE).options(CreateOptions::DIRECTORY_FILE);
            let id = s.victim.open(&folder.persistent()).await;
            let info = DispositionInformation { delete_pending: true };
            set(s, id, FileClass::DISPOSITION, &info.to_bytes())
        }),
        case!("delete a stream", [covers(FileClass::DISPOSITION)], "ca", |s| {
            s.other.file("f", &OLD).await;
            s.other.file("f:stream", &OLD).await;
            let id = s.victim.open(&Ask::open("f:stream").persistent()).await;
            let info = DispositionInformation { delete_pending: true };
            set(s, id, FileClass::DISPOSITION, &info.to_bytes())
                .file("f", &[&OLD])
                .or_none("f:stream", &[&OLD])
        }),
        case!("delete no more", [covers(FileClass::DISPOSITION)], "ca", |s| {
            let id = kept(s).await;
            let delete = DispositionInformation { delete_pending: true }.to_bytes();
            let request = set_request(id, InfoType::FILE, FileClass::DISPOSITION.0, &delete);
            s.victim.call(&request).await.good();
            let info = DispositionInformation { delete_pending: false };
            set(s, id, FileClass::DISPOSITION, &info.to_bytes()).or_none("f", &[&OLD])
        }),
        case!("delete against others' handles", [covers(FileClass::DISPOSITION_EX)], "ca", |s| {
            s.other.file("f", &OLD).await;
            s.other.open(&Ask::open("f").lease(KEY, RWH).persistent()).await;
            let id = s.victim.open(&Ask::open("f").access(AccessMask::DELETE)).await;
            let info = DispositionInformationEx { flags: DispositionFlags::DELETE };
            set(s, id, FileClass::DISPOSITION_EX, &info.to_bytes()).or_none("f", &[&OLD])
        }),
        case!("delete on close", [covers(FileClass::DISPOSITION_EX)], "ca", |s| {
            let id = kept(s).await;
            let flags = DispositionFlags::DELETE | DispositionFlags::ON_CLOSE;
            let info = DispositionInformationEx { flags };
            set(s, id, FileClass::DISPOSITION_EX, &info.to_bytes()).or_none("f", &[&OLD])
        }),
        case!("rename", [covers(FileClass::RENAME)], "ca", |s| {
            let id = kept(s).await;
            rename(s, id, false).or_none("f", &[&OLD]).or_none("to", &[&OLD])
        }),
        case!("rename over a file that others keep a handle of", [covers(FileClass::RENAME_EX)], "ca", |s| {
            let id = kept(s).await;
            s.other.file("to", b"target").await;
            let id_of_other = s.other.open(&Ask::open("to").oplock(OplockLevel::BATCH)).await;
            let _ = id_of_other;
            rename(s, id, true)
                .status(NtStatus::ACCESS_DENIED)
                .or_none("f", &[&OLD])
                .file("to", &[b"target", &OLD])
        }),
        case!("rename over a file", [covers(FileClass::RENAME)], "ca", |s| {
            let id = kept(s).await;
            s.other.file("to", b"target").await;
            rename(s, id, false).or_none("f", &[&OLD]).file("to", &[b"target", &OLD]).alone("to")
        }),
        case!("rename what another has open that is away", [covers(FileClass::RENAME)], "ca", |s| {
            s.other.file("f", &OLD).await;
            let away = s.world.client(9, Guid([0xcc; 16]), "ca").await;
            away.open(&Ask::open("f").persistent()).await;
            away.leave();
            settle().await;
            let id = s.victim.open(&Ask::open("f")).await;
            rename(s, id, false).or_none("f", &[&OLD]).or_none("to", &[&OLD])
        }),
        case!("rename a folder", [covers(FileClass::RENAME)], "ca", |s| {
            let folder =
                Ask::with("folder", CreateDisposition::CREATE).options(CreateOptions::DIRECTORY_FILE);
            let id = s.victim.open(&folder.persistent()).await;
            rename(s, id, false)
        }),
        case!("hard link", [covers(FileClass::LINK)], "ca", |s| {
            let id = kept(s).await;
            let info = new_name(false);
            set(s, id, FileClass::LINK, &info).file("f", &[&OLD]).or_none("to", &[&OLD])
        }),
        case!("hard link over a file", [covers(FileClass::LINK_EX)], "ca", |s| {
            let id = kept(s).await;
            s.other.file("to", b"target").await;
            let info = new_name(true);
            set(s, id, FileClass::LINK_EX, &info)
                .file("f", &[&OLD])
                .file("to", &[b"target", &OLD])
                .alone("to")
        }),
        case!("cut a file", [covers(FileClass::END_OF_FILE)], "plain", |s| {
            let id = there(s).await;
            let info = EndOfFileInformation { end_of_file: 100 };
            set(s, id, FileClass::END_OF_FILE, &info.to_bytes()).file("f", &[&OLD, &OLD[..100]])
        }),
        case!("cut a file against leases", [covers(FileClass::END_OF_FILE)], "ca", |s| {
            let id = kept(s).await;
            s.other.open(&Ask::open("f").oplock(OplockLevel::II)).await;
            let info = EndOfFileInformation { end_of_file: 100 };
            set(s, id, FileClass::END_OF_FILE, &info.to_bytes()).file("f", &[&OLD, &OLD[..100]])
        }),
        case!("allocate", [covers(FileClass::ALLOCATION)], "plain", |s| {
            let id = there(s).await;
            let info = AllocationInformation { allocation_size: 1 << 20 };
            set(s, id, FileClass::ALLOCATION, &info.to_bytes()).file("f", &[&OLD])
        }),
        case!("allocate less than there is", [covers(FileClass::ALLOCATION)], "plain", |s| {
            let id = there(s).await;
            let info = AllocationInformation { allocation_size: 65_536 };
            set(s, id, FileClass::ALLOCATION, &info.to_bytes()).file("f", &[&OLD, &OLD[..65_536]])
        }),
        case!("valid data length", [covers(FileClass::VALID_DATA_LENGTH)], "plain", |s| {
            let id = there(s).await;
            let info = ValidDataLengthInformation { valid_data_length: 5 };
            set(s, id, FileClass::VALID_DATA_LENGTH, &info.to_bytes()).file("f", &[&OLD])
        }),
        case!("position", [covers(FileClass::POSITION)], "ca", |s| {
            let id = kept(s).await;
            let info = PositionInformation { position: 77 };
            set(s, id, FileClass::POSITION, &info.to_bytes()).file("f", &[&OLD])
        }),
        case!("mode", [covers(FileClass::MODE)], "ca", |s| {
            let id = kept(s).await;
            let info = ModeInformation { mode: CreateOptions::WRITE_THROUGH };
            set(s, id, FileClass::MODE, &info.to_bytes()).file("f", &[&OLD])
        }),
        case!("set extended attributes", [covers(FileClass::FULL_EA)], "plain", |s| {
            let id = there(s).await;
            set(s, id, FileClass::FULL_EA, &ea()).file("f", &[&OLD])
        }),
        case!("short name", [covers(FileClass::SHORT_NAME)], "plain", |s| {
            let id = there(s).await;
            set(s, id, FileClass::SHORT_NAME, &[0; 16]).status(NtStatus::NOT_SUPPORTED).file("f", &[&OLD])
        }),
    ]
}

fn others() -> Vec<Case> {
    vec![
        case!("set security", [Covers::Command(Command::SET_INFO)], "plain", |s| {
            let id = there(s).await;
            let descriptor = smb_security::default_descriptor().encode();
            let request = Request::SetInfo(SetInfoRequest {
                info_type: InfoType::SECURITY,
                class: 0,
                buffer: &descriptor,
                additional: 4,
                file_id: id,
            });
            Prepared::new(s.victim.packet(&[&request])).file("f", &[&OLD])
        }),
        case!("set the volume's label", [Covers::Command(Command::SET_INFO)], "plain", |s| {
            let id = there(s).await;
            let request = set_request(id, InfoType::FILESYSTEM, VolumeClass::LABEL.0, &[2, 0, 0, 0, 65, 0]);
            Prepared::new(s.victim.packet(&[&request])).status(NtStatus::ACCESS_DENIED).file("f", &[&OLD])
        }),
        case!("query everything of a file", [Covers::Command(Command::QUERY_INFO)], "plain", |s| {
            let id = there(s).await;
            let request = query_request(id, InfoType::FILE, FileClass::ALL.0);
            Prepared::new(s.victim.packet(&[&request])).file("f", &[&OLD])
        }),
        case!("query streams", [Covers::Command(Command::QUERY_INFO)], "plain", |s| {
            let id = there(s).await;
            let request = query_request(id, InfoType::FILE, FileClass::STREAM.0);
            Prepared::new(s.victim.packet(&[&request])).file("f", &[&OLD])
        }),
        case!("query the volume", [Covers::Command(Command::QUERY_INFO)], "plain", |s| {
            let id = there(s).await;
            let request = query_request(id, InfoType::FILESYSTEM, VolumeClass::FULL_SIZE.0);
            Prepared::new(s.victim.packet(&[&request])).file("f", &[&OLD])
        }),
    ]
}
