//! Power cuts after any request of a workload: what was promised is there, and nothing that was not.
//!
//! The oracle keeps, for each 4 KiB block of each file, the values that a reader may find after a cut now: what was
//! last promised, and everything written or begun since. A value names its file, place and write, so that another
//! file's data, or data that was cut off, is recognised as such.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_conformance::{Rng, pattern};
use block_device::{Device, Durability};
use file_store::{FileId, FileStore, OpenFile};

mod snapshots;

use super::devices::Fickle;
use super::{environment, file, on_shard, open};
use crate::{FormatOptions, Volume};

const BLOCK: u64 = 4096;
/// Blocks of a file.
const REACH: u64 = 64;
const FILES: usize = 3;

/// What a sector of a block holds: zero, or the pattern of (file, block, write).
type Value = Option<(u64, u64, u64)>;

#[derive(Clone)]
struct Expected {
    id: FileId,
    /// By block: the values that may be found; the last one is what is there now.
    blocks: Vec<Vec<Value>>,
    /// The sizes, in blocks, that may be found; the last one is the one now.
    sizes: Vec<u64>,
}

impl Expected {
    fn size(&self) -> u64 {
        self.sizes.last().copied().unwrap_or(0)
    }

    fn now(&self, block: u64) -> Value {
        self.blocks[block as usize].last().copied().flatten()
    }

    /// Something begins that may leave these values.
    fn begin(&mut self, range: std::ops::Range<u64>, value: impl Fn(u64) -> Value) {
        for block in range {
            self.blocks[block as usize].push(value(block));
        }
    }

    /// Nothing older than what is there now can be found any more.
    fn settle(&mut self, range: std::ops::Range<u64>) {
        for block in range {
            let now = self.now(block);
            self.blocks[block as usize] = vec![now];
        }
    }

    fn settle_size(&mut self) {
        self.sizes = vec![self.size()];
    }

    fn resize(&mut self, size: u64) {
        self.sizes.push(size);
    }
}

struct Work {
    volume: Arc<Volume>,
    files: Vec<(Arc<dyn OpenFile>, Expected)>,
    rng: Rng,
    write: u64,
    trace: Vec<String>,
    frozen: Vec<snapshots::Frozen>,
}

/// The power is gone.
struct Cut;

fn alive<T, E>(result: Result<T, E>) -> Result<T, Cut> {
    result.map_err(|_| Cut)
}

impl Work {
    async fn step(&mut self) -> Result<(), Cut> {
        let which = self.rng.below(FILES as u64) as usize;
        let first = self.rng.below(REACH - 1);
        let count = 1 + self.rng.below((REACH - first).min(20));
        let range = first..first + count;
        let durable = self.rng.one_in(2);
        let durability = if durable { Durability::Durable } else { Durability::Volatile };
        let kind = self.rng.below(15);
        self.write += 1;
        let (write, id) = (self.write, self.files[which].1.id.0);
        self.trace.push(format!("{write}: kind {kind} file {which} blocks {range:?} durable {durable}"));
        if kind >= 12 {
            return self.snapshot().await;
        }
        let (handle, expected) = &mut self.files[which];
        match kind {
            0..5 => {
                let mut data = IoBuf::new((count * BLOCK) as usize);
                pattern::fill(&mut data, id, first * BLOCK, write);
                let grows = range.end > expected.size();
                expected.begin(range.clone(), |block| Some((id, block, write)));
                if grows {
                    expected.resize(range.end);
                }
                alive(handle.write(first * BLOCK, data.freeze(), durability).await)?;
                if durable {
                    expected.settle(range.clone());
                    // The size covers it; it may be the larger one of an earlier, volatile write.
                    expected.sizes.retain(|size| *size >= range.end);
                }
            }
            5 => {
                let size = expected.size();
                expected.resize(first);
                // What is cut off reads as zeros from now on; before the cut is durable, it may still be there.
                if first < size {
                    expected.begin(first..size, |_| None);
                }
                alive(handle.set_size(first * BLOCK).await)?;
                expected.settle_size();
                if first < size {
                    expected.settle(first..size);
                }
            }
            6 => {
                let end = range.end.min(expected.size());
                if first < end {
                    expected.begin(first..end, |_| None);
                    alive(handle.punch_hole(first * BLOCK, count * BLOCK).await)?;
                    expected.settle(first..end);
                }
            }
            7 => {
                expected.begin(range.clone(), |_| None);
                let grows = range.end > expected.size();
                if grows {
                    expected.resize(range.end);
                }
                alive(handle.zero_range(first * BLOCK, count * BLOCK, durability).await)?;
                if durable {
                    expected.settle(range.clone());
                }
                if grows || durable {
                    expected.sizes.retain(|size| *size >= range.end);
                }
            }
            8 | 9 => self.clone(which, range).await?,
            10 => {
                alive(handle.flush().await)?;
                expected.settle(0..REACH);
                expected.settle_size();
            }
            _ => {
                // Reserving promises space; only one that grows the file says something about its size.
                let grows = durable && range.end > expected.size();
                if grows {
                    expected.resize(range.end);
                }
                alive(handle.allocate(first * BLOCK, count * BLOCK, durable).await)?;
                if grows {
                    expected.sizes.retain(|size| *size >= range.end);
                }
            }
        }
        Ok(())
    }

