//! Snapshots, clones of trees, and what differs; of stores that have them.

use aligned_buffer::IoBuf;
use block_device::Durability;
use file_store::{
    Access, Difference, FileId, FileKind, InfoChange, NewSnapshot, OpenOptions, Snapshot, SnapshotStore,
    StoreErrorKind as Kind,
};
use futures_util::future::join_all;

use crate::Outcome;
use crate::check::{Probe, bytes};
use crate::sides::tree;

fn new(name: &str, source: FileId) -> NewSnapshot {
    NewSnapshot { name: name.into(), source, quiesce: false, maker: String::new(), path: String::new() }
}

async fn take(p: &Probe<'_>, store: &dyn SnapshotStore, name: &str, source: FileId) -> Outcome<Snapshot> {
    p.done(&format!("snapshot {name}"), store.take_snapshot(new(name, source)).await)
}

pub(crate) async fn frozen(p: &Probe<'_>) -> Outcome {
    let store = p.store();
    let Some(snapshots) = store.snapshot_store() else { return Ok(()) };
    let (unit, root) = (p.unit(), p.root());
    let file = p.opened("f").await?;
    let directory = p.make(root, "d", FileKind::Directory).await?;
    let inner = p.make(directory, "inner", FileKind::File).await?;
    let mut content = bytes(0, 9 * unit + 77, 1);
    p.write(&file, 0, &content).await?;
    let mut wanted = Vec::new();
    for number in 0..6u64 {
        let taken = take(p, snapshots, &format!("s{number}"), root).await?;
        let before = p.done("look", tree(&store, taken.root).await)?;
        let live = p.done("look", tree(&store, root).await)?;
        p.ensure("a snapshot holds what there is", before == live)?;
        wanted.push((taken, before));
        // Everything goes on changing: in place, in holes, in size, in names.
        let at = number * 2 * unit + 1000;
        p.write(&file, at, &bytes(at, 5000, 10 + number)).await?;
        p.done("punch", file.punch_hole(number * unit, unit).await)?;
        p.done("size", file.set_size(9 * unit - number * 100).await)?;
        let open = p.open(inner).await?;
        p.write(&open, number * 3000, &bytes(0, 4000, number)).await?;
        p.make(directory, &format!("new{number}"), FileKind::File).await?;
        let change = InfoChange { written: Some(number), ..InfoChange::default() };
        p.done("times", store.set_info(inner, change).await)?;
        content.truncate(10);
    }
    drop(file);
    p.done("remove", store.remove(root, "f").await)?;
    for (taken, before) in &wanted {
        let now = p.done("look", tree(&store, taken.root).await)?;
        p.ensure("a snapshot stays as it is", now == *before)?;
    }
    drop(store);
    p.reopen().await?;
    let store = p.store();
    let Some(snapshots) = store.snapshot_store() else { return Ok(()) };
    let listed = p.done("list", snapshots.snapshots().await)?;
    if listed.iter().ne(wanted.iter().map(|(taken, _)| taken)) {
        return p.fail("the list of snapshots does not outlive the store");
    }
    // Every second one goes; the others do not notice.
    for (taken, _) in wanted.iter().step_by(2) {
        p.done("delete", snapshots.delete_snapshot(taken.id).await)?;
        p.refused("delete twice", snapshots.delete_snapshot(taken.id).await, Kind::NotFound)?;
    }
    p.pause().await;
    p.equal("snapshots", p.done("list", snapshots.snapshots().await)?.len(), 3)?;
    for (taken, before) in wanted.iter().skip(1).step_by(2) {
        let now = p.done("look", tree(&store, taken.root).await)?;
        p.ensure("a snapshot stays as it is when others go", now == *before)?;
    }
    Ok(())
}

