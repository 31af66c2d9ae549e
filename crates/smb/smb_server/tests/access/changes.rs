//! SET_INFO.

use access_matrix::missing_row;
use smb_protocol::FileTime;
use smb_protocol::access::FileAttributes;
use smb_protocol::fscc::ea::{Ea, ea_writer, push_ea};
use smb_protocol::fscc::file::{
    AllocationInformation, BasicInformation, DispositionFlags, DispositionInformation,
    DispositionInformationEx, EndOfFileInformation, ModeInformation, PositionInformation,
    ValidDataLengthInformation,
};
use smb_protocol::fscc::names::{RenameFlags, RenameInformation};
use smb_protocol::fscc::volume::ControlInformation;
use smb_protocol::security::{Ace, AceFlags, Acl, Control, SecurityDescriptor};

use super::super::world::Client;
use super::*;

const ANY: &[AccessMask] = &[];
const DATA: &[AccessMask] = &[AccessMask::WRITE_DATA];
const DELETE: &[AccessMask] = &[AccessMask::DELETE];
const SYSTEM: &[AccessMask] = &[AccessMask::ACCESS_SYSTEM_SECURITY];
const OWNER: &[AccessMask] = &[AccessMask::WRITE_OWNER];
const DAC: &[AccessMask] = &[AccessMask::WRITE_DAC];

const fn file(class: FileClass, needs: &'static [AccessMask], input: Input) -> Row {
    row(Send::SetFile(class), needs, NtStatus::SUCCESS).with(input)
}

const fn no_file(class: FileClass) -> Row {
    row(Send::SetFile(class), ANY, NtStatus::INVALID_INFO_CLASS)
}

const fn no_volume(class: VolumeClass) -> Row {
    row(Send::SetVolume(class), ANY, NtStatus::INVALID_INFO_CLASS)
}

/// Of the volume little is a client's to change.
const fn kept(class: VolumeClass) -> Row {
    row(Send::SetVolume(class), ANY, NtStatus::ACCESS_DENIED)
}

const fn security(parts: SecurityInformation, needs: &'static [AccessMask]) -> Row {
    row(Send::SetSecurity(parts), needs, NtStatus::SUCCESS).with(new_security)
}

const _: () = {
    assert!(!missing_row(&named!(FileClass), &codes(&FILE)), "a class has no row for SET_INFO");
    assert!(!missing_row(&named!(VolumeClass), &codes(&VOLUME)), "a volume's class has no row for SET_INFO");
    assert!(!missing_row(&named!(SecurityInformation), &codes(&SECURITY)), "a part has no row for SET_INFO");
};

fn renamed(given: &Given, ex: bool) -> Vec<u8> {
    let name = utf16(&given.name);
    let flags = RenameFlags::NONE;
    RenameInformation { flags, root_directory: 0, name: Utf16::new(&name).unwrap() }.encode(ex)
}

fn basic(_: &Given) -> Vec<u8> {
    let time = FileTime(116_444_736_010_000_000);
    BasicInformation {
        last_write_time: time,
        attributes: FileAttributes::HIDDEN,
        ..BasicInformation::default()
    }
    .to_bytes()
}

fn ea(_: &Given) -> Vec<u8> {
    let mut out = Vec::new();
    let mut list = ea_writer(&mut out, 4096);
    assert!(push_ea(&mut list, &Ea { flags: 0, name: b"NAME", value: b"value" }));
    out
}

fn new_security(given: &Given) -> Vec<u8> {
    // Somebody may do everything; what was is gone.
    let aces = vec![Ace::allow(Client::Stranger.sid(), AccessMask::FILE_ALL, AceFlags(0))];
    SecurityDescriptor {
        control: Control::DACL_PRESENT | Control::SACL_PRESENT,
        owner: given.who,
        group: Some(Client::Stranger.sid()),
        dacl: Some(Acl { aces }),
        sacl: Some(Acl { aces: Vec::new() }),
    }
    .encode()
}

