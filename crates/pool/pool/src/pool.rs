//! An open pool: making, opening, spaces, disks, closing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use block_device::Device;
use parking_lot::{Mutex, RwLock};
use pool_format::{
    BLOCK, Change, DiskId, DiskUse, Epoch, Guid, JOURNAL_ROW, Provisioning, ROWS_MAX, Resiliency, SpaceId,
    SpaceRecord, Superblock,
};
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
use crate::sums::PAGE_SPAN;
use crate::witness::QuorumWitness;
use crate::{repair, replay, resync, scrub};

/// Columns of a space, at most.
const COLUMNS_MAX: u8 = 32;

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

/// How to make a space.
#[derive(Clone, Debug)]
pub struct SpaceSpec {
    /// Its name, unique in the pool.
    pub name: String,
    /// How it keeps its data.
    pub resiliency: Resiliency,
    /// When it takes slabs.
    pub provisioning: Provisioning,
    /// Disks that data is striped over.
    pub columns: u8,
    /// Bytes that go to one column before the next.
    pub interleave: u32,
    /// Size in bytes; rounded up to 4 KiB.
    pub size: u64,
    /// Whether every block has a checksum (parity needs them).
    pub integrity: bool,
}

impl SpaceSpec {
    /// A thin space with checksums, one column and the usual interleave of 256 KiB.
    #[must_use]
    pub fn thin(name: &str, resiliency: Resiliency, size: u64) -> Self {
        let name = name.to_owned();
        Self {
            name,
            resiliency,
            provisioning: Provisioning::Thin,
            columns: 1,
            interleave: 256 << 10,
            size,
            integrity: true,
        }
    }
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
        self.core.closing.store(true, Ordering::Release);
        self.core.attention.notify_one();
        self.core.scrub_attention.notify_one();
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
    /// When too few of its disks are here, or they cannot be trusted to know the newest state.
    pub async fn open(
        guid: Guid,
        devices: Vec<Device>,
        options: OpenOptions,
        surroundings: Surroundings,
    ) -> Result<Self, PoolError> {
        let mut probes = Vec::new();
        for device in &devices {
            // A disk that cannot be read is as good as absent.
            if let Ok(Some(probe)) = open::probe(device).await {
                probes.push(probe);
            }
        }
        let found = open::find_state(guid, probes, &*surroundings.witness, options).await?;
        let epoch = if options.read_only { found.epoch } else { Epoch(found.epoch.0 + 1) };
        let disks = open_disks(&found);
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
                slabs: Mutex::new(slabs),
                sums: crate::sums::SumsCache::default(),
                clock: Arc::clone(&surroundings.clock),
                params: RwLock::new(RepairParams::default()),
                attention: Notify::new(),
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
            for space in core.all_spaces() {
                if space.striping.parity() > 0 && space.row(JOURNAL_ROW).is_none() {
                    // Its making was cut short before it was answered.
                    core.meta.commit(vec![Change::DeleteSpace(space.id())]).await?;
                    core.spaces.write().remove(&space.id());
                    continue;
                }
                let opened = open_journal(&core, &space, Guid(surroundings.entropy.next_id())).await;
                if let Err(error) = opened {
                    // The committer lets go of the disks.
                    meta.close();
                    return Err(error);
                }
            }
            spawn_local(repair::run(Arc::clone(&core)));
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

    /// Makes a space.
    ///
    /// # Errors
    /// When the name is taken, the numbers make no sense, or a fixed space does not fit.
    pub async fn create_space(&self, spec: SpaceSpec) -> Result<Arc<Space>, PoolError> {
        let core = &self.core;
        let _one = core.administering.lock().await;
        core.check_writable()?;
        let invalid = |detail: String| PoolError::new(PoolErrorKind::Invalid, detail);
        if spec.name.is_empty() || spec.name.len() > 255 {
            return Err(invalid("a space's name has 1 to 255 bytes".into()));
        }
        if spec.size == 0 || spec.size > i64::MAX as u64 / 2 {
            return Err(invalid(format!("a space cannot have {} bytes", spec.size)));
        }
        check_shape(&spec).map_err(invalid)?;
        let parity = spec.resiliency.parity();
        let Some(striping) = Striping::new(spec.columns, parity, spec.interleave, core.slab_size) else {
            let most = core.slab_size / u64::from(pool_format::REGIONS);
            return Err(invalid(format!(
                "the interleave must be a power of two from {BLOCK} to {most} bytes with slabs of {} bytes",
                core.slab_size
            )));
        };
        if u64::from(spec.interleave) < BLOCK {
            return Err(invalid(format!("the interleave must be at least {BLOCK} bytes")));
        }
        check_rows(&striping, spec.size)?;
        let needed = spec.resiliency.copies() * usize::from(spec.columns);
        let active =
            core.meta.with_state(|s| s.disks.values().filter(|d| d.usage == DiskUse::Active).count());
        if active < needed {
            let detail = format!(
                "the pool has {active} active disks; {needed} are needed for this many copies and columns"
            );
            return Err(PoolError::new(PoolErrorKind::NoSpace, detail));
        }
        let (id, taken) = core.meta.with_state(|state| {
            (SpaceId(state.next_space), state.spaces.values().any(|space| space.name == spec.name))
        });
        if taken {
            return Err(PoolError::new(
                PoolErrorKind::AlreadyExists,
                format!("there is a space {} already", spec.name),
            ));
        }
        let record = SpaceRecord {
            id,
            guid: Guid(self.surroundings.entropy.next_id()),
            name: spec.name,
            resiliency: spec.resiliency,
            provisioning: spec.provisioning,
            columns: spec.columns,
            interleave: spec.interleave,
            size: spec.size.next_multiple_of(BLOCK),
            integrity: spec.integrity,
        };
        core.meta.commit(vec![Change::PutSpace(record.clone())]).await?;
        let space = Space::new(&Arc::downgrade(core), record.clone(), striping, false);
        core.spaces.write().insert(id, Arc::clone(&space));
        if parity > 0
            && let Err(error) = self.make_journal(&space).await
        {
            self.delete_space_alone(id).await?;
            return Err(error);
        }
        if record.provisioning == Provisioning::Fixed
            && let Err(error) = self.allocate_all(&space, 0, record.size).await
        {
            // Nothing half-done: a fixed space that does not fit is not there.
            self.delete_space_alone(id).await?;
            return Err(error);
        }
        Ok(space)
    }

    async fn make_journal(&self, space: &Arc<Space>) -> Result<(), PoolError> {
        space.row_for_write(&self.core, JOURNAL_ROW).await?;
        open_journal(&self.core, space, Guid(self.surroundings.entropy.next_id())).await
    }

    async fn allocate_all(&self, space: &Arc<Space>, from: u64, size: u64) -> Result<(), PoolError> {
        for row in space.striping.rows(from)..space.striping.rows(size) {
            space.row_for_write(&self.core, row as u32).await?;
        }
        Ok(())
    }

    /// The spaces, by number.
    #[must_use]
    pub fn spaces(&self) -> Vec<Arc<Space>> {
        self.core.all_spaces()
    }

    /// The space of that name.
    #[must_use]
    pub fn space(&self, name: &str) -> Option<Arc<Space>> {
        self.core.all_spaces().into_iter().find(|space| space.name() == name)
    }

    /// Grows a space while it is in use.
    ///
    /// # Errors
    /// When the new size is smaller, or a fixed space does not fit.
    pub async fn grow_space(&self, id: SpaceId, size: u64) -> Result<(), PoolError> {
        let _one = self.core.administering.lock().await;
        self.core.check_writable()?;
        let space = self.core.spaces.read().get(&id).cloned();
        let space = space
            .ok_or_else(|| PoolError::new(PoolErrorKind::NotFound, format!("there is no space {id}")))?;
        let mut record = space.record();
        let size = size.next_multiple_of(BLOCK);
        if size < record.size || size > i64::MAX as u64 / 2 {
            let detail = format!("space {} has {} bytes and can only grow", record.name, record.size);
            return Err(PoolError::new(PoolErrorKind::Invalid, detail));
        }
        check_rows(&space.striping, size)?;
        if record.provisioning == Provisioning::Fixed {
            self.allocate_all(&space, record.size, size).await?;
        }
        record.size = size;
        self.core.meta.commit(vec![Change::PutSpace(record.clone())]).await?;
        space.set_record(record);
        Ok(())
    }

    /// Deletes a space and its data.
    ///
    /// # Errors
    /// When it isn't there, or the metadata cannot be written.
    pub async fn delete_space(&self, id: SpaceId) -> Result<(), PoolError> {
        let _one = self.core.administering.lock().await;
        self.core.check_writable()?;
        self.delete_space_alone(id).await
    }

    async fn delete_space_alone(&self, id: SpaceId) -> Result<(), PoolError> {
        let space = self.core.spaces.write().remove(&id);
        let space = space
            .ok_or_else(|| PoolError::new(PoolErrorKind::NotFound, format!("there is no space {id}")))?;
        let _one = self.core.allocating.lock().await;
        space.set_deleted();
        self.core.meta.commit(vec![Change::DeleteSpace(id)]).await?;
        for (number, row) in space.rows() {
            space.take_row(number);
            // The map's handle is gone and `row` is ours: a further one is a request under way.
            while Arc::strong_count(&row) > 1 {
                shard_runtime::sleep(std::time::Duration::from_millis(1)).await;
            }
            let mut slabs = self.core.slabs.lock();
            for copy in row.columns.iter().flat_map(|column| column.copies().to_vec()) {
                slabs.give_back(copy.id(), copy.slab);
            }
        }
        Ok(())
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
        Ok(repair::pass(&self.core).await?)
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
        let tidied = repair::tidy_journals(core, true).await;
        let cleaned = resync::clean(core, true).await;
        core.closing.store(true, Ordering::Release);
        core.attention.notify_one();
        core.scrub_attention.notify_one();
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

/// Brings what a parity space's journal holds to its place, before anybody reads the space.
async fn open_journal(core: &Arc<Core>, space: &Arc<Space>, secret: Guid) -> Result<(), PoolError> {
    if space.striping.parity() == 0 {
        return Ok(());
    }
    let journal = replay::replay(core, space, secret).await.map_err(|error| {
        let detail = format!("the journal of space {} cannot be brought to its place: {error}", space.name());
        PoolError::new(PoolErrorKind::Io, detail).because(error)
    })?;
    space.set_journal(journal);
    Ok(())
}

/// Whether a space can be made like this.
fn check_shape(spec: &SpaceSpec) -> Result<(), String> {
    if spec.columns == 0 || spec.columns > COLUMNS_MAX {
        return Err(format!("a space has 1 to {COLUMNS_MAX} columns"));
    }
    match spec.resiliency {
        Resiliency::Mirror(copies) if !(2..=3).contains(&copies) => Err("a mirror has 2 or 3 copies".into()),
        Resiliency::Parity(count) if !(1..=2).contains(&count) => {
            Err("parity is single or dual: 1 or 2 columns of each stripe".into())
        }
        Resiliency::Parity(count) if spec.columns < count + 2 => {
            let least = count + 2;
            Err(format!("a space with {count} columns of parity has {least} columns at least: two for data"))
        }
        Resiliency::Parity(_) if !spec.integrity => {
            Err("a space with parity needs checksums: they tell which column of a stripe is damaged".into())
        }
        Resiliency::Parity(_) if u64::from(spec.interleave) > PAGE_SPAN => {
            Err(format!("the interleave of a space with parity is {PAGE_SPAN} bytes at most"))
        }
        _ => Ok(()),
    }
}

/// Rows are numbered with 32 bits, and with parity the last number is the journal's.
fn check_rows(striping: &Striping, size: u64) -> Result<(), PoolError> {
    let numbers = ROWS_MAX - u64::from(striping.parity() > 0);
    if striping.rows(size) <= numbers {
        return Ok(());
    }
    let most = numbers.saturating_mul(striping.row_size());
    let detail = format!("a space of this shape can have {most} bytes at most, not {size}");
    Err(PoolError::new(PoolErrorKind::Invalid, detail))
}

fn open_disks(found: &open::Found) -> BTreeMap<DiskId, Arc<PoolDisk>> {
    let make = |record: &pool_format::DiskRecord| {
        let member: Option<&Member> = found.present.get(&record.id);
        let layout = member.map(|member| member.probe.superblock.clone());
        let layout = layout.or_else(|| absent_layout(found, record))?;
        let device = member.map(|member| Arc::clone(&member.probe.device));
        let disk = PoolDisk::new(record.id, layout, device);
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
