//! Rows of slabs while the pool is open: which copies there are, and what is owed to them.
//!
//! # Masks
//! One bit per region of a column. `*_durable` masks say what the metadata on disk says (or will say before
//! anything that depends on it); the others are ahead of it. A single copy has nothing to be made equal with, so
//! its dirty regions are kept in memory only (`volatile`): enough to tell a flush that its disk took data along.
//!
//! The columns that stand in for each other share these masks, their locks and their order: a [`Group`]. Without
//! parity every column is one; with parity the whole row is, and its first column is the one the metadata's dirty marks name.
//!
//! | mask | set | cleared |
//! |---|---|---|
//! | `dirty_durable` | before the first write to a region, after the commit of `Dirty` | by the cleaner, before `Clean` is submitted |
//! | `volatile` | of a column with one copy, before a volatile write; at opening | by the cleaner, after a flush |
//! | `unsettled` | at opening, from the dirty regions, and by a write that failed: copies may differ, checksums lag | when the copies have been made equal and the checksums anew |
//! | `torn` | by a write that failed in a parity row, or a loss that parity does not make up for: parity may not match the data | when the disks are back, and what the journal has for the region is in place |
//! | `awaited` | at opening, with `torn`: the journal has more for the region than the columns that are here | with `torn` |
//! | copy `stale` | before `MarkStale` is submitted | when the copy has caught up |
//! | copy `stale_durable` | after the commit of `MarkStale` | when `ClearStale` is submitted |
//!
//! **Order rule.** Whoever decides on a mask and submits the change does both under `Group::order`, so that
//! the log has the changes in the order of the decisions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use block_device::{BlockError, BlockErrorKind};
use parking_lot::{Mutex, RwLock};
use pool_format::{ColumnRecord, CopyRecord, DiskId, JOURNAL_ROW, REGIONS, RowRecord, SpaceId, SpaceRecord};
use shard_runtime::RangeLocks;
use tokio::sync::Notify;

use crate::disk::PoolDisk;
use crate::page::Sums;

/// Where a column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) space: SpaceId,
    pub(crate) row: u32,
    pub(crate) column: u8,
}

/// The copies of a column at one moment. In-flight I/O holds the list it started with, so a list that nobody
/// holds any more has no I/O under way.
pub(crate) type Copies = Arc<[Arc<CopyState>]>;

/// One slab that holds a copy.
pub(crate) struct CopyState {
    pub(crate) disk: Arc<PoolDisk>,
    pub(crate) slab: u32,
    /// Where the slab starts on the disk, in bytes.
    pub(crate) start: u64,
    /// Where its pages of checksums start on the disk, in bytes; `None` on a disk without room for them.
    pub(crate) sums_start: Option<u64>,
    pub(crate) stale: AtomicU64,
    pub(crate) stale_durable: AtomicU64,
    /// Why it is to be given up when another has all it holds, although its disk stays: a [`Purpose`], or 0.
    moving: AtomicU8,
}

/// Why a sound copy moves to another disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Purpose {
    /// Disks are to be equally full, and fault domains used.
    Balance = 1,
    /// A copy of another row needs its place.
    Room = 2,
}

/// A slab to be moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) place: Place,
    pub(crate) from: DiskId,
    pub(crate) to: DiskId,
}

impl CopyState {
    pub(crate) fn new(record: &CopyRecord, disk: Arc<PoolDisk>) -> Self {
        let (start, sums_start) = {
            let layout = disk.layout.read();
            (layout.slab_offset(record.slab), layout.sums_offset(record.slab))
        };
        Self {
            disk,
            slab: record.slab,
            start,
            sums_start,
            stale: AtomicU64::new(record.stale),
            stale_durable: AtomicU64::new(record.stale),
            moving: AtomicU8::new(0),
        }
    }

    /// Why it moves, if it does.
    pub(crate) fn moves_for(&self) -> Option<Purpose> {
        match self.moving.load(Ordering::Acquire) {
            1 => Some(Purpose::Balance),
            2 => Some(Purpose::Room),
            _ => None,
        }
    }

    pub(crate) fn set_moving(&self, purpose: Option<Purpose>) {
        self.moving.store(purpose.map_or(0, |purpose| purpose as u8), Ordering::Release);
    }

    pub(crate) fn id(&self) -> DiskId {
        self.disk.id
    }

