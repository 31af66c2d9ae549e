//! Errors of file stores.

use std::error::Error;
use std::fmt;

use block_device::{BlockError, BlockErrorKind};

/// What a caller can decide on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No such file, name or stream.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// The name breaks the rules of the contract.
    InvalidName,
    /// An argument makes no sense (overlap, overflow, too large).
    InvalidArgument,
    /// A directory was needed.
    NotADirectory,
    /// A directory is not allowed here.
    IsADirectory,
    /// The directory has entries.
    NotEmpty,
    /// The file has as many names as a file can have.
    TooManyNames,
    /// Another open does not share what is asked for.
    SharingViolation,
    /// The open does not have the access.
    AccessDenied,
    /// No space for what is asked; nothing was half-done.
    NoSpace,
    /// The files of the owner would take more than they may; nothing was half-done.
    QuotaExceeded,
    /// The store is read-only.
    ReadOnly,
    /// A structure on disk is damaged, or data cannot be read back.
    Corrupt,
    /// Another owner took over, or the store stopped after a failure of durability.
    Stopped,
    /// Any other failure below.
    Io,
}

/// An error of a file store.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    detail: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl StoreError {
    /// An error with a sentence for people: what was wrong, with what, and what to do if that is known.
    #[must_use]
    pub fn new(kind: StoreErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What happened, for decisions.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

impl From<BlockError> for StoreError {
    fn from(error: BlockError) -> Self {
        let kind = match error.kind() {
            BlockErrorKind::NoSpace => StoreErrorKind::NoSpace,
            BlockErrorKind::ReadOnly => StoreErrorKind::ReadOnly,
            BlockErrorKind::Media => StoreErrorKind::Corrupt,
            BlockErrorKind::Gone | BlockErrorKind::Fenced | BlockErrorKind::Poisoned => {
                StoreErrorKind::Stopped
            }
            _ => StoreErrorKind::Io,
        };
        Self::new(kind, error.to_string()).because(error)
    }
}
