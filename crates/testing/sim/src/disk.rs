//! A disk that stays when the power goes, and what is attached to it for as long as it is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use aligned_buffer::IoBuf;
use block_device::{BlockError, BlockErrorKind, Geometry, UnmapBehavior};
use parking_lot::Mutex;

use crate::medium::{Change, Content, Medium};
use crate::power::Supplied;
use crate::{Dice, Power, SECTOR, Survival};

/// What a disk is.
#[derive(Clone, Debug)]
pub struct SimSpec {
    /// Size in bytes, whole blocks.
    pub size: usize,
    /// Smallest unit of transfer: 512 or 4096.
    pub block_size: u32,
    /// What an unmap leaves.
    pub unmap: UnmapBehavior,
    /// How long operations take.
    pub pace: Pace,
}

/// How long operations take.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Turns of the event loop that an operation takes at most.
    pub turns: u64,
    /// One operation in so many takes up to `slow_millis` of virtual time instead; 0 for none.
    pub slow_one_in: u64,
    /// Milliseconds of a slow operation at most.
    pub slow_millis: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { turns: 6, slow_one_in: 0, slow_millis: 0 }
    }
}

/// A defect that a disk is given so that a test can show that it would be noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// One flush in so many succeeds without doing anything; 1 for all of them.
    SkipFlush(u64),
    /// One durable write in so many stays in the cache; 1 for all of them.
    SkipForce(u64),
    /// One write in so many goes to the block after the one it was meant for.
    Misplace(u64),
}

/// How a disk is full: as a file on a file system without space is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// Nothing can be written, as where every write takes new space.
    Everything,
    /// What was written before can be overwritten.
    New,
}

/// A sector that went bad, and nobody was told.
#[derive(Clone, Debug)]
pub struct Rot {
    sector: usize,
    was: Vec<u8>,
    is: Vec<u8>,
}

/// A disk: its medium, its cache and its faults. It survives what is attached to it.
pub struct SimDisk {
    power: Arc<Power>,
    pub(crate) geometry: Geometry,
    pub(crate) pace: Pace,
    pub(crate) dice: Dice,
    pub(crate) inner: Mutex<Inner>,
    pub(crate) written: AtomicU64,
    /// Operations whose futures have not ended.
    pub(crate) busy: AtomicU64,
    pub(crate) this: Weak<Self>,
}

pub(crate) struct Inner {
    pub(crate) medium: Medium,
    /// Operations that have begun, by number.
    in_flight: BTreeMap<u64, Change>,
    begun: u64,
    /// Devices of another number are dead.
    pub(crate) attachment: u64,
    present: bool,
    /// Sectors that cannot be read until they are written.
    pub(crate) unreadable: BTreeSet<usize>,
    pub(crate) fail_flushes: u64,
    pub(crate) fail_writes: u64,
    /// Writes that work before those that fail.
    pub(crate) spare_writes: u64,
    pub(crate) lie: Option<Lie>,
    pub(crate) full: Option<Full>,
    /// Where writes are acknowledged and not kept, in bytes.
    pub(crate) losing: Vec<std::ops::Range<usize>>,
}

impl SimDisk {
    /// A disk of zeros on this supply.
    #[must_use]
    pub fn new(power: &Arc<Power>, spec: &SimSpec) -> Arc<Self> {
        let geometry = Geometry {
            block_size: spec.block_size,
            physical_block_size: spec.block_size.max(4096),
            optimal_io_size: 0,
            unmap: spec.unmap,
            rotational: false,
            read_only: false,
        };
        let inner = Inner {
            medium: Medium::new(spec.size - spec.size % spec.block_size as usize),
            in_flight: BTreeMap::new(),
            begun: 0,
            attachment: 0,
            present: true,
            unreadable: BTreeSet::new(),
            fail_flushes: 0,
            fail_writes: 0,
            spare_writes: 0,
            lie: None,
            full: None,
            losing: Vec::new(),
        };
        Arc::new_cyclic(|this: &Weak<Self>| Self {
            power: Arc::clone(power),
            geometry,
            pace: spec.pace,
            dice: power.supply(this.clone()),
            inner: Mutex::new(inner),
            written: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            this: Weak::clone(this),
        })
    }

    /// The disk goes away with its cache, as when it is pulled with its power.
    pub fn vanish(&self, survival: Survival) {
        let mut inner = self.inner.lock();
        inner.present = false;
        inner.lose_cache(survival, &self.dice);
    }

    /// The disk cannot be reached any more, but keeps its cache, as when a cable is pulled.
    pub fn unplug(&self) {
        let mut inner = self.inner.lock();
        inner.present = false;
        inner.detach(&self.dice);
    }

    /// Whoever used the disk is gone, but the disk goes on: as when a process is killed. Who was told that a flush
    /// had failed is gone too, and nobody could tell later that data which can still be read is not safe: so what
    /// failed flushes have lost shows now.
    pub fn abandon(&self) {
        let mut inner = self.inner.lock();
        inner.detach(&self.dice);
        inner.medium.show_losses();
    }

