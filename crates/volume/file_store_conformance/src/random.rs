//! Random operations: the store and the one in memory, side by side.

use std::sync::Arc;

use block_conformance::Rng;
use file_store::MemoryStore;

use crate::check::Probe;
use crate::sides::{Op, Side};
use crate::{MAX_CAPACITY, Outcome};

/// Names that operations choose from; few, so that they meet.
const NAMES: [&str; 10] = ["a", "B", "b", "Straße", "STRASSE", "c", "d", "E", "bad/name", "."];
/// Named streams.
const STREAMS: [&str; 4] = ["", "s", "S", "Zone.Identifier"];
/// Snapshots.
const SNAPSHOTS: [&str; 3] = ["s1", "s2", "S1"];
/// Files there may be: beyond it nothing is created.
const FILES: usize = 40;
/// Reach of data within a file.
const REACH: u64 = 400_000;
/// Operations that a failure shows.
const SHOWN: usize = 12;

fn choose<'a>(rng: &mut Rng, names: &[&'a str]) -> String {
    let name: &'a str = names[rng.below(names.len() as u64) as usize];
    name.to_owned()
}

/// An offset and a length: at the edges of blocks and units, or anywhere.
fn place(rng: &mut Rng, unit: u64) -> (u64, u64) {
    let near = |rng: &mut Rng, step: u64| {
        let edge = rng.below(REACH / step + 1) * step;
        (edge + rng.below(3)).saturating_sub(1)
    };
    let (offset, len) = match rng.below(4) {
        0 => (rng.below(REACH), 1 + rng.below(9000)),
        1 => (near(rng, 4096), 1 + near(rng, 4096)),
        2 => (near(rng, unit), 1 + near(rng, unit)),
        _ => (rng.below(REACH / 4096) * 4096, (1 + rng.below(40)) * 4096),
    };
    (offset, len.min(REACH))
}

fn data_op(rng: &mut Rng, opens: usize, unit: u64) -> Op {
    // The latest opens are the ones that are still there.
    let open = opens.saturating_sub(1 + rng.below(6) as usize);
    let ((offset, len), durable) = (place(rng, unit), rng.one_in(2));
    let generation = rng.below(1000);
    match rng.below(16) {
        0..6 => Op::Write { open, offset, len, generation, durable },
        6 | 7 => Op::Read { open, offset, len },
        8 => Op::Compare { open, offset, len: 1 + len % 5000, generation },
        9 => Op::Zero { open, offset, len, durable },
        10 => Op::Punch { open, offset, len },
        11 => Op::Allocate { open, offset, len, grow: durable },
        12 | 13 => Op::SetSize { open, size: offset },
        14 => Op::Flush { open },
        _ => Op::Ranges { open, offset, len },
    }
}

