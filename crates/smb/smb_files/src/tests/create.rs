//! Paths, dispositions, kinds, share modes, attributes.

use std::sync::atomic::{AtomicU64, Ordering};

use file_store::{OpenFile, OpenOptions, StoreFuture};
use test_layers::{Layered, StoreLayer};

use super::*;

#[test]
fn files_are_made_opened_and_overwritten() {
    run(|f| async move {
        let made = f.create("A.txt", &Ask::default()).await.unwrap();
        assert_eq!((made.action, made.info.attributes), (CreateAction::CREATED, FileAttributes::ARCHIVE));
        made.open.write(0, buf(b"hello"), WriteFlags::default()).await.unwrap();
        assert_eq!(read(&made.open, 1, 100).await.unwrap(), b"ello");
        assert_eq!(status(read(&made.open, 5, 1).await), NtStatus::END_OF_FILE);
        assert_eq!(made.open.path(), "A.txt");
        made.open.close(true).await.unwrap().unwrap();
        assert_eq!(status(made.open.close(false).await), NtStatus::FILE_CLOSED);
        assert_eq!(status(read(&made.open, 0, 1).await), NtStatus::FILE_CLOSED);
        let again = f.create("a.TXT", &Ask::default()).await.unwrap();
        assert_eq!((again.action, again.info.end_of_file), (CreateAction::OPENED, 5));
        again.open.close(false).await.unwrap();
        assert_eq!(
            f.status("a.txt", &Ask::default().disposition(CreateDisposition::CREATE)).await,
            NtStatus::OBJECT_NAME_COLLISION
        );
        let over =
            f.create("a.txt", &Ask::default().disposition(CreateDisposition::OVERWRITE_IF)).await.unwrap();
        assert_eq!((over.action, over.info.end_of_file), (CreateAction::OVERWRITTEN, 0));
        over.open.close(false).await.unwrap();
        f.assert_clean();
    });
}

#[test]
fn paths_that_lead_nowhere() {
    run(|f| async move {
        f.directory("d").await;
        f.file("f", b"").await;
        for (path, ask, expected) in [
            ("x", Ask::open(), NtStatus::OBJECT_NAME_NOT_FOUND),
            ("x\\y", Ask::default(), NtStatus::OBJECT_PATH_NOT_FOUND),
            ("f\\y", Ask::default(), NtStatus::OBJECT_PATH_NOT_FOUND),
            ("d\\y", Ask::open(), NtStatus::OBJECT_NAME_NOT_FOUND),
            ("f\\", Ask::open(), NtStatus::OBJECT_NAME_INVALID),
            ("d\\", Ask::open(), NtStatus::SUCCESS),
            ("\\f", Ask::open(), NtStatus::INVALID_PARAMETER),
            ("f*", Ask::open(), NtStatus::OBJECT_NAME_INVALID),
            ("f", Ask::open().options(CreateOptions::DIRECTORY_FILE), NtStatus::NOT_A_DIRECTORY),
            ("d", Ask::open().options(CreateOptions::NON_DIRECTORY_FILE), NtStatus::FILE_IS_A_DIRECTORY),
            ("d", Ask::directory().disposition(CreateDisposition::CREATE), NtStatus::OBJECT_NAME_COLLISION),
            ("d", Ask::directory().disposition(CreateDisposition::OVERWRITE_IF), NtStatus::INVALID_PARAMETER),
            ("d::$DATA", Ask::open(), NtStatus::FILE_IS_A_DIRECTORY),
            ("f:s", Ask::open(), NtStatus::OBJECT_NAME_NOT_FOUND),
            ("f:s", Ask::directory(), NtStatus::NOT_A_DIRECTORY),
            ("f::$DATA", Ask::open(), NtStatus::SUCCESS),
            ("", Ask::open(), NtStatus::SUCCESS),
            ("", Ask::open().disposition(CreateDisposition::CREATE), NtStatus::OBJECT_NAME_COLLISION),
            ("f", Ask::open().access(AccessMask::NONE), NtStatus::ACCESS_DENIED),
            ("f", Ask::open().access(AccessMask(0x0080_0000)), NtStatus::ACCESS_DENIED),
            ("f", Ask::open().options(CreateOptions(0x0100_0000)), NtStatus::INVALID_PARAMETER),
            ("f", Ask::open().options(CreateOptions::RESERVE_OPFILTER), NtStatus::NOT_SUPPORTED),
            ("f", Ask::open().options(CreateOptions::OPEN_BY_FILE_ID), NtStatus::NOT_SUPPORTED),
            ("f", Ask::open().attributes(FileAttributes(0x40)), NtStatus::INVALID_PARAMETER),
            (
                "f",
                Ask::open().access(AccessMask::READ_DATA).options(CreateOptions::DELETE_ON_CLOSE),
                NtStatus::INVALID_PARAMETER,
            ),
        ] {
            assert_eq!(f.status(path, &ask).await, expected, "{path}");
        }
        f.assert_clean();
    });
}