pub(crate) async fn refused(p: &Probe<'_>) -> Outcome {
    let store = p.store();
    let Some(snapshots) = store.snapshot_store() else { return Ok(()) };
    let root = p.root();
    let directory = p.make(root, "d", FileKind::Directory).await?;
    let file = p.make(directory, "f", FileKind::File).await?;
    let open = p.open(file).await?;
    p.write(&open, 0, b"data").await?;
    let taken = take(p, snapshots, "Taken", directory).await?;
    for (name, kind) in [("taken", Kind::AlreadyExists), ("a/b", Kind::InvalidName), ("", Kind::InvalidName)]
    {
        p.refused(name, snapshots.take_snapshot(new(name, root)).await, kind)?;
    }
    p.refused("of nothing", snapshots.take_snapshot(new("x", FileId(1 << 40))).await, Kind::NotFound)?;
    let frozen = p.done("look up", store.lookup(taken.root, "F").await)?.file;
    p.refused("of a snapshot", snapshots.take_snapshot(new("x", frozen)).await, Kind::InvalidArgument)?;
    p.equal("its root's parent", p.done("info", store.info(taken.root).await)?.parent, taken.root)?;
    let read_only = Kind::ReadOnly;
    let made = store.create(taken.root, "x", crate::check::new(FileKind::File)).await;
    p.refused("create", made, read_only)?;
    p.refused("remove", store.remove(taken.root, "f").await, read_only)?;
    p.refused("rename from", store.rename((taken.root, "f"), (root, "x"), false).await, read_only)?;
    p.refused("rename to", store.rename((directory, "f"), (taken.root, "x"), false).await, read_only)?;
    p.refused("set info", store.set_info(frozen, InfoChange::default()).await, read_only)?;
    p.refused("set security", store.set_security(frozen, vec![1]).await, read_only)?;
    let write = store.open(frozen, OpenOptions::shared(Access::READ_WRITE)).await;
    p.refused("open for writing", write.map(|_| ()), read_only)?;
    let stream = OpenOptions { stream: "s".into(), create_stream: true, ..OpenOptions::shared(Access::READ) };
    p.refused("a new stream", store.open(frozen, stream).await.map(|_| ()), read_only)?;
    p.refused("clone into", store.clone_range((file, 0), (frozen, 0), 4).await, read_only)?;
    p.refused("clone a tree into", snapshots.clone_tree(file, taken.root, "x").await, read_only)?;
    let cloned = snapshots.clone_tree(directory, directory, "x").await;
    p.refused("clone into itself", cloned, Kind::InvalidArgument)?;
    p.refused("clone over", snapshots.clone_tree(file, directory, "F").await, Kind::AlreadyExists)?;
    p.refused("clone to a file", snapshots.clone_tree(file, file, "x").await, Kind::NotADirectory)?;
    let unknown = file_store::SnapshotId(1 << 40);
    p.refused("delete nothing", snapshots.delete_snapshot(unknown).await, Kind::NotFound)?;
    // Who reads on after the snapshot was deleted reads what there was.
    let options = OpenOptions::shared(Access::READ);
    let reader = p.done("open for reading", store.open(frozen, options).await)?;
    p.done("delete", snapshots.delete_snapshot(taken.id).await)?;
    p.pause().await;
    p.is("a file of a deleted snapshot", &reader, b"data").await
}

pub(crate) async fn trees(p: &Probe<'_>) -> Outcome {
    let store = p.store();
    let Some(snapshots) = store.snapshot_store() else { return Ok(()) };
    let (unit, root) = (p.unit(), p.root());
    let top = p.make(root, "top", FileKind::Directory).await?;
    let below = p.make(top, "below", FileKind::Directory).await?;
    for number in 0..4u64 {
        let file = p.make(below, &format!("f{number}"), FileKind::File).await?;
        let open = p.open(file).await?;
        p.write(&open, number * unit, &bytes(0, 2 * unit + 5, number)).await?;
    }
    p.done("security", store.set_security(top, vec![5; 60]).await)?;
    let wanted = p.done("look", tree(&store, top).await)?;
    // A clone of a clone of a clone, by turns of what lives and of snapshots.
    let mut last = top;
    for number in 0..12u64 {
        let name = format!("c{number}");
        let from = match number % 2 {
            0 => last,
            _ => take(p, snapshots, &name, last).await?.root,
        };
        last = p.done("clone", snapshots.clone_tree(from, root, &name).await)?;
        p.ensure("a clone is as its source", p.done("look", tree(&store, last).await)? == wanted)?;
        let info = (p.done("info", store.info(from).await)?, p.done("info", store.info(last).await)?);
        p.equal("its times", (info.0.times, info.0.attributes), (info.1.times, info.1.attributes))?;
    }
    let entry = p.done("look up", store.lookup(last, "below").await)?;
    let file = p.done("look up", store.lookup(entry.file, "f0").await)?.file;
    let open = p.open(file).await?;
    p.write(&open, 100, b"changed").await?;
    drop(open);
    p.ensure("its source stays", p.done("look", tree(&store, top).await)? == wanted)?;
    p.ensure("the clone changes", p.done("look", tree(&store, last).await)? != wanted)?;
    drop(store);
    p.reopen().await?;
    let store = p.store();
    p.ensure("its source stays", p.done("look", tree(&store, top).await)? == wanted)
}

