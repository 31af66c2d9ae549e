//! An open pool: making, opening, closing. Its spaces are in `spaces.rs`, its disks in `members.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use block_device::Device;
use parking_lot::{Mutex, RwLock};
use pool_format::{DiskId, Epoch, Guid, SpaceId, SpaceRecord, Superblock};
use pool_layout::Striping;
use shard_runtime::{Clock, Entropy, spawn_local};
use tokio::sync::Notify;

use crate::core::{Core, Faults, RepairParams};
use crate::disk::PoolDisk;
use crate::error::{PoolError, PoolErrorKind};
use crate::meta::{CommitFailed, LogPosition, Meta};
use crate::open::{self, CreateOptions, Member, NewDisk, OpenOptions};
use crate::row::{Row, Shape};
use crate::slabs::Slabs;
use crate::space::Space;
use crate::witness::QuorumWitness;
use crate::{clean, repair, scrub, upkeep};

/// What pools need from their surroundings.
#[derive(Clone)]
pub struct Surroundings {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness for identities.
    pub entropy: Arc<dyn Entropy>,
    /// The vote apart from the disks.
    pub witness: Arc<dyn QuorumWitness>,
}

/// An open pool. Its tasks live on the shard that opened it; its spaces serve all shards.
pub struct Pool {
    pub(crate) core: Arc<Core>,
    pub(crate) surroundings: Surroundings,
}

impl Drop for Pool {
    /// A pool that is dropped without [`Pool::close`] stops as in a crash: its tasks must not go on writing to disks that
    /// somebody else may open next.
    fn drop(&mut self) {
        self.core.stop();
    }
}

impl From<CommitFailed> for PoolError {
    fn from(_: CommitFailed) -> Self {
        Self::new(
            PoolErrorKind::Stopped,
            "the pool's metadata did not reach a majority of its disks; it has stopped",
        )
    }
}

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

    /// Opens the pool `guid` from those of `devices` that belong to it. Call on a shard.
    ///
    /// # Errors
    /// When too few of its disks are here, they cannot be trusted to know the newest state, or a newer release wrote them.
    pub async fn open(
        guid: Guid,
        devices: Vec<Device>,
        options: OpenOptions,
        surroundings: Surroundings,
    ) -> Result<Self, PoolError> {
        let probes = open::probe_all(guid, &devices).await?;
        let found = open::find_state(guid, probes, &*surroundings.witness, options).await?;
        let epoch = if options.read_only { found.epoch } else { Epoch(found.epoch.0 + 1) };
        let disks = open_disks(&found, &surroundings.clock);
        let problems = found.state.problems();
        if let Some(first) = problems.first() {
            let detail = format!("pool {}: the metadata is inconsistent: {first}", found.state.name);
            return Err(PoolError::new(PoolErrorKind::Damaged, detail));
        }
        let disks = Arc::new(RwLock::new(disks));
        let state = found.state.clone();
        let slabs = Slabs::new(&state);
        let witness = Arc::clone(&surroundings.witness);
        let meta = Arc::new(Meta::new(found.state, Arc::clone(&disks), witness, epoch));
        let mut position = LogPosition { seq: found.seq, used: 0 };
        if !options.read_only {
            fence(&meta, &mut position, &surroundings, guid, &found.present).await?;
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
                sums: crate::sums::SumsCache::default(),
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
                copied_bytes: AtomicU64::new(0),
                faults: Faults::default(),
                administering: tokio::sync::Mutex::new(()),
                cleaning: tokio::sync::Mutex::new(()),
                adding: tokio::sync::Mutex::new(()),
                allocating: tokio::sync::Mutex::new(()),
            }
        });
        for ((space, number), record) in &state.rows {
            let space = core.spaces.read().get(space).cloned();
            if let Some(space) = space {
                let shape = Shape::of(&space.record(), *number, core.slab_size);
                space.put_row(*number, Row::new(record, shape, &|id| core.disk(id), true));
            }
        }
        if !options.read_only {
            spawn_local(Arc::clone(&meta).run(position));
            let secret = || Guid(surroundings.entropy.next_id());
            if let Err(error) = core.open_spaces(secret).await {
                // The committer lets go of the disks.
                meta.close();
                return Err(error);
            }
            spawn_local(repair::run(Arc::clone(&core)));
            spawn_local(upkeep::run(Arc::clone(&core)));
            spawn_local(scrub::run(Arc::clone(&core)));
        }
        Ok(Self { core, surroundings })
    }

    /// Its identity.
    #[must_use]
    pub fn guid(&self) -> Guid {
        self.core.guid
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Size of its slabs, in bytes.
    #[must_use]
    pub fn slab_size(&self) -> u64 {
        self.core.slab_size
    }

    /// Deliberate defects for tests of the tests.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.core.faults
    }

    /// How repair may use the disks from now on.
    pub fn set_repair_params(&self, params: RepairParams) {
        *self.core.params.write() = params;
        self.core.attention.notify_one();
    }

    /// How repair may use the disks.
    #[must_use]
    pub fn repair_params(&self) -> RepairParams {
        *self.core.params.read()
    }

    /// Keeps at most this many bytes of checksums in memory from now on (four for each 4 KiB of data in use).
    pub fn set_checksum_memory(&self, bytes: usize) {
        self.core.sums.set_limit(bytes);
    }

    /// One pass of repair now, besides the background's: for tests that want it done.
    ///
    /// # Errors
    /// When the metadata cannot be written.
    pub async fn repair_now(&self) -> Result<(), PoolError> {
        loop {
            repair::pass(&self.core).await?;
            if self.core.is_over() || !self.core.urgent.load(Ordering::Acquire) {
                return Ok(());
            }
        }
    }

    /// Flushes all disks, calls all regions clean and stops. Requests under way should have ended.
    ///
    /// # Errors
    /// When a disk fails; the pool is closed all the same, and the next opening does what is left.
    pub async fn close(&self) -> Result<(), PoolError> {
        let core = &self.core;
        if core.read_only {
            return Ok(());
        }
        let tidied = upkeep::tidy_journals(core, true).await;
        let cleaned = clean::clean(core, true).await;
        core.stop();
        let saved = core.meta.checkpoint().await;
        core.meta.close();
        for disk in core.all_disks() {
            disk.release_device();
        }
        tidied?;
        cleaned?;
        Ok(saved?)
    }
}

