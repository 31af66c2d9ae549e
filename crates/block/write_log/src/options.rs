//! How a log works.

use std::time::Duration;

/// How a log works; may differ from opening to opening.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Writes up to this length go to the log, longer ones straight to the back, in bytes. Never more than a sixteenth of
    /// the ring, or of `memory`.
    pub small: u64,
    /// What may wait in memory, and so in the ring, in bytes; with the rounding of buffers up to twice this is held.
    pub memory: u64,
    /// How long the log waits for more before it destages what there is.
    pub quiet: Duration,
    #[cfg(test)]
    pub(crate) sabotage: crate::tests::Sabotage,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            small: 64 << 10,
            memory: 256 << 20,
            quiet: Duration::from_millis(500),
            #[cfg(test)]
            sabotage: crate::tests::Sabotage::None,
        }
    }
}
