//! Several names of one file.

use aligned_buffer::IoBuf;
use block_device::Durability;
use file_store::{
    Access, FileId, FileKind, NAMES_MAX, NewSnapshot, OpenOptions, Share, StoreErrorKind as Kind,
};

use crate::check::{Probe, buffer, bytes};
use crate::{Outcome, Store};

/// The names of a file are these, in this order, and everything else that tells of them agrees.
async fn named(p: &Probe<'_>, store: &Store, file: FileId, wanted: &[(FileId, &str)]) -> Outcome {
    let found = p.done("names", store.names(file).await)?;
    let found: Vec<(FileId, &str)> = found.iter().map(|(parent, name)| (*parent, name.as_str())).collect();
    p.equal("the names", found, wanted.to_vec())?;
    let info = p.done("info", store.info(file).await)?;
    p.equal("the number of names", info.names as usize, wanted.len())?;
    p.equal("the parent", Some(info.parent), wanted.first().map(|(parent, _)| *parent))?;
    for (parent, name) in wanted {
        let entry = p.done("lookup", store.lookup(*parent, name).await)?;
        p.equal("an entry", (entry.file, entry.name.as_str(), entry.kind), (file, *name, FileKind::File))?;
    }
    Ok(())
}

pub(crate) async fn alike(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    let dir = p.make(root, "d", FileKind::Directory).await?;
    let file = p.file("a").await?;
    p.equal("no names of the root", p.done("names", store.names(root).await)?.len(), 0)?;
    named(p, &store, file, &[(root, "a")]).await?;
    p.done("link", store.link(file, (dir, "B"), false).await)?;
    p.done("link", store.link(file, (root, "c"), false).await)?;
    named(p, &store, file, &[(root, "a"), (dir, "B"), (root, "c")]).await?;
    let open = p.open(file).await?;
    p.write(&open, 0, b"one for all").await?;
    p.refused("a directory with a name in it", store.remove(root, "d").await, Kind::NotEmpty)?;
    // Each is removed by itself, also the first, and while the file is open.
    p.done("removal of the first", store.remove(root, "A").await)?;
    named(p, &store, file, &[(dir, "B"), (root, "c")]).await?;
    p.is("an open goes on", &open, b"one for all").await?;
    p.done("another open", store.open(file, OpenOptions::shared(Access::READ)).await).map(drop)?;
    p.done("move of one", store.rename((dir, "b"), (root, "e"), false).await)?;
    named(p, &store, file, &[(root, "e"), (root, "c")]).await?;
    p.done("removal of an emptied directory", store.remove(root, "d").await)?;
    p.done("removal of another", store.remove(root, "C").await)?;
    named(p, &store, file, &[(root, "e")]).await?;
    p.done("removal of the last", store.remove(root, "e").await)?;
    p.is("the open goes on", &open, b"one for all").await?;
    p.equal("the names of what is gone", p.done("names", store.names(file).await)?.len(), 0)?;
    p.equal("their number", p.done("info", store.info(file).await)?.names, 0)?;
    p.refused("a link to what is gone", store.link(file, (root, "again"), false).await, Kind::NotFound)?;
    drop(open);
    p.eventually("the file goes with its last name and open", || async {
        Ok(store.info(file).await.is_err_and(|error| error.kind() == Kind::NotFound))
    })
    .await
}

pub(crate) async fn refused(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    let dir = p.make(root, "d", FileKind::Directory).await?;
    let (file, other) = (p.file("f").await?, p.file("g").await?);
    for replace in [false, true] {
        let link = async |file, to| store.link(file, to, replace).await;
        p.refused("a directory's", link(dir, (root, "x")).await, Kind::IsADirectory)?;
        p.refused("in place of a directory", link(file, (root, "D")).await, Kind::AlreadyExists)?;
        p.refused("in a file", link(file, (other, "x")).await, Kind::NotADirectory)?;
        p.refused("in what is not there", link(file, (FileId(u64::MAX), "x")).await, Kind::NotFound)?;
        p.refused("of what is not there", link(FileId(u64::MAX), (root, "x")).await, Kind::NotFound)?;
        p.refused("a name that cannot be", link(file, (root, "a/b")).await, Kind::InvalidName)?;
    }
    p.refused("a taken name", store.link(file, (root, "G"), false).await, Kind::AlreadyExists)?;
    p.refused("its own name", store.link(file, (root, "F"), false).await, Kind::AlreadyExists)?;
    for name in 1..NAMES_MAX {
        p.done("link", store.link(file, (dir, &format!("n{name}")), false).await)?;
    }
    p.refused("one too many", store.link(file, (dir, "more"), false).await, Kind::TooManyNames)?;
    p.refused("also in place", store.link(file, (root, "g"), true).await, Kind::TooManyNames)?;
    p.done("its own in another case", store.link(file, (dir, "N7"), true).await)?;
    let names = p.done("names", store.names(file).await)?;
    p.equal("how many", names.len(), NAMES_MAX)?;
    p.ensure("the case is the new one", names.iter().any(|(_, name)| name == "N7"))?;
    p.done("remove", store.remove(dir, "n1000").await)?;
    p.done("now there is room", store.link(file, (root, "g"), true).await)?;
    p.refused("a directory with names", store.remove(root, "d").await, Kind::NotEmpty)
}

