//! Named streams.

use file_store::{Access, FileId, FileKind, OpenOptions, STREAMS_MAX, StoreErrorKind as Kind};

use crate::check::{File, Probe, bytes};
use crate::{Outcome, Store};

fn options(stream: &str, create_stream: bool) -> OpenOptions {
    OpenOptions { stream: stream.into(), create_stream, ..OpenOptions::shared(Access::READ_WRITE) }
}

async fn names(p: &Probe<'_>, store: &Store, file: FileId) -> Outcome<Vec<(String, u64)>> {
    let streams = p.done("streams", store.streams(file).await)?;
    let mut names: Vec<_> = streams.into_iter().map(|stream| (stream.name, stream.size)).collect();
    names.sort();
    Ok(names)
}

pub(crate) async fn named(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    let open = async |file: FileId, name: &str, create: bool| -> Outcome<File> {
        p.done(&format!("open stream {name}"), store.open(file, options(name, create)).await)
    };
    for kind in [FileKind::File, FileKind::Directory] {
        let file = p.make(root, &format!("{kind:?}"), kind).await?;
        let unnamed: Vec<(String, u64)> =
            if kind == FileKind::File { vec![(String::new(), 0)] } else { Vec::new() };
        p.equal("the streams at first", names(p, &store, file).await?, unnamed.clone())?;
        p.refused("a missing stream", store.open(file, options("Zone", false)).await, Kind::NotFound)?;
        let zone = open(file, "Zone", true).await?;
        p.write(&zone, 0, b"zone").await?;
        let same = open(file, "ZONE", true).await?;
        p.is("the same stream in another case", &same, b"zone").await?;
        let big = open(file, "big", true).await?;
        let content = bytes(0, 3 * p.unit() + 5, 4);
        p.write(&big, 0, &content).await?;
        p.is("streams are apart", &zone, b"zone").await?;
        let mut wanted = unnamed;
        wanted.extend([("Zone".into(), 4), ("big".into(), content.len() as u64)]);
        wanted.sort();
        p.equal("the streams", names(p, &store, file).await?, wanted.clone())?;
        p.equal("the size of info", p.done("info", store.info(file).await)?.size, 0)?;
        p.refused("removal of an open one", store.remove_stream(file, "zone").await, Kind::SharingViolation)?;
        drop((zone, same));
        p.done("removal", store.remove_stream(file, "zone").await)?;
        p.refused("another removal", store.remove_stream(file, "Zone").await, Kind::NotFound)?;
        p.refused("of the unnamed one", store.remove_stream(file, "").await, Kind::NotFound)?;
        let zone = open(file, "Zone", true).await?;
        p.is("a new stream of an old name is empty", &zone, b"").await?;
        p.done("grow", zone.set_size(10_000).await)?;
        p.holds("and has no old data", &zone, 0, &[0; 10_000]).await?;
        p.is("the other one stays", &big, &content).await?;
    }
    let directory = p.done("lookup", store.lookup(root, "directory").await)?.file;
    let unnamed = store.open(directory, options("", false)).await;
    p.refused("a directory's data", unnamed, Kind::IsADirectory)?;
    let unnamed = store.open(directory, options("", true)).await;
    p.refused("a directory's data, made", unnamed, Kind::IsADirectory)?;
    let file = p.done("lookup", store.lookup(root, "file").await)?.file;
    drop(store);
    p.reopen().await?;
    let store = p.store();
    let wanted = vec![(String::new(), 0), ("Zone".into(), 10_000), ("big".into(), 3 * p.unit() + 5)];
    p.equal("after reopening", names(p, &store, file).await?, wanted)?;
    p.done("removal with streams", store.remove(root, "file").await)
}

pub(crate) async fn limits(p: &Probe<'_>) -> Outcome {
    let store = p.store();
    let file = p.file("f").await?;
    for bad in [".", "a:b", "a/b", "\0", &"x".repeat(256)] {
        let opened = store.open(file, options(bad, true)).await;
        p.refused(&format!("stream {bad:?}"), opened, Kind::InvalidName)?;
        let opened = store.open(file, options(bad, false)).await;
        p.refused(&format!("stream {bad:?} that is not made"), opened, Kind::NotFound)?;
    }
    for number in 1..STREAMS_MAX {
        let opened = store.open(file, options(&format!("s{number}"), true)).await;
        p.done("a stream", opened).map(drop)?;
    }
    let opened = store.open(file, options("one too many", true)).await;
    p.refused("one stream too many", opened, Kind::InvalidArgument)?;
    p.equal("the streams", names(p, &store, file).await?.len(), STREAMS_MAX)?;
    p.done("removal", store.remove_stream(file, "s5").await)?;
    p.done("now there is room", store.open(file, options("one too many", true)).await).map(drop)?;
    p.done("an old one", store.open(file, options("S9", false)).await).map(drop)
}

pub(crate) async fn renamed(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    for kind in [FileKind::File, FileKind::Directory] {
        let file = p.make(root, &format!("{kind:?}"), kind).await?;
        let one = p.done("open", store.open(file, options("one", true)).await)?;
        p.write(&one, 0, b"first").await?;
        p.done("rename", store.rename_stream(file, "ONE", "Two", false).await)?;
        p.is("an open goes on", &one, b"first").await?;
        p.write(&one, 5, b" and more").await?;
        p.refused("the old name", store.open(file, options("one", false)).await, Kind::NotFound)?;
        let again = p.done("the new name", store.open(file, options("two", false)).await)?;
        p.is("the same stream", &again, b"first and more").await?;
        drop(again);
        let other = p.done("open", store.open(file, options("one", true)).await)?;
        p.write(&other, 0, b"other").await?;
        let taken = store.rename_stream(file, "two", "ONE", false).await;
        p.refused("a taken name", taken, Kind::AlreadyExists)?;
        let held = store.rename_stream(file, "two", "one", true).await;
        p.refused("the name of an open one", held, Kind::SharingViolation)?;
        drop(other);
        p.done("replaced", store.rename_stream(file, "two", "One", true).await)?;
        p.is("the open goes on", &one, b"first and more").await?;
        p.done("another case", store.rename_stream(file, "one", "ONE", false).await)?;
        let unnamed = store.rename_stream(file, "one", "", true).await;
        p.refused("to the unnamed one", unnamed, Kind::InvalidArgument)?;
        let unnamed = store.rename_stream(file, "", "x", true).await;
        p.refused("from the unnamed one", unnamed, Kind::InvalidArgument)?;
        p.refused("no name", store.rename_stream(file, "one", "a:b", false).await, Kind::InvalidName)?;
        p.refused("what is not there", store.rename_stream(file, "x", "y", false).await, Kind::NotFound)?;
        let mut wanted = vec![("ONE".to_owned(), 14)];
        wanted.extend((kind == FileKind::File).then(|| (String::new(), 0)));
        wanted.sort();
        p.equal("the streams", names(p, &store, file).await?, wanted)?;
    }
    drop(store);
    p.reopen().await?;
    let store = p.store();
    let file = p.done("lookup", store.lookup(root, "file").await)?.file;
    let open = p.done("open", store.open(file, options("one", false)).await)?;
    p.is("after reopening", &open, b"first and more").await
}
