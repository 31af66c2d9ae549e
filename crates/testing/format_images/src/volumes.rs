//! A volume in the middle of its life: names, streams, attributes, shared space, state of the layers above, snapshots and
//! clones, and a removed file that somebody still had open.

use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{Device, Durability, MemoryDisk};
use file_store::{
    Access, Attributes, FileId, FileKind, FileStore, InfoChange, NewFile, NewSnapshot, OpenFile, OpenOptions,
    StateChange,
};
use shard_runtime::{SeededEntropy, sleep};
use sim::SimClock;
use volume::{Environment, FormatOptions, Volume};
use volume_format::{BatchWriter, Head, LengthRecord, Superblock};

use crate::check::{BLOCK, buffer, content, same, same_bytes};
use crate::{Fallible, Image, ensure};

/// 8 MiB of it are for the metadata.
const SIZE: usize = 12 << 20;
const CLUSTER: u64 = volume_format::CLUSTER;
const LEN: u64 = 3 * CLUSTER;
const NAMED: &str = "Straße.vhdx";
/// Names that version 3 tells apart and those before did not.
const APART: [(&str, &str); 2] = [("straße", "STRASSE"), ("ﬁle", "FILE")];
const TIME: u64 = 1_700_000_000_123_456_789;

pub(crate) fn environment(seed: u64) -> Environment {
    let clock = Arc::new(SimClock::default());
    clock.begin();
    Environment { clock, entropy: Arc::new(SeededEntropy::new(seed)) }
}

fn new(kind: FileKind, security: &[u8]) -> NewFile {
    let attributes = if kind == FileKind::Directory { 0x10 } else { 0x20 };
    NewFile { kind, attributes: Attributes(attributes), security: security.to_vec() }
}

async fn open(volume: &Volume, file: FileId, stream: &str) -> Fallible<Arc<dyn OpenFile>> {
    let options = OpenOptions {
        stream: stream.into(),
        create_stream: !stream.is_empty(),
        ..OpenOptions::shared(Access::READ_WRITE)
    };
    Ok(volume.open(file, options).await?)
}

async fn write(file: &Arc<dyn OpenFile>, what: &str, round: u32, offset: u64, len: u64) -> Fallible {
    Ok(file.write(offset, buffer(what, round, offset, len), Durability::Durable).await?)
}

/// The image: two directories, a file with all there is, one that shares its space, one removed while it is open, and, from
/// version 2 on, two snapshots, a clone of each kind, and a snapshot on its way out; from version 3 on, names that differ where full upper case does not;
/// from version 4 on, changes that are in the metadata log only.
///
/// # Errors
/// When a step fails.
pub async fn make() -> Fallible<Image> {
    let device: Device = Arc::new(MemoryDisk::new(SIZE, 4096));
    let environment = environment(1);
    Volume::format(Arc::clone(&device), FormatOptions { name: "golden".into() }, environment.clone()).await?;
    let volume = Volume::open(Arc::clone(&device), environment).await?;
    let root = volume.root();
    let directory = volume.create(root, "Grüße", new(FileKind::Directory, b"of a directory")).await?;
    volume.create(directory, "empty", new(FileKind::Directory, b"")).await?;
    let file = volume.create(directory, "first name", new(FileKind::File, b"of a file")).await?;
    volume.rename((directory, "first name"), (directory, NAMED), false).await?;
    let main = open(&volume, file, "").await?;
    write(&main, "main", 1, 0, LEN).await?;
    write(&main, "main", 1, 16 * CLUSTER + 4096, 100).await?;
    let stream = open(&volume, file, "Zone").await?;
    write(&stream, "stream", 1, 0, 5000).await?;
    let rows = [(b"k1", b"value 1"), (b"k2", b"value 2")].map(|(key, value)| StateChange {
        table: "golden".into(),
        key: key.to_vec(),
        value: Some(value.to_vec()),
    });
    volume.state_write(rows.to_vec()).await?;
    let sharing = volume.create(root, "sharing", new(FileKind::File, b"")).await?;
    volume.clone_range((file, 0), (sharing, CLUSTER), 2 * CLUSTER).await?;
    let removed = volume.create(root, "removed", new(FileKind::File, b"")).await?;
    let kept = open(&volume, removed, "").await?;
    write(&kept, "removed", 1, 0, 2 * CLUSTER).await?;
    volume.remove(root, "removed").await?;
    if crate::Format::Volume.current() >= 2 {
        snapshots(&volume, (directory, file)).await?;
    }
    if crate::Format::Volume.current() >= 3 {
        for (name, beside) in APART {
            volume.create(directory, name, new(FileKind::File, b"")).await?;
            volume.create(directory, beside, new(FileKind::File, b"")).await?;
        }
    }
    // Overwritten after the snapshots, and where space is shared.
    write(&main, "main", 2, CLUSTER + 4096, 8192).await?;
    main.set_size(20 * CLUSTER + 1).await?;
    let change = InfoChange {
        attributes: Some(Attributes(0x2021)),
        created: Some(TIME),
        accessed: Some(TIME + 1),
        written: Some(TIME + 2),
        changed: Some(TIME + 3),
    };
    volume.set_info(file, change).await?;
    Image::take(&[("volume", &device)]).await
}