pub(crate) async fn replaces(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    let (one, two) = (p.file("one").await?, p.file("two").await?);
    p.done("link", store.link(two, (root, "two again"), false).await)?;
    // What is replaced keeps its other name.
    p.done("link in place", store.link(one, (root, "TWO"), true).await)?;
    named(p, &store, one, &[(root, "one"), (root, "TWO")]).await?;
    named(p, &store, two, &[(root, "two again")]).await?;
    let strict =
        OpenOptions { share: Share { delete: false, ..Share::ALL }, ..OpenOptions::shared(Access::READ) };
    let open = p.done("open", store.open(two, strict).await)?;
    let held = store.link(one, (root, "two again"), true).await;
    p.refused("while an open does not share deletion", held, Kind::SharingViolation)?;
    drop(open);
    let open = p.open(two).await?;
    p.write(&open, 0, b"still read").await?;
    p.done("the last name of an open file", store.link(one, (root, "two again"), true).await)?;
    p.is("which goes on", &open, b"still read").await?;
    drop(open);
    // A name onto another one of the same file.
    named(p, &store, one, &[(root, "one"), (root, "TWO"), (root, "two again")]).await?;
    let onto = store.rename((root, "two"), (root, "ONE"), false).await;
    p.refused("onto its own name", onto, Kind::AlreadyExists)?;
    p.done("with replace", store.rename((root, "two"), (root, "ONE"), true).await)?;
    named(p, &store, one, &[(root, "ONE"), (root, "two again")]).await?;
    p.refused("the name that moved", store.lookup(root, "two").await, Kind::NotFound)?;
    p.done("rename in place", store.rename((root, "one"), (root, "two again"), true).await)?;
    named(p, &store, one, &[(root, "two again")]).await?;
    p.done("case", store.rename((root, "two again"), (root, "Two Again"), false).await)?;
    named(p, &store, one, &[(root, "Two Again")]).await
}

pub(crate) async fn kept(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    let dir = p.make(root, "d", FileKind::Directory).await?;
    let file = p.make(dir, "a", FileKind::File).await?;
    p.done("link", store.link(file, (root, "b"), false).await)?;
    // What only memory knows yet of an open that is closed stays when another name goes.
    let open = p.open(file).await?;
    let content = bytes(0, p.unit() + 7, 3);
    p.done("write", open.write(0, buffer(&content), Durability::Volatile).await)?;
    drop(open);
    p.done("remove", store.remove(dir, "a").await)?;
    p.equal("the size", p.done("info", store.info(file).await)?.size, p.unit() + 7)?;
    p.done("link", store.link(file, (dir, "c"), false).await)?;
    let open = p.open(file).await?;
    p.is("all of it", &open, &content).await?;
    drop((open, store));
    p.reopen().await?;
    let store = p.store();
    named(p, &store, file, &[(root, "b"), (dir, "c")]).await?;
    p.is("after reopening", &p.open(file).await?, &content).await?;
    p.done("remove", store.remove(root, "b").await)?;
    drop(store);
    p.reopen().await?;
    named(p, &p.store(), file, &[(dir, "c")]).await
}

pub(crate) async fn copied(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    let Some(snapshots) = store.snapshot_store() else { return Ok(()) };
    let tree = p.make(root, "tree", FileKind::Directory).await?;
    let deep = p.make(tree, "deep", FileKind::Directory).await?;
    let file = p.make(root, "outside", FileKind::File).await?;
    // Before and behind the directory that has another one.
    for (directory, name) in [(deep, "y"), (tree, "x"), (tree, "a"), (root, "more")] {
        p.done("link", store.link(file, (directory, name), false).await)?;
    }
    let open = p.open(file).await?;
    p.write(&open, 0, b"before").await?;
    let new = NewSnapshot {
        name: "s".into(),
        source: tree,
        quiesce: false,
        maker: String::new(),
        path: String::new(),
    };
    let taken = p.done("snapshot", snapshots.take_snapshot(new).await)?;
    p.write(&open, 0, b"later!").await?;
    let use_of = p.done("space", snapshots.space(tree).await)?;
    p.equal("a file with several names is counted once", (use_of.files, use_of.logical), (3, 6))?;
    // The copy has the names that were copied, of one file.
    let cloned = p.done("clone", snapshots.clone_tree(taken.root, root, "clone").await)?;
    for top in [taken.root, cloned] {
        let below = p.done("lookup", store.lookup(top, "deep").await)?.file;
        let copy = p.done("lookup", store.lookup(top, "x").await)?.file;
        named(p, &store, copy, &[(below, "y"), (top, "x"), (top, "a")]).await?;
        let open = p.done("open", store.open(copy, OpenOptions::shared(Access::READ)).await)?;
        let read = p.done("read", open.read(0, IoBuf::new(6)).await)?;
        p.ensure("it is what was copied", read[..] == b"before"[..])?;
    }
    let frozen = p.done("lookup", store.lookup(taken.root, "x").await)?.file;
    p.refused("a link to a snapshot's", store.link(frozen, (root, "z"), false).await, Kind::ReadOnly)?;
    p.refused("a link in a snapshot", store.link(file, (taken.root, "z"), false).await, Kind::ReadOnly)?;
    // A clone of the file alone has one name.
    let alone = p.done("clone", snapshots.clone_tree(file, root, "alone").await)?;
    named(p, &store, alone, &[(root, "alone")]).await?;
    named(p, &store, file, &[(root, "outside"), (deep, "y"), (tree, "x"), (tree, "a"), (root, "more")])
        .await?;
    p.done("delete", snapshots.delete_snapshot(taken.id).await)?;
    p.eventually("the snapshot's files go", || async {
        Ok(store.info(frozen).await.is_err_and(|error| error.kind() == Kind::NotFound))
    })
    .await
}
