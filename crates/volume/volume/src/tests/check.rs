//! Damage made by hand: one structure at a time, found and named, and repaired where that needs no guess.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_conformance::Rng;
use block_device::{Device, Durability, MemoryDisk};
use file_store::{Access, DirectoryCursor, FileKind, FileStore, NewFile, OpenOptions, StoreErrorKind};
use redb::{ReadableTable, WriteTransaction};
use volume_format::{CLUSTER, Entry, Inode, StreamRecord, Superblock};

use super::{SIZE, environment, file, on_shard, open, read, write};
use crate::tables::{
    COUNTERS, ENTRIES, EXTENTS, FREED, INODES, NEXT_FILE, ORPHANS, SECURITY, SHARED, SHARES,
};
use crate::{CheckOptions, Finding, FormatOptions, Repair, Volume, verify};

/// What the files hold.
fn content() -> Vec<u8> {
    (0..10 * CLUSTER).map(|at| (at >> 9) as u8 ^ at as u8).collect()
}

/// A closed volume:
///
/// ```text
///   file 2  /luns
///   file 3  /luns/web      data in clusters of its own
///   file 4  /luns/golden   data shared with
///   file 5  /luns/copy     this one
///   file 6  /docs
///   file 7  /docs/notes    nothing, and a stream "more" with data
/// ```
async fn prepared() -> Device {
    let device: Device = Arc::new(MemoryDisk::new(SIZE, 4096));
    Volume::format(Arc::clone(&device), FormatOptions { name: "v".into() }, environment())
        .await
        .expect("format");
    let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
    let directory = NewFile { kind: FileKind::Directory, ..file() };
    let luns = volume.create(volume.root(), "luns", directory.clone()).await.expect("luns");
    for name in ["web", "golden", "copy"] {
        let made = volume.create(luns, name, file()).await.expect("file");
        if name != "copy" {
            let f = open(&volume, made).await;
            write(&f, 0, &content(), Durability::Durable).await;
        } else {
            let golden = volume.lookup(luns, "golden").await.expect("golden").file;
            volume.clone_range((golden, 0), (made, 0), 10 * CLUSTER).await.expect("clone");
        }
    }
    let docs = volume.create(volume.root(), "docs", directory).await.expect("docs");
    let notes = volume.create(docs, "notes", file()).await.expect("notes");
    let options =
        OpenOptions { stream: "more".into(), create_stream: true, ..OpenOptions::shared(Access::READ_WRITE) };
    let more = volume.open(notes, options).await.expect("stream");
    write(&more, 0, b"more", Durability::Durable).await;
    drop(more);
    volume.close().await.expect("close");
    device
}

/// Changes the database of a closed volume behind everybody's back.
fn damage(device: &Device, how: impl FnOnce(&WriteTransaction) + Send + 'static) {
    let device = Arc::clone(device);
    let changing = std::thread::spawn(move || {
        let mut block = IoBuf::new(4096);
        block = crate::backend::run(device.read(0, block)).expect("read");
        let superblock = Superblock::decode(&block).expect("superblock");
        let (database, _) = crate::database::open_database(device, &superblock).expect("database");
        let txn = database.begin_write().expect("begin");
        how(&txn);
        txn.commit().expect("commit");
    });
    changing.join().expect("the damage is done");
}

async fn look(device: &Device, repair: Repair) -> Vec<Finding> {
    let options = CheckOptions { deep: true, repair };
    verify(Arc::clone(device), environment(), options).await.expect("verify")
}

/// One case: what is damaged, and which finding must name it.
struct Case {
    structure: &'static str,
    /// Words of the place.
    place: &'static [&'static str],
    /// Words of what is wrong.
    detail: &'static str,
    how: fn(&WriteTransaction),
}

fn inode(txn: &WriteTransaction, file: u64, change: impl FnOnce(&mut Inode)) {
    let mut table = txn.open_table(INODES).expect("table");
    let mut inode = Inode::decode(table.get(file).expect("get").expect("row").value()).expect("inode");
    change(&mut inode);
    table.insert(file, inode.encode().as_slice()).expect("insert");
}