pub const FILE: [Row; FileClass::NAMED.len()] = [
    no_file(FileClass::DIRECTORY),
    no_file(FileClass::FULL_DIRECTORY),
    no_file(FileClass::BOTH_DIRECTORY),
    file(FileClass::BASIC, &[AccessMask::WRITE_ATTRIBUTES], basic).changing(&[Part::Attributes, Part::Times]),
    no_file(FileClass::STANDARD),
    no_file(FileClass::INTERNAL),
    no_file(FileClass::EA),
    no_file(FileClass::ACCESS),
    no_file(FileClass::NAME),
    file(FileClass::RENAME, DELETE, |given| renamed(given, false)).changing(&[Part::Names]),
    file(FileClass::LINK, &[AccessMask::WRITE_ATTRIBUTES], |given| renamed(given, false))
        .changing(&[Part::Names]),
    no_file(FileClass::NAMES),
    file(FileClass::DISPOSITION, DELETE, |_| DispositionInformation { delete_pending: true }.to_bytes())
        .changing(&[Part::Opens]),
    // They are the open's own, and nobody else sees them.
    file(FileClass::POSITION, ANY, |_| PositionInformation { position: 5 }.to_bytes()),
    file(FileClass::FULL_EA, &[AccessMask::WRITE_EA], ea).changing(&[Part::Extras, Part::Attributes]),
    file(FileClass::MODE, ANY, |_| ModeInformation::default().to_bytes()),
    no_file(FileClass::ALIGNMENT),
    no_file(FileClass::ALL),
    file(FileClass::ALLOCATION, DATA, |_| AllocationInformation { allocation_size: 4096 }.to_bytes())
        .changing(&[Part::Data, Part::Size, Part::Attributes]),
    file(FileClass::END_OF_FILE, DATA, |_| EndOfFileInformation { end_of_file: 10 }.to_bytes()).changing(&[
        Part::Data,
        Part::Size,
        Part::Attributes,
    ]),
    no_file(FileClass::ALTERNATE_NAME),
    no_file(FileClass::STREAM),
    no_file(FileClass::PIPE),
    no_file(FileClass::PIPE_LOCAL),
    no_file(FileClass::PIPE_REMOTE),
    no_file(FileClass::COMPRESSION),
    no_file(FileClass::OBJECT_ID),
    no_file(FileClass::MOVE_CLUSTER),
    no_file(FileClass::QUOTA),
    no_file(FileClass::REPARSE_POINT),
    no_file(FileClass::NETWORK_OPEN),
    no_file(FileClass::ATTRIBUTE_TAG),
    no_file(FileClass::TRACKING),
    no_file(FileClass::ID_BOTH_DIRECTORY),
    no_file(FileClass::ID_FULL_DIRECTORY),
    row(Send::SetFile(FileClass::VALID_DATA_LENGTH), DATA, NtStatus::PRIVILEGE_NOT_HELD)
        .with(|_| ValidDataLengthInformation { valid_data_length: 10 }.to_bytes())
        .for_admin(NtStatus::SUCCESS),
    row(Send::SetFile(FileClass::SHORT_NAME), ANY, NtStatus::NOT_SUPPORTED),
    no_file(FileClass::HARD_LINK),
    no_file(FileClass::NORMALIZED_NAME),
    no_file(FileClass::ID_GLOBAL_TX_DIRECTORY),
    no_file(FileClass::STANDARD_LINK),
    no_file(FileClass::ID),
    no_file(FileClass::ID_EXTD_DIRECTORY),
    file(FileClass::DISPOSITION_EX, DELETE, |_| {
        DispositionInformationEx { flags: DispositionFlags::DELETE | DispositionFlags::ON_CLOSE }.to_bytes()
    })
    .changing(&[Part::Opens]),
    file(FileClass::RENAME_EX, DELETE, |given| renamed(given, true)).changing(&[Part::Names]),
    file(FileClass::LINK_EX, &[AccessMask::WRITE_ATTRIBUTES], |given| renamed(given, true))
        .changing(&[Part::Names]),
    no_file(FileClass::ID_64_EXTD_DIRECTORY),
    no_file(FileClass::ID_64_EXTD_BOTH_DIRECTORY),
    no_file(FileClass::ID_ALL_EXTD_DIRECTORY),
    no_file(FileClass::ID_ALL_EXTD_BOTH_DIRECTORY),
    no_file(FileClass::POSIX),
];

pub const VOLUME: [Row; VolumeClass::NAMED.len() + 1] = [
    no_volume(VolumeClass::VOLUME),
    kept(VolumeClass::LABEL),
    no_volume(VolumeClass::SIZE),
    no_volume(VolumeClass::DEVICE),
    no_volume(VolumeClass::ATTRIBUTE),
    // Quotas, which stay off by this.
    row(Send::SetVolume(VolumeClass::CONTROL), ANY, NtStatus::ACCESS_DENIED)
        .with(|_| {
            let none = u64::MAX;
            ControlInformation { default_threshold: none, default_limit: none, ..Default::default() }
                .to_bytes()
        })
        .for_admin(NtStatus::SUCCESS),
    no_volume(VolumeClass::FULL_SIZE),
    kept(VolumeClass::OBJECT_ID),
    no_volume(VolumeClass::DRIVER_PATH),
    no_volume(VolumeClass::VOLUME_FLAGS),
    no_volume(VolumeClass::SECTOR_SIZE),
    no_volume(VolumeClass::POSIX),
    row(Send::SetQuota, ANY, NtStatus::NOT_SUPPORTED),
];

const CHANGED: &[Part] = &[Part::Security];

pub const SECURITY: [Row; SecurityInformation::NAMED.len()] = [
    // Everybody makes itself the owner.
    security(SecurityInformation::OWNER, OWNER).changing(CHANGED),
    security(SecurityInformation::GROUP, OWNER).changing(CHANGED),
    security(SecurityInformation::DACL, DAC).changing(CHANGED),
    security(SecurityInformation::SACL, SYSTEM).changing(CHANGED),
    // What is not kept changes nothing, and wants the right all the same (MS-SMB2 3.3.5.21.3).
    security(SecurityInformation::LABEL, OWNER),
    security(SecurityInformation::ATTRIBUTE, DAC),
    security(SecurityInformation::SCOPE, SYSTEM),
    security(
        SecurityInformation::BACKUP,
        &[AccessMask::WRITE_DAC, AccessMask::WRITE_OWNER, AccessMask::ACCESS_SYSTEM_SECURITY],
    ),
    // They say how to set a list, and no list is set (MS-SMB2 2.2.37 does not know them).
    security(SecurityInformation::UNPROTECTED_SACL, ANY),
    security(SecurityInformation::UNPROTECTED_DACL, ANY),
    security(SecurityInformation::PROTECTED_SACL, ANY),
    security(SecurityInformation::PROTECTED_DACL, ANY),
];
