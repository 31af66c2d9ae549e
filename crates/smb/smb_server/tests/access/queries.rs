//! QUERY_INFO and QUERY_DIRECTORY.

use access_matrix::missing_row;

use super::*;

const ANY: &[AccessMask] = &[];
const ATTRIBUTES: &[AccessMask] = &[AccessMask::READ_ATTRIBUTES];
const CONTROL: &[AccessMask] = &[AccessMask::READ_CONTROL];
const SYSTEM: &[AccessMask] = &[AccessMask::ACCESS_SYSTEM_SECURITY];

const fn file(class: FileClass, needs: &'static [AccessMask]) -> Row {
    row(Send::QueryFile(class), needs, NtStatus::SUCCESS)
}

const fn no_file(class: FileClass) -> Row {
    row(Send::QueryFile(class), ANY, NtStatus::INVALID_INFO_CLASS)
}

const fn volume(class: VolumeClass) -> Row {
    row(Send::QueryVolume(class), ANY, NtStatus::SUCCESS)
}

const fn no_volume(class: VolumeClass) -> Row {
    row(Send::QueryVolume(class), ANY, NtStatus::INVALID_INFO_CLASS)
}

const fn list(class: FileClass) -> Row {
    row(Send::List(class), &[AccessMask::READ_DATA], NtStatus::SUCCESS)
}

const fn no_list(class: FileClass) -> Row {
    row(Send::List(class), ANY, NtStatus::INVALID_INFO_CLASS)
}

const fn security(parts: SecurityInformation, needs: &'static [AccessMask]) -> Row {
    row(Send::QuerySecurity(parts), needs, NtStatus::SUCCESS)
}

const _: () = {
    assert!(!missing_row(&named!(FileClass), &codes(&FILE)), "a class has no row for QUERY_INFO");
    assert!(
        !missing_row(&named!(VolumeClass), &codes(&VOLUME)),
        "a volume's class has no row for QUERY_INFO"
    );
    assert!(!missing_row(&named!(FileClass), &codes(&LIST)), "a class has no row for QUERY_DIRECTORY");
    assert!(
        !missing_row(&named!(SecurityInformation), &codes(&SECURITY)),
        "a part has no row for QUERY_INFO"
    );
    // FILE, FILESYSTEM, SECURITY and QUOTA.
    assert!(InfoType::NAMED.len() == 4, "a kind of information has no rows");
};

pub const FILE: [Row; FileClass::NAMED.len()] = [
    no_file(FileClass::DIRECTORY),
    no_file(FileClass::FULL_DIRECTORY),
    no_file(FileClass::BOTH_DIRECTORY),
    file(FileClass::BASIC, ATTRIBUTES),
    file(FileClass::STANDARD, ANY),
    file(FileClass::INTERNAL, ANY),
    file(FileClass::EA, ANY),
    file(FileClass::ACCESS, ANY),
    file(FileClass::NAME, ANY),
    no_file(FileClass::RENAME),
    no_file(FileClass::LINK),
    no_file(FileClass::NAMES),
    no_file(FileClass::DISPOSITION),
    file(FileClass::POSITION, ANY),
    // There are none.
    row(Send::QueryFile(FileClass::FULL_EA), &[AccessMask::READ_EA], NtStatus::NO_EAS_ON_FILE),
    file(FileClass::MODE, ANY),
    file(FileClass::ALIGNMENT, ANY),
    file(FileClass::ALL, ATTRIBUTES),
    no_file(FileClass::ALLOCATION),
    no_file(FileClass::END_OF_FILE),
    file(FileClass::ALTERNATE_NAME, ANY),
    file(FileClass::STREAM, ANY),
    row(Send::QueryFile(FileClass::PIPE), ANY, NtStatus::INVALID_PARAMETER),
    row(Send::QueryFile(FileClass::PIPE_LOCAL), ANY, NtStatus::INVALID_PARAMETER),
    row(Send::QueryFile(FileClass::PIPE_REMOTE), ANY, NtStatus::INVALID_PARAMETER),
    file(FileClass::COMPRESSION, ANY),
    no_file(FileClass::OBJECT_ID),
    no_file(FileClass::MOVE_CLUSTER),
    no_file(FileClass::QUOTA),
    no_file(FileClass::REPARSE_POINT),
    file(FileClass::NETWORK_OPEN, ATTRIBUTES),
    file(FileClass::ATTRIBUTE_TAG, ATTRIBUTES),
    no_file(FileClass::TRACKING),
    no_file(FileClass::ID_BOTH_DIRECTORY),
    no_file(FileClass::ID_FULL_DIRECTORY),
    no_file(FileClass::VALID_DATA_LENGTH),
    no_file(FileClass::SHORT_NAME),
    file(FileClass::HARD_LINK, ANY),
    file(FileClass::NORMALIZED_NAME, ANY),
    no_file(FileClass::ID_GLOBAL_TX_DIRECTORY),
    file(FileClass::STANDARD_LINK, ANY),
    file(FileClass::ID, ANY),
    no_file(FileClass::ID_EXTD_DIRECTORY),
    no_file(FileClass::DISPOSITION_EX),
    no_file(FileClass::RENAME_EX),
    no_file(FileClass::LINK_EX),
    no_file(FileClass::ID_64_EXTD_DIRECTORY),
    no_file(FileClass::ID_64_EXTD_BOTH_DIRECTORY),
    no_file(FileClass::ID_ALL_EXTD_DIRECTORY),
    no_file(FileClass::ID_ALL_EXTD_BOTH_DIRECTORY),
    no_file(FileClass::POSIX),
];

