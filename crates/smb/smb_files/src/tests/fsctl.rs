//! File system controls.

use smb_protocol::file::FileId as WireId;
use smb_protocol::fscc::file::EndOfFileInformation;
use smb_protocol::fsctl::FsctlCode;
use smb_protocol::fsctl::copy::{
    CopyChunk, CopyReply, DuplicateExtents, OffloadReadInput, OffloadReadOutput, OffloadToken,
    OffloadWriteInput, OffloadWriteOutput, ResumeKey, ResumeKeyReply, TOKEN_ZERO, copy_request,
};
use smb_protocol::fsctl::ranges::{AllocatedRange, TrimRange, ZeroData, trim_request};
use smb_protocol::fsctl::reparse::Reparse;
use smb_protocol::lock::{LockElement, LockFlags};
use smb_protocol::wire::Wire;

use super::*;
use crate::{Detail, FileError, OpenLookup};

/// The opens of a session: file identifiers are the opens' numbers.
struct Session<'a>(&'a FileSystem);

impl OpenLookup for Session<'_> {
    fn by_file_id(&self, id: WireId) -> Option<Arc<Open>> {
        self.0.open_by_id(OpenId(id.persistent))
    }
    fn by_resume_key(&self, key: ResumeKey) -> Option<Arc<Open>> {
        self.0.open_by_resume_key(key)
    }
}

type Answer = crate::Result<(NtStatus, Vec<u8>)>;

impl Fixture {
    async fn control(&self, open: &Arc<Open>, code: FsctlCode, input: &[u8]) -> Answer {
        open.fsctl(code, input, 4096, &Session(&self.fs)).await
    }
}

fn ranges(bytes: &[u8]) -> Vec<(i64, i64)> {
    let all = bytes.chunks(16).map(|range| AllocatedRange::decode(range).unwrap());
    all.map(|range| (range.file_offset, range.length)).collect()
}

const UNIT: usize = 65536;

#[test]
fn sparse_files_have_holes() {
    run(|f| async move {
        f.file("f", &vec![7; 4 * UNIT]).await;
        let open = f.open("f", &Ask::open()).await;
        let all = AllocatedRange { file_offset: 0, length: i64::MAX }.to_bytes();
        let query = FsctlCode::QUERY_ALLOCATED_RANGES;
        assert_eq!(ranges(&f.control(&open, query, &all).await.unwrap().1), [(0, 4 * UNIT as i64)]);
        f.control(&open, FsctlCode::SET_SPARSE, &[]).await.unwrap();
        assert!(open.info().await.unwrap().attributes.contains(FileAttributes::SPARSE_FILE));
        let zero = ZeroData { file_offset: UNIT as i64, beyond_final_zero: 2 * UNIT as i64 };
        f.control(&open, FsctlCode::SET_ZERO_DATA, &zero.to_bytes()).await.unwrap();
        let (one, two) = (UNIT as i64, 2 * UNIT as i64);
        assert_eq!(ranges(&f.control(&open, query, &all).await.unwrap().1), [(0, one), (two, two)]);
        let first = open.fsctl(query, &all, 16, &Session(&f.fs)).await.unwrap();
        assert_eq!((first.0, ranges(&first.1)), (NtStatus::BUFFER_OVERFLOW, vec![(0, one)]));
        assert_eq!(read(&open, UNIT as u64, 3).await.unwrap(), [0; 3]);
        for bad in [&all[..15], &AllocatedRange { file_offset: -1, length: 1 }.to_bytes()] {
            assert_eq!(status(f.control(&open, query, bad).await), NtStatus::INVALID_PARAMETER);
        }
        let backwards = ZeroData { file_offset: 9, beyond_final_zero: 8 }.to_bytes();
        let refused = f.control(&open, FsctlCode::SET_ZERO_DATA, &backwards).await;
        assert_eq!(status(refused), NtStatus::INVALID_PARAMETER);
        let mut trim = trim_request(&[TrimRange { offset: 0, length: UNIT as u64 }]);
        let trimmed = f.control(&open, FsctlCode::FILE_LEVEL_TRIM, &trim).await.unwrap();
        assert_eq!(trimmed.1, [1, 0, 0, 0]);
        assert_eq!(ranges(&f.control(&open, query, &all).await.unwrap().1), [(two, two)]);
        trim[0] = 1;
        let keyed = f.control(&open, FsctlCode::FILE_LEVEL_TRIM, &trim).await;
        assert_eq!(status(keyed), NtStatus::INVALID_PARAMETER);
        let regions = f.control(&open, FsctlCode::QUERY_FILE_REGIONS, &[]).await.unwrap().1;
        assert_eq!(smb_protocol::fsctl::ranges::regions(&regions).unwrap().1.len(), 1);
        let list = FsctlCode::SRV_ENUMERATE_SNAPSHOTS;
        assert_eq!(
            f.control(&open, list, &[]).await.unwrap().1,
            [0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]
        );
        let small = open.fsctl(list, &[], 15, &Session(&f.fs)).await;
        assert_eq!(status(small), NtStatus::INVALID_PARAMETER);
        let unknown = f.control(&open, FsctlCode(0x1234), &[]).await;
        assert_eq!(status(unknown), NtStatus::INVALID_DEVICE_REQUEST);
        open.close(false).await.unwrap();
    });
}

