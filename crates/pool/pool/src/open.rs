//! Finding, creating and opening pools.
//!
//! # Which state is the newest
//! A change is committed when a majority of votes has it durably (module `meta`). Any majority of the same
//! voters therefore contains one that has the last committed change, so the newest state that a majority's
//! members know is at least as new. It may hold changes that were never acknowledged; adopting them is safe,
//! since each leaves a sound state and none destroys data that an acknowledged one needs. The opening raises
//! the epoch and writes a checkpoint to a majority before anything else, so that what an older owner or an
//! absent disk still holds can never win later.

use std::collections::BTreeMap;
use std::sync::Arc;

use aligned_buffer::IoBuf;
use block_device::{BlockError, Device, Durability};
use pool_format::{
    BLOCK, Checkpoint, DecodeError, DiskId, DiskRecord, DiskUse, Epoch, Guid, LogBatch, MAX_BATCH_BYTES,
    Origin, PoolState, SUPERBLOCK_BYTES, Seq, Superblock, foreign, layout_for,
};
use shard_runtime::Entropy;

use crate::error::{PoolError, PoolErrorKind};
use crate::meta::{has_witness_vote, votes_needed};
use crate::witness::QuorumWitness;

/// Disks that carry metadata, at most.
const METADATA_DISKS_MAX: usize = 5;

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
    /// Size of a slab in bytes: a power of two, at least 256 KiB.
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
}

/// What is known after reading the metadata.
pub(crate) struct Found {
    pub(crate) state: PoolState,
    pub(crate) epoch: Epoch,
    pub(crate) seq: Seq,
    pub(crate) present: BTreeMap<DiskId, Member>,
}

