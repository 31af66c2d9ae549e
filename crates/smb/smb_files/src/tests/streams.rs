//! New names of streams.

use super::rename::rename;
use super::*;

#[test]
fn streams_change_names_while_they_are_open() {
    run(|f| async move {
        f.file("f", b"data").await;
        f.file("f:one", b"1").await;
        let one = f.open("f:one", &Ask::open()).await;
        let same = f.open("f:ONE", &Ask::open()).await;
        assert_eq!(rename(&one, ":two:$DATA", false).await, NtStatus::SUCCESS);
        assert_eq!((one.path(), same.path()), ("f:two".to_owned(), "f:two".to_owned()));
        assert_eq!(f.status("f:one", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        // Opens by the new name share with those that came by the old one.
        let only = Ask::open().share(0);
        assert_eq!(f.status("f:Two", &only).await, NtStatus::SHARING_VIOLATION);
        let two = f.open("f:two", &Ask::open()).await;
        two.write(1, buf(b"2"), WriteFlags::default()).await.unwrap();
        assert_eq!(read(&one, 0, 9).await.unwrap(), b"12");
        assert_eq!(one.info().await.unwrap().end_of_file, 2);
        // A new stream of the old name is another one.
        f.file("f:one", b"new").await;
        let new = f.open("f:one", &only).await;
        assert_eq!(read(&new, 0, 9).await.unwrap(), b"new");
        assert_eq!(new.path(), "f:one");
        assert_eq!(rename(&one, ":one", false).await, NtStatus::OBJECT_NAME_COLLISION);
        assert_eq!(rename(&one, ":one", true).await, NtStatus::INVALID_PARAMETER, "it is open");
        new.close(false).await.unwrap();
        assert_eq!(rename(&one, ":one", true).await, NtStatus::INVALID_PARAMETER, "it has data");
        f.file("f:empty", b"").await;
        assert_eq!(rename(&one, ":Empty", true).await, NtStatus::SUCCESS);
        assert_eq!(rename(&one, ":EMPTY", false).await, NtStatus::SUCCESS, "another case");
        assert_eq!(rename(&one, ":x:$DATA:", false).await, NtStatus::INVALID_PARAMETER);
        assert_eq!(rename(&one, "::$DATA", true).await, NtStatus::NOT_SUPPORTED);
        assert_eq!(rename(&one, "g", false).await, NtStatus::INVALID_PARAMETER, "a path");
        f.close_all().await;
        f.assert_clean();
        let open = f.open("f:empty", &Ask::open()).await;
        assert_eq!(read(&open, 0, 9).await.unwrap(), b"12");
        open.close(false).await.unwrap();
        let open = f.open("f:one", &Ask::open()).await;
        assert_eq!(read(&open, 0, 9).await.unwrap(), b"new");
        open.close(false).await.unwrap();
        f.assert_clean();
    });
}

#[test]
fn a_renamed_stream_is_the_one_that_is_deleted() {
    run(|f| async move {
        f.file("f:one", b"1").await;
        let one = f.open("f:one", &Ask::open().options(CreateOptions::DELETE_ON_CLOSE)).await;
        assert_eq!(rename(&one, ":two", false).await, NtStatus::SUCCESS);
        f.file("f:one", b"other").await;
        one.close(false).await.unwrap();
        assert_eq!(f.status("f:two", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        assert_eq!(f.status("f:one", &Ask::open()).await, NtStatus::SUCCESS);
        let reads = f.open("f:one", &Ask::open().access(AccessMask::GENERIC_READ)).await;
        assert_eq!(rename(&reads, ":x", false).await, NtStatus::ACCESS_DENIED);
        reads.close(false).await.unwrap();
        f.assert_clean();
    });
}
