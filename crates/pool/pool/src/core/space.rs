//! What is known of a space while the pool is open. What clients ask of it is in `space/requests.rs`.

mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use block_device::{BlockError, BlockErrorKind, Geometry, UnmapBehavior};
use observe::IoStats;
use parking_lot::RwLock;
use pool_format::{BLOCK, Checksum, DiskId, Guid, JOURNAL_ROW, SpaceId, SpaceRecord};
use pool_layout::Striping;
use tokio::sync::Notify;

use super::Core;
use crate::journal::Journal;
use crate::row::{Group, Row, names};

/// A space of an open pool.
pub struct Space {
    core: Weak<Core>,
    this: Weak<Self>,
    geometry: Geometry,
    pub(crate) striping: Striping,
    /// What its blocks' checksums are calculated with, if they have any.
    pub(crate) checksum: Checksum,
    record: RwLock<SpaceRecord>,
    size: AtomicU64,
    rows: RwLock<BTreeMap<u32, Arc<Row>>>,
    journal: RwLock<Option<Arc<Journal>>>,
    resized: Notify,
    /// Its deletion has begun: no row may be allocated any more.
    deleted: AtomicBool,
    /// How often a disk went away with acknowledged writes that no other copy has.
    losses: AtomicU64,
    /// How many of them a flush has told of.
    losses_told: AtomicU64,
    /// How often regions were torn, and how many of these times have been mended.
    torn_losses: AtomicU64,
    losses_mended: AtomicU64,
    /// A row on its way to be freed, which comes back if that fails.
    going: RwLock<Option<(u32, Arc<Row>)>>,
    stats: IoStats,
}

