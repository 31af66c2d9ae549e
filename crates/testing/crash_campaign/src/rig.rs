//! Disks on one supply, the pool's surroundings, and the ledger of faults: what may be lost now.

mod ledger;
mod spoiled;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block_device::UnmapBehavior;
use pool::{
    CreateOptions, DiskDescription, DiskId, Epoch, Faults, Guid, MemoryWitness, NewDisk, Pool, PoolError,
    QuorumWitness, Resiliency, Seq, Surroundings, Vote, WitnessFuture,
};
use shard_runtime::{Clock as _, Monotonic};
use sim::{Dice, Lie, Pace, Power, SimClock, SimDisk, SimSpec, Survival};

use crate::case::{Case, Layout, Outcome, Sabotage, Stats};
use crate::troubles::Troubles;

pub(crate) use ledger::Mark;
pub(crate) use spoiled::{REGIONS, Spoiled, SpoiledMetadata, What, group_of, has_losses};

/// Where a disk stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// A member that is there.
    Member,
    /// A member that is away, or that the pool was made to give up.
    Away,
    /// Joining when the power went: a member or not.
    Joining,
    /// Retired while it is there, to be removed when nothing lies on it any more.
    Leaving,
    /// Retired after a loss, or removed; it never comes back.
    Replaced,
}

/// A disk of the rig.
pub(crate) struct Slot {
    pub(crate) disk: Arc<SimDisk>,
    /// Also its serial number, by which the pool's record of it is found.
    pub(crate) name: String,
    pub(crate) standing: Standing,
}

/// What a rig is made of.
pub(crate) struct RigSpec {
    /// Disks.
    pub(crate) count: u64,
    /// Bytes of a slab.
    pub(crate) slab: u64,
    /// Bytes for slabs on each disk.
    pub(crate) data: u64,
    /// The longest time of an operation.
    pub(crate) slow_millis: u64,
    /// Disks that do what a space does: unmapped blocks are zeros.
    pub(crate) plain: bool,
}

/// What a seed works with. Everything in it belongs to one thread.
pub(crate) struct Rig {
    pub(crate) case: Case,
    pub(crate) power: Arc<Power>,
    pub(crate) clock: Arc<SimClock>,
    /// When an operation was answered last while the power was on.
    alive: Cell<Monotonic>,
    pub(crate) surroundings: Surroundings,
    pub(crate) slots: RefCell<Vec<Slot>>,
    pub(crate) slab: u64,
    pub(crate) guid: Cell<Option<Guid>>,
    pub(crate) stats: RefCell<Stats>,
    spec: SimSpec,
    /// The process was killed: what its tasks still do counts no more.
    killed: Arc<AtomicBool>,
    broken: RefCell<Option<String>>,
    /// Disks that had a fault since everything was last known to be redundant.
    suspects: RefCell<BTreeSet<usize>>,
    /// The disk of each fault so far.
    faults: RefCell<Vec<usize>>,
    /// Sectors that have gone bad and may not have been healed yet.
    pub(crate) spoiled: RefCell<Vec<Spoiled>>,
    /// Structures of the pool that have gone bad before its opening.
    pub(crate) spoiled_metadata: RefCell<Vec<SpoiledMetadata>>,
    /// Slots whose disks vote, if known.
    voters: RefCell<Option<BTreeSet<usize>>>,
    /// The rarer kinds of bad luck, and where they stand.
    pub(crate) troubles: Troubles,
}

/// A witness under the same supply, in the same process: without power it answers nothing, and what is left of a
/// killed process tells it nothing.
struct PoweredWitness {
    power: Arc<Power>,
    killed: Arc<AtomicBool>,
    memory: MemoryWitness,
}

impl PoweredWitness {
    fn check(&self) -> std::io::Result<()> {
        let alive = self.power.is_on() && !self.killed.load(Ordering::Relaxed);
        if alive { Ok(()) } else { Err(std::io::Error::other("no power")) }
    }
}