#[test]
fn copies_within_the_server() {
    run(|f| async move {
        let content: Vec<u8> = (0..2 * UNIT + 100).map(|i| (i % 251) as u8).collect();
        f.file("source", &content).await;
        let source = f.open("source", &Ask::open()).await;
        let target = f.open("target", &Ask::default()).await;
        let key = f.control(&source, FsctlCode::SRV_REQUEST_RESUME_KEY, &[]).await.unwrap().1;
        let key = ResumeKeyReply::decode(&key).unwrap().key;
        let chunk = |source_offset, target_offset, length| CopyChunk { source_offset, target_offset, length };
        let copy = |key: ResumeKey, chunks: Vec<CopyChunk>| {
            let input = copy_request(key, &chunks);
            let (f, target) = (&f, &target);
            async move { f.control(target, FsctlCode::SRV_COPYCHUNK, &input).await }
        };
        let two = 2 * UNIT as u32;
        let chunks = vec![chunk(0, 0, two), chunk(u64::from(two), u64::from(two), 100)];
        let reply = CopyReply::decode(&copy(key, chunks).await.unwrap().1).unwrap();
        assert_eq!((reply.chunks, reply.total_bytes as usize), (2, content.len()));
        assert_eq!(read(&target, 0, content.len()).await.unwrap(), content);
        assert!(f.store.usage().await.unwrap().used < 6 * UNIT as u64, "whole clusters are shared");
        let limits = (256, 1 << 20, 16 << 20);
        for (chunks, expected, reply) in [
            (vec![chunk(0, 0, 0)], NtStatus::INVALID_PARAMETER, limits),
            (vec![chunk(0, 0, (1 << 20) + 1)], NtStatus::INVALID_PARAMETER, limits),
            (vec![chunk(0, 0, 10), chunk(u64::from(two), 0, 101)], NtStatus(0xc000_001f), (1, 0, 10)),
        ] {
            let FileError { status, detail: Detail::Output(out), .. } = copy(key, chunks).await.unwrap_err()
            else {
                panic!("the error has output")
            };
            let found = CopyReply::decode(&out).unwrap();
            assert_eq!((status, (found.chunks, found.chunk_bytes, found.total_bytes)), (expected, reply));
        }
        let mut wrong = key;
        wrong.0[20] ^= 1;
        let refused = copy(wrong, vec![chunk(0, 0, 1)]).await;
        assert_eq!(status(refused), NtStatus::OBJECT_NAME_NOT_FOUND);
        let extents = |source_offset, byte_count| {
            let id = WireId { persistent: source.id().0, volatile: 0 };
            DuplicateExtents { source: id, source_offset, target_offset: 4 * UNIT as i64, byte_count }
                .to_bytes()
        };
        let code = FsctlCode::DUPLICATE_EXTENTS_TO_FILE;
        let grows = f.control(&target, code, &extents(UNIT as i64, UNIT as i64 + 100)).await;
        assert_eq!(status(grows), NtStatus::NOT_SUPPORTED, "the target does not grow");
        let end = EndOfFileInformation { end_of_file: 5 * UNIT as i64 + 100 }.to_bytes();
        target.set_info(FileClass::END_OF_FILE, &end, &|_| {}).await.unwrap();
        f.control(&target, code, &extents(UNIT as i64, UNIT as i64 + 100)).await.unwrap();
        assert_eq!(read(&target, 4 * UNIT as u64, UNIT + 100).await.unwrap(), content[UNIT..]);
        for (offset, count, expected) in [
            (1, UNIT as i64, NtStatus::INVALID_PARAMETER),
            (-1, 1, NtStatus::INVALID_PARAMETER),
            (0, 9 * UNIT as i64, NtStatus::NOT_SUPPORTED),
            (0, 0, NtStatus::SUCCESS),
        ] {
            assert_eq!(status(f.control(&target, code, &extents(offset, count)).await), expected);
        }
        source.close(false).await.unwrap();
        // Who may run the source may read it.
        let source = f.open("source", &Ask::open().access(AccessMask::EXECUTE)).await;
        let key = f.control(&source, FsctlCode::SRV_REQUEST_RESUME_KEY, &[]).await.unwrap().1;
        copy(ResumeKeyReply::decode(&key).unwrap().key, vec![chunk(0, 0, 5)]).await.unwrap();
        source.close(false).await.unwrap();
        target.close(false).await.unwrap();
    });
}

