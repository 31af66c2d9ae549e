//! Renaming.

use smb_protocol::fscc::names::{RenameFlags, RenameInformation};

use super::*;

pub(super) async fn rename(open: &Arc<Open>, name: &str, replace: bool) -> NtStatus {
    let name = utf16(name);
    let flags = if replace { RenameFlags::REPLACE_IF_EXISTS } else { RenameFlags::NONE };
    let info = RenameInformation { flags, root_directory: 0, name: Utf16::new(&name).unwrap() };
    status(open.set_info(FileClass::RENAME, &info.encode(false), &|_| {}).await)
}

#[test]
fn names_change_and_opens_follow() {
    run(|f| async move {
        f.directory("d").await;
        f.file("f", b"x").await;
        let open = f.open("f", &Ask::open()).await;
        assert_eq!(rename(&open, "d\\g", false).await, NtStatus::SUCCESS);
        assert_eq!(open.path(), "d\\g");
        assert_eq!(f.status("f", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        assert_eq!(rename(&open, "d\\G", false).await, NtStatus::SUCCESS, "another case is another name");
        assert_eq!(open.path(), "d\\G");
        assert_eq!(rename(&open, "nowhere\\g", false).await, NtStatus::OBJECT_PATH_NOT_FOUND);
        assert_eq!(rename(&open, "a*b", false).await, NtStatus::OBJECT_NAME_INVALID);
        assert_eq!(rename(&open, "", false).await, NtStatus::OBJECT_NAME_INVALID);
        open.close(false).await.unwrap();
        assert_eq!(f.status("d\\g", &Ask::open()).await, NtStatus::SUCCESS);
        f.assert_clean();
    });
}

#[test]
fn replacing_needs_to_be_asked_for_and_an_unused_file() {
    run(|f| async move {
        f.file("a", b"a").await;
        f.file("b", b"b").await;
        f.directory("d").await;
        let open = f.open("a", &Ask::open()).await;
        assert_eq!(rename(&open, "b", false).await, NtStatus::OBJECT_NAME_COLLISION);
        assert_eq!(rename(&open, "d", true).await, NtStatus::ACCESS_DENIED);
        let other = f.open("b", &Ask::open()).await;
        assert_eq!(rename(&open, "b", true).await, NtStatus::ACCESS_DENIED);
        other.close(false).await.unwrap();
        assert_eq!(rename(&open, "b", true).await, NtStatus::SUCCESS);
        open.close(false).await.unwrap();
        let b = f.open("b", &Ask::open()).await;
        assert_eq!(read(&b, 0, 9).await.unwrap(), b"a");
        b.close(false).await.unwrap();
        f.assert_clean();
    });
}

/// What Linux' client does with an open target (fs/smb/client/inode.c cifs_rename2, before 6.17): it asks, and when it is
/// refused deletes the target by itself and asks again.
#[test]
fn a_refused_rename_leaves_its_target() {
    run(|f| async move {
        f.file("new", b"new").await;
        f.file("old", b"old").await;
        let reader = f.open("old", &Ask::open()).await;
        let open = f.open("new", &Ask::open()).await;
        for _ in 0..2 {
            assert_eq!(rename(&open, "old", true).await, NtStatus::ACCESS_DENIED);
            assert_eq!(f.status("old", &Ask::open()).await, NtStatus::SUCCESS, "it can still be opened");
        }
        reader.set_info(FileClass::DISPOSITION, &[1], &|_| {}).await.unwrap();
        assert_eq!(rename(&open, "old", true).await, NtStatus::ACCESS_DENIED, "it waits for its last close");
        // Whoever asked for the deletion takes it back: refusals have not made it final.
        reader.set_info(FileClass::DISPOSITION, &[0], &|_| {}).await.unwrap();
        reader.close(false).await.unwrap();
        let old = f.open("old", &Ask::open()).await;
        assert_eq!(read(&old, 0, 9).await.unwrap(), b"old");
        f.close_all().await;
        f.assert_clean();
    });
}

#[test]
fn directories_with_open_files_stay() {
    run(|f| async move {
        f.directory("d").await;
        f.directory("d\\e").await;
        f.file("d\\e\\f", b"").await;
        let d = f.open("d", &Ask::open()).await;
        let inner = f.open("d\\e\\f", &Ask::open()).await;
        assert_eq!(rename(&d, "n", false).await, NtStatus::ACCESS_DENIED);
        inner.close(false).await.unwrap();
        assert_eq!(rename(&d, "d\\e\\x", false).await, NtStatus::SHARING_VIOLATION, "into itself");
        assert_eq!(rename(&d, "n", false).await, NtStatus::SUCCESS);
        let inner = f.open("n\\e\\f", &Ask::open()).await;
        assert_eq!(inner.path(), "n\\e\\f");
        // Who may delete the directory keeps its files from being renamed.
        assert_eq!(rename(&inner, "elsewhere", false).await, NtStatus::SUCCESS);
        let e = f.open("n\\e", &Ask::open()).await;
        f.file("n\\e\\g", b"").await;
        let g = f.open("n\\e\\g", &Ask::open()).await;
        assert_eq!(rename(&g, "n\\e\\h", false).await, NtStatus::SHARING_VIOLATION);
        for open in [d, inner, e, g] {
            open.close(false).await.unwrap();
        }
        f.assert_clean();
    });
}

#[test]
fn renaming_needs_the_right_to_delete() {
    run(|f| async move {
        f.file("f", b"").await;
        let open = f.open("f", &Ask::open().access(AccessMask::GENERIC_READ)).await;
        assert_eq!(rename(&open, "g", false).await, NtStatus::ACCESS_DENIED);
        open.close(false).await.unwrap();
    });
}

#[test]
fn the_new_directory_is_opened_to_add_a_name() {
    run(|f| async move {
        f.directory("d").await;
        f.file("d\\f", b"x").await;
        let open = f.open("d\\f", &Ask::open()).await;
        // What somebody may do with the directory, what it lets others do, and what becomes of the rename.
        for (access, share, expected) in [
            (AccessMask::READ_DATA, 0, NtStatus::SHARING_VIOLATION),
            (AccessMask::READ_DATA, 1, NtStatus::SHARING_VIOLATION),
            (AccessMask::READ_DATA | AccessMask::DELETE, 7, NtStatus::SHARING_VIOLATION),
            (AccessMask::READ_ATTRIBUTES, 0, NtStatus::SUCCESS),
            (AccessMask::READ_DATA | AccessMask::WRITE_DATA, 3, NtStatus::SUCCESS),
        ] {
            let ask = Ask::open().access(access).share(share).options(CreateOptions::DIRECTORY_FILE);
            let directory = f.open("d", &ask).await;
            let name = if open.path() == "d\\g" { "d\\f" } else { "d\\g" };
            assert_eq!(rename(&open, name, false).await, expected, "{access:?} {share}");
            directory.close(false).await.unwrap();
        }
        open.close(false).await.unwrap();
    });
}
