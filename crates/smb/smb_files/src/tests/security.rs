//! Descriptors: on new files, read and replaced, enforced.

use smb_protocol::info::SecurityInformation;
use smb_protocol::security::{Ace, AceFlags, Acl, Control, SecurityDescriptor};

use super::*;

const DOWN: AceFlags = AceFlags(3);

fn sd(aces: Vec<Ace>) -> Vec<u8> {
    SecurityDescriptor {
        control: Control::DACL_PRESENT | Control::DACL_AUTO_INHERITED,
        dacl: Some(Acl { aces }),
        ..SecurityDescriptor::default()
    }
    .encode()
}

async fn descriptor(open: &Open, parts: SecurityInformation) -> SecurityDescriptor {
    let mut out = Vec::new();
    open.query_security(parts, 65536, &mut out).await.unwrap();
    SecurityDescriptor::decode(&out).unwrap()
}

#[test]
fn what_a_directory_grants_its_files_inherit() {
    run(|f| async move {
        let grants = vec![
            Ace::allow(Sid::ADMINISTRATORS, AccessMask::FILE_ALL, DOWN),
            Ace::allow(sid(2000), AccessMask::FILE_READ, DOWN),
            Ace::allow(Sid::CREATOR_OWNER, AccessMask::GENERIC_ALL, DOWN),
        ];
        let ask = Ask { security: Some(sd(grants)), ..Ask::directory() };
        f.open("d", &ask).await.close(false).await.unwrap();
        f.file("d\\f", b"x").await;
        let open = f.open("d\\f", &Ask::open().access(AccessMask::READ_CONTROL)).await;
        let all = SecurityInformation::OWNER | SecurityInformation::DACL;
        let found = descriptor(&open, all).await;
        assert_eq!(found.owner, Some(sid(1000)));
        let dacl = found.dacl.unwrap();
        assert!(dacl.aces.iter().all(|ace| ace.flags == AceFlags::INHERITED));
        assert_eq!(dacl.aces[2].sid(), Some(&sid(1000)), "the creator took the place of CREATOR OWNER");
        assert_eq!(dacl.aces[2].mask(), Some(AccessMask::FILE_ALL));
        let needs = open.query_security(all, 10, &mut Vec::new()).await.unwrap_err();
        assert_eq!(needs.status, NtStatus::BUFFER_TOO_SMALL);
        assert!(matches!(needs.detail, crate::Detail::Needed(n) if n > 10));
        open.close(false).await.unwrap();
        let reader = f.plain(2000);
        let read_only = Ask::open().access(AccessMask::GENERIC_READ);
        f.create_as(&reader, "d\\f", &read_only).await.unwrap().open.close(false).await.unwrap();
        assert_eq!(status(f.create_as(&reader, "d\\f", &Ask::open()).await), NtStatus::ACCESS_DENIED);
        assert_eq!(status(f.create_as(&reader, "d\\new", &Ask::default()).await), NtStatus::ACCESS_DENIED);
        assert_eq!(status(f.create_as(&f.plain(3000), "d\\f", &read_only).await), NtStatus::ACCESS_DENIED);
        let most =
            f.create_as(&reader, "d\\f", &Ask::open().access(AccessMask::MAXIMUM_ALLOWED)).await.unwrap();
        assert_eq!(most.open.granted(), AccessMask::FILE_READ);
        most.open.close(false).await.unwrap();
    });
}

