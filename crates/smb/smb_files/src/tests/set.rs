//! Times, attributes, sizes, extended attributes.

use std::time::Duration;

use smb_protocol::fscc::ea::{Ea, EaList, ea_writer, push_ea};
use smb_protocol::fscc::file::{
    AllocationInformation, BasicInformation, EndOfFileInformation, NetworkOpenInformation,
    PositionInformation, StandardInformation,
};
use smb_protocol::info::QueryInfoFlags;
use smb_protocol::wire::Wire;

use super::*;

async fn set(open: &Arc<Open>, class: FileClass, info: &impl Wire) -> NtStatus {
    status(open.set_info(class, &info.to_bytes(), &|_| {}).await)
}

#[test]
fn times_are_set_and_frozen() {
    run(|f| async move {
        let open = f.open("f", &Ask::default()).await;
        let before: BasicInformation = query(&open, FileClass::BASIC).await;
        let wanted = FileTime(132_000_000_000_000_000);
        let mut basic = BasicInformation { last_write_time: wanted, ..BasicInformation::default() };
        basic.attributes = FileAttributes::HIDDEN;
        assert_eq!(set(&open, FileClass::BASIC, &basic).await, NtStatus::SUCCESS);
        let now: BasicInformation = query(&open, FileClass::BASIC).await;
        assert_eq!((now.last_write_time, now.attributes), (wanted, FileAttributes::HIDDEN));
        assert_eq!(now.creation_time, before.creation_time);
        open.write(0, buf(b"x"), WriteFlags::default()).await.unwrap();
        let now: BasicInformation = query(&open, FileClass::BASIC).await;
        assert_eq!(now.last_write_time, wanted, "set through this open, so not moved by it");
        let thaw =
            BasicInformation { last_write_time: FileTime(u64::MAX - 1), ..BasicInformation::default() };
        assert_eq!(set(&open, FileClass::BASIC, &thaw).await, NtStatus::SUCCESS);
        open.write(0, buf(b"y"), WriteFlags::default()).await.unwrap();
        open.flush().await.unwrap();
        let moved: BasicInformation = query(&open, FileClass::BASIC).await;
        assert_ne!(moved.last_write_time, wanted);
        let freeze = BasicInformation { last_write_time: FileTime(u64::MAX), ..BasicInformation::default() };
        assert_eq!(set(&open, FileClass::BASIC, &freeze).await, NtStatus::SUCCESS);
        shard_runtime::sleep(Duration::from_secs(1)).await;
        open.write(0, buf(b"z"), WriteFlags::default()).await.unwrap();
        let now: BasicInformation = query(&open, FileClass::BASIC).await;
        assert_eq!(now.last_write_time, moved.last_write_time);
        let bad = BasicInformation { creation_time: FileTime(u64::MAX - 2), ..BasicInformation::default() };
        assert_eq!(set(&open, FileClass::BASIC, &bad).await, NtStatus::INVALID_PARAMETER);
        let dir = BasicInformation { attributes: FileAttributes::DIRECTORY, ..BasicInformation::default() };
        assert_eq!(set(&open, FileClass::BASIC, &dir).await, NtStatus::INVALID_PARAMETER);
        let normal = BasicInformation { attributes: FileAttributes::NORMAL, ..BasicInformation::default() };
        assert_eq!(set(&open, FileClass::BASIC, &normal).await, NtStatus::SUCCESS);
        let now: BasicInformation = query(&open, FileClass::BASIC).await;
        assert_eq!(now.attributes, FileAttributes::NORMAL);
        open.close(false).await.unwrap();
    });
}

