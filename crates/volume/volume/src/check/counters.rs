//! Numbers that are given out: never twice.

use file_store::StoreError;
use redb::ReadableTable;

use super::Examination;
use crate::database_error::database_error;
use crate::finding::Severity;
use crate::free::{Free, Run};
use crate::session::Session;
use crate::tables::{COUNTERS, EXTENTS, MAPS, NEXT_FILE, ROOT, SECURITY, SNAPSHOTS, USES, ZERO_UNTIL};

/// Files are numbered up to here: half of all numbers, which nobody counts up to. Larger ones come from damage.
pub(super) const FILE_MAX: u64 = u64::MAX / 2;

impl Session<'_> {
    fn counter(&self, name: &str) -> Result<Option<u64>, StoreError> {
        let counters = self.txn.open_table(COUNTERS).map_err(database_error)?;
        Ok(counters.get(name).map_err(database_error)?.map(|row| row.value()))
    }

    fn set_counter(&mut self, name: &str, value: u64) -> Result<(), StoreError> {
        self.changed = true;
        let mut counters = self.txn.open_table(COUNTERS).map_err(database_error)?;
        counters.insert(name, value).map_err(database_error)?;
        Ok(())
    }
}

impl Examination<'_, '_> {
    /// Before anything is repaired, since repairs make files.
    pub(super) fn counters(&mut self) -> Result<(), StoreError> {
        let last = self.last_file()?;
        let next = self.session.counter(NEXT_FILE)?;
        let wrong = match next {
            None => Some("is missing".to_owned()),
            Some(next) if next <= last => {
                Some(format!("says {next}, but file {last} is there: its number would be given out again"))
            }
            Some(next) if next > FILE_MAX => {
                Some(format!("says {next}, which leaves too few numbers for new files"))
            }
            Some(_) => None,
        };
        if let Some(detail) = wrong {
            let how = Some("it becomes the number after the last file");
            self.note(Severity::Critical, "counter", "the next file's number", detail, how);
            if self.repair {
                self.session.set_counter(NEXT_FILE, last + 1)?;
            }
        }
        Ok(())
    }

    /// The clusters that were zeroed reach as far as those in use, and no further than the volume. `taken` are those
    /// that somebody uses or that wait to be zeroed.
    pub(super) fn zeroed(&mut self, taken: &[Run]) -> Result<(), StoreError> {
        let used = taken.last().map_or(0, Run::end).min(self.clusters);
        let Some(until) = self.session.counter(ZERO_UNTIL)? else {
            // Volumes that were made before this was written down.
            return Ok(());
        };
        let (detail, sound) = if until > self.clusters {
            (format!("says {until}, the volume has {}", self.clusters), self.clusters)
        } else if until < used {
            (format!("says {until}, but clusters up to {used} are used"), used)
        } else {
            return Ok(());
        };
        let how = Some(
            "it is put right; unused clusters that it may be wrong about are zeroed before they are used",
        );
        self.note(Severity::Critical, "counter", "the clusters that were zeroed", detail, how);
        if !self.repair {
            return Ok(());
        }
        self.session.set_counter(ZERO_UNTIL, sound)?;
        if until < used {
            let mut unused = Free::default();
            unused.add(Run { start: until, count: used - until });
            taken.iter().for_each(|run| unused.remove_any(*run));
            for run in unused.runs() {
                self.session.put_freed(run)?;
            }
        }
        Ok(())
    }

    /// The largest number below the limit that any table knows.
    fn last_file(&self) -> Result<u64, StoreError> {
        let known = self.inodes.keys().chain(&self.orphans).copied().filter(|file| *file <= FILE_MAX);
        let mut last = known.max().unwrap_or(ROOT);
        let extents = self.session.txn.open_table(EXTENTS).map_err(database_error)?;
        let mut rows = extents.range(..=(FILE_MAX, u32::MAX, u64::MAX)).map_err(database_error)?;
        if let Some(row) = rows.next_back() {
            last = last.max(row.map_err(database_error)?.0.value().0);
        }
        let uses = self.session.txn.open_table(USES).map_err(database_error)?;
        let mut rows = uses.range(..=(FILE_MAX, u32::MAX, u64::MAX)).map_err(database_error)?;
        if let Some(row) = rows.next_back() {
            last = last.max(row.map_err(database_error)?.0.value().0);
        }
        let maps = self.session.txn.open_table(MAPS).map_err(database_error)?;
        for row in maps.iter().map_err(database_error)? {
            let map = row.map_err(database_error)?.1.value().0;
            last = if map <= FILE_MAX { last.max(map) } else { last };
        }
        let snapshots = self.session.txn.open_table(SNAPSHOTS).map_err(database_error)?;
        let mut rows = snapshots.range(..=FILE_MAX).map_err(database_error)?;
        if let Some(row) = rows.next_back() {
            last = last.max(row.map_err(database_error)?.0.value());
        }
        let security = self.session.txn.open_table(SECURITY).map_err(database_error)?;
        let mut rows = security.range(..=FILE_MAX).map_err(database_error)?;
        if let Some(row) = rows.next_back() {
            last = last.max(row.map_err(database_error)?.0.value());
        }
        Ok(last)
    }
}
