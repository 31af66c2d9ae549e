//! Parents, as others find them.

use aligned_buffer::IoBuf;
use block_device::Durability;
use file_store::{Attributes, MemoryStore, NewFile, Share};
use vhdx::{CreateOptions, Kind, ParentLocator};

use super::*;

const MIB: u64 = 1 << 20;

fn run<T>(test: impl Future<Output = T>) -> T {
    sim::on_shard(test).expect("an event loop")
}

async fn make(store: &dyn FileStore, directory: FileId, name: &str, kind: FileKind) -> FileId {
    let new = NewFile { kind, attributes: Attributes::default(), security: Vec::new() };
    store.create(directory, name, new).await.expect("made")
}

/// An image, or a child of one in the same folder; its file and the id of its data.
async fn image(
    store: &dyn FileStore,
    directory: FileId,
    name: &str,
    parent: Option<(&str, Uuid)>,
) -> (FileId, Uuid) {
    let id = make(store, directory, name, FileKind::File).await;
    let file = store.open(id, OpenOptions::shared(Access::READ_WRITE)).await.expect("opened");
    let kind = match parent {
        Some((parent, id)) => Kind::Differencing(ParentLocator::new(id, parent, None)),
        None => Kind::Dynamic,
    };
    vhdx::create(&file, &CreateOptions::new(8 * MIB, kind), &SystemEntropy).await.expect("made");
    let entropy: Arc<dyn Entropy> = Arc::new(SystemEntropy);
    let opening = Opening::read(file, Mode::Read, &entropy).await.expect("read");
    (id, opening.info().header.data_write_guid)
}

async fn opened(
    store: &dyn FileStore,
    file: FileId,
    access: Access,
    share: Share,
) -> Result<(), StoreErrorKind> {
    let options = OpenOptions { share, ..OpenOptions::shared(access) };
    store.open(file, options).await.map(drop).map_err(|error| error.kind())
}

/// What others may do with it, and may not.
async fn is_kept(store: &dyn FileStore, folder: (FileId, FileId), parent: FileId) -> bool {
    let removed = store.remove(folder.1, "parent.vhdx").await.map_err(|error| error.kind());
    let is_kept = removed == Err(StoreErrorKind::SharingViolation);
    if is_kept {
        let write = opened(store, parent, Access::READ_WRITE, Share::ALL).await;
        assert_eq!(write, Err(StoreErrorKind::SharingViolation));
        let delete = Access { read: false, write: false, delete: true };
        assert_eq!(opened(store, parent, delete, Share::ALL).await, Err(StoreErrorKind::SharingViolation));
        // Who backs it up reads it, also one that shares nothing meanwhile.
        assert_eq!(opened(store, parent, Access::READ, Share::NONE).await, Ok(()));
        let root = store.root();
        let moved = store.rename((root, "folder"), (root, "other"), false).await;
        assert_eq!(moved.map_err(|error| error.kind()), Err(StoreErrorKind::SharingViolation));
    }
    is_kept
}

