//! Why a run of several clients did not come about, or not to its end.

/// What was wrong, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FleetError(pub String);

impl FleetError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}
