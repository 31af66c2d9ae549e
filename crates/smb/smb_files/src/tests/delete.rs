//! Deletion: dispositions, on close, what is pending, what cannot go.

use smb_protocol::fscc::file::{
    BasicInformation, DispositionFlags, DispositionInformation, DispositionInformationEx, StandardInformation,
};
use smb_protocol::wire::Wire;

use file_store::StoreFuture;
use test_layers::{Layered, StoreLayer};

use super::*;

async fn dispose(open: &Arc<Open>, delete: bool) -> NtStatus {
    let info = DispositionInformation { delete_pending: delete }.to_bytes();
    status(open.set_info(FileClass::DISPOSITION, &info, &|_| {}).await)
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

/// A LUN's file: who asks for its deletion hears that it stays.
#[test]
fn what_another_user_of_the_store_keeps_is_not_deleted() {
    run(|f| async move {
        f.file("f", b"x").await;
        let id = f.store.lookup(f.store.root(), "f").await.unwrap().file;
        let share = file_store::Share { read: true, write: true, delete: false };
        let access = file_store::Access::READ_WRITE;
        let options = file_store::OpenOptions { share, ..file_store::OpenOptions::shared(access) };
        let kept = f.store.open(id, options).await.unwrap();
        let on_close = Ask::open().options(CreateOptions::DELETE_ON_CLOSE);
        assert_eq!(f.status("f", &on_close).await, NtStatus::SHARING_VIOLATION);
        let open = f.open("f", &Ask::open()).await;
        assert_eq!(dispose(&open, true).await, NtStatus::SHARING_VIOLATION);
        assert_eq!(dispose(&open, false).await, NtStatus::SUCCESS);
        drop(kept);
        assert_eq!(dispose(&open, true).await, NtStatus::SUCCESS);
        open.close(false).await.unwrap();
        assert_eq!(f.status("f", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
    });
}

/// A LUN's file: its data is shared, for backups, and its size and path are the LUN's, by whichever name and in whichever way.
#[test]
fn what_another_user_of_the_store_keeps_stays_as_large_as_it_is_and_where_it_is() {
    run(|f| async move {
        f.directory("d").await;
        f.file("d\\f", b"content").await;
        let directory = f.store.lookup(f.store.root(), "d").await.unwrap().file;
        let id = f.store.lookup(directory, "f").await.unwrap().file;
        f.store.link(id, (f.store.root(), "link"), false).await.unwrap();
        let share = file_store::Share { read: true, write: true, delete: false };
        let access = file_store::Access::READ_WRITE;
        let options = file_store::OpenOptions { share, ..file_store::OpenOptions::shared(access) };
        let kept = f.store.open(id, options).await.unwrap();
        for name in ["d\\f", "link"] {
            for how in
                [CreateDisposition::OVERWRITE, CreateDisposition::OVERWRITE_IF, CreateDisposition::SUPERSEDE]
            {
                let status = f.status(name, &Ask::default().disposition(how)).await;
                assert_eq!(status, NtStatus::SHARING_VIOLATION, "{name} {how:?}");
            }
            let open = f.open(name, &Ask::open()).await;
            for (class, size) in
                [(FileClass::END_OF_FILE, 3_i64), (FileClass::END_OF_FILE, 9), (FileClass::ALLOCATION, 3)]
            {
                let set = status(open.set_info(class, &size.to_le_bytes(), &|_| {}).await);
                assert_eq!(set, NtStatus::SHARING_VIOLATION, "{name} {class:?} {size}");
            }
            assert_eq!(read(&open, 0, 10).await.unwrap(), b"content");
            open.close(false).await.unwrap();
        }
        let open = f.open("d", &Ask::open()).await;
        assert_eq!(super::rename::rename(&open, "e", false).await, NtStatus::SHARING_VIOLATION);
        open.close(false).await.unwrap();
        assert_eq!(kept.size(), 7);
        // It gets no other name, by which its data would outlive the LUN, and does not become read-only.
        let open = f.open("link", &Ask::open()).await;
        assert_eq!(super::hard_links::link(&open, "third", false).await, NtStatus::SHARING_VIOLATION);
        f.file("other", b"x").await;
        assert_eq!(super::hard_links::link(&open, "other", true).await, NtStatus::SHARING_VIOLATION);
        let other = f.open("other", &Ask::open()).await;
        assert_eq!(read(&other, 0, 10).await.unwrap(), b"x", "what the name was of stays");
        let basic = |attributes| BasicInformation { attributes, ..BasicInformation::default() };
        let set = async |attributes| {
            status(open.set_info(FileClass::BASIC, &basic(attributes).to_bytes(), &|_| {}).await)
        };
        assert_eq!(set(FileAttributes::READONLY).await, NtStatus::SHARING_VIOLATION);
        assert_eq!(set(FileAttributes::HIDDEN).await, NtStatus::SUCCESS);
        drop(kept);
        assert_eq!(set(FileAttributes::READONLY).await, NtStatus::SUCCESS);
        assert_eq!(super::hard_links::link(&open, "third", false).await, NtStatus::SUCCESS);
        open.close(false).await.unwrap();
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
        open.set_info(FileClass::DISPOSITION_EX, &ex, &|_| {}).await.unwrap();
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
        assert!(f.fs.core.close_from_outside(&open).await && !f.fs.core.close_from_outside(&open).await);
        assert_eq!(f.told.take(), [Told::Closed]);
        assert_eq!(f.status("f", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        f.assert_clean();
    });
}

async fn dispose_ex(open: &Arc<Open>, flags: DispositionFlags) -> NtStatus {
    let info = DispositionInformationEx { flags }.to_bytes();
    status(open.set_info(FileClass::DISPOSITION_EX, &info, &|_| {}).await)
}

#[test]
fn nobody_deletes_the_folder_of_a_share() {
    run(|f| async move {
        f.directory("share").await;
        let folder = f.store.lookup(f.store.root(), "share").await.unwrap().file;
        let inside = f.through(&f.user, folder, AccessMask::FILE_ALL);
        let delete = Ask::open().access(AccessMask::DELETE | AccessMask::READ_ATTRIBUTES);
        let on_close = delete.clone().options(CreateOptions::DELETE_ON_CLOSE);
        assert_eq!(status(f.create_as(&inside, "", &on_close).await), NtStatus::CANNOT_DELETE);
        let open = f.create_as(&inside, "", &delete).await.unwrap().open;
        let on_close = DispositionFlags::DELETE | DispositionFlags::ON_CLOSE;
        let anyway = DispositionFlags::DELETE | DispositionFlags::IGNORE_READONLY_ATTRIBUTE;
        assert_eq!(dispose(&open, true).await, NtStatus::CANNOT_DELETE);
        for flags in [DispositionFlags::DELETE, on_close, anyway] {
            assert_eq!(dispose_ex(&open, flags).await, NtStatus::CANNOT_DELETE, "{flags:?}");
        }
        open.close(false).await.unwrap();
        assert_eq!(status(f.create_as(&inside, "f", &Ask::default()).await), NtStatus::SUCCESS);
        f.close_all().await;
        // Its streams are files like others.
        let stream = f.create_as(&inside, ":s", &Ask::default()).await.unwrap().open;
        assert_eq!(dispose(&stream, true).await, NtStatus::SUCCESS);
        stream.close(false).await.unwrap();
        assert_eq!(status(f.create_as(&inside, ":s", &Ask::open()).await), NtStatus::OBJECT_NAME_NOT_FOUND);
    });
}

#[test]
fn deletion_on_close_is_checked_like_any_other() {
    run(|f| async move {
        f.status("r", &Ask::default().attributes(FileAttributes::READONLY)).await;
        f.directory("d").await;
        f.file("d\\f", b"").await;
        let on_close = DispositionFlags::DELETE | DispositionFlags::ON_CLOSE;
        let read_only = f.open("r", &Ask::open().access(AccessMask::DELETE)).await;
        assert_eq!(dispose_ex(&read_only, on_close).await, NtStatus::CANNOT_DELETE);
        read_only.close(false).await.unwrap();
        let full = f.open("d", &Ask::open()).await;
        assert_eq!(dispose_ex(&full, on_close).await, NtStatus::DIRECTORY_NOT_EMPTY);
        full.close(false).await.unwrap();
        for name in ["r", "d"] {
            assert_eq!(f.status(name, &Ask::open().access(AccessMask::READ_DATA)).await, NtStatus::SUCCESS);
        }
        // As asked: not before its own close, and it can be taken back.
        let open = f.open("r", &Ask::open().access(AccessMask::DELETE)).await;
        let anyway = on_close | DispositionFlags::IGNORE_READONLY_ATTRIBUTE;
        for flags in [anyway, DispositionFlags::ON_CLOSE, anyway] {
            assert_eq!(dispose_ex(&open, flags).await, NtStatus::SUCCESS);
            assert_eq!(f.status("r", &Ask::open().access(AccessMask::READ_DATA)).await, NtStatus::SUCCESS);
        }
        open.close(false).await.unwrap();
        assert_eq!(f.status("r", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        f.assert_clean();
    });
}

#[test]
fn what_a_share_serves_stays_for_every_other_share() {
    run(|f| async move {
        f.directory("a").await;
        f.directory("a\\b").await;
        f.directory("ab").await;
        let (one, two) = (f.fs.share_folder("A\\B"), f.fs.share_folder("/a/b"));
        for (name, expected) in
            [("a\\b", NtStatus::CANNOT_DELETE), ("a", NtStatus::CANNOT_DELETE), ("ab", NtStatus::SUCCESS)]
        {
            let open = f.open(name, &Ask::open()).await;
            assert_eq!(dispose(&open, true).await, expected, "{name}");
            dispose(&open, false).await;
            let expected = if name == "ab" { expected } else { NtStatus::ACCESS_DENIED };
            assert_eq!(rename::rename(&open, "new name", false).await, expected, "{name}");
            open.close(false).await.unwrap();
        }
        // A deletion that was asked for before.
        drop((one, two));
        let open = f.open("a\\b", &Ask::open().options(CreateOptions::DELETE_ON_CLOSE)).await;
        let three = f.fs.share_folder("a/b");
        open.close(false).await.unwrap();
        assert_eq!(f.status("a\\b", &Ask::open()).await, NtStatus::SUCCESS);
        drop(three);
        let open = f.open("a\\b", &Ask::open().options(CreateOptions::DELETE_ON_CLOSE)).await;
        open.close(false).await.unwrap();
        assert_eq!(f.status("a\\b", &Ask::open()).await, NtStatus::OBJECT_NAME_NOT_FOUND);
        f.assert_clean();
    });
}

/// A store that remembers what was removed, and whether that was durable; it has a twin with volatile changes.
struct Removals {
    below: Arc<MemoryStore>,
    durably: bool,
    seen: Seen,
}

/// Names that were removed, each with whether that was durable.
type Seen = Arc<Mutex<Vec<(String, bool)>>>;

impl StoreLayer for Removals {
    fn below(&self) -> &dyn FileStore {
        &*self.below
    }
    fn volatile(&self) -> Option<Arc<dyn FileStore>> {
        let (below, seen) = (Arc::clone(&self.below), Arc::clone(&self.seen));
        Some(Arc::new(Layered(Self { below, durably: false, seen })))
    }
    fn remove<'a>(&'a self, directory: FileId, name: &'a str) -> StoreFuture<'a, ()> {
        self.seen.lock().push((name.to_owned(), self.durably));
        self.below.remove(directory, name)
    }
    fn remove_stream<'a>(&'a self, file: FileId, stream: &'a str) -> StoreFuture<'a, ()> {
        self.seen.lock().push((stream.to_owned(), self.durably));
        self.below.remove_stream(file, stream)
    }
}

/// What was promised to be durable to whoever asked for a deletion is so, whoever is the last to close.
#[test]
fn a_deletion_is_as_durable_as_it_was_promised() {
    let seen = Seen::default();
    let shown = Arc::clone(&seen);
    let on =
        move |below| Arc::new(Layered(Removals { below, durably: true, seen: shown })) as Arc<dyn FileStore>;
    run_on(on, move |f| async move {
        let options = |durable| if durable { CreateOptions::WRITE_THROUGH } else { CreateOptions::NONE };
        for name in ["f", "f:s"] {
            for on_close in [false, true] {
                for (asker, last) in [(false, false), (false, true), (true, false), (true, true)] {
                    f.file("f", b"").await;
                    f.file("f:s", b"").await;
                    let of_asker =
                        if on_close { CreateOptions::DELETE_ON_CLOSE } else { CreateOptions::NONE };
                    let asks = f.open(name, &Ask::open().options(options(asker) | of_asker)).await;
                    let other = f.open(name, &Ask::open().options(options(last))).await;
                    if !on_close {
                        assert_eq!(dispose(&asks, true).await, NtStatus::SUCCESS);
                    }
                    asks.close(false).await.unwrap();
                    assert_eq!(std::mem::take(&mut *seen.lock()), []);
                    other.close(false).await.unwrap();
                    let removed = std::mem::take(&mut *seen.lock());
                    let gone = name.rsplit(':').next().unwrap().to_owned();
                    let durably = asker || last;
                    assert_eq!(removed, [(gone, durably)], "{name}: asked for by {asker}, closed by {last}");
                }
            }
        }
        // What was taken back is asked for anew.
        f.file("f", b"").await;
        let durable = f.open("f", &Ask::open().options(CreateOptions::WRITE_THROUGH)).await;
        let other = f.open("f", &Ask::open()).await;
        assert_eq!(dispose(&durable, true).await, NtStatus::SUCCESS);
        assert_eq!(dispose(&durable, false).await, NtStatus::SUCCESS);
        durable.close(false).await.unwrap();
        assert_eq!(dispose(&other, true).await, NtStatus::SUCCESS);
        other.close(false).await.unwrap();
        assert_eq!(std::mem::take(&mut *seen.lock()), [("f".to_owned(), false)]);
        f.assert_clean();
    });
}
