//! How much more the metadata area can take, so that a change is refused before the database finds no page.
//!
//! A database that finds no page has failed, and the volume stops. So whoever adds rows first says how many bytes
//! (`costs.rs`); what removes them needs pages, too, and has what is kept back.
//!
//! ```text
//!   0         used         what may be made   only written   only opens   kept back: removals, and pages of the last commits
//!   ├─────────────────────┼──────────────────┼──────────────┼────────────┼──────────────────────┤ reach: how far it can grow
//! ```
//! Whoever makes files, names, streams, descriptors and rows of state is refused before who writes where nothing is mapped yet: no quota
//! counts the former, so one user could else end the writes of all others, thin disks among them. Rows of opens and of reservations have
//! room where even writes have none (`state_rows.rs`).
//! What is used, the database tells only by a walk over all its pages. Three things make that rare. First, it takes no more than its
//! length, which grows when it must: mostly that is enough. Second, rows cannot take more than a number of pages each, however long they
//! are, and their numbers are known (`pending.rs`). Third, whatever is added is written: after a walk, what has been written since is the
//! most that can have been added.
//!
//! Changes that are *pending* take copies of pages, and what these replace is free after the next commit only. The rule:
//! * A group runs when it is known that half of the reach is left beside what the pending changes take at most, or beside a second copy
//!   of every page that the tables have or had at the last commit, and else after a commit: so every batch that is acknowledged is in
//!   pages that the database has got already.
//! * A change is refused by what is left of the reach after that commit: the length that the area lets the database grow to, never the one
//!   that it has.

use std::iter::successors;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use file_store::{STATE_KEY_MAX, STATE_VALUE_MAX, StoreError};
use redb::{Key, ReadableTableMetadata, Value, WriteTransaction};
use volume_format::{Amount, METADATA_LOG_MIN, Superblock, metadata_log_size};

use crate::database_error::database_error;
use crate::meter::{Meter, reach};
use crate::pending::{PAGE, Pending, may_be_long};
use crate::rows::Rows;
use crate::tables::{ENTRIES, INODES, SECURITY, SNAPSHOTS, STATE};

/// Parts of what it can grow to that are kept back.
const KEPT: u64 = 4;
/// Parts of it that are kept for writes into holes: of a volume of 64 GiB that is 16 MiB at most, for some 50,000 extents.
const FOR_WRITES: u64 = 64;
/// Parts of it that are kept for rows of opens: of a volume of 64 GiB another 16 MiB, for some 16,000 opens. Writes into holes have that
/// much less; else who writes without end would refuse files that are there to those who open them.
const FOR_OPENS: u64 = 64;
/// And bytes at most, however large the volume is: a server has no more than 262,144 opens, whose rows pay 1 KiB each as a rule.
const FOR_OPENS_MAX: u64 = 256 << 20;
/// What the longest row pays, with its key (`costs.rs`).
const LONGEST_PAYS: u64 = 2 * (STATE_VALUE_MAX + STATE_KEY_MAX) as u64;
/// A part like this of what is left is little.
const NARROWED: u64 = 32;
/// It is not walked again before a part like this of what is used has been written, nor before one like the next of what was left: while
/// nothing is removed, the number of walks grows with the logarithm of the rows.
const CHANGED: u64 = 64;
const LEFT: u64 = 2;

/// What a leaf takes at most on top, with the one that it is merged with: each as long as two of the longest rows
/// (`file_store::STATE_VALUE_MAX`, or an inode with all its names), in a number of pages that is a power of two.
const LONG_TAKES: u64 = 2 * (4 << 20);
/// Databases of this length are looked at for long rows at once, and those longer than the other not at all: they have room.
const LOOKED_AT_ONCE: u64 = 16 << 20;
const LOOKED_AT_MAX: u64 = 1 << 30;
/// The look is worth its time again when a part like this of what the database can grow to was written in long rows.
const LONG_PART: u64 = 16;

/// What is kept for rows of opens in a database that can grow to this.
fn for_opens(reach: u64) -> u64 {
    (reach / FOR_OPENS).min(FOR_OPENS_MAX)
}

/// Whether an area of `new` bytes, less than the `old` ones, is enough for a database of `length` bytes: it can grow as far as
/// before, or to several times its length.
fn suffices(length: u64, old: u64, new: u64) -> bool {
    let reach = |area| reach(length, area);
    length <= new && (reach(new) >= reach(old) || reach(new) >= length.saturating_mul(4))
}

