//! The table of cache policies of a RAID controller's owner, for our engine: each policy measured in turn, several times.
//!
//! ```text
//!   policy_bench SECONDS ROUNDS MIB FOLDER
//! ```
//! Prints one JSON object for each policy and load. Two-way mirrors of two columns on four file disks in FOLDER, one for each strip
//! size; a raw file beside them; and a log before a hard disk that exists as a model only (`hard_disk`), since no machine of ours
//! has one. All on one shard, taking turns within one run.

mod hard_disk;
mod load;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{Device, Durability, MemoryDisk};
use block_local::{CreateFile, LocalDisk, OpenMode};
use pool::{
    CreateOptions, DiskDescription, MemoryWitness, NewDisk, Pool, Resiliency, SpaceSpec, Surroundings,
};
use read_cache::{CachedDevice, ReadAhead, ReadCache};
use shard_runtime::{Shards, SystemClock, SystemEntropy};
use write_log::{Options, WriteLog};

use hard_disk::HardDisk;
use load::{Load, Mode};

/// Why something could not be measured.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Columns of the spaces.
const COLUMNS: u8 = 2;
/// Requests in flight, as in the table that this is compared with.
const DEPTH: usize = 64;

/// A policy: a device and how it is used.
struct Policy {
    name: String,
    device: Device,
    durability: Durability,
    loads: Vec<Load>,
    /// Its cache, to be emptied before each measurement unless it is to be full.
    cached: Option<(Arc<CachedDevice>, bool)>,
    /// Whether it is loaded for as long before each measurement: a log is full then.
    settles: bool,
}

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [seconds, rounds, mib, folder, ..] = words.as_slice() else {
        return Err("usage: policy_bench SECONDS ROUNDS MIB FOLDER".into());
    };
    let (seconds, rounds) = (seconds.parse::<f64>()?, rounds.parse::<u32>()?);
    let (bytes, folder) = (mib.parse::<u64>()? << 20, PathBuf::from(folder));
    let shards = Shards::start(1)?;
    let shard = shards.next().clone();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(shard.run(move || run(Duration::from_secs_f64(seconds), rounds, bytes, folder)))??;
    shards.stop();
    Ok(())
}

async fn run(time: Duration, rounds: u32, bytes: u64, folder: PathBuf) -> Result<(), Failure> {
    let clock = Arc::new(SystemClock::new());
    let pool = pool(&folder, bytes, &clock).await?;
    let cache = ReadCache::new(bytes * 2);
    let mut policies = vec![raw(&folder, bytes).await?];
    for strip in [8_u64, 64, 512] {
        let mut spec = SpaceSpec::thin(&format!("strip{strip}"), Resiliency::Mirror(2), bytes);
        spec.columns = COLUMNS;
        spec.interleave = (strip << 10) as u32;
        let space: Device = pool.create_space(spec).await?;
        fill(&space, bytes).await?;
        policies.extend(on_space(&cache, &space, strip));
    }
    policies.extend(with_log(&clock).await?);
    for round in 0..rounds {
        for policy in &policies {
            for load in &policy.loads {
                if let Some((cached, full)) = &policy.cached {
                    cached.set_on(false);
                    cached.set_on(true);
                    if *full {
                        warm(&policy.device, load.bytes).await?;
                    }
                }
                if policy.settles {
                    load::run(&policy.device, policy.durability, *load, time, &clock).await?;
                }
                let figures = load::run(&policy.device, policy.durability, *load, time, &clock).await?;
                println!(
                    "{{\"policy\":\"{}\",\"mode\":\"{}\",\"size\":{},\"depth\":{},\"round\":{round},\"iops\":{:.0},\"cpu_us\":{:.2}}}",
                    policy.name,
                    load.mode.name(),
                    load.size,
                    load.depth,
                    figures.iops,
                    figures.cpu_us
                );
            }
        }
    }
    drop(policies);
    pool.close().await?;
    Ok(())
}

fn random(bytes: u64) -> Vec<Load> {
    let load = |mode| Load { mode, size: 4096, depth: DEPTH, bytes };
    vec![load(Mode::RandomRead), load(Mode::RandomWrite)]
}

fn sequential(bytes: u64) -> Load {
    Load { mode: Mode::SequentialRead, size: 64 << 10, depth: 1, bytes }
}

/// A file of the same disk, by the same engine, with nothing between.
async fn raw(folder: &Path, bytes: u64) -> Result<Policy, Failure> {
    let device: Device = Arc::new(fresh_disk(&folder.join("policy-raw.img"), bytes)?);
    fill(&device, bytes).await?;
    let mut loads = random(bytes);
    loads.push(sequential(bytes));
    Ok(Policy {
        name: "raw file".into(),
        device,
        durability: Durability::Durable,
        loads,
        cached: None,
        settles: false,
    })
}

