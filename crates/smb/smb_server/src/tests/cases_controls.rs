//! IOCTL: each control.

use smb_protocol::file::FileId;
use smb_protocol::fsctl::FsctlCode;
use smb_protocol::fsctl::copy::{
    CopyChunk, DuplicateExtents, DuplicateExtentsEx, DuplicateFlags, OffloadReadInput, OffloadReadOutput,
    OffloadToken, OffloadWriteInput, ResumeKey, TOKEN_ZERO, copy_request,
};
use smb_protocol::fsctl::network::Resiliency;
use smb_protocol::fsctl::ranges::{AllocatedRange, TrimRange, ZeroData, trim_request};
use smb_protocol::fsctl::reparse::{Reparse, ReparseTag};
use smb_protocol::utf16::{Utf16, utf16};
use smb_protocol::{Command, NtStatus, Wire as _};

use super::cases::{Case, Covers, KEY, Prepared, RWH, Scene, case};
use super::world::{Ask, OLD, ioctl_request};

const fn covers(code: FsctlCode) -> Covers {
    Covers::Control(code)
}

/// A file of the victim's.
async fn there(s: &Scene) -> FileId {
    s.other.file("f", &OLD).await;
    s.victim.open(&Ask::open("f")).await
}

/// A file to copy from, and one to copy to.
async fn two(s: &Scene) -> (FileId, FileId) {
    s.other.file("from", &NEW).await;
    let from = s.victim.open(&Ask::open("from")).await;
    (from, there(s).await)
}

static NEW: [u8; 131_072] = [b'n'; 131_072];

fn ask(s: &Scene, id: FileId, code: FsctlCode, input: &[u8]) -> Prepared {
    Prepared::new(s.victim.packet(&[&ioctl_request(id, code, input)]))
}

fn zeros(from: usize, to: usize) -> Vec<u8> {
    let mut all = OLD.to_vec();
    all[from..to].fill(0);
    all
}

/// OLD with so many bytes of NEW at its beginning.
fn mixed(bytes: usize) -> Vec<u8> {
    [&NEW[..bytes], &OLD[bytes..]].concat()
}

/// A control that only tells, or is refused.
async fn tells(s: &Scene, code: FsctlCode) -> Prepared {
    let id = there(s).await;
    ask(s, id, code, &[]).file("f", &[&OLD])
}

async fn copy(s: &Scene, code: FsctlCode, chunks: &[CopyChunk]) -> Prepared {
    let (from, to) = two(s).await;
    let got = s.victim.call(&ioctl_request(from, FsctlCode::SRV_REQUEST_RESUME_KEY, &[])).await;
    got.good();
    let key = ResumeKey::decode(&got.output()).unwrap();
    ask(s, to, code, &copy_request(key, chunks)).file("from", &[&NEW])
}

fn symlink() -> Vec<u8> {
    let name = utf16("elsewhere");
    let name = Utf16::new(&name).unwrap();
    Reparse::Symlink { substitute: name, print: name, relative: true }.encode()
}

pub(super) fn all() -> Vec<Case> {
    let mut all = ranges();
    all.extend(copies());
    all.extend(plain());
    all
}

fn ranges() -> Vec<Case> {
    vec![
        case!("set sparse", [covers(FsctlCode::SET_SPARSE), Covers::Command(Command::IOCTL)], "plain", |s| {
            let id = there(s).await;
            ask(s, id, FsctlCode::SET_SPARSE, &[]).file("f", &[&OLD])
        }),
        case!("zeros", [covers(FsctlCode::SET_ZERO_DATA)], "plain", |s| {
            let id = there(s).await;
            let zero = ZeroData { file_offset: 0, beyond_final_zero: 65_536 };
            ask(s, id, FsctlCode::SET_ZERO_DATA, &zero.to_bytes()).file("f", &[&OLD, &zeros(0, 65_536)])
        }),
        case!("zeros in a sparse file", [covers(FsctlCode::SET_ZERO_DATA)], "plain", |s| {
            let id = there(s).await;
            s.victim.call(&ioctl_request(id, FsctlCode::SET_SPARSE, &[])).await.good();
            let zero = ZeroData { file_offset: 0, beyond_final_zero: 65_536 };
            ask(s, id, FsctlCode::SET_ZERO_DATA, &zero.to_bytes()).file("f", &[&OLD, &zeros(0, 65_536)])
        }),
        case!("allocated ranges", [covers(FsctlCode::QUERY_ALLOCATED_RANGES)], "plain", |s| {
            let id = there(s).await;
            s.victim.call(&ioctl_request(id, FsctlCode::SET_SPARSE, &[])).await.good();
            let range = AllocatedRange { file_offset: 0, length: 1 << 20 };
            ask(s, id, FsctlCode::QUERY_ALLOCATED_RANGES, &range.to_bytes()).file("f", &[&OLD])
        }),
        case!("trim", [covers(FsctlCode::FILE_LEVEL_TRIM)], "plain", |s| {
            let id = there(s).await;
            let ranges =
                [TrimRange { offset: 0, length: 65_536 }, TrimRange { offset: 65_536, length: 65_536 }];
            ask(s, id, FsctlCode::FILE_LEVEL_TRIM, &trim_request(&ranges))
                .file("f", &[&OLD, &zeros(0, 65_536), &zeros(0, 131_072)])
        }),
        case!("regions", [covers(FsctlCode::QUERY_FILE_REGIONS)], "plain", |s| {
            tells(s, FsctlCode::QUERY_FILE_REGIONS).await
        }),
    ]
}

