//! Deliberate defects, for the proof that tests find them.

use std::sync::atomic::{AtomicBool, Ordering};

use block_device::{BlockError, BlockErrorKind};

/// Deliberate defects, for the proof that the crash tests find them. Never set outside tests.
#[derive(Default)]
pub struct Faults {
    /// `flush` succeeds without flushing.
    pub skip_flush: AtomicBool,
    /// A write whose copy failed is acknowledged without marking the copy stale.
    pub skip_stale_mark: AtomicBool,
    /// Regions are written without being marked dirty first.
    pub skip_dirty_mark: AtomicBool,
    /// Stripes are written in place without being in the journal first.
    pub skip_journal: AtomicBool,
    /// What is read is not compared with its checksums.
    pub skip_verify: AtomicBool,
    /// A member that has gone back in time is believed.
    pub trust_stale_member: AtomicBool,
    /// The generation of a page of checksums is not compared with what the metadata knows of it.
    pub skip_generations: AtomicBool,
    /// A write that a disk without space refused is taken for one that it has made.
    pub ignore_no_space: AtomicBool,
    /// A write that no copy has is acknowledged.
    pub acknowledge_without_copy: AtomicBool,
    /// Where a disk has no slab left, one beyond its end is used.
    pub overfill_disks: AtomicBool,
}

impl Faults {
    /// Whether these results of a write pass for good ones by [`Faults::ignore_no_space`].
    pub(crate) fn pass_for_written<'a>(
        &self,
        mut results: impl Iterator<Item = &'a Result<(), BlockError>>,
    ) -> bool {
        let refused = |result: &Result<(), BlockError>| {
            result.as_ref().err().is_some_and(|error| error.kind() == BlockErrorKind::NoSpace)
        };
        self.ignore_no_space.load(Ordering::Relaxed) && results.any(refused)
    }
}
