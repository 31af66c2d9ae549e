//! Where space goes, and what happens when it is gone.

use block_device::Durability;
use file_store::{StoreErrorKind as Kind, StoreUsage};

use crate::check::{Probe, buffer, bytes};
use crate::{MAX_CAPACITY, MIN_CAPACITY, Outcome};

async fn usage(p: &Probe<'_>) -> Outcome<StoreUsage> {
    let usage = p.done("usage", p.store().usage().await)?;
    p.ensure("no more is used than there is", usage.used <= usage.capacity)?;
    p.ensure("what is used is referenced or on its way back", usage.reserved <= usage.used)?;
    Ok(usage)
}

pub(crate) async fn accounting(p: &Probe<'_>) -> Outcome {
    let (store, unit) = (p.store(), p.unit());
    let empty = usage(p).await?;
    p.ensure("the store has room for the suite", empty.capacity >= MIN_CAPACITY)?;
    p.ensure("the suite can fill the store", empty.capacity <= MAX_CAPACITY)?;
    let file = p.opened("f").await?;
    p.done("set_size", file.set_size(1 << 50).await)?;
    p.equal("a sparse file takes nothing", usage(p).await?.used, empty.used)?;
    p.write(&file, 0, &bytes(0, 10 * unit, 1)).await?;
    let written = usage(p).await?;
    p.ensure("data takes space", written.used >= empty.used + 10 * unit)?;
    p.ensure("data is referenced", written.referenced >= empty.referenced + 10 * unit)?;
    let info = p.done("info", store.info(file.file()).await)?;
    p.equal("all of it is this file's", info.allocated, written.referenced - empty.referenced)?;
    let streams = p.done("streams", store.streams(file.file()).await)?;
    p.equal("and this stream's", streams.iter().map(|s| s.allocated).sum(), info.allocated)?;
    p.write(&file, 0, &bytes(0, 10 * unit, 2)).await?;
    p.equal("overwriting takes no more", usage(p).await?.used, written.used)?;
    p.done("punch", file.punch_hole(0, file_store::FILE_SIZE_MAX).await)?;
    p.equal("punching gives up all", p.done("info", store.info(file.file()).await)?.allocated, 0)?;
    p.eventually("punched space is back", || async { Ok(usage(p).await?.used == empty.used) }).await?;
    p.write(&file, 5, &bytes(5, 10 * unit, 3)).await?;
    p.done("cut", file.set_size(0).await)?;
    p.eventually("cut space is back", || async { Ok(usage(p).await?.used == empty.used) }).await?;
    p.write(&file, 5, &bytes(5, 10 * unit, 3)).await?;
    drop(file);
    p.done("remove", store.remove(p.root(), "f").await)?;
    p.eventually("removed space is back", || async {
        let now = usage(p).await?;
        Ok((now.used, now.referenced) == (empty.used, empty.referenced))
    })
    .await
}

pub(crate) async fn sharing(p: &Probe<'_>) -> Outcome {
    let (store, unit) = (p.store(), p.unit());
    let source = p.opened("source").await?;
    let size = 16 * unit;
    p.write(&source, 0, &bytes(0, size, 1)).await?;
    let before = usage(p).await?;
    for number in 0..10 {
        let copy = p.opened(&format!("c{number}")).await?;
        p.done("clone", store.clone_range((source.file(), 0), (copy.file(), 0), size).await)?;
        let now = usage(p).await?;
        p.equal("a clone takes no space", now.used, before.used)?;
        p.ensure("but is referenced", now.referenced >= before.referenced + (number + 1) * size)?;
    }
    let copy = p.open(p.done("lookup", store.lookup(p.root(), "c3").await)?.file).await?;
    p.write(&copy, 3 * unit, b"x").await?;
    let changed = usage(p).await?;
    p.equal("a change to a clone takes one unit", changed.used, before.used + unit)?;
    drop(copy);
    for number in 0..10 {
        p.done("remove", store.remove(p.root(), &format!("c{number}")).await)?;
    }
    p.eventually("the clones' space is back", || async {
        let now = usage(p).await?;
        Ok((now.used, now.referenced) == (before.used, before.referenced))
    })
    .await?;
    p.is("the source", &source, &bytes(0, size, 1)).await
}

pub(crate) async fn full(p: &Probe<'_>) -> Outcome {
    let (store, unit) = (p.store(), p.unit());
    let capacity = usage(p).await?.capacity;
    let file = p.opened("f").await?;
    let content = bytes(0, 4 * unit, 1);
    p.write(&file, 0, &content).await?;
    let before = usage(p).await?;
    for grow in [false, true] {
        let refused = file.allocate(unit, capacity, grow).await;
        p.refused("allocating more than there is", refused, Kind::NoSpace)?;
        p.equal("nothing was taken", usage(p).await?.used, before.used)?;
        p.is("the file has not changed", &file, &content).await?;
    }
    // Every piece either fits or is refused whole in size.
    let filler = p.opened("filler").await?;
    let piece = buffer(&bytes(0, unit, 2));
    let mut at = 0;
    loop {
        match filler.write(at, piece.clone(), Durability::Durable).await {
            Ok(()) => at += unit,
            Err(error) if error.kind() == Kind::NoSpace => break,
            Err(error) => return p.done("filling", Err(error)),
        }
        p.ensure("a store is full some day", at <= capacity)?;
    }
    p.equal("a refused write does not grow", filler.size(), at)?;
    p.ensure("nearly all of it was given out", at + 16 * unit >= capacity)?;
    p.is("what was there", &file, &content).await?;
    p.write(&file, 100, b"overwriting needs no space").await?;
    p.holds("overwritten", &file, 100, b"overwriting needs no space").await?;
    p.done("zeroing needs no space", file.zero_range(100, unit, Durability::Durable).await)?;
    p.done("names need none of it", store.rename((p.root(), "f"), (p.root(), "g"), false).await)?;
    let clone = p.opened("clone").await?;
    let cloned = store.clone_range((filler.file(), 0), (clone.file(), 0), at / unit * unit).await;
    p.done("clones need none of it", cloned)?;
    let shared = clone.write(0, buffer(b"x"), Durability::Durable).await;
    p.refused("changing a clone needs some", shared, Kind::NoSpace)?;
    p.holds("and fails without a trace", &clone, 0, &bytes(0, unit, 2)).await?;
    drop(clone);
    p.done("remove", store.remove(p.root(), "clone").await)?;
    p.done("give some back", filler.punch_hole(0, 4 * unit).await)?;
    p.eventually("space comes back", || async {
        match file.write(5 * unit, buffer(b"again"), Durability::Durable).await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == Kind::NoSpace => Ok(false),
            Err(error) => p.done("write", Err(error)),
        }
    })
    .await?;
    p.holds("written", &file, 5 * unit, b"again").await?;
    p.holds("the filler", &filler, 4 * unit, &bytes(0, unit, 2)).await
}