fn copies() -> Vec<Case> {
    let all = vec![
        case!("resume key", [covers(FsctlCode::SRV_REQUEST_RESUME_KEY)], "plain", |s| {
            tells(s, FsctlCode::SRV_REQUEST_RESUME_KEY).await
        }),
        case!("copy by sharing", [covers(FsctlCode::SRV_COPYCHUNK)], "plain", |s| {
            let chunk = |at| CopyChunk { source_offset: at, target_offset: at, length: 65_536 };
            copy(s, FsctlCode::SRV_COPYCHUNK, &[chunk(0), chunk(65_536)])
                .await
                .file("f", &[&OLD, &mixed(65_536), &NEW])
        }),
        case!("copy by reading and writing", [covers(FsctlCode::SRV_COPYCHUNK_WRITE)], "plain", |s| {
            let chunks = [CopyChunk { source_offset: 0, target_offset: 0, length: 1000 }];
            copy(s, FsctlCode::SRV_COPYCHUNK_WRITE, &chunks).await.file("f", &[&OLD, &mixed(1000)])
        }),
        case!("duplicate extents", [covers(FsctlCode::DUPLICATE_EXTENTS_TO_FILE)], "plain", |s| {
            let (source, to) = two(s).await;
            let extents = DuplicateExtents { source, source_offset: 0, target_offset: 0, byte_count: 65_536 };
            ask(s, to, FsctlCode::DUPLICATE_EXTENTS_TO_FILE, &extents.to_bytes())
                .file("f", &[&OLD, &mixed(65_536)])
        }),
        case!("duplicate extents, extended", [covers(FsctlCode::DUPLICATE_EXTENTS_TO_FILE_EX)], "ca", |s| {
            s.other.file("from", &NEW).await;
            let source = s.victim.open(&Ask::open("from").lease(KEY, RWH)).await;
            let to = there(s).await;
            let extents =
                DuplicateExtents { source, source_offset: 0, target_offset: 0, byte_count: 131_072 };
            let asked = DuplicateExtentsEx {
                structure_size: DuplicateExtentsEx::STRUCTURE_SIZE,
                extents,
                flags: DuplicateFlags::SOURCE_ATOMIC,
            };
            ask(s, to, FsctlCode::DUPLICATE_EXTENTS_TO_FILE_EX, &asked.to_bytes()).file("f", &[&OLD, &NEW])
        }),
    ];
    all.into_iter().chain(offloads()).collect()
}

fn offloads() -> Vec<Case> {
    vec![
        case!("offload read", [covers(FsctlCode::OFFLOAD_READ)], "plain", |s| {
            let id = there(s).await;
            ask(s, id, FsctlCode::OFFLOAD_READ, &token_of(0).to_bytes()).file("f", &[&OLD])
        }),
        case!("offload write", [covers(FsctlCode::OFFLOAD_WRITE)], "plain", |s| {
            let (from, to) = two(s).await;
            let got =
                s.victim.call(&ioctl_request(from, FsctlCode::OFFLOAD_READ, &token_of(0).to_bytes())).await;
            got.good();
            let token = OffloadReadOutput::decode(&got.output()).unwrap().token;
            let write = write_token(token);
            ask(s, to, FsctlCode::OFFLOAD_WRITE, &write.to_bytes()).file("f", &[&OLD, &mixed(65_536)])
        }),
        case!("offload zeros", [covers(FsctlCode::OFFLOAD_WRITE)], "plain", |s| {
            let id = there(s).await;
            let write = write_token(OffloadToken::new(TOKEN_ZERO, &[]));
            ask(s, id, FsctlCode::OFFLOAD_WRITE, &write.to_bytes()).file("f", &[&OLD, &zeros(0, 65_536)])
        }),
    ]
}

