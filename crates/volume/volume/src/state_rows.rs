//! Rows of durable state: what they pay, and how they are written.
//!
//! Where the metadata area is full, those who are at work go on: a row of an open or of a reservation that is there is changed, what holds
//! it is closed, a disk is reserved. New opens have room of their own, and end before that of what is there. All other rows pay as files
//! do. A row that goes, or becomes no longer than it was, pays nothing.

use file_store::{OPEN_ROW_KEPT, OPENS_TABLE, RESERVATIONS_TABLE, StateChange, StoreError};
use redb::ReadableTable;

use crate::database_error::database_error;
use crate::session::Session;
use crate::tables::STATE;

/// What rows are to be longer than those that they take the place of, in bytes.
#[derive(Default)]
struct Longer {
    /// Of what nobody may be refused.
    always: u64,
    /// Of opens.
    opens: u64,
    /// Of all else.
    others: u64,
}

impl Session<'_> {
    /// Changes rows, in order.
    ///
    /// # Errors
    /// [`StoreErrorKind::NoSpace`](file_store::StoreErrorKind::NoSpace), and nothing was changed; or when the database fails.
    pub(crate) fn write_state(&mut self, changes: &[StateChange]) -> Result<(), StoreError> {
        let Longer { always, opens, others } = self.longer(changes)?;
        self.spend_to_make(others)?;
        self.spend_to_keep(opens)?;
        self.spend_to_cut(always)?;
        self.changed = true;
        let stored = self.put_state(changes);
        self.fatal(stored)
    }

    fn longer(&self, changes: &[StateChange]) -> Result<Longer, StoreError> {
        let rows = self.txn.open_table(STATE).map_err(database_error)?;
        let mut longer = Longer::default();
        for StateChange { table, key, value } in changes {
            let Some(value) = value else { continue };
            let old = rows.get((table.as_str(), key.as_slice())).map_err(database_error)?;
            let (is_new, old) = old.map_or((true, 0), |row| (false, row.value().len()));
            // One that is new has its key, too.
            let bytes =
                if is_new { table.len() + key.len() + value.len() } else { value.len().saturating_sub(old) };
            let bytes = bytes as u64;
            match table.as_str() {
                RESERVATIONS_TABLE => longer.always += bytes,
                OPENS_TABLE if !is_new && value.len() <= OPEN_ROW_KEPT => longer.always += bytes,
                OPENS_TABLE => longer.opens += bytes,
                _ => longer.others += bytes,
            }
        }
        Ok(longer)
    }

    fn put_state(&mut self, changes: &[StateChange]) -> Result<(), StoreError> {
        let mut rows = self.txn.open_table(STATE).map_err(database_error)?;
        for change in changes {
            let key = (change.table.as_str(), change.key.as_slice());
            match &change.value {
                Some(value) => drop(rows.insert(key, value.as_slice()).map_err(database_error)?),
                None => drop(rows.remove(key).map_err(database_error)?),
            }
        }
        drop(rows);
        let long = changes.iter().filter_map(|change| change.value.as_ref());
        long.for_each(|value| self.copied(value.len()));
        Ok(())
    }
}
