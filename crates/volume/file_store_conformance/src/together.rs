//! Operations on data in flight together.
//!
//! Most checks have *lanes*: each owns some blocks, works on them one operation after another, and knows exactly
//! what they hold, whatever the other lanes do next to it. Lanes own blocks, not units, so that they meet in
//! whatever the store keeps for each unit.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::ready;

use aligned_buffer::IoBuf;
use block_conformance::Rng;
use block_device::Durability;
use file_store::FileId;
use futures_util::future::{Either, join_all, select, try_join_all};

use crate::Outcome;
use crate::check::{File, Probe, buffer, bytes};

/// The block of the contract's atomicity, in bytes.
const BLOCK: u64 = 4096;
/// Lanes in flight together.
const LANES: u64 = 12;

fn durability(rng: &mut Rng) -> Durability {
    if rng.one_in(2) { Durability::Durable } else { Durability::Volatile }
}

/// A lane's operations on `blocks`, each checked.
async fn work(p: &Probe<'_>, file: &File, blocks: &[u64], lane: u64, steps: u64, holes: bool) -> Outcome {
    let mut rng = Rng::new(p.options.seed ^ (lane << 32));
    let mut known: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for step in 0..steps {
        let block = blocks[rng.below(blocks.len() as u64) as usize];
        let at = block * BLOCK;
        let content = known.entry(block).or_insert_with(|| vec![0; BLOCK as usize]);
        let from = if rng.one_in(2) { 0 } else { rng.below(BLOCK - 1) };
        let len = if from == 0 && rng.one_in(2) { BLOCK } else { 1 + rng.below(BLOCK - from) };
        let range = from as usize..(from + len) as usize;
        let what = format!("block {block} of lane {lane}, step {step}");
        match rng.below(if holes { 8 } else { 6 }) {
            0..3 => {
                let data = bytes(at + from, len, lane * 100_000 + step);
                let written = file.write(at + from, buffer(&data), durability(&mut rng)).await;
                p.done(&what, written)?;
                content[range].copy_from_slice(&data);
            }
            3 => {
                let data = bytes(at + from, len, lane * 100_000 + step);
                let old = buffer(&content[range.clone()]);
                let compared = file.compare_and_write(at + from, old, buffer(&data)).await;
                p.equal(&format!("the difference in {what}"), p.done(&what, compared)?, None)?;
                content[range].copy_from_slice(&data);
            }
            4 => {
                p.done(&what, file.zero_range(at + from, len, durability(&mut rng)).await)?;
                content[range].fill(0);
            }
            5 => {}
            6 => {
                p.done(&what, file.punch_hole(at + from, len).await)?;
                content[range].fill(0);
            }
            _ => p.done(&what, file.allocate(at + from, len, false).await)?,
        }
        p.holds(&what, file, at, content).await?;
    }
    for (block, content) in known {
        p.holds(&format!("block {block} of lane {lane} at the end"), file, block * BLOCK, &content).await?;
    }
    Ok(())
}

pub(crate) async fn disjoint(p: &Probe<'_>) -> Outcome {
    let file = p.opened("f").await?;
    let count = 8 * p.unit() / BLOCK;
    p.done("set_size", file.set_size(count * BLOCK).await)?;
    let lanes = (0..LANES).map(|lane| {
        let (file, blocks) = (&file, (0..count).filter(|b| b % LANES == lane).collect::<Vec<_>>());
        async move { work(p, file, &blocks, lane, 60, true).await }
    });
    try_join_all(lanes).await?;
    p.equal("the size", file.size(), count * BLOCK)
}

