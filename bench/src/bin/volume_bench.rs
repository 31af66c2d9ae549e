//! What a volume costs, without a network: opening one whose space is in pieces, and first writes to a thin file.
//!
//! ```text
//!   volume_bench open  local|simple|mirror2 EXTENTS FOLDER
//!   volume_bench write|stream|clone local|simple|mirror2 DEPTH SECONDS MIB FOLDER
//!   volume_bench space local|simple|mirror2 WRITES MIB FOLDER
//!   volume_bench create local|simple|mirror2 DEPTH FILES FOLDER
//! ```
//! `open` makes a volume with EXTENTS extents of one cluster and as many free runs between them, closes it, and prints
//! how long it takes to open it (`open_ms`), to open the file that has all the extents (`file_ms`), and what both keep
//! in memory (`…_mib`). `crash` in place of `open` leaves the volume open before, as a crash would.
//!
//! `write` writes 4 KiB at random places of a thin file of MIB, durably, DEPTH at a time: each place once
//! (`first_iops`), then again for as long (`over_iops`), and prints their ratio, how many groups of metadata changes the first
//! writes took (`groups`), and how often the database was committed meanwhile (`commits`); with the 99th percentile of latency
//! (`p99_ms`) and the processor time of a write (`cpu_us`), of first writes and of later ones. `stream` writes 512 KiB in order
//! instead; `clone` is `write` to a clone of a file that has all its space.
//!
//! `space` writes 4 KiB at WRITES random places of a thin file of MIB, and prints what they take (`allocated_mib`).
//!
//! `create` makes FILES files in the root of a volume, DEPTH at a time, and removes them: how many of each in a second, and
//! the longest that one of them took (`worst_ms`).

#[path = "../devices.rs"]
mod devices;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{Device, Durability};
use devices::Failure;
use file_store::{Access, Attributes, FileKind, FileStore, NewFile, OpenFile, OpenOptions, SnapshotStore};
use shard_runtime::{Clock, Shards, SystemClock, SystemEntropy};
use volume::{Environment, FormatOptions, Volume};

/// Size of one random request, and of one of a stream, in bytes.
const BLOCK: u64 = 4096;
const PIECE: u64 = 512 << 10;
/// Unit of a volume's space, in bytes.
const CLUSTER: u64 = 64 << 10;
/// A number without a common factor with any power of two: n * STRIDE goes through all places in a scattered order.
const STRIDE: u64 = 0x9e37_79b1;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let shards = Shards::start(1)?;
    let shard = shards.next().clone();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let line = match words.as_slice() {
        [how @ ("open" | "crash"), kind, extents, folder] => {
            let (kind, extents, folder) = ((*kind).to_owned(), extents.parse()?, PathBuf::from(folder));
            let clean = *how == "open";
            runtime.block_on(shard.run(move || opening(kind, extents, folder, clean)))??
        }
        [pattern @ ("write" | "stream" | "clone"), kind, depth, seconds, mib, folder] => {
            let load = Load {
                kind: (*kind).to_owned(),
                pattern: match *pattern {
                    "stream" => Pattern::Stream,
                    "clone" => Pattern::Clone,
                    _ => Pattern::Thin,
                },
                depth: depth.parse()?,
                time: Duration::from_secs(seconds.parse()?),
                bytes: mib.parse::<u64>()?.next_power_of_two() << 20,
                folder: folder.into(),
            };
            runtime.block_on(shard.run(move || writing(load)))??
        }
        ["space", kind, writes, mib, folder] => {
            let (kind, writes, folder) = ((*kind).to_owned(), writes.parse()?, PathBuf::from(folder));
            let bytes = mib.parse::<u64>()?.next_power_of_two() << 20;
            runtime.block_on(shard.run(move || taking(kind, writes, bytes, folder)))??
        }
        ["create", kind, depth, files, folder] => {
            let (kind, depth, files) = ((*kind).to_owned(), depth.parse()?, files.parse()?);
            let folder = PathBuf::from(folder);
            runtime.block_on(shard.run(move || creating(kind, depth, files, folder)))??
        }
        _ => {
            return Err("usage: volume_bench open|crash local|simple|mirror2 EXTENTS FOLDER\n       \
                        volume_bench write|stream|clone local|simple|mirror2 DEPTH SECONDS MIB FOLDER\n       \
                        volume_bench space local|simple|mirror2 WRITES MIB FOLDER\n       \
                        volume_bench create local|simple|mirror2 DEPTH FILES FOLDER"
                .into());
        }
    };
    println!("{line} engine={}", shards.engine().0);
    shards.stop();
    Ok(())
}

fn environment(clock: &Arc<SystemClock>) -> Environment {
    Environment { clock: clock.clone(), entropy: Arc::new(SystemEntropy) }
}