pub(crate) async fn differences(p: &Probe<'_>) -> Outcome {
    let store = p.store();
    let Some(snapshots) = store.snapshot_store() else { return Ok(()) };
    let unit = p.unit();
    let file = p.opened("f").await?;
    let mut content = bytes(0, 20 * unit + 100, 1);
    p.write(&file, 0, &content).await?;
    let before = take(p, snapshots, "before", file.file()).await?;
    let none = snapshots.differences(before.root, file.file(), "", 0, 100).await;
    p.equal("nothing has changed", p.done("differences", none)?, Vec::new())?;
    p.write(&file, 3 * unit + 5, b"x").await?;
    p.write(&file, 7 * unit - 1, b"yz").await?;
    p.done("punch", file.punch_hole(10 * unit, 2 * unit).await)?;
    p.write(&file, 20 * unit + 100, &bytes(0, 2 * unit, 9)).await?;
    let size = file.size();
    let differ = async |from: u64, limit: usize| {
        p.done("differences", snapshots.differences(before.root, file.file(), "", from, limit).await)
    };
    let found = differ(0, 100).await?;
    let range = |offset: u64, end: u64, hole: bool| Difference { offset, len: end - offset, hole };
    let least = [(3 * unit + 5, 1), (7 * unit - 1, 2), (10 * unit, 2 * unit), (20 * unit + 100, 2 * unit)];
    for (offset, len) in least {
        let covered = |at: u64| found.iter().any(|d| d.offset <= at && at < d.offset + d.len);
        p.ensure("what was written differs", covered(offset) && covered(offset + len - 1))?;
    }
    p.ensure("a hole is told", found.contains(&range(10 * unit, 12 * unit, true)))?;
    let total: u64 = found.iter().map(|d| d.len).sum();
    p.ensure("not everything differs", total <= 10 * unit)?;
    p.ensure("none lies beyond the end", found.iter().all(|d| d.offset + d.len <= size))?;
    let (first, rest) = (differ(0, 1).await?, differ(found[1].offset, 100).await?);
    p.ensure("differences resume", first[..] == found[..1] && rest[..] == found[1..])?;
    p.refused(
        "none",
        snapshots.differences(before.root, file.file(), "", 0, 0).await,
        Kind::InvalidArgument,
    )?;
    // Put into a clone of the base, they make it the target.
    let copy = p.done("clone", snapshots.clone_tree(before.root, p.root(), "copy").await)?;
    let copy = p.open(copy).await?;
    p.done("size", copy.set_size(size).await)?;
    for Difference { offset, len, hole } in found {
        if hole {
            p.done("zero", copy.zero_range(offset, len, Durability::Durable).await)?;
        } else {
            let data = p.done("read", file.read(offset, IoBuf::new(len as usize)).await)?;
            p.write(&copy, offset, &data).await?;
        }
    }
    content.resize(size as usize, 0);
    let all = p.done("read", file.read(0, IoBuf::new(size as usize)).await)?;
    p.is("base and differences", &copy, &all).await?;
    // The other way, cut.
    p.done("cut", file.set_size(5 * unit + 7).await)?;
    let cut = p.done("differences", snapshots.differences(before.root, file.file(), "", 0, 100).await)?;
    p.ensure("none lies beyond the end", cut.iter().all(|d| d.offset + d.len <= 5 * unit + 7))
}