impl QuorumWitness for PoweredWitness {
    fn load(&self, pool: Guid) -> WitnessFuture<'_, Option<(Epoch, Seq)>> {
        Box::pin(async move {
            self.check()?;
            self.memory.load(pool).await
        })
    }

    fn store(&self, pool: Guid, epoch: Epoch, seq: Seq) -> WitnessFuture<'_, Vote> {
        Box::pin(async move {
            self.check()?;
            self.memory.store(pool, epoch, seq).await
        })
    }

    fn forget(&self, pool: Guid) -> WitnessFuture<'_, ()> {
        Box::pin(async move {
            self.check()?;
            self.memory.forget(pool).await
        })
    }
}

/// Copies that a layout promises.
pub(crate) fn resiliency(layout: Layout) -> Resiliency {
    match layout {
        Layout::Simple => Resiliency::Simple,
        Layout::Mirror2 => Resiliency::Mirror(2),
        Layout::Mirror3 => Resiliency::Mirror(3),
        Layout::Parity1 => Resiliency::Parity(1),
        Layout::Parity2 => Resiliency::Parity(2),
    }
}

/// Disks that a space of this layout needs: one for each copy, or column.
pub(crate) fn least_disks(layout: Layout) -> usize {
    let resiliency = resiliency(layout);
    resiliency.failures() + if resiliency.parity() > 0 { 2 } else { 1 }
}

impl Rig {
    /// A rig.
    pub(crate) fn new(case: &Case, dice: &Dice, wanted: &RigSpec) -> Self {
        let power = Power::new(dice.fork());
        let pace = Pace {
            turns: dice.between(1, 12),
            slow_one_in: if dice.one_in(2) { 60 } else { 0 },
            slow_millis: dice.between(1, wanted.slow_millis),
        };
        let unmap = [UnmapBehavior::Zeroes, UnmapBehavior::Unspecified, UnmapBehavior::Ignored];
        let unmap = dice.pick(&unmap).copied().unwrap_or(UnmapBehavior::Zeroes);
        let unmap = if wanted.plain { UnmapBehavior::Zeroes } else { unmap };
        let block_size = if dice.one_in(2) { 512 } else { 4096 };
        // Two MiB for metadata and alignment, and one block for the last superblock.
        let size = (2 << 20) + (wanted.data + wanted.slab) as usize;
        let spec = SimSpec { size, block_size, unmap, pace };
        let clock = Arc::new(SimClock::default());
        let killed = Arc::new(AtomicBool::new(false));
        let witness = PoweredWitness {
            power: Arc::clone(&power),
            killed: Arc::clone(&killed),
            memory: MemoryWitness::default(),
        };
        let surroundings = Surroundings {
            clock: Arc::clone(&clock) as Arc<_>,
            entropy: Arc::new(dice.fork()),
            witness: Arc::new(witness),
        };
        let rig = Self {
            case: *case,
            power,
            clock,
            alive: Cell::default(),
            surroundings,
            slots: RefCell::default(),
            slab: wanted.slab,
            guid: Cell::new(None),
            stats: RefCell::default(),
            spec,
            killed,
            broken: RefCell::default(),
            suspects: RefCell::default(),
            faults: RefCell::default(),
            spoiled: RefCell::default(),
            spoiled_metadata: RefCell::default(),
            voters: RefCell::default(),
            troubles: Troubles::new(case),
        };
        let smaller = u64::from(rig.troubles.kinds.sizes);
        for _ in 0..wanted.count + smaller {
            rig.add_slot(Standing::Member);
        }
        rig
    }

    /// A further disk; its number.
    pub(crate) fn add_slot(&self, standing: Standing) -> usize {
        let size = self.size_of(self.slots.borrow().len());
        let disk = SimDisk::new(&self.power, &SimSpec { size, ..self.spec.clone() });
        disk.set_lie(match self.case.sabotage {
            Sabotage::DiskSkipsFlush => Some(Lie::SkipFlush(3)),
            Sabotage::DiskSkipsForce => Some(Lie::SkipForce(3)),
            Sabotage::DiskMisplaces => Some(Lie::Misplace(50)),
            _ => None,
        });
        let mut slots = self.slots.borrow_mut();
        let name = format!("disk{}", slots.len());
        slots.push(Slot { disk, name, standing });
        slots.len() - 1
    }

