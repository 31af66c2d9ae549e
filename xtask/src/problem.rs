//! What a check has found: one thing that is not as it should be, and where.

use std::fmt;

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// File (relative to the root), with a line number where there is one.
    pub(crate) place: String,
    /// What is wrong and what to do about it.
    pub(crate) what: String,
}

impl Problem {
    pub(crate) fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}