/// The policies on one space.
fn on_space(cache: &Arc<ReadCache>, space: &Device, strip: u64) -> Vec<Policy> {
    let bytes = space.size();
    let direct = |name: &str, durability| {
        let mut loads = random(bytes);
        if strip == 64 && durability == Durability::Durable {
            loads.push(sequential(bytes));
        }
        Policy {
            name: format!("{name}, {strip}K strip, direct"),
            device: space.clone(),
            durability,
            loads,
            cached: None,
            settles: false,
        }
    };
    let mut policies = vec![direct("WT, no read-ahead", Durability::Durable)];
    if strip != 64 {
        return policies;
    }
    policies.push(direct("WB, no read-ahead", Durability::Volatile));
    let modes = [
        ("WT, read-ahead 1M", ReadAhead::Fixed(1 << 20), false),
        ("WT, adaptive read-ahead", ReadAhead::Adaptive, false),
        ("WT, no read-ahead", ReadAhead::None, false),
        ("WT, no read-ahead, cache full", ReadAhead::None, true),
    ];
    for (name, mode, full) in modes {
        let cached = Arc::new(CachedDevice::new(cache, space.clone(), name));
        cached.set_read_ahead(mode);
        let mut loads = random(bytes);
        loads.push(sequential(bytes));
        policies.push(Policy {
            name: format!("{name}, {strip}K strip, cached"),
            device: Arc::clone(&cached) as Device,
            durability: Durability::Durable,
            loads,
            cached: Some((cached, full)),
            settles: false,
        });
    }
    policies
}

/// A hard disk with and without a log in memory before it: memory stands for an SSD whose writes cost nothing, so the log's own
/// work and its destaging are what is measured.
async fn with_log(clock: &Arc<SystemClock>) -> Result<Vec<Policy>, Failure> {
    let bytes = 2_u64 << 30;
    let disk =
        || Arc::new(HardDisk::new(Arc::new(MemoryDisk::new(bytes as usize, 4096)), clock.clone())) as Device;
    let front: Device = Arc::new(MemoryDisk::new(128 << 20, 4096));
    let back = disk();
    WriteLog::create(&front, &back, &SystemEntropy).await?;
    let log = WriteLog::open(Some(front), back, Options::default(), &SystemEntropy, false).await?;
    let random_write = |device: Device, name: &str| Policy {
        name: name.into(),
        loads: vec![Load { mode: Mode::RandomWrite, size: 4096, depth: DEPTH, bytes: device.size() }],
        device,
        durability: Durability::Durable,
        cached: None,
        settles: true,
    };
    Ok(vec![
        random_write(disk(), "WT, hard disk (model)"),
        random_write(Arc::new(log), "WT, hard disk (model) behind a log of 128 MiB"),
    ])
}

async fn pool(folder: &Path, bytes: u64, clock: &Arc<SystemClock>) -> Result<Pool, Failure> {
    let mut disks = Vec::new();
    for number in 0..4 {
        let path = folder.join(format!("policy-disk{number}.img"));
        disks.push(NewDisk {
            device: Arc::new(fresh_disk(&path, bytes * 3 + (1 << 30))?),
            name: format!("disk{number}"),
            description: DiskDescription::default(),
        });
    }
    let options = CreateOptions { name: "policies".into(), slab_size: 64 << 20, overwrite_foreign: false };
    let surroundings = Surroundings {
        clock: clock.clone(),
        entropy: Arc::new(SystemEntropy),
        witness: Arc::new(MemoryWitness::default()),
    };
    Ok(Pool::create(disks, options, surroundings).await?)
}

fn fresh_disk(path: &Path, size: u64) -> Result<LocalDisk, Failure> {
    if path.exists() {
        std::fs::remove_file(path)?;
    }
    LocalDisk::create_file(&CreateFile { path: path.into(), size, preallocate: false })?;
    Ok(LocalDisk::open(path, OpenMode::ReadWrite)?)
}

async fn fill(device: &Device, bytes: u64) -> Result<(), Failure> {
    let mut data = IoBuf::new(1 << 20);
    data.fill(0x5a);
    let data = data.freeze();
    for at in (0..bytes).step_by(1 << 20) {
        device.write(at, data.clone(), Durability::Volatile).await?;
    }
    Ok(device.flush().await?)
}

async fn warm(device: &Device, bytes: u64) -> Result<(), Failure> {
    // Twice: what was read once only is the first to go.
    for at in (0..bytes * 2).step_by(1 << 20) {
        device.read(at % bytes, IoBuf::new(1 << 20)).await?;
    }
    Ok(())
}