fn put_entry(txn: &WriteTransaction, directory: u64, key: &str, entry: &Entry) {
    let mut table = txn.open_table(ENTRIES).expect("table");
    table.insert((directory, key), entry.encode().as_slice()).expect("insert");
}

fn entry(file: u64, directory: bool, name: &str) -> Entry {
    Entry { file, directory, name: name.into() }
}

fn extent(txn: &WriteTransaction, key: (u64, u32, u64), value: (u64, u64, u8)) {
    txn.open_table(EXTENTS).expect("table").insert(key, value).expect("insert");
}

/// The first extent of a file.
fn first(txn: &WriteTransaction, file: u64) -> (u64, u64, u8) {
    let table = txn.open_table(EXTENTS).expect("table");
    let row = table.range((file, 0, 0)..).expect("range").next().expect("row").expect("row");
    row.1.value()
}

const CASES: &[Case] = &[
    Case {
        structure: "file record",
        place: &["file 3", "web in directory 2"],
        detail: "cannot be read",
        how: |txn| drop(txn.open_table(INODES).expect("t").insert(3, [9u8, 9].as_slice()).expect("i")),
    },
    Case {
        structure: "file record",
        place: &["file 1 (/)"],
        detail: "no root directory",
        how: |txn| drop(txn.open_table(INODES).expect("t").remove(1).expect("r")),
    },
    Case {
        structure: "file record",
        place: &["file 3", "web in file 2 (/luns)"],
        detail: "says it is other in directory 6",
        how: |txn| {
            inode(txn, 3, |inode| {
                inode.parent = 6;
                inode.name = "other".into();
            });
        },
    },
    Case {
        structure: "stream record",
        place: &["file 7 (/docs/notes)", "stream 1"],
        detail: "two records",
        how: |txn| inode(txn, 7, |inode| inode.streams.push(inode.streams[1].clone())),
    },
    Case {
        structure: "stream record",
        place: &["file 7 (/docs/notes)", "stream 2"],
        detail: "name of another",
        how: |txn| {
            inode(txn, 7, |inode| {
                inode.streams.push(StreamRecord { id: 2, name: "MORE".into(), size: 0 });
                inode.next_stream = 3;
            });
        },
    },
    Case {
        structure: "stream record",
        place: &["file 7 (/docs/notes)", "stream 1"],
        detail: "name that cannot be",
        how: |txn| inode(txn, 7, |inode| inode.streams[1].name = "a:b".into()),
    },
    Case {
        structure: "stream record",
        place: &["file 3 (/luns/web)", "stream 0"],
        detail: "size that cannot be",
        how: |txn| inode(txn, 3, |inode| inode.streams[0].size = u64::MAX),
    },
    Case {
        structure: "stream record",
        place: &["file 3 (/luns/web)", "stream 0"],
        detail: "is missing",
        how: |txn| inode(txn, 3, |inode| inode.streams.clear()),
    },
    Case {
        structure: "stream record",
        place: &["file 7 (/docs/notes)", "stream 1"],
        detail: "given out again",
        how: |txn| inode(txn, 7, |inode| inode.next_stream = 1),
    },
    Case {
        structure: "directory entry",
        place: &["WEB in file 2 (/luns)"],
        detail: "cannot be read",
        how: |txn| {
            let mut table = txn.open_table(ENTRIES).expect("table");
            table.insert((2, "WEB"), [1u8, 2, 3].as_slice()).expect("insert");
        },
    },
    Case {
        structure: "directory entry",
        place: &["ghost in file 2 (/luns)"],
        detail: "file 77, which does not exist",
        how: |txn| put_entry(txn, 2, "GHOST", &entry(77, false, "ghost")),
    },
    Case {
        structure: "directory entry",
        place: &["web in file 2 (/luns)"],
        detail: "is filed under WRONG",
        how: |txn| {
            txn.open_table(ENTRIES).expect("table").remove((2, "WEB")).expect("remove");
            put_entry(txn, 2, "WRONG", &entry(3, false, "web"));
        },
    },
    Case {
        structure: "directory entry",
        place: &["lost in file 3 (/luns/web)"],
        detail: "3 is no directory",
        how: |txn| put_entry(txn, 3, "LOST", &entry(7, false, "lost")),
    },
    Case {
        structure: "directory entry",
        place: &["file 3 (/luns/web)"],
        detail: "has no name",
        how: |txn| drop(txn.open_table(ENTRIES).expect("t").remove((2, "WEB")).expect("r")),
    },
    Case {
        structure: "directory entry",
        place: &["second in file 6 (/docs)"],
        detail: "second name of file 3",
        how: |txn| put_entry(txn, 6, "SECOND", &entry(3, false, "second")),
    },
    Case {
        structure: "directory entry",
        place: &["web in file 2 (/luns)"],
        detail: "disagree on whether it is a directory",
        how: |txn| put_entry(txn, 2, "WEB", &entry(3, true, "web")),
    },
    Case {
        structure: "directory entry",
        place: &["a/b in file 2 (/luns)"],
        detail: "no name that can be",
        how: |txn| put_entry(txn, 2, "A/B", &entry(3, false, "a/b")),
    },
    Case {
        structure: "directory entry",
        place: &["web in file 2 (/luns)"],
        detail: "would be deleted",
        how: |txn| drop(txn.open_table(ORPHANS).expect("t").insert(3, ()).expect("i")),
    },
    Case {
        structure: "directory entry",
        place: &["file 2"],
        detail: "its own ancestor",
        how: |txn| {
            // /luns goes into a directory below itself.
            txn.open_table(ENTRIES).expect("table").remove((1, "LUNS")).expect("remove");
            inode(txn, 2, |inode| inode.parent = 6);
            put_entry(txn, 6, "LUNS", &entry(2, true, "luns"));
            txn.open_table(ENTRIES).expect("table").remove((1, "DOCS")).expect("remove");
            inode(txn, 6, |inode| inode.parent = 2);
            put_entry(txn, 2, "DOCS", &entry(6, true, "docs"));
        },
    },
    Case {
        structure: "removed files",
        place: &["file 50"],
        detail: "nothing of it is left",
        how: |txn| drop(txn.open_table(ORPHANS).expect("t").insert(50, ()).expect("i")),
    },
    Case {
        structure: "security descriptor",
        place: &["file 50"],
        detail: "belongs to no file",
        how: |txn| drop(txn.open_table(SECURITY).expect("t").insert(50, [1u8].as_slice()).expect("i")),
    },
    Case {
        structure: "counter",
        place: &["next file's number"],
        detail: "says 3, but file 7 is there",
        how: |txn| drop(txn.open_table(COUNTERS).expect("t").insert(NEXT_FILE, 3).expect("i")),
    },
    Case {
        structure: "extent",
        place: &["file 3 (/luns/web)", "from byte 6553600"],
        detail: "beyond the volume's",
        how: |txn| extent(txn, (3, 0, 100), (1 << 40, 5, 0)),
    },
    Case {
        structure: "extent",
        place: &["file 3 (/luns/web)", "from byte 6553600"],
        detail: "beyond the volume's",
        how: |txn| extent(txn, (3, 0, 100), (u64::MAX - 1, u64::MAX, 0)),
    },
    Case {
        structure: "extent",
        place: &["file 3 (/luns/web)", "from byte 6553600"],
        detail: "has no clusters",
        how: |txn| extent(txn, (3, 0, 100), (5, 0, 0)),
    },
    Case {
        structure: "extent",
        place: &["file 3 (/luns/web)", "from byte 327680"],
        detail: "overlaps the extent before it, which ends at byte",
        how: |txn| {
            // Free clusters at the end of the volume.
            extent(txn, (3, 0, 5), (500, 2, 0));
        },
    },
    Case {
        structure: "extent",
        place: &["clusters "],
        detail: "file 3 (/luns/web), from byte 6553600 and file 4 (/luns/golden), from byte 0",
        how: |txn| {
            let (device, ..) = first(txn, 4);
            extent(txn, (3, 0, 100), (device, 1, SHARED));
            txn.open_table(SHARES).expect("table").remove(device).expect("remove");
            let value = first(txn, 4);
            extent(txn, (4, 0, 0), (value.0, value.1, 0));
        },
    },
    Case {
        structure: "extent",
        place: &["file 60", "stream 0"],
        detail: "space of a file that does not exist",
        how: |txn| extent(txn, (60, 0, 2), (500, 3, 0)),
    },
    Case {
        structure: "extent",
        place: &["file 7 (/docs/notes)", "stream 5"],
        detail: "space of a stream that does not exist",
        how: |txn| extent(txn, (7, 5, 2), (500, 3, 0)),
    },
    Case {
        structure: "share count",
        place: &["clusters "],
        detail: "have 2 users (file 4 (/luns/golden), from byte 0 and file 5 (/luns/copy), from byte 0), 1 recorded",
        how: |txn| txn.open_table(SHARES).expect("table").retain(|_, _| false).expect("retain"),
    },
    Case {
        structure: "share count",
        place: &["clusters "],
        detail: "2 users (file 4 (/luns/golden), from byte 0 and file 5 (/luns/copy), from byte 0), 7 recorded",
        how: |txn| {
            let (device, count, _) = first(txn, 4);
            txn.open_table(SHARES).expect("table").insert(device, (count, 7)).expect("insert");
        },
    },
    Case {
        structure: "share count",
        place: &["clusters 500..502"],
        detail: "have 0 users (nobody), 2 recorded",
        how: |txn| drop(txn.open_table(SHARES).expect("t").insert(500, (2, 2)).expect("i")),
    },
    Case {
        structure: "share count",
        place: &["clusters 500..502"],
        detail: "less than two users",
        how: |txn| drop(txn.open_table(SHARES).expect("t").insert(500, (2, 1)).expect("i")),
    },
    Case {
        structure: "list of freed clusters",
        place: &["clusters "],
        detail: "are used by file 3 (/luns/web), from byte 0, and would be zeroed",
        how: |txn| {
            let (device, ..) = first(txn, 3);
            txn.open_table(FREED).expect("table").insert(device, 1).expect("insert");
        },
    },
    Case {
        structure: "list of freed clusters",
        place: &["clusters 501..503"],
        detail: "are listed twice",
        how: |txn| {
            let mut table = txn.open_table(FREED).expect("table");
            table.insert(500, 5).expect("insert");
            table.insert(501, 2).expect("insert");
        },
    },
    Case {
        structure: "list of freed clusters",
        place: &["clusters 600..18446744073709551615"],
        detail: "are no clusters of the volume",
        how: |txn| drop(txn.open_table(FREED).expect("t").insert(600, u64::MAX).expect("i")),
    },
];