pub(crate) async fn space(p: &Probe<'_>) -> Outcome {
    let store = p.store();
    let Some(snapshots) = store.snapshot_store() else { return Ok(()) };
    let (unit, root) = (p.unit(), p.root());
    let empty = p.done("usage", store.usage().await)?;
    let directory = p.make(root, "d", FileKind::Directory).await?;
    let file = p.make(directory, "f", FileKind::File).await?;
    let open = p.open(file).await?;
    p.write(&open, 0, &bytes(0, 20 * unit, 1)).await?;
    let use_of = async |file: FileId| p.done("space", snapshots.space(file).await);
    let alone = use_of(directory).await?;
    p.equal("files", alone.files, 2)?;
    p.equal(
        "all of it is unique",
        (alone.logical, alone.unique, alone.shared),
        (20 * unit, alone.allocated, 0),
    )?;
    let written = p.done("usage", store.usage().await)?;
    let taken = take(p, snapshots, "s", directory).await?;
    let usage = p.done("usage", store.usage().await)?;
    p.equal("a snapshot takes no space", usage.used, written.used)?;
    p.equal("but refers to it", usage.referenced, written.referenced + alone.allocated)?;
    for file in [directory, taken.root] {
        let both = use_of(file).await?;
        p.equal("all of it is shared", (both.shared, both.unique), (alone.allocated, 0))?;
    }
    p.write(&open, 0, &bytes(0, unit, 2)).await?;
    for file in [directory, taken.root] {
        let both = use_of(file).await?;
        p.ensure("what was written is unique", both.unique > 0 && both.unique <= 16 * unit)?;
        p.equal("the parts make the whole", both.shared + both.unique, both.allocated)?;
    }
    drop(open);
    let copy = p.done("clone", snapshots.clone_tree(taken.root, root, "copy").await)?;
    p.equal("a clone has it all", use_of(copy).await?.allocated, alone.allocated)?;
    p.done("delete", snapshots.delete_snapshot(taken.id).await)?;
    for (directory, name) in [(directory, "f"), (copy, "f"), (root, "d"), (root, "copy")] {
        p.done("remove", store.remove(directory, name).await)?;
    }
    for _ in 0..500 {
        let now = p.done("usage", store.usage().await)?;
        if (now.used, now.referenced) == (empty.used, empty.referenced) {
            return Ok(());
        }
        p.pause().await;
    }
    p.fail("space of deleted snapshots and clones does not come back")
}

/// Writers put the same number into two places of two files, one after the other: at one point in time, the second
/// place is never ahead.
pub(crate) async fn together(p: &Probe<'_>) -> Outcome {
    let store = p.store();
    let Some(snapshots) = store.snapshot_store() else { return Ok(()) };
    let unit = p.unit();
    let directory = p.make(p.root(), "d", FileKind::Directory).await?;
    let (a, b) =
        (p.make(directory, "a", FileKind::File).await?, p.make(directory, "b", FileKind::File).await?);
    let (a, b) = (p.open(a).await?, p.open(b).await?);
    let write = async {
        for number in 1..60u64 {
            for file in [&a, &b] {
                for place in 0..4 {
                    p.write(file, place * 3 * unit, &number.to_le_bytes()).await?;
                }
            }
        }
        Ok(())
    };
    let look = async {
        for number in 0..12 {
            p.pause().await;
            let taken = take(p, snapshots, &format!("s{number}"), directory).await?;
            let mut last = u64::MAX;
            for name in ["a", "b"] {
                let entry = p.done("look up", store.lookup(taken.root, name).await)?;
                let open = p.done("open", store.open(entry.file, OpenOptions::shared(Access::READ)).await)?;
                for place in 0..4 {
                    let read = p.done("read", open.read(place * 3 * unit, IoBuf::new(8)).await)?;
                    let mut value = [0; 8];
                    value[..read.len()].copy_from_slice(&read);
                    let value = u64::from_le_bytes(value);
                    let steps = if last == u64::MAX { 0 } else { last - value.min(last) };
                    p.ensure("a snapshot is of one moment", value <= last && steps <= 1)?;
                    last = value;
                }
            }
            let before = p.done("look", tree(&store, taken.root).await)?;
            p.pause().await;
            p.ensure("it stays", p.done("look", tree(&store, taken.root).await)? == before)?;
        }
        Ok(())
    };
    let both: Vec<std::pin::Pin<Box<dyn Future<Output = Outcome> + '_>>> =
        vec![Box::pin(write), Box::pin(look)];
    join_all(both).await.into_iter().collect()
}
