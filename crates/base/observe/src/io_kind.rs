//! What an operation of I/O does.

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// Reads.
    Read,
    /// Writes, zeroes.
    Write,
    /// Flushes.
    Flush,
    /// Unmaps.
    Unmap,
}
