//! Previous versions: listed, opened by time and by token, and never changed.

use file_store::{NewSnapshot, SnapshotStore};
use smb_protocol::fsctl::FsctlCode;
use smb_protocol::fsctl::snapshots::{snapshot_name, snapshots};

use super::*;
use crate::file_system::OpenLookup;

struct Nobody;

impl OpenLookup for Nobody {
    fn by_file_id(&self, _: smb_protocol::file::FileId) -> Option<Arc<Open>> {
        None
    }
    fn by_resume_key(&self, _: smb_protocol::fsctl::copy::ResumeKey) -> Option<Arc<Open>> {
        None
    }
}

async fn take(f: &Fixture, name: &str, source: FileId) {
    let (name, path) = (name.into(), String::new());
    let new = NewSnapshot { name, source, quiesce: false, maker: String::new(), path };
    f.store.take_snapshot(new).await.unwrap();
}

/// The moments that a file has.
async fn moments(f: &Fixture, name: &str) -> Vec<FileTime> {
    let open = f.open(name, &Ask::open().access(AccessMask::GENERIC_READ)).await;
    let code = FsctlCode::SRV_ENUMERATE_SNAPSHOTS;
    let (status, output) = open.fsctl(code, &[], 4096, &Nobody).await.unwrap();
    assert_eq!(status, NtStatus::SUCCESS);
    open.close(false).await.unwrap();
    snapshots(&output).unwrap().1
}

async fn content(f: &Fixture, name: &str) -> Vec<u8> {
    let open = f.open(name, &Ask::open().access(AccessMask::GENERIC_READ)).await;
    let bytes = read(&open, 0, 100).await.unwrap();
    open.close(false).await.unwrap();
    bytes
}