/// What the superblock of a volume that has no metadata log becomes with one: the largest that costs the database none of what it
/// can grow to, else the usual one where that is enough; `None` where it is not.
pub(crate) fn with_log(superblock: &Superblock, length: u64) -> Option<Superblock> {
    let old = superblock.metadata_size;
    let smaller = |size: &u64| (*size > METADATA_LOG_MIN).then(|| (size / 2).max(METADATA_LOG_MIN));
    let usual = metadata_log_size(superblock.data_start - superblock.metadata_start);
    let mut logs = successors(Some(usual), smaller).map(|size| superblock.clone().with_metadata_log_of(size));
    let harmless = |new: &Superblock| {
        length <= new.metadata_size && reach(length, new.metadata_size) >= reach(length, old)
    };
    let logged = logs.find(harmless).unwrap_or_else(|| superblock.clone().with_metadata_log());
    (logged.metadata_size < old && suffices(length, old, logged.metadata_size)).then_some(logged)
}

/// What is known of the room.
pub(crate) struct Room {
    meter: Arc<Meter>,
    /// Bytes that were free at the last look, and [`Meter::written`] then.
    free: u64,
    at: u64,
    /// [`Meter::written`] from which on a walk is worth its time again.
    walk_at: u64,
    /// Walks so far.
    #[cfg(test)]
    walks: u64,
    pending: Pending,
    long: Long,
}

/// What is known of leaves that are larger than a page: those that have a long row, and short ones beside it. A change of any of
/// their rows copies them whole, once until the next commit.
struct Long {
    /// Bytes of their pages at most; `None` while nobody has looked, and then it is all of the database.
    bytes: Option<u64>,
    /// That is worth a look, as it holds changes back.
    wanted: bool,
    /// `bytes` from which on it is worth another one, as rows that were replaced are counted as well.
    look_at: u64,
    /// Bytes of copies that are pending.
    copied: u64,
}

/// What a group of changes may add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// Bytes for what makes something: a file, a name, a stream, a descriptor, a row of state.
    pub(crate) make: u64,
    /// Bytes for what maps clusters, which may have those as well.
    pub(crate) add: u64,
    /// Bytes for rows of opens, which may have those as well.
    pub(crate) keep: u64,
    /// Bytes for what removes, and may add a little on the way.
    pub(crate) cut: u64,
}

impl Allowance {
    /// For those who only look, or mend.
    pub(crate) const ANY: Self = Self { make: u64::MAX, add: u64::MAX, keep: u64::MAX, cut: u64::MAX };

    /// So many bytes are taken of each.
    pub(crate) fn take(&mut self, bytes: u64) {
        for left in [&mut self.make, &mut self.add, &mut self.keep, &mut self.cut] {
            *left = left.saturating_sub(bytes);
        }
    }

    /// Whether half of what there was is left: more is reckoned for a change than it takes, and after a commit there is more again.
    pub(crate) fn has_half_of(&self, before: &Self) -> bool {
        self.make >= before.make / 2 && self.add >= before.add / 2 && self.cut >= before.cut / 2
    }
}

impl Room {
    pub(crate) fn new(meter: Arc<Meter>) -> Self {
        let wanted = meter.length.load(Ordering::Acquire) <= LOOKED_AT_ONCE;
        let long = Long { bytes: None, wanted, look_at: 0, copied: 0 };
        Self {
            meter,
            free: 0,
            at: 0,
            walk_at: 0,
            #[cfg(test)]
            walks: 0,
            pending: Pending::default(),
            long,
        }
    }

    /// Rows were changed.
    pub(crate) fn add(&mut self, changes: &Amount) {
        self.pending.add(changes);
        let long = &mut self.long;
        long.bytes = long.bytes.map(|bytes| bytes.saturating_add(2 * changes.long_rows));
        let all = long.bytes.unwrap_or_else(|| self.meter.length.load(Ordering::Acquire));
        // Copied, and perhaps cut in two.
        let left = all.saturating_mul(2).saturating_sub(long.copied);
        long.copied += may_be_long(changes).saturating_mul(LONG_TAKES).min(left);
    }

    /// Whether nothing was changed since the last commit.
    pub(crate) fn is_committed(&self) -> bool {
        self.pending.is_none()
    }

