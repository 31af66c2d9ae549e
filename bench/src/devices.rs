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

/// How a space of this kind is made, and on how many disks: `simple`, `mirror2`, `parity1` (4 columns of data), `parity2`
/// (4 columns of data); `-unchecked` behind it for one without checksums.
fn shape(kind: &str) -> Result<(usize, Resiliency, u8), Failure> {
    match kind {
        "simple" => Ok((1, Resiliency::Simple, 1)),
        "mirror2" => Ok((2, Resiliency::Mirror(2), 1)),
        "parity1" => Ok((5, Resiliency::Parity(1), 5)),
        "parity2" => Ok((6, Resiliency::Parity(2), 6)),
        _ => Err(format!("there is no kind {kind}: simple, mirror2, parity1, parity2, local").into()),
    }
}

/// A device of at least `bytes`: `local` (a file), or a thin space of a [`shape`] on file disks in `folder`. Each disk is a
/// sparse file of its own.
///
/// # Errors
/// When the folder or the disks cannot be used.
pub(crate) async fn open(
    kind: &str,
    bytes: u64,
    folder: &Path,
    clock: Arc<SystemClock>,
) -> Result<(Device, Option<Pool>), Failure> {
    let (name, integrity) = match kind.strip_suffix("-unchecked") {
        Some(name) => (name, false),
        None => (kind, true),
    };
    let (disks, resiliency, columns) =
        if kind == "local" { (1, Resiliency::Simple, 1) } else { shape(name)? };
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
    let spec = SpaceSpec { columns, integrity, ..SpaceSpec::thin("bench", resiliency, bytes) };
    let space = pool.create_space(spec).await?;
    Ok((space, Some(pool)))
}

/// An empty file disk.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn fresh_disk(path: &Path, size: u64) -> Result<LocalDisk, Failure> {
    if path.exists() {
        std::fs::remove_file(path)?;
    }
    LocalDisk::create_file(&CreateFile { path: path.into(), size, preallocate: false })?;
    Ok(LocalDisk::open(path, OpenMode::ReadWrite)?)
}