    async fn clone(&mut self, which: usize, range: std::ops::Range<u64>) -> Result<(), Cut> {
        let from = (which + 1) % FILES;
        let source = self.files[from].1.clone();
        let count = (range.end - range.start).min(source.size().saturating_sub(range.start));
        if count == 0 {
            return Ok(());
        }
        // Half of them where units can be shared.
        let to = if self.rng.one_in(2) { range.start } else { self.rng.below(REACH - count + 1) };
        let target = &mut self.files[which].1;
        target.begin(to..to + count, |block| source.now(block - to + range.start));
        let grows = to + count > target.size();
        if grows {
            target.resize(to + count);
        }
        let (source_id, target_id) = (source.id, target.id);
        let cloned =
            self.volume.clone_range((source_id, range.start * BLOCK), (target_id, to * BLOCK), count * BLOCK);
        alive(cloned.await)?;
        self.files[from].1.settle(range.start..range.start + count);
        let target = &mut self.files[which].1;
        target.settle(to..to + count);
        target.sizes.retain(|size| *size >= to + count);
        Ok(())
    }
}

/// What is found after the power is back must be among what was expected; it then is what is expected.
async fn compare(volume: &Volume, files: &[Expected], what: &str) -> Vec<Expected> {
    let mut found = Vec::new();
    for (number, expected) in files.iter().enumerate() {
        let handle = open(volume, expected.id).await;
        let size = handle.size();
        assert!(
            expected.sizes.iter().any(|blocks| blocks * BLOCK == size),
            "{what}: file {number} has {} blocks, not one of {:?}",
            size / BLOCK,
            expected.sizes
        );
        let mut now = Expected {
            blocks: vec![vec![None]; REACH as usize],
            sizes: vec![size / BLOCK],
            ..expected.clone()
        };
        let bytes = handle.read(0, IoBuf::new(size as usize)).await.expect("read");
        for (block, content) in bytes.chunks(BLOCK as usize).enumerate() {
            for (sector, bytes) in content.chunks(pattern::SECTOR).enumerate() {
                let value = match pattern::identify(bytes) {
                    pattern::Found::Zero => None,
                    pattern::Found::Written { device, offset, generation } => {
                        assert_eq!(
                            offset % BLOCK,
                            (sector * pattern::SECTOR) as u64,
                            "{what}: a sector is misplaced"
                        );
                        Some((device, offset / BLOCK, generation))
                    }
                    pattern::Found::Garbage => panic!("{what}: garbage in block {block} of file {number}"),
                };
                let allowed = &expected.blocks[block];
                assert!(
                    allowed.contains(&value),
                    "{what}: sector {sector} of block {block} of file {number} holds {value:?}, not one of {allowed:?}"
                );
                if !now.blocks[block].contains(&value) {
                    now.blocks[block].push(value);
                }
            }
            // A torn block holds several values; each of its sectors keeps its own.
            now.blocks[block]
                .retain(|value| value.is_some() || content.chunks(512).any(|s| s.iter().all(|b| *b == 0)));
        }
        found.push(now);
    }
    found
}