    /// Bytes of a disk. Where they differ, the largest has a hundred times what the smallest has, and there is room for
    /// the layout without the smallest.
    fn size_of(&self, slot: usize) -> usize {
        if !self.troubles.kinds.sizes {
            return self.spec.size;
        }
        let smallest = (2 << 20) + 4 * self.slab as usize;
        let (medium, largest) = (self.spec.size, 100 * smallest);
        let least = least_disks(self.case.layout).max(2);
        match slot {
            0 => largest,
            _ if slot < least => medium,
            _ if slot == least => smallest,
            _ => *self.troubles.dice.pick(&[smallest, medium, largest]).unwrap_or(&medium),
        }
    }

    pub(crate) fn disk(&self, slot: usize) -> Arc<SimDisk> {
        Arc::clone(&self.slots.borrow()[slot].disk)
    }

    pub(crate) fn new_disk(&self, slot: usize) -> NewDisk {
        let name = self.slots.borrow()[slot].name.clone();
        let description = DiskDescription { serial: name.clone(), ..DiskDescription::default() };
        NewDisk { device: self.disk(slot).device(), name, description }
    }

    /// Slabs that stand in for each other, one of which is enough: copies, or columns that may be lost and one more.
    pub(crate) fn redundancy(&self) -> usize {
        resiliency(self.case.layout).failures() + 1
    }

    /// Slots of this standing.
    pub(crate) fn with_standing(&self, standing: Standing) -> Vec<usize> {
        let slots = self.slots.borrow();
        (0..slots.len()).filter(|slot| slots[*slot].standing == standing).collect()
    }

    pub(crate) fn set_standing(&self, slot: usize, standing: Standing) {
        self.slots.borrow_mut()[slot].standing = standing;
    }

    /// The pool's number for a disk, if it is a member.
    pub(crate) fn id(&self, pool: &Pool, slot: usize) -> Option<DiskId> {
        let name = self.slots.borrow()[slot].name.clone();
        pool.status().disks.iter().find(|disk| disk.record.serial == name).map(|disk| disk.record.id)
    }

    /// A new event loop begins.
    pub(crate) fn begin_boot(&self) {
        self.clock.begin();
        self.killed.store(false, Ordering::Relaxed);
        self.troubles.lost_quorum.set(false);
        self.stats.borrow_mut().boots += 1;
    }

    pub(crate) async fn create_pool(&self) -> Result<Pool, PoolError> {
        let disks =
            self.with_standing(Standing::Member).into_iter().map(|slot| self.new_disk(slot)).collect();
        let options = CreateOptions { name: "p".into(), slab_size: self.slab, overwrite_foreign: false };
        let pool = Pool::create(disks, options, self.surroundings.clone()).await?;
        self.guid.set(Some(pool.guid()));
        self.sabotage(pool.faults());
        self.troubles.opened(&pool, &self.marked(&pool));
        Ok(pool)
    }

    /// The disks that the pool has marked by being opened or closed: those that are there, unless they are full.
    pub(crate) fn marked(&self, pool: &Pool) -> BTreeSet<usize> {
        let status = pool.status();
        let marked = |slot: &usize| {
            let id = self.id(pool, *slot);
            let online = status.disks.iter().any(|disk| Some(disk.record.id) == id && disk.online);
            online && !self.disk(*slot).is_full()
        };
        let slots = self.slots.borrow().len();
        (0..slots).filter(marked).collect()
    }