    /// Whether the copy holds the newest data of these regions and can be reached.
    pub(crate) fn is_good(&self, mask: u64) -> bool {
        self.disk.is_online() && self.stale.load(Ordering::Acquire) & mask == 0
    }
}

/// One column of a row.
pub(crate) struct Column {
    pub(crate) copies: RwLock<Copies>,
    /// Checksums of its blocks, in a space that has them.
    pub(crate) sums: Option<Sums>,
}

impl Column {
    fn new(
        record: &ColumnRecord,
        disk: &impl Fn(DiskId) -> Option<Arc<PoolDisk>>,
        sums: Option<Sums>,
    ) -> Self {
        let copies =
            record.copies.iter().filter_map(|copy| Some(Arc::new(CopyState::new(copy, disk(copy.disk)?))));
        Self { copies: RwLock::new(copies.collect()), sums }
    }

    pub(crate) fn copies(&self) -> Copies {
        Arc::clone(&self.copies.read())
    }

    /// Regions in which some copy can be read.
    pub(crate) fn good(&self) -> u64 {
        good_regions(self.copies().iter())
    }
}

/// Regions in which at least one of the copies is here and up to date.
fn good_regions<'a>(copies: impl Iterator<Item = &'a Arc<CopyState>>) -> u64 {
    let online = copies.filter(|copy| copy.disk.is_online());
    online.fold(0, |good, copy| good | !copy.stale.load(Ordering::Acquire))
}

/// Bits of a mask, lowest first.
pub(crate) fn bits(mask: u64) -> impl Iterator<Item = u32> {
    (0..REGIONS).filter(move |bit| mask & (1 << bit) != 0)
}

/// Disks by their numbers, for people; empty for none.
pub(crate) fn names(disks: &BTreeSet<DiskId>) -> String {
    disks.iter().map(|id| format!("disk {id}")).collect::<Vec<_>>().join(", ")
}

/// Columns that stand in for each other.
pub(crate) struct Group {
    pub(crate) locks: RangeLocks,
    /// Whether writes need dirty marks in the metadata: there is something that could differ after a crash.
    pub(crate) marks: bool,
    pub(crate) dirty_durable: AtomicU64,
    /// Regions whose dirty mark is being committed. A hint: of two that mark one the first to end takes it away.
    pub(crate) marking: AtomicU64,
    pub(crate) volatile: AtomicU64,
    pub(crate) touched: AtomicU64,
    pub(crate) unsettled: AtomicU64,
    pub(crate) torn: AtomicU64,
    /// Torn regions that an opening has found so: even what is here may be half-written, so nothing of them is read.
    pub(crate) awaited: AtomicU64,
    /// Settled regions in which a page of a column's checksums is damaged; see `recall.rs`.
    pub(crate) forgotten: AtomicU64,
    /// Regions under a page that a copy was found to have damaged, or older than it should be: what the copies hold there is
    /// compared, and the page written anew.
    pub(crate) suspect: AtomicU64,
    /// Regions of rows with parity in which blocks have become zero that may not be durable yet: a crash can bring back what
    /// they held before.
    pub(crate) zeroed: AtomicU64,
    /// Writes under way: counted before they look at `dirty_durable`.
    pub(crate) writing: AtomicU32,
    /// Who may write pages of checksums to disks: the cleaner, alone and in rounds, or copies that catch up. Of pages that stand
    /// in for each other only one may be on its way, and what the cleaner has written is on its way until the next flush.
    /// Taken before a lock of `locks`.
    pub(crate) pages: tokio::sync::RwLock<()>,
    pub(crate) order: Mutex<Order>,
}

/// What is decided under [`Group::order`].
#[derive(Default)]
pub(crate) struct Order {
    /// Regions that the cleaner has taken out of `dirty_durable` but not yet submitted as clean: a write takes
    /// them back without a commit.
    pub(crate) cleaning: u64,
    /// Regions that the cleaner has taken out of `volatile` and whose flush is under way.
    pub(crate) cleaning_volatile: u64,
    /// Regions of pages whose generation the metadata is being told: copies have it, and the metadata does not know it yet.
    pub(crate) telling: u64,
}