async fn snapshots(volume: &Volume, (directory, file): (FileId, FileId)) -> Fallible {
    let store = volume.snapshot_store().ok_or("there are no snapshots")?;
    let new = |name: &str, source: FileId, quiesce: bool| NewSnapshot {
        name: name.into(),
        source,
        quiesce,
        maker: "daily".into(),
        path: format!("/of/{name}"),
    };
    let tree = store.take_snapshot(new("of the tree", directory, true)).await?;
    store.take_snapshot(new("of the file", file, false)).await?;
    store.clone_tree(tree.root, volume.root(), "cloned tree").await?;
    let clone = store.clone_tree(file, volume.root(), "cloned file").await?;
    write(&open(volume, clone, "").await?, "clone", 1, 2 * CLUSTER, 4096).await?;
    let going = store.take_snapshot(new("going", volume.root(), true)).await?;
    store.delete_snapshot(going.id).await?;
    Ok(())
}

/// What the file held at first, of the size that it had then.
fn first() -> Vec<u8> {
    let mut bytes = vec![0; (16 * CLUSTER + 4096 + 100) as usize];
    bytes[..LEN as usize].copy_from_slice(&content("main", 1, 0, LEN));
    let at = 16 * CLUSTER + 4096;
    bytes[at as usize..].copy_from_slice(&content("main", 1, at, 100));
    bytes
}

fn with(mut bytes: Vec<u8>, what: &str, round: u32, offset: u64, len: u64) -> Vec<u8> {
    bytes[offset as usize..][..len as usize].copy_from_slice(&content(what, round, offset, len));
    bytes
}

async fn same_file(volume: &Volume, what: &str, file: FileId, stream: &str, expected: &[u8]) -> Fallible {
    let options = OpenOptions { stream: stream.into(), ..OpenOptions::shared(Access::READ) };
    let open = volume.open(file, options).await?;
    let read = open.read(0, IoBuf::new(open.size() as usize)).await?;
    same_bytes(what, &read, expected)
}

async fn names(volume: &Volume, directory: FileId) -> Fallible<Vec<String>> {
    let page = volume.read_directory(directory, Default::default(), 100).await?;
    Ok(page.entries.into_iter().map(|entry| entry.name).collect())
}

