//! Random operations against an exact oracle: one generation for each block.

use block_device::{Device, Durability, UnmapBehavior};
use futures_util::future::join_all;

use crate::check::{Failure, Outcome, data, done, holds, put};
use crate::{Options, Rng};

/// Blocks of the test area; small, so that operations meet.
const AREA: u64 = 192;
/// Places in flight together in a concurrent step, each with its own part of the area.
const LANES: u64 = 8;

/// Runs `options.random_ops` operations; every read must show exactly what was last written.
pub(crate) async fn random_operations(device: &Device, options: Options) -> Outcome {
    let block = u64::from(device.geometry().block_size);
    let result = run(device, options, block).await;
    result.map_err(|failure| failure.with_seed(options.seed))
}

async fn run(device: &Device, options: Options, block: u64) -> Outcome {
    let group = "random operations";
    let mut rng = Rng::new(options.seed);
    // The area lies at the end of the device, where off-by-one errors live.
    let start = (device.size() / block - AREA) * block;
    let mut generations = vec![1_u64; AREA as usize];
    put(group, device, start, AREA * block, 1).await?;
    let mut step = 0;
    let mut next = 2;
    while step < options.random_ops {
        let lanes = if rng.one_in(3) { LANES } else { 1 };
        let width = AREA / lanes;
        let work: Vec<Op> = (0..lanes)
            .map(|lane| {
                next += 1;
                Op::random(&mut rng, lane * width, width, next, device.geometry().unmap)
            })
            .collect();
        let before = &generations;
        let all = work.iter().map(|op| op.apply(device, start, block, before));
        for outcome in join_all(all).await {
            outcome?;
        }
        for op in &work {
            op.record(&mut generations);
        }
        step += lanes as u32;
    }
    holds(group, device, start, AREA * block, |place| generations[((place - start) / block) as usize]).await
}

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write(Durability),
    Zero(Durability),
    Unmap(UnmapBehavior),
    Flush,
}

struct Op {
    kind: Kind,
    first: u64,
    count: u64,
    generation: u64,
}

impl Op {
    fn random(rng: &mut Rng, base: u64, width: u64, generation: u64, unmap: UnmapBehavior) -> Self {
        let at = rng.below(width);
        let longest = if rng.one_in(4) { width - at } else { (width - at).min(5) };
        let count = 1 + rng.below(longest);
        let durability = if rng.one_in(3) { Durability::Durable } else { Durability::Volatile };
        let kind = match rng.below(16) {
            0..5 => Kind::Read,
            5..11 => Kind::Write(durability),
            11..13 => Kind::Zero(durability),
            // Content that may change by itself has no exact oracle.
            13..15 if unmap != UnmapBehavior::Unspecified => Kind::Unmap(unmap),
            _ => Kind::Flush,
        };
        Self { kind, first: base + at, count, generation }
    }

    async fn apply(&self, device: &Device, start: u64, block: u64, generations: &[u64]) -> Outcome {
        let group = "random operations";
        let (offset, len) = (start + self.first * block, self.count * block);
        match self.kind {
            Kind::Read => {
                let expect = |place: u64| generations[((place - start) / block) as usize];
                holds(group, device, offset, len, expect).await
            }
            Kind::Write(durability) => {
                let buf = data(offset, len as usize, self.generation);
                done(group, "write", device.write(offset, buf, durability).await)
            }
            Kind::Zero(durability) => {
                done(group, "write_zeroes", device.write_zeroes(offset, len, durability).await)
            }
            Kind::Unmap(_) => done(group, "unmap", device.unmap(offset, len).await),
            Kind::Flush => done(group, "flush", device.flush().await),
        }
    }

    fn record(&self, generations: &mut [u64]) {
        let value = match self.kind {
            Kind::Write(_) => self.generation,
            Kind::Zero(_) | Kind::Unmap(UnmapBehavior::Zeroes) => 0,
            Kind::Read | Kind::Unmap(_) | Kind::Flush => return,
        };
        generations[self.first as usize..(self.first + self.count) as usize].fill(value);
    }
}

impl Failure {
    fn with_seed(self, seed: u64) -> Self {
        self.adding(&format!(" (seed {seed})"))
    }
}