    /// The most bytes of pages that everything takes that was changed since the last commit.
    fn taken(&self) -> u64 {
        if self.is_committed() { 0 } else { self.pending.takes().saturating_add(self.long.copied) }
    }

    /// Counts the rows, which is known too high: each change since the last time counts as another one.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) fn count(&mut self, txn: &WriteTransaction) -> Result<(), StoreError> {
        self.pending.count(txn)
    }

    /// Changes are held back over what they may take: a look at what there is of long rows may say that it is less. It reads much of
    /// the database, so it waits for that.
    pub(crate) fn look_closer(&mut self) {
        self.long.wanted |= self.long.bytes.is_none_or(|bytes| bytes > self.long.look_at);
    }

    /// Everything is committed.
    pub(crate) fn committed(&mut self) {
        self.long.copied = 0;
        self.pending.committed();
    }

    /// Finds out how much there is of leaves that are larger than a page, where that is wanted and takes no long time.
    fn look_for_long(&mut self, txn: &WriteTransaction) -> Result<(), StoreError> {
        let wanted = std::mem::take(&mut self.long.wanted);
        if !wanted || self.meter.length.load(Ordering::Acquire) > LOOKED_AT_MAX {
            return Ok(());
        }
        fn larger<K: Key + 'static, V: Value + 'static>(
            txn: &WriteTransaction,
            table: Rows<K, V>,
        ) -> Result<u64, StoreError> {
            let table = txn.open_table(table.definition).map_err(database_error)?;
            let stats = table.stats().map_err(database_error)?;
            let bytes = stats.stored_bytes() + stats.metadata_bytes() + stats.fragmented_bytes();
            // Each of them has two pages at least.
            Ok(2 * bytes.saturating_sub((stats.leaf_pages() + stats.branch_pages()) * PAGE))
        }
        let bytes = [
            larger(txn, INODES)?,
            larger(txn, ENTRIES)?,
            larger(txn, SNAPSHOTS)?,
            larger(txn, SECURITY)?,
            larger(txn, STATE)?,
        ];
        let bytes = bytes.into_iter().fold(0, u64::saturating_add);
        self.long.bytes = Some(bytes);
        self.long.look_at = bytes.saturating_mul(2).saturating_add(self.meter.reach() / LONG_PART);
        Ok(())
    }

    /// What is kept back.
    fn kept(&self) -> u64 {
        self.meter.reach() / KEPT
    }

    /// What is left once everything is committed: what the database has not grown to yet, what the numbers of rows leave, or what was free
    /// at the last walk without what has been written since, whichever says more. None of them is told more by longer rows than there is.
    fn left_after_commit(&self) -> u64 {
        let since = self.meter.written.load(Ordering::Relaxed).saturating_sub(self.at);
        let walked = self.free.saturating_sub(since);
        let (reach, length) = (self.meter.reach(), self.meter.length.load(Ordering::Acquire));
        let long = self.long.bytes.unwrap_or(length);
        let by_rows = reach.saturating_sub(self.pending.most_used().saturating_add(long));
        walked.max(by_rows).max(reach.saturating_sub(length))
    }

    /// What has to be left for whatever comes, the longest row included.
    fn longest(&self) -> u64 {
        let reach = self.meter.reach();
        self.kept() + for_opens(reach) + reach / FOR_WRITES + LONGEST_PAYS
    }

    /// Whether what is left is enough for whatever comes without being known exactly.
    fn is_plenty(&self) -> bool {
        self.left_after_commit() >= self.longest().max(3 * self.kept())
    }

    /// How much is written after a walk before another one is worth its time, which grows with what is used. Until then it is known that more
    /// is left than the next mark: the one from which on what is pending is committed first, or, close to that or behind it, the one from
    /// which on something is refused.
    fn until_next_walk(&self, used: u64) -> u64 {
        let (kept, longest) = (self.kept(), self.longest());
        let short = (2 * kept).max(longest);
        let mark = if self.free >= short + kept / LEFT { short } else { longest };
        (self.free.saturating_sub(mark) / LEFT).max(used / CHANGED)
    }

    /// What is left before a commit: without what is pending, or without a copy of everything, whichever says more.
    fn left(&self) -> u64 {
        let long = self.long.bytes.unwrap_or_else(|| self.meter.length.load(Ordering::Acquire));
        let all = self.pending.most_used_with_copies().saturating_add(long.saturating_mul(3));
        let left = self.left_after_commit().saturating_sub(self.taken());
        left.max(self.meter.reach().saturating_sub(all))
    }

    /// Whether what is pending should be committed before more is changed: a walk would count it twice, as what it replaces is only
    /// free after the commit.
    pub(crate) fn is_short(&self) -> bool {
        !self.is_committed() && self.left() < 2 * self.kept()
    }

    /// Whether what is pending takes much of the room from what may need a lot of it.
    pub(crate) fn is_narrowed(&self) -> bool {
        self.taken() > self.left_after_commit() / NARROWED
    }

    /// What the changes of this transaction may add, beside those that are pending.
    pub(crate) fn allowance(&mut self, txn: &WriteTransaction) -> Result<Allowance, StoreError> {
        self.look_for_long(txn)?;
        if !self.is_plenty() {
            self.look(txn)?;
        }
        let (left, kept) = (self.left(), self.kept());
        let reach = self.meter.reach();
        let keep = left.saturating_sub(kept);
        let add = keep.saturating_sub(for_opens(reach));
        let make = add.saturating_sub(reach / FOR_WRITES);
        Ok(Allowance { make, add, keep, cut: left.saturating_sub(kept / 2) })
    }

    /// Finds out how much is free: counts the rows, and if that does not say enough, walks, unless little has changed since the last
    /// time.
    fn look(&mut self, txn: &WriteTransaction) -> Result<(), StoreError> {
        let written = self.meter.written.load(Ordering::Relaxed);
        self.count(txn)?;
        if self.is_plenty() || written < self.walk_at {
            return Ok(());
        }
        let stats = txn.stats().map_err(database_error)?;
        let used = stats.allocated_pages().saturating_mul(stats.page_size() as u64);
        (self.free, self.at) = (self.meter.reach().saturating_sub(used), written);
        self.walk_at = written + self.until_next_walk(used);
        #[cfg(test)]
        {
            self.walks += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use volume_format::{FEATURE_METADATA_LOG, layout_for};

    use super::*;

    #[test]
    fn a_log_takes_no_room_that_a_database_needs() {
        let mib = |count: u64| count << 20;
        // As far as before.
        assert!(suffices(mib(5), mib(8), mib(7)) && suffices(mib(1), mib(8), mib(7)));
        // Half as far, and still far enough or not.
        assert!(suffices(mib(16), mib(130), mib(114)) && !suffices(mib(32), mib(130), mib(114)));
        assert!(!suffices(mib(8), mib(8), mib(7)) && !suffices(u64::MAX, mib(8), mib(7)));
        // Four times as long would fit, and it cannot become that: what it grows by has headers.
        assert!(!suffices(mib(16), mib(66), mib(64)));
    }

    #[test]
    fn an_older_volume_gets_the_largest_log_that_costs_no_growth() {
        let mib = |count: u64| count << 20;
        let log = |area: u64, length: u64| {
            let new = layout_for(mib(64 * area)).expect("large enough");
            let metadata_size = new.data_start - new.metadata_start;
            assert_eq!(metadata_size, mib(area));
            let old = Superblock { features: new.features & !FEATURE_METADATA_LOG, metadata_size, ..new };
            with_log(&old, mib(length)).map(|logged| logged.metadata_log().expect("a log").1 >> 20)
        };
        assert_eq!((log(64, 16), log(80, 16)), (Some(8), Some(10)), "the usual ones");
        assert_eq!(
            (log(66, 16), log(68, 16)),
            (Some(1), Some(2)),
            "all but some of the room for another doubling"
        );
        assert_eq!((log(65, 8), log(65, 16)), (Some(8), None), "without the last doubling");
    }

    /// However often rows are changed, that is no reason for a commit where there is room for a copy of all of them; and else it is.
    #[test]
    fn changes_are_committed_for_want_of_room_only() {
        use redb::{Database, backends::InMemoryBackend};

        use crate::rows::Transaction;
        use crate::tables::{EXTENTS, make_tables};

        let database = Database::builder().create_with_backend(InMemoryBackend::new()).expect("database");
        let mut txn = Transaction::new(database.begin_write().expect("begin"), 0);
        make_tables(txn.raw()).expect("tables");
        let change = |txn: &mut Transaction, room: &mut [Room]| {
            let mut extents = txn.open_table(EXTENTS).expect("table");
            for at in 0..10_000 {
                extents.insert((7, 0, at), (at, 1, 0)).expect("insert");
            }
            drop(extents);
            let amount = txn.batch().take_amount();
            room.iter_mut().for_each(|room| room.add(&amount));
            txn.batch().clear();
        };
        change(&mut txn, &mut []);
        let room = |length: u64, area: u64| {
            Room::new(Arc::new(Meter { length: length.into(), area, ..Meter::default() }))
        };
        // A copy of 10,000 rows of 144 bytes each at most is 1.4 MiB, which leaves more than half of the one's reach of 8 MiB, and beside the
        // rows less than half of the other's of 3 MiB.
        let mut rooms = [room(1 << 20, 9 << 20), room(3 << 18, 4 << 20)];
        for room in &mut rooms {
            let allowance = room.allowance(txn.raw()).expect("allowance");
            assert!(!room.is_short() && allowance.add > 0, "nothing is pending");
        }
        for round in 0..20 {
            change(&mut txn, &mut rooms);
            rooms.iter_mut().for_each(|room| room.count(txn.raw()).expect("count"));
            assert_eq!(rooms.each_ref().map(Room::is_short), [false, true], "round {round}");
        }
        rooms.iter_mut().for_each(Room::committed);
        assert_eq!(rooms.each_ref().map(Room::is_short), [false; 2]);
    }

    /// A walk reads the whole database: many rows, and many changes of the same ones, must not ask for one again and again.
    #[test]
    fn walks_are_rare_however_many_rows_are_made_or_changed() {
        use redb::{Database, backends::InMemoryBackend};

        use crate::rows::Transaction;
        use crate::tables::make_tables;

        const ROUNDS: u64 = 250;
        const ROWS: u64 = 400;
        // What a round is taken for: each row, with the pages of its copies.
        const ROUND_WRITES: u64 = 200 << 10;
        let database = Database::builder().create_with_backend(InMemoryBackend::new()).expect("database");
        let meter = Meter { length: (64 << 20).into(), area: 65 << 20, ..Meter::default() };
        let mut room = Room::new(Arc::new(meter));
        let round = |room: &mut Room, from: u64| {
            let mut txn = Transaction::new(database.begin_write().expect("begin"), 0);
            make_tables(txn.raw()).expect("tables");
            let _ = room.allowance(txn.raw()).expect("allowance");
            let mut inodes = txn.open_table(INODES).expect("table");
            for at in from..from + ROWS {
                inodes.insert(at, [7; 300].as_slice()).expect("insert");
            }
            drop(inodes);
            room.add(&txn.batch().take_amount());
            txn.batch().clear();
            let txn = txn.into_raw();
            txn.commit().expect("commit");
            room.committed();
            room.meter.written.fetch_add(ROUND_WRITES, Ordering::Relaxed);
        };
        for number in 0..ROUNDS {
            round(&mut room, number * ROWS);
        }
        let made = room.walks;
        let used = room.meter.reach() - room.free;
        assert!(used > room.meter.reach() / KEPT, "more than a quarter is used: {used}");
        assert!((1..12).contains(&made), "{made} walks for {} rows", ROUNDS * ROWS);
        for number in 0..ROUNDS {
            round(&mut room, number % 10 * ROWS);
        }
        let changed = room.walks - made;
        let written = ROUNDS * ROUND_WRITES;
        // Each reads what is used: no more in all than some times what was written.
        assert!(changed * used < 10 * written, "{changed} walks for {written} bytes");
    }

    /// Writes have that much less, so it is no more than opens can need.
    #[test]
    fn what_is_kept_for_opens_is_bounded() {
        assert_eq!(for_opens(1 << 30), 16 << 20, "of a volume of 64 GiB");
        assert_eq!((for_opens(16 << 30), for_opens(1 << 40)), (FOR_OPENS_MAX, FOR_OPENS_MAX));
    }

    #[test]
    fn it_grows_by_doubling_and_then_by_regions() {
        assert_eq!(reach(0, 8 << 20), 0);
        assert!((4 << 20..8 << 20).contains(&reach(1 << 20, 8 << 20)));
        assert_eq!(reach(5 << 20, 8 << 20), 5 << 20);
        assert!((12 << 30..17 << 30).contains(&reach(1 << 20, 17 << 30)));
        assert!(reach(u64::MAX / 4, u64::MAX / 4) == u64::MAX / 4);
    }
}
