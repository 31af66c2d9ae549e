//! What becomes of a change of the metadata that was submitted.

use std::sync::Arc;

use block_device::{BlockError, BlockErrorKind};
use tokio::sync::oneshot;

use crate::error::{PoolError, PoolErrorKind};
use crate::ownership::Ownership;

/// A metadata commit failed: the pool has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitFailed {
    /// It did not reach a majority, or somebody else has opened the pool.
    Stopped,
    /// A disk has said that another owner has taken over.
    Fenced,
}

impl CommitFailed {
    /// Why nothing can be committed.
    pub(crate) fn of(ownership: &Ownership) -> Self {
        if ownership.is_lost() { Self::Fenced } else { Self::Stopped }
    }
}

impl From<CommitFailed> for BlockError {
    fn from(failed: CommitFailed) -> Self {
        let kind = match failed {
            CommitFailed::Stopped => BlockErrorKind::Poisoned,
            CommitFailed::Fenced => BlockErrorKind::Fenced,
        };
        Self::new(kind, "commit pool metadata")
    }
}

impl From<CommitFailed> for PoolError {
    fn from(failed: CommitFailed) -> Self {
        match failed {
            CommitFailed::Stopped => Self::new(
                PoolErrorKind::Stopped,
                "the pool has stopped: its metadata did not reach a majority of its disks, or somebody else has opened it",
            ),
            CommitFailed::Fenced => Self::new(
                PoolErrorKind::Fenced,
                "the pool has stopped: another owner has taken over its disks",
            ),
        }
    }
}

/// Waits for a submitted commit.
pub(crate) struct Commit {
    result: oneshot::Receiver<Result<(), CommitFailed>>,
    ownership: Arc<Ownership>,
}

impl Commit {
    pub(crate) fn new(
        result: oneshot::Receiver<Result<(), CommitFailed>>,
        ownership: Arc<Ownership>,
    ) -> Self {
        Self { result, ownership }
    }

    pub(crate) async fn done(self) -> Result<(), CommitFailed> {
        self.result.await.unwrap_or_else(|_| Err(CommitFailed::of(&self.ownership)))
    }
}