#[test]
fn the_time_of_writing_shows_later() {
    run(|f| async move {
        let written = async |open: &Open| open.info().await.unwrap().last_write_time;
        let wait = |seconds| shard_runtime::sleep(Duration::from_secs(seconds));
        let open = f.open("f", &Ask::default()).await;
        let made = written(&open).await;
        let mut size = 0;
        let mut write = async || {
            // A time of the store is a tick, of which a hundred are one of the client's.
            for _ in 0..100 {
                size += open.write(size, buf(b"x"), WriteFlags::default()).await.unwrap() as u64;
            }
        };
        write().await;
        assert_eq!(written(&open).await, made);
        let other = f.open("f", &Ask::open()).await;
        assert_eq!(written(&other).await, made, "everybody sees the same");
        other.close(false).await.unwrap();
        assert_eq!(written(&open).await, made, "the other did not write");
        wait(3).await;
        let first = written(&open).await;
        assert!(first > made, "a while after the first write");
        write().await;
        wait(3).await;
        assert_eq!(written(&open).await, first, "later ones wait for an occasion");
        open.flush().await.unwrap();
        let flushed = written(&open).await;
        assert!(flushed > first);
        for occasion in 0..3 {
            let before = written(&open).await;
            write().await;
            assert_eq!(written(&open).await, before, "{occasion}");
            let end = EndOfFileInformation { end_of_file: 100 };
            let done = match occasion {
                0 => set(&open, FileClass::BASIC, &BasicInformation::default()).await,
                1 => set(&open, FileClass::END_OF_FILE, &end).await,
                _ => set(&open, FileClass::ALLOCATION, &AllocationInformation { allocation_size: 90 }).await,
            };
            assert_eq!(done, NtStatus::SUCCESS);
            assert!(written(&open).await > before, "{occasion}");
        }
        write().await;
        wait(5).await;
        let closed = open.close(true).await.unwrap().unwrap().last_write_time;
        assert_eq!(closed, crate::times::file_time(f.fs.core.clock.wall().0), "closing came long after");
        let again = f.open("f", &Ask::open()).await;
        assert_eq!(written(&again).await, closed);
        again.close(false).await.unwrap();
    });
}

#[test]
fn sizes() {
    run(|f| async move {
        let open = f.open("f", &Ask::default()).await;
        let end = |end_of_file| EndOfFileInformation { end_of_file };
        assert_eq!(set(&open, FileClass::END_OF_FILE, &end(100_000)).await, NtStatus::SUCCESS);
        assert_eq!(set(&open, FileClass::END_OF_FILE, &end(-1)).await, NtStatus::INVALID_PARAMETER);
        let standard: StandardInformation = query(&open, FileClass::STANDARD).await;
        assert_eq!(standard.end_of_file, 100_000);
        let alloc = |allocation_size| AllocationInformation { allocation_size };
        assert_eq!(set(&open, FileClass::ALLOCATION, &alloc(200_000)).await, NtStatus::SUCCESS);
        let all: NetworkOpenInformation = query(&open, FileClass::NETWORK_OPEN).await;
        assert!(all.end_of_file == 100_000 && all.allocation_size >= 200_000, "{all:?}");
        assert_eq!(set(&open, FileClass::ALLOCATION, &alloc(5)).await, NtStatus::SUCCESS);
        let standard: StandardInformation = query(&open, FileClass::STANDARD).await;
        assert_eq!(standard.end_of_file, 5);
        assert_eq!(
            set(&open, FileClass::POSITION, &PositionInformation { position: 7 }).await,
            NtStatus::SUCCESS
        );
        let position: PositionInformation = query(&open, FileClass::POSITION).await;
        assert_eq!(position.position, 7);
        let short = status(open.set_info(FileClass::END_OF_FILE, &[0; 7], &|_| {}).await);
        assert_eq!(short, NtStatus::INFO_LENGTH_MISMATCH);
        let class = status(open.set_info(FileClass::STANDARD, &[0; 24], &|_| {}).await);
        assert_eq!(class, NtStatus::INVALID_INFO_CLASS);
        open.close(false).await.unwrap();
        let reader = f.open("f", &Ask::open().access(AccessMask::GENERIC_READ)).await;
        assert_eq!(set(&reader, FileClass::END_OF_FILE, &end(0)).await, NtStatus::ACCESS_DENIED);
        reader.close(false).await.unwrap();
    });
}

#[test]
fn appending_finds_the_end() {
    run(|f| async move {
        f.file("f", b"one").await;
        let append = f.open("f", &Ask::open().access(AccessMask::APPEND_DATA | AccessMask::READ_DATA)).await;
        append.write(0, buf(b"two"), WriteFlags::default()).await.unwrap();
        append.write(u64::MAX, buf(b"three"), WriteFlags { write_through: true }).await.unwrap();
        assert_eq!(read(&append, 0, 99).await.unwrap(), b"onetwothree");
        assert_eq!(status(read(&append, i64::MAX as u64, 2).await), NtStatus::INVALID_PARAMETER);
        append.flush().await.unwrap();
        append.close(false).await.unwrap();
        let writer = f.open("f", &Ask::open()).await;
        let end = writer.write(u64::MAX, buf(b"x"), WriteFlags::default()).await;
        assert_eq!(status(end), NtStatus::INVALID_PARAMETER, "negative for who may write anywhere");
        assert_eq!(status(read(&writer, i64::MAX as u64 - 1, 1).await), NtStatus::END_OF_FILE);
        assert!(read(&writer, i64::MAX as u64, 0).await.unwrap().is_empty());
        writer.close(false).await.unwrap();
    });
}