impl Group {
    fn new(dirty: u64, marks: bool, crashed: bool) -> Self {
        // What an earlier process wrote to a single copy may be in the disk's cache still.
        let volatile = if crashed && !marks { u64::MAX } else { 0 };
        Self {
            locks: RangeLocks::default(),
            marks,
            dirty_durable: AtomicU64::new(dirty),
            marking: AtomicU64::new(0),
            volatile: AtomicU64::new(volatile),
            touched: AtomicU64::new(0),
            unsettled: AtomicU64::new(if crashed && marks { dirty } else { 0 }),
            torn: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            suspect: AtomicU64::new(0),
            zeroed: AtomicU64::new(0),
            writing: AtomicU32::new(0),
            pages: tokio::sync::RwLock::default(),
            order: Mutex::new(Order::default()),
        }
    }

    /// Regions that may hold acknowledged writes which are not durable.
    pub(crate) fn unflushed(&self, order: &Order) -> u64 {
        let marked = self.dirty_durable.load(Ordering::SeqCst) | self.volatile.load(Ordering::SeqCst);
        marked | order.cleaning | order.cleaning_volatile
    }

    /// Remembers a volatile write where there are no dirty marks. Usually one load.
    pub(crate) fn mark_volatile(&self, mask: u64) {
        if self.volatile.load(Ordering::SeqCst) & mask != mask {
            self.volatile.fetch_or(mask, Ordering::SeqCst);
        }
    }

    /// Whether copies of these regions may differ, or checksums lag.
    pub(crate) fn is_unsettled(&self, mask: u64) -> bool {
        self.unsettled.load(Ordering::Acquire) & mask != 0
    }

    /// Whether what the journal has for these regions is not in place, as too many of their disks are away.
    pub(crate) fn is_torn(&self, mask: u64) -> bool {
        self.torn.load(Ordering::Acquire) & mask != 0
    }

    /// Parity and data of these regions agree again, or what was lost of them has been settled.
    pub(crate) fn mend(&self, mask: u64) {
        self.awaited.fetch_and(!mask, Ordering::AcqRel);
        self.torn.fetch_and(!mask, Ordering::AcqRel);
    }

    /// Counts a write for as long as the guard lives.
    pub(crate) fn begin_write(&self) -> WriteCount<'_> {
        self.writing.fetch_add(1, Ordering::SeqCst);
        WriteCount(self)
    }
}

/// See [`Group::begin_write`].
pub(crate) struct WriteCount<'a>(&'a Group);

impl Drop for WriteCount<'_> {
    fn drop(&mut self) {
        self.0.writing.fetch_sub(1, Ordering::SeqCst);
    }
}

/// How the rows of a space are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Columns of each stripe that hold parity.
    pub(crate) parity: usize,
    /// Copies that each column should have.
    pub(crate) copies: usize,
    /// Pages of checksums of a column; 0 without checksums.
    pub(crate) sums_pages: usize,
}

impl Shape {
    /// The shape of row `number` of a space.
    pub(crate) fn of(space: &SpaceRecord, number: u32, slab_size: u64) -> Self {
        let parity = usize::from(space.resiliency.parity());
        let sums_pages =
            if space.checksum.is_some() { pool_format::sums_pages(slab_size) as usize } else { 0 };
        if parity > 0 && number == JOURNAL_ROW {
            return Self { parity: 0, copies: parity + 1, sums_pages };
        }
        Self { parity, copies: space.resiliency.copies(), sums_pages }
    }

    /// Disks of a row that may be lost with no data lost.
    pub(crate) fn failures(self) -> usize {
        self.copies - 1 + self.parity
    }
}

/// A row.
pub(crate) struct Row {
    pub(crate) shape: Shape,
    /// It is from an earlier opening.
    pub(crate) inherited: bool,
    pub(crate) columns: Box<[Column]>,
    groups: Box<[Group]>,
    /// Its slabs go back to the pool as soon as nobody has it any more.
    given_up: AtomicBool,
    /// Wakes those who wait with the row in their hands.
    let_go: Notify,
}

