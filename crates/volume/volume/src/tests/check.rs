//! Damage made by hand: one structure at a time, found and named, and repaired where that needs no guess.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_conformance::Rng;
use block_device::{Device, Durability, MemoryDisk};
use file_store::{
    Access, DirectoryCursor, FileKind, FileStore, NewFile, NewSnapshot, OpenOptions, SnapshotStore,
    StoreErrorKind,
};
use redb::{ReadableTable, WriteTransaction};
use volume_format::{CLUSTER, Inode, OtherName, SnapshotRecord, StreamRecord, Superblock};

mod cases;
mod opening;
mod overlaps;
mod power;

use cases::{CASES, Case, entry, extent, put_entry};

use super::{SIZE, environment, file, on_shard, open, read, write};
use crate::tables::{
    COUNTERS, ENTRIES, FREED, INODES, LINKS, MAPS, NEXT_FILE, ORPHANS, SHARES, SNAPSHOTS, USES,
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
///   file 8  /docs/image    data in map 8, which it links to as do
///   file 9  /docs/linked   this one
///   file 11 the snapshot 12 of /docs/image, named s, does so too; map 10 is empty, and file 8's own
/// ```
async fn prepared() -> Device {
    let device: Device = Arc::new(MemoryDisk::new(SIZE, 4096));
    prepare(&device).await;
    device
}

async fn prepare(device: &Device) {
    Volume::format(Arc::clone(device), FormatOptions { name: "v".into() }, environment())
        .await
        .expect("format");
    let volume = Volume::open(Arc::clone(device), environment()).await.expect("open");
    let directory = NewFile { kind: FileKind::Directory, ..file() };
    let luns = volume.create(volume.root(), "luns", directory.clone()).await.expect("luns");
    for name in ["web", "golden", "copy"] {
        let made = volume.create(luns, name, file()).await.expect("file");
        if name != "copy" {
            let f = open(&volume, made).await;
            write(&f, 0, &content(), Durability::Durable).await;
        } else {
            let golden = volume.lookup(luns, "golden").await.expect("golden").file;
            // A part and the rest: a row in each.
            volume.clone_range((golden, 0), (made, 0), 5 * CLUSTER).await.expect("clone");
            let (from, to) = ((golden, 5 * CLUSTER), (made, 5 * CLUSTER));
            volume.clone_range(from, to, 5 * CLUSTER).await.expect("clone");
        }
    }
    let docs = volume.create(volume.root(), "docs", directory).await.expect("docs");
    let notes = volume.create(docs, "notes", file()).await.expect("notes");
    let options =
        OpenOptions { stream: "more".into(), create_stream: true, ..OpenOptions::shared(Access::READ_WRITE) };
    let more = volume.open(notes, options).await.expect("stream");
    write(&more, 0, b"more", Durability::Durable).await;
    drop(more);
    let image = volume.create(docs, "image", file()).await.expect("image");
    write(&open(&volume, image).await, 0, &content(), Durability::Durable).await;
    volume.clone_tree(image, docs, "linked").await.expect("clone");
    let new = NewSnapshot {
        name: "s".into(),
        source: image,
        quiesce: false,
        maker: String::new(),
        path: String::new(),
    };
    volume.take_snapshot(new).await.expect("snapshot");
    volume.close().await.expect("close");
}

/// Changes the database of a closed volume behind everybody's back.
pub(super) fn damage(device: &Device, how: impl FnOnce(&WriteTransaction) + Send + 'static) {
    let device = Arc::clone(device);
    let changing = std::thread::spawn(move || {
        let mut block = IoBuf::new(4096);
        block = crate::backend::run(device.read(0, block)).expect("read");
        let superblock = Superblock::decode(&block).expect("superblock");
        let database = crate::database::open_database(device, &superblock).expect("database").database;
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
            for path in ["/luns/golden", "/luns/copy", "/docs/image", "/docs/linked"] {
                let lost = case.place == ["links"] && path.starts_with("/docs");
                if let Ok(id) = volume.resolve(path).await
                    && !lost
                {
                    let file = open(&volume, id).await;
                    assert!(read(&file, 0, content().len()).await == content(), "{what}: {path}");
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
            assert_eq!(look(&device, Repair::Apply).await, found);
            assert_eq!(look(&device, Repair::No).await, Vec::new());
            // So does an opening: the power may have gone while the copy was written.
            device.write(offset, junk.clone(), Durability::Durable).await.expect("write");
            let volume = Volume::open(Arc::clone(&device), environment()).await.expect("open");
            assert_eq!(volume.check().await.expect("check"), Vec::new());
            volume.close().await.expect("close");
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
fn what_a_newer_release_wrote_is_not_repaired() {
    on_shard(async {
        let device = prepared().await;
        damage(&device, |txn| {
            drop(txn.open_table(INODES.definition).expect("t").insert(3, [9u8, 9].as_slice()).expect("i"));
            txn.open_table(SHARES.definition).expect("table").retain(|_, _| false).expect("retain");
        });
        for repair in [Repair::No, Repair::Apply, Repair::No] {
            let found = look(&device, repair).await;
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].detail.contains("newer release") && found[0].repair.is_none(), "{found:?}");
        }
        // Its superblock alone, as in the middle of an upgrade.
        let device = prepared().await;
        let block = device.read(Superblock::OFFSETS[1], IoBuf::new(4096)).await.expect("read");
        let mut newer = block.to_vec();
        newer[16] = 2;
        let crc = byte_codec::crc32c(&newer[..4092]).to_le_bytes();
        newer[4092..].copy_from_slice(&crc);
        let newer = IoBuf::copy_from(&newer).freeze();
        device.write(Superblock::OFFSETS[1], newer, Durability::Durable).await.expect("write");
        for repair in [Repair::Apply, Repair::No] {
            let found = look(&device, repair).await;
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].detail.contains("newer release") && found[0].repair.is_none(), "{found:?}");
        }
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
    match rng.below(14) {
        8 => {
            let key = (file(rng), rng.below(3) as u32);
            let map = (if rng.one_in(2) { file(rng) } else { number(rng) }, rng.below(2) as u32);
            txn.open_table(MAPS.definition).expect("table").insert(key, map).expect("insert");
        }
        9 | 10 => {
            let key = (file(rng), rng.below(2) as u32, number(rng));
            let value = (file(rng), rng.below(2) as u32, number(rng));
            txn.open_table(LINKS.definition).expect("table").insert(key, value).expect("insert");
        }
        11 => {
            let key = (file(rng), rng.below(2) as u32, number(rng));
            txn.open_table(USES.definition)
                .expect("table")
                .insert(key, (number(rng), rng.below(4) as u32))
                .expect("insert");
        }
        12 => {
            let record = SnapshotRecord {
                root: 2 + rng.below(10),
                deleted: rng.one_in(2),
                name: "x".into(),
                ..SnapshotRecord::default()
            };
            let bytes = record.encode();
            let bytes = if rng.one_in(3) { &bytes[..5] } else { &bytes[..] };
            txn.open_table(SNAPSHOTS.definition)
                .expect("table")
                .insert(10 + rng.below(4), bytes)
                .expect("insert");
        }
        0 => {
            let key = (file(rng), rng.below(3) as u32, number(rng));
            extent(txn, key, (number(rng), number(rng), rng.below(3) as u8));
        }
        1 => {
            let row = (number(rng), rng.below(5) as u32);
            txn.open_table(SHARES.definition).expect("table").insert(number(rng), row).expect("insert");
        }
        2 => drop(txn.open_table(FREED.definition).expect("t").insert(number(rng), number(rng)).expect("i")),
        3 => drop(txn.open_table(ORPHANS.definition).expect("t").insert(file(rng), ()).expect("i")),
        4 => drop(txn.open_table(INODES.definition).expect("t").remove(file(rng)).expect("r")),
        5 => {
            let streams = (0..rng.below(4))
                .map(|_| StreamRecord { id: rng.below(4) as u32, name: "s".into(), size: number(rng) })
                .collect();
            let inode = Inode {
                frozen: rng.one_in(3),
                directory: rng.one_in(2),
                parent: file(rng),
                name: ["x", "", "luns", "a/b"][rng.below(4) as usize].into(),
                next_stream: number(rng) as u32,
                streams,
                others: (0..rng.below(4).saturating_sub(1))
                    .map(|_| OtherName {
                        parent: file(rng),
                        name: ["x", "", "luns"][rng.below(3) as usize].into(),
                    })
                    .collect(),
                ..Inode::default()
            };
            let mut table = txn.open_table(INODES.definition).expect("table");
            table.insert(file(rng), inode.encode().as_slice()).expect("insert");
        }
        6 => {
            let name = ["x", "", "luns", "lost+found", "A"][rng.below(5) as usize];
            let key = ["X", "", "LUNS", "LOST+FOUND", "y"][rng.below(5) as usize];
            put_entry(txn, file(rng), key, &entry(file(rng), rng.one_in(2), name));
        }
        7 => {
            let mut table = txn.open_table(ENTRIES.definition).expect("table");
            let first = table.iter().expect("iter").next().map(|row| {
                let row = row.expect("row");
                (row.0.value().0, row.0.value().1.to_owned())
            });
            if let Some((directory, name)) = first {
                table.remove((directory, name.as_str())).expect("remove");
            }
        }
        _ => drop(txn.open_table(COUNTERS.definition).expect("t").insert(NEXT_FILE, number(rng)).expect("i")),
    }
}

#[test]
fn whatever_the_tables_say_a_repair_makes_a_volume_of_it() {
    for seed in 0..60 {
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