#[test]
fn a_hole_to_the_end_takes_the_last_cluster() {
    run(|f| async move {
        f.file("f", &[7; 4096]).await;
        let open = f.open("f", &Ask::open()).await;
        f.control(&open, FsctlCode::SET_SPARSE, &[]).await.unwrap();
        let zero = ZeroData { file_offset: 0, beyond_final_zero: 4096 };
        f.control(&open, FsctlCode::SET_ZERO_DATA, &zero.to_bytes()).await.unwrap();
        let all = AllocatedRange { file_offset: 0, length: i64::MAX }.to_bytes();
        let found = f.control(&open, FsctlCode::QUERY_ALLOCATED_RANGES, &all).await.unwrap().1;
        assert_eq!(ranges(&found), []);
        assert_eq!(open.info().await.unwrap().end_of_file, 4096);
        open.close(false).await.unwrap();
    });
}

#[test]
fn tokens_stand_for_data_until_these_change() {
    run(|f| async move {
        f.file("source", &vec![5; 2 * UNIT]).await;
        f.file("target", &vec![6; 2 * UNIT]).await;
        let (source, target) = (f.open("source", &Ask::open()).await, f.open("target", &Ask::open()).await);
        let (read_code, write_code) = (FsctlCode::OFFLOAD_READ, FsctlCode::OFFLOAD_WRITE);
        let ask =
            OffloadReadInput { size: 32, flags: 0, time_to_live: 0, file_offset: 0, copy_length: 1 << 30 };
        let token = f.control(&source, read_code, &ask.to_bytes()).await.unwrap().1;
        let token = OffloadReadOutput::decode(&token).unwrap();
        assert_eq!(token.transfer_length, 2 * UNIT as u64);
        let write = |token: OffloadToken| {
            let input = OffloadWriteInput {
                size: 544,
                flags: 0,
                file_offset: UNIT as u64,
                copy_length: 1 << 20,
                transfer_offset: 0,
                token,
            };
            let (f, target) = (&f, &target);
            async move { f.control(target, write_code, &input.to_bytes()).await }
        };
        let written = write(token.token).await.unwrap().1;
        assert_eq!(OffloadWriteOutput::decode(&written).unwrap().length_written, UNIT as u64);
        assert_eq!(read(&target, UNIT as u64 - 1, 2).await.unwrap(), [6, 5]);
        write(OffloadToken::new(TOKEN_ZERO, &[])).await.unwrap();
        assert_eq!(read(&target, UNIT as u64 - 1, 2).await.unwrap(), [6, 0]);
        source.write(0, buf(b"x"), WriteFlags::default()).await.unwrap();
        assert_eq!(status(write(token.token).await), NtStatus::INVALID_TOKEN);
        let again = f.control(&source, read_code, &ask.to_bytes()).await.unwrap().1;
        let again = OffloadReadOutput::decode(&again).unwrap().token;
        let mut forged = again;
        forged.0[30] ^= 1;
        assert_eq!(status(write(forged).await), NtStatus::INVALID_TOKEN);
        shard_runtime::sleep(std::time::Duration::from_secs(31)).await;
        assert_eq!(status(write(again).await), NtStatus::INVALID_TOKEN, "too old");
        source.close(false).await.unwrap();
        target.close(false).await.unwrap();
    });
}