#[test]
fn a_parent_is_kept_until_its_last_child_is_gone() {
    run(async {
        let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new(1 << 30));
        let root = store.root();
        let folder = make(&*store, root, "folder", FileKind::Directory).await;
        let (parent, id) = image(&*store, folder, "parent.vhdx", None).await;
        let (one, _) = image(&*store, folder, "one.vhdx", Some((".\\parent.vhdx", id))).await;
        let (two, _) = image(&*store, folder, "two.vhdx", Some((".\\parent.vhdx", id))).await;
        let parentage = Parentage::new(store.clone());
        let link = |child| Link { parent, child };
        parentage.record(&[link(one), link(two)]).await.expect("recorded");
        assert!(is_kept(&*store, (root, folder), parent).await);
        // The node ends, and another one opens the volume.
        parentage.let_go();
        drop(parentage);
        let parentage = Parentage::new(store.clone());
        parentage.look().await.expect("looked");
        assert!(is_kept(&*store, (root, folder), parent).await);
        for path in ["/folder/parent.vhdx", "/folder", "/FOLDER/Parent.vhdx"] {
            let refused = parentage.refuse(path).await.expect_err("it has children");
            assert_eq!(refused.code, Code::InUse);
            assert!(
                refused
                    .detail
                    .contains("/folder/parent.vhdx is the parent of /folder/one.vhdx and of another")
            );
        }
        for path in ["/folder/one.vhdx", "/nothing", "@snapshot/folder/parent.vhdx"] {
            assert_eq!(parentage.refuse(path).await, Ok(()), "{path}");
        }
        store.remove(folder, "one.vhdx").await.expect("removed");
        parentage.look().await.expect("looked");
        assert!(is_kept(&*store, (root, folder), parent).await);
        let refused = parentage.refuse("/folder/parent.vhdx").await.expect_err("it has a child");
        assert!(refused.detail.contains("/folder/two.vhdx:"), "{}", refused.detail);
        store.remove(folder, "two.vhdx").await.expect("removed");
        parentage.look().await.expect("looked");
        assert_eq!(store.state_scan(TABLE, &[]).await.expect("rows"), []);
        assert!(!is_kept(&*store, (root, folder), parent).await);
    });
}

/// One that stands alone now, or is something else, needs no parent; a row says otherwise until somebody asks.
#[test]
fn what_is_no_child_any_more_keeps_no_parent() {
    run(async {
        let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new(1 << 30));
        let root = store.root();
        let (parent, id) = image(&*store, root, "parent.vhdx", None).await;
        let (alone, _) = image(&*store, root, "alone.vhdx", None).await;
        let bytes = make(&*store, root, "bytes", FileKind::File).await;
        let (of_another, _) = image(&*store, root, "other.vhdx", Some((".\\x", Uuid::from_u128(7)))).await;
        let parentage = Parentage::new(store.clone());
        let links = [alone, bytes, of_another].map(|child| Link { parent, child });
        parentage.record(&links).await.expect("recorded");
        let write = async || opened(&*store, parent, Access::READ_WRITE, Share::ALL).await;
        assert_eq!(write().await, Err(StoreErrorKind::SharingViolation));
        assert_eq!(parentage.refuse("/parent.vhdx").await, Ok(()));
        assert_eq!(write().await, Ok(()));
        assert_eq!(store.state_scan(TABLE, &[]).await.expect("rows"), []);
        // A copy of a child is a child.
        let (child, _) = image(&*store, root, "child.vhdx", Some((".\\parent.vhdx", id))).await;
        parentage.record(&[Link { parent, child }]).await.expect("recorded");
        let snapshots = store.snapshot_store().expect("it has clones");
        let clone = snapshots.clone_tree(child, root, "copy.vhdx").await.expect("cloned");
        parentage.cloned(child, clone).await.expect("recorded");
        store.remove(root, "child.vhdx").await.expect("removed");
        parentage.look().await.expect("looked");
        assert_eq!(write().await, Err(StoreErrorKind::SharingViolation));
        assert!(parentage.refuse("/parent.vhdx").await.expect_err("a child").detail.contains("/copy.vhdx"));
    });
}

/// Whoever has it open to write is not overruled.
#[test]
fn what_somebody_may_change_becomes_no_parent() {
    run(async {
        let store: Arc<dyn FileStore> = Arc::new(MemoryStore::new(1 << 30));
        let (parent, _) = image(&*store, store.root(), "parent.vhdx", None).await;
        let writer = store.open(parent, OpenOptions::shared(Access::READ_WRITE)).await.expect("opened");
        let parentage = Parentage::new(store.clone());
        let link = Link { parent, child: FileId(99) };
        let refused = parentage.record(&[link]).await.map_err(|error| error.kind());
        assert_eq!(refused, Err(StoreErrorKind::SharingViolation));
        assert_eq!(store.state_scan(TABLE, &[]).await.expect("rows"), []);
        let data = IoBuf::copy_from(&[1; 512]).freeze();
        writer.write(0, data, Durability::Durable).await.expect("written");
    });
}