#[test]
fn a_file_as_it_was() {
    run(async |f| {
        f.directory("d").await;
        f.file("d\\f", b"before").await;
        f.file("other", b"other").await;
        assert_eq!(moments(&f, "d\\f").await, Vec::new());
        let d = f.store.lookup(f.store.root(), "d").await.unwrap().file;
        take(&f, "s", d).await;
        f.file("d\\f", b"after!").await;
        f.file("d\\new", b"new").await;
        let times = moments(&f, "d\\f").await;
        assert_eq!((times.len(), moments(&f, "d").await.len(), moments(&f, "other").await.len()), (1, 1, 0));
        let token = snapshot_name(times[0]);
        // Windows puts it before the path, others anywhere.
        for path in [format!("{token}\\d\\f"), format!("d\\{token}\\f"), format!("d\\f\\{token}")] {
            assert_eq!(content(&f, &path).await, b"before", "{path}");
        }
        assert_eq!(content(&f, "d\\f").await, b"after!");
        let read_only = Ask::open().access(AccessMask::GENERIC_READ);
        assert_eq!(f.status(&format!("{token}\\d\\new"), &read_only).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        assert_eq!(f.status(&format!("{token}\\other"), &read_only).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        let never = format!("{}\\d\\f", snapshot_name(FileTime(1 << 57)));
        assert_eq!(f.status(&never, &read_only).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        f.assert_clean();
    });
}

#[test]
fn of_a_folder_above_the_share() {
    run(async |f| {
        f.directory("a").await;
        f.directory("a\\share").await;
        f.file("a\\share\\f", b"before").await;
        take(&f, "s", f.store.root()).await;
        f.file("a\\share\\f", b"after!").await;
        let a = f.store.lookup(f.store.root(), "a").await.unwrap().file;
        let share = f.store.lookup(a, "share").await.unwrap().file;
        let root = ShareRoot { root: share, ..(*f.user.share).clone() };
        let caller = Caller { share: Arc::new(root), ..f.user.clone() };
        let token = snapshot_name(moments(&f, "a").await[0]);
        let ask = Ask::open().access(AccessMask::GENERIC_READ);
        let created = f.create_as(&caller, &format!("{token}\\f"), &ask).await.unwrap();
        assert_eq!(read(&created.open, 0, 100).await.unwrap(), b"before");
        created.open.close(false).await.unwrap();
        // Nothing outside of the share can be reached that way.
        let up = f.create_as(&caller, &format!("{token}\\..\\share\\f"), &ask).await;
        assert_eq!(status(up), NtStatus::OBJECT_PATH_SYNTAX_BAD);
        f.assert_clean();
    });
}

#[test]
fn nothing_of_it_changes() {
    run(async |f| {
        f.file("f", b"before").await;
        take(&f, "s", f.store.root()).await;
        let token = snapshot_name(moments(&f, "f").await[0]);
        let path = format!("{token}\\f");
        let protected = NtStatus::MEDIA_WRITE_PROTECTED;
        for access in [AccessMask::GENERIC_WRITE, AccessMask::DELETE, AccessMask::WRITE_DAC] {
            assert_eq!(f.status(&path, &Ask::open().access(access)).await, protected, "{access:?}");
        }
        let read_only = Ask::open().access(AccessMask::GENERIC_READ);
        for disposition in
            [CreateDisposition::CREATE, CreateDisposition::OVERWRITE, CreateDisposition::SUPERSEDE]
        {
            let ask = read_only.clone().disposition(disposition);
            assert_eq!(f.status(&path, &ask).await, protected, "{disposition:?}");
        }
        let most = f.create(&path, &Ask::open().access(AccessMask::MAXIMUM_ALLOWED)).await.unwrap();
        assert!(!most.open.granted().intersects(crate::previous::CHANGES));
        assert_eq!(
            status(most.open.write(0, buf(b"x"), WriteFlags::default()).await),
            NtStatus::ACCESS_DENIED
        );
        // A link needs a right of the user's, who has it for the file as it is now.
        assert_eq!(super::hard_links::link(&most.open, "new", false).await, protected);
        most.open.close(false).await.unwrap();
        assert_eq!(f.status("new", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        let made = read_only.disposition(CreateDisposition::OPEN_IF);
        assert_eq!(f.status(&format!("{token}\\new"), &made).await, protected);
        f.assert_clean();
    });
}

#[test]
fn what_was_not_there_then_is_not_found() {
    run(async |f| {
        f.file("f", b"before").await;
        take(&f, "s", f.store.root()).await;
        f.file("new", b"new").await;
        let token = snapshot_name(moments(&f, "f").await[0]);
        let never = snapshot_name(FileTime(1 << 57));
        let missing = NtStatus::OBJECT_NAME_NOT_FOUND;
        // Whatever the open is for: there is nothing that could be protected.
        for access in [AccessMask::GENERIC_READ, AccessMask::GENERIC_WRITE, AccessMask::DELETE] {
            let ask = Ask::open().access(access);
            for path in [format!("{token}\\new"), format!("{token}\\f:s"), format!("{never}\\f")] {
                assert_eq!(f.status(&path, &ask).await, missing, "{path} {access:?}");
            }
        }
        let read_only = Ask::open().access(AccessMask::GENERIC_READ);
        let made = read_only.clone().disposition(CreateDisposition::OPEN_IF);
        assert_eq!(f.status(&format!("{token}\\f:s"), &made).await, NtStatus::MEDIA_WRITE_PROTECTED);
        assert_eq!(f.status(&format!("{token}\\f"), &made).await, NtStatus::SUCCESS);
        f.assert_clean();
    });
}

#[test]
fn a_number_leads_to_no_previous_version() {
    run(async |f| {
        f.file("f", b"before").await;
        take(&f, "s", f.store.root()).await;
        let time = moments(&f, "f").await[0];
        let file = f.store.lookup(f.store.root(), "f").await.unwrap().file;
        let id = file.0.to_le_bytes();
        let request = CreateRequest {
            desired_access: AccessMask::GENERIC_READ,
            options: CreateOptions::OPEN_BY_FILE_ID,
            timewarp: Some(time),
            ..CreateRequest::open(Utf16::new(&id).unwrap(), f.told.clone())
        };
        // It would be the file as it is now.
        assert_eq!(status(f.fs.create(&f.user, request).await), NtStatus::NOT_SUPPORTED);
        f.assert_clean();
    });
}
