//! The tables of a transaction, which record every change of a row: what is recorded goes to the metadata log.
//!
//! Tables are opened through [`Transaction::open_table`] only, so no change passes the log by. Reading goes straight to the
//! database's tables.

use std::borrow::Borrow;
use std::cell::RefCell;
use std::ops::{Deref, RangeBounds};

use redb::{AccessGuard, Key, StorageError, TableDefinition, TableError, Value, WriteTransaction};
use volume_format::{BatchWriter, Field, Table};

/// A table of the schema: its number in the metadata log, and its definition in the database.
pub(crate) struct Rows<K: Key + 'static, V: Value + 'static> {
    number: Table,
    pub(crate) definition: TableDefinition<'static, K, V>,
}

impl<K: Key + 'static, V: Value + 'static> Rows<K, V> {
    pub(crate) const fn new(number: Table, name: &'static str) -> Self {
        Self { number, definition: TableDefinition::new(name) }
    }
}

/// What a transaction has changed since the last batch.
struct Changes {
    batch: BatchWriter,
    /// The database refused a change: it is not known what of it is there.
    broken: bool,
    /// Changes of `links` and `maps`.
    links: u64,
}

impl Changes {
    fn count(&mut self, table: Table) {
        self.links += u64::from(matches!(table, Table::Links | Table::Maps));
    }
}

/// A transaction of the database that records what it changes.
pub(crate) struct Transaction {
    raw: WriteTransaction,
    changes: RefCell<Changes>,
}

impl Transaction {
    /// Records changes of at most `limit` bytes, and counts the others.
    pub(crate) fn new(raw: WriteTransaction, limit: usize) -> Self {
        Self {
            raw,
            changes: RefCell::new(Changes { batch: BatchWriter::new(limit), broken: false, links: 0 }),
        }
    }

    /// The database's transaction: for what is not to be recorded.
    pub(crate) fn raw(&self) -> &WriteTransaction {
        &self.raw
    }

    pub(crate) fn into_raw(self) -> WriteTransaction {
        self.raw
    }

    /// Opens a table, which no one else has open.
    ///
    /// # Errors
    /// The database's.
    pub(crate) fn open_table<K: Key + 'static, V: Value + 'static>(
        &self,
        rows: Rows<K, V>,
    ) -> Result<Recorded<'_, K, V>, TableError> {
        let table = self.raw.open_table(rows.definition)?;
        Ok(Recorded { table, number: rows.number, changes: &self.changes })
    }

    /// How many rows were changed since the last batch.
    pub(crate) fn changed_rows(&self) -> u32 {
        self.changes.borrow().batch.changes()
    }

    /// A number that grows with each change of which maps streams have, or link to.
    pub(crate) fn changes_of_links(&self) -> u64 {
        self.changes.borrow().links
    }

    /// Whether the database refused a change.
    pub(crate) fn is_broken(&self) -> bool {
        self.changes.borrow().broken
    }

    /// What was changed since the last batch.
    pub(crate) fn batch(&mut self) -> &mut BatchWriter {
        &mut self.changes.get_mut().batch
    }
}

/// An open table. It is read as the database's table that it is; what changes it is recorded.
pub(crate) struct Recorded<'t, K: Key + 'static, V: Value + 'static> {
    table: redb::Table<'t, K, V>,
    number: Table,
    changes: &'t RefCell<Changes>,
}

impl<'t, K: Key + 'static, V: Value + 'static> Deref for Recorded<'t, K, V> {
    type Target = redb::Table<'t, K, V>;

    fn deref(&self) -> &Self::Target {
        &self.table
    }
}

impl<K, V> Recorded<'_, K, V>
where
    K: Key + 'static,
    V: Value + 'static,
    for<'x> K::SelfType<'x>: Field<'x>,
    for<'x> V::SelfType<'x>: Field<'x>,
{
    /// Puts a row, or another value into one; the value before.
    pub(crate) fn insert<'k, 'v>(
        &mut self,
        key: impl Borrow<K::SelfType<'k>>,
        value: impl Borrow<V::SelfType<'v>>,
    ) -> Result<Option<AccessGuard<'_, V>>, StorageError> {
        {
            let mut changes = self.changes.borrow_mut();
            changes.count(self.number);
            changes.batch.put(self.number, key.borrow(), value.borrow());
        }
        self.table
            .insert(key.borrow(), value.borrow())
            .inspect_err(|_| self.changes.borrow_mut().broken = true)
    }

    /// Removes a row; the value that it had.
    pub(crate) fn remove<'k>(
        &mut self,
        key: impl Borrow<K::SelfType<'k>>,
    ) -> Result<Option<AccessGuard<'_, V>>, StorageError> {
        let removed = self.table.remove(key.borrow());
        let mut changes = self.changes.borrow_mut();
        changes.count(self.number);
        match &removed {
            Ok(Some(_)) => changes.batch.remove(self.number, key.borrow()),
            Ok(None) => {}
            Err(_) => changes.broken = true,
        }
        removed
    }

    /// Removes all rows of a range.
    pub(crate) fn remove_range<'a, R>(&mut self, range: impl RangeBounds<R> + 'a) -> Result<(), StorageError>
    where
        R: Borrow<K::SelfType<'a>> + 'a,
    {
        let (changes, number) = (self.changes, self.number);
        changes.borrow_mut().count(number);
        let gone = self.table.retain_in(range, |key, _| {
            changes.borrow_mut().batch.remove(number, &key);
            false
        });
        gone.inspect_err(|_| changes.borrow_mut().broken = true)
    }

    /// Removes all rows.
    pub(crate) fn clear(&mut self) -> Result<(), StorageError> {
        let (changes, number) = (self.changes, self.number);
        changes.borrow_mut().count(number);
        let gone = self.table.retain(|key, _| {
            changes.borrow_mut().batch.remove(number, &key);
            false
        });
        gone.inspect_err(|_| changes.borrow_mut().broken = true)
    }
}
