//! What shows that a disk has gone back in time: the mark that it carries is older than the one that it has had (`marks.rs`).

use pool_format::{DiskId, Mark, PoolState};

/// What is known of a disk that has gone back in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WentBack {
    /// The mark that it carries.
    pub(crate) has: Mark,
    /// The one that it has had.
    pub(crate) had: Mark,
}

impl std::fmt::Display for WentBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it went back in time: it is as it was at {}, and has been at {}", self.has, self.had)
    }
}

/// Whether a disk that carries this mark has gone back.
pub(crate) fn went_back(state: &PoolState, disk: DiskId, has: Mark) -> Option<WentBack> {
    let had = *state.marks.get(&disk)?;
    (has < had).then_some(WentBack { has, had })
}
