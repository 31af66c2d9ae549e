//! Opens: what they may do, what they let others do, and what they keep alive.

use aligned_buffer::IoBuf;
use block_device::Durability;
use file_store::{Access, Attributes, FileKind, InfoChange, OpenOptions, Share, StoreErrorKind as Kind};

use crate::Outcome;
use crate::check::{Probe, buffer, bytes, new};

const NOTHING: Access = Access { read: false, write: false, delete: false };
const WRITE: Access = Access { write: true, ..NOTHING };
const DELETE: Access = Access { delete: true, ..NOTHING };

pub(crate) async fn access(p: &Probe<'_>) -> Outcome {
    let store = p.store();
    let file = p.opened("f").await?;
    p.write(&file, 0, b"content").await?;
    let id = file.file();
    for access in [NOTHING, Access::READ, WRITE, Access::READ_WRITE, DELETE] {
        let open = p.done("open", store.open(id, OpenOptions::shared(access)).await)?;
        p.equal("the size", open.size(), 7)?;
        p.equal("the file", open.file(), id)?;
        p.done("flush", open.flush().await)?;
        p.done("ranges", open.allocated_ranges(0, 7, 3).await)?;
        let read = open.read(0, IoBuf::new(7)).await;
        if access.read {
            p.equal("the content", p.done("read", read)?.to_vec(), b"content".to_vec())?;
        } else {
            p.refused("read", read, Kind::AccessDenied)?;
        }
        let durable = Durability::Durable;
        if !(access.read && access.write) {
            let compared = open.compare_and_write(0, buffer(b"c"), buffer(b"C")).await;
            p.refused("compare and write", compared, Kind::AccessDenied)?;
        }
        if !access.write {
            p.refused("write", open.write(0, buffer(b"x"), durable).await, Kind::AccessDenied)?;
            p.refused("an empty write", open.write(0, buffer(b""), durable).await, Kind::AccessDenied)?;
            p.refused("set_size", open.set_size(3).await, Kind::AccessDenied)?;
            p.refused("zero_range", open.zero_range(0, 3, durable).await, Kind::AccessDenied)?;
            p.refused("punch_hole", open.punch_hole(0, 3).await, Kind::AccessDenied)?;
            p.refused("allocate", open.allocate(0, 3, true).await, Kind::AccessDenied)?;
        } else {
            p.done("write", open.write(0, buffer(b"c"), durable).await)?;
        }
    }
    p.is("after all that", &file, b"content").await
}

fn all_modes() -> Vec<(Access, Share)> {
    let bits = |n: u8| [n & 1 != 0, n & 2 != 0, n & 4 != 0];
    let mode = |n: u8| {
        let ([read, write, delete], [r, w, d]) = (bits(n), bits(n >> 3));
        (Access { read, write, delete }, Share { read: r, write: w, delete: d })
    };
    (0..64).map(mode).collect()
}

pub(crate) async fn sharing(p: &Probe<'_>) -> Outcome {
    let store = p.store();
    let id = p.file("f").await?;
    let options = |stream: &str, (access, share)| OpenOptions {
        stream: stream.into(),
        create_stream: true,
        access,
        share,
    };
    let modes = all_modes();
    for first in &modes {
        let held = p.done("the first open", store.open(id, options("", *first)).await)?;
        for second in &modes {
            let allows = |share: Share, access: Access| {
                (share.read || !access.read)
                    && (share.write || !access.write)
                    && (share.delete || !access.delete)
            };
            let fits = allows(first.1, second.0) && allows(second.1, first.0);
            let opened = store.open(id, options("", *second)).await;
            let what = format!("{second:?} beside {first:?}");
            if fits {
                p.done(&what, opened).map(drop)?;
            } else {
                p.refused(&what, opened, Kind::SharingViolation)?;
            }
        }
        // Streams do not know each other.
        p.done("another stream", store.open(id, options("s", (Access::READ_WRITE, Share::NONE))).await)?;
        if !first.1.delete {
            p.refused("removal", store.remove(p.root(), "f").await, Kind::SharingViolation)?;
            let moved = store.rename((p.root(), "f"), (p.root(), "g"), true).await;
            p.refused("rename", moved, Kind::SharingViolation)?;
        }
        drop(held);
    }
    // What closes makes room.
    let strict = store.open(id, options("", (Access::READ_WRITE, Share::NONE))).await;
    drop(p.done("alone at last", strict)?);
    let stream = store.open(id, options("s", (Access::READ, Share { delete: false, ..Share::ALL }))).await;
    let stream = p.done("a stream", stream)?;
    p.refused("removal", store.remove(p.root(), "f").await, Kind::SharingViolation)?;
    drop(stream);
    p.done("removal", store.remove(p.root(), "f").await)
}

