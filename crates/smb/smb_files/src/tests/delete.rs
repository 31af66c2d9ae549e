//! Deletion: dispositions, on close, what is pending, what cannot go.

use smb_protocol::fscc::file::{
    DispositionFlags, DispositionInformation, DispositionInformationEx, StandardInformation,
};
use smb_protocol::wire::Wire;

use super::*;

async fn dispose(open: &Arc<Open>, delete: bool) -> NtStatus {
    let info = DispositionInformation { delete_pending: delete }.to_bytes();
    status(open.set_info(FileClass::DISPOSITION, &info, &|| {}).await)
}

#[test]
fn a_file_goes_with_its_last_open() {
    run(|f| async move {
        f.file("f", b"x").await;
        let (a, b) = (f.open("f", &Ask::open()).await, f.open("f", &Ask::open()).await);
        assert_eq!(dispose(&a, true).await, NtStatus::SUCCESS);
        let standard: StandardInformation = query(&b, FileClass::STANDARD).await;
        assert_eq!((standard.delete_pending, standard.links), (true, 0));
        assert_eq!(f.status("f", &Ask::open()).await, NtStatus::DELETE_PENDING);
        assert_eq!(dispose(&b, false).await, NtStatus::SUCCESS, "anybody can take it back");
        assert_eq!(f.status("f", &Ask::open()).await, NtStatus::SUCCESS);
        assert_eq!(dispose(&b, true).await, NtStatus::SUCCESS);
        a.close(false).await.unwrap();
        assert_eq!(read(&b, 0, 1).await.unwrap(), b"x");
        assert_eq!(f.status("f", &Ask::default()).await, NtStatus::DELETE_PENDING);
        b.close(false).await.unwrap();
        assert_eq!(f.status("f", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        f.assert_clean();
    });
}

#[test]
fn deletion_on_close_begins_with_that_close() {
    run(|f| async move {
        let doc = Ask::default().options(CreateOptions::DELETE_ON_CLOSE);
        let (a, b) = (f.open("f", &doc).await, f.open("f", &Ask::open()).await);
        a.close(false).await.unwrap();
        assert_eq!(f.status("f", &Ask::open()).await, NtStatus::DELETE_PENDING);
        b.close(false).await.unwrap();
        assert_eq!(f.status("f", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
    });
}

#[test]
fn directories_must_be_empty() {
    run(|f| async move {
        f.directory("d").await;
        f.file("d\\f", b"").await;
        let d = f.open("d", &Ask::open()).await;
        assert_eq!(dispose(&d, true).await, NtStatus::DIRECTORY_NOT_EMPTY);
        let inner = f.open("d\\f", &Ask::open()).await;
        assert_eq!(dispose(&inner, true).await, NtStatus::SUCCESS);
        inner.close(false).await.unwrap();
        assert_eq!(dispose(&d, true).await, NtStatus::SUCCESS);
        assert_eq!(f.status("d\\new", &Ask::default()).await, NtStatus::DELETE_PENDING);
        d.close(false).await.unwrap();
        assert_eq!(f.status("d", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        let root = f.open("", &Ask::open()).await;
        assert_eq!(dispose(&root, true).await, NtStatus::CANNOT_DELETE);
        root.close(false).await.unwrap();
    });
}

#[test]
fn what_cannot_be_deleted() {
    run(|f| async move {
        f.status("r", &Ask::default().attributes(FileAttributes::READONLY)).await;
        let open = f.open("r", &Ask::open().access(AccessMask::DELETE)).await;
        assert_eq!(dispose(&open, true).await, NtStatus::CANNOT_DELETE);
        let flags = DispositionFlags::DELETE | DispositionFlags::IGNORE_READONLY_ATTRIBUTE;
        let ex = DispositionInformationEx { flags }.to_bytes();
        open.set_info(FileClass::DISPOSITION_EX, &ex, &|| {}).await.unwrap();
        open.close(false).await.unwrap();
        assert_eq!(f.status("r", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        f.file("f", b"").await;
        let open = f.open("f", &Ask::open().access(AccessMask::READ_DATA)).await;
        assert_eq!(dispose(&open, true).await, NtStatus::ACCESS_DENIED);
        open.close(false).await.unwrap();
    });
}

#[test]
fn a_stream_goes_alone_and_a_file_waits_for_its_streams() {
    run(|f| async move {
        f.file("f", b"").await;
        f.file("f:s", b"stream").await;
        let stream = f.open("f:s", &Ask::open()).await;
        assert_eq!(dispose(&stream, true).await, NtStatus::SUCCESS);
        assert_eq!(f.status("f:s", &Ask::open()).await, NtStatus::DELETE_PENDING);
        assert_eq!(f.status("f", &Ask::open()).await, NtStatus::SUCCESS);
        stream.close(false).await.unwrap();
        assert_eq!(f.status("f:s", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        let stream = f.open("f:t", &Ask::default()).await;
        let file = f.open("f", &Ask::open()).await;
        assert_eq!(dispose(&file, true).await, NtStatus::SUCCESS);
        file.close(false).await.unwrap();
        assert_eq!(f.status("f", &Ask::open()).await, NtStatus::DELETE_PENDING);
        assert_eq!(f.status("f:t", &Ask::open()).await, NtStatus::DELETE_PENDING);
        stream.close(false).await.unwrap();
        assert_eq!(f.status("f", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        f.assert_clean();
    });
}

#[test]
fn the_administrator_closes_what_clients_forgot() {
    run(|f| async move {
        let open = f.open("f", &Ask::default().options(CreateOptions::DELETE_ON_CLOSE)).await;
        let listed = f.fs.opens();
        assert_eq!((listed.len(), listed[0].path.as_str(), listed[0].delete_pending), (1, "f", true));
        assert!(f.fs.force_close(open.id()).await && !f.fs.force_close(open.id()).await);
        assert_eq!(f.told.take(), [Told::Closed]);
        assert_eq!(f.status("f", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        f.assert_clean();
    });
}