fn names(found: &Finding, case: &Case) -> bool {
    found.structure == case.structure
        && case.place.iter().all(|word| found.place.contains(word))
        && found.detail.contains(case.detail)
}

#[test]
fn a_sound_volume_has_no_findings() {
    on_shard(async {
        let device = prepared().await;
        for repair in [Repair::No, Repair::Plan, Repair::Apply, Repair::No] {
            assert_eq!(look(&device, repair).await, Vec::new());
        }
        let volume = Volume::open(device, environment()).await.expect("open");
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new());
    });
}

#[test]
fn every_damage_is_found_named_planned_and_repaired() {
    for case in CASES {
        on_shard(async {
            let device = prepared().await;
            damage(&device, case.how);
            let what = format!("{} ({})", case.structure, case.detail);
            let found = look(&device, Repair::No).await;
            assert!(found.iter().any(|found| names(found, case)), "{what} is found as {found:#?}");
            let planned = look(&device, Repair::Plan).await;
            let plan = planned.iter().find(|found| names(found, case)).expect("planned");
            assert!(plan.repair.is_some(), "{what} is not repaired");
            assert_eq!(look(&device, Repair::No).await, found, "{what}: a plan changes nothing");
            assert_eq!(look(&device, Repair::Apply).await, planned, "{what}: what was planned is done");
            assert_eq!(look(&device, Repair::No).await, Vec::new(), "{what} is repaired");
            let volume = Volume::open(device, environment()).await.expect("a repaired volume opens");
            assert_eq!(volume.check_deep().await.expect("check"), Vec::new(), "{what}");
            // What was not damaged, or only in its names, still has its content.
            for path in ["/luns/golden", "/luns/copy"] {
                if let Ok(id) = volume.resolve(path).await {
                    let file = open(&volume, id).await;
                    assert_eq!(read(&file, 0, content().len()).await, content(), "{what}: {path}");
                }
            }
            let web = find(&volume, content().len() as u64).await;
            assert!(web >= 3, "{what}: {web} of 3 files are there");
            volume.close().await.expect("close");
        });
    }
}

