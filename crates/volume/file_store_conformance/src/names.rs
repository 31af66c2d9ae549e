//! Names and directories.

use aligned_buffer::IoBuf;
use block_device::Durability;
use file_store::{Access, FileId, FileKind, OpenOptions, StoreErrorKind as Kind};

use crate::Outcome;
use crate::check::{Probe, new};

pub(crate) async fn any_case(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    for (name, upper) in [
        ("Plain", "PLAIN"),
        ("Straße", "STRAßE"),
        ("Ünïcödé ﬁ", "ÜNÏCÖDÉ ﬁ"),
        ("Οδυσσέας", "ΟΔΥΣΣΈΑς"),
        ("日本語", "日本語"),
        ("a.b.c", "A.B.C"),
        (" spaced ", " SPACED "),
    ] {
        let file = p.file(name).await?;
        for other in [upper, name] {
            let found = p.done("lookup", store.lookup(root, other).await)?;
            p.equal("the name keeps its case", found.name.as_str(), name)?;
            p.equal("the file", found.file, file)?;
            p.equal("the kind", found.kind, FileKind::File)?;
            let again = store.create(root, other, new(FileKind::File)).await;
            p.refused(&format!("create {other} beside {name}"), again, Kind::AlreadyExists)?;
        }
        p.done("remove in another case", store.remove(root, upper).await)?;
        p.refused("lookup after removal", store.lookup(root, name).await, Kind::NotFound)?;
    }
    p.file("same").await?;
    let inner = p.make(root, "directory", FileKind::Directory).await?;
    p.make(inner, "SAME", FileKind::File).await?;
    Ok(())
}

/// Windows takes letters one by one: what becomes the same by taking two for one, or one for another, are two files.
pub(crate) async fn kept_apart(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    for (one, other) in [
        ("straße.vhdx", "STRASSE.vhdx"),
        ("ﬁle", "FILE"),
        ("ıd", "ID"),
        ("ſ", "s"),
        ("σάς", "σάσ"),
        ("𐐨", "𐐀"),
    ] {
        let (first, second) = (p.file(one).await?, p.file(other).await?);
        for (name, file) in [(one, first), (other, second)] {
            let found = p.done("lookup", store.lookup(root, name).await)?;
            p.equal(&format!("the file {name}"), found.file, file)?;
        }
        for (stream, bytes) in [(one, b"1"), (other, b"2")] {
            let open = p.done("a stream", store.open(first, named(stream)).await)?;
            p.done("write", open.write(0, IoBuf::copy_from(bytes).freeze(), Durability::Volatile).await)?;
        }
        let streams = p.done("streams", store.streams(first).await)?;
        p.equal("streams", streams.len(), 3)?;
        p.done("removal of a stream", store.remove_stream(first, other).await)?;
        let open =
            p.done("a stream", store.open(first, OpenOptions { create_stream: false, ..named(one) }).await)?;
        let left = p.done("read", open.read(0, IoBuf::new(1)).await)?;
        p.equal("the other stream's content", &left[..], &b"1"[..])?;
        drop(open);
        p.done("rename", store.rename((root, other), (root, "moved"), false).await)?;
        p.refused("lookup of the old name", store.lookup(root, other).await, Kind::NotFound)?;
        p.done("removal of what moved", store.remove(root, "moved").await)?;
        let still = p.done("lookup", store.lookup(root, one).await)?;
        p.equal("the file beside what moved", still.file, first)?;
    }
    Ok(())
}

fn named(stream: &str) -> OpenOptions {
    OpenOptions { stream: stream.into(), create_stream: true, ..OpenOptions::shared(Access::READ_WRITE) }
}

pub(crate) async fn limits(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    let longest = [255, 255, 127].map(|n| n as usize);
    for (unit, count) in ["x", "ß", "𝄞"].into_iter().zip(longest) {
        let name = unit.repeat(count);
        p.file(&name).await?;
        p.done("lookup of a longest name", store.lookup(root, &name).await)?;
        let longer = unit.repeat(count + 1);
        p.refused(
            "a longer name",
            store.create(root, &longer, new(FileKind::File)).await,
            Kind::InvalidName,
        )?;
    }
    p.file("victim").await?;
    for bad in ["", ".", "..", "a/b", "a\\b", "a:b", "a\0b", "\n", "\u{1f}", "\u{7f}", "\u{85}"] {
        for kind in [FileKind::File, FileKind::Directory] {
            let made = store.create(root, bad, new(kind)).await;
            p.refused(&format!("create {bad:?}"), made, Kind::InvalidName)?;
        }
        let moved = store.rename((root, "victim"), (root, bad), true).await;
        p.refused(&format!("rename to {bad:?}"), moved, Kind::InvalidName)?;
        p.refused(&format!("lookup of {bad:?}"), store.lookup(root, bad).await, Kind::NotFound)?;
        p.refused(&format!("removal of {bad:?}"), store.remove(root, bad).await, Kind::NotFound)?;
    }
    for odd in ["...", ".hidden", "trailing.", "a\"b", "a*b?", "CON", "~"] {
        p.file(odd).await?;
    }
    Ok(())
}

