//! Moving names.

use file_store::{Access, FileKind, OpenOptions, Share, StoreErrorKind as Kind};

use crate::Outcome;
use crate::check::Probe;

pub(crate) async fn moves(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    let (a, b) =
        (p.make(root, "a", FileKind::Directory).await?, p.make(root, "b", FileKind::Directory).await?);
    let file = p.make(a, "File", FileKind::File).await?;
    let open = p.open(file).await?;
    p.write(&open, 0, b"content").await?;
    p.done("rename", store.rename((a, "FILE"), (b, "Moved"), false).await)?;
    p.refused("the old name", store.lookup(a, "File").await, Kind::NotFound)?;
    let found = p.done("lookup", store.lookup(b, "moved").await)?;
    p.equal("the new name", (found.name.as_str(), found.file), ("Moved", file))?;
    p.equal("the parent", p.done("info", store.info(file).await)?.parent, b)?;
    p.is("an open of a moved file goes on", &open, b"content").await?;
    p.done("removal of an emptied directory", store.remove(root, "a").await)?;
    // A directory takes what is in it along.
    let c = p.make(root, "c", FileKind::Directory).await?;
    p.done("rename of a directory", store.rename((root, "b"), (c, "deeper"), false).await)?;
    let deeper = p.done("lookup", store.lookup(c, "deeper").await)?;
    p.equal("the directory", deeper.file, b)?;
    p.equal("what is in it", p.done("lookup", store.lookup(b, "MOVED").await)?.file, file)?;
    let missing = store.rename((c, "nothing"), (root, "x"), false).await;
    p.refused("rename of nothing", missing, Kind::NotFound)
}

pub(crate) async fn case(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    for kind in [FileKind::File, FileKind::Directory] {
        let file = p.make(root, "name", kind).await?;
        for (from, to) in [("NAME", "Name"), ("name", "NAME"), ("NAME", "NAME"), ("name", "straße")] {
            for replace in [false, true] {
                let (from, to) = if replace && to == "straße" { ("STRAßE", "Straße") } else { (from, to) };
                p.done("rename of case", store.rename((root, from), (root, to), replace).await)?;
                let found = p.done("lookup", store.lookup(root, to).await)?;
                p.equal("the name", (found.name.as_str(), found.file), (to, file))?;
            }
        }
        p.done("remove", store.remove(root, "STRAßE").await)?;
    }
    Ok(())
}

pub(crate) async fn replaces(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    let (one, two) = (p.file("one").await?, p.file("two").await?);
    let (dir, other) =
        (p.make(root, "dir", FileKind::Directory).await?, p.make(root, "other", FileKind::Directory).await?);
    for (from, to, replace) in [
        ("one", "two", false),
        ("one", "dir", false),
        ("one", "dir", true),
        ("dir", "one", true),
        ("dir", "other", true),
        ("dir", "other", false),
    ] {
        let moved = store.rename((root, from), (root, to), replace).await;
        p.refused(&format!("{from} onto {to}, replace {replace}"), moved, Kind::AlreadyExists)?;
    }
    // An open that does not share deletion keeps both the moved and the replaced file in place.
    for (file, name) in [(one, "the moved"), (two, "the replaced")] {
        let strict =
            OpenOptions { share: Share { delete: false, ..Share::ALL }, ..OpenOptions::shared(Access::READ) };
        let open = p.done("open", store.open(file, strict).await)?;
        let moved = store.rename((root, "one"), (root, "TWO"), true).await;
        p.refused(&format!("rename while {name} file is held"), moved, Kind::SharingViolation)?;
        drop(open);
    }
    let held = p.open(two).await?;
    p.write(&held, 0, b"old content").await?;
    p.done("rename with replace", store.rename((root, "one"), (root, "TWO"), true).await)?;
    let found = p.done("lookup", store.lookup(root, "two").await)?;
    p.equal("the name and the file", (found.name.as_str(), found.file), ("TWO", one))?;
    p.refused("the old name", store.lookup(root, "one").await, Kind::NotFound)?;
    p.is("an open of the replaced file goes on", &held, b"old content").await?;
    drop(held);
    p.eventually("the replaced file is gone", || async {
        Ok(store.info(two).await.is_err_and(|error| error.kind() == Kind::NotFound))
    })
    .await?;
    p.equal("directories are untouched", p.done("info", store.info(dir).await)?.parent, root)?;
    p.equal("directories are untouched", p.done("info", store.info(other).await)?.parent, root)
}

pub(crate) async fn cycles(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    let a = p.make(root, "a", FileKind::Directory).await?;
    let b = p.make(a, "b", FileKind::Directory).await?;
    let c = p.make(b, "c", FileKind::Directory).await?;
    for (to, name) in [(a, "x"), (b, "x"), (c, "x"), (a, "b")] {
        let moved = store.rename((root, "a"), (to, name), true).await;
        p.refused("a directory into itself", moved, Kind::InvalidArgument)?;
    }
    p.done("the other way round", store.rename((b, "c"), (root, "c"), false).await)?;
    p.done("and then down", store.rename((root, "a"), (c, "a"), false).await)?;
    p.refused("back up", store.rename((root, "c"), (b, "c"), false).await, Kind::InvalidArgument)?;
    p.equal("the parent", p.done("info", store.info(a).await)?.parent, c)
}
