//! How many bytes of pages the rows that were changed take until they are committed, at most.
//!
//! The first change of a page since the last commit makes a copy of it, and of those that lead there; later ones change the copy.
//! What they replace is free after the commit only. So a few rows of a large table take some pages each, and many rows no more than
//! the pages of the whole table, however often they are changed: of each table, the less of both counts.
//!
//! The numbers of rows are those of the last count, and one more for each change since.

use file_store::StoreError;
use redb::{Key, ReadableTableMetadata, Value, WriteTransaction};
use volume_format::{Amount, Table};

use crate::database_error::database_error;
use crate::rows::Rows;
use crate::tables::{
    COUNTERS, ENTRIES, EXTENTS, FREED, INODES, LINKS, MAPS, ORPHANS, SECURITY, SHARES, SNAPSHOTS, STATE, USES,
};

/// A page of the database.
pub(crate) const PAGE: u64 = 4096;
/// A page of a tree is merged with its neighbour when it is less than a third full (redb).
const FULL: u64 = 3;
/// Bytes of pages that the change of a row takes: copies of its leaf and of what leads there, or halves of them. A leaf that is larger
/// than a page comes on top.
const ROW_TAKES: u64 = 3 * PAGE;
/// Bytes of pages of a tree that may be less full than others: those on the way from its root.
const WAY: u64 = 4 * PAGE;

const TABLES: usize = Table::ALL.len();

/// Bytes that a row of a table has in the database's pages, with what leads there; of those that have no fixed length, bytes that
/// most have not. Those of counters are few.
fn row_bytes(table: Table) -> (u64, bool) {
    match table {
        Table::Inodes => (256, false),
        Table::Entries => (160, false),
        Table::Extents | Table::Links => (48, true),
        Table::Maps => (32, true),
        Table::Uses => (40, true),
        Table::Snapshots | Table::Security => (512, false),
        Table::Shares => (24, true),
        Table::Freed => (20, true),
        Table::Orphans => (12, true),
        Table::State => (1024, false),
        Table::Counters => (0, false),
    }
}

/// How many rows were changed that may be long: those of the other tables have a fixed length.
pub(crate) fn may_be_long(changes: &Amount) -> u64 {
    let of = |(table, count): (Table, &u32)| if row_bytes(table).1 { 0 } else { u64::from(*count) };
    Table::ALL.into_iter().zip(&changes.by_table).map(of).sum()
}

/// The most bytes of pages that so many rows of a table take, but for leaves that are larger than a page.
fn most_of(table: Table, rows: u64) -> u64 {
    // A leaf has a row at least, and a page above it two below.
    let most = rows.saturating_mul(2 * PAGE);
    match row_bytes(table) {
        (bytes, true) => most.min(rows.saturating_mul(bytes * FULL).saturating_add(WAY)),
        (_, false) => most,
    }
}

fn len<K: Key + 'static, V: Value + 'static>(
    txn: &WriteTransaction,
    rows: Rows<K, V>,
) -> Result<u64, StoreError> {
    txn.open_table(rows.definition).map_err(database_error)?.len().map_err(database_error)
}

fn rows_of(txn: &WriteTransaction, table: Table) -> Result<u64, StoreError> {
    match table {
        Table::Inodes => len(txn, INODES),
        Table::Entries => len(txn, ENTRIES),
        Table::Extents => len(txn, EXTENTS),
        Table::Maps => len(txn, MAPS),
        Table::Links => len(txn, LINKS),
        Table::Uses => len(txn, USES),
        Table::Snapshots => len(txn, SNAPSHOTS),
        Table::Shares => len(txn, SHARES),
        Table::Freed => len(txn, FREED),
        Table::Orphans => len(txn, ORPHANS),
        Table::Security => len(txn, SECURITY),
        Table::State => len(txn, STATE),
        Table::Counters => len(txn, COUNTERS),
    }
}

/// What is changed and not committed, by table in the order of [`Table::ALL`].
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Changes of rows.
    changed: [u64; TABLES],
    /// The most rows that there are; `None` before they were counted.
    rows: Option<[u64; TABLES]>,
    /// Those that were there at the last commit: their pages are taken until the next.
    committed: [u64; TABLES],
    /// Bytes of the changes.
    bytes: u64,
}

impl Pending {
    /// Rows are changed.
    pub(crate) fn add(&mut self, changes: &Amount) {
        for (table, count) in changes.by_table.iter().enumerate() {
            self.changed[table] = self.changed[table].saturating_add(u64::from(*count));
            if let Some(rows) = &mut self.rows {
                rows[table] = rows[table].saturating_add(u64::from(*count));
            }
        }
        self.bytes = self.bytes.saturating_add(changes.bytes);
    }

    /// Whether nothing is pending.
    pub(crate) fn is_none(&self) -> bool {
        self.changed == [0; TABLES]
    }

    /// Everything is committed.
    pub(crate) fn committed(&mut self) {
        (self.changed, self.bytes) = ([0; TABLES], 0);
        self.committed = self.rows.unwrap_or_default();
    }

