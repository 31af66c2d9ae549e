//! What messages carry, as seeds for the fuzzer and for tests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::FileTime;
use crate::access::AccessMask;
use crate::fscc::ea::{Ea, ea_writer, push_ea, want_names};
use crate::fscc::file::AllInformation;
use crate::fscc::listing::{DirectoryEntry, DirectoryWriter};
use crate::fscc::names::{
    RenameFlags, RenameInformation, push_stream, put_all, put_hard_links, stream_writer,
};
use crate::fscc::notify::{NotifyAction, notify_writer, push_change};
use crate::fscc::quota::{Quota, push_quota, quota_writer};
use crate::fscc::{FileClass, volume};
use crate::fsctl::copy::{CopyChunk, OffloadToken, OffloadWriteInput, ResumeKey, copy_request};
use crate::fsctl::network::{InterfaceCapabilities, NetworkInterface, ValidateNegotiate, put_interfaces};
use crate::fsctl::ranges::{Region, TrimRange, put_regions, trim_request};
use crate::fsctl::reparse::{Reparse, ReparseTag};
use crate::fsctl::snapshots::put_snapshots;
use crate::fsctl::storage_qos::{QosAnswer, QosControl, QosOptions, QosVersion, qos_request};
use crate::negotiate::U16List;
use crate::security::{Ace, AceFlags, Acl, SecurityDescriptor, Sid};
use crate::utf16::{Utf16, utf16};
use crate::wire::Wire;

/// Security descriptors.
#[must_use]
pub fn descriptors() -> Vec<(&'static str, Vec<u8>)> {
    let inherit = AceFlags::OBJECT_INHERIT | AceFlags::CONTAINER_INHERIT;
    let dacl = Acl {
        aces: vec![
            Ace::deny(Sid::GUESTS, AccessMask::FILE_ALL, AceFlags::NONE),
            Ace::allow(Sid::ADMINISTRATORS, AccessMask::FILE_ALL, inherit),
            Ace::allow(Sid::EVERYONE, AccessMask::FILE_READ, AceFlags::INHERITED),
        ],
    };
    let full = SecurityDescriptor {
        owner: Some(Sid::ADMINISTRATORS),
        group: Some(Sid::USERS),
        sacl: Some(Acl::default()),
        dacl: Some(dacl),
        ..SecurityDescriptor::default()
    };
    vec![
        ("full", full.encode()),
        ("empty", SecurityDescriptor::default().encode()),
        ("sid_text", b"S-1-5-21-1-2-3-1001".to_vec()),
    ]
}

/// Inputs and outputs of controls.
#[must_use]
pub fn fsctls() -> Vec<(&'static str, Vec<u8>)> {
    let chunk = CopyChunk { source_offset: 0, target_offset: 65536, length: 4096 };
    let interface = |address| NetworkInterface {
        index: 1,
        capabilities: InterfaceCapabilities::RSS_CAPABLE,
        link_speed: 10_000_000_000,
        address,
    };
    let mut interfaces = Vec::new();
    put_interfaces(
        &[interface(IpAddr::V4(Ipv4Addr::LOCALHOST)), interface(IpAddr::V6(Ipv6Addr::LOCALHOST))],
        &mut interfaces,
    );
    let validate = ValidateNegotiate {
        capabilities: Default::default(),
        client_guid: Default::default(),
        security_mode: Default::default(),
        dialects: U16List::new(&[2, 2, 0, 3]),
    };
    let mut regions = Vec::new();
    put_regions(&[Region::default(); 2], 1024, &mut regions);
    let mut snapshots = Vec::new();
    put_snapshots(&[FileTime(132_000_000_000_000_000)], 1024, &mut snapshots);
    let target = utf16("..\\target");
    let name = Utf16::new(&target).unwrap_or_default();
    let token = OffloadToken::new(7, &[1; 16]);
    let qos = |version| QosControl { version, options: QosOptions::SET_POLICY, ..QosControl::default() };
    vec![
        ("copychunk", copy_request(ResumeKey([1; 24]), &[chunk; 2])),
        ("offload_write", OffloadWriteInput { size: 544, token, ..Default::default() }.to_bytes()),
        ("interfaces", interfaces),
        ("validate", validate.encode()),
        ("trim", trim_request(&[TrimRange { offset: 0, length: 4096 }; 2])),
        ("regions", regions),
        ("symlink", Reparse::Symlink { substitute: name, print: name, relative: true }.encode()),
        ("reparse", Reparse::Other(ReparseTag::NFS, &[1, 2, 3]).encode()),
        ("snapshots", snapshots),
        ("qos_1_0", qos_request(qos(QosVersion::V1_0), (0, 0), ("vm", "host"))),
        ("qos_1_1", qos_request(qos(QosVersion::V1_1), (200, 3), ("vm", "host"))),
        ("qos_answer", QosAnswer { version: QosVersion::V1_1, ..QosAnswer::default() }.encode(200)),
        ("snapshot_name", b"@GMT-2026.11.21-09.30.00".to_vec()),
    ]
}