/// A disk of the pool that is here.
pub(crate) struct Member {
    pub(crate) probe: Probe,
    /// Which checkpoint slot holds the newest state it has; `None` when neither does.
    pub(crate) slot: Option<u8>,
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
        (Ok(a), Ok(b)) => Some(if a.epoch >= b.epoch { a } else { b }),
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

fn too_new(guid: Guid, why: &dyn std::fmt::Display) -> PoolError {
    let detail =
        format!("pool {guid}: {why}; nothing of it is changed: open it with the release that wrote it");
    PoolError::new(PoolErrorKind::TooNew, detail)
}

async fn read_block(device: &Device, offset: u64) -> Result<Vec<u8>, BlockError> {
    Ok(device.read(offset, IoBuf::new(SUPERBLOCK_BYTES)).await?.to_vec())
}

/// What else is on a disk, if anything is recognised.
///
/// # Errors
/// When the disk cannot be read.
pub async fn foreign_data(device: &Device) -> Result<Option<String>, PoolError> {
    let size = device.size() / BLOCK * BLOCK;
    let len = size.min(foreign::SAMPLE_BYTES as u64);
    let head = device.read(0, IoBuf::new(len as usize)).await?;
    let tail = device.read(size - len, IoBuf::new(len as usize)).await?;
    Ok(foreign::detect(&head, &tail))
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
    let smallest_slab = u64::from(pool_format::REGIONS) * BLOCK;
    if !options.slab_size.is_power_of_two() || options.slab_size < smallest_slab {
        return Err(invalid(format!(
            "the slab size must be a power of two of at least {smallest_slab} bytes"
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
    for id in choose_metadata_disks(&state) {
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
    witness.store(guid, Epoch(1), Seq(0)).await.map_err(|error| {
        PoolError::new(PoolErrorKind::Io, "the quorum witness cannot be written").because(error)
    })?;
    // The superblocks come last: a disk that has one belongs to a whole pool.
    for (disk, superblock) in disks.iter().zip(&superblocks) {
        write_superblock(&disk.device, superblock).await?;
    }
    Ok(guid)
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

/// Up to five disks for the metadata: one of each fault domain in turn, largest domains first.
pub(crate) fn choose_metadata_disks(state: &PoolState) -> Vec<DiskId> {
    let mut domains: BTreeMap<(&str, &str), Vec<DiskId>> = BTreeMap::new();
    for disk in state.disks.values().filter(|disk| disk.usage == DiskUse::Active) {
        domains.entry((&disk.node, &disk.enclosure)).or_default().push(disk.id);
    }
    let mut lists: Vec<Vec<DiskId>> = domains.into_values().collect();
    lists.sort_by_key(|list| std::cmp::Reverse(list.len()));
    let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
    let in_turn = (0..longest).flat_map(|round| lists.iter().filter_map(move |list| list.get(round)));
    in_turn.take(METADATA_DISKS_MAX).copied().collect()
}

/// The newer sound checkpoint of a disk, and the slot it is in.
///
/// # Errors
/// When one of them is whole and needs a newer release: the other one is not the newest then.
pub(crate) async fn newest_checkpoint(probe: &Probe) -> Result<Option<(u8, Checkpoint)>, PoolError> {
    let sb = &probe.superblock;
    let mut newest: Option<(u8, Checkpoint)> = None;
    for slot in 0..2 {
        let start = sb.checkpoint_start + u64::from(slot) * sb.checkpoint_size;
        let found = read_checkpoint(probe, start).await?;
        let Some(found) = found.filter(|found| found.state.guid == sb.pool) else { continue };
        if newest.as_ref().is_none_or(|(_, best)| (found.epoch, found.seq) > (best.epoch, best.seq)) {
            newest = Some((slot, found));
        }
    }
    Ok(newest)
}

/// Reads the metadata of one disk: its newer sound checkpoint, with its slot, and the log after it.
///
/// # Errors
/// When a part that counts is whole and needs a newer release.
async fn read_metadata(probe: &Probe) -> Result<Option<(u8, Checkpoint)>, PoolError> {
    let sb = &probe.superblock;
    let Some((slot, mut known)) = newest_checkpoint(probe).await? else { return Ok(None) };
    let mut at = 0;
    while at + BLOCK <= sb.log_size {
        // A batch is rarely longer than this; if it is, the second read takes it whole.
        let window = (sb.log_size - at).min(MAX_BATCH_BYTES as u64);
        let mut bytes = read_bytes(&probe.device, sb.log_start + at, window).await;
        let mut decoded = LogBatch::decode(&bytes);
        if decoded == Err(DecodeError::Truncated) {
            let window = (sb.log_size - at).min(8 << 20);
            bytes = read_bytes(&probe.device, sb.log_start + at, window).await;
            decoded = LogBatch::decode(&bytes);
        }
        let next = Origin { pool: sb.pool, epoch: known.epoch, seq: Seq(known.seq.0 + 1) };
        // What does not go on from here was left by others, whatever is in it.
        if LogBatch::origin(&bytes) != Ok(next) {
            break;
        }
        let (batch, size) =
            decoded.map_err(|why| too_new(sb.pool, &format!("change {} of its log {why}", next.seq)))?;
        batch.changes.iter().for_each(|change| known.state.apply(change));
        known.seq = Seq(known.seq.0 + batch.changes.len() as u64);
        at += size as u64;
    }
    Ok(Some((slot, known)))
}

async fn read_checkpoint(probe: &Probe, start: u64) -> Result<Option<Checkpoint>, PoolError> {
    let (device, room) = (&probe.device, probe.superblock.checkpoint_size);
    let head = read_bytes(device, start, BLOCK).await;
    let Some(len) = Checkpoint::announced(&head).ok().filter(|len| *len <= room) else { return Ok(None) };
    let bytes = read_bytes(device, start, len.next_multiple_of(BLOCK)).await;
    match (Checkpoint::origin(&bytes), Checkpoint::decode(&bytes)) {
        (Ok(_), Ok(checkpoint)) => Ok(Some(checkpoint)),
        (Ok(origin), Err(why)) if origin.pool == probe.superblock.pool => {
            Err(too_new(origin.pool, &format!("a checkpoint of epoch {} {why}", origin.epoch)))
        }
        _ => Ok(None),
    }
}

/// Bytes of a disk; none when they cannot be read.
async fn read_bytes(device: &Device, start: u64, len: u64) -> Vec<u8> {
    let read = device.read(start, IoBuf::new(len as usize)).await;
    read.map(|bytes| bytes.to_vec()).unwrap_or_default()
}

/// Finds the newest state of a pool among `probes`, and whether it may be trusted.
pub(crate) async fn find_state(
    guid: Guid,
    probes: Vec<Probe>,
    witness: &dyn QuorumWitness,
    options: OpenOptions,
) -> Result<Found, PoolError> {
    let mut best: Option<Checkpoint> = None;
    // By identity: a number may be on a second disk too, one whose joining was cut short.
    let mut found: BTreeMap<Guid, Member> = BTreeMap::new();
    for probe in probes.into_iter().filter(|probe| probe.superblock.pool == guid) {
        let mut slot = None;
        if let Some((newest, known)) = read_metadata(&probe).await? {
            slot = Some(newest);
            if best.as_ref().is_none_or(|b| (known.epoch, known.seq) > (b.epoch, b.seq)) {
                best = Some(known);
            }
        }
        let id = probe.superblock.disk;
        let epoch = probe.superblock.epoch;
        match found.get(&id) {
            Some(other) if other.probe.superblock.epoch >= epoch => {
                tracing::warn!(
                    "two disks call themselves disk {id} of pool {guid}; the second is left alone"
                );
            }
            _ => {
                found.insert(id, Member { probe, slot });
            }
        }
    }
    let Some(best) = best else {
        let detail =
            format!("no disk of pool {guid} with readable metadata is here ({} disks found)", found.len());
        return Err(PoolError::new(PoolErrorKind::NoQuorum, detail));
    };
    let known = best.state.disks.values();
    let present: BTreeMap<DiskId, Member> =
        known.filter_map(|disk| Some((disk.id, found.remove(&disk.guid)?))).collect();
    let voters: Vec<&DiskRecord> = best.state.metadata_disks().collect();
    let here = voters.iter().filter(|disk| present.get(&disk.id).is_some_and(|disk| disk.slot.is_some()));
    let here = here.count();
    let remembered = witness.load(guid).await.map_err(|error| {
        PoolError::new(PoolErrorKind::Io, "the quorum witness cannot be read").because(error)
    })?;
    let witness_agrees = remembered.is_some_and(|known| (best.epoch, best.seq) >= known);
    let witness_votes = has_witness_vote(voters.len()) && witness_agrees;
    let (votes, needed) = (here + usize::from(witness_votes), votes_needed(voters.len()));
    let name = &best.state.name;
    if remembered.is_some_and(|known| known > (best.epoch, best.seq))
        && here < voters.len()
        && !options.accept_loss
    {
        let detail = format!(
            "pool {name}: the disks that are here missed changes that were acknowledged (they know epoch {} change \
             {}); attach the missing disks, or accept the loss of what came later",
            best.epoch, best.seq
        );
        return Err(PoolError::new(PoolErrorKind::NoQuorum, detail));
    }
    if votes < needed && !options.accept_loss && !options.read_only {
        let detail = format!(
            "pool {name}: {votes} of {needed} votes needed are here ({here} of {} metadata disks{}); attach more of \
             its disks, or accept that changes only the missing ones know are lost",
            voters.len(),
            if witness_votes { " and the witness" } else { "" }
        );
        return Err(PoolError::new(PoolErrorKind::NoQuorum, detail));
    }
    let newest_epoch = best.epoch.max(remembered.map_or(Epoch(0), |(epoch, _)| epoch));
    Ok(Found { state: best.state, epoch: newest_epoch, seq: best.seq, present })
}