/// How many files below the root hold the content at their beginning.
async fn find(volume: &Volume, least: u64) -> usize {
    let (mut count, mut directories) = (0, vec![volume.root()]);
    while let Some(directory) = directories.pop() {
        let page = volume.read_directory(directory, DirectoryCursor::default(), 1000).await.expect("page");
        for entry in page.entries {
            if entry.kind == FileKind::Directory {
                directories.push(entry.file);
                continue;
            }
            let file = open(volume, entry.file).await;
            if file.size() >= least && read(&file, 0, least as usize).await == content() {
                count += 1;
            }
        }
    }
    count
}

#[test]
fn superblock_copies_are_told_apart_and_made_anew() {
    on_shard(async {
        for (which, (offset, name)) in
            Superblock::OFFSETS.into_iter().zip(["the first copy", "the second copy"]).enumerate()
        {
            let device = prepared().await;
            let junk = IoBuf::copy_from(&[0xaa; 4096]).freeze();
            device.write(offset, junk.clone(), Durability::Durable).await.expect("write");
            let found = look(&device, Repair::No).await;
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].structure, "superblock");
            assert!(found[0].place.contains(name) && found[0].place.contains(&offset.to_string()));
            let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
            assert_eq!(volume.check().await.expect("check"), found);
            volume.close().await.expect("close");
            assert_eq!(look(&device, Repair::Apply).await, found);
            assert_eq!(look(&device, Repair::No).await, Vec::new());
            // Both: nothing says where anything is.
            device.write(offset, junk.clone(), Durability::Durable).await.expect("write");
            let other = Superblock::OFFSETS[1 - which];
            device.write(other, junk, Durability::Durable).await.expect("write");
            let found = look(&device, Repair::Apply).await;
            assert_eq!(found.len(), 2, "{found:?}");
            assert!(found.iter().all(|f| f.structure == "superblock" && f.repair.is_none()), "{found:?}");
            let error = Volume::open(device, environment()).await.err().expect("no volume");
            assert!(error.to_string().contains("superblock"), "{error}");
        }
    });
}

