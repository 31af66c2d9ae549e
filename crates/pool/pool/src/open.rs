//! The disks of pools: what they say of themselves, and making pools on them.

use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{BlockError, Device, Durability};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use pool_format::{
    BLOCK, Checkpoint, DecodeError, DiskId, DiskRecord, DiskUse, Epoch, Guid, PoolState, Released,
    SUPERBLOCK_BYTES, Seq, Superblock, foreign, layout_for,
};
use shard_runtime::Entropy;

use crate::error::{PoolError, PoolErrorKind};
use crate::voters::choose_metadata_disks;
use crate::witness::{QuorumWitness, Vote};

/// A disk of a pool that was found.
#[derive(Clone)]
pub struct Probe {
    /// The disk.
    pub device: Device,
    /// What it says of itself.
    pub superblock: Superblock,
    /// One of the two superblocks is damaged or older; opening the pool repairs it.
    pub needs_repair: bool,
}

impl Probe {
    /// Whether it is the same device, not only the same disk by name.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.device, &other.device)
    }
}

/// A disk of the pool that is here.
pub(crate) struct Member {
    pub(crate) probe: Probe,
    /// Which checkpoint slot holds the newest state it has; `None` when neither does.
    pub(crate) slot: Option<u8>,
}

/// What a disk that is offered to a pool is.
#[derive(Clone, Debug, Default)]
pub struct DiskDescription {
    /// Media type: 0 unspecified, 1 SSD, 2 HDD.
    pub media: u8,
    /// Enclosure; empty when unknown.
    pub enclosure: String,
    /// Slot.
    pub slot: String,
    /// Node; empty for this one.
    pub node: String,
    /// Model.
    pub model: String,
    /// Serial number.
    pub serial: String,
}

/// A disk for a pool.
#[derive(Clone)]
pub struct NewDisk {
    /// The disk.
    pub device: Device,
    /// Its name in messages (a path).
    pub name: String,
    /// What it is.
    pub description: DiskDescription,
}

/// How to make a pool.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Its name.
    pub name: String,
    /// Size of a slab in bytes: a power of two, 256 KiB to 64 GiB.
    pub slab_size: u64,
    /// Take disks that carry something else. Ask twice before setting this.
    pub overwrite_foreign: bool,
}

/// How to open a pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Change nothing on the disks; writes are refused.
    pub read_only: bool,
    /// Open with what is here although newer changes may be lost. The error without it says which.
    pub accept_loss: bool,
    /// Take the pool over from another node that has not let go of it.
    pub take_over: bool,
    /// The epoch in which whoever opens it owns the pool. It has to be above all that its disks and the witness know. None for
    /// the next one above that, where nobody but this process can own the pool.
    pub epoch: Option<Epoch>,
}

/// Reads a disk's superblocks. `Ok(None)` when the disk belongs to no pool.
///
/// # Errors
/// When the disk cannot be read, or needs a newer release.
pub async fn probe(device: &Device) -> Result<Option<Probe>, PoolError> {
    let last = device.size().saturating_sub(BLOCK);
    let head = read_block(device, 0).await;
    let tail = read_block(device, last / BLOCK * BLOCK).await;
    let decode = |block: &Result<Vec<u8>, BlockError>| match block {
        Ok(block) => Superblock::decode(block),
        Err(_) => Err(DecodeError::Truncated),
    };
    let (first, second) = (decode(&head), decode(&tail));
    for end in [&first, &second] {
        if let Err(error @ DecodeError::Unsupported(_)) = end {
            return Err(PoolError::new(PoolErrorKind::TooNew, format!("the disk's superblock {error}")));
        }
    }
    let newest = match (&first, &second) {
        (Ok(a), Ok(b)) => Some(if a.mark() >= b.mark() { a } else { b }),
        (Ok(one), Err(_)) | (Err(_), Ok(one)) => Some(one),
        (Err(_), Err(_)) => None,
    };
    match newest {
        Some(superblock) => Ok(Some(Probe {
            device: Arc::clone(device),
            superblock: superblock.clone(),
            needs_repair: first != second,
        })),
        None => match (head, tail) {
            (Err(error), _) | (_, Err(error)) => Err(error.into()),
            _ => Ok(None),
        },
    }
}

/// Those of `devices` that are disks of the pool. One that cannot be read is as good as absent.
///
/// # Errors
/// When a disk of this pool needs a newer release: without it, what it knows would be given up.
pub(crate) async fn probe_all(guid: Guid, devices: &[Device]) -> Result<Vec<Probe>, PoolError> {
    let mut probes = Vec::new();
    for device in devices {
        match probe(device).await {
            Ok(Some(probe)) => probes.push(probe),
            Err(error) if error.kind() == PoolErrorKind::TooNew && announces(device, guid).await => {
                return Err(too_new(guid, &error));
            }
            _ => {}
        }
    }
    Ok(probes)
}

