//! I/O on a `BlockDevice` of one shard: what pool and engine cost, without a network.
//!
//! ```text
//!   bench KIND randread|randwrite DEPTH SECONDS MIB FOLDER
//!   bench KIND seqwrite DEPTH 0 MIB FOLDER
//! ```
//! KIND is `local` (a file) or a space (`devices.rs`). Makes file disks in FOLDER, writes MIB once, then keeps DEPTH
//! requests of 4 KiB in flight for SECONDS. Writes are durable when they complete, as those of a LUN are. Prints `iops=…
//! cpu_us_per_io=…`. `seqwrite` writes MIB once from the beginning, in requests of 1 MiB of which DEPTH are under way,
//! and flushes: `mib_per_s=… cpu_ms_per_gib=…`.

mod devices;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aligned_buffer::{IoBuf, SharedBuf};
use block_device::{Device, Durability};
use devices::Failure;
use futures_util::stream::{self, StreamExt};
use shard_runtime::{Clock, Entropy as _, SeededEntropy, Shards, SystemClock};

/// Size of one request.
const BLOCK: u64 = 4096;
/// Size of one request while the device is filled.
const FILL: u64 = 1 << 20;

#[derive(Clone)]
struct Load {
    kind: String,
    mode: String,
    depth: usize,
    seconds: u64,
    bytes: u64,
    folder: std::path::PathBuf,
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, mode, depth, seconds, mib, folder, ..] = words.as_slice() else {
        return Err("usage: bench KIND randread|randwrite|seqwrite DEPTH SECONDS MIB FOLDER".into());
    };
    let load = Load {
        kind: kind.clone(),
        mode: mode.clone(),
        depth: depth.parse()?,
        seconds: seconds.parse()?,
        bytes: mib.parse::<u64>()? << 20,
        folder: folder.into(),
    };
    let shards = Shards::start(1)?;
    let shard = shards.next().clone();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let line = runtime.block_on(shard.run(move || run(load)))??;
    println!("{line} engine={}", shards.engine().0);
    shards.stop();
    Ok(())
}

async fn run(load: Load) -> Result<String, Failure> {
    let clock = Arc::new(SystemClock::new());
    let (device, pool) = devices::open(&load.kind, load.bytes, &load.folder, clock.clone()).await?;
    // Zeros would not be written at all where the space is new.
    let data = IoBuf::copy_from(&[0x5a; FILL as usize]).freeze();
    if load.mode == "seqwrite" {
        let line = in_sequence(&load, &device, &data, &clock).await?;
        if let Some(pool) = pool {
            pool.close().await?;
        }
        return Ok(line);
    }
    for at in (0..load.bytes).step_by(FILL as usize) {
        device.write(at, data.clone(), Durability::Volatile).await?;
    }
    device.flush().await?;

    let done = Arc::new(AtomicU64::new(0));
    let end = clock.now().0 + Duration::from_secs(load.seconds).as_nanos() as u64;
    let (start, cpu) = (clock.now(), cpu_ticks()?);
    let mut workers = Vec::new();
    for worker in 0..load.depth {
        let (device, done, clock) = (device.clone(), done.clone(), clock.clone());
        let (write, blocks) = (load.mode == "randwrite", load.bytes / BLOCK);
        let data = data.slice(0..BLOCK as usize);
        workers.push(shard_runtime::spawn_local(async move {
            let random = SeededEntropy::new(worker as u64);
            while clock.now().0 < end {
                let at = random.next_u64() % blocks * BLOCK;
                if write {
                    device.write(at, data.clone(), Durability::Durable).await?;
                } else {
                    device.read(at, IoBuf::new(BLOCK as usize)).await?;
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), Failure>(())
        }));
    }
    for worker in workers {
        worker.await??;
    }
    let seconds = clock.now().since(start).as_secs_f64();
    let (count, used) = (done.load(Ordering::Relaxed), cpu_ticks()? - cpu);
    if let Some(pool) = pool {
        pool.close().await?;
    }
    // A tick of /proc is 10 ms.
    Ok(format!(
        "iops={:.0} cpu_us_per_io={:.2}",
        count as f64 / seconds,
        used as f64 * 1e4 / count.max(1) as f64
    ))
}

/// Writes everything once, in long requests one behind the other.
async fn in_sequence(
    load: &Load,
    device: &Device,
    data: &SharedBuf,
    clock: &SystemClock,
) -> Result<String, Failure> {
    let (start, cpu) = (clock.now(), cpu_ticks()?);
    let requests = (0..load.bytes).step_by(FILL as usize);
    let mut writes = stream::iter(requests.map(|at| device.write(at, data.clone(), Durability::Volatile)))
        .buffered(load.depth);
    while let Some(written) = writes.next().await {
        written?;
    }
    device.flush().await?;
    let (seconds, used) = (clock.now().since(start).as_secs_f64(), cpu_ticks()? - cpu);
    Ok(format!(
        "mib_per_s={:.0} cpu_ms_per_gib={:.0}",
        load.bytes as f64 / (1 << 20) as f64 / seconds,
        used as f64 * 10.0 * (1u64 << 30) as f64 / load.bytes as f64
    ))
}

/// Processor time of this process, user and system, in ticks of 10 ms.
fn cpu_ticks() -> Result<u64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks = |n: usize| fields.get(n).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    Ok(ticks(11) + ticks(12))
}