pub(super) fn token_of(offset: u64) -> OffloadReadInput {
    OffloadReadInput { size: 32, flags: 0, time_to_live: 300_000, file_offset: offset, copy_length: 65_536 }
}

fn write_token(token: OffloadToken) -> OffloadWriteInput {
    OffloadWriteInput { size: 544, flags: 0, file_offset: 0, copy_length: 65_536, transfer_offset: 0, token }
}

fn plain() -> Vec<Case> {
    use FsctlCode as Code;
    vec![
        case!("set a reparse point", [covers(Code::SET_REPARSE_POINT)], "plain", |s| {
            let id = there(s).await;
            ask(s, id, Code::SET_REPARSE_POINT, &symlink())
        }),
        case!("get a reparse point", [covers(Code::GET_REPARSE_POINT)], "plain", |s| {
            let id = there(s).await;
            s.victim.call(&ioctl_request(id, Code::SET_REPARSE_POINT, &symlink())).await.good();
            ask(s, id, Code::GET_REPARSE_POINT, &[])
        }),
        case!("delete a reparse point", [covers(Code::DELETE_REPARSE_POINT)], "plain", |s| {
            let id = there(s).await;
            s.victim.call(&ioctl_request(id, Code::SET_REPARSE_POINT, &symlink())).await.good();
            let tag = [&ReparseTag::SYMLINK.0.to_le_bytes()[..], &[0; 4]].concat();
            ask(s, id, Code::DELETE_REPARSE_POINT, &tag)
        }),
        case!("resilience", [Covers::Command(Command::IOCTL)], "plain", |s| {
            let id = there(s).await;
            ask(s, id, Code::LMR_REQUEST_RESILIENCY, &Resiliency { timeout: 60_000 }.to_bytes())
                .file("f", &[&OLD])
        }),
        case!("resilience of what is persistent", [Covers::Command(Command::IOCTL)], "ca", |s| {
            s.other.file("f", &OLD).await;
            let id = s.victim.open(&Ask::open("f").persistent()).await;
            ask(s, id, Code::LMR_REQUEST_RESILIENCY, &Resiliency { timeout: 60_000 }.to_bytes())
                .file("f", &[&OLD])
        }),
        case!("compression", [covers(Code::GET_COMPRESSION), covers(Code::SET_COMPRESSION)], "plain", |s| {
            let id = there(s).await;
            ask(s, id, Code::SET_COMPRESSION, &[0, 0]).file("f", &[&OLD])
        }),
        case!(
            "integrity",
            [
                covers(Code::GET_INTEGRITY_INFORMATION),
                covers(Code::SET_INTEGRITY_INFORMATION),
                covers(Code::SET_INTEGRITY_INFORMATION_EX)
            ],
            "plain",
            |s| {
                let id = there(s).await;
                ask(s, id, Code::SET_INTEGRITY_INFORMATION, &[0; 8]).file("f", &[&OLD])
            }
        ),
        case!(
            "object identifiers",
            [
                covers(Code::CREATE_OR_GET_OBJECT_ID),
                covers(Code::GET_OBJECT_ID),
                covers(Code::SET_OBJECT_ID),
                covers(Code::SET_OBJECT_ID_EXTENDED),
                covers(Code::DELETE_OBJECT_ID)
            ],
            "plain",
            |s| tells(s, Code::CREATE_OR_GET_OBJECT_ID).await
        ),
        case!("is a path valid", [covers(Code::IS_PATHNAME_VALID)], "plain", |s| {
            tells(s, Code::IS_PATHNAME_VALID).await
        }),
        case!("previous versions", [covers(Code::SRV_ENUMERATE_SNAPSHOTS)], "plain", |s| {
            tells(s, Code::SRV_ENUMERATE_SNAPSHOTS).await.status(NtStatus::SUCCESS)
        }),
    ]
}