/// A token for the first unit of an open's data.
async fn token_for(f: &Fixture, open: &Arc<Open>) -> OffloadToken {
    let ask =
        OffloadReadInput { size: 32, flags: 0, time_to_live: 0, file_offset: 0, copy_length: UNIT as u64 };
    let answer = f.control(open, FsctlCode::OFFLOAD_READ, &ask.to_bytes()).await.unwrap().1;
    OffloadReadOutput::decode(&answer).unwrap().token
}

/// Writes what a token stands for to the beginning of an open.
async fn redeem(f: &Fixture, open: &Arc<Open>, token: OffloadToken) -> NtStatus {
    let input = OffloadWriteInput {
        size: 544,
        flags: 0,
        file_offset: 0,
        copy_length: UNIT as u64,
        transfer_offset: 0,
        token,
    };
    status(f.control(open, FsctlCode::OFFLOAD_WRITE, &input.to_bytes()).await)
}

#[test]
fn a_token_is_good_for_its_user_and_share_only() {
    run(|f| async move {
        f.directory("d").await;
        let root = f.store.lookup(f.store.root(), "d").await.unwrap().file;
        let (alice, bob) = (f.administrator(2000), f.administrator(3000));
        let mut opens = Vec::new();
        for (who, name) in [(&alice, "private"), (&bob, "mine"), (&alice, "copy"), (&bob, "copy of mine")] {
            let open = f.create_as(who, name, &Ask::default()).await.unwrap().open;
            open.write(0, buf(&vec![7; UNIT]), WriteFlags::default()).await.unwrap();
            opens.push(open);
        }
        let [private, mine, copy, copy_of_mine] = opens.as_slice() else { panic!("four opens") };
        let theirs = token_for(&f, private).await;
        let own = token_for(&f, mine).await;
        // From a token of its own to one that was given out before.
        let mut forged: Vec<u8> = own.id().unwrap().to_vec();
        let number = u64::from_be_bytes(*forged.first_chunk().unwrap());
        forged[..8].copy_from_slice(&number.wrapping_sub(1).to_be_bytes());
        let forged = OffloadToken::new(own.kind(), &forged);
        let shared = theirs.id().unwrap().iter().zip(own.id().unwrap()).filter(|(a, b)| a == b).count();
        assert!(shared < 8, "two tokens have {shared} of 24 bytes in common");
        for (token, what) in [(forged, "a forged token"), (theirs, "another user's token")] {
            assert_eq!(redeem(&f, copy_of_mine, token).await, NtStatus::INVALID_TOKEN, "{what}");
        }
        assert_eq!(redeem(&f, copy_of_mine, own).await, NtStatus::SUCCESS);
        assert_eq!(redeem(&f, copy, theirs).await, NtStatus::SUCCESS);
        // The same user through another share, which may have been given with other rights.
        let elsewhere = f.through(&alice, root, AccessMask::FILE_ALL);
        let open = f.create_as(&elsewhere, "copy", &Ask::default()).await.unwrap().open;
        open.write(0, buf(&vec![6; UNIT]), WriteFlags::default()).await.unwrap();
        assert_eq!(redeem(&f, &open, theirs).await, NtStatus::INVALID_TOKEN, "another share's token");
        f.close_all().await;
    });
}

#[test]
fn one_user_takes_no_tokens_from_another() {
    run(|f| async move {
        let (alice, bob) = (f.administrator(2000), f.administrator(3000));
        let mut opens = Vec::new();
        for (who, name) in [(&alice, "a"), (&alice, "a2"), (&bob, "b")] {
            let open = f.create_as(who, name, &Ask::default()).await.unwrap().open;
            open.write(0, buf(&vec![7; UNIT]), WriteFlags::default()).await.unwrap();
            opens.push(open);
        }
        let token = token_for(&f, &opens[0]).await;
        for _ in 0..5000 {
            token_for(&f, &opens[2]).await;
        }
        assert_eq!(redeem(&f, &opens[1], token).await, NtStatus::SUCCESS);
        f.close_all().await;
    });
}

#[test]
fn an_open_that_may_only_append_overwrites_nothing() {
    run(|f| async move {
        let content = vec![1; 2 * UNIT];
        f.file("source", &vec![2; UNIT]).await;
        f.file("log", &content).await;
        let source = f.open("source", &Ask::open()).await;
        let append = AccessMask::APPEND_DATA | AccessMask::READ_ATTRIBUTES;
        let log = f.open("log", &Ask::open().access(append)).await;
        let chunk = CopyChunk { source_offset: 0, target_offset: 0, length: UNIT as u32 };
        let input = copy_request(source.resume_key(), &[chunk]);
        f.control(&log, FsctlCode::SRV_COPYCHUNK_WRITE, &input).await.unwrap();
        let look = f.open("log", &Ask::open().access(AccessMask::READ_DATA)).await;
        assert!(read(&look, 0, 2 * UNIT).await.unwrap() == content, "what was there stays");
        assert!(read(&look, 2 * UNIT as u64, UNIT).await.unwrap() == vec![2; UNIT], "it is appended");
        f.close_all().await;
    });
}

