//! What dirty regions cost: random overwrites of a space over spans of any width, and what a kill then leaves to be settled.
//!
//! ```text
//!   dirty_bench KIND SPAN_MIB DEPTH SECONDS FOLDER [RESYNC_MIB]
//! ```
//! KIND is that of a space (`devices.rs`) on file disks in FOLDER, of which only what is written takes room: PLACES blocks of 4 KiB
//! that lie evenly over SPAN_MIB, whatever that is. They are written once, then overwritten at random, durably, DEPTH at a time: for
//! WARM seconds, then for SECONDS that are measured. Prints the writes in a second (`iops`), the processor time of one (`cpu_us`), its
//! 99th percentile (`p99_us`), how many times in 1,000 writes the metadata was written durably (`log_per_1000`), and the bytes that the
//! pool reckons a crash to cost (`dirty_mib`). Then the pool is left as by a kill and opened again: what it has to settle
//! (`resync_mib`). RESYNC_MIB is the limit of that; without it the pool's own.

#[path = "../devices.rs"]
mod devices;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{Device, Durability};
use block_local::{LocalDisk, OpenMode};
use devices::Failure;
use pool::{DirtyParams, MemoryWitness, OpenOptions, Pool, Surroundings};
use shard_runtime::{Clock, Entropy as _, SeededEntropy, Shards, SystemClock, SystemEntropy};

/// Size of a write, in bytes.
const BLOCK: u64 = 4096;
/// Blocks that are written: 512 MiB, so that memory holds them on every disk.
const PLACES: u64 = 128 << 10;
/// Seconds before those that are measured.
const WARM: u64 = 15;

struct Load {
    kind: String,
    span: u64,
    depth: usize,
    seconds: u64,
    folder: PathBuf,
    resync: Option<u64>,
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, span, depth, seconds, folder, resync @ ..] = words.as_slice() else {
        return Err("usage: dirty_bench KIND SPAN_MIB DEPTH SECONDS FOLDER [RESYNC_MIB]".into());
    };
    let load = Load {
        kind: kind.clone(),
        span: span.parse::<u64>()? << 20,
        depth: depth.parse()?,
        seconds: seconds.parse()?,
        folder: folder.into(),
        resync: resync.first().map(|mib| mib.parse::<u64>()).transpose()?.map(|mib| mib << 20),
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
    let (device, pool) = devices::open(&load.kind, load.span, &load.folder, clock.clone()).await?;
    let pool = pool.ok_or("a space is needed")?;
    if let Some(resync_bytes) = load.resync {
        pool.set_dirty_params(DirtyParams { resync_bytes, ..DirtyParams::default() });
    }
    let places = PLACES.min(load.span / BLOCK);
    let stride = load.span / places;
    let fill: Vec<u64> = (0..load.depth as u64).collect();
    let fills = fill.into_iter().map(|worker| {
        let (device, depth) = (device.clone(), load.depth);
        async move {
            let data = IoBuf::copy_from(&[0x5a; BLOCK as usize]).freeze();
            for place in (worker..places).step_by(depth) {
                device.write(place * stride, data.clone(), Durability::Volatile).await?;
                shard_runtime::yield_now().await;
            }
            Ok::<(), Failure>(())
        }
    });
    for filled in futures_util::future::join_all(fills).await {
        filled?;
    }
    device.flush().await?;
    overwrite(&load, &device, (places, stride), WARM, &clock).await?;
    let (begun, cpu, logged) = (clock.now(), cpu_ticks()?, pool.status().log_writes);
    let mut took = overwrite(&load, &device, (places, stride), load.seconds, &clock).await?;
    let (seconds, used) = (clock.now().since(begun).as_secs_f64(), cpu_ticks()? - cpu);
    let status = pool.status();
    let count = took.len().max(1);
    took.sort_unstable();
    let line = format!(
        "span_mib={} iops={:.0} cpu_us={:.2} p99_us={} log_per_1000={:.2} dirty_mib={}",
        load.span >> 20,
        count as f64 / seconds,
        // A tick of /proc is 10 ms.
        used as f64 * 1e4 / count as f64,
        took.get(count * 99 / 100).copied().unwrap_or_default(),
        (status.log_writes - logged) as f64 * 1e3 / count as f64,
        status.dirty_bytes >> 20,
    );
    Ok(format!("{line} resync_mib={}", left_by_a_kill(&load, device, pool, clock).await? >> 20))
}

/// Overwrites for so many seconds; the microseconds that each write took.
async fn overwrite(
    load: &Load,
    device: &Device,
    (places, stride): (u64, u64),
    seconds: u64,
    clock: &Arc<SystemClock>,
) -> Result<Vec<u32>, Failure> {
    let took = Rc::new(RefCell::new(Vec::new()));
    let end = clock.now().0 + Duration::from_secs(seconds).as_nanos() as u64;
    let mut workers = Vec::new();
    for worker in 0..load.depth {
        let (device, clock, took) = (device.clone(), clock.clone(), took.clone());
        let data = IoBuf::copy_from(&[0xa5; BLOCK as usize]).freeze();
        workers.push(shard_runtime::spawn_local(async move {
            let random = SeededEntropy::new(seconds << 32 | worker as u64);
            loop {
                let begun = clock.now();
                if begun.0 >= end {
                    return Ok::<(), Failure>(());
                }
                let at = random.next_u64() % places * stride;
                device.write(at, data.clone(), Durability::Durable).await?;
                took.borrow_mut().push(clock.now().since(begun).as_micros() as u32);
                // A write to memory ends at once: the others, and the pool's background work, get their turn here.
                shard_runtime::yield_now().await;
            }
        }));
    }
    for worker in workers {
        worker.await??;
    }
    Ok(took.take())
}

/// Bytes that the next opening has to settle.
async fn left_by_a_kill(
    load: &Load,
    device: Device,
    pool: Pool,
    clock: Arc<SystemClock>,
) -> Result<u64, Failure> {
    let guid = pool.guid();
    drop(device);
    pool.abandon(Duration::from_secs(10)).await?;
    drop(pool);
    let mut devices: Vec<Device> = Vec::new();
    for number in 0.. {
        let path = load.folder.join(format!("bench-disk{number}.img"));
        if !path.exists() {
            break;
        }
        devices.push(Arc::new(LocalDisk::open(&path, OpenMode::ReadWrite)?));
    }
    let surroundings =
        Surroundings { clock, entropy: Arc::new(SystemEntropy), witness: Arc::new(MemoryWitness::default()) };
    // Read-only, or settling would begin: it writes the span in full.
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let pool = Pool::open(guid, devices, options, surroundings).await?;
    Ok(pool.status().unsettled_bytes)
}

/// Processor time of this process, user and system, in ticks of 10 ms.
fn cpu_ticks() -> Result<u64, Failure> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks = |n: usize| fields.get(n).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    Ok(ticks(11) + ticks(12))
}
