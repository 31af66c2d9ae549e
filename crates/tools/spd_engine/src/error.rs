//! Why a run could not be made.

/// What was wrong, where, and what to do.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct EngineError(pub String);

impl EngineError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}