/// Everything that the image holds; `extra` when the file was written to since.
async fn compare(volume: &Volume, version: u32, extra: bool) -> Fallible {
    let root = volume.root();
    let mut expected = vec!["Grüße", "sharing"];
    expected
        .splice(0..0, if version >= 2 { &["cloned file", "cloned tree"][..] } else { &[] }.iter().copied());
    let mut found = names(volume, root).await?;
    found.sort_by_key(|name| name.to_lowercase());
    expected.sort_by_key(|name| name.to_lowercase());
    same("the names in the root", &found, &expected.iter().map(|name| (*name).to_owned()).collect())?;
    let directory = volume.resolve("/GRÜßE").await?;
    ensure(volume.resolve("/GRÜSSE").await.is_err(), || "another name leads to the directory".into())?;
    let file = volume.resolve(&format!("/grüße/{NAMED}")).await?;
    same("a security descriptor", &volume.security(directory).await?, &b"of a directory".to_vec())?;
    same("a security descriptor", &volume.security(file).await?, &b"of a file".to_vec())?;
    let mut main = with(first(), "main", 2, CLUSTER + 4096, 8192);
    main.resize((20 * CLUSTER + 1) as usize, 0);
    if extra {
        main = with(main, "extra", 9, 0, 2 * CLUSTER);
    } else {
        let info = volume.info(file).await?;
        let times = [info.times.created, info.times.accessed, info.times.written, info.times.changed];
        same("its times", &times, &[TIME, TIME + 1, TIME + 2, TIME + 3])?;
        same("its attributes", &info.attributes.0, &0x2021)?;
    }
    same_file(volume, "the file", file, "", &main).await?;
    same_file(volume, "its stream", file, "Zone", &content("stream", 1, 0, 5000)).await?;
    let mut shared = vec![0; CLUSTER as usize];
    shared.extend(content("main", 1, 0, 2 * CLUSTER));
    same_file(volume, "what shares space", volume.resolve("/sharing").await?, "", &shared).await?;
    same("a row", &volume.state_get("golden", b"k2").await?, &Some(b"value 2".to_vec()))?;
    for (name, beside) in APART.iter().filter(|_| version >= 3) {
        let found =
            [volume.lookup(directory, name).await?.name, volume.lookup(directory, beside).await?.name];
        same("names that Windows tells apart", &found, &[(*name).to_owned(), (*beside).to_owned()])?;
    }
    if version >= 2 { compare_snapshots(volume).await } else { Ok(()) }
}

async fn compare_snapshots(volume: &Volume) -> Fallible {
    let store = volume.snapshot_store().ok_or("there are no snapshots")?;
    let found = store.snapshots().await?;
    let told: Vec<(&str, &str, &str, bool, FileKind)> = found
        .iter()
        .map(|s| (s.name.as_str(), s.maker.as_str(), s.path.as_str(), s.quiesced, s.kind))
        .collect();
    let expected = vec![
        ("of the tree", "daily", "/of/of the tree", true, FileKind::Directory),
        ("of the file", "daily", "/of/of the file", false, FileKind::File),
    ];
    same("the snapshots", &told, &expected)?;
    let mut roots = Vec::new();
    roots.push(("a snapshot of the tree", volume.lookup(found[0].root, NAMED).await?.file, first()));
    roots.push(("a snapshot of the file", found[1].root, first()));
    let tree = volume.resolve(&format!("/cloned tree/{NAMED}")).await?;
    roots.push(("a clone of the snapshot", tree, first()));
    let clone = with(first(), "clone", 1, 2 * CLUSTER, 4096);
    roots.push(("a clone of the file", volume.resolve("/cloned file").await?, clone));
    for (what, file, bytes) in roots {
        same_file(volume, what, file, "", &bytes).await?;
        same_file(volume, what, file, "zone", &content("stream", 1, 0, 5000)).await?;
        same(what, &volume.security(file).await?, &b"of a file".to_vec())?;
    }
    Ok(())
}

async fn no_findings(volume: &Volume, when: &str) -> Fallible {
    let findings = volume.check_deep().await?;
    ensure(findings.is_empty(), || format!("the check finds {when}: {findings:?}"))
}

