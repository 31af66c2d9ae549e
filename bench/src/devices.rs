//! The devices that loads run on.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use block_device::Device;
use block_local::{CreateFile, LocalDisk, OpenMode};
use pool::{
    CreateOptions, DiskDescription, MemoryWitness, NewDisk, Pool, Resiliency, SpaceSpec, Surroundings,
};
use shard_runtime::{SystemClock, SystemEntropy};

/// Why a load could not be run.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// A device of at least `bytes`: `local` (a file), or a thin space on one (`simple`) or two (`mirror2`) file disks in
/// `folder`. Each disk is a sparse file of its own.
///
/// # Errors
/// When the folder or the disks cannot be used.
pub(crate) async fn open(
    kind: &str,
    bytes: u64,
    folder: &Path,
    clock: Arc<SystemClock>,
) -> Result<(Device, Option<Pool>), Failure> {
    let disks = if kind == "mirror2" { 2 } else { 1 };
    let mut devices: Vec<Device> = Vec::new();
    for n in 0..disks {
        let path = folder.join(format!("bench-disk{n}.img"));
        devices.push(Arc::new(fresh_disk(&path, bytes + (1 << 30))?));
    }
    if kind == "local" {
        return Ok((devices.remove(0), None));
    }
    let disks = devices.into_iter().enumerate().map(|(n, device)| NewDisk {
        device,
        name: format!("disk{n}"),
        description: DiskDescription::default(),
    });
    let options = CreateOptions { name: "bench".into(), slab_size: 64 << 20, overwrite_foreign: false };
    let surroundings =
        Surroundings { clock, entropy: Arc::new(SystemEntropy), witness: Arc::new(MemoryWitness::default()) };
    let pool = Pool::create(disks.collect(), options, surroundings).await?;
    let resiliency = if kind == "mirror2" { Resiliency::Mirror(2) } else { Resiliency::Simple };
    let space = pool.create_space(SpaceSpec::thin("bench", resiliency, bytes)).await?;
    Ok((space, Some(pool)))
}

fn fresh_disk(path: &Path, size: u64) -> Result<LocalDisk, Failure> {
    if path.exists() {
        std::fs::remove_file(path)?;
    }
    LocalDisk::create_file(&CreateFile { path: path.into(), size, preallocate: false })?;
    Ok(LocalDisk::open(path, OpenMode::ReadWrite)?)
}