fn open_disks(found: &open::Found, clock: &Arc<dyn Clock>) -> BTreeMap<DiskId, Arc<PoolDisk>> {
    let make = |record: &pool_format::DiskRecord| {
        let member: Option<&Member> = found.present.get(&record.id);
        let layout = member.map(|member| member.probe.superblock.clone());
        let layout = layout.or_else(|| absent_layout(found, record))?;
        let device = member.map(|member| Arc::clone(&member.probe.device));
        let disk = PoolDisk::new(record.id, layout, device, Arc::clone(clock));
        if let Some(slot) = member.and_then(|member| member.slot) {
            disk.newest_slot.store(slot, Ordering::Release);
        }
        Some((record.id, Arc::new(disk)))
    };
    found.state.disks.values().filter_map(make).collect()
}

/// The layout of a disk that is not here, as far as it matters: where its slabs would be.
fn absent_layout(found: &open::Found, record: &pool_format::DiskRecord) -> Option<Superblock> {
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
    present: &BTreeMap<DiskId, Member>,
) -> Result<(), PoolError> {
    // Both slots of each disk in turn, the older one first: a cut leaves a whole one at any moment, and in the
    // end no stale checkpoint of a higher number is left.
    meta.write_checkpoint(position).await?;
    meta.write_checkpoint(position).await?;
    let stored = surroundings.witness.store(guid, meta.epoch(), position.seq).await;
    stored.map_err(|error| {
        PoolError::new(PoolErrorKind::Io, "the quorum witness cannot be written").because(error)
    })?;
    for Member { probe, .. } in present.values() {
        let mut superblock = probe.superblock.clone();
        superblock.epoch = meta.epoch();
        // A disk that fails here is found offline at its next use.
        if let Err(error) = open::write_superblock(&probe.device, &superblock).await {
            tracing::warn!("the superblock of disk {} cannot be written: {error}", superblock.disk_id);
        }
    }
    Ok(())
}