#[test]
fn share_modes_meet_by_stream() {
    run(|f| async move {
        let first = f.open("f", &Ask::default().access(AccessMask::READ_DATA).share(1)).await;
        let write = Ask::open().access(AccessMask::WRITE_DATA);
        assert_eq!(f.status("f", &write).await, NtStatus::SHARING_VIOLATION);
        assert_eq!(f.status("f", &Ask::open().access(AccessMask::READ_DATA)).await, NtStatus::SUCCESS);
        assert_eq!(
            f.status("f", &Ask::open().access(AccessMask::READ_DATA).share(2)).await,
            NtStatus::SHARING_VIOLATION
        );
        assert_eq!(
            f.status("f", &Ask::open().access(AccessMask::READ_ATTRIBUTES).share(0)).await,
            NtStatus::SUCCESS
        );
        assert_eq!(f.status("f:s", &Ask::default()).await, NtStatus::SUCCESS, "another stream");
        first.close(false).await.unwrap();
        assert_eq!(f.status("f", &write).await, NtStatus::SUCCESS);
        f.assert_clean();
    });
}

#[test]
fn what_attributes_forbid() {
    run(|f| async move {
        let hidden = Ask::default().attributes(FileAttributes::HIDDEN | FileAttributes::READONLY);
        let made = f.create("f", &hidden).await.unwrap();
        assert_eq!(made.info.attributes.0, 0x23);
        made.open.write(0, buf(b"x"), WriteFlags::default()).await.expect("its maker may write");
        made.open.close(false).await.unwrap();
        assert_eq!(f.status("f", &Ask::open()).await, NtStatus::ACCESS_DENIED);
        let read = Ask::open().access(AccessMask::READ_DATA | AccessMask::DELETE);
        assert_eq!(f.status("f", &read).await, NtStatus::SUCCESS);
        let doc = read.clone().options(CreateOptions::DELETE_ON_CLOSE);
        assert_eq!(f.status("f", &doc).await, NtStatus::CANNOT_DELETE);
        let most = f.open("f", &Ask::open().access(AccessMask::MAXIMUM_ALLOWED)).await;
        assert!(
            !most.granted().contains(AccessMask::WRITE_DATA)
                && most.granted().contains(AccessMask::WRITE_DAC)
        );
        most.close(false).await.unwrap();

        f.open("h", &Ask::default().attributes(FileAttributes::HIDDEN)).await.close(false).await.unwrap();
        let over = Ask::default().disposition(CreateDisposition::OVERWRITE);
        assert_eq!(f.status("h", &over).await, NtStatus::ACCESS_DENIED, "the attribute is not repeated");
        assert_eq!(f.status("h", &over.attributes(FileAttributes::HIDDEN)).await, NtStatus::SUCCESS);
        let dir = Ask::directory().attributes(FileAttributes::TEMPORARY);
        assert_eq!(f.status("t", &dir).await, NtStatus::INVALID_PARAMETER);
    });
}