async fn fresh(device: &Device, clock: &Arc<SystemClock>) -> Result<Arc<Volume>, Failure> {
    let options = FormatOptions { name: "bench".into() };
    Volume::format(device.clone(), options, environment(clock)).await?;
    Ok(Volume::open(device.clone(), environment(clock)).await?)
}

fn plain() -> NewFile {
    NewFile { kind: FileKind::File, attributes: Attributes(0), security: Vec::new() }
}

/// Memory that this process has, in MiB.
fn resident() -> Result<f64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    let kib: f64 = line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or_default();
    Ok(kib / 1024.0)
}

async fn opening(kind: String, extents: u64, folder: PathBuf, clean: bool) -> Result<String, Failure> {
    let clock = Arc::new(SystemClock::new());
    let bytes = (2 * extents * CLUSTER + (64 << 20)) / 63 * 64;
    let (device, pool) = devices::open(&kind, bytes, &folder, clock.clone()).await?;
    let volume = fresh(&device, &clock).await?;
    let file = volume.create(volume.root(), "pieces", plain()).await?;
    volume.fragment(file, extents, 1).await?;
    if clean {
        volume.close().await?;
    }
    drop(volume);

    let before = resident()?;
    let start = clock.now();
    let volume = Volume::open(device.clone(), environment(&clock)).await?;
    let open = clock.now().since(start);
    let open_mib = resident()? - before;
    let start = clock.now();
    let handle = volume.open(file, OpenOptions::shared(Access::READ_WRITE)).await?;
    let opened = clock.now().since(start);
    let file_mib = resident()? - before;
    let start = clock.now();
    let usage = volume.usage().await?;
    let asked = clock.now().since(start);
    drop(handle);
    volume.close().await?;
    if let Some(pool) = pool {
        pool.close().await?;
    }
    Ok(format!(
        "extents={extents} used_gib={} open_ms={:.0} open_mib={open_mib:.0} file_ms={:.0} file_mib={file_mib:.0} usage_ms={:.1}",
        usage.used >> 30,
        open.as_secs_f64() * 1e3,
        opened.as_secs_f64() * 1e3,
        asked.as_secs_f64() * 1e3,
    ))
}

/// What is written, and where.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pattern {
    /// Blocks at random places of a thin file.
    Thin,
    /// Pieces in order, of a thin file.
    Stream,
    /// Blocks at random places of a clone.
    Clone,
}

struct Load {
    kind: String,
    pattern: Pattern,
    depth: usize,
    time: Duration,
    bytes: u64,
    folder: PathBuf,
}

impl Load {
    fn request(&self) -> u64 {
        if self.pattern == Pattern::Stream { PIECE } else { BLOCK }
    }
}

/// What writes came to.
struct Written {
    count: u64,
    per_second: f64,
    p99_ms: f64,
    cpu_us: f64,
}

/// Processor time that this process has taken, in seconds.
fn processor_time() -> Result<f64, Failure> {
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after.split_whitespace().skip(11).take(2).map(|word| word.parse().unwrap_or(0.0));
    Ok(ticks.sum::<f64>() / TICKS)
}

/// Writes from the first place on, until the time, the places, or `limit` are over.
async fn write(
    file: &Arc<dyn OpenFile>,
    load: &Load,
    clock: &Arc<SystemClock>,
    limit: u64,
) -> Result<Written, Failure> {
    let (cpu, start, next) = (processor_time()?, clock.now(), Arc::new(AtomicU64::new(0)));
    let (request, stride) = (load.request(), if load.pattern == Pattern::Stream { 1 } else { STRIDE });
    let places = load.bytes / request;
    let data = IoBuf::copy_from(&vec![0x5a; request as usize]).freeze();
    let mut workers = Vec::new();
    for _ in 0..load.depth {
        let (file, next, clock, data) = (file.clone(), next.clone(), clock.clone(), data.clone());
        let time = load.time;
        workers.push(shard_runtime::spawn_local(async move {
            let mut took = Vec::new();
            while clock.now().since(start) < time {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= limit.min(places) {
                    break;
                }
                let (at, asked) = (number.wrapping_mul(stride) % places * request, clock.now());
                file.write(at, data.clone(), Durability::Durable).await?;
                took.push(clock.now().since(asked).as_secs_f32() * 1e3);
            }
            Ok::<Vec<f32>, Failure>(took)
        }));
    }
    let mut took = Vec::new();
    for worker in workers {
        took.extend(worker.await??);
    }
    took.sort_by(f32::total_cmp);
    let count = took.len() as u64;
    Ok(Written {
        count,
        per_second: count as f64 / clock.now().since(start).as_secs_f64(),
        p99_ms: took.get(took.len() * 99 / 100).copied().unwrap_or_default().into(),
        cpu_us: (processor_time()? - cpu) * 1e6 / count.max(1) as f64,
    })
}