#[test]
fn buffers_hold_at_least_the_fixed_part() {
    run(|f| async move {
        let open = f.open("a name", &Ask::default()).await;
        // As smb2.getinfo: the class, and the least that is not a mismatch.
        for (class, fixed) in [
            (FileClass::BASIC, 40),
            (FileClass::STANDARD, 24),
            (FileClass::ALL, 104),
            (FileClass::STREAM, 32),
            (FileClass::NETWORK_OPEN, 56),
            (FileClass::NAME, 4),
        ] {
            let mut out = Vec::new();
            let none = QueryInfoFlags::NONE;
            open.query_info(class, &[], 0, none, 4096, &mut out).await.unwrap();
            for limit in 0..=out.len() {
                let mut cut = Vec::new();
                let found = open.query_info(class, &[], 0, none, limit, &mut cut).await;
                let expected = match limit {
                    short if short < fixed => Err(NtStatus::INFO_LENGTH_MISMATCH),
                    short if short < out.len() => Ok(NtStatus::BUFFER_OVERFLOW),
                    _ => Ok(NtStatus::SUCCESS),
                };
                assert_eq!(found.map_err(|error| error.status), expected, "{class:?} in {limit}");
                assert!(cut.len() <= limit);
            }
        }
        open.close(false).await.unwrap();
    });
}

fn list(all: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = ea_writer(&mut out, 4096);
    for (name, value) in all {
        assert!(push_ea(&mut writer, &Ea { flags: 0, name: name.as_bytes(), value: value.as_bytes() }));
    }
    out
}

async fn all_ea(
    open: &Open,
    flags: QueryInfoFlags,
    limit: usize,
) -> std::result::Result<(NtStatus, Vec<String>), NtStatus> {
    let mut out = Vec::new();
    let status =
        open.query_info(FileClass::FULL_EA, &[], 0, flags, limit, &mut out).await.map_err(|e| e.status)?;
    let show =
        |ea: Ea<'_>| format!("{}={}", String::from_utf8_lossy(ea.name), String::from_utf8_lossy(ea.value));
    Ok((status, EaList::new(&out).unwrap().iter().map(show).collect()))
}

#[test]
fn extended_attributes_are_kept_with_the_file() {
    run(|f| async move {
        let ask = Ask { ea: Some(list(&[("user.One", "1"), ("TWO", "22")])), ..Ask::default() };
        let open = f.open("f", &ask).await;
        let none = QueryInfoFlags::NONE;
        let (code, all) = all_ea(&open, none, 4096).await.unwrap();
        assert_eq!((code, all), (NtStatus::SUCCESS, vec!["USER.ONE=1".into(), "TWO=22".into()]));
        open.set_info(FileClass::FULL_EA, &list(&[("two", ""), ("three", "3")]), &|_| {}).await.unwrap();
        let single = QueryInfoFlags::RETURN_SINGLE_ENTRY;
        assert_eq!(all_ea(&open, single, 4096).await.unwrap().1, ["USER.ONE=1"]);
        assert_eq!(all_ea(&open, single, 4096).await.unwrap().1, ["THREE=3"]);
        assert_eq!(all_ea(&open, none, 20).await.unwrap().0, NtStatus::BUFFER_OVERFLOW);
        assert_eq!(all_ea(&open, none, 10).await, Err(NtStatus::BUFFER_TOO_SMALL));
        let bad = open.set_info(FileClass::FULL_EA, &[1, 2, 3], &|_| {}).await;
        assert_eq!(status(bad), NtStatus::EA_LIST_INCONSISTENT);
        open.close(false).await.unwrap();
        let again = f.open("f", &Ask::open()).await;
        assert_eq!(again.info().await.unwrap().attributes, FileAttributes::ARCHIVE, "our bit is not shown");
        let ea: smb_protocol::fscc::file::EaInformation = query(&again, FileClass::EA).await;
        assert_eq!(ea.ea_size, 4 + (4 + 8 + 1 + 1) + (4 + 5 + 1 + 1));
        again.close(false).await.unwrap();
        let plain = f.open("g", &Ask::default()).await;
        assert_eq!(all_ea(&plain, none, 4096).await, Err(NtStatus::NO_EAS_ON_FILE));
        plain.close(false).await.unwrap();
        f.status("f", &Ask::open().options(CreateOptions::DELETE_ON_CLOSE)).await;
        assert_eq!(f.store.state_scan("smb_ea", &[]).await.unwrap(), [], "nothing stays behind");
    });
}