#[test]
fn streams_come_with_their_file_and_go_when_it_is_overwritten() {
    run(|f| async move {
        let made = f.create("new:s", &Ask::default()).await.unwrap();
        assert_eq!(made.action, CreateAction::CREATED);
        made.open.write(0, buf(b"stream"), WriteFlags::default()).await.unwrap();
        assert_eq!(made.open.path(), "new:s");
        made.open.close(false).await.unwrap();
        let main = f.create("new", &Ask::open()).await.unwrap();
        assert_eq!(main.info.end_of_file, 0);
        main.open.close(false).await.unwrap();
        let again = f.create("NEW:S:$data", &Ask::open()).await.unwrap();
        assert_eq!((again.action, again.info.end_of_file), (CreateAction::OPENED, 6));
        again.open.close(false).await.unwrap();
        f.status("new", &Ask::open().disposition(CreateDisposition::OVERWRITE)).await;
        assert_eq!(f.status("new:s", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        f.assert_clean();
    });
}

#[test]
fn by_number_within_the_share() {
    run(|f| async move {
        f.directory("a").await;
        f.directory("a\\b").await;
        f.file("a\\b\\c", b"deep").await;
        let open = f.open("a\\b\\c", &Ask::open()).await;
        let (file, folder) = (open.file(), open.node.place().unwrap().0.file);
        open.close(false).await.unwrap();
        let id = file.0.to_le_bytes();
        let request = |caller: Caller| {
            let (fs, told) = (f.fs.clone(), f.told.clone());
            async move {
                let request = CreateRequest {
                    options: CreateOptions::OPEN_BY_FILE_ID,
                    on_disk_id: true,
                    maximal_access: Some(None),
                    ..CreateRequest::open(Utf16::new(&id).unwrap(), told)
                };
                fs.create(&caller, request).await
            }
        };
        let found = request(f.user.clone()).await.unwrap();
        assert_eq!((found.open.path(), found.on_disk_id.unwrap().file_id), ("a\\b\\c".into(), file.0));
        assert_eq!(found.maximal_access.unwrap().access, AccessMask::FILE_ALL);
        found.open.close(false).await.unwrap();
        let inner = ShareRoot { root: folder, ..(*f.user.share).clone() };
        let found = request(Caller { share: Arc::new(inner), ..f.user.clone() }).await.unwrap();
        assert_eq!(found.open.path(), "c");
        found.open.close(false).await.unwrap();
        f.directory("other").await;
        let open = f.open("other", &Ask::open()).await;
        let outer = ShareRoot { root: open.file(), ..(*f.user.share).clone() };
        assert_eq!(
            status(request(Caller { share: Arc::new(outer), ..f.user.clone() }).await),
            NtStatus::OBJECT_NAME_NOT_FOUND
        );
        open.close(false).await.unwrap();
    });
}

#[test]
fn a_create_that_is_dropped_leaves_nothing() {
    run(|f| async move {
        f.file("f", b"x").await;
        let holder = f.open("f", &Ask::open().oplock(OplockLevel::BATCH)).await;
        {
            let ask = Ask::open();
            let mut waiting = std::pin::pin!(f.create("f", &ask));
            tokio::select! {
                biased;
                _ = &mut waiting => panic!("it must wait for the break"),
                () = shard_runtime::sleep(std::time::Duration::from_secs(1)) => {}
            }
        }
        holder.close(false).await.unwrap();
        f.assert_clean();
    });
}

#[test]
fn two_that_make_the_same_file_share_one() {
    run(|f| async move {
        let ask = Ask::default();
        let (a, b) = tokio::join!(f.create("same", &ask), f.create("SAME", &ask));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!((a.action, b.action), (CreateAction::CREATED, CreateAction::OPENED));
        assert_eq!(a.open.file(), b.open.file());
        a.open.close(false).await.unwrap();
        b.open.close(false).await.unwrap();
        f.assert_clean();
        drop((a, b));
        assert_eq!(f.pinned(), []);
    });
}

#[test]
fn a_read_only_share_caps_every_open() {
    run(|f| async move {
        f.file("f", b"x").await;
        let cap = AccessMask::FILE_READ | AccessMask::FILE_EXECUTE;
        let share = ShareRoot { maximal_access: cap, ..(*f.user.share).clone() };
        let reader = Caller { share: Arc::new(share), ..f.user.clone() };
        assert_eq!(status(f.create_as(&reader, "f", &Ask::open()).await), NtStatus::ACCESS_DENIED);
        assert_eq!(status(f.create_as(&reader, "new", &Ask::default()).await), NtStatus::ACCESS_DENIED);
        let most = Ask::open().access(AccessMask::MAXIMUM_ALLOWED);
        let open = f.create_as(&reader, "f", &most).await.unwrap().open;
        assert_eq!(open.granted(), cap);
        open.close(false).await.unwrap();
    });
}

#[test]
fn deleting_a_file_takes_its_streams_openers_consent() {
    run(|f| async move {
        f.file("f", b"x").await;
        let delete = Ask::open().access(AccessMask::DELETE);
        let stream = f.open("f:s", &Ask::default().share(3)).await;
        assert_eq!(f.status("f", &delete).await, NtStatus::SHARING_VIOLATION);
        assert_eq!(
            f.status("f", &Ask::open()).await,
            NtStatus::SHARING_VIOLATION,
            "all rights, deletion too"
        );
        assert_eq!(f.status("f", &Ask::open().access(AccessMask::READ_DATA)).await, NtStatus::SUCCESS);
        stream.close(false).await.unwrap();
        let stream = f.open("f:s", &Ask::open().share(7)).await;
        assert_eq!(f.status("f", &delete).await, NtStatus::SUCCESS);
        stream.close(false).await.unwrap();
    });
}

#[test]
fn what_is_there_collides_whatever_its_kind() {
    run(|f| async move {
        f.file("f", b"x").await;
        f.directory("d").await;
        let make = Ask::default().disposition(CreateDisposition::CREATE);
        for (name, option) in [("f", CreateOptions::DIRECTORY_FILE), ("d", CreateOptions::NON_DIRECTORY_FILE)]
        {
            let ask = make.clone().options(option);
            assert_eq!(f.status(name, &ask).await, NtStatus::OBJECT_NAME_COLLISION, "{name}");
        }
        let unknown = make.access(AccessMask(0x0400_0000)).attributes(FileAttributes(8));
        assert_eq!(f.status("g", &unknown).await, NtStatus::ACCESS_DENIED, "rights are looked at first");
    });
}

/// A store that counts how often it is asked to open a file to write.
struct Counting(Arc<MemoryStore>, Arc<AtomicU64>);

impl StoreLayer for Counting {
    fn below(&self) -> &dyn FileStore {
        &*self.0
    }

    fn open(&self, file: FileId, options: OpenOptions) -> StoreFuture<'_, Arc<dyn OpenFile>> {
        self.1.fetch_add(u64::from(options.access.write), Ordering::Relaxed);
        self.0.open(file, options)
    }
}

/// What a client writes durably stands on the name that its own open was made by: the store must have been asked for each.
#[test]
fn each_open_that_writes_is_one_of_the_store() {
    let count = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&count);
    run_on(
        move |store| Arc::new(Layered(Counting(store, counting))) as Arc<dyn FileStore>,
        |f| async move {
            f.file("a", b"content").await;
            let before = count.load(Ordering::Relaxed);
            let first = f.open("a", &Ask::open()).await;
            let second = f.open("a", &Ask::open()).await;
            assert_eq!(count.load(Ordering::Relaxed) - before, 2);
            first.close(false).await.unwrap();
            second.write(0, buf(b"other"), WriteFlags::default()).await.unwrap();
        },
    );
}

