//! How much more the metadata area can take, so that a change is refused before the database finds no page.
//!
//! A database that finds no page has failed, and the volume stops. So whoever adds rows first says how many bytes
//! ([`Session::spend`]); what removes them needs pages, too, and has what is kept back.
//!
//! ```text
//!   0            used              what may be added          kept back: removals, and pages of the last commits
//!   ├─────────────────────────┼───────────────────────────┼──────────────────────────┤ reach: how far it can grow
//! ```
//! What is used, the database tells only by a walk over all its pages. Two things make that rare. First, rows
//! cannot take more than what they would in pages a third full, and their numbers are known at once: mostly that is
//! enough. Second, whatever is added is written: after a look, what has been written since is the most that can have
//! been added, so that the next look is due when half of what was found is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use file_store::{StoreError, StoreErrorKind};
use redb::{Key, ReadableTableMetadata, Value, WriteTransaction};

use crate::database::{Session, database_error};
use crate::rows::Rows;
use crate::tables::{
    ENTRIES, EXTENTS, FREED, INODES, LINKS, MAPS, ORPHANS, SECURITY, SHARES, SNAPSHOTS, STATE, USES,
};

/// The database grows by doubling up to this, then by this much (redb's regions).
const REGION: u64 = 4 << 30;
/// What a growth may take beyond that: headers of file and regions.
const HEADERS: u64 = 1 << 20;
/// A page of a tree is merged with its neighbour when it is less than a third full (redb).
const FULL: u64 = 3;
/// Parts of what it can grow to that are kept back.
const KEPT: u64 = 4;
/// A part like this of what is left is little.
const NARROWED: u64 = 32;
/// When it looks full, it is walked again once a part like this of what is used has been written.
const CHANGED: u64 = 64;

/// What the storage of the database says of itself.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Its length, in bytes.
    pub(crate) length: AtomicU64,
    /// Bytes that were written to it since the opening.
    pub(crate) written: AtomicU64,
    /// Bytes that the area has.
    pub(crate) area: u64,
}

impl Meter {
    /// The length that the database can still grow to.
    fn reach(&self) -> u64 {
        reach(self.length.load(Ordering::Acquire), self.area)
    }
}

/// The length that a database of `length` bytes can grow to in an area of `area` bytes.
pub(crate) fn reach(length: u64, area: u64) -> u64 {
    let mut reach = length;
    loop {
        let headers = HEADERS.min(reach / 16);
        let next = if reach < REGION { reach * 2 } else { reach.saturating_add(REGION) };
        if reach == 0 || next.saturating_add(headers) > area {
            return reach;
        }
        reach = next;
    }
}

/// Whether an area of `new` bytes, less than the `old` ones, is enough for a database of `length` bytes: it can grow as far as
/// before, or to several times its length.
pub(crate) fn suffices(length: u64, old: u64, new: u64) -> bool {
    length <= new && (reach(length, new) >= reach(length, old) || length.saturating_mul(4) <= new)
}

/// What is known of the room.
pub(crate) struct Room {
    meter: Arc<Meter>,
    /// Bytes that were free at the last look, and [`Meter::written`] then.
    free: u64,
    at: u64,
    /// [`Meter::written`] from which on a walk is worth its time again.
    walk_at: u64,
}

/// What a group of changes may add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// Bytes for what adds.
    pub(crate) add: u64,
    /// Bytes for what removes, and may add a little on the way.
    pub(crate) cut: u64,
}

impl Allowance {
    /// For those who only look, or mend.
    pub(crate) const ANY: Self = Self { add: u64::MAX, cut: u64::MAX };
}

impl Room {
    pub(crate) fn new(meter: Arc<Meter>) -> Self {
        Self { meter, free: 0, at: 0, walk_at: 0 }
    }

    /// What was free at the last look without what has been written since, and without what is `pending`: pages that the open
    /// transaction may have taken and not written.
    fn left(&self, pending: u64) -> u64 {
        let since = self.meter.written.load(Ordering::Relaxed).saturating_sub(self.at);
        self.free.saturating_sub(since).saturating_sub(pending)
    }

    /// Below this much another look is due.
    fn look_below(&self, kept: u64) -> u64 {
        (self.free / 2).max(2 * kept)
    }

    /// Whether what is pending should be committed before more is changed: the next look would count it twice, as what it
    /// replaces is only free after the commit.
    pub(crate) fn is_short_of(&self, pending: u64) -> bool {
        pending > 0 && self.left(pending) < self.look_below(self.meter.reach() / KEPT)
    }

    /// Whether what is pending takes much of the room from what may need a lot of it.
    pub(crate) fn is_narrowed_by(&self, pending: u64) -> bool {
        pending > self.left(0) / NARROWED
    }