#[test]
fn a_damaged_length_record_is_found_and_made_anew() {
    on_shard(async {
        let device = prepared().await;
        let block = device.read(0, IoBuf::new(4096)).await.expect("read");
        let at = Superblock::decode(&block).expect("superblock").length_start;
        // The older of the two.
        let records = [at, at + 4096];
        let mut numbers = Vec::new();
        for at in records {
            let block = device.read(at, IoBuf::new(4096)).await.expect("read");
            numbers.push(volume_format::LengthRecord::decode(&block).map(|r| r.number).unwrap_or(0));
        }
        let older = usize::from(numbers[0] > numbers[1]);
        let junk = IoBuf::copy_from(&[0x55; 4096]).freeze();
        device.write(records[older], junk, Durability::Durable).await.expect("write");
        let found = look(&device, Repair::No).await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].structure, "length record");
        assert!(found[0].place.contains(&format!("at byte {}", records[older])), "{found:?}");
        assert_eq!(look(&device, Repair::Plan).await, found);
        assert_eq!(look(&device, Repair::No).await, found, "a plan changes nothing");
        assert_eq!(look(&device, Repair::Apply).await, found);
        assert_eq!(look(&device, Repair::No).await, Vec::new());
    });
}

#[test]
fn damaged_pages_of_the_database_are_found() {
    on_shard(async {
        let device = prepared().await;
        let superblock =
            Superblock::decode(&device.read(0, IoBuf::new(4096)).await.expect("read")).expect("superblock");
        // Pages in use: those that hold what we know is there.
        let area = superblock.metadata_start..superblock.metadata_start + superblock.metadata_size;
        let mut hits = 0;
        for at in area.step_by(4096) {
            let mut page = device.read(at, IoBuf::new(4096)).await.expect("read");
            let Some(place) = page.windows(6).position(|window| window == b"golden") else { continue };
            page[place] ^= 1;
            device.write(at, page.freeze(), Durability::Durable).await.expect("write");
            let found = look(&device, Repair::No).await;
            // An old version of the page may lie in free space, where damage harms nobody.
            if let Some(found) = found.iter().find(|found| found.structure == "metadata database") {
                assert!(found.place.contains(&superblock.metadata_start.to_string()), "{found:?}");
                assert_eq!(found.repair, None);
                hits += 1;
            }
            let mut page = device.read(at, IoBuf::new(4096)).await.expect("read");
            page[place] ^= 1;
            device.write(at, page.freeze(), Durability::Durable).await.expect("write");
        }
        assert!(hits > 0, "no page in use was met");
        assert_eq!(look(&device, Repair::No).await, Vec::new());
    });
}

