//! What is wrong with a stream.

use std::fmt;

use byte_codec::DecodeError;

/// Why a stream is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffError {
    /// It is something else.
    NotADiff,
    /// A newer release wrote it; its version, or the features that are not known.
    Unsupported(u32),
    /// A record is damaged, left out, repeated or out of its place; the number of the record.
    Damaged(u64),
    /// A record says what cannot be; its number, and what.
    Invalid(u64, &'static str),
    /// It ended before its end.
    Truncated,
}

impl fmt::Display for DiffError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotADiff => write!(f, "this is no stream of differences"),
            Self::Unsupported(version) => write!(f, "a newer release wrote the stream (version {version})"),
            Self::Damaged(number) => {
                write!(f, "record {number} of the stream is damaged or not in its place")
            }
            Self::Invalid(number, what) => write!(f, "record {number} of the stream makes no sense: {what}"),
            Self::Truncated => write!(f, "the stream ends before its end"),
        }
    }
}

impl std::error::Error for DiffError {}

impl DiffError {
    pub(crate) fn of(number: u64, error: DecodeError) -> Self {
        match error {
            DecodeError::Invalid(what) => Self::Invalid(number, what),
            _ => Self::Invalid(number, "its length"),
        }
    }
}
