//! Making and opening pools.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use block_device::Device;
use parking_lot::{Mutex, RwLock};
use pool_format::{Change, DiskId, Epoch, Guid, Mark, SpaceId, SpaceRecord, Superblock};
use pool_layout::Striping;
use shard_runtime::{Clock, spawn_local};
use tokio::sync::Notify;

use crate::core::{Core, Space};
use crate::disk::PoolDisk;
use crate::error::{PoolError, PoolErrorKind};
use crate::faults::Faults;
use crate::find;
use crate::meta::{LogPosition, Meta};
use crate::open::{self, CreateOptions, Member, NewDisk, OpenOptions};
use crate::ownership::Ownership;
use crate::params::RepairParams;
use crate::pool::{Pool, Surroundings};
use crate::row::{Row, Shape};
use crate::slabs::Slabs;
use crate::sums_cache::SumsCache;
use crate::went_back::WentBack;
use crate::{marks, repair, scrub, upkeep, votes};

impl Pool {
    /// Makes a pool on `disks` and opens it. Call on a shard.
    ///
    /// # Errors
    /// When a disk carries something else (named in the error), is too small, or fails.
    pub async fn create(
        disks: Vec<NewDisk>,
        options: CreateOptions,
        surroundings: Surroundings,
    ) -> Result<Self, PoolError> {
        let guid = open::create(&disks, &options, &*surroundings.witness, &*surroundings.entropy).await?;
        let devices = disks.into_iter().map(|disk| disk.device).collect();
        Self::open(guid, devices, OpenOptions::default(), surroundings).await
    }

    /// Opens the pool `guid` from those of `devices` that belong to it, in the epoch of its owner. Call on a shard, when nobody of a
    /// lower epoch writes to its disks any more, or can do no harm: what is read here is believed.
    ///
    /// # Errors
    /// When too few of its disks are here, they cannot be trusted to know the newest state, or a newer release wrote them; when its
    /// owner's epoch is not above all that is known ([`PoolErrorKind::OldEpoch`]).
    pub async fn open(
        guid: Guid,
        devices: Vec<Device>,
        options: OpenOptions,
        surroundings: Surroundings,
    ) -> Result<Self, PoolError> {
        Self::open_broken(guid, devices, options, surroundings, Faults::default()).await
    }

    /// The same with deliberate defects from the beginning on, for tests of the tests.
    ///
    /// # Errors
    /// The same as those of [`Pool::open`].
    pub async fn open_broken(
        guid: Guid,
        devices: Vec<Device>,
        options: OpenOptions,
        surroundings: Surroundings,
        faults: Faults,
    ) -> Result<Self, PoolError> {
        let mut probes = open::probe_all(guid, &devices).await?;
        let mut found = find::find_state(guid, &probes, &*surroundings.witness, options, &faults).await?;
        let mut epoch = found.epoch;
        let (mut losers, mut signed) = (Vec::new(), None);
        let ownership = Arc::new(Ownership::default());
        if !options.read_only {
            let above = marks::next_epoch(guid, epoch, &probes);
            epoch = options.epoch.unwrap_or(above);
            if epoch < above {
                // What an owner of that epoch was promised is not to be touched.
                return Err(open::old_epoch(&found.state.name, epoch, Epoch(above.0 - 1)));
            }
            let mark = Mark { epoch, seq: found.seq };
            let claimed = marks::claim(&mut probes, &found.present, &found.back, mark, &ownership).await;
            ownership.check("claim the disks of a pool")?;
            // Read again: what an owner before this one has been promised until it could see the claim is in there now.
            found = find::find_state(guid, &probes, &*surroundings.witness, options, &faults).await?;
            signed = Some(claimed.keys().copied().collect::<Vec<_>>());
            found.state.marks.extend(claimed);
            losers = votes::move_votes(&mut found.state, &found.present)?;
        }
        let disks = open_disks(&found, &surroundings.clock, &ownership);
        if let Some(signed) = signed {
            let lacking = disks.values().filter(|disk| !signed.contains(&disk.id));
            lacking.for_each(|disk| disk.unsigned.store(true, Ordering::Release));
        }
        let problems = found.state.problems();
        if let Some(first) = problems.first() {
            let detail = format!("pool {}: the metadata is inconsistent: {first}", found.state.name);
            return Err(PoolError::new(PoolErrorKind::Damaged, detail));
        }
        let disks = Arc::new(RwLock::new(disks));
        let state = found.state.clone();
        let slabs = Slabs::new(&state);
        let outside = (Arc::clone(&surroundings.witness), ownership);
        let meta = Arc::new(Meta::new(found.state, Arc::clone(&disks), outside, (epoch, found.seq)));
        let mut position = LogPosition { seq: found.seq, used: 0 };
        if !options.read_only {
            fence(&meta, &mut position, &surroundings, guid, found.present, &found.back).await?;
            votes::clear_votes(guid, &losers).await?;
        }
        let core = Arc::new_cyclic(|core| {
            let make = |record: &SpaceRecord| {
                let parity = record.resiliency.parity();
                let striping = Striping::new(record.columns, parity, record.interleave, state.slab_size)?;
                Some((record.id, Space::new(core, record.clone(), striping, options.read_only)))
            };
            let spaces: BTreeMap<SpaceId, Arc<Space>> = state.spaces.values().filter_map(make).collect();
            Core {
                guid,
                name: state.name.clone(),
                slab_size: state.slab_size,
                read_only: options.read_only,
                disks,
                meta: Arc::clone(&meta),
                spaces: RwLock::new(spaces),
                closed: RwLock::default(),
                slabs: Mutex::new(slabs),
                sums: SumsCache::default(),
                clock: Arc::clone(&surroundings.clock),
                params: RwLock::new(RepairParams::default()),
                governor: Default::default(),
                balancer: Default::default(),
                exchanges: Default::default(),
                attention: Notify::new(),
                urgent: AtomicBool::new(false),
                upkeep_attention: Notify::new(),
                scrub_params: RwLock::default(),
                scrub_attention: Notify::new(),
                closing: AtomicBool::new(false),
                ending: Notify::new(),
                copied_bytes: AtomicU64::new(0),
                balanced_bytes: AtomicU64::new(0),
                scrubbed_bytes: AtomicU64::new(0),
                faults,
                administering: tokio::sync::Mutex::new(()),
                marking: tokio::sync::Mutex::new(()),
                cleaning: tokio::sync::Mutex::new(()),
                adding: tokio::sync::Mutex::new(()),
                allocating: tokio::sync::Mutex::new(()),
                voting: tokio::sync::Mutex::new(()),
            }
        });
        for ((space, number), record) in &state.rows {
            let space = core.spaces.read().get(space).cloned();
            if let Some(space) = space {
                let shape = Shape::of(&space.record(), *number, core.slab_size);
                space.put_row(*number, Row::new(record, shape, &|id| core.disk(id), true));
            }
        }
        let mut tasks = Vec::new();
        if !options.read_only {
            spawn_local(Arc::clone(&meta).run(position));
            let secret = || Guid(surroundings.entropy.next_id());
            if let Err(error) = core.open_spaces(secret, options.accept_loss).await {
                // The committer lets go of the disks.
                meta.close();
                return Err(error);
            }
            tasks.push(spawn_local(repair::run(Arc::clone(&core))));
            tasks.push(spawn_local(upkeep::run(Arc::clone(&core))));
            tasks.push(spawn_local(scrub::run(Arc::clone(&core))));
        }
        Ok(Self { core, surroundings, tasks: Mutex::new(tasks) })
    }
}