#[test]
fn free_clusters_that_are_not_zero_are_found_by_a_deep_check() {
    on_shard(async {
        let device = prepared().await;
        let superblock =
            Superblock::decode(&device.read(0, IoBuf::new(4096)).await.expect("read")).expect("superblock");
        let dirty = IoBuf::copy_from(&[1; 4096]).freeze();
        let at = superblock.data_start + 500 * CLUSTER + 8192;
        device.write(at, dirty, Durability::Durable).await.expect("write");
        let options = CheckOptions { deep: false, repair: Repair::No };
        let quick = verify(Arc::clone(&device), environment(), options).await.expect("verify");
        assert_eq!(quick, Vec::new(), "only a deep check reads it");
        let found = look(&device, Repair::No).await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].structure, found[0].place.as_str()), ("free clusters", "clusters 500..501"));
        let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
        assert_eq!(volume.check_deep().await.expect("check"), found, "an open volume finds it too");
        volume.close().await.expect("close");
        look(&device, Repair::Apply).await;
        assert_eq!(look(&device, Repair::No).await, Vec::new());
    });
}

#[test]
fn free_clusters_in_memory_are_compared() {
    on_shard(async {
        let device = prepared().await;
        let volume = Volume::open(device, environment()).await.expect("open");
        let lost = volume.core.metadata.change(|session| Ok(session.space.free.take(3)));
        let run = lost.await.expect("change").expect("room")[0];
        let found = volume.check().await.expect("check");
        assert_eq!(found.len(), 1, "{found:?}");
        let place = format!("clusters {}..{}", run.start, run.start + 3);
        assert_eq!((found[0].structure, found[0].place.clone()), ("free clusters", place));
        let wrong = volume.core.metadata.change(move |session| {
            session.space.free.add(run);
            let used = session.extents((3, 0))?[0];
            session.space.free.add(crate::free::Run { start: used.device, count: 1 });
            Ok(used.device)
        });
        let used = wrong.await.expect("change");
        let found = volume.check().await.expect("check");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].place, format!("clusters {used}..{}", used + 1));
        assert!(found[0].detail.contains("free, but used"));
    });
}

