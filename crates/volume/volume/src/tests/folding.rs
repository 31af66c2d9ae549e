//! A volume whose names an older release has filed: opened, with power cuts anywhere, checked, and written to.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{Device, Durability};
use file_store::names::fold;
use file_store::{FileId, FileKind, FileStore, NewFile, NewSnapshot};
use redb::ReadableTable;
use volume_format::{BLOCK, Entry, FEATURE_SNAPSHOTS, FEATURE_UPCASE, Superblock};

use super::devices::Fickle;
use super::{environment, file, on_shard};
use crate::tables::{COUNTERS, ENTRIES, NAMES};
use crate::{CheckOptions, FormatOptions, Repair, Volume, folding};

const NAMES_BEFORE: [&str; 9] = ["Straße.vhdx", "ﬁle", "ıd", "ſ", "σάς", "𐐨", "plain", "Grüße aus Köln", "ŉ"];
const LOOK: CheckOptions = CheckOptions { deep: false, repair: Repair::No };

async fn superblocks(device: &Device) -> Vec<Superblock> {
    let mut found = Vec::new();
    for at in Superblock::OFFSETS {
        let block = device.read(at, IoBuf::new(BLOCK as usize)).await.expect("read");
        // A copy may be torn; then the other one is not.
        found.extend(Superblock::decode(&block));
    }
    assert!(!found.is_empty());
    found
}

/// All entries, by key; `change` may put others in their place. On a thread, as the database has it.
async fn entries(
    device: &Device,
    change: impl FnOnce(&redb::WriteTransaction) + Send + 'static,
) -> Vec<(String, String)> {
    let superblock = superblocks(device).await.remove(0);
    let device = Arc::clone(device);
    let thread = std::thread::spawn(move || {
        let database = crate::database::open_database(device, &superblock).expect("database").database;
        let txn = database.begin_write().expect("begin");
        change(&txn);
        let rows = {
            let table = txn.open_table(ENTRIES.definition).expect("table");
            let rows = table.iter().expect("rows").map(|row| {
                let (key, value) = row.expect("row");
                (key.value().1.to_owned(), Entry::decode(value.value()).expect("entry").name)
            });
            rows.collect()
        };
        txn.commit().expect("commit");
        rows
    });
    thread.join().expect("entries")
}

/// A volume as the release before has left it, and the files in its root and in a directory.
async fn old_volume() -> (Arc<Fickle>, FileId, Vec<FileId>) {
    let disk = Arc::new(Fickle::new(14 << 20, 7));
    let device: Device = disk.clone();
    Volume::format(Arc::clone(&device), FormatOptions { name: "v".into() }, environment())
        .await
        .expect("format");
    let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
    let root = volume.root();
    let folder = NewFile { kind: FileKind::Directory, ..file() };
    let folder = volume.create(root, "Maße", folder).await.expect("directory");
    let mut files = Vec::new();
    for name in NAMES_BEFORE {
        files.push(volume.create(folder, name, file()).await.expect("file"));
    }
    let snapshot = NewSnapshot {
        name: "s".into(),
        source: folder,
        quiesce: false,
        maker: String::new(),
        path: String::new(),
    };
    volume.snapshot_store().expect("snapshots").take_snapshot(snapshot).await.expect("snapshot");
    volume.close().await.expect("close");
    drop(volume);
    let refile = |txn: &redb::WriteTransaction| {
        let mut table = txn.open_table(ENTRIES.definition).expect("table");
        let rows: Vec<(u64, String, Vec<u8>)> = table
            .iter()
            .expect("rows")
            .map(|row| {
                let (key, value) = row.expect("row");
                (key.value().0, key.value().1.to_owned(), value.value().to_vec())
            })
            .collect();
        for (directory, key, value) in rows {
            let name = Entry::decode(&value).expect("entry").name;
            table.remove((directory, key.as_str())).expect("remove");
            table.insert((directory, folding::before(&name).as_str()), value.as_slice()).expect("insert");
        }
        txn.open_table(COUNTERS.definition).expect("counters").remove(NAMES).expect("counter");
    };
    let rows = entries(&device, refile).await;
    assert!(rows.iter().all(|(key, name)| *key == folding::before(name)));
    assert!(rows.iter().filter(|(key, name)| *key != fold(name)).count() > 10);
    let superblock = superblocks(&device).await.remove(0);
    let old = IoBuf::copy_from(&Superblock { features: FEATURE_SNAPSHOTS, ..superblock }.encode()).freeze();
    for offset in Superblock::OFFSETS {
        device.write(offset, old.clone(), Durability::Durable).await.expect("write");
    }
    (disk, folder, files)
}