fn open_disks(
    found: &find::Found,
    clock: &Arc<dyn Clock>,
    ownership: &Arc<Ownership>,
) -> BTreeMap<DiskId, Arc<PoolDisk>> {
    let make = |record: &pool_format::DiskRecord| {
        let member: Option<&Member> = found.present.get(&record.id);
        let layout = member.map(|member| member.probe.superblock.clone());
        let layout = layout.or_else(|| absent_layout(found, record))?;
        let device = member.map(|member| Arc::clone(&member.probe.device));
        let disk = PoolDisk::new(record.id, layout, device, (Arc::clone(clock), Arc::clone(ownership)));
        if let Some(slot) = member.and_then(|member| member.slot) {
            disk.newest_slot.store(slot, Ordering::Release);
        }
        *disk.went_back.lock() = found.back.get(&record.id).copied();
        if let Some(cut) = found.short.get(&record.guid) {
            disk.tell_why_offline(&cut.to_string());
        }
        Some((record.id, Arc::new(disk)))
    };
    found.state.disks.values().filter_map(make).collect()
}

/// The layout of a disk that is not here, as far as it matters: where its slabs would be.
fn absent_layout(found: &find::Found, record: &pool_format::DiskRecord) -> Option<Superblock> {
    let mut layout = pool_format::layout_for(record.size, found.state.slab_size)?;
    layout.disk = record.guid;
    layout.disk_id = record.id;
    layout.pool = found.state.guid;
    if (layout.data_start, layout.slab_count) != (record.data_start, record.slab_count) {
        // Laid out by an older release, without room for checksums.
        layout.sums_start = 0;
    }
    layout.data_start = record.data_start;
    layout.slab_count = record.slab_count;
    Some(layout)
}

/// Makes this opening's epoch durable before anything else is written.
async fn fence(
    meta: &Meta,
    position: &mut LogPosition,
    surroundings: &Surroundings,
    guid: Guid,
    present: BTreeMap<DiskId, Member>,
    back: &BTreeMap<DiskId, WentBack>,
) -> Result<(), PoolError> {
    // Both slots of each disk in turn, the older one first: a cut leaves a whole one at any moment, and in the
    // end no stale checkpoint of a higher number is left.
    meta.write_checkpoint(position).await?;
    meta.write_checkpoint(position).await?;
    open::vote(&*surroundings.witness, guid, meta.epoch(), position.seq).await?;
    // Not before it is durable that nothing on them is to be believed.
    let mut signed = Vec::new();
    for (disk, Member { mut probe, .. }) in present.into_iter().filter(|(disk, _)| back.contains_key(disk)) {
        let mark = Mark { epoch: meta.epoch(), seq: position.seq };
        if marks::sign(&mut probe, mark, meta.ownership()).await {
            signed.push(Change::Mark { disk, mark });
        }
    }
    if !signed.is_empty() {
        meta.amend(&signed);
        meta.write_checkpoint(position).await?;
    }
    Ok(())
}
