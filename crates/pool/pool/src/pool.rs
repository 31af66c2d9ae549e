//! An open pool: making, opening, closing. Its spaces are in `spaces.rs`, its disks in `members.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use block_device::Device;
use parking_lot::{Mutex, RwLock};
use pool_format::{Change, DiskId, Epoch, Guid, Mark, Owner, SpaceId, SpaceRecord, Superblock};
use pool_layout::Striping;
use shard_runtime::{Clock, Entropy, finish_anyway, spawn_local};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::core::{Core, Faults, RepairParams};
use crate::disk::PoolDisk;
use crate::error::{PoolError, PoolErrorKind};
use crate::find::{self, Member};
use crate::marks::WentBack;
use crate::meta::{LogPosition, Meta};
use crate::open::{self, CreateOptions, NewDisk, OpenOptions};
use crate::ownership::Ownership;
use crate::row::{Row, Shape};
use crate::slabs::Slabs;
use crate::space::Space;
use crate::witness::QuorumWitness;
use crate::{clean, marks, repair, scrub, upkeep, votes};

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
    /// Its background work.
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Pool {
    /// A pool that is dropped without [`Pool::close`] stops as in a crash: its tasks must not go on writing to disks that
    /// somebody else may open next.
    fn drop(&mut self) {
        self.core.stop();
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
                ending: Notify::new(),
                copied_bytes: AtomicU64::new(0),
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

    /// Its identity.
    #[must_use]
    pub fn guid(&self) -> Guid {
        self.core.guid
    }

    /// Whether its metadata did not reach a majority of its disks: it does nothing more until it is opened again.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.core.meta.is_poisoned()
    }

    /// Whether this device is what it has open for a member, and not only a disk that says that it is that member.
    #[must_use]
    pub fn uses(&self, member: Guid, device: &Device) -> bool {
        self.core.all_disks().iter().any(|disk| disk.guid == member && disk.has_open(device))
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

    /// Ends background work, flushes all disks, calls all regions clean and stops. Requests under way should have ended.
    /// Nothing comes to the disks after this has returned: somebody else may open them.
    ///
    /// # Errors
    /// When a disk fails, or acknowledged writes may be lost that no flush has told of; the pool is closed all the same, and the
    /// next opening does what is left.
    pub async fn close(&self) -> Result<(), PoolError> {
        self.close_as(Afterwards::Kept).await
    }

    /// The same, and lets go of the pool: any node may open it from now on. That is the last thing that is written, when all else is durable
    /// and nothing is under way to a disk any more; whoever reads it may open the pool without keeping this node from its disks.
    ///
    /// # Errors
    /// The same as those of [`Pool::close`], and when requests to a disk do not end. The pool stays its owner's then.
    pub async fn close_and_release(&self) -> Result<(), PoolError> {
        self.close_as(Afterwards::Released).await
    }

    async fn close_as(&self, afterwards: Afterwards) -> Result<(), PoolError> {
        if self.core.read_only {
            return Ok(());
        }
        self.core.stop();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        // Left half-way, a page of checksums would be on its way to a disk while nobody knows of it.
        finish_anyway(end(Arc::clone(&self.core), tasks, afterwards)).await
    }
}

/// Whose a pool is that was closed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Afterwards {
    /// It stays its owner's.
    Kept,
    /// It is nobody's.
    Released,
}

/// How long a pool that is to be let go of waits for requests to its disks that nobody waits for any more.
const STRAGGLERS_END_WITHIN: Duration = Duration::from_secs(10);

/// What is left to do of a pool that has stopped.
async fn end(core: Arc<Core>, tasks: Vec<JoinHandle<()>>, afterwards: Afterwards) -> Result<(), PoolError> {
    for task in tasks {
        // Background work that has panicked is at its end too.
        let _ = task.await;
    }
    core.requests_end().await;
    core.meta.look_for_newer_owner().await;
    if core.meta.is_poisoned() {
        // Nothing may be written any more: what is left to do, the next opening does.
        core.all_disks().iter().for_each(|disk| disk.release_device());
        return Err(core.meta.failed().into());
    }
    let mut settled = settle(&core).await;
    if afterwards == Afterwards::Released && settled.is_ok() {
        settled = release(&core).await;
    }
    core.meta.close();
    for disk in core.all_disks() {
        disk.release_device();
    }
    settled
}

/// Makes durable what is not yet, and calls regions clean. All of it is tried, whatever fails.
async fn settle(core: &Arc<Core>) -> Result<(), PoolError> {
    let tidied = upkeep::tidy_journals(core, true).await;
    let cleaned = clean::clean(core, true).await;
    let marked = marks::renew(core).await;
    let saved = core.meta.checkpoint().await;
    tidied?;
    cleaned?;
    marked?;
    saved?;
    // Whoever has been told that it is closed takes all that was acknowledged for durable.
    match core.all_spaces().iter().find(|space| space.has_untold_loss()) {
        Some(space) => {
            let detail = format!(
                "the pool is closed, and a disk went away with data of space {} that no other copy has",
                space.name()
            );
            Err(PoolError::new(PoolErrorKind::Lost, detail))
        }
        None => Ok(()),
    }
}

/// Says on the disks that the pool is nobody's, unless a request may still reach one of them.
async fn release(core: &Arc<Core>) -> Result<(), PoolError> {
    let Some(owner) = core.meta.with_state(|state| state.owner.clone()) else { return Ok(()) };
    let disks = core.all_disks();
    let idle = async {
        while disks.iter().any(|disk| disk.has_requests()) {
            shard_runtime::sleep(Duration::from_millis(1)).await;
        }
    };
    if shard_runtime::timeout(STRAGGLERS_END_WITHIN, idle).await.is_none() {
        return Err(still_written(core, |disk| disk.has_requests()));
    }
    Ok(core.meta.commit(vec![Change::Owner(Owner { released: true, ..owner })]).await?)
}

fn still_written(core: &Core, is_late: impl Fn(&PoolDisk) -> bool) -> PoolError {
    let disks = core.all_disks();
    let late: Vec<String> =
        disks.iter().filter(|disk| is_late(disk)).map(|disk| disk.id.to_string()).collect();
    let detail = format!("requests to disks {} of pool {} do not end", late.join(", "), core.name);
    PoolError::new(PoolErrorKind::InUse, detail)
}

impl Pool {
    /// Stops using the disks as in a crash: nothing is called clean, and the next opening goes on from what is durable. For a
    /// pool that has stopped, when no request of its spaces is under way any more.
    ///
    /// # Errors
    /// When requests to disks have not ended in `patience`. What they write could overwrite what a next opening has
    /// written, so there must be none before this has succeeded.
    pub async fn abandon(&self, patience: Duration) -> Result<(), PoolError> {
        let core = &self.core;
        core.stop();
        core.meta.close();
        let disks = core.all_disks();
        disks.iter().for_each(|disk| disk.release_device());
        let ended = async {
            while disks.iter().any(|disk| disk.has_stragglers()) {
                shard_runtime::sleep(Duration::from_millis(1)).await;
            }
        };
        if shard_runtime::timeout(patience, ended).await.is_some() {
            return Ok(());
        }
        Err(still_written(core, |disk| disk.has_stragglers()))
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
