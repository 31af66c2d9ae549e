//! Volatile changes: seen at once, durable in order, and with what is durable after them. Volatile sizes: durable with their file.

use block_device::Durability;
use file_store::{
    Access, DirectoryCursor, FileKind, OpenOptions, Share, StateChange, StoreErrorKind as Kind,
};

use crate::check::{Probe, buffer, new};
use crate::{Outcome, Store};

/// Whichever way they are made, all operations see them, and opens count across both.
pub(crate) async fn seen(p: &Probe<'_>) -> Outcome {
    let store = p.store();
    let Some(relaxed) = store.volatile() else { return Ok(()) };
    let root = p.root();
    p.equal("the root", relaxed.root(), root)?;
    for (maker, other, name) in [(&store, &relaxed, "a"), (&relaxed, &store, "b")] {
        p.refused("looking for what is not there", other.lookup(root, name).await, Kind::NotFound)?;
        let file = p.done("create", maker.create(root, name, new(FileKind::File)).await)?;
        let again = other.create(root, name, new(FileKind::File)).await;
        p.refused("the name again", again, Kind::AlreadyExists)?;
        p.equal("who is there", p.done("lookup", other.lookup(root, name).await)?.file, file)?;
        let options = |share| OpenOptions { share, ..OpenOptions::shared(Access::READ_WRITE) };
        let open = p.done("open", maker.open(file, options(Share { delete: false, ..Share::ALL })).await)?;
        p.refused("removing what is kept", other.remove(root, name).await, Kind::SharingViolation)?;
        drop(open);
        let one = p.done("open", maker.open(file, options(Share::ALL)).await)?;
        let two = p.done("open", other.open(file, options(Share::ALL)).await)?;
        p.done("set_size", one.set_size(9).await)?;
        p.equal("the size over the other", two.size(), 9)?;
        p.done("write", two.write(9, buffer(b"tail"), Durability::Volatile).await)?;
        p.is("what both have", &one, b"\0\0\0\0\0\0\0\0\0tail").await?;
        p.equal("the size without an open", p.done("info", maker.info(file).await)?.size, 13)?;
        p.done("set_size", one.set_size(3).await)?;
        p.done("set_size", one.set_size(11).await)?;
        p.is("cut, and grown again", &two, &[0; 11]).await?;
        p.done("rename", other.rename((root, name), (root, "moved"), false).await)?;
        p.refused("the former name", maker.lookup(root, name).await, Kind::NotFound)?;
        p.done("remove", maker.remove(root, "moved").await)?;
        p.refused("the removed name", other.lookup(root, "moved").await, Kind::NotFound)?;
    }
    p.done("sync", store.sync().await)?;
    p.done("sync", relaxed.sync().await)
}

/// The names in the root, sorted.
async fn names(p: &Probe<'_>, store: &Store) -> Outcome<Vec<String>> {
    let page = store.read_directory(store.root(), DirectoryCursor::default(), 100).await;
    let mut names: Vec<String> = p.done("listing", page)?.entries.into_iter().map(|e| e.name).collect();
    names.sort();
    Ok(names)
}

/// After a crash, for subjects that can have one: what was durable is there with all before it, and the rest from its end on is not,
/// or is.
pub(crate) async fn crashes(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    let relaxed = store.volatile().unwrap_or_else(|| Store::clone(&store));
    let make = async |store: &Store, name: &str| {
        p.done("create", store.create(root, name, new(FileKind::File)).await)
    };
    let all = ["a", "b", "c", "d", "e", "f", "g"];
    // Up to how many of them are there after a crash now at least.
    let least = async |count: usize, made: usize| {
        let Some(left) = p.after_crash().await else { return Ok(()) };
        let there = names(p, &left).await?;
        let prefix = there.len() <= made && there.iter().zip(all).all(|(name, wanted)| name == wanted);
        p.ensure(&format!("{there:?} are the first of {all:?}"), prefix)?;
        p.ensure(&format!("{there:?} are {count} at least"), there.len() >= count)
    };
    make(&store, "a").await?;
    least(1, 1).await?;
    make(&relaxed, "b").await?;
    let c = make(&relaxed, "c").await?;
    least(1, 3).await?;
    // A durable write stands on the file.
    let open = p.done("open", relaxed.open(c, OpenOptions::shared(Access::READ_WRITE)).await)?;
    p.done("write", open.write(0, buffer(b"content"), Durability::Durable).await)?;
    least(3, 3).await?;
    // A durable change stands on all before it.
    make(&relaxed, "d").await?;
    let row = StateChange { table: "t".into(), key: vec![1], value: Some(vec![1]) };
    p.done("state", store.state_write(vec![row]).await)?;
    least(4, 4).await?;
    // So does a flush, of whichever file.
    make(&relaxed, "e").await?;
    p.done("flush", open.flush().await)?;
    least(5, 5).await?;
    make(&relaxed, "f").await?;
    p.done("sync", relaxed.sync().await)?;
    least(6, 6).await?;
    make(&relaxed, "g").await?;
    // And by itself.
    p.eventually("a volatile change is durable soon", || async {
        let Some(left) = p.after_crash().await else { return Ok(true) };
        Ok(names(p, &left).await?.len() == all.len())
    })
    .await?;
    let Some(left) = p.after_crash().await else { return Ok(()) };
    let open = p.done("open", left.open(c, OpenOptions::shared(Access::READ)).await)?;
    p.is("what was written durably", &open, b"content").await
}

