//! Punching, zeroing, allocating, and what is allocated.

use block_device::Durability;

use crate::Outcome;
use crate::check::{File, Probe, bytes};

/// Ranges that meet blocks and units in all ways.
fn places(unit: u64) -> Vec<(u64, u64)> {
    vec![
        (0, 1),
        (5, 10),
        (4095, 2),
        (4096, 4096),
        (unit - 1, 2),
        (unit, unit),
        (unit + 1, unit),
        (unit / 2, 3 * unit),
        (2 * unit, 2 * unit + 1),
        (3 * unit - 4096, unit + 8192),
        (0, 8 * unit),
    ]
}

async fn full(p: &Probe<'_>, name: &str, generation: u64) -> Outcome<(File, Vec<u8>)> {
    let file = p.opened(name).await?;
    // Ends within a block.
    let content = bytes(0, 6 * p.unit() - 1000, generation);
    p.write(&file, 0, &content).await?;
    Ok((file, content))
}

fn wipe(content: &mut [u8], offset: u64, len: u64) {
    let size = content.len();
    content[(offset as usize).min(size)..((offset + len) as usize).min(size)].fill(0);
}

pub(crate) async fn punch(p: &Probe<'_>) -> Outcome {
    for ((offset, len), number) in places(p.unit()).into_iter().zip(1..) {
        let (file, mut content) = full(p, &format!("f{number}"), number).await?;
        p.done("punch_hole", file.punch_hole(offset, len).await)?;
        wipe(&mut content, offset, len);
        p.is(&format!("after punching {offset}+{len}"), &file, &content).await?;
        let again = bytes(offset + len / 2, 5000, number + 100);
        let at = (offset + len / 2) as usize;
        p.write(&file, at as u64, &again).await?;
        content.resize(content.len().max(at + 5000), 0);
        content[at..at + 5000].copy_from_slice(&again);
        p.is("after writing into the hole", &file, &content).await?;
    }
    let (file, content) = full(p, "beyond", 50).await?;
    let size = content.len() as u64;
    p.done("punch beyond the end", file.punch_hole(size, 100_000).await)?;
    p.done("punch far beyond", file.punch_hole(1 << 40, 100_000).await)?;
    p.is("punching beyond the end does nothing", &file, &content).await?;
    p.done("punch to the far end", file.punch_hole(10, file_store::FILE_SIZE_MAX - 10).await)?;
    p.equal("the size stays", file.size(), size)?;
    p.holds("what is before stays", &file, 0, &content[..10]).await?;
    p.holds("the rest is zero", &file, 10, &vec![0; content.len() - 10]).await
}

async fn zero_all(p: &Probe<'_>, durability: Durability) -> Outcome {
    for ((offset, len), number) in places(p.unit()).into_iter().zip(1..) {
        let (file, mut content) = full(p, &format!("{durability:?}{number}"), number).await?;
        p.done("zero_range", file.zero_range(offset, len, durability).await)?;
        content.resize(content.len().max((offset + len) as usize), 0);
        wipe(&mut content, offset, len);
        p.is(&format!("after zeroing {offset}+{len}"), &file, &content).await?;
        p.done("remove", p.store().remove(p.root(), &format!("{durability:?}{number}")).await)?;
    }
    Ok(())
}

pub(crate) async fn zero(p: &Probe<'_>) -> Outcome {
    zero_all(p, Durability::Durable).await?;
    zero_all(p, Durability::Volatile).await?;
    let (file, mut content) = full(p, "beyond", 50).await?;
    let end = content.len() as u64 + 3 * p.unit();
    p.done("zero beyond the end", file.zero_range(end, 100, Durability::Durable).await)?;
    content.resize(end as usize + 100, 0);
    p.is("zeroing beyond the end grows", &file, &content).await
}

pub(crate) async fn allocate(p: &Probe<'_>) -> Outcome {
    let unit = p.unit();
    let file = p.opened("f").await?;
    p.write(&file, 2 * unit + 17, b"island").await?;
    let mut content = vec![0; 2 * unit as usize + 23];
    content[2 * unit as usize + 17..].copy_from_slice(b"island");
    let allocated =
        async || -> Outcome<u64> { Ok(p.done("info", p.store().info(file.file()).await)?.allocated) };
    p.done("allocate inside", file.allocate(0, 2 * unit, false).await)?;
    p.is("allocation changes nothing", &file, &content).await?;
    p.ensure("what was allocated counts", allocated().await? >= 2 * unit)?;
    p.done("allocate beyond, not growing", file.allocate(8 * unit, 2 * unit, false).await)?;
    p.is("allocation beyond the end changes nothing", &file, &content).await?;
    p.ensure("what was allocated counts", allocated().await? >= 4 * unit)?;
    p.done("allocate across, growing", file.allocate(unit, 8 * unit + 5, true).await)?;
    content.resize(9 * unit as usize + 5, 0);
    p.is("allocation grows", &file, &content).await?;
    p.done("allocate inside, growing", file.allocate(0, unit, true).await)?;
    p.is("it never cuts", &file, &content).await?;
    // Space beyond the end reads as zeros when the file comes to it.
    p.done("set_size", file.set_size(10 * unit).await)?;
    content.resize(10 * unit as usize, 0);
    p.is("grown into the allocation", &file, &content).await
}

pub(crate) async fn ranges(p: &Probe<'_>) -> Outcome {
    let unit = p.unit();
    let file = p.opened("f").await?;
    let size = 1 << 32;
    p.done("set_size", file.set_size(size).await)?;
    let none = p.done("allocated_ranges", file.allocated_ranges(0, size, 100).await)?;
    p.equal("ranges of a hole", none, Vec::new())?;
    let islands: Vec<u64> = (0..9).map(|n| n * (size / 9) / unit * unit).collect();
    for island in &islands {
        p.write(&file, *island, &bytes(*island, 3000, 1)).await?;
        p.write(&file, island + 3 * unit, &bytes(island + 3 * unit, 3000, 1)).await?;
    }
    for limit in [1, 2, 5, 1000] {
        let (mut at, mut found) = (0, Vec::new());
        loop {
            let part = p.done("allocated_ranges", file.allocated_ranges(at, size - at, limit).await)?;
            p.ensure("there are no more than asked for", part.len() <= limit)?;
            let full = part.len() == limit;
            for range in part {
                p.ensure("ranges are in order", range.offset >= at && range.len > 0)?;
                at = range.offset + range.len;
                found.push(range);
            }
            p.ensure("ranges lie in what was asked for", at <= size)?;
            if !full {
                break;
            }
        }
        let covered =
            |at: u64| found.iter().any(|range| (range.offset..range.offset + range.len).contains(&at));
        for island in &islands {
            for at in [*island, island + 2999, island + 3 * unit, island + 3 * unit + 2999] {
                p.ensure(&format!("byte {at} is in a range"), covered(at))?;
            }
        }
    }
    p.equal("no ranges", p.done("ranges", file.allocated_ranges(0, size, 0).await)?, Vec::new())?;
    let part = p.done("ranges", file.allocated_ranges(10, 100, 10).await)?;
    p.equal("cut to what was asked for", part, vec![file_store::Range { offset: 10, len: 100 }])?;
    let beyond = p.done("ranges", file.allocated_ranges(size, size, 10).await)?;
    p.equal("beyond the end", beyond, Vec::new())?;
    p.done("punch", file.punch_hole(0, size).await)?;
    let none = p.done("allocated_ranges", file.allocated_ranges(0, size, 100).await)?;
    p.equal("ranges after punching everything", none, Vec::new())
}