/// Whether an end of the disk says, in whatever version, that it belongs to the pool.
async fn announces(device: &Device, guid: Guid) -> bool {
    let last = device.size().saturating_sub(BLOCK) / BLOCK * BLOCK;
    for offset in [0, last] {
        let block = read_block(device, offset).await;
        if block.is_ok_and(|block| Superblock::announced(&block).is_ok_and(|found| found.pool == guid)) {
            return true;
        }
    }
    false
}

pub(crate) fn too_new(guid: Guid, why: &dyn std::fmt::Display) -> PoolError {
    let detail =
        format!("pool {guid}: {why}; nothing of it is changed: open it with the release that wrote it");
    PoolError::new(PoolErrorKind::TooNew, detail)
}

async fn read_block(device: &Device, offset: u64) -> Result<Vec<u8>, BlockError> {
    Ok(device.read(offset, IoBuf::new(SUPERBLOCK_BYTES)).await?.to_vec())
}

/// What else is on a disk: what its marks tell, or that there is something at its ends or at places between.
///
/// # Errors
/// When the disk cannot be read.
pub async fn foreign_data(device: &Device) -> Result<Option<String>, PoolError> {
    /// Reads under way at once.
    const AT_ONCE: usize = 16;
    let size = device.size() / BLOCK * BLOCK;
    let len = size.min(foreign::SAMPLE_BYTES as u64);
    let head = device.read(0, IoBuf::new(len as usize)).await?;
    let tail = device.read(size - len, IoBuf::new(len as usize)).await?;
    let found = foreign::detect(&head, &tail);
    if found.is_some() || foreign::is_released(&head) {
        return Ok(found);
    }
    let reads = stream::iter(foreign::places_between(size));
    let reads = reads.map(|at| device.read(at, IoBuf::new(BLOCK as usize))).buffer_unordered(AT_ONCE);
    let data = reads.try_any(|block| std::future::ready(foreign::has_data(&block))).await?;
    Ok(data.then(|| foreign::UNRECOGNISED.to_owned()))
}

/// Makes a disk nobody's: the next probe finds no pool on it, and it may be taken although old data is on it.
///
/// # Errors
/// When the disk cannot be written.
pub async fn release_disk(device: &Device, pool: Guid, pool_name: &str) -> Result<(), BlockError> {
    let mark = IoBuf::copy_from(&Released { pool, pool_name: pool_name.to_owned() }.encode()).freeze();
    let last = device.size() / BLOCK * BLOCK - BLOCK;
    for at in [0, last] {
        device.write(at, mark.clone(), Durability::Durable).await?;
    }
    Ok(())
}

/// Makes the structures of a new pool on `disks` and returns its identity.
///
/// # Errors
/// When a disk carries something else, is too small, or fails.
pub(crate) async fn create(
    disks: &[NewDisk],
    options: &CreateOptions,
    witness: &dyn QuorumWitness,
    entropy: &dyn Entropy,
) -> Result<Guid, PoolError> {
    let invalid = |detail: String| PoolError::new(PoolErrorKind::Invalid, detail);
    if options.name.is_empty() || options.name.len() > 255 {
        return Err(invalid("a pool's name has 1 to 255 bytes".into()));
    }
    if disks.is_empty() {
        return Err(invalid("a pool needs at least one disk".into()));
    }
    let (smallest, largest) = (u64::from(pool_format::REGIONS) * BLOCK, pool_format::SLAB_BYTES_MAX);
    if !options.slab_size.is_power_of_two() || !(smallest..=largest).contains(&options.slab_size) {
        return Err(invalid(format!(
            "the slab size must be a power of two from {smallest} to {largest} bytes, not {}",
            options.slab_size
        )));
    }
    let guid = Guid(entropy.next_id());
    let mut state =
        PoolState { guid, name: options.name.clone(), slab_size: options.slab_size, ..PoolState::default() };
    let mut superblocks = Vec::new();
    for (index, disk) in disks.iter().enumerate() {
        let id = DiskId(index as u32);
        superblocks.push(prepare(disk, id, &state, options.overwrite_foreign, Epoch(1), entropy).await?);
        let record = disk_record(disk, &superblocks[index], DiskUse::Active);
        state.apply(&pool_format::Change::PutDisk(record));
    }
    for id in choose_metadata_disks(&state, 0).0 {
        if let Some(disk) = state.disks.get_mut(&id) {
            disk.metadata = true;
        }
    }
    let checkpoint = Checkpoint { epoch: Epoch(1), seq: Seq(0), state: state.clone() };
    let bytes = IoBuf::copy_from(&checkpoint.encode()).freeze();
    for (disk, superblock) in disks.iter().zip(&superblocks) {
        clear_metadata(&disk.device, superblock).await?;
        let carries = state.disks.get(&superblock.disk_id).is_some_and(|record| record.metadata);
        if carries {
            disk.device.write(superblock.checkpoint_start, bytes.clone(), Durability::Durable).await?;
        }
    }
    vote(witness, guid, Epoch(1), Seq(0)).await?;
    // The superblocks come last: a disk that has one belongs to a whole pool.
    for (disk, superblock) in disks.iter().zip(&superblocks) {
        write_superblock(&disk.device, superblock).await?;
    }
    Ok(guid)
}