    /// The disk is back; it must be attached anew.
    pub fn restore(&self) {
        self.inner.lock().present = true;
    }

    /// Whether the disk is there.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.inner.lock().present
    }

    /// Makes a range unreadable until it is written.
    pub fn damage(&self, offset: u64, len: u64) {
        let sectors = offset as usize / SECTOR..(offset + len).div_ceil(SECTOR as u64) as usize;
        self.inner.lock().unreadable.extend(sectors);
    }

    /// Takes away what was ordered of damage and failures.
    pub fn mend(&self) {
        self.forget_failures();
        self.inner.lock().unreadable.clear();
    }

    /// Takes away the failures that were ordered and have not come yet.
    pub fn forget_failures(&self) {
        let mut inner = self.inner.lock();
        inner.fail_flushes = 0;
        inner.fail_writes = 0;
    }

    /// The next `count` flushes fail; what each of them covered may never become durable.
    pub fn fail_flushes(&self, count: u64) {
        self.inner.lock().fail_flushes = count;
    }

    /// The next `count` writes fail; each may have been made in part.
    pub fn fail_writes(&self, count: u64) {
        self.fail_writes_after(0, count);
    }

    /// The same for the `count` writes that follow the next `spared` ones.
    pub fn fail_writes_after(&self, spared: u64, count: u64) {
        let mut inner = self.inner.lock();
        (inner.spare_writes, inner.fail_writes) = (spared, count);
    }

    /// Gives the disk a defect, or takes it away.
    pub fn set_lie(&self, lie: Option<Lie>) {
        self.inner.lock().lie = lie;
    }

    /// Bytes written by operations that completed.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Whether somebody waits for an operation, also for one that can only fail any more.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) > 0
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.inner.lock().medium.size() as u64
    }

    /// Overwrites what is on the medium, behind everybody's back.
    pub fn overwrite(&self, offset: u64, bytes: &[u8]) {
        let content = Content::Data(IoBuf::copy_from(bytes).freeze());
        let change = Change { offset: offset as usize, len: bytes.len(), content };
        self.inner.lock().medium.complete(change, true);
    }

    /// Flips a byte of the sector at `offset`, without a word: what was there and what is there now. `None` when the sector
    /// has not come to the medium yet.
    #[must_use]
    pub fn rot(&self, offset: u64, dice: &Dice) -> Option<Rot> {
        let sector = offset as usize / SECTOR;
        let mut inner = self.inner.lock();
        let (current, durable) = inner.medium.sector(sector);
        if current != durable {
            return None;
        }
        let (was, mut is) = (current.to_vec(), current.to_vec());
        is[dice.below(SECTOR as u64) as usize] ^= 1 << dice.below(8);
        inner.medium.swap(sector, &was, &is);
        Some(Rot { sector, was, is })
    }

    /// Whether a byte that was flipped is flipped still, or would be after a cut.
    #[must_use]
    pub fn is_rotten(&self, rot: &Rot) -> bool {
        let inner = self.inner.lock();
        let (current, durable) = inner.medium.sector(rot.sector);
        current == rot.is || durable == rot.is
    }

    /// Undoes [`SimDisk::rot`] where nothing else has been written since.
    pub fn unrot(&self, rot: &Rot) {
        self.inner.lock().medium.swap(rot.sector, &rot.is, &rot.was);
    }

    pub(crate) fn is_powered(&self) -> bool {
        self.power.is_on()
    }

    /// Counts an event; no lock of the disk may be held, because the supply cuts all disks.
    pub(crate) fn event(&self) -> Result<(), BlockError> {
        if self.power.event() { Ok(()) } else { Err(gone()) }
    }
}

impl Supplied for SimDisk {
    fn lose_power(&self, survival: Survival) {
        self.inner.lock().lose_cache(survival, &self.dice);
    }
}

impl Inner {
    fn lose_cache(&mut self, survival: Survival, dice: &Dice) {
        self.attachment += 1;
        let in_flight = std::mem::take(&mut self.in_flight).into_values().collect();
        self.medium.cut(in_flight, survival, dice);
    }

    /// Whoever uses the disk is dead, and what was under way never was.
    pub(crate) fn forget_users(&mut self) {
        self.attachment += 1;
        self.in_flight.clear();
    }

    fn detach(&mut self, dice: &Dice) {
        self.attachment += 1;
        let in_flight = std::mem::take(&mut self.in_flight).into_values().collect();
        self.medium.interrupt(in_flight, dice);
    }

    pub(crate) fn check(&self, attachment: u64) -> Result<(), BlockError> {
        if self.present && self.attachment == attachment { Ok(()) } else { Err(gone()) }
    }

    /// An operation begins.
    pub(crate) fn begin(&mut self, change: Change) -> u64 {
        self.begun += 1;
        self.in_flight.insert(self.begun, change);
        self.begun
    }

    /// An operation ends; `None` if it was resolved meanwhile.
    pub(crate) fn end(&mut self, number: u64) -> Option<Change> {
        self.in_flight.remove(&number)
    }
}

pub(crate) fn gone() -> BlockError {
    BlockError::new(BlockErrorKind::Gone, "simulated disk")
}
