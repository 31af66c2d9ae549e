//! Finding the newest state of a pool on its disks, and whether it may be trusted.
//!
//! # Which state is the newest
//! A change is committed when a majority of votes has it durably (module `meta`). Any majority of the same
//! voters therefore contains one that has the last committed change, so the newest state that a majority's
//! members know is at least as new. It may hold changes that were never acknowledged; adopting them is safe,
//! since each leaves a sound state and none destroys data that an acknowledged one needs. The opening raises
//! the epoch and writes a checkpoint to a majority before anything else, so that what an older owner or an
//! absent disk still holds can never win later.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use aligned_buffer::IoBuf;
use block_device::Device;
use pool_format::{
    BLOCK, Checkpoint, DecodeError, DiskId, DiskRecord, Epoch, Guid, LogBatch, MAX_BATCH_BYTES, Origin,
    Owner, PoolState, Seq,
};

use crate::cut_short::CutShort;
use crate::error::{PoolError, PoolErrorKind};
use crate::faults::Faults;
use crate::marks;
use crate::open::{self, Member, OpenOptions, Probe, too_new};
use crate::voters::{has_witness_vote, votes_needed};
use crate::went_back::{self, WentBack};
use crate::witness::{Node, QuorumWitness};

/// What is known after reading the metadata.
pub(crate) struct Found {
    pub(crate) state: PoolState,
    pub(crate) epoch: Epoch,
    pub(crate) seq: Seq,
    pub(crate) present: BTreeMap<DiskId, Member>,
    /// Those of them that have gone back in time. What they hold is stale in the state.
    pub(crate) back: BTreeMap<DiskId, WentBack>,
    /// Disks that are here and as good as missing.
    pub(crate) short: BTreeMap<Guid, CutShort>,
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
    let half = sb.log_half(known.epoch).0 - sb.log_start;
    if !replay_log(probe, half, &mut known).await? && half > 0 {
        // A release before this one had the whole area for its log.
        replay_log(probe, 0, &mut known).await?;
    }
    Ok(Some((slot, known)))
}