/// Something that makes no sense, anywhere.
fn garbage(txn: &WriteTransaction, rng: &mut Rng) {
    let file = |rng: &mut Rng| rng.below(10);
    let number = |rng: &mut Rng| match rng.below(4) {
        0 => rng.below(12),
        1 => rng.below(700),
        2 => u64::MAX - rng.below(5),
        _ => rng.next_u64(),
    };
    match rng.below(9) {
        0 => {
            let key = (file(rng), rng.below(3) as u32, number(rng));
            extent(txn, key, (number(rng), number(rng), rng.below(3) as u8));
        }
        1 => {
            let row = (number(rng), rng.below(5) as u32);
            txn.open_table(SHARES).expect("table").insert(number(rng), row).expect("insert");
        }
        2 => drop(txn.open_table(FREED).expect("t").insert(number(rng), number(rng)).expect("i")),
        3 => drop(txn.open_table(ORPHANS).expect("t").insert(file(rng), ()).expect("i")),
        4 => drop(txn.open_table(INODES).expect("t").remove(file(rng)).expect("r")),
        5 => {
            let streams = (0..rng.below(4))
                .map(|_| StreamRecord { id: rng.below(4) as u32, name: "s".into(), size: number(rng) })
                .collect();
            let inode = Inode {
                directory: rng.one_in(2),
                parent: file(rng),
                name: ["x", "", "luns", "a/b"][rng.below(4) as usize].into(),
                next_stream: number(rng) as u32,
                streams,
                ..Inode::default()
            };
            let mut table = txn.open_table(INODES).expect("table");
            table.insert(file(rng), inode.encode().as_slice()).expect("insert");
        }
        6 => {
            let name = ["x", "", "luns", "lost+found", "A"][rng.below(5) as usize];
            let key = ["X", "", "LUNS", "LOST+FOUND", "y"][rng.below(5) as usize];
            put_entry(txn, file(rng), key, &entry(file(rng), rng.one_in(2), name));
        }
        7 => {
            let mut table = txn.open_table(ENTRIES).expect("table");
            let first = table.iter().expect("iter").next().map(|row| {
                let row = row.expect("row");
                (row.0.value().0, row.0.value().1.to_owned())
            });
            if let Some((directory, name)) = first {
                table.remove((directory, name.as_str())).expect("remove");
            }
        }
        _ => drop(txn.open_table(COUNTERS).expect("t").insert(NEXT_FILE, number(rng)).expect("i")),
    }
}

#[test]
fn whatever_the_tables_say_a_repair_makes_a_volume_of_it() {
    for seed in 0..40 {
        on_shard(async {
            let device = prepared().await;
            damage(&device, move |txn| {
                let mut rng = Rng::new(seed);
                for _ in 0..1 + rng.below(12) {
                    garbage(txn, &mut rng);
                }
            });
            let planned = look(&device, Repair::Plan).await;
            // A volume that is damaged opens or does not, but nothing panics.
            if let Ok(volume) = Volume::open(Arc::clone(&device), environment()).await {
                let _ = volume.check().await;
                drop(volume.close().await);
            }
            let repaired = look(&device, Repair::Apply).await;
            assert!(planned.is_empty() == repaired.is_empty(), "seed {seed}: {planned:#?} {repaired:#?}");
            let left = look(&device, Repair::No).await;
            assert!(left.iter().all(|left| left.repair.is_none()), "seed {seed}: {left:#?}");
            let volume = Volume::open(Arc::clone(&device), environment()).await;
            let volume = volume.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let made = volume.create(volume.root(), &format!("after {seed}"), file()).await.expect("create");
            let f = open(&volume, made).await;
            let data = IoBuf::copy_from(&content()).freeze();
            if let Err(error) = f.write(0, data, Durability::Durable).await {
                // An extent that claimed everything keeps what of it there is.
                assert_eq!(error.kind(), StoreErrorKind::NoSpace, "seed {seed}: {error}");
            }
            drop(f);
            volume.close().await.expect("close");
            assert_eq!(look(&device, Repair::No).await, left, "seed {seed}");
        });
    }
}
