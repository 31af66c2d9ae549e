//! Images that are made of one: each a disk of its own, all of them or none.

use std::collections::BTreeSet;

use aligned_buffer::IoBuf;
use block_device::Durability;
use file_store::{Attributes, DirectoryCursor, MemoryStore, StoreError, StoreFuture};
use vhdx::Uuid;

use super::*;
use crate::images::{self, ImagePlace};

const MIB: u64 = 1 << 20;

fn run<T>(test: impl Future<Output = T>) -> T {
    sim::on_shard(test).expect("an event loop")
}

async fn new_file(store: &dyn FileStore, kind: FileKind, name: &str) -> FileId {
    let new = NewFile { kind, attributes: Attributes::default(), security: Vec::new() };
    store.create(store.root(), name, new).await.expect("made")
}

async fn open(store: &Arc<dyn FileStore>, path: &str, mode: Mode) -> vhdx::Image {
    let place = ImagePlace { path: path.into(), parents_anywhere: true };
    images::open(store, &place, mode, &vhdx::unlimited()).await.expect("an image")
}

/// An image with content in its first sector.
async fn golden(store: &Arc<dyn FileStore>) {
    let id = new_file(&**store, FileKind::File, "golden.vhdx").await;
    let file = store.open(id, OpenOptions::shared(Access::READ_WRITE)).await.expect("opened");
    vhdx::create(&file, &CreateOptions::new(64 * MIB, Kind::Dynamic), &SystemEntropy).await.expect("made");
    drop(file);
    let image = open(store, "/golden.vhdx", Mode::Write).await;
    image.write(0, IoBuf::copy_from(&[7; 512]).freeze(), Durability::Durable).await.expect("written");
    image.close().await.expect("closed");
}

fn asked(name: &str, differencing: bool) -> FileProvision {
    FileProvision {
        from: "/golden.vhdx".into(),
        name: name.into(),
        count: None,
        into: Some("/desks".into()),
        differencing,
    }
}

async fn names(store: &dyn FileStore, directory: FileId) -> Vec<String> {
    let page = store.read_directory(directory, DirectoryCursor::default(), 100).await.expect("listed");
    let mut names: Vec<String> = page.entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

#[test]
fn each_is_a_disk_of_its_own() {
    run(async {
        let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new(1 << 30));
        golden(&store).await;
        let desks = new_file(&*store, FileKind::Directory, "desks").await;
        let parentage = Parentage::new(store.clone());
        let mut ids: BTreeSet<Uuid> = BTreeSet::new();
        let mut note = async |path: &str| {
            let info = open(&store, path, Mode::Read).await.info().await;
            for id in [info.metadata.disk_id, info.header.data_write_guid, info.header.file_write_guid] {
                assert!(ids.insert(id), "{path} has an id of another");
            }
            assert!(!info.had_log, "{path}");
        };
        note("/golden.vhdx").await;
        for (name, differencing) in [("c{08..11}.vhdx", false), ("d{08..11}.vhdx", true)] {
            let made =
                provision(store.clone(), Some(&*parentage), &vhdx::unlimited(), &asked(name, differencing))
                    .await
                    .expect("made");
            // Clones do not need what they were made of; children do, also while nobody has them open.
            assert_eq!(parentage.refuse("/golden.vhdx").await.is_err(), differencing);
            assert_eq!((made.paths.len(), made.disk_bytes), (4, 64 * MIB));
            assert_eq!(made.parents_elsewhere, differencing);
            for path in &made.paths {
                note(path).await;
            }
        }
        assert_eq!(names(&*store, desks).await.len(), 8, "nothing else is there");
        // What one is changed to no other sees.
        let one = open(&store, "/desks/c08.vhdx", Mode::Write).await;
        one.write(0, IoBuf::copy_from(&[9; 512]).freeze(), Durability::Durable).await.expect("written");
        drop(one);
        for path in ["/golden.vhdx", "/desks/c09.vhdx", "/desks/d08.vhdx"] {
            let read = open(&store, path, Mode::Read).await.read(0, IoBuf::new(512)).await.expect("read");
            assert!(read.iter().all(|byte| *byte == 7), "{path}");
        }
        parentage.let_go();
        // A name that is taken.
        let taken = provision(store.clone(), None, &vhdx::unlimited(), &asked("c{11..12}.vhdx", false))
            .await
            .expect_err("taken");
        assert_eq!(taken.code, Code::AlreadyExists);
        // Somebody may change it.
        let (id, _) = files::resolve(&*store, "/golden.vhdx").await.expect("there");
        let writer = store.open(id, OpenOptions::shared(Access::READ_WRITE)).await.expect("opened");
        let busy = provision(store.clone(), None, &vhdx::unlimited(), &asked("e{1..2}.vhdx", false))
            .await
            .expect_err("it is busy");
        assert_eq!(busy.code, Code::InUse);
        drop(writer);
        assert_eq!(names(&*store, desks).await.len(), 8, "nothing was made");
    });
}

/// A store in which somebody uses the first images while the third gets its name, which fails.
struct Used(MemoryStore);

impl test_layers::StoreLayer for Used {
    fn below(&self) -> &dyn FileStore {
        &self.0
    }