/// Information of files and volumes, each after the byte of a class.
#[must_use]
pub fn information() -> Vec<(&'static str, Vec<u8>)> {
    let with = |class: FileClass, fill: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = vec![];
        fill(&mut bytes);
        [&[class.0], bytes.as_slice()].concat()
    };
    let listing = |class| {
        with(class, &|out: &mut Vec<u8>| {
            if let Some(mut writer) = DirectoryWriter::new(class, out, 4096) {
                writer.push(&DirectoryEntry::default(), ".", "");
                writer.push(&DirectoryEntry { file_id: 7, ..Default::default() }, "file.vhdx", "FILE~1.VHD");
            }
        })
    };
    let new_name = utf16("dir\\new");
    let name = Utf16::new(&new_name).unwrap_or_default();
    let rename = RenameInformation { flags: RenameFlags::REPLACE_IF_EXISTS, root_directory: 0, name };
    let quota = Quota { sid: Sid::SYSTEM, change_time: FileTime(1), used: 2, threshold: 3, limit: 4 };
    vec![
        ("names", listing(FileClass::NAMES)),
        ("id_both", listing(FileClass::ID_BOTH_DIRECTORY)),
        ("id_all_extd_both", listing(FileClass::ID_ALL_EXTD_BOTH_DIRECTORY)),
        ("all", with(FileClass::ALL, &|out| put_all(&AllInformation::default(), "\\file", out))),
        (
            "streams",
            with(FileClass::STREAM, &|out| {
                let mut list = stream_writer(out, 1024);
                push_stream(&mut list, "::$DATA", 5, 65536);
                push_stream(&mut list, ":b:$DATA", 6, 65536);
            }),
        ),
        (
            "links",
            with(FileClass::HARD_LINK, &|out| {
                put_hard_links(&[(5, "a"), (6, "b")], 1024, out);
            }),
        ),
        ("rename", with(FileClass::RENAME, &|out| out.extend(rename.encode(false)))),
        ("rename_ex", with(FileClass::RENAME_EX, &|out| out.extend(rename.encode(true)))),
        (
            "attributes",
            with(FileClass::FULL_EA, &|out| {
                let mut list = ea_writer(out, 1024);
                push_ea(&mut list, &Ea { flags: 0, name: b"A", value: b"1" });
                push_ea(&mut list, &Ea { flags: 0, name: b"B", value: b"22" });
            }),
        ),
        ("wanted", with(FileClass::FULL_EA, &|out| out.extend(want_names(&[b"A", b"B"])))),
        (
            "changes",
            with(FileClass::default(), &|out| {
                let mut list = notify_writer(out, 1024);
                push_change(&mut list, NotifyAction::RENAMED_OLD_NAME, "old");
                push_change(&mut list, NotifyAction::RENAMED_NEW_NAME, "new");
            }),
        ),
        (
            "quotas",
            with(FileClass::QUOTA, &|out| {
                push_quota(&mut quota_writer(out, 1024), &quota);
            }),
        ),
        ("volume", with(FileClass::default(), &|out| volume::put_volume(FileTime(1), 2, false, "data", out))),
        (
            "file_system",
            with(FileClass::default(), &|out| volume::put_attributes(Default::default(), 255, "NTFS", out)),
        ),
    ]
}
