//! Entries for fuzzing: what clients write that is parsed here.

/// Paths, streams and patterns, as UTF-16.
pub fn path(bytes: &[u8]) {
    crate::path::fuzz(bytes);
}

/// The durable record of an open.
pub fn record(bytes: &[u8]) {
    if let Ok(record) = crate::record::OpenRecord::decode(bytes) {
        let again = crate::record::OpenRecord::decode(&record.encode());
        assert_eq!(again.as_ref(), Ok(&record));
    }
}
