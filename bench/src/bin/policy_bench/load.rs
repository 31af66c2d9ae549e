//! A load on a device for a time.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{Device, Durability};
use shard_runtime::{Clock, Entropy as _, SeededEntropy, SystemClock};

use crate::Failure;

/// What is done.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mode {
    RandomRead,
    RandomWrite,
    SequentialRead,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RandomRead => "randread",
            Self::RandomWrite => "randwrite",
            Self::SequentialRead => "seqread",
        }
    }
}

/// What, how large, how much at once, in the first how many bytes of a device.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) mode: Mode,
    pub(crate) size: u64,
    pub(crate) depth: usize,
    pub(crate) bytes: u64,
}

/// What came of it.
pub(crate) struct Figures {
    pub(crate) iops: f64,
    /// Processor time of the process for each operation, in microseconds.
    pub(crate) cpu_us: f64,
}

/// Runs a load.
pub(crate) async fn run(
    device: &Device,
    durability: Durability,
    load: Load,
    time: Duration,
    clock: &Arc<SystemClock>,
) -> Result<Figures, Failure> {
    let (start, cpu) = (clock.now(), cpu_ticks()?);
    let end = start.0 + time.as_nanos() as u64;
    let done = Rc::new(Cell::new(0_u64));
    let data = IoBuf::zeroed(load.size as usize).freeze();
    let mut workers = Vec::new();
    for worker in 0..load.depth {
        let (device, done, clock, data) = (device.clone(), done.clone(), clock.clone(), data.clone());
        workers.push(shard_runtime::spawn_local(async move {
            let random = SeededEntropy::new(start.0 ^ (worker as u64 + 1).wrapping_mul(0x9e37_79b9));
            let places = load.bytes / load.size;
            let mut next = 0;
            while clock.now().0 < end {
                let place = if load.mode == Mode::SequentialRead {
                    next % places
                } else {
                    random.next_u64() % places
                };
                next += 1;
                if load.mode == Mode::RandomWrite {
                    device.write(place * load.size, data.clone(), durability).await?;
                } else {
                    device.read(place * load.size, IoBuf::new(load.size as usize)).await?;
                }
                done.set(done.get() + 1);
                if next % 64 == 0 {
                    // What is answered from memory never waits, and must not keep others from their turn.
                    shard_runtime::yield_now().await;
                }
            }
            Ok::<(), Failure>(())
        }));
    }
    for worker in workers {
        worker.await??;
    }
    let seconds = clock.now().since(start).as_secs_f64();
    let count = done.get().max(1) as f64;
    // A tick of /proc is 10 ms.
    Ok(Figures { iops: count / seconds, cpu_us: (cpu_ticks()? - cpu) as f64 * 1e4 / count })
}

/// Processor time of this process, user and system, in ticks of 10 ms.
fn cpu_ticks() -> Result<u64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks = |n: usize| fields.get(n).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    Ok(ticks(11) + ticks(12))
}