fn any_op(rng: &mut Rng, files: usize, opens: usize, unit: u64) -> Op {
    let recent = |rng: &mut Rng| {
        let back = if rng.one_in(2) { 5 } else { files as u64 };
        files - 1 - rng.below(back.min(files as u64)) as usize
    };
    let (file, other) = (recent(rng), recent(rng));
    // Most names are in the root, so that they meet.
    let directory = |rng: &mut Rng, file: usize| if rng.one_in(3) { file } else { 0 };
    let (here, there) = (directory(rng, file), directory(rng, other));
    let (name, second) = (choose(rng, &NAMES), choose(rng, &NAMES));
    match rng.below(48) {
        0..4 if files < FILES => {
            let security = rng.below(3) as usize * 100;
            Op::Create { directory: here, name, directory_kind: rng.one_in(3), security }
        }
        0..4 => Op::Remove { directory: here, name },
        4 => Op::Remove { directory: here, name },
        5 | 6 => Op::Rename { from: (here, name), to: (there, second), replace: rng.one_in(2) },
        7 => Op::Lookup { directory: here, name },
        8 => Op::List { directory: here, limit: 1 + rng.below(9) as usize },
        9 => Op::Info { file },
        10 => Op::SetInfo { file, attributes: rng.below(1 << 32) as u32 },
        11 => Op::SetSecurity { file, len: rng.below(70_000) as usize },
        12 => Op::Security { file },
        13 => Op::Streams { file },
        14 => Op::RemoveStream { file, stream: choose(rng, &STREAMS) },
        15..18 => Op::Open {
            file,
            stream: if rng.one_in(3) { choose(rng, &STREAMS) } else { String::new() },
            create: rng.one_in(2),
            access: if rng.one_in(4) { rng.below(8) as u8 } else { 3 },
            share: if rng.one_in(4) { rng.below(8) as u8 } else { 7 },
        },
        18 => Op::Close { open: opens.saturating_sub(1 + rng.below(8) as usize) },
        19..23 => {
            let ((from, len), (to, _)) = (place(rng, unit), place(rng, unit));
            let to = if rng.one_in(2) { to / unit * unit + from % unit } else { to };
            Op::Clone { source: (file, from), target: (other, to), len }
        }
        23 => Op::State { key: rng.below(6) as u8, value: (!rng.one_in(3)).then(|| rng.below(256) as u8) },
        24 => {
            let snapshot = choose(rng, &SNAPSHOTS);
            match rng.below(7) {
                0 | 1 => Op::Snapshot { file: here, name: snapshot },
                2 | 3 => Op::View { name: snapshot },
                4 => Op::Forget { name: snapshot },
                5 if files < FILES => Op::CloneTree { file, directory: there, name: second },
                _ if files < FILES => Op::Restore { snapshot, directory: there, name: second },
                _ => Op::View { name: snapshot },
            }
        }
        25 => Op::Scan { prefix: (!rng.one_in(3)).then(|| rng.below(6) as u8) },
        26 | 27 => Op::Link { file, to: (there, second), replace: rng.one_in(3) },
        28 => Op::NamesOf { file },
        29 => Op::RenameStream {
            file,
            from: choose(rng, &STREAMS),
            to: choose(rng, &STREAMS),
            replace: rng.one_in(2),
        },
        _ => data_op(rng, opens, unit),
    }
}

/// Does the same to both and compares what they say and hold.
pub(crate) async fn operations(p: &Probe<'_>) -> Outcome {
    let mut rng = Rng::new(p.options.seed);
    let mut tested = Side::new(p.store());
    let mut model = Side::new(Arc::new(MemoryStore::new(MAX_CAPACITY)));
    let mut trace: Vec<String> = Vec::new();
    let outcome = async {
        for step in 0..p.options.random_ops {
            if step % 100 == 99 {
                tested.close_all();
                model.close_all();
                trace.push(format!("{step}: close and open the store"));
                // The store is let go of, so that it can be closed.
                tested.store = Arc::new(MemoryStore::new(0));
                p.reopen().await?;
                tested.store = p.store();
            }
            let op = any_op(&mut rng, model.files(), model.opens(), p.unit());
            trace.push(format!("{step}: {op:?}"));
            let (found, wanted) = (tested.apply(&op).await, model.apply(&op).await);
            if found != wanted {
                return p.fail(format!("step {step} answers {}, not {}", short(&found), short(&wanted)));
            }
            for open in model.opens().saturating_sub(6)..model.opens() {
                let (found, wanted) = (tested.content(open).await, model.content(open).await);
                if found != wanted {
                    let place = first_difference(found.as_ref(), wanted.as_ref());
                    return p.fail(format!("after step {step}, open {open} differs {place}"));
                }
            }
        }
        tested.close_all();
        model.close_all();
        Ok(())
    };
    let seed = p.options.seed;
    let outcome = outcome.await;
    outcome.map_err(|failure| {
        let last = &trace[trace.len().saturating_sub(SHOWN)..];
        failure.adding(&format!(" (seed {seed}; the last operations:\n  {})", last.join("\n  ")))
    })
}

/// The beginning of an answer.
fn short(answer: &impl std::fmt::Debug) -> String {
    format!("{answer:?}").chars().take(300).collect()
}

type Content = (u64, Vec<u8>);

fn first_difference(found: Option<&Content>, wanted: Option<&Content>) -> String {
    match (found, wanted) {
        (Some((size, _)), Some((other, _))) if size != other => format!("in size: {size}, not {other}"),
        (Some((_, found)), Some((_, wanted))) => {
            let at = found.iter().zip(wanted).position(|(a, b)| a != b).unwrap_or_default();
            let count = found.iter().zip(wanted).filter(|(a, b)| a != b).count();
            format!("at byte {at} and in {count} bytes: {:#x}, not {:#x}", found[at], wanted[at])
        }
        (found, _) => format!("in that it can{} be read", if found.is_some() { "" } else { "not" }),
    }
}
