//! Entries for fuzzing: every decoder over hostile bytes. None may panic or take more memory than the input
//! justifies.

use crate::{Checkpoint, JournalAnchor, JournalRecord, LogBatch, Released, SumsPage, Superblock, foreign};

/// A superblock.
pub fn superblock(bytes: &[u8]) {
    if let Ok(superblock) = Superblock::decode(bytes) {
        let _ = Superblock::decode(&superblock.encode());
    }
}

/// A log batch.
pub fn log_batch(bytes: &[u8]) {
    if let Ok((batch, _)) = LogBatch::decode(bytes) {
        let mut state = crate::PoolState::default();
        batch.changes.iter().for_each(|change| state.apply(change));
        let _ = state.problems();
    }
}

/// A checkpoint.
pub fn checkpoint(bytes: &[u8]) {
    let _ = Checkpoint::announced(bytes);
    if let Ok(checkpoint) = Checkpoint::decode(bytes) {
        let _ = checkpoint.state.problems();
    }
}

/// A foreign disk.
pub fn foreign_disk(bytes: &[u8]) {
    let _ = foreign::detect(bytes, bytes);
    if let Ok(released) = Released::decode(bytes) {
        assert_eq!(Released::decode(&released.encode()), Ok(released));
    }
}

/// A page of checksums, an anchor or a record of a parity space's journal.
pub fn data_structures(bytes: &[u8]) {
    if let Ok(page) = SumsPage::decode(bytes) {
        assert_eq!(SumsPage::decode(&page.encode()), Ok(page));
    }
    if let Ok(anchor) = JournalAnchor::decode(bytes) {
        assert_eq!(JournalAnchor::decode(&anchor.encode()), Ok(anchor));
    }
    if let Ok(record) = JournalRecord::decode(bytes) {
        assert_eq!(JournalRecord::decode(&record.encode()), Ok(record));
    }
}