/// Opens the volume, compares everything, has it checked, writes to it, and opens it again; in the end all is removed, and
/// all space is free.
///
/// # Errors
/// What is not as it was.
pub async fn check(version: u32, image: &Image) -> Fallible {
    let devices = image.devices().await?;
    let device = devices.first().ok_or("an image of a volume has one disk")?;
    let environment = environment(2);
    let volume = Volume::open(Arc::clone(device), environment.clone()).await?;
    compare(&volume, version, false).await?;
    no_findings(&volume, "in what an earlier release left").await?;
    let file = volume.resolve(&format!("/grüße/{NAMED}")).await?;
    let main = open(&volume, file, "").await?;
    write(&main, "extra", 9, 0, 2 * CLUSTER).await?;
    drop(main);
    let snapshots = volume.snapshot_store().ok_or("an old volume got no snapshots")?;
    let more = NewSnapshot {
        name: "more".into(),
        source: volume.root(),
        quiesce: true,
        maker: String::new(),
        path: "/".into(),
    };
    let more = snapshots.take_snapshot(more).await?;
    snapshots.delete_snapshot(more.id).await?;
    volume.close().await?;
    drop(volume);
    let volume = Volume::open(Arc::clone(device), environment).await?;
    compare(&volume, version, true).await?;
    no_findings(&volume, "after it was written to").await?;
    remove_all(&volume).await?;
    no_findings(&volume, "when nothing is left").await?;
    volume.close().await?;
    Ok(())
}

async fn remove_all(volume: &Volume) -> Fallible {
    let store = volume.snapshot_store().ok_or("there are no snapshots")?;
    for snapshot in store.snapshots().await? {
        store.delete_snapshot(snapshot.id).await?;
    }
    let mut left = vec![(volume.root(), String::new(), volume.root())];
    while let Some((within, name, directory)) = left.pop() {
        let mut empty = true;
        for entry in volume.read_directory(directory, Default::default(), 100).await?.entries {
            if entry.kind == FileKind::Directory {
                if empty && !name.is_empty() {
                    left.push((within, name.clone(), directory));
                } else if empty {
                    left.push((within, String::new(), directory));
                }
                empty = false;
                left.push((directory, entry.name, entry.file));
            } else {
                volume.remove(directory, &entry.name).await?;
            }
        }
        if empty && !name.is_empty() {
            volume.remove(within, &name).await?;
        }
    }
    for _ in 0..1000 {
        if volume.usage().await?.used == 0 {
            return Ok(());
        }
        sleep(Duration::from_millis(100)).await;
    }
    Err(format!("space is not given back: {:?}", volume.usage().await?).into())
}

/// Superblocks, length records and batches of the metadata log, read and written anew; how many.
///
/// # Errors
/// Where other bytes come out.
pub fn rewrite(image: &Image) -> Fallible<usize> {
    let (_, bytes) = image.disks.first().ok_or("an image of a volume has one disk")?;
    let block = |offset: u64| &bytes[offset as usize..][..BLOCK as usize];
    let mut lengths = 0;
    for offset in Superblock::OFFSETS {
        same_bytes("a superblock", &Superblock::decode(block(offset))?.encode(), block(offset))?;
        let start = Superblock::decode(block(offset))?.length_start;
        for at in [start, start + BLOCK] {
            if let Ok(length) = LengthRecord::decode(block(at)) {
                same_bytes("a length record", &length.encode(), block(at))?;
                lengths += 1;
            }
        }
    }
    ensure(lengths > 0, || "there is no length record".into())?;
    let (start, size) = Superblock::decode(block(0))?.metadata_log().ok_or("there is no metadata log")?;
    let mut batches = 0;
    for at in (start..start + size).step_by(BLOCK as usize) {
        let written = &bytes[at as usize..(start + size) as usize];
        let Ok(batch) = Head::decode(written).and_then(|head| head.verify(written)) else { continue };
        let mut again = BatchWriter::new(size as usize);
        for change in batch.changes() {
            again.copy(&change?);
        }
        let sealed = again.seal(&batch.id).ok_or("a batch is too large")?;
        same_bytes("a batch of the metadata log", sealed, &written[..sealed.len()])?;
        batches += 1;
    }
    ensure(batches > 0, || "there is no batch in the metadata log".into())?;
    Ok(2 + lengths + batches)
}