pub(crate) async fn overlapping(p: &Probe<'_>) -> Outcome {
    let file = p.opened("f").await?;
    let source = p.opened("source").await?;
    let area = 40;
    let mut rng = Rng::new(p.options.seed);
    p.write(&source, 0, &bytes(0, area * BLOCK, 1)).await?;
    for round in 0..12_u64 {
        // Every other round on storage that is shared.
        if round % 2 == 0 {
            let cloned = p.store().clone_range((source.file(), 0), (file.file(), 0), area * BLOCK).await;
            p.done("clone", cloned)?;
        }
        let before = p.read(&file, 0, area * BLOCK).await?;
        let base = 100 * (round + 1);
        let ranges: Vec<(u64, u64, u64)> = (base..base + 10)
            .map(|generation| {
                let at = rng.below(area);
                (at, 1 + rng.below(area - at), generation)
            })
            .collect();
        let writes = ranges.iter().map(|(at, count, generation)| {
            let data = buffer(&bytes(at * BLOCK, count * BLOCK, *generation));
            file.write(at * BLOCK, data, Durability::Durable)
        });
        for written in join_all(writes).await {
            p.done("write", written)?;
        }
        let found = p.read(&file, 0, area * BLOCK).await?;
        for block in 0..area {
            let range = (block * BLOCK) as usize..((block + 1) * BLOCK) as usize;
            let covering: Vec<u64> = ranges
                .iter()
                .filter(|(at, count, _)| (*at..at + count).contains(&block))
                .map(|(.., generation)| *generation)
                .collect();
            let winner = |generation: &u64| bytes(block * BLOCK, BLOCK, *generation) == found[range.clone()];
            let fine = match covering.as_slice() {
                [] => found[range.clone()] == before[range.clone()],
                some => some.iter().any(winner),
            };
            let what = format!("block {block} holds one of the writes {covering:?} (round {round})");
            p.ensure(&what, fine)?;
        }
        p.equal("another read", p.read(&file, 0, area * BLOCK).await? == found, true)?;
    }
    p.is("the source", &source, &bytes(0, area * BLOCK, 1)).await
}

pub(crate) async fn growing(p: &Probe<'_>) -> Outcome {
    for round in 0..6 {
        let file = p.opened(&format!("f{round}")).await?;
        let piece = |n: u64| (n * 7001, 5000 + n * 13 % 2000);
        let pieces: Vec<u64> = (0..40).collect();
        let mut rng = Rng::new(p.options.seed ^ round);
        let mut order = pieces.clone();
        for n in (1..order.len()).rev() {
            order.swap(n, rng.below(n as u64 + 1) as usize);
        }
        let writes = order.iter().map(|n| {
            let ((at, len), kind) = (piece(*n), durability(&mut rng));
            file.write(at, buffer(&bytes(at, len, *n)), kind)
        });
        for written in join_all(writes).await {
            p.done("write", written)?;
        }
        let (last, len) = piece(39);
        p.equal("the size", file.size(), last + len)?;
        for n in pieces {
            let ((at, len), next) = (piece(n), piece(n + 1).0);
            p.holds(&format!("piece {n}"), &file, at, &bytes(at, len, n)).await?;
            if n < 39 {
                p.holds("between pieces", &file, at + len, &vec![0; (next - at - len) as usize]).await?;
            }
        }
        p.done("flush", file.flush().await)?;
    }
    Ok(())
}

pub(crate) async fn clones(p: &Probe<'_>) -> Outcome {
    let store = p.store();
    let source = p.opened("source").await?;
    let count = 4 * p.unit() / BLOCK;
    let generation = |write: u64| move |block: u64| bytes(block * BLOCK, BLOCK, write);
    for block in 0..count {
        p.write(&source, block * BLOCK, &generation(1)(block)).await?;
    }
    // What each block holds at least, and what has been begun.
    let (done, begun): (Vec<Cell<u64>>, Vec<Cell<u64>>) = (0..count).map(|_| (1.into(), 1.into())).unzip();
    let (done, begun, source) = (&done, &begun, &source);
    let writer = |lane: u64| async move {
        let mut rng = Rng::new(p.options.seed ^ lane);
        for write in 2..40 {
            let block = rng.below(count / LANES) * LANES + lane;
            begun[block as usize].set(write);
            p.write(source, block * BLOCK, &generation(write)(block)).await?;
            done[block as usize].set(write);
            p.holds("what was just written", source, block * BLOCK, &generation(write)(block)).await?;
        }
        Ok(())
    };
    let cloner = async {
        for number in 0..20 {
            let copy = p.opened(&format!("copy{number}")).await?;
            let least: Vec<u64> = done.iter().map(Cell::get).collect();
            let cloned = store.clone_range((source.file(), 0), (copy.file(), 0), count * BLOCK).await;
            p.done("clone", cloned)?;
            let most: Vec<u64> = begun.iter().map(Cell::get).collect();
            for block in 0..count {
                let found = p.read(&copy, block * BLOCK, BLOCK).await?;
                let mut writes = least[block as usize]..=most[block as usize];
                let fine = writes.any(|write| generation(write)(block) == found);
                p.ensure(&format!("block {block} of copy {number} is one the source had"), fine)?;
            }
            // All blocks of a unit that is shared, at once.
            let lanes = (0..LANES).map(|lane| {
                let blocks: Vec<u64> = (0..count).filter(|block| block % LANES == lane).collect();
                let copy = &copy;
                async move {
                    let mut rng = Rng::new(p.options.seed ^ (lane << 30) ^ number);
                    for block in blocks.iter().take(6) {
                        // Not in step, so that one lane comes when another is half-way.
                        for _ in 0..rng.below(4) {
                            p.pause().await;
                        }
                        p.write(copy, block * BLOCK, &generation(1000 + lane)(*block)).await?;
                    }
                    for block in blocks.iter().take(6) {
                        let wanted = generation(1000 + lane)(*block);
                        p.holds(&format!("block {block} of a copy"), copy, block * BLOCK, &wanted).await?;
                    }
                    Ok(())
                }
            });
            try_join_all(lanes).await?;
            drop(copy);
            p.done("remove", store.remove(p.root(), &format!("copy{number}")).await)?;
        }
        Ok(())
    };
    let writers = try_join_all((0..LANES).map(writer));
    let (written, cloned) = futures_util::future::join(writers, cloner).await;
    written?;
    cloned?;
    for block in 0..count {
        let wanted = generation(done[block as usize].get())(block);
        p.holds(&format!("block {block} at the end"), source, block * BLOCK, &wanted).await?;
    }
    Ok(())
}