pub(crate) async fn directories(p: &Probe<'_>) -> Outcome {
    let store = p.store();
    let mut path = vec![p.root()];
    for depth in 0..20 {
        let above = path[depth];
        path.push(p.make(above, "down", FileKind::Directory).await?);
        p.make(above, &format!("file{depth}"), FileKind::File).await?;
    }
    for depth in 0..20 {
        let info = p.done("info", store.info(path[depth + 1]).await)?;
        p.equal("the parent", info.parent, path[depth])?;
        p.equal("the kind", info.kind, FileKind::Directory)?;
        p.equal("a directory's size", info.size, 0)?;
    }
    p.equal("the root's parent", p.done("info", store.info(p.root()).await)?.parent, p.root())?;
    p.refused("removal of a full directory", store.remove(p.root(), "down").await, Kind::NotEmpty)?;
    for depth in (0..20).rev() {
        p.done("remove", store.remove(path[depth], &format!("FILE{depth}")).await)?;
        p.done("remove", store.remove(path[depth], "DOWN").await)?;
        p.refused("info of what is gone", store.info(path[depth + 1]).await, Kind::NotFound)?;
    }
    // Ids are never reused, so an old one never leads to a new file.
    let fresh = p.file("fresh").await?;
    p.ensure("a new file has a new id", !path.contains(&fresh))
}

pub(crate) async fn errors(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    let file = p.file("file").await?;
    let gone = p.make(root, "gone", FileKind::Directory).await?;
    p.done("remove", store.remove(root, "gone").await)?;
    let nobody = [FileId(0), FileId(u64::MAX), FileId(123_456_789), gone];
    let targets = nobody.map(|id| (id, Kind::NotFound)).into_iter().chain([(file, Kind::NotADirectory)]);
    for (id, kind) in targets {
        let at = format!(" in {id:?}");
        p.refused(&format!("lookup{at}"), store.lookup(id, "x").await, kind)?;
        p.refused(&format!("create{at}"), store.create(id, "x", new(FileKind::File)).await, kind)?;
        p.refused(&format!("remove{at}"), store.remove(id, "x").await, kind)?;
        p.refused(&format!("rename from{at}"), store.rename((id, "x"), (root, "y"), false).await, kind)?;
        p.refused(&format!("rename to{at}"), store.rename((root, "file"), (id, "y"), true).await, kind)?;
        let page = store.read_directory(id, Default::default(), 10).await;
        p.refused(&format!("read_directory{at}"), page, kind)?;
    }
    for id in nobody {
        p.refused("info", store.info(id).await, Kind::NotFound)?;
        p.refused("set_info", store.set_info(id, Default::default()).await, Kind::NotFound)?;
        p.refused("security", store.security(id).await, Kind::NotFound)?;
        p.refused("set_security", store.set_security(id, vec![1]).await, Kind::NotFound)?;
        p.refused("streams", store.streams(id).await, Kind::NotFound)?;
        p.refused("remove_stream", store.remove_stream(id, "s").await, Kind::NotFound)?;
        let options = file_store::OpenOptions::shared(file_store::Access::READ);
        p.refused("open", store.open(id, options).await, Kind::NotFound)?;
        p.refused("clone from", store.clone_range((id, 0), (file, 0), 1).await, Kind::NotFound)?;
        p.refused("clone to", store.clone_range((file, 0), (id, 0), 0).await, Kind::NotFound)?;
    }
    p.refused("removal of nothing", store.remove(root, "nothing").await, Kind::NotFound)?;
    let moved = store.rename((root, "nothing"), (root, "file"), true).await;
    p.refused("rename of nothing", moved, Kind::NotFound)?;
    let found = p.done("lookup", store.lookup(root, "file").await)?;
    p.equal("the file is still there", found.file, file)
}
