//! Errors of administering a pool. (I/O on a space ends with `BlockError`.)

use std::error::Error;
use std::fmt;

use block_device::{BlockError, BlockErrorKind};
use pool_format::Epoch;

/// What a caller can decide on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolErrorKind {
    /// What is asked for makes no sense; the detail says what would.
    Invalid,
    /// No such disk or space.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// The disk carries something else, named in the detail.
    ForeignData,
    /// Too few disks, or too little space on them.
    NoSpace,
    /// Too few metadata disks are here to be sure of the newest state.
    NoQuorum,
    /// The pool is closed, read-only, or stopped after a failure of durability.
    Stopped,
    /// A disk of the pool belongs to another owner, who has taken the pool over.
    Fenced,
    /// A structure on disk is damaged in all its copies.
    Damaged,
    /// A newer release wrote it, and this one cannot read it.
    TooNew,
    /// The data needs this disk.
    InUse,
    /// A disk failed.
    Io,
    /// The pool is closed, and acknowledged writes went with disks: nobody has been told of that yet.
    Lost,
    /// Its disks or the witness know an owner of this epoch, and the one that wants to open it has none above that. Nothing was changed.
    OldEpoch(Epoch),
}

/// An error of administering a pool.
#[derive(Debug)]
pub struct PoolError {
    kind: PoolErrorKind,
    detail: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl PoolError {
    pub(crate) fn new(kind: PoolErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), source: None }
    }

    pub(crate) fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What happened, for decisions.
    #[must_use]
    pub fn kind(&self) -> PoolErrorKind {
        self.kind
    }
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl Error for PoolError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

impl From<BlockError> for PoolError {
    fn from(error: BlockError) -> Self {
        let kind = match error.kind() {
            BlockErrorKind::NoSpace => PoolErrorKind::NoSpace,
            BlockErrorKind::Poisoned => PoolErrorKind::Stopped,
            BlockErrorKind::Fenced => PoolErrorKind::Fenced,
            _ => PoolErrorKind::Io,
        };
        Self::new(kind, error.to_string()).because(error)
    }
}