pub const VOLUME: [Row; VolumeClass::NAMED.len() + 1] = [
    volume(VolumeClass::VOLUME),
    no_volume(VolumeClass::LABEL),
    volume(VolumeClass::SIZE),
    volume(VolumeClass::DEVICE),
    volume(VolumeClass::ATTRIBUTE),
    volume(VolumeClass::CONTROL),
    volume(VolumeClass::FULL_SIZE),
    volume(VolumeClass::OBJECT_ID),
    no_volume(VolumeClass::DRIVER_PATH),
    no_volume(VolumeClass::VOLUME_FLAGS),
    volume(VolumeClass::SECTOR_SIZE),
    no_volume(VolumeClass::POSIX),
    row(Send::QueryQuota, ANY, NtStatus::NOT_SUPPORTED),
];

pub const LIST: [Row; FileClass::NAMED.len()] = [
    list(FileClass::DIRECTORY),
    list(FileClass::FULL_DIRECTORY),
    list(FileClass::BOTH_DIRECTORY),
    no_list(FileClass::BASIC),
    no_list(FileClass::STANDARD),
    no_list(FileClass::INTERNAL),
    no_list(FileClass::EA),
    no_list(FileClass::ACCESS),
    no_list(FileClass::NAME),
    no_list(FileClass::RENAME),
    no_list(FileClass::LINK),
    list(FileClass::NAMES),
    no_list(FileClass::DISPOSITION),
    no_list(FileClass::POSITION),
    no_list(FileClass::FULL_EA),
    no_list(FileClass::MODE),
    no_list(FileClass::ALIGNMENT),
    no_list(FileClass::ALL),
    no_list(FileClass::ALLOCATION),
    no_list(FileClass::END_OF_FILE),
    no_list(FileClass::ALTERNATE_NAME),
    no_list(FileClass::STREAM),
    no_list(FileClass::PIPE),
    no_list(FileClass::PIPE_LOCAL),
    no_list(FileClass::PIPE_REMOTE),
    no_list(FileClass::COMPRESSION),
    no_list(FileClass::OBJECT_ID),
    no_list(FileClass::MOVE_CLUSTER),
    no_list(FileClass::QUOTA),
    no_list(FileClass::REPARSE_POINT),
    no_list(FileClass::NETWORK_OPEN),
    no_list(FileClass::ATTRIBUTE_TAG),
    no_list(FileClass::TRACKING),
    list(FileClass::ID_BOTH_DIRECTORY),
    list(FileClass::ID_FULL_DIRECTORY),
    no_list(FileClass::VALID_DATA_LENGTH),
    no_list(FileClass::SHORT_NAME),
    no_list(FileClass::HARD_LINK),
    no_list(FileClass::NORMALIZED_NAME),
    no_list(FileClass::ID_GLOBAL_TX_DIRECTORY),
    no_list(FileClass::STANDARD_LINK),
    no_list(FileClass::ID),
    list(FileClass::ID_EXTD_DIRECTORY),
    no_list(FileClass::DISPOSITION_EX),
    no_list(FileClass::RENAME_EX),
    no_list(FileClass::LINK_EX),
    list(FileClass::ID_64_EXTD_DIRECTORY),
    list(FileClass::ID_64_EXTD_BOTH_DIRECTORY),
    list(FileClass::ID_ALL_EXTD_DIRECTORY),
    list(FileClass::ID_ALL_EXTD_BOTH_DIRECTORY),
    no_list(FileClass::POSIX),
];

pub const SECURITY: [Row; SecurityInformation::NAMED.len()] = [
    security(SecurityInformation::OWNER, CONTROL),
    security(SecurityInformation::GROUP, CONTROL),
    security(SecurityInformation::DACL, CONTROL),
    security(SecurityInformation::SACL, SYSTEM),
    security(SecurityInformation::LABEL, CONTROL),
    security(SecurityInformation::ATTRIBUTE, CONTROL),
    security(SecurityInformation::SCOPE, CONTROL),
    security(SecurityInformation::BACKUP, &[AccessMask::READ_CONTROL, AccessMask::ACCESS_SYSTEM_SECURITY]),
    // They say how to set, not what to read.
    security(SecurityInformation::UNPROTECTED_SACL, ANY),
    security(SecurityInformation::UNPROTECTED_DACL, ANY),
    security(SecurityInformation::PROTECTED_SACL, ANY),
    security(SecurityInformation::PROTECTED_DACL, ANY),
];