#[test]
fn an_open_gives_way_to_its_application_only_for_its_user_or_for_all_of_its_rights() {
    run(|f| async move {
        let (read, all) = (AccessMask::FILE_READ, AccessMask::FILE_ALL);
        let full = Ask::default().access(all).share(0);
        let of = |open: &Open, is_newer| vec![LeftBehind { open: open.id(), is_newer }];
        let other = Caller { client: Guid([2; 16]), ..f.administrator(1001) };
        let reader = f.through(&other, f.store.root(), read);

        let old = f.open("f", &full).await;
        let left = |ask: Ask| Ask { left_behind: of(&old, false), ..ask };
        let status = async |caller: &Caller, ask: &Ask| status(f.create_as(caller, "f", ask).await.map(drop));
        let ask = left(Ask::open().access(read));
        assert_eq!(
            status(&reader, &ask).await,
            NtStatus::SHARING_VIOLATION,
            "who only reads, of another user"
        );
        assert_eq!(status(&reader, &left(full.clone())).await, NtStatus::ACCESS_DENIED, "who may not");
        let ask = left(full.clone().disposition(CreateDisposition::CREATE));
        assert_eq!(
            status(&f.client(2), &ask).await,
            NtStatus::OBJECT_NAME_COLLISION,
            "what is refused anyway"
        );
        old.write(0, buf(b"still there"), WriteFlags::default()).await.unwrap();

        // The same user needs no more than it asks for; another one, as of another node of a cluster, all that the open has.
        let ask = left(Ask::open().access(read).share(0));
        let mine = f.create_as(&f.client(2), "f", &ask).await.unwrap().open;
        assert!(old.is_closed() && !mine.is_closed());
        let theirs = Ask { left_behind: of(&mine, false), ..full.clone() };
        let theirs = f.create_as(&other, "f", &theirs).await.unwrap().open;
        assert!(mine.is_closed());
        theirs.close(false).await.unwrap();

        // Nor does a stranger keep an application out by saying that it is the newer instance.
        let stranger = f.create_as(&reader, "f", &Ask::open().access(read)).await.unwrap().open;
        let ask = Ask { left_behind: of(&stranger, true), ..full.clone().share(7) };
        let back = f.create("f", &ask).await.unwrap().open;
        assert!(!stranger.is_closed());
        let late = Ask { left_behind: of(&back, true), ..Ask::open().access(read) };
        assert_eq!(status(&f.client(2), &late).await, NtStatus::FILE_FORCED_CLOSED);
        stranger.close(false).await.unwrap();
        back.close(false).await.unwrap();

        // Somebody else is in the way as well: nothing is taken from anybody.
        let old = f.open("f", &Ask::default().access(read).share(7)).await;
        let third = f.create_as(&other, "f", &Ask::open().access(read).share(1)).await.unwrap().open;
        let ask = Ask { left_behind: of(&old, false), ..full.clone() };
        assert_eq!(status(&f.client(2), &ask).await, NtStatus::SHARING_VIOLATION);
        assert!(!old.is_closed());
        old.close(false).await.unwrap();
        third.close(false).await.unwrap();
        f.assert_clean();
    });
}