#[test]
fn deletion_may_come_from_the_directory() {
    run(|f| async move {
        let rights = AccessMask::FILE_READ | AccessMask::DELETE_CHILD | AccessMask::FILE_WRITE;
        let grants = vec![
            Ace::allow(sid(2000), rights, AceFlags::NONE),
            Ace::allow(Sid::ADMINISTRATORS, AccessMask::FILE_ALL, DOWN),
        ];
        f.open("d", &Ask { security: Some(sd(grants)), ..Ask::directory() })
            .await
            .close(false)
            .await
            .unwrap();
        f.file("d\\f", b"x").await;
        let user = f.plain(2000);
        let delete = Ask::open().access(AccessMask::DELETE).options(CreateOptions::DELETE_ON_CLOSE);
        assert_eq!(
            status(f.create_as(&user, "d\\f", &Ask::open().access(AccessMask::READ_DATA)).await),
            NtStatus::ACCESS_DENIED
        );
        f.create_as(&user, "d\\f", &delete).await.unwrap().open.close(false).await.unwrap();
        assert_eq!(f.status("d\\f", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
    });
}

#[test]
fn parts_are_replaced_by_who_may() {
    run(|f| async move {
        f.file("f", b"").await;
        let all =
            Ask::open().access(AccessMask::READ_CONTROL | AccessMask::WRITE_DAC | AccessMask::WRITE_OWNER);
        let open = f.open("f", &all).await;
        let new = sd(vec![Ace::allow(sid(2000), AccessMask::FILE_READ, AceFlags::NONE)]);
        open.set_security(SecurityInformation::DACL, &new).await.unwrap();
        let found = descriptor(&open, SecurityInformation::DACL).await;
        assert_eq!(found.dacl.unwrap().aces.len(), 1);
        assert_eq!(status(open.set_security(SecurityInformation::SACL, &new).await), NtStatus::ACCESS_DENIED);
        assert_eq!(
            status(open.set_security(SecurityInformation::OWNER, &new).await),
            NtStatus::INVALID_SECURITY_DESCR
        );
        assert_eq!(
            status(open.set_security(SecurityInformation::DACL, &[1, 2]).await),
            NtStatus::INVALID_SECURITY_DESCR
        );
        let owner = SecurityDescriptor { owner: Some(sid(2000)), ..SecurityDescriptor::default() }.encode();
        open.set_security(SecurityInformation::OWNER, &owner).await.expect("administrators restore");
        open.close(false).await.unwrap();
        // The new list is in force at once, and the new owner can repair it.
        assert_eq!(f.status("f", &Ask::open().access(AccessMask::READ_DATA)).await, NtStatus::ACCESS_DENIED);
        let mine =
            f.create_as(&f.plain(2000), "f", &Ask::open().access(AccessMask::WRITE_DAC)).await.unwrap();
        let theft = SecurityDescriptor { owner: Some(sid(3000)), ..SecurityDescriptor::default() }.encode();
        assert_eq!(
            status(mine.open.set_security(SecurityInformation::OWNER, &theft).await),
            NtStatus::ACCESS_DENIED
        );
        mine.open.close(false).await.unwrap();
    });
}

#[test]
fn access_based_enumeration_hides_what_may_not_be_read() {
    run(|f| async move {
        let mine = vec![Ace::allow(sid(2000), AccessMask::FILE_ALL, AceFlags::NONE)];
        let theirs = vec![Ace::allow(sid(3000), AccessMask::FILE_ALL, AceFlags::NONE)];
        let open_to_all = vec![Ace::allow(Sid::EVERYONE, AccessMask::FILE_READ, AceFlags::NONE)];
        f.open("d", &Ask { security: Some(sd(open_to_all)), ..Ask::directory() })
            .await
            .close(false)
            .await
            .unwrap();
        for (name, aces) in [("d\\mine", mine), ("d\\theirs", theirs)] {
            let made = f.create(name, &Ask { security: Some(sd(aces)), ..Ask::default() }).await;
            // The administrator who makes them has no right in the directory but what privileges give.
            assert_eq!(status(made), NtStatus::ACCESS_DENIED);
        }
        let system = Caller { token: Arc::new(Token::system()), ..f.user.clone() };
        let grant = sd(vec![Ace::allow(Sid::EVERYONE, AccessMask::FILE_ALL, AceFlags::NONE)]);
        f.store
            .set_security(f.open("d", &Ask::open().access(AccessMask::READ_DATA)).await.file(), grant)
            .await
            .unwrap();
        f.fs.refresh(f.fs.opens()[0].file);
        for (name, who) in [("d\\mine", 2000), ("d\\theirs", 3000)] {
            let aces = vec![Ace::allow(sid(who), AccessMask::FILE_ALL, AceFlags::NONE)];
            let made = f
                .create_as(&system, name, &Ask { security: Some(sd(aces)), ..Ask::default() })
                .await
                .unwrap();
            made.open.close(false).await.unwrap();
        }
        let share = ShareRoot { access_based_enumeration: true, ..(*f.user.share).clone() };
        let caller = Caller { share: Arc::new(share), ..f.plain(2000) };
        let d = f.create_as(&caller, "d", &Ask::open().access(AccessMask::READ_DATA)).await.unwrap().open;
        assert_eq!(directory::names(&d, "*").await, [".", "..", "mine"]);
        d.close(false).await.unwrap();
    });
}

#[test]
fn who_may_not_write_makes_no_stream() {
    run(|f| async move {
        let grants = vec![
            Ace::allow(sid(1000), AccessMask::FILE_ALL, AceFlags::NONE),
            Ace::allow(sid(2000), AccessMask::FILE_READ, AceFlags::NONE),
        ];
        let readable = |ask: Ask| Ask { security: Some(sd(grants.clone())), ..ask };
        f.open("f", &readable(Ask::default())).await.close(false).await.unwrap();
        f.open("d", &readable(Ask::directory())).await.close(false).await.unwrap();
        f.file("open", b"").await;
        f.status("r", &Ask::default().attributes(FileAttributes::READONLY)).await;
        let reader = f.plain(2000);
        let read_only_share = f.through(&f.user, f.store.root(), AccessMask::FILE_READ);
        // What may be asked for by who may only read, and what fills the volume.
        let look = Ask { allocation: Some(1 << 20), ..Ask::default().access(AccessMask::READ_ATTRIBUTES) };
        for (who, name) in
            [(&reader, "f:s"), (&reader, "d:s"), (&read_only_share, "open:s"), (&f.user, "r:s")]
        {
            for disposition in [
                CreateDisposition::CREATE,
                CreateDisposition::OPEN_IF,
                CreateDisposition::OVERWRITE_IF,
                CreateDisposition::SUPERSEDE,
            ] {
                for access in [AccessMask::READ_ATTRIBUTES, AccessMask::MAXIMUM_ALLOWED] {
                    let ask = look.clone().access(access).disposition(disposition);
                    let refused = status(f.create_as(who, name, &ask).await);
                    assert_eq!(refused, NtStatus::ACCESS_DENIED, "{name} {disposition:?} {access:?}");
                }
            }
            assert_eq!(
                f.status(name, &Ask::open().access(AccessMask::READ_DATA)).await,
                NtStatus::OBJECT_NAME_NOT_FOUND
            );
        }
        // Who may write makes it, and has no more of it than was asked for.
        let made = f.create("f:s", &look).await.unwrap();
        assert_eq!((made.action, made.open.granted()), (CreateAction::CREATED, AccessMask::READ_ATTRIBUTES));
        made.open.close(false).await.unwrap();
        let there = f.create_as(&reader, "f:s", &look).await.unwrap();
        assert_eq!(there.action, CreateAction::OPENED, "what is there may be looked at");
        there.open.close(false).await.unwrap();
    });
}

#[test]
fn who_empties_a_file_may_change_all_that_goes() {
    run(|f| async move {
        let data = AccessMask::READ_ATTRIBUTES | AccessMask::WRITE_DATA;
        let overwrite = data | AccessMask::WRITE_EA | AccessMask::WRITE_ATTRIBUTES;
        let (over, supersede) = (CreateDisposition::OVERWRITE, CreateDisposition::SUPERSEDE);
        for (given, disposition, works) in [
            (data, over, false),
            (data | AccessMask::WRITE_EA, over, false),
            (overwrite, over, true),
            (overwrite, CreateDisposition::OVERWRITE_IF, true),
            (overwrite, supersede, false),
            (data | AccessMask::DELETE, supersede, true),
            (AccessMask::FILE_READ | AccessMask::DELETE, supersede, false),
        ] {
            let grants = vec![
                Ace::allow(sid(1000), AccessMask::FILE_ALL, AceFlags::NONE),
                Ace::allow(sid(2000), given, AceFlags::NONE),
            ];
            let all = Ask { security: Some(sd(grants)), ..Ask::default().access(AccessMask::FILE_ALL) };
            let made = f.open("f", &all).await;
            made.write(0, buf(b"content"), WriteFlags::default()).await.unwrap();
            let ask = Ask::open().access(AccessMask::READ_ATTRIBUTES).disposition(disposition);
            let answer = status(f.create_as(&f.plain(2000), "f", &ask).await);
            let wanted = if works { NtStatus::SUCCESS } else { NtStatus::ACCESS_DENIED };
            assert_eq!(answer, wanted, "{given:?} {disposition:?}");
            let content = read(&made, 0, 7).await;
            assert_eq!(content.is_ok_and(|data| data == b"content"), !works, "{given:?} {disposition:?}");
            f.close_all().await;
            // Nor where somebody else has it open, and does not share writing.
            let kept = f.create("f", &Ask::open().access(AccessMask::READ_DATA).share(1)).await.unwrap().open;
            assert_eq!(f.status("f", &ask).await, NtStatus::SHARING_VIOLATION);
            kept.close(false).await.unwrap();
            f.fs.core.store.remove(f.store.root(), "f").await.unwrap();
        }
    });
}