    fn rename<'a>(
        &'a self,
        from: (FileId, &'a str),
        to: (FileId, &'a str),
        replace: bool,
    ) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            if to.1 != "d3.vhdx" {
                return self.0.rename(from, to, replace).await;
            }
            let first = self.0.lookup(to.0, "d1.vhdx").await?.file;
            let open = self.0.open(first, OpenOptions::shared(Access::READ_WRITE)).await?;
            open.write(0, IoBuf::new(512).freeze(), Durability::Durable).await?;
            self.0.remove(to.0, "d2.vhdx").await?;
            self.0.create(to.0, "d2.vhdx", files::new(&self.0, to.0, FileKind::File).await?).await?;
            Err(StoreError::new(StoreErrorKind::NoSpace, "a test"))
        })
    }
}

#[test]
fn what_somebody_uses_meanwhile_stays_when_another_fails() {
    run(async {
        let store: Arc<dyn FileStore> = Arc::new(test_layers::Layered(Used(MemoryStore::new(1 << 30))));
        golden(&store).await;
        let desks = new_file(&*store, FileKind::Directory, "desks").await;
        let failed = provision(store.clone(), None, &vhdx::unlimited(), &asked("d{1..3}.vhdx", false))
            .await
            .expect_err("one fails");
        assert!(failed.detail.contains("in use already") && failed.detail.contains("d1.vhdx, d2.vhdx"));
        assert_eq!(names(&*store, desks).await, ["d1.vhdx", "d2.vhdx"]);
    });
}

/// A store in which a name cannot be given.
struct Refuses(MemoryStore, &'static str);

impl test_layers::StoreLayer for Refuses {
    fn below(&self) -> &dyn FileStore {
        &self.0
    }

    fn rename<'a>(
        &'a self,
        from: (FileId, &'a str),
        to: (FileId, &'a str),
        replace: bool,
    ) -> StoreFuture<'a, ()> {
        if to.1 == self.1 {
            return Box::pin(async { Err(StoreError::new(StoreErrorKind::NoSpace, "a test")) });
        }
        self.0.rename(from, to, replace)
    }
}

#[test]
fn one_that_fails_takes_the_others_with_it() {
    run(async {
        let layer = Refuses(MemoryStore::new(1 << 30), "d3.vhdx");
        let store: Arc<dyn FileStore> = Arc::new(test_layers::Layered(layer));
        golden(&store).await;
        let desks = new_file(&*store, FileKind::Directory, "desks").await;
        for differencing in [false, true] {
            let failed =
                provision(store.clone(), None, &vhdx::unlimited(), &asked("d{1..9}.vhdx", differencing))
                    .await;
            let failed = failed.expect_err("one fails");
            assert!(failed.detail.contains("/desks/d3.vhdx") && failed.detail.contains("Nothing was made"));
            assert_eq!(names(&*store, desks).await, Vec::<String>::new());
        }
        assert!(store.state_scan("put", &[]).await.expect("rows").is_empty(), "nothing is left to remove");
    });
}

/// A store in which a name cannot be given, and what is aside not be removed.
struct Keeps(MemoryStore);

impl test_layers::StoreLayer for Keeps {
    fn below(&self) -> &dyn FileStore {
        &self.0
    }

    fn rename<'a>(&'a self, _: (FileId, &'a str), _: (FileId, &'a str), _: bool) -> StoreFuture<'a, ()> {
        Box::pin(async { Err(StoreError::new(StoreErrorKind::NoSpace, "a test")) })
    }

    fn remove<'a>(&'a self, _: FileId, _: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async { Err(StoreError::new(StoreErrorKind::SharingViolation, "a test")) })
    }
}

#[test]
fn what_could_not_be_removed_goes_when_the_volume_is_opened() {
    run(async {
        let layer = Keeps(MemoryStore::new(1 << 30));
        let store: Arc<dyn FileStore> = Arc::new(test_layers::Layered(layer));
        golden(&store).await;
        let desks = new_file(&*store, FileKind::Directory, "desks").await;
        provision(store.clone(), None, &vhdx::unlimited(), &asked("d{1..2}.vhdx", false))
            .await
            .expect_err("it fails");
        assert_eq!(names(&*store, desks).await.len(), 1);
        assert_eq!(store.state_scan("put", &[]).await.expect("rows").len(), 1, "it is listed");
    });
}

/// The node ends at any of its steps: whatever has a name is whole, and the rest goes when the volume is opened.
#[test]
fn what_a_node_leaves_that_ends_meanwhile_is_whole_or_goes() {
    for differencing in [false, true] {
        for point in 0.. {
            let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new(1 << 30));
            let (done, desks) = run(async {
                golden(&store).await;
                let desks = new_file(&*store, FileKind::Directory, "desks").await;
                let request = asked("d{1..2}.vhdx", differencing);
                let slow = test_layers::slow(store.clone(), test_layers::OnDrop::Stops);
                let memory = vhdx::unlimited();
                let mut making = std::pin::pin!(provision(slow, None, &memory, &request));
                let left = test_layers::until_wait(point, making.as_mut()).await;
                (matches!(left, test_layers::Left::Ended(_)), desks)
            });
            // Another run of the node: what went on by itself in that one has ended with it.
            run(async {
                unfinished::remove_all(&*store).await.expect("removed");
                for name in names(&*store, desks).await {
                    assert!(!name.starts_with('.'), "{name} was left");
                    let info = open(&store, &format!("/desks/{name}"), Mode::Read).await.info().await;
                    let golden = open(&store, "/golden.vhdx", Mode::Read).await.info().await;
                    assert_ne!(info.metadata.disk_id, golden.metadata.disk_id, "{name} at {point}");
                }
            });
            if done {
                assert!(point > 10, "it was left at {point} waits only");
                break;
            }
        }
    }
}