async fn all_there(volume: &Volume, folder: FileId, files: &[FileId], what: &str) {
    for (name, file) in NAMES_BEFORE.into_iter().zip(files) {
        for name in [name.to_owned(), fold(name)] {
            let found =
                volume.lookup(folder, &name).await.unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
            assert_eq!(found.file, *file, "{what}: {name}");
        }
    }
    let listed = volume.read_directory(folder, Default::default(), 100).await.expect("listing");
    assert_eq!(listed.entries.len(), files.len(), "{what}");
    assert_eq!(volume.check_deep().await.expect("check"), Vec::new(), "{what}");
}

#[test]
fn names_of_an_older_release_are_found_and_others_are_new() {
    on_shard(async {
        let (disk, folder, files) = old_volume().await;
        let device: Device = disk;
        let found = crate::verify(Arc::clone(&device), environment(), LOOK).await.expect("verify");
        assert_eq!(found, Vec::new(), "an old volume is sound");
        let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
        all_there(&volume, folder, &files, "opened").await;
        for beside in ["STRASSE.vhdx", "FILE", "ID", "S", "𐐀"] {
            assert!(volume.lookup(folder, beside).await.is_err(), "{beside}");
            volume.create(folder, beside, file()).await.expect("a name of its own");
            volume.remove(folder, beside).await.expect("removed");
        }
        all_there(&volume, folder, &files, "written to").await;
        volume.close().await.expect("close");
        drop(volume);
        assert!(
            superblocks(&device).await.iter().all(|superblock| superblock.features & FEATURE_UPCASE != 0)
        );
        let rows = entries(&device, |_| ()).await;
        assert!(rows.iter().all(|(key, name)| *key == fold(name)), "{rows:?}");
    });
}

/// A repair of a volume that no newer release has opened leaves it to the older one as that knows it.
#[test]
fn a_repair_files_as_the_volume_does() {
    on_shard(async {
        let (disk, folder, files) = old_volume().await;
        let device: Device = disk;
        let first = files[0];
        entries(&device, move |txn| {
            let mut table = txn.open_table(ENTRIES.definition).expect("table");
            let key = (folder.0, folding::before(NAMES_BEFORE[0]));
            let wrong = Entry { file: first.0, directory: true, name: NAMES_BEFORE[0].into() };
            table.insert((key.0, key.1.as_str()), wrong.encode().as_slice()).expect("insert");
        })
        .await;
        let repair = CheckOptions { repair: Repair::Apply, ..LOOK };
        let found = crate::verify(Arc::clone(&device), environment(), repair).await.expect("verify");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(
            crate::verify(Arc::clone(&device), environment(), LOOK).await.expect("verify"),
            Vec::new()
        );
        let rows = entries(&device, |_| ()).await;
        assert!(rows.iter().all(|(key, name)| *key == folding::before(name)), "{rows:?}");
        let volume = Volume::open(device, environment()).await.expect("open");
        all_there(&volume, folder, &files, "repaired").await;
        volume.close().await.expect("close");
    });
}

#[test]
fn power_may_go_anywhere_while_names_are_filed_anew() {
    on_shard(async {
        let (disk, folder, files) = old_volume().await;
        let old = Arc::new(disk.after_power_cut(0));
        let mut halfway = 0;
        for cut in 0.. {
            let disk = Arc::new(old.after_power_cut(0));
            let device: Device = disk.clone();
            disk.cut_after(cut);
            let opened = Volume::open(Arc::clone(&device), environment()).await;
            let ended = opened.is_ok();
            if let Ok(volume) = opened {
                let _ = volume.close().await;
            }
            let what = format!("cut after {cut}");
            let disk = Arc::new(disk.after_power_cut(cut));
            let device: Device = disk.clone();
            let found = crate::verify(Arc::clone(&device), environment(), LOOK).await.expect("verify");
            // At most one copy of the superblock is older than the other, or torn.
            let sound = found.iter().all(|found| found.structure == "superblock" && found.repair.is_some());
            assert!(sound, "{what}: {found:?}");
            let upgraded =
                superblocks(&device).await.iter().any(|superblock| superblock.features & FEATURE_UPCASE != 0);
            // On a copy: reading it recovers it.
            let copy: Device = Arc::new(disk.after_power_cut(0));
            let rows = entries(&copy, |_| ()).await;
            let [before, now] = [folding::before, fold]
                .map(|fold| rows.iter().filter(|(key, name)| *key == fold(name)).count());
            // An older release either finds everything or refuses the volume.
            assert!(upgraded || before == rows.len(), "{what}: {rows:?}");
            halfway += usize::from(before < rows.len() && now < rows.len());
            let volume =
                Volume::open(device, environment()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            all_there(&volume, folder, &files, &what).await;
            volume.close().await.expect("close");
            if ended {
                break;
            }
        }
        assert!(halfway > 0, "no cut was in between");
    });
}