impl Space {
    pub(crate) fn new(
        core: &Weak<Core>,
        record: SpaceRecord,
        striping: Striping,
        read_only: bool,
    ) -> Arc<Self> {
        let geometry = Geometry {
            block_size: BLOCK as u32,
            physical_block_size: BLOCK as u32,
            optimal_io_size: u32::try_from(striping.stripe_size()).unwrap_or(0),
            unmap: UnmapBehavior::Zeroes,
            rotational: false,
            read_only,
        };
        Arc::new_cyclic(|this| Self {
            core: Weak::clone(core),
            this: Weak::clone(this),
            geometry,
            striping,
            checksum: record.checksum.unwrap_or_default(),
            size: AtomicU64::new(record.size),
            record: RwLock::new(record),
            rows: RwLock::default(),
            journal: RwLock::default(),
            resized: Notify::new(),
            deleted: AtomicBool::new(false),
            losses: AtomicU64::new(0),
            losses_told: AtomicU64::new(0),
            torn_losses: AtomicU64::new(0),
            losses_mended: AtomicU64::new(0),
            going: RwLock::default(),
            stats: IoStats::default(),
        })
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> SpaceId {
        self.record.read().id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.record.read().name.clone()
    }

    /// Its identity.
    #[must_use]
    pub fn guid(&self) -> Guid {
        self.record.read().guid
    }

    /// How it is made.
    #[must_use]
    pub fn record(&self) -> SpaceRecord {
        self.record.read().clone()
    }

    /// Counters of its I/O.
    #[must_use]
    pub fn stats(&self) -> &IoStats {
        &self.stats
    }

    /// Rows that have slabs, and rows it could have.
    #[must_use]
    pub fn allocation(&self) -> (u64, u64) {
        let rows = self.rows.read();
        let journal = usize::from(self.striping.parity() > 0 && rows.contains_key(&JOURNAL_ROW));
        ((rows.len() - journal) as u64, self.striping.rows(self.size.load(Ordering::Acquire)))
    }

    pub(crate) fn rows(&self) -> Vec<(u32, Arc<Row>)> {
        self.rows.read().iter().map(|(number, row)| (*number, Arc::clone(row))).collect()
    }

    pub(crate) fn row(&self, number: u32) -> Option<Arc<Row>> {
        self.rows.read().get(&number).cloned()
    }

    pub(crate) fn put_row(&self, number: u32, row: Row) -> Arc<Row> {
        let row = Arc::new(row);
        self.rows.write().insert(number, Arc::clone(&row));
        row
    }

    pub(crate) fn take_row(&self, number: u32) -> Option<Arc<Row>> {
        self.rows.write().remove(&number)
    }

    pub(crate) fn set_record(&self, record: SpaceRecord) {
        self.size.store(record.size, Ordering::Release);
        *self.record.write() = record;
        self.resized.notify_waiters();
    }

    /// Refuses rows from now on. Called under [`Core::allocating`].
    pub(crate) fn set_deleted(&self) {
        self.deleted.store(true, Ordering::Release);
    }

    /// Acknowledged writes may be lost: the flushes that are under way, or the next one, will fail.
    pub(crate) fn tell_loss(&self) {
        self.losses.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether acknowledged writes may be lost that no flush has told of.
    pub(crate) fn has_untold_loss(&self) -> bool {
        self.losses.load(Ordering::Acquire) != self.losses_told.load(Ordering::Acquire)
    }

    /// Parity and data of these regions may not agree until what the journal has for them is in place: a write has failed half-way, or
    /// disks have gone with writes in their caches that parity does not make up for. The journal is kept until then.
    pub(crate) fn tear(&self, group: &Group, mask: u64) {
        // In this order: whoever finds that the journal is needed looks at which regions are torn.
        group.torn.fetch_or(mask, Ordering::AcqRel);
        self.torn_losses.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the journal may be all that says what stripes are to be: after [`Space::tear`], until these have been brought back.
    pub(crate) fn needs_journal(&self) -> bool {
        let losses = self.torn_losses.load(Ordering::Acquire);
        if losses == self.losses_mended.load(Ordering::Acquire) {
            return false;
        }
        let needs = !self.torn_rows().is_empty();
        if !needs {
            self.losses_mended.fetch_max(losses, Ordering::AcqRel);
        }
        needs
    }

    /// How often regions were torn: whoever has looked at which are torn looks again when that has grown.
    pub(crate) fn torn_losses(&self) -> u64 {
        self.torn_losses.load(Ordering::Acquire)
    }

    /// Rows with torn regions, and which these are. One that is being freed is among them until the journal says that it is.
    pub(crate) fn torn_rows(&self) -> BTreeMap<u32, u64> {
        let torn = |row: &Row| row.group(0).torn.load(Ordering::Acquire);
        let rows = self.rows.read();
        let going = self.going.read();
        let going = going.iter().map(|(number, row)| (*number, torn(row)));
        let all = rows.iter().map(|(number, row)| (*number, torn(row))).chain(going);
        all.filter(|(_, torn)| *torn != 0).collect()
    }

    /// The disks that torn regions wait for, for people.
    pub(crate) fn awaited_disks(&self) -> String {
        let rows = self.torn_rows().into_keys().filter_map(|number| self.row(number));
        let disks: BTreeSet<DiskId> = rows.flat_map(|row| row.missing()).collect();
        names(&disks)
    }

    /// The journal of a space with parity.
    pub(crate) fn journal(&self) -> Result<Arc<Journal>, BlockError> {
        let journal = self.journal.read().clone();
        journal.ok_or_else(|| BlockError::new(BlockErrorKind::Gone, "use the journal of a space without one"))
    }

    pub(crate) fn set_journal(&self, journal: Arc<Journal>) {
        *self.journal.write() = Some(journal);
    }

    pub(crate) fn core(&self) -> Result<Arc<Core>, BlockError> {
        self.core
            .upgrade()
            .ok_or_else(|| BlockError::new(BlockErrorKind::Gone, "use a space of a closed pool"))
    }

    /// Size in bytes now.
    pub(crate) fn bytes(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    pub(crate) fn this(&self) -> Result<Arc<Self>, BlockError> {
        self.this.upgrade().ok_or_else(|| BlockError::new(BlockErrorKind::Gone, "use a deleted space"))
    }
}