/// After a crash: a size that nobody flushed may be missing, and one that its file's flush has covered may not, nor one that waits
/// for a while. What is there of a file is never longer than its data.
pub(crate) async fn sizes(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    let relaxed = store.volatile().unwrap_or_else(|| Store::clone(&store));
    let mut files = Vec::new();
    for name in ["written", "set", "other"] {
        let file = p.done("create", relaxed.create(root, name, new(FileKind::File)).await)?;
        let open = p.done("open", relaxed.open(file, OpenOptions::shared(Access::READ_WRITE)).await)?;
        files.push((name, file, open));
    }
    // What each holds after a crash now: all of it, or what there was before of those that `may_lack` it.
    let holds = async |all: [&[u8]; 3], may_lack: [Option<&[u8]>; 3]| {
        let Some(left) = p.after_crash().await else { return Ok(()) };
        for (((name, file, _), wanted), before) in files.iter().zip(all).zip(may_lack) {
            p.equal(name, p.done("lookup", left.lookup(left.root(), name).await)?.file, *file)?;
            let open = p.done("open", left.open(*file, OpenOptions::shared(Access::READ)).await)?;
            match before.filter(|before| before.len() as u64 == open.size()) {
                Some(before) => p.is(name, &open, before).await?,
                None => p.is(name, &open, wanted).await?,
            }
        }
        Ok(())
    };
    let [(_, _, written), (_, _, set), (_, _, other)] = &files[..] else { return Ok(()) };
    p.done("write", written.write(0, buffer(b"content"), Durability::Volatile).await)?;
    p.done("set_size", set.set_size(5).await)?;
    p.done("sync", relaxed.sync().await)?;
    holds([b"content", b"\0\0\0\0\0", b""], [Some(b""), Some(b""), None]).await?;
    // The flush of one is none of the others' sizes.
    p.done("flush", other.flush().await)?;
    holds([b"content", b"\0\0\0\0\0", b""], [Some(b""), Some(b""), None]).await?;
    p.done("flush", written.flush().await)?;
    p.done("flush", set.flush().await)?;
    holds([b"content", b"\0\0\0\0\0", b""], [None; 3]).await?;
    // A sync in between takes nothing from a flush that comes after, nor from a durable write.
    p.done("write", written.write(7, buffer(b" and more"), Durability::Volatile).await)?;
    p.done("set_size", set.set_size(9).await)?;
    p.done("sync", store.sync().await)?;
    p.done("flush", written.flush().await)?;
    p.done("write", set.write(0, buffer(b"x"), Durability::Durable).await)?;
    let grown: [&[u8]; 3] = [b"content and more", b"x\0\0\0\0\0\0\0\0", b""];
    holds(grown, [None, Some(b"x\0\0\0\0"), None]).await?;
    p.done("write", other.write(0, buffer(b"late"), Durability::Volatile).await)?;
    p.eventually("volatile sizes are durable soon", || async {
        let Some(left) = p.after_crash().await else { return Ok(true) };
        let mut all = true;
        for (_, file, open) in &files {
            all &= p.done("info", left.info(*file).await)?.size == open.size();
        }
        Ok(all)
    })
    .await?;
    holds([grown[0], grown[1], b"late"], [None; 3]).await
}
