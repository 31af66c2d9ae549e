//! Why a request failed, and above all whether it may have been done.

use std::fmt;

use crate::revision::Revision;

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// It was certainly not done, and will not be. Trying again is safe.
    NotDone(String),
    /// It may have been done, or may yet be: the answer is missing.
    Unknown(String),
    /// The request itself is wrong: too large, a key twice, a key that is no key. It was not done.
    Invalid(String),
    /// Changes were asked for that the store does not keep any more.
    Compacted {
        /// The earliest revision after which changes are still known.
        oldest: Revision,
    },
}

impl StoreError {
    /// Whether the request has certainly no effect, now or later.
    #[must_use]
    pub fn is_certainly_not_done(&self) -> bool {
        !matches!(self, Self::Unknown(_))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDone(why) => write!(f, "the store did not do it: {why}"),
            Self::Unknown(why) => write!(f, "the store may have done it, its answer is missing: {why}"),
            Self::Invalid(why) => write!(f, "the store does not take this: {why}"),
            Self::Compacted { oldest } => {
                write!(f, "the store knows changes after revision {} only: read everything again", oldest.0)
            }
        }
    }
}

impl std::error::Error for StoreError {}