/// Works until the power goes after `cut` requests, and looks; then once more on what was left.
async fn run(seed: u64, cut: u64, forgetful: bool) -> u64 {
    let mut disk = Arc::new(Fickle::new(14 << 20, seed));
    if forgetful {
        disk = Arc::new(Fickle::new(14 << 20, seed).forgetful());
    }
    let device: Device = disk.clone();
    Volume::format(device, FormatOptions { name: "v".into() }, environment()).await.expect("format");
    let mut expected: Vec<Expected> = Vec::new();
    let mut frozen = Vec::new();
    let mut requests = 0;
    for turn in 0..2u64 {
        let device: Device = disk.clone();
        let volume = Volume::open(device, environment()).await.expect("open");
        let mut files = Vec::new();
        for number in 0..FILES {
            let id = match expected.get(number) {
                Some(expected) => expected.id,
                None => volume.create(volume.root(), &format!("f{number}"), file()).await.expect("create"),
            };
            let fresh = Expected { id, blocks: vec![vec![None]; REACH as usize], sizes: vec![0] };
            let known = expected.get(number).cloned().unwrap_or(fresh);
            files.push((open(&volume, id).await, known));
        }
        // Torn blocks hold several values at once: whole again, so that one value says it all.
        for (handle, known) in &mut files {
            for block in
                (0..known.size()).filter(|block| known.blocks[*block as usize].len() > 1).collect::<Vec<_>>()
            {
                let zero = IoBuf::zeroed(BLOCK as usize).freeze();
                handle.write(block * BLOCK, zero, Durability::Durable).await.expect("write");
                known.blocks[block as usize] = vec![None];
            }
        }
        let before = disk.requests();
        disk.cut_after(if turn == 0 { cut } else { cut / 2 + 1 });
        let rng = Rng::new(seed * 2 + turn);
        let mut work = Work { volume, files, rng, write: turn * 1000, trace: Vec::new(), frozen };
        for _ in 0..60 {
            if work.step().await.is_err() {
                break;
            }
        }
        requests = requests.max(disk.requests() - before);
        let what = format!("seed {seed} cut {cut} turn {turn}:\n  {}\n", work.trace.join("\n  "));
        expected = work.files.drain(..).map(|(_, expected)| expected).collect();
        frozen = std::mem::take(&mut work.frozen);
        let after = disk.after_power_cut(seed ^ cut);
        // The old volume goes on in the background, on a disk without power.
        disk.cut_after(0);
        work.volume.core.closing.store(true, std::sync::atomic::Ordering::SeqCst);
        disk = Arc::new(after);
        let device: Device = disk.clone();
        let volume = Volume::open(device, environment()).await.unwrap_or_else(|e| panic!("{what}: {e}"));
        expected = compare(&volume, &expected, &what).await;
        frozen = snapshots::compare(&volume, &frozen, &what).await;
        assert_eq!(volume.check_deep().await.expect("check"), Vec::new(), "{what}");
        volume.close().await.expect("close");
    }
    requests
}

/// Cuts that are tried for each seed; all of them with `CRASH_CUTS=1000000 cargo test --release -p volume crash`.
fn cuts() -> u64 {
    std::env::var("CRASH_CUTS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

#[test]
fn what_was_promised_survives_a_power_cut_anywhere() {
    for seed in 0..4 {
        let all = on_shard(run(seed, u64::MAX / 4, false));
        let step = (all / cuts()).max(1);
        for cut in (1..all).step_by(step as usize) {
            on_shard(run(seed, cut, seed % 4 == 3));
        }
    }
}