#[test]
fn sharing_extents_respects_locks() {
    run(|f| async move {
        f.file("source", &vec![1; 2 * UNIT]).await;
        f.file("target", &vec![2; 2 * UNIT]).await;
        let (source, target) = (f.open("source", &Ask::open()).await, f.open("target", &Ask::open()).await);
        let (theirs_source, theirs_target) =
            (f.open("source", &Ask::open()).await, f.open("target", &Ask::open()).await);
        let id = WireId { persistent: source.id().0, volatile: 0 };
        let extents = |offset: usize| DuplicateExtents {
            source: id,
            source_offset: offset as i64,
            target_offset: offset as i64,
            byte_count: UNIT as i64,
        };
        let lock = |offset: u64, flags: u32| [LockElement { offset, length: 1, flags: LockFlags(flags) }];
        // Somebody has the end of the first unit of the target for itself, and of the second unit of the source.
        theirs_target.lock(&lock(UNIT as u64 - 1, 0x12), &|_| {}).await.unwrap();
        theirs_source.lock(&lock(2 * UNIT as u64 - 1, 0x12), &|_| {}).await.unwrap();
        let code = FsctlCode::DUPLICATE_EXTENTS_TO_FILE;
        for offset in [0, UNIT] {
            let refused = f.control(&target, code, &extents(offset).to_bytes()).await;
            assert_eq!(status(refused), NtStatus::FILE_LOCK_CONFLICT, "{offset}");
        }
        assert_eq!(read(&target, 0, 10).await.unwrap(), [2; 10]);
        theirs_target.close(false).await.unwrap();
        theirs_source.close(false).await.unwrap();
        f.control(&target, code, &extents(0).to_bytes()).await.unwrap();
        f.close_all().await;
    });
}

#[test]
fn paths_stop_at_symbolic_links() {
    run(|f| async move {
        f.directory("d").await;
        let link = f.open("link", &Ask::default()).await;
        let (sub, print) = (utf16("d"), utf16("D"));
        let point = Reparse::Symlink {
            substitute: Utf16::new(&sub).unwrap(),
            print: Utf16::new(&print).unwrap(),
            relative: true,
        };
        let (get, set) = (FsctlCode::GET_REPARSE_POINT, FsctlCode::SET_REPARSE_POINT);
        assert_eq!(status(f.control(&link, get, &[]).await), NtStatus::NOT_A_REPARSE_POINT);
        assert_eq!(status(f.control(&link, set, &[1; 7]).await), NtStatus::IO_REPARSE_DATA_INVALID);
        f.control(&link, set, &point.encode()).await.unwrap();
        assert_eq!(f.control(&link, get, &[]).await.unwrap().1, point.encode());
        link.close(false).await.unwrap();
        let stopped = f.create("link\\a\\b:s", &Ask::open()).await.err().unwrap();
        let Detail::Symlink(data) = stopped.detail else { panic!("the error tells where to go on") };
        let found = smb_protocol::error::SymlinkError::decode(&data).unwrap();
        assert_eq!((stopped.status, found.unparsed_len), (NtStatus::STOPPED_ON_SYMLINK, 12));
        assert_eq!(found.substitute.to_string().unwrap(), "d");
        assert_eq!(f.status("link", &Ask::open()).await, NtStatus::STOPPED_ON_SYMLINK);
        let itself = Ask::open().options(CreateOptions::OPEN_REPARSE_POINT);
        let link = f.create("link", &itself).await.unwrap();
        assert!(link.reparse_point && link.info.attributes.contains(FileAttributes::REPARSE_POINT));
        let tag = &point.encode()[..8];
        f.control(&link.open, FsctlCode::DELETE_REPARSE_POINT, tag).await.unwrap();
        link.open.close(false).await.unwrap();
        assert_eq!(f.status("link", &Ask::open()).await, NtStatus::SUCCESS);
    });
}