/// Applies the changes of the log that begins so far into its area; whether there are any that go on from what is known.
async fn replay_log(probe: &Probe, mut at: u64, known: &mut Checkpoint) -> Result<bool, PoolError> {
    let (sb, begun) = (&probe.superblock, known.seq);
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
    Ok(known.seq > begun)
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

/// The owner of the pool `guid` in the newest state that these devices know; none where none knows any. Asks only, and does not say
/// whether that state is to be trusted.
///
/// # Errors
/// When a newer release wrote it.
pub async fn owner_of(guid: Guid, devices: &[Device]) -> Result<Option<Owner>, PoolError> {
    let mut best: Option<Checkpoint> = None;
    for probe in open::probe_all(guid, devices).await? {
        if let Some((_, known)) = read_metadata(&probe).await?
            && best.as_ref().is_none_or(|best| (known.epoch, known.seq) > (best.epoch, best.seq))
        {
            best = Some(known);
        }
    }
    Ok(best.and_then(|best| best.state.owner))
}

/// Finds the newest state of a pool among `probes`, and whether it may be trusted.
pub(crate) async fn find_state(
    guid: Guid,
    probes: &[Probe],
    witness: &dyn QuorumWitness,
    options: OpenOptions,
    faults: &Faults,
) -> Result<Found, PoolError> {
    let mut best: Option<Checkpoint> = None;
    // By identity: a number may be on a second disk too, one whose joining was cut short.
    let mut found: BTreeMap<Guid, Member> = BTreeMap::new();
    let mut short: BTreeMap<Guid, CutShort> = BTreeMap::new();
    for probe in probes.iter().filter(|probe| probe.superblock.pool == guid) {
        if let Some(cut) = CutShort::of(probe.device.size(), &probe.superblock) {
            short.insert(probe.superblock.disk, cut);
            continue;
        }
        let mut slot = None;
        if let Some((newest, known)) = read_metadata(probe).await? {
            slot = Some(newest);
            if best.as_ref().is_none_or(|b| (known.epoch, known.seq) > (b.epoch, b.seq)) {
                best = Some(known);
            }
        }
        let id = probe.superblock.disk;
        let mark = probe.superblock.mark();
        match found.get(&id) {
            Some(other) if other.probe.superblock.mark() >= mark => {
                tracing::warn!(
                    "two disks call themselves disk {id} of pool {guid}; the second is left alone"
                );
            }
            _ => {
                found.insert(id, Member { probe: probe.clone(), slot });
            }
        }
    }
    // A whole copy of it may be here too.
    short.retain(|disk, _| !found.contains_key(disk));
    let unusable: String =
        short.iter().map(|(disk, cut)| format!("; disk {disk} cannot be used: {cut}")).collect();
    let Some(mut best) = best else {
        let detail = format!(
            "no disk of pool {guid} with readable metadata is here ({} disks found{unusable})",
            found.len() + short.len()
        );
        return Err(PoolError::new(PoolErrorKind::NoQuorum, detail));
    };
    let known = best.state.disks.values();
    let present: BTreeMap<DiskId, Member> =
        known.filter_map(|disk| Some((disk.id, found.remove(&disk.guid)?))).collect();
    let voters: Vec<&DiskRecord> = best.state.metadata_disks().collect();
    let went_back = |(id, member): (&DiskId, &Member)| {
        Some((*id, went_back::went_back(&best.state, *id, member.probe.superblock.mark())?))
    };
    let trusting = faults.trust_stale_member.load(Ordering::Relaxed);
    let back: BTreeMap<DiskId, WentBack> =
        present.iter().filter(|_| !trusting).filter_map(went_back).collect();
    let votes =
        |disk: &DiskId| !back.contains_key(disk) && present.get(disk).is_some_and(|disk| disk.slot.is_some());
    let here = voters.iter().filter(|disk| votes(&disk.id)).count();
    let remembered = witness.load(guid).await.map_err(|error| {
        PoolError::new(PoolErrorKind::Io, "the quorum witness cannot be read").because(error)
    })?;
    let witness_agrees = remembered.is_some_and(|known| (best.epoch, best.seq) >= known);
    let witness_votes = has_witness_vote(voters.len()) && witness_agrees;
    let (votes, needed) = (here + usize::from(witness_votes), votes_needed(voters.len()));
    let name = &best.state.name;
    // Also when all disks are here: then all of them have gone back, restored from a backup for instance. (No crash leaves
    // them like that: the witness hears of nothing that is not durable on a disk.)
    if let Some((epoch, seq)) = remembered.filter(|known| *known > (best.epoch, best.seq))
        && !options.accept_loss
    {
        let detail = format!(
            "pool {name}: the disks that are here missed changes that were acknowledged (they know epoch {} change \
             {}, this node epoch {epoch} change {seq}{unusable}); attach the missing disks, or accept the loss of what came \
             later",
            best.epoch, best.seq
        );
        return Err(PoolError::new(PoolErrorKind::NoQuorum, detail));
    }
    if votes < needed && !options.accept_loss && !options.read_only {
        let backs = back.iter().map(|(disk, back)| format!("; disk {disk} has no vote: {back}"));
        let detail = format!(
            "pool {name}: {votes} of {needed} votes needed are here ({here} of {} metadata disks{}{}{unusable}); attach more of \
             its disks, or accept that changes only the missing ones know are lost",
            voters.len(),
            if witness_votes { " and the witness" } else { "" },
            backs.collect::<String>()
        );
        return Err(PoolError::new(PoolErrorKind::NoQuorum, detail));
    }
    let node = witness.node();
    if let (Some(node), Some(owner)) = (&node, &best.state.owner)
        && owner.node != node.id
        && !owner.released
        && !options.take_over
        && !options.read_only
    {
        let detail = format!("pool {name} is node {}'s, which has not let go of it", owner.name);
        return Err(PoolError::new(PoolErrorKind::InUse, detail));
    }
    if let Some(Node { id: node, name }) = node.filter(|_| !options.read_only) {
        best.state.owner = Some(Owner { node, name, released: false });
    }
    if options.accept_loss
        && (votes < needed || remembered.is_some_and(|known| known > (best.epoch, best.seq)))
    {
        // The pages of checksums may be newer than what is known of them, as the data is.
        let rows = best.state.rows.values_mut();
        rows.flat_map(|row| &mut row.columns).for_each(|column| column.generations.clear());
    }
    if !back.is_empty() {
        let losses = marks::distrust(&mut best.state, &back);
        if !losses.is_empty() && !options.accept_loss && !options.read_only {
            return Err(marks::refused(&best.state.name, &back, &losses));
        }
        for (disk, back) in &back {
            tracing::warn!("disk {disk} of pool {}: {back}; its copies are made anew", best.state.name);
        }
    }
    let newest_epoch = best.epoch.max(remembered.map_or(Epoch(0), |(epoch, _)| epoch));
    Ok(Found { state: best.state, epoch: newest_epoch, seq: best.seq, present, back, short })
}