pub(crate) async fn holes(p: &Probe<'_>) -> Outcome {
    // Units that lie side by side, so that a punched range has mapped and missing ones.
    const GROUP: u64 = 4;
    let unit = p.unit();
    let file = p.opened("f").await?;
    let groups = 2 * LANES;
    p.done("set_size", file.set_size(groups * GROUP * unit).await)?;
    let lanes = (0..LANES).map(|lane| {
        let file = &file;
        async move {
            let mut rng = Rng::new(p.options.seed ^ (lane << 40));
            let mut known: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
            for step in 0..40 {
                let first = rng.below(GROUP);
                let count = 1 + rng.below(GROUP - first);
                let at = ((rng.below(groups / LANES) * LANES + lane) * GROUP + first) * unit;
                let what = format!("units at {at}, step {step}");
                match rng.below(4) {
                    0 | 1 => {
                        let data = bytes(at, unit, step * LANES + lane);
                        let written = file.write(at, buffer(&data), durability(&mut rng)).await;
                        p.done(&what, written)?;
                        known.insert(at, data);
                    }
                    2 => {
                        p.done(&what, file.punch_hole(at, count * unit).await)?;
                        known.extend((0..count).map(|n| (at + n * unit, vec![0; unit as usize])));
                    }
                    _ => p.done(&what, file.allocate(at, count * unit, false).await)?,
                }
                for (at, content) in known.range(at..at + count * unit) {
                    p.holds(&what, file, *at, content).await?;
                }
                if rng.one_in(3) {
                    p.pause().await;
                }
            }
            for (at, content) in known {
                p.holds(&format!("unit at {at} at the end"), file, at, &content).await?;
            }
            Ok(())
        }
    });
    try_join_all(lanes).await.map(drop)
}

/// Opens, writes, and closes at once; some writes are given up half-way.
async fn visit(p: &Probe<'_>, id: FileId, lane: u64, count: u64) -> Outcome {
    let mut rng = Rng::new(p.options.seed ^ (lane << 20));
    let mut known: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for step in 0..20 {
        let file = p.open(id).await?;
        let block = rng.below(count / LANES) * LANES + lane;
        let at = block * BLOCK;
        // Blocks of even units are written; in those of odd ones, writes are given up, and they hold anything.
        let data = bytes(at, BLOCK, step * LANES + lane);
        let write = file.write(at, buffer(&data), durability(&mut rng));
        if (at / p.unit()).is_multiple_of(2) {
            p.done("write", write.await)?;
            known.insert(block, data);
        } else if let Either::Left((written, _)) = select(write, ready(())).await {
            p.done("write", written)?;
        }
        drop(file);
        let file = p.open(id).await?;
        for (block, content) in &known {
            let what = format!("block {block} of lane {lane} after closing, step {step}");
            p.holds(&what, &file, block * BLOCK, content).await?;
        }
    }
    Ok(())
}

pub(crate) async fn closing(p: &Probe<'_>) -> Outcome {
    let file = p.opened("f").await?;
    let count = 16 * p.unit() / BLOCK / LANES * LANES;
    p.done("set_size", file.set_size(16 * p.unit()).await)?;
    let id = file.file();
    drop(file);
    // One lane after the other first, so that the file is often not open at all; then all together.
    for lane in 0..3 {
        visit(p, id, lane, count).await?;
    }
    try_join_all((3..LANES).map(|lane| visit(p, id, lane, count))).await?;
    let file = p.open(id).await?;
    p.done("read", file.read(0, IoBuf::new(1 << 20)).await)?;
    p.equal("the size", file.size(), 16 * p.unit())
}