    /// Counts the rows of all tables, which takes no walk.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) fn count(&mut self, txn: &WriteTransaction) -> Result<(), StoreError> {
        let mut rows = [0; TABLES];
        for (rows, table) in rows.iter_mut().zip(Table::ALL) {
            *rows = rows_of(txn, table)?;
        }
        self.rows = Some(rows);
        if self.is_none() {
            self.committed = rows;
        }
        Ok(())
    }

    /// Of all tables, what `bytes` says of one with so many rows: those that it has, or had at the last commit if that is more.
    fn sum(&self, bytes: impl Fn(Table, u64) -> u64) -> u64 {
        let rows = self.rows.unwrap_or([u64::MAX; TABLES]);
        let tables = Table::ALL.into_iter().zip(rows).zip(self.committed);
        tables.map(|((table, now), then)| bytes(table, now.max(then))).fold(0, u64::saturating_add)
    }

    /// The most bytes that the rows of all tables take without what is pending, however long they are, but for leaves that are larger than
    /// a page.
    pub(crate) fn most_used(&self) -> u64 {
        self.sum(most_of)
    }

    /// The most bytes that they take with what is pending, should every page change, however long the rows are, but for leaves that are
    /// larger than a page: no changes of those rows take more.
    pub(crate) fn most_used_with_copies(&self) -> u64 {
        self.sum(|table, rows| most_of(table, rows).saturating_mul(2))
            .saturating_add(self.bytes.saturating_mul(2))
    }

    /// The most bytes of pages that changes take until they are committed, but for leaves that are larger than a page.
    pub(crate) fn takes(&self) -> u64 {
        let of = |table: Table, rows| {
            self.changed[table as usize - 1].saturating_mul(ROW_TAKES).min(most_of(table, rows))
        };
        self.sum(of).saturating_add(self.bytes.saturating_mul(2))
    }
}

#[cfg(test)]
mod tests {
    use block_conformance::Rng;
    use redb::Database;
    use redb::backends::InMemoryBackend;

    use super::*;
    use crate::rows::Transaction;
    use crate::tables::make_tables;

    fn begin(database: &Database) -> Transaction {
        let mut txn = database.begin_write().expect("begin");
        txn.set_two_phase_commit(true);
        txn.set_quick_repair(true);
        Transaction::new(txn, 1 << 20)
    }

    fn allocated(txn: &Transaction) -> u64 {
        txn.raw().stats().expect("stats").allocated_pages() * PAGE
    }

    /// What the database takes for changes that are not committed is never more than what is reckoned, whatever they are.
    #[test]
    fn no_changes_take_more_than_is_reckoned() {
        const SPAN: u64 = 60_000;
        // Lists of what is free, and what the database is.
        const SLACK: u64 = 64 * PAGE;
        for seed in 0..8 {
            let database = Database::builder().create_with_backend(InMemoryBackend::new()).expect("database");
            let txn = database.begin_write().expect("begin");
            make_tables(&txn).expect("tables");
            txn.commit().expect("commit");
            let (mut rng, mut pending) = (Rng::new(seed), Pending::default());
            for round in 0..14 {
                let mut txn = begin(&database);
                if rng.one_in(2) || round == 0 {
                    pending.count(txn.raw()).expect("count");
                }
                let (before, kind, from) = (allocated(&txn), rng.below(6), rng.below(SPAN));
                for batch in 0..4 {
                    {
                        let mut extents = txn.open_table(EXTENTS).expect("table");
                        let mut freed = txn.open_table(FREED).expect("table");
                        let mut inodes = txn.open_table(INODES).expect("table");
                        for n in 0..1 + rng.below(3000) {
                            let at = match kind {
                                0 | 1 => (from + batch * 3000 + n) % SPAN,
                                _ => rng.below(SPAN),
                            };
                            let key = (7, 0, at);
                            match kind {
                                // In order, or all over; new, or over what is there.
                                0 | 2 | 3 => drop(extents.insert(key, (at, 1, 0)).expect("insert")),
                                // Most rows go, and pages become as empty as they can.
                                1 if at % 37 != 0 => drop(extents.remove(key).expect("remove")),
                                4 if at % 41 != 0 => drop(extents.remove(key).expect("remove")),
                                5 => {
                                    freed.insert(at, 3).expect("insert");
                                    // One record, again and again.
                                    let record = vec![at as u8; 100 + rng.below(200) as usize];
                                    inodes.insert(rng.below(3), record.as_slice()).expect("insert");
                                }
                                _ => {}
                            }
                        }
                    }
                    pending.add(&txn.batch().take_amount());
                    txn.batch().clear();
                    let taken = allocated(&txn).saturating_sub(before);
                    let reckoned = pending.takes();
                    let most = pending.most_used_with_copies() + SLACK;
                    assert!(allocated(&txn) <= most, "seed {seed} round {round} kind {kind}: {most} at most");
                    assert!(
                        taken <= reckoned,
                        "seed {seed} round {round} kind {kind}: {taken} of {reckoned} are taken"
                    );
                }
                let table = txn.raw().open_table(EXTENTS.definition).expect("table");
                let stats = table.stats().expect("stats");
                let pages = (stats.leaf_pages() + stats.branch_pages()) * PAGE;
                let rows = table.len().expect("len");
                assert!(
                    pages <= rows * row_bytes(Table::Extents).0 * FULL + WAY,
                    "seed {seed} round {round}: {rows} rows are in {pages} bytes"
                );
                drop(table);
                if round % 5 == 4 {
                    // Little, if it is the same again and again.
                    pending.count(txn.raw()).expect("count");
                    let most = pending.most_used() + 64 * PAGE;
                    assert!(pending.takes() <= most + 2 * pending.bytes, "seed {seed} round {round}");
                }
                txn.into_raw().commit().expect("commit");
                pending.committed();
                assert_eq!(pending.takes(), 0);
            }
        }
    }
}