impl Row {
    /// `crashed`: dirty regions are from an earlier opening, so their copies may differ.
    pub(crate) fn new(
        record: &RowRecord,
        shape: Shape,
        disk: &impl Fn(DiskId) -> Option<Arc<PoolDisk>>,
        crashed: bool,
    ) -> Self {
        let column =
            |column| Column::new(column, disk, (shape.sums_pages > 0).then(|| Sums::new(shape.sums_pages)));
        let groups = if shape.parity > 0 { record.columns.get(..1) } else { Some(&*record.columns) };
        let group = |lead: &ColumnRecord| {
            let marks = shape.failures() > 0 || shape.sums_pages > 0 || lead.copies.len() > 1;
            Group::new(lead.dirty, marks, crashed)
        };
        Self {
            shape,
            inherited: crashed,
            columns: record.columns.iter().map(column).collect(),
            groups: groups.unwrap_or_default().iter().map(group).collect(),
            given_up: AtomicBool::new(false),
            let_go: Notify::new(),
        }
    }

    /// Tells background work to let the row go.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        self.let_go.notify_waiters();
    }

    /// Whether nothing done for the row is of use any more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// Rests from work on the row, until it is given up at the longest.
    pub(crate) async fn pause(&self, rest: impl Future<Output = ()>) {
        let let_go = self.let_go.notified();
        if !self.is_given_up() {
            tokio::select! {
                biased;
                () = let_go => {}
                () = rest => {}
            }
        }
    }

    /// The column that stands for the group of `column` in the metadata's dirty marks.
    pub(crate) fn lead(&self, column: u8) -> u8 {
        if self.shape.parity > 0 { 0 } else { column }
    }

    /// What `column` shares with the columns that stand in for it.
    pub(crate) fn group(&self, column: u8) -> &Group {
        &self.groups[usize::from(self.lead(column))]
    }

    pub(crate) fn column(&self, column: u8) -> &Column {
        &self.columns[usize::from(column)]
    }

    /// Columns of which no copy of some of these regions is here and up to date.
    pub(crate) fn lacking(&self, mask: u64) -> usize {
        self.columns.iter().filter(|column| column.good() & mask != mask).count()
    }

    /// The disks of the row that are away.
    pub(crate) fn missing(&self) -> BTreeSet<DiskId> {
        let copies = self.columns.iter().flat_map(|column| column.copies().to_vec());
        copies.filter(|copy| !copy.disk.is_online()).map(|copy| copy.id()).collect()
    }

    /// The error of a request to regions that are torn: it names the disks that are awaited.
    pub(crate) fn awaits(&self, doing: &'static str) -> BlockError {
        let why = match names(&self.missing()) {
            none if none.is_empty() => {
                "its disks are here, and too much of it is damaged: opening the pool again settles what is lost".to_owned()
            }
            disks => format!("it must be made whole from the journal when more of its disks are back; missing: {disks}"),
        };
        BlockError::new(BlockErrorKind::Gone, doing).because(why)
    }

    /// Regions of `mask` whose data would be lost neither now nor in the end if the copy of `column` on `disk` were:
    /// another copy is good, or parity makes up for it.
    pub(crate) fn covered_without(&self, column: u8, disk: DiskId, mask: u64) -> u64 {
        let copies = self.column(column).copies();
        let by_copies = good_regions(copies.iter().filter(|copy| copy.id() != disk));
        mask & (by_copies | self.covered_by_parity(column))
    }

    /// Regions whose data another copy or parity has by what is recorded, whether or not the disks for that are here.
    pub(crate) fn recorded_without(&self, column: u8, disk: DiskId) -> u64 {
        let recorded = |column: &Column| {
            let copies = column.copies();
            let others = copies.iter().filter(|copy| copy.id() != disk);
            others.fold(0, |good, copy| good | !copy.stale.load(Ordering::Acquire))
        };
        recorded(self.column(column)) | self.calculable(column, recorded)
    }

    /// Regions in which what `column` holds can be calculated from the others.
    pub(crate) fn covered_by_parity(&self, column: u8) -> u64 {
        self.calculable(column, Column::good)
    }

    /// Regions in which what `column` holds can be calculated from what others have that is `good`.
    fn calculable(&self, column: u8, good: impl Fn(&Column) -> u64) -> u64 {
        if self.shape.parity == 0 {
            return 0;
        }
        // Bit-wise counters: regions in which at least one, at least two of the others cannot be read.
        let (mut one, mut two) = (0, 0);
        for (index, other) in self.columns.iter().enumerate() {
            if index != usize::from(column) {
                let lost = !good(other);
                two |= one & lost;
                one |= lost;
            }
        }
        let too_many = if self.shape.parity == 1 { one } else { two };
        !too_many & !self.group(column).torn.load(Ordering::Acquire)
    }
}