    pub(crate) fn sabotage(&self, faults: &Faults) {
        let set = |fault: &AtomicBool, kind| fault.store(self.case.sabotage == kind, Ordering::SeqCst);
        set(&faults.skip_flush, Sabotage::PoolSkipsFlush);
        set(&faults.skip_stale_mark, Sabotage::PoolSkipsStaleMark);
        set(&faults.skip_dirty_mark, Sabotage::PoolSkipsDirtyMark);
        set(&faults.skip_journal, Sabotage::PoolSkipsJournal);
        set(&faults.skip_verify, Sabotage::PoolSkipsVerify);
        set(&faults.trust_stale_member, Sabotage::PoolTrustsStaleMember);
        set(&faults.skip_generations, Sabotage::PoolSkipsGenerations);
        set(&faults.ignore_no_space, Sabotage::PoolIgnoresNoSpace);
        set(&faults.acknowledge_without_copy, Sabotage::PoolAcknowledgesWithoutCopy);
        set(&faults.overfill_disks, Sabotage::PoolOverfillsDisks);
    }

    /// Whether this boot has ended, by power or by a broken promise.
    pub(crate) fn is_over(&self) -> bool {
        self.is_killed() || !self.power.is_on() || self.broken.borrow().is_some()
    }

    /// The process dies; the disks keep their power.
    pub(crate) fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
        for slot in self.slots.borrow().iter() {
            slot.disk.abandon();
        }
    }

    /// Whether the process was killed and the disks were not.
    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }

    /// The pool is out of service and all its disks are here: it is to be opened anew, as a node does.
    pub(crate) fn reopen(&self) {
        self.trace(|| "to be opened anew".into());
        self.kill();
    }

    /// Notes what does not end with its boot.
    pub(crate) fn hung(&self, what: &str) {
        self.trace(|| format!("BROKEN: {what}"));
        self.broken.borrow_mut().get_or_insert(what.to_owned());
    }

    /// Notes a broken promise. What happens after the end of a boot is no promise.
    pub(crate) fn broken(&self, what: impl Into<String>) {
        if !self.is_over() {
            let what = what.into();
            self.trace(|| format!("BROKEN: {what}"));
            self.broken.borrow_mut().get_or_insert(what);
        }
    }

    pub(crate) fn trace(&self, what: impl FnOnce() -> String) {
        if self.case.trace {
            let seconds = self.clock.now().0 as f64 / 1e9;
            eprintln!("{seconds:9.3}s event {:6}: {}", self.power.events(), what());
        }
    }

    /// One more operation was answered.
    pub(crate) fn answered(&self) {
        self.stats.borrow_mut().operations += 1;
        // What is only in memory is answered without power, too.
        if !self.is_over() {
            self.alive.set(self.clock.now());
        }
    }

    /// When something was answered last before the power went, or the process.
    pub(crate) fn alive(&self) -> Monotonic {
        self.alive.get()
    }

    pub(crate) fn outcome(&self) -> Outcome {
        let mut stats = *self.stats.borrow();
        stats.cuts = self.power.cuts();
        stats.events = self.power.events();
        stats.sizes = u64::from(self.troubles.kinds.sizes);
        Outcome { stats, broken: self.broken.borrow().clone() }
    }

    /// A disk goes away, or at least the pool is made to give it up.
    pub(crate) fn lose(&self, slot: usize, dice: &Dice) {
        let disk = self.disk(slot);
        self.set_standing(slot, Standing::Away);
        self.stats.borrow_mut().losses += 1;
        let how = dice.below(3);
        self.trace(|| {
            format!("disk{slot} is lost ({})", ["vanished", "vanished", "unplugged"][how as usize])
        });
        match how {
            0 | 1 => disk.vanish(Survival::any(dice)),
            _ => disk.unplug(),
        }
    }
}

/// A pool's state in a line, for the trace.
pub(crate) fn summary(pool: &Pool) -> String {
    let status = pool.status();
    let disks = status.disks.iter().map(|disk| {
        let record = &disk.record;
        let online = if disk.online { "online" } else { "offline" };
        let votes = if record.metadata { ", votes" } else { "" };
        format!("{} {online} {:?}{votes}, {} bytes stale", record.serial, record.usage, disk.stale_bytes)
    });
    let disks: Vec<String> = disks.collect();
    format!(
        "open in epoch {}: {}; {} bytes unsettled",
        status.epoch,
        disks.join("; "),
        status.unsettled_bytes
    )
}
