//! The streams of a file, inside a transaction.

use file_store::names::{check as check_name, fold};
use file_store::{STREAMS_MAX, StoreError, StoreErrorKind};
use volume_format::StreamRecord;

use crate::costs::{ROW_OF_FILE, copy_of};
use crate::session::Session;

impl Session<'_> {
    /// The stream of that name, if there is one.
    pub(crate) fn find_stream(&self, file: u64, name: &str) -> Result<Option<StreamRecord>, StoreError> {
        let folded = fold(name);
        let found = self.inode(file)?.streams.into_iter().find(|stream| fold(&stream.name) == folded);
        Ok(found)
    }

    /// Why a stream of that name is not there.
    pub(crate) fn no_stream(name: &str) -> StoreError {
        match name {
            "" => StoreError::new(StoreErrorKind::IsADirectory, "a directory has no data"),
            _ => StoreError::new(StoreErrorKind::NotFound, format!("there is no stream {name}")),
        }
    }

    /// Makes a named stream, which is not there yet.
    pub(crate) fn create_stream(
        &mut self,
        file: u64,
        name: &str,
        now: u64,
    ) -> Result<StreamRecord, StoreError> {
        check_name(name)?;
        let mut inode = self.changeable(file)?;
        if inode.streams.len() >= STREAMS_MAX {
            return Err(StoreError::new(
                StoreErrorKind::InvalidArgument,
                format!("a file has at most {STREAMS_MAX} streams"),
            ));
        }
        let record = StreamRecord { id: inode.next_stream, name: name.to_owned(), size: 0 };
        // Never reused, so that what was of a removed stream is never taken for the new one's.
        inode.next_stream = inode.next_stream.checked_add(1).ok_or_else(|| {
            StoreError::new(StoreErrorKind::InvalidArgument, "the file has had all streams it can have")
        })?;
        inode.streams.push(record.clone());
        inode.times[3] = now;
        self.spend_to_make(ROW_OF_FILE + name.len() as u64 + copy_of(inode.encode().len()))?;
        let stored = self.put_inode(file, &inode);
        self.fatal(stored)?;
        Ok(record)
    }
}
