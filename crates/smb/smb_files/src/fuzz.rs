//! Entries for fuzzing: what clients write that is parsed here.

/// Paths, streams and patterns, as UTF-16.
pub fn path(bytes: &[u8]) {
    crate::path::fuzz(bytes);
}
