//! Several names of one file.

use smb_protocol::fscc::file::{DispositionInformation, StandardInformation, StandardLinkInformation};
use smb_protocol::fscc::names::{RenameFlags, RenameInformation, hard_links};
use smb_protocol::security::{Ace, AceFlags, Acl, Control, SecurityDescriptor};
use smb_protocol::wire::Wire;

use super::rename::rename;
use super::*;

pub(super) async fn link(open: &Arc<Open>, name: &str, replace: bool) -> NtStatus {
    let name = utf16(name);
    let flags = if replace { RenameFlags::REPLACE_IF_EXISTS } else { RenameFlags::NONE };
    let info = RenameInformation { flags, root_directory: 0, name: Utf16::new(&name).unwrap() };
    status(open.set_info(FileClass::LINK_EX, &info.encode(true), &|_| {}).await)
}

async fn dispose(open: &Arc<Open>, delete: bool) -> NtStatus {
    let info = DispositionInformation { delete_pending: delete }.to_bytes();
    status(open.set_info(FileClass::DISPOSITION, &info, &|_| {}).await)
}

/// The names of a file, as an open of it says.
async fn names(open: &Open) -> Vec<String> {
    let mut out = Vec::new();
    let none = smb_protocol::info::QueryInfoFlags::NONE;
    open.query_info(FileClass::HARD_LINK, &[], 0, none, 4096, &mut out).await.unwrap();
    let mut names: Vec<String> =
        hard_links(&out).map(|link| link.unwrap().name.to_string().unwrap()).collect();
    names.sort();
    names
}

async fn links(open: &Open) -> u32 {
    query::<StandardInformation>(open, FileClass::STANDARD).await.links
}

