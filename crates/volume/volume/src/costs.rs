//! What changes pay for the rows that they add, before anything is written: what a name takes, what a copy of a long row does, and who may
//! have how much of the room that is left (`room.rs`).

use file_store::names::fold;
use file_store::{StoreError, StoreErrorKind};

use crate::pending::PAGE;
use crate::session::Session;

/// Bytes of the rows that a file or a stream needs at most, but for its name: record, entry, and what names its size.
pub(crate) const ROW_OF_FILE: u64 = 1024;

/// Bytes that a name takes: in the record of its file, in its directory's entry, and folded as the key of that.
pub(crate) fn bytes_of_name(name: &str) -> u64 {
    (2 * name.len() + fold(name).len()) as u64
}

/// Bytes that a row of this length takes until the next commit when it is changed: nothing is spared where it has a page of its own.
pub(crate) fn copy_of(len: usize) -> u64 {
    let len = len as u64;
    if len > PAGE { len.next_power_of_two() } else { 0 }
}

fn full() -> StoreError {
    StoreError::new(
        StoreErrorKind::NoSpace,
        "the volume's metadata area is full; delete snapshots, clones or files",
    )
}

impl Session<'_> {
    /// A row of this length was written. What its copy takes until the next commit, the others of the group do not have: where that is much,
    /// they are done after a commit.
    pub(crate) fn copied(&mut self, len: usize) {
        self.allowance.take(copy_of(len));
    }

    /// Whether what comes next should come in a change of its own, as this one has taken much of what there is.
    pub(crate) fn is_long(&self) -> bool {
        self.changed && !self.allowance.has_half_of(&self.began_with)
    }

    /// Before anything is written: room for rows of so many bytes, of what is made anew.
    ///
    /// # Errors
    /// [`StoreErrorKind::NoSpace`].
    pub(crate) fn spend_to_make(&mut self, bytes: u64) -> Result<(), StoreError> {
        if bytes.saturating_mul(2) > self.allowance.make {
            return Err(full());
        }
        self.spend(bytes)
    }

    /// As [`Session::spend_to_make`], for what a write needs that maps clusters.
    ///
    /// # Errors
    /// [`StoreErrorKind::NoSpace`].
    pub(crate) fn spend(&mut self, bytes: u64) -> Result<(), StoreError> {
        // Each in a page of its own half full.
        let bytes = bytes.saturating_mul(2);
        if bytes > self.allowance.add {
            return Err(full());
        }
        self.allowance.take(bytes);
        Ok(())
    }

    /// As [`Session::spend`], for a row of an open.
    ///
    /// # Errors
    /// [`StoreErrorKind::NoSpace`].
    pub(crate) fn spend_to_keep(&mut self, bytes: u64) -> Result<(), StoreError> {
        let bytes = bytes.saturating_mul(2);
        if bytes > self.allowance.keep {
            return Err(full());
        }
        self.allowance.take(bytes);
        Ok(())
    }

    /// As [`Session::spend`], for what gives space back by cutting something in two, and for what nobody may be refused.
    ///
    /// # Errors
    /// [`StoreErrorKind::NoSpace`].
    pub(crate) fn spend_to_cut(&mut self, bytes: u64) -> Result<(), StoreError> {
        let bytes = bytes.saturating_mul(2);
        if bytes > self.allowance.cut {
            return Err(full());
        }
        self.allowance.take(bytes);
        Ok(())
    }
}
