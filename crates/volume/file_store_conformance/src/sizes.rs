//! Sizes.

use block_device::Durability;
use futures_util::future::join;

use crate::Outcome;
use crate::check::{Probe, buffer, bytes};

pub(crate) async fn cut_and_grow(p: &Probe<'_>) -> Outcome {
    let unit = p.unit();
    let sizes = [0, 1, 511, 4095, 4096, 4097, unit - 1, unit, unit + 1, 3 * unit - 5000, 4 * unit];
    let file = p.opened("f").await?;
    for cut in sizes {
        for grown in [cut + 1, cut + 5000, 4 * unit + 100] {
            let content = bytes(0, 4 * unit, cut + grown);
            p.write(&file, 0, &content).await?;
            p.done("cut", file.set_size(cut).await)?;
            p.is(&format!("cut to {cut}"), &file, &content[..cut as usize]).await?;
            p.done("grow", file.set_size(grown).await)?;
            let mut wanted = content[..cut as usize].to_vec();
            wanted.resize(grown as usize, 0);
            p.is(&format!("cut to {cut}, grown to {grown}"), &file, &wanted).await?;
            p.equal("info", p.done("info", p.store().info(file.file()).await)?.size, grown)?;
        }
    }
    let content = bytes(0, 4 * unit, 7);
    p.write(&file, 0, &content).await?;
    p.done("cut", file.set_size(unit + 5).await)?;
    drop(file);
    if p.reopen().await? {
        let found = p.done("lookup", p.store().lookup(p.root(), "f").await)?;
        let file = p.open(found.file).await?;
        p.is("cut and reopened", &file, &content[..unit as usize + 5]).await?;
        p.done("grow", file.set_size(4 * unit).await)?;
        p.holds("grown after reopening", &file, unit + 5, &vec![0; 3 * unit as usize - 5]).await?;
    }
    Ok(())
}

pub(crate) async fn beyond(p: &Probe<'_>) -> Outcome {
    let unit = p.unit();
    let file = p.opened("f").await?;
    for (cut, at) in [(10, 100), (10, 4096), (5000, 5001), (5000, unit + 1), (unit, 3 * unit + 7), (0, 9)] {
        for durability in [Durability::Durable, Durability::Volatile] {
            let content = bytes(0, 4 * unit, cut + at);
            p.write(&file, 0, &content).await?;
            p.done("cut", file.set_size(cut).await)?;
            let data = bytes(at, 3000, 2);
            p.done("write", file.write(at, buffer(&data), durability).await)?;
            let mut wanted = content[..cut as usize].to_vec();
            wanted.resize(at as usize, 0);
            wanted.extend_from_slice(&data);
            p.is(&format!("cut to {cut}, written at {at}"), &file, &wanted).await?;
        }
    }
    // A size that a volatile write made and nobody flushed is there as long as the store is.
    p.done("write", file.write(5 * unit, buffer(b"end"), Durability::Volatile).await)?;
    let id = file.file();
    drop(file);
    p.equal("info", p.done("info", p.store().info(id).await)?.size, 5 * unit + 3)?;
    let streams = p.done("streams", p.store().streams(id).await)?;
    p.equal("streams", streams.iter().map(|s| s.size).collect::<Vec<_>>(), vec![5 * unit + 3])?;
    let file = p.open(id).await?;
    p.equal("the size", file.size(), 5 * unit + 3)?;
    p.holds("the end", &file, 5 * unit, b"end").await?;
    drop(file);
    if p.reopen().await? {
        let file = p.open(id).await?;
        p.equal("the size after an orderly end", file.size(), 5 * unit + 3)?;
        p.holds("the end", &file, 5 * unit, b"end").await?;
    }
    Ok(())
}

pub(crate) async fn waiting(p: &Probe<'_>) -> Outcome {
    let file = p.opened("f").await?;
    p.write(&file, 0, b"four").await?;
    p.equal("at once", p.done("wait", file.wait_resize(7).await)?, 4)?;
    let other = p.open(file.file()).await?;
    let id = file.file();
    for (known, size) in [(4, 10), (10, 3), (3, 100_000)] {
        let (waited, sized) = join(file.wait_resize(known), other.set_size(size)).await;
        p.done("set_size", sized)?;
        p.equal("the new size", p.done("wait", waited)?, size)?;
    }
    let data = buffer(b"x");
    let written = join(file.wait_resize(100_000), other.write(100_000, data, Durability::Volatile)).await;
    p.done("write", written.1)?;
    p.equal("grown by a write", p.done("wait", written.0)?, 100_001)?;
    let source = p.opened("source").await?;
    p.write(&source, 0, &bytes(0, 200_000, 1)).await?;
    let store = p.store();
    let cloned =
        join(file.wait_resize(100_001), store.clone_range((source.file(), 0), (id, 0), 200_000)).await;
    p.done("clone", cloned.1)?;
    p.equal("grown by a clone", p.done("wait", cloned.0)?, 200_000)?;
    let zeroed = join(file.wait_resize(200_000), other.zero_range(1, 300_000, Durability::Durable)).await;
    p.done("zero", zeroed.1)?;
    p.equal("grown by zeroes", p.done("wait", zeroed.0)?, 300_001)?;
    let allocated = join(file.wait_resize(300_001), other.allocate(1, 400_000, true)).await;
    p.done("allocate", allocated.1)?;
    p.equal("grown by allocation", p.done("wait", allocated.0)?, 400_001)
}