    /// What the changes of this transaction may add, of which `pending` bytes of pages may be taken already.
    pub(crate) fn allowance(
        &mut self,
        txn: &WriteTransaction,
        pending: u64,
    ) -> Result<Allowance, StoreError> {
        let reach = self.meter.reach();
        let kept = reach / KEPT;
        if self.left(pending) < self.look_below(kept) {
            self.look(txn, reach, 2 * kept)?;
        }
        let left = self.left(pending);
        Ok(Allowance { add: left.saturating_sub(kept), cut: left.saturating_sub(kept / 2) })
    }

    /// Finds out how much is free: by the numbers of rows if that leaves `enough`, else by a walk, unless little
    /// has changed since the last.
    fn look(&mut self, txn: &WriteTransaction, reach: u64, enough: u64) -> Result<(), StoreError> {
        let written = self.meter.written.load(Ordering::Relaxed);
        let by_rows = reach.saturating_sub(most_used(txn)?);
        if by_rows > enough {
            (self.free, self.at) = (by_rows, written);
            return Ok(());
        }
        if written < self.walk_at {
            return Ok(());
        }
        let stats = txn.stats().map_err(database_error)?;
        let used = stats.allocated_pages().saturating_mul(stats.page_size() as u64);
        (self.free, self.at) = (reach.saturating_sub(used), written);
        self.walk_at = written + used / CHANGED;
        Ok(())
    }
}

/// The most bytes that the rows of all tables take, if none is longer than most are.
fn most_used(txn: &WriteTransaction) -> Result<u64, StoreError> {
    fn rows<K: Key + 'static, V: Value + 'static>(
        txn: &WriteTransaction,
        table: Rows<K, V>,
        bytes: u64,
    ) -> Result<u64, StoreError> {
        let len = txn.open_table(table.definition).map_err(database_error)?.len().map_err(database_error)?;
        Ok(len.saturating_mul(bytes * FULL))
    }
    let used = [
        rows(txn, INODES, 256)?,
        rows(txn, ENTRIES, 160)?,
        rows(txn, EXTENTS, 48)?,
        rows(txn, MAPS, 32)?,
        rows(txn, LINKS, 48)?,
        rows(txn, USES, 40)?,
        rows(txn, SNAPSHOTS, 512)?,
        rows(txn, SHARES, 24)?,
        rows(txn, FREED, 20)?,
        rows(txn, ORPHANS, 12)?,
        rows(txn, SECURITY, 512)?,
        rows(txn, STATE, 1024)?,
    ];
    Ok(used.into_iter().fold(0, u64::saturating_add))
}

/// Pages that the change of a row takes at most until it is committed: copies of its leaf and of what leads there, or halves of
/// them.
const ROW_TAKES: u64 = 12 << 10;

/// The most bytes of pages that changes of so many rows take until they are committed, with keys and values of so many bytes.
pub(crate) fn most_taken(rows: u32, bytes: usize) -> u64 {
    u64::from(rows).saturating_mul(ROW_TAKES).saturating_add(2 * bytes as u64)
}

fn full() -> StoreError {
    StoreError::new(
        StoreErrorKind::NoSpace,
        "the volume's metadata area is full; delete snapshots, clones or files",
    )
}

impl Session<'_> {
    /// Before anything is written: room for rows of so many bytes.
    ///
    /// # Errors
    /// [`StoreErrorKind::NoSpace`].
    pub(crate) fn spend(&mut self, bytes: u64) -> Result<(), StoreError> {
        // Each in a page of its own half full.
        let bytes = bytes.saturating_mul(2);
        if bytes > self.allowance.add {
            return Err(full());
        }
        self.allowance.add -= bytes;
        self.allowance.cut = self.allowance.cut.saturating_sub(bytes);
        Ok(())
    }

    /// As [`Session::spend`], for what gives space back by cutting something in two.
    ///
    /// # Errors
    /// [`StoreErrorKind::NoSpace`].
    pub(crate) fn spend_to_cut(&mut self, bytes: u64) -> Result<(), StoreError> {
        let bytes = bytes.saturating_mul(2);
        if bytes > self.allowance.cut {
            return Err(full());
        }
        self.allowance.cut -= bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_takes_no_room_that_a_database_needs() {
        let mib = |count: u64| count << 20;
        // As far as before.
        assert!(suffices(mib(5), mib(8), mib(7)) && suffices(mib(1), mib(8), mib(7)));
        // Half as far, and still far enough or not.
        assert!(suffices(mib(16), mib(130), mib(114)) && !suffices(mib(32), mib(130), mib(114)));
        assert!(!suffices(mib(8), mib(8), mib(7)) && !suffices(u64::MAX, mib(8), mib(7)));
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