pub(crate) async fn removal(p: &Probe<'_>) -> Outcome {
    let (store, root) = (p.store(), p.root());
    let before = p.done("usage", store.usage().await)?.used;
    let file = p.opened("f").await?;
    let id = file.file();
    let size = 12 * p.unit();
    let content = bytes(0, size, 1);
    p.write(&file, 0, &content).await?;
    let second = p.open(id).await?;
    p.done("remove", store.remove(root, "f").await)?;
    p.refused("lookup", store.lookup(root, "f").await, Kind::NotFound)?;
    p.refused("another removal", store.remove(root, "f").await, Kind::NotFound)?;
    let again = store.open(id, OpenOptions::shared(Access::READ)).await;
    p.refused("opening what is removed", again, Kind::NotFound)?;
    p.is("the open goes on", &file, &content).await?;
    // The name is free at once, and the new file is another one.
    let fresh = p.opened("f").await?;
    p.ensure("the new file is another one", fresh.file() != id)?;
    p.write(&fresh, 0, b"new").await?;
    p.write(&file, size, b"grown").await?;
    drop(file);
    p.holds("the second open goes on", &second, size, b"grown").await?;
    p.done("cut", second.set_size(size).await)?;
    p.is("the second open goes on", &second, &content).await?;
    drop(second);
    p.eventually("the removed file is gone", || async { Ok(store.info(id).await.is_err()) }).await?;
    let kept = p.done("info", store.info(fresh.file()).await)?.allocated;
    p.eventually("its space is back", || async {
        Ok(p.done("usage", store.usage().await)?.used <= before + kept)
    })
    .await?;
    // A directory that is open through a stream takes no new names once it is removed.
    let directory = p.make(root, "d", FileKind::Directory).await?;
    let options =
        OpenOptions { stream: "s".into(), create_stream: true, ..OpenOptions::shared(Access::READ_WRITE) };
    let open = p.done("a directory's stream", store.open(directory, options).await)?;
    p.write(&open, 0, b"of a directory").await?;
    p.done("remove", store.remove(root, "d").await)?;
    let made = store.create(directory, "x", new(FileKind::File)).await;
    p.refused("create in a removed directory", made, Kind::NotFound)?;
    let moved = store.rename((root, "f"), (directory, "x"), false).await;
    p.refused("rename into a removed directory", moved, Kind::NotFound)?;
    p.is("its stream goes on", &open, b"of a directory").await?;
    drop((open, fresh));
    drop(store);
    p.reopen().await?;
    p.refused("info after reopening", p.store().info(id).await, Kind::NotFound)?;
    p.done("lookup", p.store().lookup(root, "f").await).map(drop)
}

/// Who does not share deletion keeps the size and the directories above, by whichever name; the names, and that it can be written.
pub(crate) async fn keeping(p: &Probe<'_>) -> Outcome {
    let store = p.store();
    let outer = p.done("mkdir", store.create(store.root(), "outer", new(FileKind::Directory)).await)?;
    let inner = p.done("mkdir", store.create(outer, "inner", new(FileKind::Directory)).await)?;
    let id = p.done("create", store.create(inner, "f", new(FileKind::File)).await)?;
    p.done("link", store.link(id, (store.root(), "other"), false).await)?;
    let source = p.opened("source").await?;
    p.write(&source, 0, b"0123456789").await?;
    let keep = Share { delete: false, ..Share::ALL };
    let keeper = OpenOptions { share: keep, ..OpenOptions::shared(Access::READ_WRITE) };
    let kept = p.done("open", store.open(id, keeper.clone()).await)?;
    p.write(&kept, 0, b"content").await?;
    let other = p.done("open", store.open(id, OpenOptions::shared(Access::READ_WRITE)).await)?;
    let durable = Durability::Durable;
    p.refused("cut", other.set_size(3).await, Kind::SharingViolation)?;
    p.refused("grow", other.set_size(9).await, Kind::SharingViolation)?;
    p.refused("write", other.write(6, buffer(b"xy"), durable).await, Kind::SharingViolation)?;
    p.refused("zero_range", other.zero_range(6, 2, durable).await, Kind::SharingViolation)?;
    p.refused("allocate", other.allocate(0, 8, true).await, Kind::SharingViolation)?;
    let cloned = store.clone_range((source.file(), 0), (id, 0), 10).await;
    p.refused("clone", cloned, Kind::SharingViolation)?;
    p.is("after all that", &kept, b"content").await?;
    let root = store.root();
    for (from, name) in [(outer, "inner"), (root, "outer")] {
        let moved = store.rename((from, name), (root, "moved"), false).await;
        p.refused("rename", moved, Kind::SharingViolation)?;
    }
    let linked = store.link(id, (root, "third"), false).await;
    p.refused("one more name", linked, Kind::SharingViolation)?;
    let with = |bits| InfoChange { attributes: Some(Attributes(bits)), ..InfoChange::default() };
    p.refused("read-only", store.set_info(id, with(0x21)).await, Kind::SharingViolation)?;
    p.equal("it is not", p.done("info", store.info(id).await)?.attributes, Attributes(0x20))?;
    p.done("hidden", store.set_info(id, with(0x2)).await)?;
    p.done("the same size", other.set_size(7).await)?;
    p.done("data", other.write(0, buffer(b"C"), durable).await)?;
    p.done("room", other.allocate(0, 100, false).await)?;
    let again = p.done("open", store.open(id, keeper.clone()).await)?;
    p.done("by another of those who keep it", again.set_size(8).await)?;
    p.done("by itself", kept.set_size(7).await)?;
    p.is("data of others", &kept, b"Content").await?;
    drop((kept, again));
    p.done("cut", other.set_size(3).await)?;
    p.done("one more name", store.link(id, (root, "third"), false).await)?;
    p.done("read-only", store.set_info(id, with(0x1)).await)?;
    let kept = p.done("open", store.open(id, keeper.clone()).await)?;
    p.done("what was so before stays", store.set_info(id, with(0x3)).await)?;
    p.done("and may be taken away", store.set_info(id, with(0)).await)?;
    drop(kept);
    p.done("rename", store.rename((root, "outer"), (root, "moved"), false).await)
}