/// Has the witness vote.
///
/// # Errors
/// When it cannot, and when it knows a higher epoch.
pub(crate) async fn vote(
    witness: &dyn QuorumWitness,
    pool: Guid,
    epoch: Epoch,
    seq: Seq,
) -> Result<(), PoolError> {
    match witness.store(pool, epoch, seq).await {
        Ok(Vote::Given) => Ok(()),
        Ok(Vote::Refused(higher)) => Err(old_epoch(&pool, epoch, higher)),
        Err(error) => {
            Err(PoolError::new(PoolErrorKind::Io, "the quorum witness cannot be written").because(error))
        }
    }
}

/// That the epoch of whoever opens a pool is none above those that are known.
pub(crate) fn old_epoch(pool: &dyn std::fmt::Display, epoch: Epoch, known: Epoch) -> PoolError {
    let detail = format!("pool {pool}: epoch {epoch} cannot open it, as epoch {known} is known already");
    PoolError::new(PoolErrorKind::OldEpoch(known), detail)
}

/// Checks a disk for a pool and lays it out.
pub(crate) async fn prepare(
    disk: &NewDisk,
    id: DiskId,
    state: &PoolState,
    overwrite_foreign: bool,
    epoch: Epoch,
    entropy: &dyn Entropy,
) -> Result<Superblock, PoolError> {
    let name = &disk.name;
    if !overwrite_foreign && let Some(what) = foreign_data(&disk.device).await? {
        let detail = format!("{name} carries {what}; it is taken only when told to overwrite foreign data");
        return Err(PoolError::new(PoolErrorKind::ForeignData, detail));
    }
    if disk.device.geometry().read_only {
        return Err(PoolError::new(PoolErrorKind::Invalid, format!("{name} is read-only")));
    }
    let Some(mut superblock) = layout_for(disk.device.size() / BLOCK * BLOCK, state.slab_size) else {
        let detail = format!("{name} is too small: not one slab of {} bytes fits", state.slab_size);
        return Err(PoolError::new(PoolErrorKind::Invalid, detail));
    };
    superblock.pool = state.guid;
    superblock.pool_name = state.name.clone();
    superblock.disk = Guid(entropy.next_id());
    superblock.disk_id = id;
    superblock.epoch = epoch;
    Ok(superblock)
}

pub(crate) fn disk_record(disk: &NewDisk, superblock: &Superblock, usage: DiskUse) -> DiskRecord {
    let d = disk.description.clone();
    DiskRecord {
        id: superblock.disk_id,
        guid: superblock.disk,
        usage,
        metadata: false,
        slab_count: superblock.slab_count,
        data_start: superblock.data_start,
        size: superblock.disk_size,
        media: d.media,
        enclosure: d.enclosure,
        slot: d.slot,
        node: d.node,
        model: d.model,
        serial: d.serial,
    }
}

/// Makes sure that nothing of an earlier pool in the metadata area can be taken for this one's.
pub(crate) async fn clear_metadata(device: &Device, superblock: &Superblock) -> Result<(), BlockError> {
    let starts = [
        superblock.checkpoint_start,
        superblock.checkpoint_start + superblock.checkpoint_size,
        superblock.log_start,
    ];
    let zeros = IoBuf::zeroed(BLOCK as usize).freeze();
    for start in starts {
        device.write(start, zeros.clone(), Durability::Durable).await?;
    }
    Ok(())
}

/// Writes both superblocks, one durably before the other, so that one is always whole.
pub(crate) async fn write_superblock(device: &Device, superblock: &Superblock) -> Result<(), BlockError> {
    let block = IoBuf::copy_from(&superblock.encode()).freeze();
    device.write(0, block.clone(), Durability::Durable).await?;
    device.write(superblock.disk_size - BLOCK, block, Durability::Durable).await
}
