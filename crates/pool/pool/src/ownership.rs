//! Whether the pool is still this node's: no disk has said that another owner has taken over.
//!
//! A disk that refuses writes of an owner that has been replaced ([`BlockErrorKind::Fenced`]) has not failed. Its copies must not be
//! called stale, and no other copy may stand in for it: the pool as a whole belongs to somebody else. So the first such answer of any
//! disk stops everything: no request reaches a disk any more, no metadata is committed, and all I/O ends with `Fenced`.

use std::sync::atomic::{AtomicBool, Ordering};

use block_device::{BlockError, BlockErrorKind};
use pool_format::DiskId;

/// Shared by all disks of an open pool and its metadata.
#[derive(Default)]
pub(crate) struct Ownership {
    lost: AtomicBool,
}

impl Ownership {
    /// Whether another owner has taken over.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Takes notice of what a disk has answered; whether it has said that there is another owner. Says so once.
    pub(crate) fn hear<T>(&self, disk: DiskId, answer: &Result<T, BlockError>) -> bool {
        let Some(error) = answer.as_ref().err().filter(|error| error.kind() == BlockErrorKind::Fenced) else {
            return false;
        };
        if !self.lost.swap(true, Ordering::AcqRel) {
            tracing::error!(
                "disk {disk} belongs to another owner of the pool ({error}): the pool stops here"
            );
        }
        true
    }

    /// Refuses what only the owner may do.
    pub(crate) fn check(&self, doing: &'static str) -> Result<(), BlockError> {
        match self.is_lost() {
            false => Ok(()),
            true => Err(BlockError::new(BlockErrorKind::Fenced, doing)),
        }
    }

    /// Work for a client of the pool: whatever its answer is, it is none any more when another owner has taken over meanwhile.
    pub(crate) async fn guard<T>(
        &self,
        work: impl Future<Output = Result<T, BlockError>>,
    ) -> Result<T, BlockError> {
        let doing = "use a pool";
        self.check(doing)?;
        let answer = work.await;
        match (self.check(doing), answer) {
            (Ok(()), answer) => answer,
            (Err(fenced), Ok(_)) => Err(fenced),
            (Err(_), Err(error)) if error.kind() == BlockErrorKind::Fenced => Err(error),
            (Err(fenced), Err(error)) => Err(fenced.because(error)),
        }
    }
}
