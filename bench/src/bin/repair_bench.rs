//! How fast a lost disk is made good, and what clients notice of it.
//!
//! ```text
//!   repair_bench idle|loaded MIB FOLDER
//! ```
//! A mirror of MIB on two file disks loses one, and gets another. `idle`: prints `mib_per_s=…` of the repair. `loaded`: a
//! client reads and writes 4 KiB at random, eight at a time, before and while: also its 99th percentiles, `before_p99_us=…
//! during_p99_us=…`.

#[path = "../devices.rs"]
mod devices;

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use aligned_buffer::IoBuf;
use block_device::{Device, Durability};
use devices::Failure;
use pool::{DiskDescription, NewDisk, Pool};
use shard_runtime::{Clock, Entropy as _, SeededEntropy, Shards, SystemClock};

const BLOCK: u64 = 4096;
const FILL: u64 = 1 << 20;
/// Requests that the client keeps under way.
const DEPTH: u64 = 8;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [how @ ("idle" | "loaded"), mib, folder] = words.iter().map(String::as_str).collect::<Vec<_>>()[..]
    else {
        return Err("usage: repair_bench idle|loaded MIB FOLDER".into());
    };
    let (loaded, bytes, folder) = (how == "loaded", mib.parse::<u64>()? << 20, PathBuf::from(folder));
    let shards = Shards::start(1)?;
    let shard = shards.next().clone();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    println!("{}", runtime.block_on(shard.run(move || run(loaded, bytes, folder)))??);
    shards.stop();
    Ok(())
}

/// What requests took, in nanoseconds, since it was emptied last.
type Taken = Rc<RefCell<Vec<u64>>>;

async fn run(loaded: bool, bytes: u64, folder: PathBuf) -> Result<String, Failure> {
    let clock = Arc::new(SystemClock::new());
    let (device, pool) = devices::open("mirror2", bytes, &folder, Arc::clone(&clock)).await?;
    let pool = pool.ok_or("a mirror has a pool")?;
    let data = IoBuf::copy_from(&[0x5a; FILL as usize]).freeze();
    for at in (0..bytes).step_by(FILL as usize) {
        device.write(at, data.clone(), Durability::Volatile).await?;
    }
    device.flush().await?;
    let taken = Taken::default();
    let end = Rc::new(std::cell::Cell::new(false));
    let mut clients = Vec::new();
    for seed in 0..if loaded { DEPTH } else { 0 } {
        let (device, clock, taken, end) = (device.clone(), clock.clone(), taken.clone(), end.clone());
        clients.push(shard_runtime::spawn_local(async move {
            client(seed, &device, bytes / BLOCK, &clock, &taken, &end).await
        }));
    }
    if loaded {
        // Two windows of the pool, so that it knows what clients wait when they are alone.
        shard_runtime::sleep(Duration::from_secs(12)).await;
    }
    let before = p99(&taken);
    let lost = pool.status().disks[0].record.id;
    pool.disk_lost(lost, "the bench took it").await?;
    let added = devices::fresh_disk(&folder.join("bench-disk2.img"), bytes + (1 << 30))?;
    let (device, name) = (Arc::new(added) as Device, "disk2".to_owned());
    pool.add_disk(NewDisk { device, name, description: DiskDescription::default() }, false, false).await?;
    let (begun, copied) = (clock.now(), pool.status().copied_bytes);
    pool.set_disk_use(lost, pool::DiskUse::Retired).await?;
    while !pool.status().is_fully_redundant() {
        shard_runtime::sleep(Duration::from_millis(20)).await;
    }
    let seconds = clock.now().since(begun).as_secs_f64();
    let rate = (pool.status().copied_bytes - copied) as f64 / (1 << 20) as f64 / seconds;
    let during = p99(&taken);
    end.set(true);
    for client in clients {
        client.await??;
    }
    close(&pool).await?;
    Ok(if loaded {
        format!("mib_per_s={rate:.0} before_p99_us={before} during_p99_us={during}")
    } else {
        format!("mib_per_s={rate:.0}")
    })
}

async fn close(pool: &Pool) -> Result<(), Failure> {
    Ok(pool.close().await?)
}

/// Seven reads for three writes, at random, until told to end.
async fn client(
    seed: u64,
    device: &Device,
    blocks: u64,
    clock: &SystemClock,
    taken: &Taken,
    end: &std::cell::Cell<bool>,
) -> Result<(), Failure> {
    let random = SeededEntropy::new(seed);
    let data = IoBuf::copy_from(&[7; BLOCK as usize]).freeze();
    while !end.get() {
        let (at, begun) = (random.next_u64() % blocks * BLOCK, clock.now());
        if random.next_u64() % 10 < 3 {
            device.write(at, data.clone(), Durability::Durable).await?;
        } else {
            device.read(at, IoBuf::new(BLOCK as usize)).await?;
        }
        taken.borrow_mut().push(clock.now().since(begun).as_nanos() as u64);
    }
    Ok(())
}

/// The 99th percentile in microseconds, and an empty list afterwards.
fn p99(taken: &Taken) -> u64 {
    let mut taken = std::mem::take(&mut *taken.borrow_mut());
    taken.sort_unstable();
    taken.get(taken.len() * 99 / 100).map_or(0, |nanos| nanos / 1000)
}
