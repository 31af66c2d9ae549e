//! Security descriptors, inside a transaction.

use file_store::StoreError;
use redb::ReadableTable;

use crate::database_error::database_error;
use crate::session::Session;
use crate::tables::SECURITY;

impl Session<'_> {
    pub(crate) fn put_security(&mut self, file: u64, descriptor: &[u8]) -> Result<(), StoreError> {
        self.changed = true;
        self.forget(file);
        let mut table = self.txn.open_table(SECURITY).map_err(database_error)?;
        table.insert(file, descriptor).map_err(database_error)?;
        drop(table);
        self.copied(descriptor.len());
        Ok(())
    }

    /// Bytes of the security descriptor that a file has.
    ///
    /// # Errors
    /// When the database fails.
    pub(crate) fn security_len(&self, file: u64) -> Result<u64, StoreError> {
        let table = self.txn.open_table(SECURITY).map_err(database_error)?;
        Ok(table.get(file).map_err(database_error)?.map_or(0, |row| row.value().len() as u64))
    }
}