#[test]
fn names_are_one_file_and_go_one_by_one() {
    run(|f| async move {
        f.directory("d").await;
        f.file("a", b"x").await;
        let a = f.open("a", &Ask::open()).await;
        assert_eq!(links(&a).await, 1);
        assert_eq!(link(&a, "d\\b", false).await, NtStatus::SUCCESS);
        assert_eq!(link(&a, "d\\B", false).await, NtStatus::OBJECT_NAME_COLLISION);
        assert_eq!((links(&a).await, names(&a).await), (2, vec!["a".to_owned(), "b".to_owned()]));
        // The second open comes by its own name, to the same file.
        let b = f.open("d\\b", &Ask::open()).await;
        assert_eq!((a.file(), a.path(), b.path()), (b.file(), "a".to_owned(), "d\\b".to_owned()));
        b.write(0, buf(b"yy"), WriteFlags::default()).await.unwrap();
        assert_eq!(read(&a, 0, 9).await.unwrap(), b"yy");
        // Deleting one name leaves those who came by the other alone.
        assert_eq!(dispose(&b, true).await, NtStatus::SUCCESS);
        let standard: StandardInformation = query(&b, FileClass::STANDARD).await;
        assert_eq!((standard.delete_pending, standard.links), (true, 1));
        let standard: StandardInformation = query(&a, FileClass::STANDARD).await;
        assert_eq!((standard.delete_pending, standard.links), (false, 1));
        let both: StandardLinkInformation = query(&a, FileClass::STANDARD_LINK).await;
        assert_eq!((both.accessible_links, both.total_links), (1, 2));
        assert_eq!(f.status("d\\b", &Ask::open()).await, NtStatus::DELETE_PENDING);
        assert_eq!(f.status("a", &Ask::open()).await, NtStatus::SUCCESS);
        assert_eq!(link(&b, "c", false).await, NtStatus::ACCESS_DENIED, "by a name that is going");
        b.close(false).await.unwrap();
        drop(b);
        assert_eq!(f.status("d\\b", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        assert_eq!((links(&a).await, read(&a, 0, 9).await.unwrap()), (1, b"yy".to_vec()));
        // The name may be made again, while somebody remembers the old one.
        assert_eq!(link(&a, "d\\b", false).await, NtStatus::SUCCESS);
        assert_eq!(f.status("d\\b", &Ask::open()).await, NtStatus::SUCCESS);
        assert_eq!(dispose(&a, true).await, NtStatus::SUCCESS);
        a.close(false).await.unwrap();
        drop(a);
        let b = f.open("d\\b", &Ask::open()).await;
        assert_eq!((links(&b).await, read(&b, 0, 9).await.unwrap()), (1, b"yy".to_vec()));
        assert_eq!(dispose(&b, true).await, NtStatus::SUCCESS);
        b.close(false).await.unwrap();
        drop(b);
        assert_eq!(f.status("d\\b", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        f.assert_clean();
        assert!(f.pinned().is_empty(), "{:?}", f.pinned());
    });
}

#[test]
fn a_rename_moves_the_name_that_the_open_came_by() {
    run(|f| async move {
        f.directory("d").await;
        f.file("a", b"x").await;
        let a = f.open("a", &Ask::open()).await;
        assert_eq!(link(&a, "b", false).await, NtStatus::SUCCESS);
        let b = f.open("b", &Ask::open()).await;
        assert_eq!(rename(&b, "d\\c", false).await, NtStatus::SUCCESS);
        assert_eq!((a.path(), b.path()), ("a".to_owned(), "d\\c".to_owned()));
        assert_eq!(f.status("a", &Ask::open()).await, NtStatus::SUCCESS);
        assert_eq!(f.status("b", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        assert_eq!(f.status("d\\c", &Ask::open()).await, NtStatus::SUCCESS);
        // The directory may be moved while the file is open by its other name only.
        let d = f.open("d", &Ask::directory()).await;
        assert_eq!(rename(&d, "e", false).await, NtStatus::ACCESS_DENIED);
        b.close(false).await.unwrap();
        assert_eq!(rename(&d, "e", false).await, NtStatus::SUCCESS);
        d.close(false).await.unwrap();
        // Onto its own other name: the one that is replaced must not be in use.
        let c = f.open("e\\c", &Ask::open()).await;
        assert_eq!(rename(&a, "e\\c", false).await, NtStatus::OBJECT_NAME_COLLISION);
        assert_eq!(rename(&a, "e\\c", true).await, NtStatus::ACCESS_DENIED);
        c.close(false).await.unwrap();
        assert_eq!(rename(&a, "e\\C", true).await, NtStatus::SUCCESS);
        assert_eq!((a.path(), links(&a).await), ("e\\C".to_owned(), 1));
        assert_eq!(f.status("a", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        a.close(false).await.unwrap();
        f.assert_clean();
    });
}

#[test]
fn a_link_replaces_what_nobody_uses() {
    run(|f| async move {
        f.file("a", b"a").await;
        f.file("b", b"b").await;
        f.directory("d").await;
        let a = f.open("a", &Ask::open()).await;
        let b = f.open("b", &Ask::open()).await;
        assert_eq!(link(&a, "B", false).await, NtStatus::OBJECT_NAME_COLLISION);
        assert_eq!(link(&a, "b", true).await, NtStatus::ACCESS_DENIED, "it is open");
        assert_eq!(link(&b, "c", false).await, NtStatus::SUCCESS);
        b.close(false).await.unwrap();
        assert_eq!(link(&a, "d", true).await, NtStatus::ACCESS_DENIED, "a directory");
        assert_eq!(link(&a, "b", true).await, NtStatus::SUCCESS);
        assert_eq!(names(&a).await, ["a", "b"]);
        let c = f.open("c", &Ask::open()).await;
        assert_eq!((links(&c).await, read(&c, 0, 9).await.unwrap()), (1, b"b".to_vec()));
        assert_eq!(link(&a, "B", true).await, NtStatus::SUCCESS, "its own name in another case");
        assert_eq!(names(&a).await, ["B", "a"]);
        for wrong in ["", "x*", "x:s", ":s"] {
            assert_ne!(link(&a, wrong, false).await, NtStatus::SUCCESS, "{wrong:?}");
        }
        assert_eq!(link(&a, "\\d\\x", false).await, NtStatus::SUCCESS, "as smbclient writes it");
        assert_eq!(link(&a, "\\\\d\\y", false).await, NtStatus::INVALID_PARAMETER);
        assert_eq!(link(&a, "nowhere\\x", false).await, NtStatus::OBJECT_PATH_NOT_FOUND);
        let d = f.open("d", &Ask::directory()).await;
        assert_eq!(link(&d, "e", false).await, NtStatus::FILE_IS_A_DIRECTORY);
        d.close(false).await.unwrap();
        f.close_all().await;
        f.assert_clean();
    });
}

fn everything(who: &[u32], rights: AccessMask) -> Vec<u8> {
    let mut aces = vec![Ace::allow(Sid::ADMINISTRATORS, AccessMask::FILE_ALL, AceFlags(3))];
    aces.extend(who.iter().map(|rid| Ace::allow(sid(*rid), rights, AceFlags(3))));
    SecurityDescriptor {
        control: Control::DACL_PRESENT,
        dacl: Some(Acl { aces }),
        ..SecurityDescriptor::default()
    }
    .encode()
}

/// What a second user may, who has not the right to the file's attributes, to the directory, or to see it.
#[test]
fn names_are_given_and_seen_by_who_may() {
    run(|f| async move {
        let all = AccessMask::FILE_ALL;
        let public = Ask { security: Some(everything(&[2000, 3000], all)), ..Ask::directory() };
        f.open("public", &public).await.close(false).await.unwrap();
        let private = Ask { security: Some(everything(&[2000], all)), ..Ask::directory() };
        f.open("private", &private).await.close(false).await.unwrap();
        f.file("public\\f", b"x").await;
        let (one, two) = (f.plain(2000), f.plain(3000));
        let by = async |caller: &Caller, name: &str, access| {
            f.create_as(caller, name, &Ask::open().access(access)).await.unwrap().open
        };
        let reads = by(&two, "public\\f", AccessMask::GENERIC_READ).await;
        let writes = by(&two, "public\\f", AccessMask::WRITE_ATTRIBUTES).await;
        assert_eq!(link(&writes, "private\\g", false).await, NtStatus::ACCESS_DENIED);
        let other = by(&one, "public\\f", AccessMask::WRITE_ATTRIBUTES).await;
        assert_eq!(link(&other, "private\\secret", false).await, NtStatus::SUCCESS);
        assert_eq!(link(&writes, "public\\g", false).await, NtStatus::SUCCESS);
        assert_eq!(names(&other).await, ["f", "g", "secret"]);
        assert_eq!(names(&reads).await, ["f", "g"], "what is in a directory that one may not list");
        // Nor through a share of another folder, nor beyond what a share allows.
        let folder = by(&one, "private", AccessMask::READ_ATTRIBUTES).await;
        let inside = f.through(&one, folder.file(), all);
        let secret = by(&inside, "secret", AccessMask::WRITE_ATTRIBUTES).await;
        assert_eq!(names(&secret).await, ["secret"], "names outside of the share");
        assert_eq!(secret.path(), "secret");
        let cut = f.through(&one, f.store.root(), AccessMask::FILE_READ | AccessMask::WRITE_ATTRIBUTES);
        let cut = by(&cut, "public\\f", AccessMask::WRITE_ATTRIBUTES).await;
        assert_eq!(link(&cut, "public\\h", false).await, NtStatus::ACCESS_DENIED);
        f.close_all().await;
        f.assert_clean();
    });
}

/// The kernel's client opens a file for its attributes only when it makes a link: what the user may do counts, not what the open
/// may.
#[test]
fn a_link_asks_what_the_user_may_not_what_the_open_may() {
    run(|f| async move {
        let all = AccessMask::FILE_ALL;
        let public = Ask { security: Some(everything(&[2000, 3000], all)), ..Ask::directory() };
        f.open("public", &public).await.close(false).await.unwrap();
        let (one, two) = (f.plain(2000), f.plain(3000));
        for (name, who, rights) in [("f", 2000, all), ("read", 3000, AccessMask::FILE_READ)] {
            let made = Ask { security: Some(everything(&[who], rights)), ..Ask::default() };
            let made = f.create_as(&one, &format!("public\\{name}"), &made).await.unwrap().open;
            made.close(false).await.unwrap();
        }
        let looks = async |caller: &Caller, name: &str| {
            let ask = Ask::open().access(AccessMask::READ_ATTRIBUTES);
            f.create_as(caller, name, &ask).await.unwrap().open
        };
        let own = looks(&one, "public\\f").await;
        assert_eq!(link(&own, "public\\g", false).await, NtStatus::SUCCESS);
        assert_eq!(names(&own).await, ["f", "g"]);
        // Who may only read the file, or only through the share, gives it no name.
        let other = looks(&two, "public\\read").await;
        assert_eq!(link(&other, "public\\h", false).await, NtStatus::ACCESS_DENIED);
        let cap = all.without(AccessMask::WRITE_ATTRIBUTES);
        let cut = looks(&f.through(&one, f.store.root(), cap), "public\\f").await;
        assert_eq!(link(&cut, "public\\h", false).await, NtStatus::ACCESS_DENIED);
        own.close(false).await.unwrap();
        assert_eq!(link(&own, "public\\h", false).await, NtStatus::FILE_CLOSED);
        f.close_all().await;
        f.assert_clean();
    });
}

/// Extended attributes are the file's: they stay as long as it has a name.
#[test]
fn attributes_stay_with_the_last_name() {
    run(|f| async move {
        // One FILE_FULL_EA_INFORMATION: no next, no flags, a name of one letter, a value of five.
        let ea = b"\0\0\0\0\0\x01\x05\0K\0value".to_vec();
        let ask = Ask { ea: Some(ea), ..Ask::default() };
        let a = f.open("a", &ask).await;
        assert_eq!(link(&a, "b", false).await, NtStatus::SUCCESS);
        assert_eq!(dispose(&a, true).await, NtStatus::SUCCESS);
        a.close(false).await.unwrap();
        let b = f.open("b", &Ask::open()).await;
        let ea: smb_protocol::fscc::file::EaInformation = query(&b, FileClass::EA).await;
        assert!(ea.ea_size > 0, "they went with another name");
        b.close(false).await.unwrap();
    });
}

/// Who caches the file's handle closes it before a name is made (MS-FSA 2.1.4.12).
#[test]
fn a_link_breaks_what_caches_the_handle() {
    run(|f| async move {
        f.file("a", b"a").await;
        let held = f.create("a", &Ask::open().lease(1, 7)).await.unwrap().open;
        let other = f.client(2);
        let linking = f.create_as(&other, "a", &Ask::open().access(AccessMask::WRITE_ATTRIBUTES)).await;
        let linking = linking.unwrap().open;
        f.told.take();
        let fs = &f.fs;
        let acknowledge = async {
            tokio::task::yield_now().await;
            let told = f.told.take();
            assert!(matches!(told[..], [Told::Lease { key: 1, ack: true, .. }]), "{told:?}");
            let Told::Lease { to, .. } = told[0] else { unreachable!() };
            fs.acknowledge_lease(f.user.client, f.user.token.user, LeaseKey([1; 16]), to).unwrap();
        };
        let (linked, ()) = tokio::join!(link(&linking, "b", false), acknowledge);
        assert_eq!(linked, NtStatus::SUCCESS);
        // The lease is the file's, by whichever name.
        let again = f.create("b", &Ask::open().lease(1, 7)).await.unwrap();
        assert!(matches!(again.granted, Granted::Lease { .. }), "{:?}", again.granted);
        again.open.close(false).await.unwrap();
        held.close(false).await.unwrap();
        linking.close(false).await.unwrap();
        f.assert_clean();
    });
}