async fn writing(load: Load) -> Result<String, Failure> {
    let clock = Arc::new(SystemClock::new());
    let clones = load.pattern == Pattern::Clone;
    let bytes = if clones { load.bytes * 9 / 4 } else { load.bytes * 9 / 8 };
    let (device, pool) = devices::open(&load.kind, bytes, &load.folder, clock.clone()).await?;
    let volume = fresh(&device, &clock).await?;
    let mut file = volume.create(volume.root(), "thin", plain()).await?;
    if clones {
        let handle = volume.open(file, OpenOptions::shared(Access::READ_WRITE)).await?;
        let whole = Load {
            kind: load.kind.clone(),
            pattern: Pattern::Stream,
            folder: load.folder.clone(),
            time: Duration::MAX,
            ..load
        };
        write(&handle, &whole, &clock, u64::MAX).await?;
        drop(handle);
        file = volume.clone_tree(file, volume.root(), "clone").await?;
    }
    let handle = volume.open(file, OpenOptions::shared(Access::READ_WRITE)).await?;
    handle.set_size(load.bytes).await?;
    let (groups, commits) = (volume.groups(), volume.commits());
    let first = write(&handle, &load, &clock, u64::MAX).await?;
    let (groups, commits) = (volume.groups() - groups, volume.commits() - commits);
    let allocated = volume.info(file).await?.allocated >> 20;
    let over = write(&handle, &load, &clock, first.count).await?;
    drop(handle);
    volume.close().await?;
    if let Some(pool) = pool {
        pool.close().await?;
    }
    Ok(format!(
        "depth={} first={} first_iops={:.0} over_iops={:.0} ratio={:.2} first_p99_ms={:.2} over_p99_ms={:.2} first_cpu_us={:.1} over_cpu_us={:.1} groups={groups} commits={commits} allocated_mib={allocated}",
        load.depth,
        first.count,
        first.per_second,
        over.per_second,
        first.per_second / over.per_second,
        first.p99_ms,
        over.p99_ms,
        first.cpu_us,
        over.cpu_us,
    ))
}

async fn taking(kind: String, writes: u64, bytes: u64, folder: PathBuf) -> Result<String, Failure> {
    let clock = Arc::new(SystemClock::new());
    let (device, pool) = devices::open(&kind, bytes * 9 / 8, &folder, clock.clone()).await?;
    let volume = fresh(&device, &clock).await?;
    let file = volume.create(volume.root(), "thin", plain()).await?;
    let handle = volume.open(file, OpenOptions::shared(Access::READ_WRITE)).await?;
    handle.set_size(bytes).await?;
    let (pattern, time) = (Pattern::Thin, Duration::MAX);
    let load = Load { kind, pattern, depth: 32, time, bytes, folder };
    write(&handle, &load, &clock, writes).await?;
    let allocated = volume.info(file).await?.allocated >> 20;
    drop(handle);
    volume.close().await?;
    if let Some(pool) = pool {
        pool.close().await?;
    }
    Ok(format!("writes={writes} allocated_mib={allocated}"))
}

/// Makes or removes `files` files, `depth` at a time; how long all and the longest of them took, in seconds.
async fn each_file(
    volume: &Arc<Volume>,
    clock: &Arc<SystemClock>,
    (depth, files): (usize, u64),
    makes: bool,
) -> Result<(f64, f64), Failure> {
    let (start, next) = (clock.now(), Arc::new(AtomicU64::new(0)));
    let mut workers = Vec::new();
    for _ in 0..depth {
        let (volume, next, clock) = (volume.clone(), next.clone(), clock.clone());
        workers.push(shard_runtime::spawn_local(async move {
            let mut worst = Duration::ZERO;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= files {
                    return Ok::<Duration, Failure>(worst);
                }
                let (name, asked) = (format!("file-{number}"), clock.now());
                if makes {
                    volume.create(volume.root(), &name, plain()).await?;
                } else {
                    volume.remove(volume.root(), &name).await?;
                }
                worst = worst.max(clock.now().since(asked));
            }
        }));
    }
    let mut worst = Duration::ZERO;
    for worker in workers {
        worst = worst.max(worker.await??);
    }
    Ok((clock.now().since(start).as_secs_f64(), worst.as_secs_f64()))
}

async fn creating(kind: String, depth: usize, files: u64, folder: PathBuf) -> Result<String, Failure> {
    let clock = Arc::new(SystemClock::new());
    let (device, pool) = devices::open(&kind, 8 << 30, &folder, clock.clone()).await?;
    let volume = fresh(&device, &clock).await?;
    let (made, worst_made) = each_file(&volume, &clock, (depth, files), true).await?;
    let (removed, worst_removed) = each_file(&volume, &clock, (depth, files), false).await?;
    volume.close().await?;
    if let Some(pool) = pool {
        pool.close().await?;
    }
    Ok(format!(
        "depth={depth} files={files} creates={:.0} worst_ms={:.1} removes={:.0} worst_ms={:.1}",
        files as f64 / made,
        worst_made * 1e3,
        files as f64 / removed,
        worst_removed * 1e3,
    ))
}
